"""Checks of indices, moved out of the loops.

A check inside a loop keeps the loop from being reordered and vectorised. One whose condition is a
linear inequality over loop variables and sizes holds at every point if it holds at the worst one;
so it is either proved, or becomes a condition on sizes in front of all loops. If that fails, the
kernel stops before it has written anything, and its caller runs the function as it was written,
which finds the place of the error, or that the index is never used.

    for i in n: { assert i + 1 < m; load x = a[i + 1] }
    ->  assert n < m or else fall back;  for i in n: load x = a[i + 1]

A check on what was read from memory stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Assert, Body, For, If, Kernel, Location, Stmt, While
from weft.passes.nests.linear import Nonnegative, to_expr
from weft.rules.polynomial import Poly, add
from weft.schedule.analysis.subscripts import ONE, Space

__all__ = ["FALLBACK", "hoist_checks"]

FALLBACK: Final = "the function as it was written"
_FACTS: Final = 12  # conditions around a check that are looked at


def hoist_checks(kernel: Kernel) -> Kernel:
    """Return the kernel with its checks in front of the loops, as far as that can be."""
    return _Hoist(kernel).run()


class _Hoist:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.space = Space(kernel)
        self.known = Nonnegative(self.space)
        self.needed: dict[Expr, None] = {}
        self.locations: dict[Stmt, Location] = dict(kernel.locations)

    def run(self) -> Kernel:
        body = self._body(self.kernel.body, (), ())
        for p in self.known.assumed:
            self._need(p)
        front = tuple(Assert(c, FALLBACK) for c in self.needed)
        return self.kernel.replace(body=(*front, *body), locations=self.locations)

    def _body(self, body: Body, loops: Sequence[For], facts: Sequence[Poly]) -> Body:
        out: list[Stmt] = []
        for stmt in body:
            out.extend(self._stmt(stmt, loops, facts))
        return tuple(out)

    def _stmt(self, stmt: Stmt, loops: Sequence[For], facts: Sequence[Poly]) -> Body:
        if isinstance(stmt, Assert):
            return self._assert(stmt, loops, facts)
        bodies = stmt.bodies()
        if not bodies:
            return (stmt,)
        if isinstance(stmt, For):
            inner = (self._body(stmt.body, (*loops, stmt), facts),)
        elif isinstance(stmt, If):
            then = [*facts, *self._facts(stmt.condition, True)]
            orelse = [*facts, *self._facts(stmt.condition, False)]
            inner = (self._body(stmt.then, loops, then),  # type: ignore[assignment]
                     self._body(stmt.orelse, loops, orelse))
        elif isinstance(stmt, While):
            facts = [*facts, *self._facts(stmt.condition, True)]
            inner = (stmt.head, self._body(stmt.body, loops, facts))  # type: ignore[assignment]
        else:
            inner = tuple(self._body(b, loops, facts) for b in bodies)  # type: ignore[assignment]
        made = stmt.with_bodies(*inner)
        if stmt in self.locations:
            self.locations[made] = self.locations[stmt]
        return (made,)

    def _assert(self, stmt: Assert, loops: Sequence[For], facts: Sequence[Poly]) -> Body:
        left: list[Expr] = []
        needed: list[Poly] = []
        for condition in _conjuncts(stmt.condition):
            p = self._inequality(condition, True)
            found = None if p is None else self._proof(p, loops, facts)
            if found is None:
                left.append(condition)
            elif found:
                needed.append(found)
        for p in needed:
            self._need(p)
        if not left:
            return ()
        test = left[0]
        for more in left[1:]:
            test = ex.binary(Op.AND, test, more)
        made = Assert(test, stmt.message, stmt.value, stmt.bound)
        if stmt in self.locations:
            self.locations[made] = self.locations[stmt]
        return (made,)

    def _proof(self, p: Poly, loops: Sequence[For], facts: Sequence[Poly]) -> Poly | None:
        """Return what must not be negative for `p` not to be; empty if it never is.

        None if that is not known. A condition around the check may say what the loops do not.
        """
        assumed = len(self.known.assumed)
        first = self.known.least(p, loops)
        if first is not None and self._always(first):
            del self.known.assumed[assumed:]
            return {}
        for fact in facts[-_FACTS:]:
            found = self.known.least(add(p, fact, -1), loops)
            if found is not None and self._always(found):
                return {}
        if first is None or facts:
            # Under a condition the worst point may never be reached: better to check there.
            del self.known.assumed[assumed:]
            return None
        return first

    def _always(self, p: Poly) -> bool:
        low, _ = self.known.bounds(p)
        return low is not None and low >= 0

    def _need(self, p: Poly) -> None:
        if not self._always(p):
            self.needed[ex.index(0).le(to_expr(p))] = None

    def _facts(self, condition: Expr, holds: bool) -> list[Poly]:
        parts = _conjuncts(condition) if holds else _disjuncts(condition)
        found = (self._inequality(c, holds) for c in parts)
        return [p for p in found if p is not None]

    def _inequality(self, c: Expr, holds: bool) -> Poly | None:
        """Return a polynomial that is not negative where a comparison holds, or does not."""
        if c.op is Op.NOT:
            return self._inequality(c.args[0], not holds)
        if c.op not in (Op.LT, Op.LE) or not all(a.dtype is dt.int64 for a in c.args):
            return None
        a, b = map(self.space.poly, c.args)
        strict = c.op is Op.LT
        if not holds:
            a, b, strict = b, a, not strict
        return add(add(b, a, -1), {ONE: -1} if strict else {})


def _conjuncts(condition: Expr) -> Iterable[Expr]:
    return _parts(condition, Op.AND)


def _disjuncts(condition: Expr) -> Iterable[Expr]:
    return _parts(condition, Op.OR)


def _parts(condition: Expr, op: object) -> Iterable[Expr]:
    stack = [condition]
    while stack:
        c = stack.pop()
        if c.op is op and c.dtype is dt.bool_:
            stack.extend(reversed(c.args))
        else:
            yield c
