"""Native launches: what a launch does with its arguments, as rows for `weft.runtimes.launches`.

The rows say in native code what `Host` says in Python, for arguments of exactly the Python types
that one launch had. They are strict: whatever they do not know goes the Python way.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.exchange import dlpack
from weft.frontend.core import TensorCore
from weft.frontend.kernel.types import (
    ArrayType,
    ConstantType,
    FieldsType,
    GroupType,
    KernelType,
    ScalarType,
)
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.runtimes.dispatch import Object
from weft.runtimes.launches import Address, Program

if TYPE_CHECKING:
    from weft.driver.launch import Loaded
    from weft.frontend.kernel.launch import Configured
    from weft.runtimes.launches import Context, Launcher

__all__ = ["native_launch"]

# Flags of NumPy's arrays.
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_PLAIN: Final = {bool: "b", int: "i", float: "f"}
_BY_VALUE: Final = (bool, int, str)


class _Python(Exception):
    """Something that only the Python way knows."""


def native_launch(configured: Configured, launcher: Launcher, loaded: Loaded,
                  args: tuple[Any, ...], types: dict[str, KernelType],
                  fail: Any) -> Context | None:  # fmt: skip
    """Return the native form of a launch, None if it has none.

    Parameters
    ----------
    configured, loaded
        What is launched.
    args, types
        Arguments of a launch that went well, and what they are.
    fail
        Raises what a kernel reported.
    """
    try:
        rows = _Rows(loaded, len(args))
        for position, (value, (name, kind)) in enumerate(zip(args, types.items(), strict=True)):
            annotated = configured.kernel._signature.wanted[name] is not None
            rows.take(1 + position, name, kind, value, annotated)
        rows.constants(configured.grid)
    except _Python:
        return None
    x, y, z = configured.grid
    a, b, c = configured.block
    function, release = loaded.native(launcher, x * y * z * a * b * c, x * y * z)
    rows.program.keep(loaded)
    return rows.program.assemble(
        buffers=rows.buffers, variables=rows.variables, owned=rows.owned, nowned=rows.nowned,
        function=function, release=release, fail=fail)


class _Rows:
    """The rows of one launch.

    Attributes
    ----------
    program : Program
        The rows.
    buffers, variables, owned : int
        First words of addresses, of variables, and of objects that a call owns.
    nowned : int
        How many of those there are.
    """

    def __init__(self, loaded: Loaded, nargs: int) -> None:
        self.program = Program(nargs)
        self.loaded = loaded
        self.buffers = self.program.words(loaded.nbuffers)
        self.variables = self.program.words(len(loaded.variables))
        self.owned, self.nowned = self.program.words(loaded.nbuffers), 0
        self._places = {name: self.variables + k for k, name in enumerate(loaded.variables)}
        self._arrays = 0

    def place(self, name: str) -> int:
        """Return the word of a variable; the kernel may not need it."""
        return self._places.get(name, 0)

    def constants(self, grid: tuple[int, int, int]) -> None:
        """Add what is the same in all launches."""
        for axis, count in zip("xyz", grid, strict=True):
            if f"grid.{axis}" in self._places:
                self.program.check("set", 0, self._places[f"grid.{axis}"], count)
        for k, address in enumerate(self.loaded.constants):
            self.program.check("set", 0, self.buffers + self._arrays + k, address)

    def take(self, word: int, name: str, kind: KernelType, value: Any, annotated: bool) -> None:
        """Add the rows of one argument; without an annotation its type tells what it is."""
        if isinstance(kind, ScalarType):
            if kind.dtype is dt.uint64 and type(value) is int and not annotated:
                raise _Python  # most ints are no uint64
            self._number(word, name, kind.dtype, value)
        elif isinstance(kind, FieldsType):
            raise _Python
        elif isinstance(kind, ConstantType):
            self._constant(word, value)
        elif isinstance(kind, GroupType):
            self._group(word, name, kind, value, annotated)
        elif isinstance(value, np.ndarray):
            self._array(word, name, kind, value)
        elif isinstance(value, TensorCore):
            self._tensor(word, name, kind, value)
        else:
            self._foreign(word, name, kind, value)

    def _constant(self, word: int, value: Any) -> None:
        kind = type(value)
        if kind is float:
            bits = int.from_bytes(struct.pack("<d", value), "little", signed=True)
            self.program.check("bits", word, bits)
        elif kind in _BY_VALUE and not isinstance(value, bool):
            self.program.check("equal", word, Object(value), kind)
        elif kind is tuple:
            raise _Python
        else:
            self.program.check("same", word, Object(value))

    def _group(self, word: int, name: str, kind: GroupType, value: Any,
               annotated: bool) -> None:  # fmt: skip
        if not isinstance(value, tuple):
            raise _Python
        first = self.program.words(max(len(value), 1))
        self.program.check("tuple", word, type(value), len(value), first)
        names = kind.names or tuple(map(str, range(len(value))))
        for k, (item, part) in enumerate(zip(value, kind.items, strict=True)):
            self.take(first + k, f"{name}.{names[k]}", part, item, annotated)

    def _number(self, word: int, name: str, d: DType, value: Any) -> None:
        place, check, kind = self.place(name), self.program.check, type(value)
        if d.is_bool and kind is bool:
            check("truth", word, place)
        elif d.is_integer and kind is int:
            if d.kind == "u" and d.bits == 64:
                check("unsigned", word, place)
            else:
                check("integer", word, place, int(d.min), int(d.max))
        elif d.is_float and d.bits >= 32 and kind in (float, int, np.float64):
            check("real", word, place, kind, d.itemsize)
        elif isinstance(value, np.generic) and value.dtype == d.numpy and value.dtype.isnative:
            check("scalar", word, place, kind, d.itemsize, int(d.kind == "i"))
        else:
            raise _Python

    def _axes(self, name: str, kind: ArrayType) -> list[int]:
        sizes = kind.shape or (None,) * kind.ndim
        words = []
        for k, n in enumerate(sizes):
            words += [-1 if n is None else n, self.place(f"{name}.{k}")]
        return words

    def _table(self, name: str, kind: ArrayType) -> Any:
        """Return the table of an array: where its address, sizes and steps go."""
        address = self.buffers + self._arrays
        self._arrays += 1
        if kind.order == "C":
            return self.program.table([address, *self._axes(name, kind)])
        shift = kind.dtype.itemsize.bit_length() - 1
        steps = [self.place(f"{name}.step{k}") for k in range(kind.ndim)]
        return self.program.table([address, shift, self.place(f"{name}.first"),
                                   self.place(f"{name}.span"), *self._axes(name, kind), *steps])

    def _array(self, word: int, name: str, kind: ArrayType, value: Any) -> None:
        mask = _CONTIGUOUS | _ALIGNED | _WRITEABLE
        flags = _ALIGNED | (0 if kind.readonly else _WRITEABLE)
        flags |= _CONTIGUOUS if kind.order == "C" else 0
        self.program.read("array" if kind.order == "C" else "strided", word, type(value),
                          value.dtype, kind.ndim, mask, flags, self._table(name, kind))

    def _tensor(self, word: int, name: str, kind: ArrayType, value: TensorCore) -> None:
        if value._buffer is None or kind.order != "C" or kind.ndim > 64:
            raise _Python
        address = self.buffers + self._arrays
        self._arrays += 1
        owner = self.owned + self.nowned
        self.nowned += 1
        table = self.program.table([address, owner, *self._axes(name, kind)])
        self.program.read("tensor", word, type(value), kind.dtype, kind.ndim,
                          int(name in self.loaded.written), type(value._buffer), table)

    def _foreign(self, word: int, name: str, kind: ArrayType, value: Any) -> None:
        """Add the rows of an object that offers its memory through DLPack's table of functions.

        They ask for what makes PyTorch's ``__dlpack__`` refuse and the table's function does not.
        """
        found = dlpack.exchange_function(type(value))
        code = dlpack.code_of(kind.dtype)
        if found is None or kind.readonly or kind.ndim > 64:
            raise _Python
        if hasattr(value, "requires_grad"):
            if value.requires_grad is not False:
                raise _Python
            self.program.check("attribute", word, sys.intern("requires_grad"), False)
        if hasattr(value, "is_neg") and kind.order != "C":
            self.program.check("answer", word, sys.intern("is_neg"), False)
        self.program.read("exchange", word, type(value), Address(found), kind.ndim, code,
                          int(kind.order == "C"), self._table(name, kind))
