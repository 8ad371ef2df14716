"""Ranges of int64 values while a kernel is written: what makes index arithmetic cheap.

Loops count from 0, variables have bounds, sizes are constants: most quotients and remainders of
indices are of numbers that are not negative and fit 32 bits, where division is several times
cheaper, and where vectors have a multiplication to do it with.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute, Value
from weft.ir.op import Op

__all__ = ["Range", "Ranges", "of", "record", "record_loop"]

Range = tuple[int, int]  # inclusive
Ranges = dict[int, Range]  # by value id

_WHOLE: Final[Range] = (-(1 << 63), (1 << 63) - 1)


def of(known: Ranges, value: Value) -> Range:
    """Return the range of an int64 value, the whole of int64 if nothing is known."""
    return known.get(value.id, _WHOLE)


def record_loop(known: Ranges, var: Value, extent: Value) -> None:
    """Remember the range of a loop variable."""
    high = of(known, extent)[1]
    known[var.id] = (0, max(high - 1, 0))


def record(known: Ranges, inst: Compute, dtypes: tuple[DType, ...] = (dt.int64,)) -> None:
    """Remember the range of a result of certain types, if it follows from its operands."""
    d = inst.result.dtype
    if d not in dtypes:
        return
    found = _result(known, inst)
    if found is not None and d.min <= found[0] and found[1] <= d.max:
        known[inst.result.id] = found


def _result(ranges: Ranges, inst: Compute) -> Range | None:
    op = inst.op
    if op is Op.CONST:
        return inst.attr, inst.attr
    if op is Op.CAST:
        d, known = inst.args[0].dtype, ranges.get(inst.args[0].id)
        if known is not None and d.kind in "iu":
            return known
        if d.kind in "bui" and d.bits < 64:
            return int(d.min), int(d.max)
        return None
    if op is Op.WHERE:
        a, b = ranges.get(inst.args[1].id), ranges.get(inst.args[2].id)
        return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
    a = ranges.get(inst.args[0].id)
    if op in (Op.BROADCAST, Op.EXTRACT, Op.HALF):
        return a
    if op is Op.RAMP:
        return None if a is None else (a[0], a[1] + inst.result.lanes - 1)
    if op is Op.PLACES:
        return None if a is None else (a[0], a[1] + 15 * int(inst.attr) + 15)
    if len(inst.args) != 2:
        return None
    b = ranges.get(inst.args[1].id)
    if op is Op.MOD:  # by a positive number, whatever the dividend
        return (0, b[1] - 1) if b is not None and b[0] > 0 else None
    if a is None or b is None:
        return None
    if op is Op.ADD:
        return a[0] + b[0], a[1] + b[1]
    if op is Op.SUB:
        return a[0] - b[1], a[1] - b[0]
    if op is Op.MUL:
        ends = [x * y for x in a for y in b]
        return min(ends), max(ends)
    if op is Op.FLOORDIV and b[0] > 0:
        ends = [x // y for x in a for y in b]
        return min(ends), max(ends)
    if op is Op.MIN:
        return min(a[0], b[0]), min(a[1], b[1])
    if op is Op.MAX:
        return max(a[0], b[0]), max(a[1], b[1])
    return None
