"""Reductions as loops over register accumulators.

    reduce k.o in n, k.u in 2 unrolled, k.v in 16 vector (s = 0; s + x; l + r) { load x }
    ->
    alloc s.acc[16], s.acc.1[16] in registers; both = 0
    for k.o in n { for each of the 2 copies { load x (16 lanes); s.acc = s.acc + x } }
    s = sum of the lanes of (s.acc + s.acc.1), by halves

Each point of the unrolled axes and each lane of the vector axis keeps a partial result
(`weft.ir.reduction`). Under a vector loop the accumulators have one lane per iteration of it and
are never combined across lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir import reduction
from weft.ir.bounds import loop_range
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import (
    SERIAL,
    UNROLLED,
    VECTOR,
    Accumulator,
    Alloc,
    Axis,
    Body,
    For,
    Kernel,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)  # fmt: skip
from weft.passes.common.lanes import Affine, Mapped, Mask, Scope, fold_lanes
from weft.passes.vector.access import AccessLowering
from weft.passes.vector.horizontal_sums import REGISTER_BYTES, Fold

Partial = tuple[Expr, ...]


class ReduceLowering(AccessLowering):
    """Emits REDUCE statements.

    Attributes
    ----------
    legal : callable
        Writes what products of fragments compute in operations of the target.
    folds : dict of Stmt to Fold
        For `passes.folds`, by their first steps.
    """

    legal: Callable[[Expr], Expr]

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.folds: dict[Stmt, Fold] = {}

    def lower(self, body: Body, scope: Scope, out: list[Stmt]) -> None:
        """Emit the statements of a body (given by the subclass)."""
        raise TypeError("ReduceLowering is abstract")

    def loop(self, source: Stmt, var: Expr, extent: Expr, kind: str, scope: Scope,
             ) -> tuple[Expr, Expr, Scope]:  # fmt: skip
        """Open a loop that stays one: return its variable, its extent and the inner scope.

        Where the extent differs by lane, the loop runs to the largest and its body is masked.
        """
        count = self.map(extent, scope)
        made = self.new_var(str(var.attr), var.dtype)
        if isinstance(count, Expr) and count.lanes == 1:
            self.ranges[made] = loop_range(count)
            inner = scope.child()
            inner.mapped[var] = made
            return made, count, inner
        several = self.vector(count, scope.lanes)
        if scope.mask is not None:  # what idle lanes hold must not count
            idle = ex.const(0, several.dtype, scope.lanes)
            several = ex.where(scope.mask.lanes, several, idle)
        inner = scope.child()
        inner.mapped[var] = made
        active = ex.binary(Op.LT, ex.broadcast(made, scope.lanes), several)
        if scope.mask is not None:
            active = ex.binary(Op.AND, scope.mask.lanes, active)
        inner.mask = Mask(active, fold_lanes(active, Op.OR))
        return made, fold_lanes(several, Op.MAX), inner

    def reduce(self, s: Reduce, scope: Scope, out: list[Stmt]) -> None:
        """Emit a REDUCE and bind its results."""
        for axis in s.axes:
            if axis.kind not in (SERIAL, UNROLLED, VECTOR):
                raise VerifyError("reduce", found=f"the {axis.kind} axis {axis.var.attr}",
                                  expected="serial, unrolled or vector axes",
                                  hint="rfactor the reduction to run it in parallel")
        vector = reduction.vector_axis(s)
        points = 1 if vector is None else reduction.lanes_of(vector)
        # Inside a vector loop the lanes are taken: the points of the axis are copies then.
        lanes, spread = (points, 1) if scope.lanes == 1 else (scope.lanes, points)
        copies = 1
        for axis in reduction.unrolled_axes(s):
            copies *= reduction.copies_of(axis) or 0
        slots = [[self._slots(s, scope, lanes, out) for _ in range(spread)]
                 for _ in range(max(copies, 1))]  # fmt: skip
        _Nest(self, s, vector, lanes, slots).emit(0, _Point(scope, None, 0, 0), out)

        def combine(x: Partial, y: Partial) -> Partial:
            return self._combine(s, x, y, scope, out)

        rows: list[list[Partial]] = [[self._read(s, m, lanes, out) for m in row] for row in slots]
        row = reduction.combine_adjacent(
            rows, lambda x, y: [combine(a, b) for a, b in zip(x, y, strict=True)]
        )
        whole = reduction.combine_halves(row, combine)
        if scope.lanes == 1:
            whole = self._across(s, whole, scope, out)
        elif _starts_late(s):
            whole = (self.name(out, str(s.accumulators[0].var.attr), ex.binary(
                Op.ADD, ex.broadcast(s.accumulators[0].init, lanes), whole[0]), s),)
        for a, value in zip(s.accumulators, whole, strict=True):
            scope.mapped[a.var] = value

    def _slots(self, s: Reduce, scope: Scope, lanes: int, out: list[Stmt]) -> list[Memory]:
        """Emit the registers of one partial result, set to its initial value."""
        slots = []
        for a in s.accumulators:
            memory = Memory(self.fresh(f"{a.var.attr}.acc"), a.var.dtype, (ex.index(lanes),),
                            "register")
            self.emit(out, Alloc(memory), s)
            init = self.vector(self.map(a.init, scope), lanes)
            self.emit(out, Store(memory, (ex.index(0),), init), s)
            slots.append(memory)
        return slots

    def _read(self, s: Reduce, slots: Sequence[Memory], lanes: int, out: list[Stmt]) -> Partial:
        values = []
        for a, memory in zip(s.accumulators, slots, strict=True):
            var = self.new_var(str(a.var.attr), a.var.dtype, lanes)
            self.emit(out, Load(var, memory, (ex.index(0),)), s)
            values.append(var)
        return tuple(values)

    def _combine(self, s: Reduce, x: Partial, y: Partial, scope: Scope,
                 out: list[Stmt]) -> Partial:  # fmt: skip
        lanes = x[0].lanes
        inner = scope.child(lanes)
        for a, left, right in zip(s.accumulators, x, y, strict=True):
            inner.mapped[lhs(a.var)], inner.mapped[rhs(a.var)] = left, right
        return tuple(
            self.name(out, str(a.var.attr), self.vector(self.map(a.combine, inner), lanes), s)
            for a in s.accumulators
        )

    def _across(self, s: Reduce, whole: Partial, scope: Scope, out: list[Stmt]) -> Partial:
        """Combine the lanes of each accumulator by halves."""
        root, start = whole[0], len(out)
        while whole[0].lanes > 1:
            if whole[0].lanes * whole[0].dtype.itemsize >= REGISTER_BYTES:
                root, start = whole[0], len(out)  # halves of more are registers already
            cut = ex.extract if whole[0].lanes == 2 else ex.half
            low, high = (tuple(cut(v, which) for v in whole) for which in (0, 1))
            whole = self._combine(s, low, high, scope, out)
        a, late = s.accumulators[0], _starts_late(s)
        if late:
            whole = (self.name(out, str(a.var.attr), ex.binary(Op.ADD, a.init, whole[0]), s),)
        if root.lanes > 1 and len(whole) == 1 and a.combine.op in reduction.FOLDED and (
                a.combine.args == (lhs(a.var), rhs(a.var))):
            steps = tuple(out[start:])
            self.folds[steps[0]] = Fold(root, whole[0], a.combine.op, steps,
                                        a.init if late else None)
        return whole


class _Point(Record):
    """Where a nest of loops has come to: the scope, a mask of updates, and the partial result."""

    scope: Scope
    guard: Expr | None
    slot: int
    lane: int


class _Nest:
    """The loops of one REDUCE: one call of `emit` per axis, and the update at the leaves."""

    def __init__(self, lowering: ReduceLowering, reduce: Reduce, vector: Axis | None, lanes: int,
                 slots: list[list[list[Memory]]]) -> None:  # fmt: skip
        self.lowering, self.reduce, self.vector = lowering, reduce, vector
        self.lanes, self.slots = lanes, slots
        self.once = reduction.is_once(reduce)

    def emit(self, depth: int, at: _Point, out: list[Stmt]) -> None:
        """Emit the axes from `depth` on."""
        if depth == len(self.reduce.axes):
            self.leaf(at, out)
            return
        low, axis = self.lowering, self.reduce.axes[depth]
        copies = reduction.copies_of(axis)
        if copies is not None:
            for i in range(copies):
                inner = self._bound(at.scope, axis, ex.index(i))
                self.emit(depth + 1, at.replace(scope=inner, slot=at.slot * copies + i), out)
        elif axis is self.vector and at.scope.lanes > 1:
            for i in range(reduction.lanes_of(axis)):
                inner = self._bound(at.scope, axis, ex.index(i))
                self.emit(depth + 1, at.replace(scope=inner, lane=i), out)
        elif axis is self.vector:
            inner = self._bound(at.scope, axis, Affine(ex.index(0), 1), self.lanes)
            self.emit(depth + 1, at.replace(scope=inner), out)
        else:
            var, extent, inner = low.loop(self.reduce, axis.var, axis.extent, SERIAL, at.scope)
            guard = at.guard
            if inner.mask is not at.scope.mask and inner.mask is not None:
                guard = inner.mask.lanes
            body: list[Stmt] = []
            self.emit(depth + 1, at.replace(scope=inner, guard=guard), body)
            low.emit(out, For(var, extent, SERIAL, tuple(body)), self.reduce)

    @staticmethod
    def _bound(scope: Scope, axis: Axis, value: Mapped, lanes: int | None = None) -> Scope:
        inner = scope.child(lanes)
        inner.mapped[axis.var] = value
        return inner

    def leaf(self, at: _Point, out: list[Stmt]) -> None:
        """Emit the body and the simultaneous updates of one point."""
        low, s, lanes = self.lowering, self.reduce, self.lanes
        slots, inner = self.slots[at.slot][at.lane], at.scope.child()
        old = low._read(s, slots, lanes, out)
        for a, value in zip(s.accumulators, old, strict=True):
            inner.mapped[a.var] = value
        low.lower(s.body, inner, out)
        alone = len(s.accumulators) == 1
        updates = [_first(a, alone) if self.once else a.update for a in s.accumulators]
        new = [low.vector(low.map(u, inner), lanes) for u in updates]
        for memory, before, after in zip(slots, old, new, strict=True):
            kept = after if at.guard is None else ex.where(at.guard, after, before)
            low.emit(out, Store(memory, (ex.index(0),), kept), s)


def _starts_late(s: Reduce) -> bool:
    """Whether partial sums start with their terms, and zero is added to the result instead.

    That changes the sign of a zero or nothing: the sum of 0 + x over all x is 0 + the sum of x.
    """
    a = s.accumulators[0]
    return reduction.is_once(s) and len(s.accumulators) == 1 and _is_zero(a.init) and (
        _first(a, alone=True) is not a.update)


def _first(a: Accumulator, alone: bool) -> Expr:
    """Return the update of a running value that is still the initial one.

    The larger of -inf and x is x, whatever x is; zero is added to a sum that is `alone` at its end.
    """
    update, mask = a.update, None
    if update.op is Op.WHERE and update.args[2] is a.var:
        mask, update, _ = update.args
    if update.op is Op.ADD:
        if not alone or a.combine is not lhs(a.var) + rhs(a.var) or not _is_zero(a.init):
            return a.update
    elif update.op not in (Op.MAX, Op.MIN) or not _is_worst(a.init, update.op is Op.MAX):
        return a.update
    if a.var not in update.args or update.args[0] is update.args[1]:
        return a.update
    x = update.args[1] if update.args[0] is a.var else update.args[0]
    if a.var in ex.free_vars([x]):
        return a.update
    return x if mask is None else ex.where(mask, x, a.init)


def _is_zero(init: Expr) -> bool:
    """Whether an initial value is a positive zero."""
    return ex.is_const(init) and init.dtype.is_float and math.copysign(
        1.0, float(init.attr)) > 0 and float(init.attr) == 0.0


def _is_worst(init: Expr, largest: bool) -> bool:
    """Whether nothing is smaller (larger, if not `largest`) than a value."""
    if not ex.is_const(init):
        return False
    if init.dtype.is_float:
        return bool(init.attr == (float("-inf") if largest else float("inf")))
    return bool(init.attr == (init.dtype.min if largest else init.dtype.max))
