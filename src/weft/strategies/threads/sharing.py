"""Loops as work of threads: what schedules for devices of threads have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from weft.errors import ScheduleError
from weft.ir import traverse
from weft.ir.stmt import Alloc, Axis, For, Load, Memory
from weft.schedule.analysis.sliding import PAIR
from weft.schedule.analysis.space import find_reduce
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.contraction_pattern import loop_names, loops_since
from weft.strategies.common.nest import Plan, flat_stride, loop_of, product, size_of
from weft.target import BANKS, SECTOR_BYTES

__all__ = ["copy_block", "copy_points", "deal_out", "deal_out_sum", "fuse_all", "fuse_axes",
           "keep_rows", "sectors_of"]

_FEW: Final = 32  # partial results that every thread reads for itself
_PARTIAL: Final = 32  # bytes that a thread may take for partial results
_POINTS: Final = 16  # neighbours whose sectors are counted


def fuse_all(plan: Plan, names: Sequence[str]) -> str:
    """Make one loop of some that nest perfectly, the outermost first; return its name."""
    whole = names[0]
    for name in names[1:]:
        before = loop_names(plan)
        plan.schedule.fuse(whole, name)
        (whole,) = loops_since(plan, before)
    return whole


def fuse_axes(plan: Plan, accumulator: str, names: Sequence[str]) -> str:
    """Make one axis of all axes of a sum, in an order; return its name."""
    known = find_reduce(plan.kernel, accumulator, "fuse").reduce.axes
    if [a.var.attr for a in known] != list(names):
        plan.schedule.reorder(*names)
    while True:
        reduce = find_reduce(plan.kernel, accumulator, "fuse").reduce
        whole, *rest = [a.var.attr for a in reduce.axes]
        if not rest:
            return str(whole)
        plan.schedule.fuse(whole, rest[0])


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


def copy_points(plan: Plan, memory: Memory, loop: str, sides: tuple[str, str], skew: int,
                items: int) -> None:
    """Copy what a group reads of an operand in a step: an element for each row or column and term.

    As `copy_block`, but for loops that were joined, whose subscripts are quotients and remainders:
    what windows share is copied for each of them, and a 0 for what is masked.

    Parameters
    ----------
    memory : Memory
        Read in each step.
    loop : str
        The loop over steps, whose name ends in ``.o``; that over the terms of one ends in ``.i``.
    sides : (str, str)
        The loops over rows and columns, of which ``.i.o`` and ``.i.i`` are what a block has.
    skew : int
        If not 0, terms are copied one after the other, and so many elements are left free behind
        each row of the copy.
    items : int
        Threads of the group.
    """
    term = f"{loop.removesuffix('.o')}.i"
    space = Space(plan.kernel)
    varying = {str(v.attr) for s in traverse.walk(loop_of(plan, loop).body)
               if isinstance(s, Load) and s.memory is memory
               for i in s.index for v in space.symbols(i)}  # fmt: skip
    layout = [term] if term in varying else []
    layout += [f"{s}.i.o{PAIR}{s}.i.i" for s in sides if {f"{s}.i.o", f"{s}.i.i"} & varying]
    if not layout:
        return  # one element, which every thread reads for itself
    before = loop_names(plan)
    plan.schedule.stage(memory.name, loop, tuple(layout), skew=skew, masked=True)
    made = loops_since(plan, before)
    if skew and len(made) > 1:
        made.reverse()
        plan.schedule.reorder(*made)
    deal_out(plan, fuse_all(plan, made), items)


def sectors_of(space: Space, access: Access, loops: Sequence[For | Axis]) -> float:
    """Return how many sectors of memory an element takes, of neighbours along loops as one."""
    steps = [(flat_stride(space, access, loop.var), size_of(loop.extent)) for loop in loops]
    count = max(min(_POINTS, product(loop.extent for loop in loops)), 1)
    touched = set()
    for point in range(count):
        offset, rest = 0, point
        for step, extent in reversed(steps):
            if step is None:
                return 1.0
            offset += step * (rest % extent)
            rest //= extent
        touched.add(offset * access.memory.dtype.itemsize // SECTOR_BYTES)
    return len(touched) / count


def _dimensions(plan: Plan, memory: Memory, loop: str, term: str) -> tuple[list[int], list[int]]:
    """Return the dimensions of a memory along which terms lie, and the others."""
    load = next((s for s in traverse.walk(loop_of(plan, loop).body)
                 if isinstance(s, Load) and s.memory is memory), None)  # fmt: skip
    if load is None:
        raise ScheduleError(f"copy of {memory.name}", found="no load in a step", expected="one")
    space, var = Space(plan.kernel), loop_of(plan, term).var
    terms = [d for d, i in enumerate(load.index) if space.stride(i, var)]
    return terms, [d for d in range(len(load.index)) if d not in terms]
