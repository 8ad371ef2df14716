"""Integer arithmetic of 64 bits in 32 bits, where that gives the same: indices, above all.

An int64 value becomes one of int32 where its range is known to fit, or where nobody asks for more
than its low word: sums and products of low words are the low words of sums and products, and an
offset into memory that is smaller than 2**31 elements has no other word. What asks for the whole
value gets it by a cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Compute, Inst, LinearKernel, Value
from weft.ir.op import Op
from weft.renderers import ranges

__all__ = ["narrow_integers"]

_LOW: Final = -(1 << 31)
_HIGH: Final = (1 << 31) - 1
# Operations whose low word depends on the low words of their operands alone.
_RING: Final = (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.NOT, Op.AND, Op.OR, Op.XOR, Op.WHERE,
                Op.BROADCAST, Op.UNLIKELY)  # fmt: skip
# Operations of numbers that fit 32 bits as the same operations of int32, if the result fits.
_WHOLE: Final = (Op.FLOORDIV, Op.MOD, Op.FMOD, Op.MIN, Op.MAX, Op.ABS, Op.SHR, Op.LT, Op.LE, Op.EQ,
                 Op.NE)  # fmt: skip


def narrow_integers(kernel: LinearKernel, offset_bits: int = 64) -> LinearKernel:
    """Return the kernel with int64 values in int32 where that gives the same.

    Parameters
    ----------
    kernel : LinearKernel
        In scalars; its loops and offsets may be of int32 afterwards.
    offset_bits : int
        32 if every array of the device has less than 2**31 elements: then no offset needs more.
    """
    return _Narrower(kernel.code, offset_bits).rewritten(kernel)


class _Narrower:
    """The work of `narrow_integers` on one kernel."""

    def __init__(self, code: Sequence[Inst], offset_bits: int) -> None:
        self.low_offsets = offset_bits == 32
        self.ranges: ranges.Ranges = {}
        self.makers: dict[int, Inst] = {}
        self.full: set[int] = set()  # values of which more than the low word is asked for
        self.count = 1 + max((v.id for i in code for v in i.results()), default=0)
        for inst in code:
            self._record(inst)
        for inst in reversed(code):
            self._demand(inst)
        self.made: dict[int, Value] = {}  # int32 values, by the ids of those that they stand for
        self.code: list[Inst] = []

    # what is known

    def _record(self, inst: Inst) -> None:
        for v in inst.results():
            self.makers[v.id] = inst
        if isinstance(inst, Compute):
            ranges.record(self.ranges, inst)
        elif isinstance(inst, li.Loop):
            ranges.record_loop(self.ranges, inst.var, inst.extent)
        elif isinstance(inst, li.VariableInst):
            self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        elif isinstance(inst, li.SpecialInst):
            self.ranges[inst.results()[0].id] = 0, _HIGH

    def _fits(self, v: Value) -> bool:
        """Whether an integer is known to fit int32."""
        if v.dtype is dt.int32:
            return True
        low, high = ranges.of(self.ranges, v)
        return v.dtype is dt.int64 and v.lanes == 1 and low >= _LOW and high <= _HIGH

    def _demand(self, inst: Inst) -> None:
        """Note of which operands the whole value is needed."""
        if isinstance(inst, Compute) and self._is_ring(inst):
            if self._is_narrow(inst.result):
                return
        elif isinstance(inst, Compute) and inst.op is Op.CAST and inst.result.dtype.bits <= 32:
            if inst.result.dtype.kind in "iu":
                return
        elif isinstance(inst, li.Loop) and self._counts_narrowly(inst):
            return
        offset = getattr(inst, "offset", None) if self.low_offsets else None
        self.full.update(v.id for v in inst.operands() if v is not offset)

    def _is_ring(self, inst: Compute) -> bool:
        if inst.result.dtype is not dt.int64 or inst.result.lanes != 1:
            return False
        return inst.op in _RING or inst.op is Op.CONST or self._is_widening(inst)

    def _is_widening(self, inst: Compute) -> bool:
        """Whether it makes an int64 of an integer whose low word is that of int32."""
        return inst.op is Op.CAST and inst.args[0].dtype.kind in "biu"

    def _counts_narrowly(self, inst: li.Loop) -> bool:
        begin, step = getattr(inst, "begin", None), getattr(inst, "step", None)
        if not all(self._fits(v) for v in (inst.extent, begin, step) if v is not None):
            return False
        stride = 1 if step is None else ranges.of(self.ranges, step)[1]
        return ranges.of(self.ranges, inst.extent)[1] + stride <= _HIGH

    def _is_narrow(self, v: Value) -> bool:
        """Whether a value is computed as, or cut to, one of int32."""
        if v.dtype is not dt.int64 or v.lanes != 1:
            return False
        if self._fits(v):
            return True
        maker = self.makers[v.id]
        return v.id not in self.full and isinstance(maker, Compute) and self._is_ring(maker)

    # the new code

    def rewritten(self, kernel: LinearKernel) -> LinearKernel:
        """Return the kernel."""
        for inst in kernel.code:
            self._write(inst)
        return kernel.replace(code=tuple(self.code))

    def _write(self, inst: Inst) -> None:
        if isinstance(inst, Compute):
            self._compute(inst)
            return
        if isinstance(inst, li.Loop) and inst.var.dtype is dt.int64:
            if self._counts_narrowly(inst):
                given = {name: self._low(v) for name in ("extent", "begin", "step")
                         if (v := getattr(inst, name, None)) is not None}
                self.code.append(inst.replace(var=self._new(inst.var), **given))
            else:
                self.code.append(self._given(inst))
            return
        new = self._given(inst)
        results = inst.results()
        if isinstance(inst, li.VariableInst | li.SpecialInst):
            self.code.append(new)
            if self._is_narrow(results[0]):
                self._cut(results[0])
            return
        self.code.append(new)

    def _given(self, inst: Inst) -> Any:
        """Return an instruction with its operands as it needs them."""
        given: dict[str, Any] = {}
        for name in inst._uses:
            held = getattr(inst, name)
            if isinstance(held, Value):
                low = name == "offset" and self.low_offsets
                given[name] = self._low(held) if low else self._whole(held)
            elif type(held) is tuple:
                given[name] = tuple([self._whole(v) for v in held])
        changed = {k: v for k, v in given.items() if v is not getattr(inst, k)}
        return inst.replace(**changed) if changed else inst

    def _compute(self, inst: Compute) -> None:
        result = inst.result
        if self._is_narrow(result):
            if inst.op is Op.CONST:
                wrapped = dt.wrap(int(inst.attr), dt.int32)
                self.code.append(Compute(self._new(result), Op.CONST, (), wrapped))
                return
            if self._is_widening(inst):
                args = tuple([self._low(v) if v.dtype is dt.int64 else v for v in inst.args])
                self.code.append(Compute(self._new(result), Op.CAST, args))
                return
            if inst.op in _RING or self._all_fit(inst):
                self.code.append(Compute(self._new(result), inst.op, self._lows(inst), inst.attr))
                return
            self.code.append(self._given(inst))
            self._cut(result)
            return
        if result.dtype.is_bool and self._all_fit(inst) and any(
            self._is_narrow(v) for v in inst.args
        ):
            self.code.append(Compute(result, inst.op, self._lows(inst), inst.attr))
            return
        if inst.op is Op.CAST and inst.args[0].id in self.made and result.dtype.kind in "iuf":
            is_low = result.dtype.bits <= 32 and result.dtype.kind in "iu"
            if is_low or self._fits(inst.args[0]):
                self.code.append(Compute(result, Op.CAST, (self.made[inst.args[0].id],)))
                return
        self.code.append(self._given(inst))

    def _all_fit(self, inst: Compute) -> bool:
        return inst.op in _WHOLE and all(v.dtype is dt.int64 and self._fits(v) for v in inst.args)

    def _lows(self, inst: Compute) -> tuple[Value, ...]:
        return tuple([self._low(v) if v.dtype is dt.int64 else v for v in inst.args])

    def _new(self, v: Value) -> Value:
        """Return the int32 value that stands for an int64 one from here on."""
        self.count += 1
        made = self.made[v.id] = Value(v.name, self.count - 1, dt.int32)
        return made

    def _cut(self, v: Value) -> None:
        """Have the low word of a value that was computed whole stand for it."""
        self.code.append(Compute(self._new(v), Op.CAST, (v,)))

    def _low(self, v: Value) -> Value:
        """Return the low word of a value."""
        found = self.made.get(v.id)
        if found is not None or v.dtype is not dt.int64 or v.lanes != 1:
            return found or v
        self.count += 1
        low = Value(v.name, self.count - 1, dt.int32)
        self.code.append(Compute(low, Op.CAST, (v,)))
        return low

    def _whole(self, v: Value) -> Value:
        """Return a value as it was."""
        found = self.made.get(v.id)
        maker = self.makers.get(v.id)
        if found is None:
            return v
        if not isinstance(maker, Compute | li.Loop) or (
            isinstance(maker, Compute) and not self._is_computed_low(maker)
        ):
            return v  # the whole value is there, too
        self.count += 1
        whole = Value(v.name, self.count - 1, dt.int64)
        self.code.append(Compute(whole, Op.CAST, (found,)))
        return whole

    def _is_computed_low(self, inst: Compute) -> bool:
        return (inst.op is Op.CONST or inst.op in _RING or self._is_widening(inst)
                or self._all_fit(inst))
