"""Names that hold parts of one array which move, such as ``row = a[j]`` in the turns of a loop.

Such a name holds numbers: where its part begins, and those of its sizes and steps that are not the
same on all ways. They are a group whose kind is the part with the rest in it, so they live in cells
and meet as the items of a tuple do. Whoever reads the name gets an array of what they hold by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.lang.core.array_union import options_of
from weft.lang.core.values import Fields, Fragment, Group, View

__all__ = ["SlidingView", "as_sliding_view", "as_view", "is_sliding_view", "joined", "merged",
           "placed", "width"]  # fmt: skip


class SlidingView:
    """What a group is that stands for a part of an array: the part, and which numbers it holds."""

    __name__ = "array"

    def __init__(self, part: View | Fields, held: tuple[int, ...]) -> None:
        self.part, self.held = part, held


def is_sliding_view(value: Any) -> bool:
    """Whether a value is the numbers of a part that moves."""
    return isinstance(value, Group) and isinstance(value.kind, SlidingView)


def joined(values: list[Any], steady: Callable[[Any], bool]) -> SlidingView | None:
    """Return what stands for the parts that some values are, None if they are too unlike.

    `steady` tells of a number whether it is known wherever the name is read.
    """
    parts: list[Any] = []
    held: set[int] = set()
    for value in values:
        if is_sliding_view(value):
            held.update(value.kind.held)
            parts.append(value.kind.part)
        else:
            parts.extend(options_of(value))
    first = parts[0]
    if any(_frame(part) != _frame(first) for part in parts) or _frame(first) is None:
        return None
    for number, expressions in enumerate(zip(*map(_numbers, parts), strict=True)):
        if any(e != expressions[0] for e in expressions) or not steady(expressions[0]):
            held.add(number)
    return SlidingView(first, tuple(sorted(held)))


def merged(a: SlidingView, b: SlidingView) -> SlidingView | None:
    """Return what stands for the parts that either stands for."""
    return joined([_group(a), _group(b)], lambda number: True)


def width(kind: SlidingView) -> Group:
    """Return the types of the cells of a part."""
    return Group((dt.int64,) * len(kind.held), (), kind)


def as_sliding_view(value: Any, kind: SlidingView) -> Group | None:
    """Return an array as numbers of a kind, None if it may be more than those can tell."""
    options = options_of(value)
    if any(_frame(o) != _frame(kind.part) for o in options):
        return None
    numbers = [tuple(_numbers(o)) for o in options]
    for number, known in enumerate(_numbers(kind.part)):
        if number not in kind.held and any(n[number] != known for n in numbers):
            return None
    found = []
    for number in kind.held:
        e = numbers[-1][number]
        for k in reversed(range(len(numbers) - 1)):
            e = ex.where(value.items[0].eq(k), numbers[k][number], e)
        found.append(e)
    return Group(tuple(found), (), kind)


def placed(value: Group) -> View | Fields:
    """Return the array that numbers tell of."""
    kind: Any = value.kind
    numbers = dict(zip(kind.held, value.items, strict=True))
    found: View | Fields = _rebuilt(kind.part, numbers, iter(range(1 << 30)))
    return found


def as_view(value: Any) -> Any:
    """Return the array where a value is the numbers of its part; other values as they are."""
    return placed(value) if is_sliding_view(value) else value


def _group(kind: SlidingView) -> Group:
    return Group((), (), kind)


def _frame(array: Any) -> Any:
    """Return what must be the same of parts of one array, None if its parts do not move."""
    if isinstance(array, Fragment):
        return None
    if isinstance(array, Fields):
        return (array.names, array.ndim, array.kind, tuple(map(_frame, array.parts)))
    return (array.memory, array.readonly, array.seen, tuple(a.axis for a in array.axes))


def _numbers(array: Any) -> Iterator[Expr]:
    if isinstance(array, Fields):
        for part in array.parts:
            yield from _numbers(part)
        return
    yield from array.starts
    for axis in array.axes:
        yield axis.extent
        yield axis.step


def _rebuilt(array: Any, numbers: dict[int, Expr], count: Iterator[int]) -> Any:
    if isinstance(array, Fields):
        return array.replace(parts=tuple(_rebuilt(p, numbers, count) for p in array.parts))
    starts = tuple(numbers.get(next(count), s) for s in array.starts)
    axes = []
    for axis in array.axes:
        extent, step = (numbers.get(next(count), e) for e in (axis.extent, axis.step))
        axes.append(axis.replace(extent=extent, step=step, cut=None))
    return array.replace(starts=starts, axes=tuple(axes))
