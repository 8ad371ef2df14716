"""Which schedule, for this loop nest and this target? A good default at once, without a search.

A strategy is imported when a nest asks for it: most processes have few kinds of nests. Forks
wait for the end of such an import: the child would have its beginning alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import ScheduleError
from weft.imports import Late, importing
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.stmt import For, Kernel, Reduce
from weft.schedule.choices import Choices
from weft.strategies.common.nest import COMPUTE, Plan
from weft.strategies.first_tier import share_out
from weft.target import SIMT, Target

if TYPE_CHECKING:
    from weft.strategies import periodic_loops
    from weft.strategies.common import elementwise
else:
    elementwise = Late("weft.strategies.common.elementwise")
    periodic_loops = Late("weft.strategies.periodic_loops")

__all__ = ["choose"]


def choose(kernel: Kernel, target: Target, threads: int,
           choices: Choices | None = None) -> Kernel:  # fmt: skip
    """Return the kernel with a schedule that suits its nest and the target.

    What the nest is, is read off the nest: ``meta.kind`` only says which kernels must keep their
    order (scan, sort, scatter). Each statement of the kernel's body is scheduled for itself. Where
    nothing better is legal, the outermost loop that can be parallel is, and the rest stays serial.

    Parameters
    ----------
    kernel : Kernel
        An unscheduled kernel; one with a schedule is returned as it is.
    target : Target
        Vector width and cache sizes decide; the name never does.
    threads : int
        Threads that may share the work, at least 1.
    choices : Choices, optional
        Decisions to take instead of the defaults; on return it tells all that could be decided.

    Returns
    -------
    Kernel
        With the trace in ``meta.schedule``, and in ``meta.hints`` the reasons under ``why`` and
        what form contractions took under ``form``.
    """
    if kernel.meta.schedule:
        return kernel
    if target.style == SIMT:
        with importing:
            from weft.strategies.threads.choose import choose_for_threads

        return choose_for_threads(kernel, target, threads, choices)
    if dict(kernel.meta.hints).get(COMPUTE):
        with importing:
            from weft.strategies import loops

        return loops.schedule_tree(kernel, target, threads, choices, _nest)
    plan = Plan(kernel, target, threads, choices)
    whole = [s for s in kernel.body if isinstance(s, Reduce)]
    if _whole_kernel(plan):
        pass
    elif whole:
        with importing:
            from weft.strategies.reductions import rowwise

        _attempt(plan, lambda: rowwise.schedule_reduction(plan, kernel.body))
    else:
        for stmt in kernel.body:
            if isinstance(stmt, For) and stmt.kind == st.SERIAL:
                _nest(plan, stmt)
            elif isinstance(stmt, For) and kernel.meta.kind == "scatter":
                with importing:
                    from weft.strategies import scatter

                scatter.schedule_parts(plan, stmt)
    made = plan.schedule.kernel
    return made.replace(meta=made.meta.replace(hints=(*kernel.meta.hints, *plan.hints())))


def _whole_kernel(plan: Plan) -> bool:
    """Schedule a kernel that is one thing, whatever its statements are; return whether it is."""
    kernel = plan.kernel
    if kernel.meta.kind == "sort":
        with importing:
            from weft.strategies import sort

        return _attempt(plan, lambda: sort.schedule_sort(plan, kernel.body))
    if kernel.meta.kind == "pack":
        with importing:
            from weft.strategies import sort

        return _attempt(plan, lambda: sort.schedule_pack(plan, kernel.body))
    if kernel.meta.kind == "scan":
        with importing:
            from weft.strategies import scan

        return _attempt(plan, lambda: scan.schedule_rows(plan, kernel.body))
    return False


def _nest(plan: Plan, loop: For) -> None:
    """Try the strategies from the most special to the default."""
    root = loop.var.attr
    if plan.kernel.meta.kind in ("scan", "attention") and _special(plan, root):
        return
    reduces = any(isinstance(s, Reduce) for s in traverse.walk(loop.body))
    if reduces:
        with importing:
            from weft.strategies import contraction
            from weft.strategies.reductions import rowwise

        pattern = contraction.match(plan, root)
        if pattern is not None and _attempt(
                plan, lambda: contraction.schedule_contraction(plan, pattern)):
            return
        contraction.omit_padding(plan, root)
        if _attempt(plan, lambda: periodic_loops.schedule_phases(plan, root)) or _attempt(
                plan, lambda: rowwise.schedule_rows(plan, root)):
            return
    elif (plan.kernel.meta.kind == "scatter" and _special(plan, root)) or _attempt(
            plan, lambda: periodic_loops.schedule_phases(plan, root)) or _attempt(
            plan, lambda: elementwise.schedule_nest(plan, root)):
        return
    share_out(plan, loop)


def _special(plan: Plan, root: str) -> bool:
    """Try what the kind of the kernel says."""
    if plan.kernel.meta.kind == "scan":
        with importing:
            from weft.strategies import scan

        return _attempt(plan, lambda: scan.schedule_scan(plan, root))
    if plan.kernel.meta.kind == "attention":
        with importing:
            from weft.strategies import attention, attention_matrix

        if _attempt(plan, lambda: attention_matrix.schedule_matrices(plan, root)):
            return True
        return _attempt(plan, lambda: attention.schedule_attention(plan, root))
    with importing:
        from weft.strategies import scatter

    return _attempt(plan, lambda: scatter.schedule_updates(plan, root))


def _attempt(plan: Plan, strategy: object) -> bool:
    """Run a strategy; undo it and return False if it fails or does not fit."""
    assert callable(strategy)
    saved, reasons, decided = plan.schedule.mark(), len(plan.why), plan.choices.mark()
    try:
        fits = strategy()
    except ScheduleError as error:
        plan.schedule.reset(saved)
        plan.choices.reset(decided)
        del plan.why[reasons:]
        plan.why.append(f"not {error.operation}: {error.found}")
        return False
    return fits is not False

