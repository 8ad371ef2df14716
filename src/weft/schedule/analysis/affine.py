"""Systems of linear inequalities over bounded integers, and whether they have a solution.

A variable is any hashable thing with an interval; a constraint bounds a weighted sum of variables::

    -255 <= t <= 255, -63 <= b <= 63:   256*b + t == 0,  b >= 1      no solution
                                        256*b + t == 1,  b >= 1      t = -255, b = 1

`solve` narrows intervals by each constraint until nothing changes, divides equations by the
greatest common divisor of what is open, and splits the interval of an open variable in two. It
gives up after some number of splits; to its callers that is the same as a solution, because they
ask for proofs that there is none. For the systems of array subscripts, whose coefficients are the
strides of a mixed radix, narrowing alone decides nearly always.

A `Pair` is the system of two iterations of a loop, or of two threads, that touch one element: with
``x`` for the variables of the one and ``x + d`` for those of the other, what both have alike
cancels, and the rest bounds ``d``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import gcd
from typing import Final, NamedTuple

__all__ = ["UNBOUNDED", "Constraint", "Interval", "Linear", "Pair", "solve"]

Interval = tuple[int, int]
UNBOUNDED: Final = 1 << 62
_MOST_NODES: Final = 2000
_MOST_ROUNDS: Final = 40  # of narrowing; more gain little


class Linear(NamedTuple):
    """A weighted sum of variables and a constant; weights are not 0."""

    terms: Mapping[Hashable, int]
    constant: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return ``self + factor * other``."""
        terms = dict(self.terms)
        for key, weight in other.terms.items():
            total = terms.get(key, 0) + factor * weight
            if total:
                terms[key] = total
            else:
                terms.pop(key, None)
        return Linear(terms, self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        """Return the form, each part `factor` times as large."""
        if not factor:
            return Linear({}, 0)
        return Linear({k: w * factor for k, w in self.terms.items()}, self.constant * factor)

    def interval(self, boxes: Mapping[Hashable, Interval]) -> Interval:
        """Return the least and the largest value that it may have."""
        low = high = self.constant
        for key, weight in self.terms.items():
            a, b = boxes[key]
            low += weight * (a if weight > 0 else b)
            high += weight * (b if weight > 0 else a)
        return low, high


class Constraint(NamedTuple):
    """``low <= the sum of weight * variable <= high``."""

    terms: Mapping[Hashable, int]
    low: int
    high: int


class Pair:
    """Two iterations, and what is known where they touch one element.

    Parameters
    ----------
    first, second : dict
        Interval of each variable of the one, and of the other.
    partners : dict
        For variables of the second iteration those of the first that they are compared with. Others
        that both have are equal in both.
    """

    def __init__(self, first: Mapping[Hashable, Interval], second: Mapping[Hashable, Interval],
                 partners: Mapping[Hashable, Hashable]) -> None:  # fmt: skip
        self.boxes: dict[Hashable, Interval] = {("p", k): box for k, box in first.items()}
        self.rows: list[Constraint] = []
        self._names: dict[Hashable, dict[Hashable, int]] = {}  # of the second one's variables
        for key, (low, high) in second.items():
            if key in partners:
                partner = partners[key]
                start, end = first[partner]
                self.boxes["d", key] = low - end, high - start
                self._names[key] = {("p", partner): 1, ("d", key): 1}
                self.rows.append(Constraint(self._names[key], low, high))
            else:
                self.boxes["q", key] = low, high
                self._names[key] = {("q", key): 1}

    def _first(self, terms: Mapping[Hashable, int]) -> dict[Hashable, int]:
        return {("p", key): weight for key, weight in terms.items()}

    def _second(self, terms: Mapping[Hashable, int]) -> dict[Hashable, int]:
        out: dict[Hashable, int] = {}
        for key, weight in terms.items():
            for name, factor in self._names.get(key, {("p", key): 1}).items():
                out[name] = out.get(name, 0) + weight * factor
        return {k: w for k, w in out.items() if w}

    def hold(self, first: Iterable[Constraint], second: Iterable[Constraint]) -> None:
        """Add what is true of the one and of the other, and of the difference of equal sums."""
        known: dict[frozenset[tuple[Hashable, int]], Constraint] = {}
        for row in first:
            made = Constraint(self._first(row.terms), row.low, row.high)
            known[frozenset(made.terms.items())] = row
            self.rows.append(made)
        differences = []
        for row in second:
            terms = self._second(row.terms)
            self.rows.append(Constraint(terms, row.low, row.high))
            shared = frozenset((k, w) for k, w in terms.items()
                               if isinstance(k, tuple) and k[0] == "p")
            other = known.get(shared)
            if other is not None:
                rest = {k: w for k, w in terms.items() if (k, w) not in shared}
                differences.append(Constraint(rest, row.low - other.high, row.high - other.low))
        self.rows.extend(differences)

    def meet(self, first: Linear, second: Linear) -> None:
        """Add that a subscript of the one is equal to one of the other."""
        terms = self._second(second.terms)
        for key, weight in self._first(first.terms).items():
            terms[key] = terms.get(key, 0) - weight
        gap = first.constant - second.constant
        self.rows.append(Constraint({k: w for k, w in terms.items() if w}, gap, gap))

    def agree(self, keys: Iterable[Hashable]) -> None:
        """Add that some variables are what they are compared with."""
        self.boxes.update((("d", key), (0, 0)) for key in keys if ("d", key) in self.boxes)

    def differ(self, key: Hashable) -> bool:
        """Whether a variable may be another one than what it is compared with."""
        name = ("d", key)
        if name not in self.boxes:
            return False
        low, high = self.boxes[name]
        return any(solve({**self.boxes, name: box}, self.rows) is not None
                   for box in ((low, -1), (1, high)) if box[0] <= box[1])


def solve(boxes: Mapping[Hashable, Interval],
          constraints: Iterable[Constraint]) -> Mapping[Hashable, Interval] | None:  # fmt: skip
    """Return a box of solutions, or one that was too much work to decide; None if there is none.

    Parameters
    ----------
    boxes
        Least and largest value of each variable.
    constraints
        What a solution must fulfil.
    """
    rows = _merged(constraints)
    if rows is None:
        return None
    stack = [dict(boxes)]
    for _ in range(_MOST_NODES):
        if not stack:
            return None
        box = stack.pop()
        open_rows = _narrow(box, rows)
        if open_rows is None:
            continue
        if not open_rows:
            return box
        key = _choice(box, open_rows)
        if key is None:  # all is fixed, and one more look decides
            stack.append(box)
            continue
        low, high = box[key]
        middle = (low + high) // 2
        stack.extend(({**box, key: (middle + 1, high)}, {**box, key: (low, middle)}))
    return stack[-1] if stack else None


def _merged(constraints: Iterable[Constraint]) -> list[Constraint] | None:
    """Return one constraint for each left side; None if two of them contradict each other."""
    found: dict[frozenset[tuple[Hashable, int]], Constraint] = {}
    for row in constraints:
        key = frozenset(row.terms.items())
        known = found.get(key)
        if known is not None:
            row = Constraint(row.terms, max(row.low, known.low), min(row.high, known.high))
        if row.low > row.high or (not row.terms and not row.low <= 0 <= row.high):
            return None
        found[key] = row
    return [row for row in found.values() if row.terms]


def _narrow(box: dict[Hashable, Interval], rows: list[Constraint]) -> list[Constraint] | None:
    """Shrink the intervals in place; return the rows that may still be broken, None if one is."""
    for _ in range(_MOST_ROUNDS):
        changed = False
        undecided = []
        for row in rows:
            low = high = 0
            for key, weight in row.terms.items():
                a, b = box[key]
                low += weight * (a if weight > 0 else b)
                high += weight * (b if weight > 0 else a)
            if low > row.high or high < row.low:
                return None
            if row.low <= low and high <= row.high:
                continue
            undecided.append(row)
            if row.low == row.high and _no_multiple(box, row):
                return None
            for key, weight in row.terms.items():
                a, b = box[key]
                if a == b:
                    continue
                least, most = (weight * a, weight * b) if weight > 0 else (weight * b, weight * a)
                # the others lie in [low - least, high - most]
                floor, ceil = row.low - (high - most), row.high - (low - least)
                if weight > 0:
                    new = max(a, -(-floor // weight)), min(b, ceil // weight)
                else:
                    new = max(a, -(-ceil // weight)), min(b, floor // weight)
                if new[0] > new[1]:
                    return None
                if new != (a, b):
                    box[key] = new
                    changed = True
                    x, y = new
                    now = (weight * x, weight * y) if weight > 0 else (weight * y, weight * x)
                    low += now[0] - least
                    high += now[1] - most
        if not changed:
            return undecided
        rows = undecided
    return rows


def _no_multiple(box: Mapping[Hashable, Interval], row: Constraint) -> bool:
    """Whether an equation has no solution because of a common divisor of what is open."""
    rest, divisor = row.low, 0
    for key, weight in row.terms.items():
        a, b = box[key]
        if a == b:
            rest -= weight * a
        else:
            divisor = gcd(divisor, weight)
    return bool(divisor and rest % divisor)


def _choice(box: Mapping[Hashable, Interval], rows: list[Constraint]) -> Hashable | None:
    """Return the open variable whose interval is the smallest: it decides the most."""
    best: Hashable | None = None
    width = -1
    for row in rows:
        for key in row.terms:
            a, b = box[key]
            if a != b and (width < 0 or b - a < width):
                best, width = key, b - a
    return best
