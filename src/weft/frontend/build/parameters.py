"""Parameters of a program: what they declare, and what a call passes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.errors import DTypeError, LaunchError, RangeError, ShapeError
from weft.frontend.build.lowering import Lowering
from weft.frontend.build.places import Place
from weft.frontend.kernel.types import Parameters, ScalarType, bits_of
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Memory

__all__ = ["ArrayParameter", "Passed", "ScalarParameter", "Signature"]

_EXTENT: Final = 1 << 47  # elements along an axis of any array there can be


class ArrayParameter(Record):
    """An array: its memory, and whether the program writes to it."""

    name: str
    memory: Memory
    writable: bool


class ScalarParameter(Record):
    """A number."""

    name: str
    dtype: DType


class Passed:
    """What one call passes: addresses of arrays in order, values of variables by name."""

    __slots__ = ("addresses", "kept", "variables")

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.variables: dict[str, int] = {}
        self.kept: list[Any] = []


class Signature:
    """The parameters of a program, in order.

    Attributes
    ----------
    parameters : list of (ArrayParameter or ScalarParameter)
        What a call passes.
    memories : list of Memory
        The arrays.
    sizes : dict of str to Expr
        Declared sizes, which a call takes from the arrays.
    """

    def __init__(self, low: Lowering) -> None:
        self._low = low
        self._made = Parameters()
        self.parameters: list[ArrayParameter | ScalarParameter] = []
        self.sizes: dict[str, tuple[Expr, Place]] = {}

    @property
    def memories(self) -> list[Memory]:
        """The arrays, in order."""
        return self._made.memories

    def _claim(self, name: str, place: Place) -> None:
        if self._low.name(name) != name:
            raise self._low.wrong(place, f"the name {name!r} is used already")

    def size(self, name: str, place: Place) -> Expr:
        """Declare a size."""
        self._claim(name, place)
        made = self._made.variable(name, 0, _EXTENT)
        self.sizes[name] = made, place
        return made

    def scalar(self, name: str, d: DType, place: Place) -> Expr:
        """Declare a number."""
        if d.is_storage_only:
            raise self._low.wrong(place, f"a parameter of {d.name}", "pass it as a float32")
        self._claim(name, place)
        self.parameters.append(ScalarParameter(name, d))
        found = self._made.value(name, ScalarType(d))
        assert isinstance(found, Expr)
        return found

    def array(self, name: str, d: DType, sizes: Sequence[Expr | None], writable: bool,
              place: Place) -> Memory:  # fmt: skip
        """Declare an array; an axis without a size gets one of its own."""
        self._claim(name, place)
        for n in sizes:
            if n is not None and ex.free_vars([n]):
                raise self._low.wrong(place, "a size that is known only inside of the program",
                                      "sizes are ints, size() and expressions of them")
            if n is not None and n.op is Op.CONST and not 0 <= n.attr < _EXTENT:
                raise self._low.wrong(place, f"a size of {n.attr}")
        shape = tuple(self._made.variable(f"{name}.{k}", 0, _EXTENT) if n is None else n
                      for k, n in enumerate(sizes))
        memory = Memory(name, d, shape)
        self._made.memories.append(memory)
        self.parameters.append(ArrayParameter(name, memory, writable))
        return memory

    def check(self, place: Place) -> None:
        """Refuse sizes that no array has."""
        axes = {n for m in self.memories for n in m.shape}
        for name, (variable, where) in self.sizes.items():
            if variable not in axes:
                raise self._low.wrong(where, f"no array has the size {name}",
                                      "a number that is no size is a scalar()")

    # --- calls

    def take(self, title: str, args: tuple[Any, ...], named: dict[str, Any],
             disjoint: bool) -> Passed:  # fmt: skip
        """Return what a call passes.

        Raises
        ------
        LaunchError
            If arguments are missing, too many, or overlap where they must not.
        DTypeError, ShapeError, RangeError
            If one is not what was declared.
        """
        args = self._bound(title, args, named)
        passed = Passed()
        spans: list[tuple[int, int, ArrayParameter]] = []
        shapes: list[tuple[ArrayParameter, tuple[int, ...]]] = []
        for p, value in zip(self.parameters, args, strict=True):
            if isinstance(p, ScalarParameter):
                passed.variables[p.name] = bits_of(_number(title, p, value), p.dtype)
                continue
            array = _array(title, p, value)
            passed.kept.append(array)
            address = array.__array_interface__["data"][0]
            passed.addresses.append(address)
            shapes.append((p, array.shape))
            if array.nbytes:
                spans.append((address, address + array.nbytes, p))
        self._sizes(title, shapes, passed.variables)
        if disjoint:
            _check_overlap(title, spans)
        return passed

    def _bound(self, title: str, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        names = [p.name for p in self.parameters]
        expected = f"({', '.join(names)})"
        if len(args) > len(names):
            raise LaunchError(title, found=f"{len(args)} arguments", expected=expected)
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names or name in given:
                raise LaunchError(title, found=f"the argument {name!r}", expected=expected)
            given[name] = value
        absent = [name for name in names if name not in given]
        if absent:
            raise LaunchError(title, found=f"no {', '.join(absent)}", expected=expected)
        return tuple(given[name] for name in names)

    def _sizes(self, title: str, shapes: list[tuple[ArrayParameter, tuple[int, ...]]],
               variables: dict[str, int]) -> None:  # fmt: skip
        for p, shape in shapes:
            for n, size in zip(p.memory.shape, shape, strict=True):
                if n.op is Op.VARIABLE:
                    known = variables.setdefault(n.attr.name, size)
                    if known != size:
                        raise ShapeError(title, found=f"{p.name} of shape {shape}",
                                         expected=f"{n.attr.name} = {known}")
        for p, shape in shapes:
            for n, size in zip(p.memory.shape, shape, strict=True):
                if n.op is not Op.VARIABLE and value_of(n, variables) != size:
                    raise ShapeError(title, found=f"{p.name} of shape {shape}",
                                     expected=f"a size of {value_of(n, variables)}")


def value_of(e: Expr, variables: dict[str, int]) -> int:
    """Return the value of an expression of sizes."""
    if e.op is Op.CONST:
        return int(e.attr)
    from weft.ir.interpret import evaluate

    return int(evaluate(e, {v: variables[v.attr.name] for v in ex.variables([e])}))


def _number(title: str, p: ScalarParameter, value: Any) -> bool | int | float:
    """Return an argument that is a number, if it fits the parameter."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    d = p.dtype
    wanted = (bool,) if d.is_bool else (int, float) if d.is_float else (int,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and not d.is_bool):
        raise DTypeError(title, found=f"{p.name} = {value!r}", expected=f"a {d.name}")
    if not d.is_float and not d.is_bool and not d.min <= value <= d.max:
        raise RangeError(title, found=f"{p.name} = {value}",
                         expected=f"a {d.name}, {d.min} to {d.max}")
    if d.is_float and isinstance(value, int):
        try:
            value = float(value)
        except OverflowError:
            raise RangeError(title, found=f"{p.name} = an int of {value.bit_length()} bits",
                             expected=f"a {d.name}") from None
    number: bool | int | float = value
    return number


