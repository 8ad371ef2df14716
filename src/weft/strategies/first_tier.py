"""The schedule of the first tier: made quickly, and quick to generate code for.

Loops stay as they were lowered, scalar and in order; the outermost one that can be shared out is,
so that a kernel is slower by a factor and not by the number of threads besides. No tiles, no
vectors, no copies: there is little of the kernel for the later stages and LLVM to read.
"""

from __future__ import annotations

from typing import Final

from weft.ir import stmt as st
from weft.ir.stmt import For, Kernel
from weft.strategies.common.nest import Plan, chain_of, find, parallelise, work
from weft.target import Target

FIRST: Final = "first tier: scalar code"

__all__ = ["FIRST", "choose_first_tier"]


def choose_first_tier(kernel: Kernel, target: Target, threads: int, why: str = FIRST) -> Kernel:
    """Return the kernel with its outermost independent loops shared out, and nothing else.

    Parameters
    ----------
    kernel : Kernel
        An unscheduled kernel; one with a schedule is returned as it is.
    target : Target
        What it is for.
    threads : int
        Threads that may share the work, at least 1.
    why : str
        Why there is no more to it, for ``weft explain``.
    """
    if kernel.meta.schedule:
        return kernel
    plan = Plan(kernel, target, threads)
    for stmt in kernel.body:
        if isinstance(stmt, For) and stmt.kind == st.SERIAL:
            share_out(plan, stmt)
    made = plan.schedule.kernel
    hints = (*kernel.meta.hints, ("why", "; ".join((*plan.why, why))))
    return made.replace(meta=made.meta.replace(hints=hints))


def share_out(plan: Plan, loop: For) -> None:
    """Share out the outermost loop whose iterations are independent."""
    current = find(plan.kernel, loop.var.attr)
    if current is not None and current.kind == st.SERIAL:
        parallelise(plan, [c.var.attr for c in chain_of(current)], work((loop,)))
