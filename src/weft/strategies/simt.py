"""Schedules for devices of threads: an iteration of independent loops for each of them.

Threads of such devices hide the latency of memory by their number, and neighbours that read
neighbouring elements share a transfer. So all loops that are independent become one parallel loop,
the innermost of them fastest, and what is left of the nest is scalar code of one thread.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.stmt import For, Kernel
from weft.strategies.common.nest import Plan, chain_of, find
from weft.target import Target

__all__ = ["choose_for_threads"]

_WHY: Final = "an iteration for each thread"


def choose_for_threads(kernel: Kernel, target: Target, threads: int, why: str = "") -> Kernel:
    """Return the kernel with its independent loops as one loop over the threads of a device.

    Parameters
    ----------
    kernel : Kernel
        An unscheduled kernel; one with a schedule is returned as it is.
    target : Target
        What it is for.
    threads : int
        Compute units of the device, at least 1.
    why : str
        What else to tell the user of the schedule.
    """
    if kernel.meta.schedule:
        return kernel
    plan = Plan(kernel, target, threads)
    for stmt in kernel.body:
        if isinstance(stmt, For) and stmt.kind == st.SERIAL:
            _share(plan, stmt)
    made = plan.schedule.kernel
    reasons = "; ".join(dict.fromkeys((*plan.why, *([why] if why else ())))) or "one thread"
    return made.replace(meta=made.meta.replace(hints=(*kernel.meta.hints, ("why", reasons))))


def _share(plan: Plan, loop: For) -> None:
    """Make one parallel loop of the loops of a nest that are independent."""
    current = find(plan.kernel, loop.var.attr)
    if current is None:
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
            plan.why.append(_WHY)
            return


def _is_independent(plan: Plan, name: str) -> bool:
    saved = plan.schedule.mark()
    legal = plan.attempt("parallel", name)
    plan.schedule.reset(saved)
    return legal


def _join(plan: Plan, chain: list[str], free: list[str]) -> None:
    """Bring some loops of a chain outwards, in their order, fuse them and share them out."""
    if chain[: len(free)] != free:
        plan.schedule.reorder(*free, *(name for name in chain if name not in free))
    whole = free[0]
    for name in free[1:]:
        before = _names(plan)
        plan.schedule.fuse(whole, name)
        (whole,) = _names(plan) - before
    plan.schedule.parallel(whole)


def _names(plan: Plan) -> set[str]:
    return {s.var.attr for s in traverse.walk(plan.kernel.body) if isinstance(s, For)}
