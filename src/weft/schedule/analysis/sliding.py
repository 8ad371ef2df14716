"""Two loops that move a window together: what varies with both varies with where it lies alone."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Body
from weft.schedule.analysis.subscripts import Linear

_COMPARED = frozenset({Op.LT, Op.LE, Op.EQ, Op.NE})
PAIR = "&"  # between the names of two loops that make one dimension


class Slide(Record):
    """Loops that move together, each by its step: one of these is 1.

    Where both loops are, ``place`` counts; ``still`` says what they are where that is counted by
    ``one`` of them alone.
    """

    loops: tuple[Expr, Expr]
    steps: tuple[int, int]

    @property
    def place(self) -> Expr:
        """Where the window lies, as what the loops count."""
        (a, b), (m, n) = self.loops, self.steps
        return a * m + b * n

    @property
    def one(self) -> Expr:
        """The loop of step 1 that can count all places."""
        return self.loops[0] if self.steps[0] == 1 else self.loops[1]

    def count(self, extents: tuple[int, int]) -> int:
        """Return how many places there are."""
        return sum(n * (extent - 1) for n, extent in zip(self.steps, extents, strict=True)) + 1


def find_slide(space: Linear, body: Body, a: Expr, b: Expr, what: str) -> Slide:
    """Return how statements vary with two loops.

    Raises
    ------
    ScheduleError
        If they do not vary with one sum ``m*a + n*b`` alone, of positive steps of which the larger
        one is a multiple of the smaller.
    """
    found: set[tuple[int, int]] = set()
    for e in _numbers(body):
        moves = {a: 0, b: 0}
        for monomial, factor in space.poly(e).items():
            moving = set().union(*[space.symbols(s) for s in monomial]) & {a, b}
            if moving and (len(monomial) > 1 or monomial[0] not in moves):
                raise ScheduleError(what, found=f"{e!r}", expected=f"linear in {a.attr}, {b.attr}")
            if moving:
                moves[monomial[0]] = factor
        m, n = moves[a], moves[b]
        if m or n:
            common = gcd(m, n) * (-1 if m < 0 else 1)
            found.add((m // common, n // common))
    if len(found) != 1 or min(*next(iter(found))) != 1:
        raise ScheduleError(what, found=f"steps {sorted(found)} of {a.attr} and {b.attr}",
                            expected="one sum of both, of which one has step 1")
    return Slide((a, b), found.pop())


def _numbers(body: Body) -> Iterable[Expr]:
    """Yield the integers that a body computes with: subscripts, and what conditions compare."""
    for stmt in traverse.walk(body):
        roots = stmt.exprs()
        yield from (e for e in roots if e.dtype is dt.int64)
        for e in ex.toposort(list(roots)):
            if e.op in _COMPARED and e.args[0].dtype is dt.int64:
                yield e.args[1] - e.args[0]  # nothing else counts
            elif e.dtype is not dt.int64:
                yield from (x for x in e.args if x.dtype is dt.int64)
