"""The order in which a REDUCE combines its partial results, shared by all that execute one.

Each point of the unrolled axes (row-major) and each lane of the vector axis has its own partial
result. At the end the unrolled partials are combined in a balanced tree of neighbours, then the
lanes by halves: lane i with lane i + lanes / 2, until one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from weft.ir.op import Op
from weft.ir.stmt import (
    UNROLLED,
    VECTOR,
    Atomic,
    Axis,
    Barrier,
    Body,
    Call,
    For,
    Print,
    Reduce,
    While,
)
from weft.ir.traverse import walk

T = TypeVar("T")

FOLDED: Final = (Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR)  # of several rows at once
MAX_LANES: Final = 64
MAX_UNROLL: Final = 1024


def lanes_of(axis: Axis | For) -> int:
    """Return the lanes that a vector axis or loop has: 1 if it must run serially."""
    extent = axis.extent
    if axis.kind != VECTOR or extent.op is not Op.CONST:
        return 1
    count = int(extent.attr)
    return count if 2 <= count <= MAX_LANES and count & (count - 1) == 0 else 1


def copies_of(axis: Axis | For) -> int | None:
    """Return how often an unrolled axis or loop is repeated: None if it must stay a loop."""
    extent = axis.extent
    if axis.kind != UNROLLED or extent.op is not Op.CONST or extent.attr > MAX_UNROLL:
        return None
    return max(int(extent.attr), 0)


def is_vectorizable(body: Body) -> bool:
    """Whether nothing in a loop body must run lane after lane (its axis is serial otherwise)."""
    return not any(isinstance(s, Atomic | Barrier | Call | Print | While) for s in walk(body))


def vector_axis(reduce: Reduce) -> Axis | None:
    """Return the axis whose points are lanes: the first vector axis that can be."""
    if not is_vectorizable(reduce.body):
        return None
    return next((a for a in reduce.axes if lanes_of(a) > 1), None)


def unrolled_axes(reduce: Reduce) -> list[Axis]:
    """Return the axes each of whose points has its own partial result."""
    return [a for a in reduce.axes if copies_of(a) is not None]


def is_once(reduce: Reduce) -> bool:
    """Whether each partial result is updated once, outside of any loop."""
    vector = vector_axis(reduce)
    return all(a is vector or copies_of(a) is not None for a in reduce.axes)


def combine_adjacent(parts: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """Combine partial results in a balanced tree of neighbours; an odd one waits at the end."""
    parts = list(parts)
    while len(parts) > 1:
        pairs = [combine(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def combine_halves(lanes: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """Combine lane i with lane i + half until one is left; the count is a power of two."""
    lanes = list(lanes)
    while len(lanes) > 1:
        middle = len(lanes) // 2
        lanes = [combine(lanes[i], lanes[i + middle]) for i in range(middle)]
    return lanes[0]
