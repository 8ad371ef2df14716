"""Integers of kernel level as sums of values times constants, for what compares offsets."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op

__all__ = ["Sums"]


class Sums:
    """Integers of a kernel as sums of values times constants, and how large they may be.

    Parameters
    ----------
    code : sequence of Inst
        What computes them.
    """

    def __init__(self, code: Sequence[Inst]) -> None:
        self.computed = {i.result.id: i for i in code if isinstance(i, li.Compute)}
        self.loops = {i.var.id: i for i in code if isinstance(i, li.Loop)}
        self.known: dict[int, tuple[dict[Value, int], int]] = {}

    def number(self, value: Value) -> int | None:
        """Return a constant, None if it is none."""
        inst = self.computed.get(value.id)
        return int(inst.attr) if inst is not None and inst.op is Op.CONST else None

    def of(self, value: Value) -> tuple[dict[Value, int], int]:
        """Return a value as factors of others, which are no sums, and a constant."""
        found = self.known.get(value.id)
        if found is None:
            found = self.known[value.id] = self._sum(value)
        return found

    def _sum(self, value: Value) -> tuple[dict[Value, int], int]:
        inst = self.computed.get(value.id)
        op = None if inst is None else inst.op
        if inst is None or not value.dtype.is_integer or value.dtype.itemsize < 8:
            return {value: 1}, 0
        if op is Op.CONST:
            return {}, int(inst.attr)
        if op in (Op.ADD, Op.SUB):
            sign = 1 if op is Op.ADD else -1
            (terms, constant), (others, other) = map(self.of, inst.args)
            terms = dict(terms)
            for v, times in others.items():
                terms[v] = terms.get(v, 0) + sign * times
            return {v: f for v, f in terms.items() if f}, constant + sign * other
        if op is Op.MUL:
            for this, scale in (inst.args, inst.args[::-1]):
                factor = self.number(scale)
                if factor is not None:
                    terms, constant = self.of(this)
                    return {v: f * factor for v, f in terms.items() if factor}, constant * factor
        return {value: 1}, 0

    def largest(self, value: Value) -> int | None:
        """Return a bound of a value that is not negative, None if there is none."""
        loop = self.loops.get(value.id)
        if loop is not None:
            extent = self.number(loop.extent)
            return None if extent is None or loop.begin is not None else max(extent - 1, 0)
        inst = self.computed.get(value.id)
        divisor = None if inst is None or len(inst.args) < 2 else self.number(inst.args[1])
        if inst is None or divisor is None or divisor < 1:
            return None
        if inst.op is Op.MOD:
            return divisor - 1
        most = self.largest(inst.args[0]) if inst.op is Op.FLOORDIV else None
        return None if most is None else most // divisor
