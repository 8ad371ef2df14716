"""What holds at every point of a loop nest: the least value of a polynomial over its loops.

A polynomial over loop variables and sizes is freed of the loop variables from the innermost loop
outwards: where a variable has a factor that is not negative, its least value is 0, else one less
than the extent (which may itself depend on loops further out: triangular nests). What is left is a
polynomial over sizes. That is Fourier-Motzkin elimination for nests, where each variable has one
lower and one upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import For
from weft.rules.polynomial import Poly, add
from weft.schedule.analysis.subscripts import ONE, Space, multiply

__all__ = ["Nonnegative", "to_expr"]

_TERMS: Final = 64  # of a polynomial that is still looked at


class Nonnegative:
    """Proves that polynomials are not negative, or says what that takes.

    Attributes
    ----------
    assumed : list of Poly
        Polynomials over sizes that were taken to be not negative.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.assumed: list[Poly] = []

    def least(self, p: Poly, loops: Sequence[For]) -> Poly | None:
        """Return a polynomial over sizes that is at most `p` at every point, None if none is known.

        ``loops`` are those around the point, outermost first.
        """
        for loop in reversed(loops):
            found = self._without(p, loop)
            if found is None:
                return None
            p = found
        if any(self.space.symbols(atom) for key in p for atom in key):
            return None  # something that was read from memory
        return p

    def _without(self, p: Poly, loop: For) -> Poly | None:
        var = loop.var
        factor: Poly = {}
        rest: Poly = {}
        for key, value in p.items():
            places = [atom for atom in key if atom is var or var in self.space.symbols(atom)]
            if not places:
                rest[key] = value
            elif len(places) > 1 or places[0] is not var:
                return None
            else:
                factor[tuple(atom for atom in key if atom is not var)] = value
        if not factor:
            return p
        if len(p) > _TERMS:
            return None
        sign = self._sign(factor)
        if sign is None:
            return None
        if sign > 0:
            return rest
        last = add(self.space.poly(inner_extent(loop.extent)), {ONE: -1})
        return add(rest, multiply(factor, last))

    def _sign(self, p: Poly) -> int | None:
        """Return 1 if a polynomial is not negative, -1 if it is not positive.

        Where neither is known, it is taken to be not negative if it is one over sizes.
        """
        least, most = self.bounds(p)
        if least is not None and least >= 0:
            return 1
        if most is not None and most <= 0:
            return -1
        if any(self.space.symbols(atom) for key in p for atom in key):
            return None
        if p not in self.assumed:
            self.assumed.append(p)
        return 1

    def bounds(self, p: Poly) -> tuple[int | None, int | None]:
        """Return the least and the largest value of a polynomial by the ranges of its atoms."""
        low: int | None = 0
        high: int | None = 0
        for key, value in p.items():
            span = (1, 1)
            for atom in key:
                r = self.space.ranges.of(atom)
                ends = [a * b for a in span for b in (r.lo, r.hi)]
                span = min(ends), max(ends)
            ends = [value * span[0], value * span[1]]
            low = low + min(ends) if low is not None else None
            high = high + max(ends) if high is not None else None
        return low, high


def inner_extent(extent: Expr) -> Expr:
    """Return the extent of a loop as it is where the loop runs at all: ``max(n, 0)`` is n."""
    if extent.op is Op.MAX:
        for this, other in (extent.args, extent.args[::-1]):
            if ex.is_const(other, 0):
                return this
    return extent


def to_expr(p: Poly) -> Expr:
    """Return a polynomial as an expression."""
    total = ex.index(0)
    for key, value in p.items():
        term = ex.index(value)
        for atom in key:
            term = term * (atom if atom.dtype is total.dtype else ex.cast(atom, total.dtype))
        total = total + term
    return total
