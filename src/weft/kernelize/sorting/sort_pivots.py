"""Pivots of the parts of a row that is sorted by parting it, and the keys that they are chosen by.

A key is an integer in the order of the values. A pivot is the mean of medians of a sample, lane by
lane, of a part that is much longer than what registers hold. A shorter one is parted where both
sides fill registers well: what registers sort costs the same however few elements they hold.
"""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.kernelize.sorting.sort_network import as_float
from weft.kernelize.sorting.sort_registers import COUNT, Registers, lower, upper
from weft.kernelize.sorting.sort_row import Row

FILLS: Final = (1.875, 2.7, 3.6, 4.5)  # times that registers hold a part of three and of five
# A sample is read at so many of the first: its third, fourth and middle value are 0.3, 0.4 and 0.5
# of rows that rise, fall, do both, or rise a few times, as nearly as any.
PLACES: Final = (64, 5, 13, 19, 25, 32, 41, 47, 54, 58)


class Pivots(Row):
    """What chooses the pivots of a sort."""

    def _value_of(self, key: Expr) -> Expr:
        return as_float(key, self.dtype) if self.dtype.is_float else key

    @property
    def _limits(self) -> tuple[Expr, Expr]:
        """The keys of the least and of the largest value."""
        k = self.key_type
        if not self.dtype.is_float:
            return ex.const(int(k.min), k), ex.const(int(k.max), k)
        infinity = {4: 0x7F800000, 8: 0x7FF0000000000000}[self.dtype.itemsize]
        return ex.const(-infinity - 1, k), ex.const(infinity, k)

    def _sampled(self, size: Expr) -> list[Expr]:
        """Read nine vectors of a part."""
        most = self._let(size - self.lanes)
        every, none = self._let(self._lanes_of(size)), self._every(self._largest)
        places = [self._let((most * at) // PLACES[0]) for at in PLACES[1:]]
        return [self._held(place, every, none) for place in places]

    def _alike(self, line: list[Expr]) -> Expr:
        """Return whether all elements of vectors are equal: then the whole part may be."""
        one = self._let(self._every(ex.extract(line[0], 0)))
        unlike = self._let(line[0].ne(one))
        for x in line[1:]:
            unlike = self._let(unlike | x.ne(one))
        return self._let(ex.bits(unlike).eq(0))

    def _pivot(self, line: list[Expr], size: Expr, low: Expr, high: Expr,
               poor: Expr) -> Expr:  # fmt: skip
        """Return a key from the least to the largest but one.

        A part that fills registers three or five times, but not four or six, is parted so that
        each side fills them a whole number of times.
        """
        fills = [ex.index(int(n * COUNT * self.lanes)) for n in FILLS]
        third, fourth, middle = Registers(self.dtype, self.lanes, self._let).low_half(list(line))
        three = self._let(self._every(fills[0].lt(size) & size.le(fills[1])))
        five = self._let(self._every(fills[2].lt(size) & size.le(fills[3])))
        chosen = self._let(ex.where(three, third, ex.where(five, fourth, middle)))
        key = ex.where(poor, self._between_keys(low, high), self._mean(chosen))
        return self._let(self._limited(key, low, high))

    def _limited(self, key: Expr, low: Expr, high: Expr) -> Expr:
        return ex.minimum(ex.maximum(key, low), high - 1)

    def _mean(self, x: Expr) -> Expr:
        """Return the mean of the keys of all lanes.

        Each key is divided and rounded down before. For integers, of which neighbours matter, the
        lanes' numbers are added to what rounding leaves out: equal keys are their own mean so
        (Hermite's identity).
        """
        k, most = self.key_type, self.lanes - 1
        shift = self._every(ex.const(most.bit_length(), k))
        key = self._key_of(x)
        total = ex.binary(Op.SHR, key, shift)
        if not self.dtype.is_float:
            left = (key & ex.const(most, k, self.lanes)) + ex.ramp(ex.const(0, k), self.lanes)
            total = self._let(total) + ex.binary(Op.SHR, left, shift)
        while total.lanes > 1:
            total = self._let(total)
            total = ex.half(total, 0) + ex.half(total, 1)
        return self._let(total)

    def _middle(self, x: Expr) -> Expr:
        """Return a key near the median of all lanes: between the middle two of four, repeatedly.

        A mean says little where some lanes are below zero, since keys leap there.
        """
        a, b = ex.half(x, 0), ex.half(x, 1)
        while a.lanes > 1:
            low, high = self._let(lower(a, b)), self._let(upper(a, b))
            a = self._let(upper(ex.half(low, 0), ex.half(low, 1)))
            b = self._let(lower(ex.half(high, 0), ex.half(high, 1)))
        return self._between_keys(self._key_of(a), self._key_of(b))

    def _key_of(self, x: Expr) -> Expr:
        if not self.dtype.is_float:
            return x
        k = self.key_type
        key, zero, most = self._let(ex.bitcast(x, k)), ex.const(0, k, x.lanes), int(k.max)
        return self._let(ex.where(key.lt(zero), key ^ ex.const(most, k, x.lanes), key))

    def _between_keys(self, a: Expr, b: Expr) -> Expr:
        """Return the mean of two keys."""
        one = ex.const(1, self.key_type)
        return ex.binary(Op.SHR, a, one) + ex.binary(Op.SHR, b, one) + (a & b & one)
