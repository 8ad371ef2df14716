"""What a name of a kernel can hold while the kernel is compiled.

A value is a scalar (an `Expr`), a `View` of memory, a `Group` of values (tuple, named tuple,
dataclass), or `Known`: any Python object that is known when the kernel is compiled, such as a
literal, a module, a dtype or a function.
"""

from __future__ import annotations

import ast
import re
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeGuard

from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.ir.tile import Tile

FIXED = "lists and tuples of a kernel keep their length and items: gpu.local.array holds numbers"

__all__ = ["FIXED", "FLAT", "Constant", "Fields", "Fragment", "Group", "Indices", "Known",
           "Members", "Range", "Value", "View", "Walk", "Wrong", "axes_of", "describe",
           "described", "is_flat", "is_tuple"]  # fmt: skip


class Known(Record):
    """A Python object that is known when the kernel is compiled."""

    value: Any

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Known):
            return False
        a, b = self.value, other.value
        return a is b or (type(a) is type(b) and isinstance(a, bool | int | float | str)
                          and repr(a) == repr(b))


class ViewAxis(Record):
    """One axis of a view: its extent, and how far a step goes along one axis of the memory.

    ``cut`` tells of a slice ``x[i:]`` where it begins, as part of the view's starts (no further
    than the end), what `i` is, and the extent of the axis that was cut.
    """

    extent: Expr
    axis: int
    step: Expr
    cut: tuple[Expr, Expr, Expr] | None = None


class View(Record):
    """An array as a kernel sees it: ``view[i, j]`` is ``memory[start + i * step, ...]``.

    ``starts`` holds one index for each axis of the memory; several axes of the view may run along
    one axis of the memory (an array of any strides is a view of flat memory). With ``seen`` its
    elements are numbers of that type, each of the bits of one or several elements of the memory.
    """

    memory: Memory
    starts: tuple[Expr, ...]
    axes: tuple[ViewAxis, ...]
    readonly: bool = False
    seen: DType | None = None

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.memory.dtype if self.seen is None else self.seen

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Sizes of its axes."""
        return tuple(a.extent for a in self.axes)

    def offset(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the index into the memory of an element of the view."""
        place = list(self.starts)
        for i, axis in zip(index, self.axes, strict=True):
            place[axis.axis] = place[axis.axis] + i * axis.step
        return tuple(place)


class Fields(Record):
    """An array whose elements have parts: complex numbers, or records.

    ``parts`` are the arrays of the parts; their first ``ndim`` axes are those of the array, further
    ones belong to a field that is an array. ``kind`` is ``complex`` for complex numbers, and the
    unit of times, which have one part.
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...]
    ndim: int
    kind: Any = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Sizes of its axes."""
        found: tuple[Expr, ...] = self.parts[0].shape[:self.ndim]
        return found

    @property
    def readonly(self) -> bool:
        """Whether its elements cannot be assigned."""
        return bool(self.parts[0].readonly)


class Fragment(View):
    """The elements of a matrix fragment that one thread holds."""

    tile: Tile = Tile("", (0, 0, 0))


class Group(Record):
    """A tuple; of a named tuple, a dataclass or a vector also the names and the class.

    A complex number is a group of its parts, of the class ``complex``.
    """

    items: tuple[Any, ...]
    names: tuple[str, ...] = ()
    kind: Any = None


class Range(Record):
    """What ``range(start, stop, step)`` is; ``unsigned`` where its items are uint64."""

    start: Expr
    stop: Expr
    step: Expr
    unsigned: bool = False


class Walk(Record):
    """What ``enumerate(x)`` and ``zip(x, y)`` are: things to walk through side by side."""

    parts: tuple[Any, ...]


class Iterator:
    """What ``iter(items)`` is: the items, and the cell with the place of the next one."""

    __slots__ = ("cell", "items")

    def __init__(self, items: Value, cell: Memory) -> None:
        self.items, self.cell = items, cell


class Indices(Record):
    """What ``np.ndindex`` is: all indices of a shape, the last one the fastest.

    With an array its elements there, in the same order; with `cells` as arrays without axes.
    """

    shape: tuple[Expr, ...]
    array: Any = None
    cells: bool = False


class _Flat:
    """What a group is that stands for all elements of the array in it."""

    __name__ = "flat array"


FLAT: Final[Any] = _Flat()


class Members:
    """What a group is that stands for one of several things; texts are noted as they come."""

    def __init__(self, name: str, options: list[Any]) -> None:
        self.__name__ = name
        self.options = options


class Constant(NamedTuple):
    """A NumPy array from outside: copies of its parts as they were, or for the device itself."""

    memories: tuple[Memory, ...]
    arrays: tuple[Any, ...]
    view: View | Fields
    node: ast.AST


class Wrong(Record):
    """What stands for a value after an error in it, so that nothing else is reported for it."""


def is_flat(value: Any) -> TypeGuard[Group]:
    """Whether a value is all elements of an array, row by row, with no common distance."""
    return isinstance(value, Group) and value.kind is FLAT


def is_tuple(value: Any) -> TypeGuard[Group]:
    """Whether a value is a tuple for Python, named or not; dataclasses are none."""
    return isinstance(value, Group) and (
        value.kind is None or (isinstance(value.kind, type) and issubclass(value.kind, tuple)))


Value = Expr | Known | View | Fields | Group | Wrong


def whole(memory: Memory, readonly: bool = False) -> View:
    """Return a memory of row-major layout as a view of itself."""
    one = ex.index(1)
    axes = tuple(ViewAxis(extent, k, one) for k, extent in enumerate(memory.shape))
    return View(memory, (ex.index(0),) * len(axes), axes, readonly)


def described(value: object) -> str:
    """Return how an error message calls an object that is known when the kernel is compiled."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(value, ModuleType):
        return re.sub(r"\bweft\.lang\.\w+\.", "weft.", str(name))
    kind = type(value).__name__
    if kind == "Triple":
        return "an index of three parts, x, y and z"
    return f"{kind} {name}" if name else kind.lstrip("_")


def axes_of(count: int) -> str:
    """Return a number of axes in words."""
    return f"{count} ax{'i' if count == 1 else 'e'}s"


def describe(value: Any) -> str:
    """Return how an error message calls a value."""
    if isinstance(value, Expr):
        return value.dtype.name
    if isinstance(value, Memory):  # the cell of a number
        return value.dtype.name
    if isinstance(value, Fragment):
        return f"{value.memory.dtype.name} fragment {value.tile.use} of {value.tile.shape}"
    if isinstance(value, View):
        return f"{value.dtype.name} array of {axes_of(len(value.axes))}"
    if isinstance(value, Fields):
        what = "record" if value.kind is None else value.kind.__name__
        return f"{what} array of {axes_of(value.ndim)}" if value.ndim else what
    if isinstance(value, Group) and value.kind is complex:
        return "complex"
    if isinstance(value, Group):
        kind: Any = value.kind
        if kind is not None and not isinstance(kind, type):
            return str(kind.__name__)  # what it stands for, whatever it holds for that
        inner = ", ".join(map(describe, value.items))
        return f"{value.kind.__name__ if value.kind else 'tuple'}({inner})"
    if isinstance(value, Known):
        if value.value is None:
            return "None"
        if isinstance(value.value, int) and value.value.bit_length() > 256:
            return f"int of {value.value.bit_length()} bits"
        if isinstance(value.value, bool | int | float | str):
            return f"{type(value.value).__name__} {value.value!r}"
        return described(value.value)
    return "nothing"
