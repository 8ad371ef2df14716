"""Operands that lie in one memory: ``a.T @ a``, two slices of one array, ``x @ w + x``.

The forms tell operands apart by their memories: what they copy into panels, keep in boxes or fetch
ahead is all that is read of one. So each part in a contraction reads by a name of its own while it
is scheduled: the left factor, the right one, and what is added to the sums.
"""

from __future__ import annotations

from weft.ir import traverse
from weft.ir.expr import Expr, free_vars
from weft.ir.stmt import Let, Load
from weft.strategies.common.contraction_pattern import Pattern, factors_of_sum
from weft.strategies.common.nest import Plan


def separate_aliases(plan: Plan, pattern: Pattern) -> bool:
    """Give the operands of a contraction names of their own; whether some shared one."""
    nest = pattern.rows[0]
    loads = [s for s in traverse.walk((nest,)) if isinstance(s, Load)]
    if len({s.memory for s in loads}) == len(loads):
        return False
    factors = factors_of_sum(pattern.reduce)
    assert factors is not None
    left, right = (_names(pattern, f) for f in factors)
    written = traverse.stores(plan.kernel.body)
    shared = False
    for memory in dict.fromkeys(s.memory for s in loads):
        if memory not in plan.kernel.params or memory in written:
            continue
        read = [s.var for s in loads if s.memory is memory]
        parts = [[v for v in read if v in left], [v for v in read if v in right - left],
                 [v for v in read if v not in left | right]]
        for others in list(filter(None, parts))[1:]:
            plan.schedule.alias(memory.name, *[str(v.attr) for v in others])
            shared = True
    return shared


def _names(pattern: Pattern, factor: Expr) -> set[Expr]:
    """Return the names that a factor is made of."""
    made = {s.var: s for s in (*pattern.rows[-1].body, *pattern.reduce.body)
            if isinstance(s, Let | Load)}
    names: set[Expr] = set()
    stack = list(free_vars([factor]))
    while stack:
        name = stack.pop()
        if name in made and name not in names:
            names.add(name)
            stack.extend(free_vars(made[name].exprs()))
    return names
