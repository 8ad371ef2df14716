"""Native launches: what a launch does with its arguments, as rows for `launches`.

The rows say in native code what `Host` says in Python, for arguments of exactly the Python types
that one launch had. They are strict: whatever they do not know goes the Python way.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.exchange import dlpack
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.lang.values.types import (
    ArrayType,
    ConstantType,
    FieldsType,
    GroupType,
    KernelType,
    ScalarType,
)
from weft.runtimes.memory.buffer import Buffer
from weft.runtimes.native.calls.launches import Program
from weft.runtimes.native.calls.program import Object
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.write_lock import writing

if TYPE_CHECKING:
    from weft.driver.launch import Loaded
    from weft.lang.launch.protocol import Launched
    from weft.runtimes.native.calls.launches import Context, Launcher

__all__ = ["Python", "Rows", "native_launch"]

# Flags of NumPy's arrays.
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_PLAIN: Final = {bool: "b", int: "i", float: "f"}
_BY_VALUE: Final = (bool, int, str)


class Python(Exception):
    """Something that only the Python way knows."""


def native_launch(configured: Launched, launcher: Launcher, loaded: Loaded,
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
        rows = Rows(loaded, len(args))
        signature = configured.kernel._signature
        kinds = signature.unfolded(tuple(types.values()))
        for k, (name, wanted, value) in enumerate(signature.matched(args)):
            rows.take(1 + k, name, kinds[k], value, wanted is not None)
        rows.constants(configured.grid)
    except Python:
        return None
    x, y, z = configured.grid
    a, b, c = configured.block
    return rows.assemble(launcher, fail, x * y * z * a * b * c, x * y * z)


class Rows:
    """The rows of one launch.

    Attributes
    ----------
    program : Program
        The rows.
    buffers, variables, owned : int
        First words of addresses, of variables, and of objects that a call owns.
    nowned : int
        How many of those there are.

    Parameters
    ----------
    loaded
        What is launched.
    nargs
        How many arguments there are.
    fixed
        Sizes and steps of arrays by name, if it is for these only.
    """

    def __init__(self, loaded: Loaded, nargs: int,
                 fixed: Mapping[str, int] | None = None) -> None:  # fmt: skip
        self.program = Program(nargs)
        self.loaded = loaded
        self.fixed = fixed
        self._spans: list[int] = []  # of each array the word of its address, and its bytes
        self.buffers = self.program.words(loaded.nbuffers)
        self.variables = self.program.words(len(loaded.variables))
        self.owned, self.nowned = self.program.words(loaded.nbuffers), 0
        self._places = {name: self.variables + k for k, name in enumerate(loaded.variables)}
        self._arrays = 0
        self.written: Container[str] = loaded.written
        self._steps: list[tuple[int, int]] = []
        self._changes_tensors = False

    def place(self, name: str) -> int:
        """Return the word of a variable; the kernel may not need it."""
        return self._places.get(name, 0)

    def constants(self, grid: tuple[int, int, int] | None = None,
                  known: Mapping[str, int] | None = None, apart: bool = True) -> None:  # fmt: skip
        """Add what is the same in all launches: the grid, and variables that are known.

        With `apart` arrays of fixed sizes must not overlap.
        """
        values = dict(known or {})
        if grid is not None:
            values |= {f"grid.{axis}": count for axis, count in zip("xyz", grid, strict=True)}
        for name, value in values.items():
            if name in self._places:
                self.program.check("set", self._places[name], value)
        if apart and len(self._spans) > 2:
            self.program.read("apart", self.program.table(self._spans), len(self._spans) // 2)
        for k, address in enumerate(self.loaded.constants):
            self.program.check("set", self.buffers + self._arrays + k, address)

    def assemble(self, launcher: Launcher, fail: Any, threads: int, blocks: int,
                 again: int = 0, names: tuple[str, ...] = (),
                 order: Sequence[int] = ()) -> Context | None:  # fmt: skip
        """Return the launch; see `weft.runtimes.native.calls.launches.Program.assemble`."""
        function, release = self.loaded.native(launcher, threads, blocks)
        self.program.keep(self.loaded)
        return self.program.assemble(
            symbol=self.loaded.symbol, buffers=self.buffers, variables=self.variables,
            owned=self.owned, nowned=self.nowned, function=function, release=release, fail=fail,
            again=again, names=names, order=order,
            turns=writing.native if self._changes_tensors else None)

    def take(self, word: int, name: str, kind: KernelType, value: Any, annotated: bool) -> None:
        """Add the rows of one argument; without an annotation its type tells what it is."""
        if isinstance(kind, ScalarType):
            if kind.dtype is dt.uint64 and type(value) is int and not annotated:
                raise Python  # most ints are no uint64
            self._number(word, name, kind.dtype, value)
        elif isinstance(kind, FieldsType):
            raise Python
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
            raise Python
        else:
            self.program.check("same", word, Object(value))

    def _group(self, word: int, name: str, kind: GroupType, value: Any,
               annotated: bool) -> None:  # fmt: skip
        if not isinstance(value, tuple):
            raise Python
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
            raise Python

    def _axes(self, name: str, kind: ArrayType) -> list[int]:
        sizes: Sequence[int | None] = kind.shape or (None,) * kind.ndim
        if self.fixed is not None:
            sizes = [self.fixed[f"{name}.{k}"] for k in range(kind.ndim)]
        words = []
        for k, n in enumerate(sizes):
            words += [-1 if n is None else n, self.place(f"{name}.{k}")]
        return words

    def _table(self, name: str, kind: ArrayType) -> Any:
        """Return the table of an array: where its address, sizes and steps go."""
        address = self.buffers + self._arrays
        self._arrays += 1
        self._note_span(name, kind, address)
        if kind.order == "C":
            return self.program.table([address, 0, 0, *self._axes(name, kind)])
        shift = kind.dtype.itemsize.bit_length() - 1
        steps = [self._step(f"{name}.step{k}") for k in range(kind.ndim)]
        ends = self.place(f"{name}.first"), self.place(f"{name}.span")
        return self.program.table([address, 0, 0, *self._axes(name, kind), shift, *ends, *steps])

    def _step(self, name: str) -> int:
        """Return the word of a step, which has to be the one that is fixed."""
        if self.fixed is None:
            return self.place(name)
        word = self.place(name) or self.program.words(1)
        self._steps.append((word, self.fixed[name]))
        return word

    def _note_span(self, name: str, kind: ArrayType, address: int) -> None:
        """Note the memory of an array, of which `address` is the word of its lowest element."""
        if self.fixed is None:
            return
        count = math.prod(self.fixed[f"{name}.{k}"] for k in range(kind.ndim))
        if count and kind.order != "C":
            count = 1 + sum(abs(self.fixed[f"{name}.step{k}"]) * (self.fixed[f"{name}.{k}"] - 1)
                            for k in range(kind.ndim))
        if count:
            self._spans += [address, count * kind.dtype.itemsize]

    def _array(self, word: int, name: str, kind: ArrayType, value: Any) -> None:
        mask = _CONTIGUOUS | _ALIGNED | _WRITEABLE
        flags = _ALIGNED | (0 if kind.readonly else _WRITEABLE)
        flags |= _CONTIGUOUS if kind.order == "C" else 0
        self.program.read("array" if kind.order == "C" else "strided", word, type(value),
                          value.dtype, kind.ndim, mask, flags, self._table(name, kind))
        self._check_steps()

    def _check_steps(self) -> None:
        for word, step in self._steps:
            self.program.read("between", word, step, step)
        self._steps.clear()

    def _tensor(self, word: int, name: str, kind: ArrayType, value: TensorCore) -> None:
        if not isinstance(value._buffer, Buffer) or kind.order != "C" or kind.ndim > 64:
            raise Python
        address = self.buffers + self._arrays
        self._arrays += 1
        self._note_span(name, kind, address)
        owner = self.owned + self.nowned
        self.nowned += 1
        self._changes_tensors |= name in self.written
        table = self.program.table([address, 0, owner, *self._axes(name, kind)])
        self.program.read("tensor", word, type(value), kind.dtype, kind.ndim,
                          int(name in self.written), type(value._buffer), table)

    def _foreign(self, word: int, name: str, kind: ArrayType, value: Any) -> None:
        """Add the rows of an object that offers its memory through DLPack's table of functions.

        They ask for what makes PyTorch's ``__dlpack__`` refuse and the table's function does not.
        """
        found = dlpack.exchange_function(type(value))
        code = dlpack.code_of(kind.dtype)
        if found is None or kind.readonly or kind.ndim > 64:
            raise Python
        if hasattr(value, "requires_grad"):
            if value.requires_grad is not False:
                raise Python
            self.program.check("attribute", word, sys.intern("requires_grad"), False)
        may_be_negated = hasattr(value, "is_neg")
        if may_be_negated and kind.order != "C":
            self.program.check("answer", word, sys.intern("is_neg"), False)
        mode = 1 + 2 * may_be_negated if kind.order == "C" else 0
        self.program.read("exchange", word, type(value), found, kind.ndim, code, mode,
                          self._table(name, kind))
        self._check_steps()
