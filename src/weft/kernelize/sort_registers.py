"""Sorting networks across vector registers and their lanes.

Columns are sorted first, register against register. Then neighbouring columns are merged, the
order of one turned around, until all lanes are one run that goes down the columns, which shuffles
turn into rows. Comparisons of a float sort choose between two values, as one instruction does:
which of two equal ones comes first is of no use to ask.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.kernelize.sort_network import batcher, halvings

COUNT: Final = 16  # registers that are sorted together
# Of nine registers in order: the fourth, counted from 0.
_MEDIAN: Final = ((0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (0, 3),
                  (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2))


def lower(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two lanes; no operand is NaN."""
    return ex.where(a.lt(b), a, b) if a.dtype.is_float else ex.minimum(a, b)


def upper(a: Expr, b: Expr) -> Expr:
    """Return the larger of two lanes; no operand is NaN."""
    return ex.where(b.lt(a), a, b) if a.dtype.is_float else ex.maximum(a, b)


class Registers:
    """Networks on vectors of so many lanes; `name` binds a value to a name."""

    def __init__(self, lanes: int, name: Callable[[Expr], Expr]) -> None:
        self.lanes, self.name = lanes, name

    def _compare(self, line: list[Expr], a: int, b: int) -> None:
        low, high = lower(line[a], line[b]), upper(line[b], line[a])
        line[a], line[b] = self.name(low), self.name(high)

    def columns(self, line: list[Expr]) -> None:
        """Sort each lane's elements of a power of two of registers."""
        for a, b in batcher(len(line)):
            self._compare(line, a, b)

    def ninther(self, line: list[Expr]) -> Expr:
        """Return the median of nine registers, lane by lane."""
        for a, b in _MEDIAN:
            self._compare(line, a, b)
        return line[4]

    def sort(self, line: list[Expr]) -> list[Expr]:
        """Return the elements of a power of two of registers in order, row after row."""
        line = list(line)
        self.columns(line)
        group = 2
        while group <= self.lanes:
            self._merge(line, group)
            group *= 2
        return self._rows(line)

    def _merge(self, line: list[Expr], group: int) -> None:
        """Merge the two halves of each group of columns."""
        count = len(line)
        for a in range(count // 2):
            b = count - 1 - a
            x, y = (self._across(line[q], group - 1) for q in (a, b))
            line[a] = self._meet(line[a], y, group // 2)
            line[b] = self._meet(line[b], x, group // 2)
        distance = group // 4
        while distance:
            line[:] = [self._meet(x, self._across(x, distance), distance) for x in line]
            distance //= 2
        for low, high in halvings(count):
            self._compare(line, low, high)

    def _across(self, x: Expr, by: int) -> Expr:
        """Return the lanes of other columns: those with these bits of their number flipped."""
        return self.name(ex.shuffle(x, x, [t ^ by for t in range(self.lanes)]))

    def _meet(self, x: Expr, other: Expr, bit: int) -> Expr:
        """Return the larger of two in the lanes that have a bit, the smaller in the rest."""
        lane = ex.ramp(ex.const(0, dt.int32), self.lanes)
        flagged = lane & ex.const(bit, dt.int32, self.lanes)
        return self.name(ex.where(flagged.ne(ex.const(0, dt.int32, self.lanes)),
                                  upper(x, other), lower(x, other)))

    def _rows(self, line: list[Expr]) -> list[Expr]:
        """Return columns as rows: each round interleaves the two halves of the registers."""
        half, lanes = len(line) // 2, self.lanes
        picks = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
        for _ in range(half.bit_length()):
            pairs = [(line[q], line[q + half]) for q in range(half)]
            line = [self.name(ex.shuffle(a, b, part))
                    for a, b in pairs for part in (picks[:lanes], picks[lanes:])]
        return line
