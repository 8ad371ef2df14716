"""How many turns the loops of a work-item make at most, those of library functions included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst
from weft.ir.op import Op
from weft.renderers import ranges

__all__ = ["turns"]

_MANY: Final = 1 << 62
# Turns of the functions that divide, by operation; of integers only those of 64 bits have loops.
_DIVISIONS: Final = {Op.DIV: 64, Op.SQRT: 64, Op.FLOORDIV: 64, Op.MOD: 64, Op.FMOD: 2200}


def turns(code: Sequence[Inst]) -> int:
    """Return a bound of the turns; a loop that all work-items share counts as one turn."""
    known: ranges.Ranges = {}
    counts, factors = 0, [1]
    for inst in code:
        if isinstance(inst, li.Compute):
            ranges.record(known, inst, (dt.int32, dt.int64))
            if inst.op in _DIVISIONS and (inst.result.dtype.kind == "f"
                                          or inst.result.dtype.bits == 64):
                counts += factors[-1] * _DIVISIONS[inst.op]
        elif isinstance(inst, li.Loop):
            ranges.record_loop(known, inst.var, inst.extent)
            most = ranges.of(known, inst.extent)[1] if inst.step is None else 1
            factors.append(min(factors[-1] * max(most, 0), _MANY))
            counts += factors[-1]
        elif isinstance(inst, li.WhileBegin):
            factors.append(_MANY)
            counts += _MANY
        elif isinstance(inst, li.EndLoop | li.EndWhile):
            factors.pop()
    return counts
