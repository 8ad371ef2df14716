"""Loops directly in one another that go through memory in one run become one loop.

    for i in 8: for j in 3: a[i, j] = 0  ->  for j in 24: a[0, j] = 0

Each loop around costs a compiler as much as ten instructions. The order of the iterations stays.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Body, For, Load, Store
from weft.passes.common.flat import flat_index
from weft.passes.common.lanes import linear

__all__ = ["collapse_loops"]


def collapse_loops(s: For) -> tuple[For, dict[Expr, Expr]]:
    """Return a loop with those directly in it joined, and the variables that are 0 in offsets.

    An index of a joined variable may reach past its dimension: only the row-major offset counts.
    """
    loops = [s]
    while (inner := _only_loop(loops[-1])) is not None:
        loops.append(inner)
    if len(loops) == 1 or not all(_counts(loop) for loop in loops):
        return s, {}
    steps = _steps(loops[-1].body, [loop.var for loop in loops])
    if steps is None:
        return s, {}
    zero: dict[Expr, Expr] = {}
    made = loops[-1]
    for loop in reversed(loops[:-1]):
        many = made.extent.attr
        before = steps.get(loop.var)
        if before is not None and before == [step * many for step in steps.get(made.var, ())]:
            made = made.replace(extent=ex.index(many * loop.extent.attr))
            zero[loop.var] = ex.index(0)
        else:
            made = loop.replace(body=(made,))
    return made, zero


def _counts(loop: For) -> bool:
    return loop.kind == SERIAL and loop.extent.op is Op.CONST


def _only_loop(s: For) -> For | None:
    """Return the loop that is all of a loop's body."""
    first = s.body[0] if len(s.body) == 1 else None
    return first if isinstance(first, For) else None


def _steps(body: Body, variables: list[Expr]) -> dict[Expr, list[int]] | None:
    """Return by how many elements each access goes on with a variable.

    Without variables that anything else depends on; None if accesses depend otherwise on any.
    """
    steps: dict[Expr, list[int]] = {v: [] for v in variables}
    others: list[Expr] = []
    for s in body:
        if not isinstance(s, Load | Store):
            return None
        offset = flat_index(s.memory, s.index)
        terms, _ = linear(offset, {})
        if any(t.op is not Op.VAR and ex.free_vars([t]) & steps.keys() for t in terms):
            return None
        for v, known in steps.items():
            known.append(terms.get(v, 0))
        read = (s.value, s.mask) if isinstance(s, Store) else (s.fill, s.mask)
        others += [e for e in read if e is not None]
    for v in ex.free_vars(others) & steps.keys():
        del steps[v]
    return steps
