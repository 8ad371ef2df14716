"""Whether threads of two launches meet in one element, and which threads do.

Where a thread of the first launch and one of the second touch the same element, the subscripts are
equal, which bounds by how much their variables differ (`weft.schedule.analysis.affine.Pair`). If no
difference of blocks and threads but zero is left, only one thread touches what it has touched
itself; if blocks cannot differ, a barrier of the block orders the two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from weft.schedule.analysis.affine import UNBOUNDED, Constraint, Linear, Pair
from weft.schedule.launch_fusion.footprint import Footprint, Touch
from weft.schedule.launch_fusion.value_ranges import explained

__all__ = ["BLOCK", "GRID", "THREAD", "meet", "same_turn"]

# How far apart the threads are that touch an element of one memory.
THREAD: Final = 0  # it is the same thread, or there is none
BLOCK: Final = 1  # threads of one block
GRID: Final = 2  # threads of different blocks

_AXES: Final = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")


def meet(first: Footprint, a: Touch, second: Footprint, b: Touch) -> int:
    """Return how far apart threads may be that touch one element by `a` and then by `b`.

    Both have the same number of subscripts; equal subscripts are the same element.
    """
    system = _system(first, a, second, b)
    for level, answer in (("block", GRID), ("thread", BLOCK)):
        for axis in _AXES:
            if axis.startswith(level) and system.differ(axis):
                return answer
    return THREAD


def same_turn(first: Footprint, a: Touch, x: Hashable, second: Footprint, b: Touch,
              y: Hashable) -> bool:  # fmt: skip
    """Whether a thread that touches an element by `a` and by `b` does so in one turn of a loop.

    `x` and `y` are the counters of the loops, which have the same number of turns.
    """
    system = _system(first, a, second, b, {y: x})
    system.agree(_AXES)
    return not system.differ(y)


def _system(first: Footprint, a: Touch, second: Footprint, b: Touch,
            same: Mapping[Hashable, Hashable] | None = None) -> Pair:  # fmt: skip
    """Return the equations of two accesses."""
    rows_a = [*a.facts, *explained(first.meanings, [*a.facts, *_rows(a.index)])]
    rows_b = [*b.facts, *explained(second.meanings, [*b.facts, *_rows(b.index)])]
    axes = [k for k in _AXES if k in first.boxes and k in second.boxes]
    same = same or {}
    used_a = _used([*axes, *same.values()], a.index, rows_a)
    used_b = _used([*axes, *same], b.index, rows_b)
    system = Pair({k: first.boxes[k] for k in used_a}, {k: second.boxes[k] for k in used_b},
                  _pairs(a.index, used_a, b.index, used_b, same))
    system.hold(rows_a, rows_b)
    for x, y in zip(a.index, b.index, strict=True):
        system.meet(x, y)
    return system


def _rows(index: Iterable[Linear]) -> list[Constraint]:
    return [Constraint(i.terms, -UNBOUNDED, UNBOUNDED) for i in index]


def _used(axes: Iterable[Hashable], index: Iterable[Linear],
          rows: Iterable[Constraint]) -> list[Hashable]:  # fmt: skip
    """Return the variables of subscripts and constraints, and every axis of the launch."""
    found: dict[Hashable, None] = dict.fromkeys(axes)
    for form in index:
        found.update(dict.fromkeys(form.terms))
    for row in rows:
        found.update(dict.fromkeys(row.terms))
    return list(found)


def _pairs(index_a: tuple[Linear, ...], used_a: list[Hashable], index_b: tuple[Linear, ...],
           used_b: list[Hashable],
           same: Mapping[Hashable, Hashable]) -> dict[Hashable, Hashable]:  # fmt: skip
    """Return which variable of the first thread each one of the second is compared with.

    Axes of the launch with themselves, counters as `same` says; others with one that has the same
    weights, so that it cancels.
    """
    free: dict[tuple[int, ...], list[Hashable]] = {}
    for key in used_a:
        if key not in _AXES and key not in same.values():
            weights = tuple(form.terms.get(key, 0) for form in index_a)
            free.setdefault(weights, []).append(key)
    pairs: dict[Hashable, Hashable] = {}
    for key in used_b:
        if key in _AXES or key in same:
            pairs[key] = same.get(key, key)
            continue
        alike = free.get(tuple(form.terms.get(key, 0) for form in index_b))
        if alike:
            pairs[key] = alike.pop(0)
    return pairs
