"""Sorting networks across vector registers and their lanes.

Columns are sorted first, register against register, then merged. Comparisons of a float sort
choose between two values, as one instruction does: which of two equal ones comes first is of no use
to ask.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.kernelize.sorting.sort_merges import COMPARED, Step, rounds, turn
from weft.kernelize.sorting.sort_network import batcher

COUNT: Final = 16  # registers that are sorted together
# The lower half of nine registers in order: Floyd's network of 25 comparisons, less one.
_NINE: Final = ((0, 3), (1, 7), (2, 5), (4, 8), (0, 7), (2, 4), (3, 8), (5, 6), (0, 2), (1, 3),
                (4, 5), (7, 8), (1, 4), (3, 6), (5, 7), (0, 1), (2, 4), (3, 5), (6, 8), (2, 3),
                (4, 5), (6, 7), (1, 2), (3, 4))


def lower(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two lanes; no operand is NaN."""
    return ex.where(a.lt(b), a, b) if a.dtype.is_float else ex.minimum(a, b)


def upper(a: Expr, b: Expr) -> Expr:
    """Return the larger of two lanes; no operand is NaN."""
    return ex.where(b.lt(a), a, b) if a.dtype.is_float else ex.maximum(a, b)


class Registers:
    """Networks on vectors of so many lanes; `name` binds a value to a name."""

    def __init__(self, dtype: DType, lanes: int, name: Callable[[Expr], Expr]) -> None:
        self.dtype, self.lanes, self.name = dtype, lanes, name

    def _compare(self, line: list[Expr], a: int, b: int) -> None:
        low, high = lower(line[a], line[b]), upper(line[b], line[a])
        line[a], line[b] = self.name(low), self.name(high)

    def columns(self, line: list[Expr]) -> None:
        """Sort each lane's elements of a power of two of registers."""
        for a, b in batcher(len(line)):
            self._compare(line, a, b)

    def low_half(self, line: list[Expr]) -> tuple[Expr, Expr, Expr]:
        """Return the third, the fourth and the middle of nine registers in order, lane by lane."""
        for a, b in _NINE:
            self._compare(line, a, b)
        return line[2], line[3], line[4]

    def sort(self, line: list[Expr]) -> list[Expr]:
        """Return the elements of a power of two of registers in order, row after row.

        A falling run is a rising one of inverted values: those of the lanes that fall in this round
        or the next one, but not in both, are inverted between the two.
        """
        line = [self._inverted(x, self._falling(0)) for x in line]
        self.columns(line)
        before = self._falling(0)
        for number, steps in enumerate(rounds(len(line), self.lanes)):
            falling = self._falling(number + 1)
            line = [self._inverted(x, before ^ falling) for x in line]
            before = falling
            self._take(line, steps)
        steps, order = turn(len(line), self.lanes)
        self._take(line, steps)
        return [line[a] for a in order]

    def _take(self, line: list[Expr], steps: Sequence[Step]) -> None:
        for a, b, picks in steps:
            if picks == COMPARED:
                self._compare(line, a, b)
            else:
                pair = [self.name(ex.shuffle(line[a], line[b], list(p))) for p in picks]
                line[a], line[b] = pair

    def _falling(self, bit: int) -> Expr:
        """Return the lanes whose number has a bit."""
        lane = ex.ramp(ex.const(0, dt.int32), self.lanes)
        flag = ex.const(1 << bit, dt.int32, self.lanes)
        return (lane & flag).eq(flag)

    def _inverted(self, x: Expr, flags: Expr) -> Expr:
        """Return values whose order is the other way round in some lanes."""
        other = ex.unary(Op.NEG if self.dtype.is_float else Op.NOT, x)
        return self.name(ex.where(flags, other, x))
