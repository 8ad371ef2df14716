"""Loops as work of threads: what schedules for devices of threads have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from weft.errors import ScheduleError
from weft.ir import traverse
from weft.ir.stmt import Alloc, Load, Memory
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.contraction_pattern import loop_names, loops_since
from weft.strategies.common.nest import Plan, loop_of, size_of
from weft.target import BANKS

__all__ = ["copy_block", "deal_out", "deal_out_sum", "fuse_all", "keep_rows"]

_FEW: Final = 32  # partial results that every thread reads for itself
_PARTIAL: Final = 32  # bytes that a thread may take for partial results


def fuse_all(plan: Plan, names: Sequence[str]) -> str:
    """Make one loop of some that nest perfectly, the outermost first; return its name."""
    whole = names[0]
    for name in names[1:]:
        before = loop_names(plan)
        plan.schedule.fuse(whole, name)
        (whole,) = loops_since(plan, before)
    return whole


def deal_out(plan: Plan, name: str, items: int) -> None:
    """Deal the iterations of a loop out to `items` threads of a group, which take turns."""
    if size_of(loop_of(plan, name).extent) > items:
        before = loop_names(plan)
        plan.schedule.split(name, items)
        rounds, name = loops_since(plan, before)
        plan.schedule.reorder(name, rounds)
    plan.schedule.bind(name)


def deal_out_sum(plan: Plan, name: str, items: int) -> None:
    """Have the threads of a group take the elements of a reduction by turns.

    Some of them bring the partial results of several together, and all read what these found.
    """
    for count in (items, 1 << items.bit_length() // 2):
        plan.schedule.split(name, count).rfactor(f"{name}.i").bind(f"{name}.i")
        name = f"{name}.i.c"
        if items <= _FEW:
            return


def keep_rows(plan: Plan, loop: str, items: int) -> None:
    """Copy what an iteration reads several times to memory of its group, where it has room."""
    room = plan.target.shared_bytes - _PARTIAL * items
    loads = Counter(s.memory for s in traverse.walk(loop_of(plan, loop).body)
                    if isinstance(s, Load) and s.memory.scope == "global")  # fmt: skip
    for memory, count in loads.items():
        saved = plan.schedule.mark()
        if count < 2 or not plan.attempt("window", memory.name, loop):
            continue
        body = loop_of(plan, loop).body
        taken = sum(size_of(s.memory.size) * s.memory.dtype.itemsize
                    for s in body if isinstance(s, Alloc))  # fmt: skip
        if taken > room:
            plan.schedule.reset(saved)


def copy_block(plan: Plan, memory: Memory, loop: str, step: int, items: int) -> None:
    """Copy what a group reads of an operand in a step, in the order in which it lies in memory.

    Terms come first in the copy, so that threads of neighbouring results read different banks.

    Parameters
    ----------
    memory : Memory
        Read in each step.
    loop : str
        The loop over steps, whose name ends in ``.o``; that over the terms of one ends in ``.i``.
    step, items : int
        Terms of a step, and threads of the group.
    """
    before = loop_names(plan)
    terms, rest = _dimensions(plan, memory, loop, f"{loop.removesuffix('.o')}.i")
    turned = bool(terms) and bool(rest) and max(terms) > max(rest)
    skew = max(BANKS // step, 1) if turned else 0
    plan.schedule.window(memory.name, loop, (*terms, *rest), skew)
    deal_out(plan, fuse_all(plan, loops_since(plan, before)), items)


def _dimensions(plan: Plan, memory: Memory, loop: str, term: str) -> tuple[list[int], list[int]]:
    """Return the dimensions of a memory along which terms lie, and the others."""
    load = next((s for s in traverse.walk(loop_of(plan, loop).body)
                 if isinstance(s, Load) and s.memory is memory), None)  # fmt: skip
    if load is None:
        raise ScheduleError(f"copy of {memory.name}", found="no load in a step", expected="one")
    space, var = Space(plan.kernel), loop_of(plan, term).var
    terms = [d for d, i in enumerate(load.index) if space.stride(i, var)]
    return terms, [d for d in range(len(load.index)) if d not in terms]
