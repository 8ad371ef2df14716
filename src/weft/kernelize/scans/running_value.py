"""The running value of a scan: where it begins, its steps, and how blocks of a row are joined."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, Let, Load, Memory, Store
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.rows import at
from weft.kernelize.common.sizes import upper_bound
from weft.target import Target

JOINS: Final = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}
JOINED_EXACTLY: Final = ("max", "min")  # without rounding


class Scan:
    """What one scan computes: its running value, the steps of it, where the results go.

    Attributes
    ----------
    wide : DType
        Type of the running value.
    has_double : bool
        Whether the target has float64, if only in words.
    is_compensated : bool
        Whether it is a sum of float32 to which what its roundings lose is added apart.
    is_linear : bool
        Whether it is a linear recurrence.
    is_logarithm : bool
        Whether it is the logarithm of running sums of exponentials.
    is_joined_in_any_order : bool
        Whether neighbours may be joined before the carry is: not where a factor can take a product
        out of its range and back, nor where a join is long.
    """

    def __init__(self, node: Node, em: Emitter, stored: Memory, target: Target | None = None
                 ) -> None:  # fmt: skip
        self.node, self.em, self.stored = node, em, stored
        self.axis, self.kind = node.attr.axis, node.attr.kind
        self.is_linear = node.op is Op.RECURRENCE
        self.extent = as_expr(node.shape[self.axis])
        self.wide = dt.accumulator_dtype(node.dtype)
        self.has_double = target is None or target.supports(Op.ADD, dt.float64)
        self.is_compensated = False
        if not self.is_linear and self.kind not in JOINED_EXACTLY and node.dtype is dt.float32:
            # A value that is rounded to float32 at each step drifts away.
            self.is_compensated = (self.kind == "sum" and target is not None
                                   and not target.computes(dt.float64))
            if self.has_double and not self.is_compensated:
                self.wide = dt.float64
        self.is_product = self.kind == "prod" and node.dtype.is_float
        self.is_logarithm = self.kind == "logsumexp"
        self.is_joined_in_any_order = not (
            self.is_linear or self.is_product or self.is_logarithm)

    def start(self, index: Index, name: str) -> Memory:
        """Emit a register with the value before the first element."""
        carry = Memory(name, self.wide, (), "register")
        self.em.alloc(carry)
        self.em.emit(Store(carry, (), self.neutral()))
        return carry

    def neutral(self) -> Expr:
        """Return what changes no value that it is joined to."""
        wide = self.wide
        if self.is_linear or self.kind in ("sum", "prod"):
            return ex.const(int(self.kind == "prod"), wide)
        if wide.is_float:
            return ex.const(float("inf") if self.kind == "min" else float("-inf"), wide)
        return ex.const(wide.min if self.kind == "max" else wide.max, wide)

    def walk(self, index: Index, name: str, start: Expr, count: Expr, carry: Memory,
             out: bool = True) -> None:  # fmt: skip
        """Emit the loop over elements of a row, which leaves its last value in the carry."""
        em = self.em
        lost = Memory(f"{name}.lost", self.wide, (), "register")
        if self.is_compensated:  # what the sum loses in each step, added up apart (Neumaier, 1974)
            em.alloc(lost)
            em.emit(Store(lost, (), self.neutral()))
        em.open()
        k = em.loop_var(name, upper_bound(count))
        position = start + k
        before = em.fresh("carry", self.wide)
        value = self.step(index, position, before)
        em.emit(Load(before, carry, ()))
        after = em.fresh("next", self.wide)
        em.emit(Let(after, value))
        em.emit(Store(carry, (), after))
        if self.is_compensated:
            after = self._compensated(before, self.element(index, position), after, lost)
        if out:
            em.emit(Store(self.stored, self.place(index, position),
                          ex.cast(after, self.node.dtype)))  # fmt: skip
        em.emit(For(k, count, SERIAL, em.close()))
        if self.is_compensated:
            total, rest = em.fresh("total", self.wide), em.fresh("rest", self.wide)
            em.emit(Load(total, carry, ()))
            em.emit(Load(rest, lost, ()))
            em.emit(Store(carry, (), corrected(total, rest)))

    def _compensated(self, before: Expr, value: Expr, after: Expr, lost: Memory) -> Expr:
        """Emit what a sum loses when it is rounded, added up apart, and return the sum with it."""
        em = self.em
        rest, more = em.fresh("rest", self.wide), em.fresh("more", self.wide)
        em.emit(Load(rest, lost, ()))
        em.emit(Let(more, rest + lost_by_sum(before, value, after)))
        em.emit(Store(lost, (), more))
        return corrected(after, more)

    def place(self, index: Index, position: Expr) -> Index:
        """Return where the step at a position of a row reads and writes."""
        if self.node.attr.reverse:
            position = self.extent - 1 - position
        return at(index, self.axis, self.em.simplify(position))

    def element(self, index: Index, position: Expr, which: int = -1) -> Expr:
        """Return an operand at a position."""
        return ex.cast(self.operand(index, position, which), self.wide)

    def operand(self, index: Index, position: Expr, which: int,
                mask: Expr | None = None) -> Expr:  # fmt: skip
        """Return an operand at a position, in its own type; read only where a mask holds."""
        return self.em.value(self.node.args[which], self.place(index, position), mask)

    def step(self, index: Index, position: Expr, before: Expr) -> Expr:
        """Return the running value at a position from the one before."""
        value = self.element(index, position)
        if not self.is_linear:
            return self.join(before, value)
        # The first factor is not part of it, not even if it is infinite.
        first = self.em.simplify(position.eq(0))
        return ex.where(first, value, ex.mad(self.element(index, position, 0), before, value))

    def join(self, before: Expr, value: Expr) -> Expr:
        """Return the running value with one more element, or of two neighbouring blocks."""
        if not self.is_logarithm:
            return ex.binary(JOINS[self.kind], before, value)
        top = ex.maximum(before, value)
        below = ex.unary(Op.NEG, ex.unary(Op.ABS, before - value))
        more = ex.unary(Op.LOG1P, ex.unary(Op.EXP, below))
        return ex.where(ex.unary(Op.ABS, top).eq(float("inf")), top, top + more)


def lost_by_sum(before: Expr, value: Expr, after: Expr) -> Expr:
    """Return what is lost where a sum is rounded (TwoSum of Knuth)."""
    part = after - before
    return (before - (after - part)) + (value - part)


def corrected(total: Expr, rest: Expr) -> Expr:
    """Return a sum with what it lost, which is no number once the sum is infinite."""
    return ex.where(rest.eq(rest), total + rest, total)
