"""How many operations on values the iterations of a loop nest execute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Let, Load, Reduce, Stmt, Store

__all__ = ["operations"]

_TWO: Final = frozenset({Op.MAD})
_CHOICES: Final = frozenset({Op.WHERE, Op.NEG, Op.EQ, Op.NE, Op.LT, Op.LE, Op.AND, Op.OR, Op.NOT})


def operations(body: Body) -> int:
    """Return the operations of a nest: those on loaded values, once for each iteration.

    A multiply-add counts as two and a transcendental as one; conversions, choices, comparisons and
    the arithmetic of indices do not count. Symbolic extents count with their largest values.
    """
    return _Count().of(body, 1)


class _Count:
    """Counts each expression as often as what it depends on changes: invariant ones are hoisted."""

    def __init__(self) -> None:
        self._loops: dict[Expr, int] = {}  # how often each loop variable changes
        self._data: dict[Expr, int] = {}  # the same of names of what was loaded or summed
        self._done: set[Expr] = set()

    def of(self, body: Body, times: int) -> int:
        return sum([self._statement(s, times) for s in body])

    def _statement(self, stmt: Stmt, times: int) -> int:
        if isinstance(stmt, For):
            inside = self._loops[stmt.var] = times * bounds(stmt.extent, {})[1]
            return self._nested(stmt.body, inside)
        if isinstance(stmt, Reduce):
            return self._reduce(stmt, times)
        if isinstance(stmt, Load):
            self._data[stmt.var] = times
            return 0
        if isinstance(stmt, Let):
            found = self._new([stmt.value])
            self._data[stmt.var] = times
            return found
        if isinstance(stmt, Store):
            return self._new([stmt.value])
        return sum([self._nested(inner, times) for inner in stmt.bodies()])

    def _reduce(self, stmt: Reduce, times: int) -> int:
        inside = times
        for axis in stmt.axes:
            inside *= bounds(axis.extent, {})[1]
        self._loops.update((axis.var, inside) for axis in stmt.axes)
        self._data.update((a.var, inside) for a in stmt.accumulators)
        found = self._nested(stmt.body, inside, [a.update for a in stmt.accumulators])
        self._data.update((a.var, times) for a in stmt.accumulators)
        return found

    def _nested(self, body: Body, times: int, last: Sequence[Expr] = ()) -> int:
        known = set(self._done)
        found = self.of(body, times) + self._new(last)
        self._done = known
        return found

    def _new(self, roots: Sequence[Expr]) -> int:
        total = 0
        changes: dict[Expr, int] = {}  # how often; 0 for what depends on no data
        index: dict[Expr, int] = {}
        for e in ex.toposort(roots):
            index[e] = max([self._loops.get(e, 0), *[index[a] for a in e.args]])
            below = max([changes[a] for a in e.args], default=0)
            changes[e] = self._data.get(e, 0) or (below and max(below, index[e]))
            if changes[e] and e not in self._done:
                self._done.add(e)
                total += _cost(e) * changes[e]
        return total


def _cost(e: Expr) -> int:
    if e.op in _CHOICES or e.op.group not in ("unary", "binary", "ternary"):
        return 0
    return 2 if e.op in _TWO else 1
