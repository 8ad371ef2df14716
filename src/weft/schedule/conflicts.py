"""Whether threads of two launches meet in one element, and which threads do.

Where a thread of the first launch and one of the second touch the same element, the subscripts are
equal. With ``p`` for the variables of the first thread and ``p + d`` for those of the second one,
the parts that both have alike cancel, and what remains bounds the differences ``d``. If no
difference of blocks and threads but zero is left, only one thread touches what it has touched
itself; if blocks cannot differ, a barrier of the block orders the two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from weft.schedule.affine import UNBOUNDED, Constraint, Interval, Linear, solve
from weft.schedule.footprint import Footprint, Touch
from weft.schedule.known import explained

__all__ = ["BLOCK", "GRID", "THREAD", "meet", "same_turn"]

# How far apart the threads are that touch an element of one memory.
THREAD: Final = 0  # it is the same thread, or there is none
BLOCK: Final = 1  # threads of one block
GRID: Final = 2  # threads of different blocks

_AXES: Final = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")


class _Side(NamedTuple):
    """One of two threads: its variables, by the names that they have in the system."""

    names: dict[Hashable, dict[Hashable, int]]

    def form(self, terms: Mapping[Hashable, int]) -> dict[Hashable, int]:
        """Return a weighted sum in the names of the system."""
        out: dict[Hashable, int] = {}
        for key, weight in terms.items():
            for name, factor in self.names[key].items():
                out[name] = out.get(name, 0) + weight * factor
        return {k: w for k, w in out.items() if w}


def meet(first: Footprint, a: Touch, second: Footprint, b: Touch) -> int:
    """Return how far apart threads may be that touch one element by `a` and then by `b`.

    Both have the same number of subscripts; equal subscripts are the same element.
    """
    system = _System(first, a, second, b)
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
    system = _System(first, a, second, b, {y: x})
    for axis in _AXES:
        if ("d", axis) in system.boxes:
            system.boxes["d", axis] = 0, 0
    return not system.differ(y)


class _System:
    """The equations of two accesses."""

    def __init__(self, first: Footprint, a: Touch, second: Footprint, b: Touch,
                 same: Mapping[Hashable, Hashable] | None = None) -> None:  # fmt: skip
        self.boxes: dict[Hashable, Interval] = {}
        rows_a = [*a.facts, *explained(first.meanings, [*a.facts, *_rows(a.index)])]
        rows_b = [*b.facts, *explained(second.meanings, [*b.facts, *_rows(b.index)])]
        axes = [k for k in _AXES if k in first.boxes and k in second.boxes]
        same = same or {}
        used_a = _used([*axes, *same.values()], a.index, rows_a)
        used_b = _used([*axes, *same], b.index, rows_b)
        partners = _pairs(a.index, used_a, b.index, used_b, same)
        left: dict[Hashable, dict[Hashable, int]] = {}
        right: dict[Hashable, dict[Hashable, int]] = {}
        for key in used_a:
            left[key] = {("p", key): 1}
            self.boxes["p", key] = first.boxes[key]
        for key in used_b:
            low, high = second.boxes[key]
            partner = partners.get(key)
            if partner is None:
                right[key] = {("q", key): 1}
                self.boxes["q", key] = low, high
            else:
                right[key] = {("p", partner): 1, ("d", key): 1}
                start, end = first.boxes[partner]
                self.boxes["d", key] = low - end, high - start
        self.rows: list[Constraint] = []
        p, q = _Side(left), _Side(right)
        for row in rows_a:
            self.rows.append(Constraint(p.form(row.terms), row.low, row.high))
        for row in rows_b:
            self.rows.append(Constraint(q.form(row.terms), row.low, row.high))
        for key, partner in partners.items():  # the second variable is in its own interval
            low, high = second.boxes[key]
            self.rows.append(Constraint({("p", partner): 1, ("d", key): 1}, low, high))
        self._differences(p, rows_a, q, rows_b)
        for x, y in zip(a.index, b.index, strict=True):
            terms = q.form(y.terms)
            for key, weight in p.form(x.terms).items():
                terms[key] = terms.get(key, 0) - weight
            terms = {k: w for k, w in terms.items() if w}
            gap = x.constant - y.constant
            self.rows.append(Constraint(terms, gap, gap))

    def _differences(self, p: _Side, rows_a: Iterable[Constraint], q: _Side,
                     rows_b: Iterable[Constraint]) -> None:  # fmt: skip
        """Add what two bounds on the same sum say about its difference."""
        known = {frozenset(p.form(r.terms).items()): r for r in rows_a}
        for row in rows_b:
            terms = q.form(row.terms)
            shared = frozenset((k, w) for k, w in terms.items()
                               if isinstance(k, tuple) and k[0] == "p")
            other = known.get(shared)
            if other is None:
                continue
            rest = {k: w for k, w in terms.items() if (k, w) not in shared}
            self.rows.append(Constraint(rest, row.low - other.high, row.high - other.low))

    def differ(self, axis: Hashable) -> bool:
        """Whether the two threads may have different numbers on an axis, or in a loop."""
        name = ("d", axis)
        if name not in self.boxes:
            return False
        low, high = self.boxes[name]
        return any(
            solve({**self.boxes, name: box}, self.rows) is not None
            for box in ((low, -1), (1, high)) if box[0] <= box[1]
        )


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
