"""Types of a kernel's arguments: what one compiled kernel is made for."""

from __future__ import annotations

from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.lang.core.element_types import Packed, array_of, first_of, pair
from weft.lang.core.values import Fields, Group, Known, Value, View, ViewAxis

__all__ = ["ArrayType", "ConstantType", "FieldsType", "GroupType", "KernelType", "Parameters",
           "ScalarType", "dense"]  # fmt: skip

_EXTENT: Final = 1 << 47  # elements along an axis of any array there can be


class ScalarType(Record):
    """A number, passed by value."""

    dtype: DType


class ArrayType(Record):
    """An array: ``order`` is ``C`` where it is contiguous in row-major order, else ``A``.

    ``shape`` holds the sizes that the kernel is compiled for, None for the others; empty where it
    is compiled for none.
    """

    dtype: DType
    ndim: int
    order: str = "C"
    readonly: bool = False
    shape: tuple[int | None, ...] = ()


class FieldsType(Record):
    """An array of complex numbers or records: the arrays of its parts, and its own axes.

    Complex numbers have one part, an array of floats whose last axis has two; times have one of
    int64; texts have one of codes, whose last axis has those of an element.
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...]
    ndim: int
    kind: Any = None


class GroupType(Record):
    """A tuple; of a named tuple or a dataclass also the names and the class."""

    items: tuple[Any, ...]
    names: tuple[str, ...] = ()
    kind: type | None = None


class ConstantType(Record):
    """A value that the kernel is compiled for; ``mark`` tells equal ones of other types apart."""

    value: Any
    mark: str = ""


KernelType = ScalarType | ArrayType | FieldsType | GroupType | ConstantType


def dense(kind: Any) -> Any:
    """Return a type as annotated, arrays without gaps."""
    if isinstance(kind, ArrayType):
        return kind.replace(order="C")
    if isinstance(kind, GroupType):
        return kind.replace(items=tuple(map(dense, kind.items)))
    return kind


class Parameters:
    """The memories and variables of a kernel, made from the types of its arguments.

    A number travels as the 64 bits of a variable: an integer as it is, a float as its bit pattern.
    An array brings a variable for each size and, where it is not contiguous, for the offset of its
    first element, each stride, and the size of the memory from its lowest to its highest element.
    With ``flat`` every memory has one axis, for kernels that give arrays another shape.
    """

    def __init__(self, flat: bool = False) -> None:
        self.flat = flat
        self.memories: list[Memory] = []
        self.variables: list[Expr] = []

    def value(self, name: str, kind: KernelType) -> Value:
        """Return what a parameter holds, after declaring what it needs."""
        if isinstance(kind, ConstantType):
            return Known(kind.value)
        if isinstance(kind, GroupType):
            names = kind.names or tuple(map(str, range(len(kind.items))))
            items = tuple(self.value(f"{name}.{n}", k)
                          for n, k in zip(names, kind.items, strict=True))
            return Group(items, kind.names, kind.kind)
        if isinstance(kind, ScalarType):
            return self._scalar(name, kind.dtype)
        if isinstance(kind, FieldsType):
            return self._fields(name, kind)
        return self._array(name, kind)

    def _fields(self, name: str, kind: FieldsType) -> Fields:
        if kind.kind is complex:
            return pair(self._array(name, kind.parts[0]))
        if isinstance(kind.kind, Packed):
            return kind.kind.over(self._array(name, kind.parts[0]))
        parts = [self.value(f"{name}.{field}", part)
                 for field, part in zip(kind.names, kind.parts, strict=True)]
        if not kind.ndim:  # one record: an array of one
            parts = [first_of(p) for p in parts if isinstance(p, View | Fields)]
        return Fields(tuple(parts), kind.names, kind.ndim)

    def variable(self, name: str, low: int, high: int) -> Expr:
        """Declare a variable."""
        made = ex.Variable(name, low, high)
        self.variables.append(made)
        return made

    def _scalar(self, name: str, d: DType) -> Expr:
        if d.is_float:
            bits = self.variable(name, -(1 << 63), (1 << 63) - 1)
            unsigned = dt.unsigned(d.bits)
            return ex.bitcast(ex.cast(bits, unsigned), d)
        low, high = (0, 1) if d.is_bool else (int(d.min), int(d.max))
        if d is dt.uint64:
            low, high = -(1 << 63), (1 << 63) - 1
        return ex.cast(self.variable(name, low, high), d)

    def _array(self, name: str, kind: ArrayType) -> View:
        known = kind.shape or (None,) * kind.ndim
        sizes = tuple(self.variable(f"{name}.{k}", 0, _EXTENT) if n is None else ex.index(n)
                      for k, n in enumerate(known))
        if kind.order == "C":
            view = array_of(name, kind.dtype, sizes, "global", self.flat, kind.readonly)
            self.memories.append(view.memory)
            return view
        first = self.variable(f"{name}.first", 0, _EXTENT)
        steps = [self.variable(f"{name}.step{k}", -_EXTENT, _EXTENT) for k in range(kind.ndim)]
        span = self.variable(f"{name}.span", 0, _EXTENT)
        memory = Memory(name, kind.dtype, (span,))
        self.memories.append(memory)
        axes = tuple(ViewAxis(n, 0, step) for n, step in zip(sizes, steps, strict=True))
        return View(memory, (first,), axes, kind.readonly)


def bits_of(value: bool | int | float, d: DType) -> int:
    """Return the variable that carries a number of a type."""
    if not d.is_float:
        wrapped = dt.wrap(int(value), d)
        return wrapped - (1 << 64) if wrapped >= 1 << 63 else wrapped
    import numpy as np

    pattern = np.asarray(value, d.numpy).view(dt.unsigned(d.bits).numpy)
    found = int(pattern)
    return found - (1 << 64) if found >= 1 << 63 else found
