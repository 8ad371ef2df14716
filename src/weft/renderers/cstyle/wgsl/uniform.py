"""Which loads decide whether work-items of a group reach a barrier.

All items of a group have to reach it, and compilers of WGSL want to see that they do. What is read
from memory is no more than a promise: such a value is read by one item for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import linear as li
from weft.ir.linear import Inst

__all__ = ["deciding_loads"]


def deciding_loads(code: Sequence[Inst]) -> frozenset[int]:
    """Return the ids of values that are loaded, and on which control flow at barriers depends.

    That is what opens a region with a barrier inside, and the condition of an assertion before one,
    which leaves the kernel.
    """
    pending: set[int] = set()
    opened: list[set[int]] = []
    later = False  # whether there is a barrier behind
    for inst in reversed(code):
        if isinstance(inst, li.BarrierInst):
            later = True
            for values in opened:
                values.add(-1)
        elif isinstance(inst, li.CLOSERS):
            opened.append(set())
        elif isinstance(inst, li.WhileTest):
            opened[-1].update(v.id for v in inst.operands())
        elif isinstance(inst, li.OPENERS):
            values = opened.pop()
            if -1 in values:
                pending |= values | {v.id for v in inst.operands()}
        elif isinstance(inst, li.AssertInst) and later and inst.stops:
            pending.add(inst.condition.id)
    makers = {v.id: inst for inst in code for v in inst.results()}
    found: set[int] = set()
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        maker = makers.get(number)
        if number in seen or maker is None:
            continue
        seen.add(number)
        if isinstance(maker, li.LoadInst):
            found.add(number)
        elif isinstance(maker, li.Compute | li.Loop):
            pending |= {v.id for v in maker.operands()}
    return frozenset(found)
