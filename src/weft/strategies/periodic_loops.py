"""Loops whose variable is divided by a constant: each remainder becomes code of its own.

What undoes a sliding window or repeats elements computes ``i // s`` and asks for ``i % s``: lanes
along i would gather. Written out by remainder (the phases of a polyphase filter), the lanes run
along the quotient: loads are contiguous, half of the conditions are known, and the stores of all
remainders together fill whole vectors.
"""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Reduce
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.elementwise import split_for_vectors
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    product,
    strides,
    work,
)

MOST: Final = 8  # remainders written out
TERMS: Final = 128  # terms of a window, over all remainders


def schedule_phases(plan: Plan, root: str) -> bool:
    """Schedule a nest whose innermost loop has phases; whether it is one."""
    loop = find(plan.kernel, root)
    assert loop is not None
    chain = chain_of(loop)
    last = chain[-1]
    step, n = divisor_of(last.var, last.body), constant(last.extent)
    lanes = plan.target.vector_bytes // Cost(last.body).itemsize
    if not 2 <= step <= MOST or n is None or n < step * lanes // 4:
        return False
    axes = [a for s in last.body if isinstance(s, Reduce) for a in s.axes]
    terms = product(a.extent for a in axes)
    if any(constant(a.extent) is None for a in axes) or terms * step > TERMS:
        return False
    if any(isinstance(s, For | st.If) for s in last.body) or vector_obstacle(last.body) is not None:
        return False
    steps = [s for a, s in strides(Space(plan.kernel), last.body, last.var) if a.write]
    if set(steps) != {1}:
        return False
    schedule = plan.schedule
    amount, name = work((loop,)), last.var.attr
    for axis in axes:
        schedule.unroll(axis.var.attr)
    schedule.split(name, step, *(("peel",) if n % step else ()))
    schedule.unroll(f"{name}.i")
    outer = split_for_vectors(plan, f"{name}.o", ex.index(n // step), Cost(last.body), most=lanes)
    names = [c.var.attr for c in chain[:-1]]
    parallelise(plan, [*names, outer if outer is not None else f"{name}.o"], amount)
    plan.why.append(f"{name} is written out by its remainder by {step}")
    return True


def divisor_of(var: Expr, body: Body) -> int:
    """Return the one constant that expressions of a variable are divided by, 0 if there is none."""
    found: set[int] = set()
    exprs = [e for s in traverse.walk(body) for e in s.exprs()]
    for e in ex.toposort(exprs):
        if e.op in (Op.FLOORDIV, Op.MOD) and var in ex.free_vars([e.args[0]]):
            by = e.args[1]
            found.add(int(by.attr) if by.op is Op.CONST else 0)
    return found.pop() if len(found) == 1 else 0
