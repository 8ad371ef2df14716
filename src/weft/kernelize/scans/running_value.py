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

JOINS: Final = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}
JOINED_EXACTLY: Final = ("max", "min")  # without rounding


class Scan:
    """What one scan computes: its running value, the steps of it, where the results go.

    Attributes
    ----------
    wide : DType
        Type of the running value.
    is_linear : bool
        Whether it is a linear recurrence.
    is_logarithm : bool
        Whether it is the logarithm of running sums of exponentials.
    is_joined_in_any_order : bool
        Whether neighbours may be joined before the carry is: not where a factor can take a product
        out of its range and back, nor where a join is long.
    """

    def __init__(self, node: Node, em: Emitter, stored: Memory) -> None:
        self.node, self.em, self.stored = node, em, stored
        self.axis, self.kind = node.attr.axis, node.attr.kind
        self.is_linear = node.op is Op.RECURRENCE
        self.extent = as_expr(node.shape[self.axis])
        self.wide = dt.accumulator_dtype(node.dtype)
        if not self.is_linear and self.kind not in JOINED_EXACTLY and node.dtype is dt.float32:
            self.wide = dt.float64  # a value that is rounded to float32 at each step drifts away
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
        em.open()
        k = em.loop_var(name, upper_bound(count))
        position = start + k
        before = em.fresh("carry", self.wide)
        value = self.step(index, position, before)
        em.emit(Load(before, carry, ()))
        after = em.fresh("next", self.wide)
        em.emit(Let(after, value))
        em.emit(Store(carry, (), after))
        if out:
            em.emit(Store(self.stored, self.place(index, position),
                          ex.cast(after, self.node.dtype)))  # fmt: skip
        em.emit(For(k, count, SERIAL, em.close()))

    def place(self, index: Index, position: Expr) -> Index:
        """Return where the step at a position of a row reads and writes."""
        if self.node.attr.reverse:
            position = self.extent - 1 - position
        return at(index, self.axis, self.em.simplify(position))

    def element(self, index: Index, position: Expr, which: int = -1) -> Expr:
        """Return an operand at a position."""
        return ex.cast(self.em.value(self.node.args[which], self.place(index, position)), self.wide)

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
