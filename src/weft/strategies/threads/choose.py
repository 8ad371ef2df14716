"""Schedules for devices of threads: an iteration of independent loops for each of them.

Threads of such devices hide the latency of memory by their number, and neighbours that read
neighbouring elements share a transfer. So all loops that are independent become one parallel loop,
the innermost of them fastest, and what is left of the nest is scalar code of one thread.

Where the elements of a reduction lie side by side, and not what neighbouring threads would read, a
group works on each reduction: its threads take the elements by turns, and their partial results
meet in memory of the group. What else an iteration does is dealt out to them as well, and what it
reads several times is kept there where it fits, so that softmax is one kernel that reads each row
once, by whole transfers. What is read across the order in which it is written is
`weft.strategies.threads.transposed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import For, Kernel, Reduce
from weft.schedule.analysis import subscripts
from weft.schedule.analysis.space import constant
from weft.schedule.choices import Choices
from weft.strategies.common.nest import (
    Plan,
    chain_of,
    find,
    loop_of,
    power_above,
    product,
    strides,
)
from weft.strategies.threads.attention import schedule_attention
from weft.strategies.threads.contraction import schedule_contraction
from weft.strategies.threads.scan import schedule_scan
from weft.strategies.threads.sharing import deal_out, deal_out_sum, keep_rows
from weft.strategies.threads.transposed import schedule_transposed
from weft.target import Target

__all__ = ["choose_for_threads"]

_WHY: Final = "an iteration for each thread"
_GROUPS: Final = "a group of threads for each reduction"
_ROW: Final = 32  # elements of a reduction that threads read by whole transfers


def choose_for_threads(kernel: Kernel, target: Target, threads: int,
                       choices: Choices | None = None, why: str = "") -> Kernel:  # fmt: skip
    """Return the kernel with its independent loops as one loop over the threads of a device.

    Parameters
    ----------
    kernel : Kernel
        An unscheduled kernel; one with a schedule is returned as it is.
    target : Target
        What it is for.
    threads : int
        Compute units of the device, at least 1.
    choices : Choices, optional
        Decisions to take instead of the defaults; on return it tells all that could be decided.
    why : str
        Why the plainest schedule is wanted: what to tell the user of it.
    """
    if kernel.meta.schedule:
        return kernel
    plan = Plan(kernel, target, threads, choices)
    whole = not why and kernel.meta.kind == "scan" and _attempt(plan, schedule_scan)
    for stmt in () if whole else kernel.body:
        if isinstance(stmt, For) and stmt.kind == st.SERIAL:
            if why or not (_attends(plan, stmt) or _contracts(plan, stmt)):
                _share(plan, stmt)
        elif isinstance(stmt, Reduce):
            _share_sum(plan, stmt)
    made = plan.schedule.kernel
    reasons = "; ".join(dict.fromkeys((*plan.why, *([why] if why else ())))) or "one thread"
    return made.replace(meta=made.meta.replace(hints=(*kernel.meta.hints, ("why", reasons))))


def _attends(plan: Plan, loop: For) -> bool:
    """Schedule a nest as an attention; whether it is one."""
    return plan.kernel.meta.kind == "attention" and _attempt(plan, schedule_attention, loop)


def _contracts(plan: Plan, loop: For) -> bool:
    """Schedule a nest as a contraction; whether it is one."""
    return _attempt(plan, schedule_contraction, loop)


def _attempt(plan: Plan, strategy: Callable[..., bool], *loops: For) -> bool:
    """Schedule a kernel or nest by a strategy; whether it fits; the plan is as it was if not."""
    saved, decided = plan.schedule.mark(), plan.choices.mark()
    try:
        if strategy(plan, *(loop.var.attr for loop in loops)):
            return True
    except ScheduleError as error:
        plan.why.append(f"not {error.operation}: {error.found}")
    plan.schedule.reset(saved)
    plan.choices.reset(decided)
    return False


def _share(plan: Plan, loop: For) -> None:
    """Make one parallel loop of the loops of a nest that are independent."""
    current = find(plan.kernel, loop.var.attr)
    if current is None or schedule_transposed(plan, current):
        return
    chain = [c.var.attr for c in chain_of(current)]
    free = [name for name in chain if _is_independent(plan, name)]
    saved = plan.schedule.mark()
    while free:
        try:
            _join(plan, chain, free)
        except ScheduleError:
            plan.schedule.reset(saved)
            free.pop()
        else:
            grouped = _deal_out_rows(plan, free)
            plan.why.append(_GROUPS if grouped else _WHY)
            return


def _is_independent(plan: Plan, name: str) -> bool:
    saved = plan.schedule.mark()
    legal = plan.attempt("parallel", name)
    plan.schedule.reset(saved)
    return legal


def _deal_out_rows(plan: Plan, free: list[str]) -> bool:
    """Deal the reductions of each iteration out to the threads of a group, if that is better."""
    loop = next(s for s in traverse.walk(plan.kernel.body)
                if isinstance(s, For) and s.kind == st.PARALLEL and s.var.attr.startswith(free[0]))
    sums = [s for s in loop.body if isinstance(s, Reduce)]
    lengths = [product(a.extent for a in s.axes) for s in sums]
    if min(lengths, default=0) < _ROW or not all(_lies_along(plan, s, loop.var) for s in sums):
        return False
    saved, decided = plan.schedule.mark(), plan.choices.mark()
    items = _items(plan, min(plan.target.group_items, power_above(max(lengths) // 2 + 1)))
    try:
        keep_rows(plan, loop.var.attr, items)
        for s in loop_of(plan, loop.var.attr).body:
            if isinstance(s, Reduce):
                deal_out_sum(plan, s.axes[-1].var.attr, items)
            elif isinstance(s, For) and s.kind == st.SERIAL:
                _deal_out_elements(plan, s.var.attr, items)
    except ScheduleError as error:
        plan.schedule.reset(saved)
        plan.choices.reset(decided)
        plan.why.append(f"not {error.operation}: {error.found}")
        return False
    return True


def _items(plan: Plan, default: int) -> int:
    """Return how many threads of a group share a reduction."""
    powers = [1 << k for k in range(plan.target.max_items.bit_length())]
    return plan.pick("items", default, [n for n in powers if n >= min(_ROW, default)])


def _deal_out_elements(plan: Plan, name: str, items: int) -> None:
    """Deal out what is done with the elements of a row, if that is legal."""
    saved = plan.schedule.mark()
    try:
        deal_out(plan, name, items)
    except ScheduleError:
        plan.schedule.reset(saved)


def _lies_along(plan: Plan, s: Reduce, row: Expr) -> bool:
    """Whether a reduction reads neighbouring elements, and neighbouring iterations do not."""
    space = subscripts.Space(plan.kernel)
    along = [n for a, n in strides(space, s.body, s.axes[-1].var) if a.memory.scope == "global"]
    across = [n for a, n in strides(space, s.body, row) if a.memory.scope == "global"]
    return (1 in along or not along) and 1 not in across


def _share_sum(plan: Plan, s: Reduce) -> None:
    """Share the reduction of a whole array out to groups; one brings their results together."""
    saved, decided = plan.schedule.mark(), plan.choices.mark()
    name = s.axes[-1].var.attr
    items = _items(plan, plan.target.group_items)
    try:
        whole = constant(s.axes[-1].extent)
        if whole is not None and whole >= items * items:
            plan.schedule.split(name, -(-whole // items)).rfactor(f"{name}.o")
            plan.schedule.parallel(f"{name}.o")
            deal_out_sum(plan, f"{name}.o.c", items)
            name = f"{name}.i"
        deal_out_sum(plan, name, items)
    except ScheduleError as error:
        plan.schedule.reset(saved)
        plan.choices.reset(decided)
        plan.why.append(f"not {error.operation}: {error.found}")
    else:
        plan.why.append(_GROUPS)


def _join(plan: Plan, chain: list[str], free: list[str]) -> None:
    """Bring some loops of a chain outwards, in their order, fuse them and share them out."""
    if chain[: len(free)] != free:
        plan.schedule.reorder(*free, *(name for name in chain if name not in free))
    plan.schedule.parallel(*free)