def _array(title: str, p: ArrayParameter, value: Any) -> Any:
    import numpy as np

    from weft.exchange import host as exchange

    if not isinstance(value, np.ndarray):
        try:
            value = exchange.as_array(value, f"argument {p.name}")
        except DTypeError as error:
            raise DTypeError(title, found=f"{type(value).__name__} for {p.name}",
                             expected=f"an array of {p.memory.dtype.name}") from error
    d = exchange.dtype_of(value, f"argument {p.name}")
    if d is not p.memory.dtype:
        raise DTypeError(title, found=f"{p.name} of {d.name}", expected=p.memory.dtype.name)
    if value.ndim != len(p.memory.shape):
        raise ShapeError(title, found=f"{p.name} of shape {value.shape}",
                         expected=f"{len(p.memory.shape)} axes")
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and value.dtype.isnative):
        raise LaunchError(title, found=f"{p.name} with strides {value.strides}",
                          expected="an array without gaps, rows first: copy it")
    if p.writable and not flags.writeable:
        raise LaunchError(title, found=f"{p.name}, which is read-only",
                          expected="an array that can be written to")
    return value


def _check_overlap(title: str, spans: list[tuple[int, int, ArrayParameter]]) -> None:
    spans.sort(key=lambda s: s[:2])
    for k, (_, end, p) in enumerate(spans):
        for start, _, q in spans[k + 1:]:
            if start >= end:
                break
            if p.writable or q.writable:
                raise LaunchError(title, found=f"{p.name} and {q.name} in the same memory",
                                  expected="arrays that do not overlap what is written",
                                  hint="copy one of them")
