"""Loop nests that users wrote: a tree of loops, some of which carry a dependence.

A loop whose iterations depend on each other stays as it is, and the nests inside it are scheduled
each for itself: in a time loop around two sweeps over a grid, each sweep is shared out and runs in
vectors. What the other strategies left scalar in the end becomes vectors where that is legal.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir.stmt import Body, For, Kernel, Reduce
from weft.ir.traverse import walk
from weft.schedule.analysis.dependence import carried
from weft.schedule.analysis.subscripts import Space
from weft.schedule.choices import Choices
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.contraction_pattern import match
from weft.strategies.common.elementwise import split_for_vectors
from weft.strategies.common.nest import Cost, Plan, find, size_of, strides
from weft.strategies.first_tier import choose_first_tier
from weft.strategies.reductions.rowwise import phases, schedule_reduction
from weft.strategies.user_requests import UNMET, UserRequests
from weft.target import Target

__all__ = ["schedule_tree"]


Strategy = Callable[[Plan, For], None]  # schedules a nest whose outermost loop is independent


def schedule_tree(kernel: Kernel, target: Target, threads: int, choices: Choices | None,
                  nest: Strategy) -> Kernel:  # fmt: skip
    """Return a kernel of loop nests with a schedule for each of them.

    Parameters
    ----------
    kernel, target, threads, choices
        See `weft.strategies.choose`.
    nest
        Schedules a nest whose outermost loop carries no dependence.
    """
    wishes = UserRequests(kernel)
    if wishes.given.get("vectors") is False:
        return choose_first_tier(
            kernel, target, 1 if wishes.given.get("threads") is False else threads
        )
    if wishes and choices is None:
        choices = Choices(wishes.choices(max(target.vector_bytes // 4, 1)))
    plan = Plan(kernel, target, 1 if wishes.given.get("threads") is False else threads, choices)
    stack = [str(s.var.attr) for s in reversed(kernel.body) if isinstance(s, For)]
    while stack:
        loop = find(plan.kernel, stack.pop())
        if loop is None or loop.kind != st.SERIAL:
            continue
        if carried(Space(plan.kernel), loop.var, loop.body) is None:
            _independent(plan, loop, nest, wishes)
            continue
        stack.extend(str(s.var.attr) for s in reversed(loop.body) if isinstance(s, For))
        if any(isinstance(s, Reduce) for s in loop.body):
            _sums(plan, tuple(s for s in loop.body if isinstance(s, Reduce)), shared=False)
    for reduce in [s for s in plan.kernel.body if isinstance(s, Reduce)]:
        _sums(plan, (reduce,))
    _left_over(plan)
    wishes.finish(plan)
    made = plan.schedule.kernel
    hints = (*kernel.meta.hints, *plan.hints())
    if wishes.unmet:
        hints = (*hints, (UNMET, "; ".join(wishes.unmet)))
    return made.replace(meta=made.meta.replace(hints=hints))


def _independent(plan: Plan, loop: For, nest: Strategy, wishes: UserRequests) -> None:
    if not wishes.sizes:
        nest(plan, loop)
        return
    root = str(loop.var.attr)
    wishes.cut(plan, loop, match(plan, root) is not None)
    made = find(plan.kernel, f"{root}.o") or find(plan.kernel, root)
    if made is not None:
        nest(plan, made)


def _sums(plan: Plan, body: Body, shared: bool = True) -> None:
    """Schedule reductions in no loop, or (not `shared`) in one that has to keep its order."""
    if vector_obstacle(body) is not None:
        return
    saved, reasons = plan.schedule.mark(), len(plan.why)
    try:
        if shared:
            schedule_reduction(plan, body)
        else:
            phases(plan, body, chunked=False)
    except ScheduleError:
        plan.schedule.reset(saved)
        del plan.why[reasons:]


def _left_over(plan: Plan) -> None:
    """Make vectors of innermost loops that are independent and still scalar."""
    for name in _scalar(plan):
        loop = find(plan.kernel, name)
        if loop is None or vector_obstacle(loop.body) is not None or size_of(loop.extent) < 2:
            continue
        space = Space(plan.kernel)
        if carried(space, loop.var, loop.body) is not None:
            continue
        steps = [step for _, step in strides(space, loop.body, loop.var)]
        near = sum(step in (0, 1, -1) for step in steps)
        if 2 * near > len(steps):
            split_for_vectors(plan, name, loop.extent, Cost(loop.body))


def _scalar(plan: Plan) -> list[str]:
    """Return the serial loops with neither loops nor reductions inside, outside of vectors."""
    found: list[str] = []
    stack = [(s, False) for s in reversed(plan.kernel.body)]
    while stack:
        stmt, wide = stack.pop()
        if isinstance(stmt, For):
            wide = wide or stmt.kind in (st.VECTOR, st.UNROLLED)
            inside = any(isinstance(s, For | Reduce) for s in walk(stmt.body))
            if stmt.kind == st.SERIAL and not wide and not inside:
                found.append(str(stmt.var.attr))
        stack.extend((s, wide) for body in stmt.bodies() for s in reversed(body))
    return found
