"""How often bodies of loops are written, for drivers that end loops after some iterations.

Such a driver counts the turns of all loops of a work-item together, and ends every loop once they
are too many. Where that may happen innermost loops are unrolled: n bodies count as one turn.
Launches stay small enough to be compiled; a loop that is ended all the same is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft.ir import linear as li
from weft.ir.linear import Inst
from weft.renderers import ranges
from weft.renderers.ranges import Ranges

__all__ = ["unrolled"]

_FACTORS: Final = (1, 4, 16, 64)
_MOST: Final = 2048  # instructions of an unrolled launch
_WHOLE: Final = 8  # turns of a loop that is written without one
_WHOLE_SIZE: Final = 256  # instructions of such a loop
_ENDLESS: Final = 1 << 40  # turns of a loop of which nothing is known


class _Work(NamedTuple):
    turns: int  # of all loops
    size: int  # instructions
    loops: bool  # whether any is left


def unrolled(code: Sequence[Inst], regions: Mapping[int, li.Region], workers: int, limit: int
             ) -> dict[int, int]:  # fmt: skip
    """Return how often the body of a loop is written, by the position of the loop.

    Parameters
    ----------
    code, regions
        A launch, and its regions.
    workers : int
        Work-items that share the loop that is shared out; 0 if that is not known.
    limit : int
        Turns of all loops after which the driver ends them; 0: never.
    """
    if not limit:
        return {}
    known = _ranges_of(code)
    found: dict[int, int] = {}
    for factor in _FACTORS:
        tried: dict[int, int] = {}
        work = _planned(code, regions, known, workers, factor, tried, 0, len(code))
        if factor > 1 and work.size > _MOST:
            break  # which drivers would compile for minutes
        found = tried
        if work.turns <= limit // 2:
            break
    return found


def _planned(code: Sequence[Inst], regions: Mapping[int, li.Region], known: Ranges, workers: int,
             factor: int, found: dict[int, int], begin: int, end: int) -> _Work:  # fmt: skip
    """Choose for the loops between two positions; return what is to be done there."""
    turns = size = 0
    loops = False
    position = begin
    while position < end:
        inst = code[position]
        size += 1
        if not isinstance(inst, li.Loop | li.WhileBegin):
            position += 1
            continue
        last = regions[position].end
        inner = _planned(code, regions, known, workers, factor, found, position + 1, last)
        count = _turns(inst, known, workers)
        is_whole = count <= _WHOLE and _is_known(inst, known) and factor > 1
        times = 1 if inner.loops else factor
        if not inner.loops and is_whole and count * inner.size <= _WHOLE_SIZE:
            times = -1  # no loop at all
            size += count * inner.size
        else:
            turns += -(-count // times) * (1 + inner.turns)
            size += times * inner.size
            loops = True
        if times != 1:
            found[position] = times
        position = last + 1
    return _Work(turns, size, loops)


def _turns(inst: Inst, known: Ranges, workers: int) -> int:
    if not isinstance(inst, li.Loop):
        return _ENDLESS
    most = max(ranges.of(known, inst.extent)[1], 0)
    if inst.begin is not None:
        return -(-most // workers) if workers else len(_FACTORS)
    return min(most, _ENDLESS)


def _is_known(inst: Inst, known: Ranges) -> bool:
    """Whether a loop runs from 0 to a constant."""
    if not isinstance(inst, li.Loop) or inst.begin is not None or inst.step is not None:
        return False
    low, high = ranges.of(known, inst.extent)
    return low == high


def _ranges_of(code: Sequence[Inst]) -> Ranges:
    known: Ranges = {}
    for inst in code:
        if isinstance(inst, li.Compute):
            if all(v.lanes == 1 for v in (inst.result, *inst.args)):
                ranges.record(known, inst)
        elif isinstance(inst, li.VariableInst):
            known[inst.result.id] = inst.bounds.min, inst.bounds.max
        elif isinstance(inst, li.Loop):
            ranges.record_loop(known, inst.var, inst.extent)
    return known
