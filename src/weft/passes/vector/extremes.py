"""Maxima and minima of floats, in reductions, by instructions that ignore NaN and signs of zero.

IEEE 754 maximum gives NaN for NaN and orders -0 < +0. Where one instruction does not, as on x86,
it takes seven to write out. A running maximum keeps three values in its place, each of them in an
instruction or two, and is put together once, behind the loop:

    reduce k (m = -inf; max(m, x))
    ->
    reduce k (m.t = -inf; where(m.t < x, x, m.t)     the largest that is not NaN, of any zero
              m.n = 0.0;  where(x != x, x, m.n)      a NaN if there was one
              m.s = ~0;   m.s & bits(x))             the sign bit is set if all were negative
    let m = where(m.n != m.n, m.n, where(m.t == 0, copysign(m.t, m.s), m.t))

A minimum is the same with ``x < m.t`` and the OR of the bits: -0 if any element was negative.
Targets that choose between numbers and NaN in an instruction keep two values, ``maxnum(x, m.t)``,
which orders zeros, and ``nanof(x, m.n)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import VECTOR, Accumulator, Body, Kernel, Let, Reduce, Stmt, lhs, rhs
from weft.ir.traverse import Rewriter, walk
from weft.rules.index import simplify
from weft.schedule.analysis.space import constant
from weft.target import Target

__all__ = ["split_extremes", "splitter"]

LEAST_POINTS: Final = 4  # of a reduction: below that, putting together costs more


def split_extremes(kernel: Kernel, target: Target) -> Kernel:
    """Return the kernel with running maxima and minima of floats split into three values."""
    return kernel if target.ieee_extremes else _Split(kernel, target).run()


def splitter(target: Target) -> Callable[[Stmt], Stmt | Body] | None:
    """Return what splits one statement, for a pass that does more; None if nothing is to be."""
    if target.ieee_extremes:
        return None
    return lambda stmt: _split_statement(stmt, target)


class _Split(Rewriter):
    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__(kernel)
        self.target = target

    def visit(self, stmt: Stmt) -> Stmt | Body:
        return _split_statement(stmt, self.target)


def _split_statement(stmt: Stmt, target: Target) -> Stmt | Body:
    if not isinstance(stmt, Reduce):
        return stmt
    pair = _place(stmt)
    if pair is not None:
        return pair
    points = 1
    for axis in stmt.axes:
        n = constant(axis.extent)
        if axis.kind != VECTOR:
            points *= LEAST_POINTS if n is None else n
    chosen = [a for a in stmt.accumulators if _is_extreme(stmt, a)]
    if not chosen or points < LEAST_POINTS:
        return stmt
    accumulators: list[Accumulator] = []
    results: list[Stmt] = []
    for a in stmt.accumulators:
        if a in chosen:
            parts, whole = (_numbers if target.supports(Op.MAXNUM, a.var.dtype) else _split)(a)
            accumulators += parts
            results.append(Let(a.var, whole))
        else:
            accumulators.append(a)
    return (Reduce(stmt.axes, tuple(accumulators), stmt.body), *results)


def _operand(a: Accumulator) -> Expr | None:
    """Return x of ``max(acc, x)`` or ``min(acc, x)``; None for any other update."""
    u = a.update
    if u.op not in (Op.MAX, Op.MIN) or a.var.dtype not in (dt.float32, dt.float64):
        return None
    if u.args[0] is a.var:
        return u.args[1]
    return u.args[0] if u.args[1] is a.var else None


def _is_extreme(stmt: Reduce, a: Accumulator) -> bool:
    """Whether an accumulator is a plain maximum or minimum that nothing else looks at."""
    x = _operand(a)
    if x is None or a.var in ex.free_vars([x]) or a.combine.op is not a.update.op:
        return False
    others = [e for b in stmt.accumulators if b is not a for e in (b.update, b.combine)]
    others += [e for inner in walk(stmt.body) for e in inner.exprs()]
    return not {a.var, lhs(a.var), rhs(a.var)} & ex.free_vars(others)


def _split(a: Accumulator) -> tuple[list[Accumulator], Expr]:
    """Return the three accumulators and how their results make one."""
    x = _operand(a)
    assert x is not None
    name, d, largest = str(a.var.attr), a.var.dtype, a.update.op is Op.MAX
    bits = dt.unsigned(d.bits)
    top, nan, sign = ex.var(f"{name}.t", d), ex.var(f"{name}.n", d), ex.var(f"{name}.s", bits)

    def better(new: Expr, old: Expr) -> Expr:
        return ex.where(old.lt(new) if largest else new.lt(old), new, old)

    op = Op.AND if largest else Op.OR
    parts = [
        Accumulator(top, a.init, better(x, top), better(rhs(top), lhs(top))),
        Accumulator(nan, ex.const(0.0, d), ex.where(x.ne(x), x, nan),
                    ex.where(rhs(nan).ne(rhs(nan)), rhs(nan), lhs(nan))),
        Accumulator(sign, ex.const((1 << d.bits) - 1 if largest else 0, bits),
                    ex.binary(op, sign, ex.bitcast(x, bits)),
                    ex.binary(op, lhs(sign), rhs(sign))),
    ]
    zero = ex.bitcast(sign & (1 << (d.bits - 1)), d)
    return parts, ex.where(nan.ne(nan), nan, ex.where(top.eq(0.0), zero, top))


def _numbers(a: Accumulator) -> tuple[list[Accumulator], Expr]:
    """Return two accumulators, where instructions tell numbers from NaN, and their result."""
    x = _operand(a)
    assert x is not None
    name, d = str(a.var.attr), a.var.dtype
    op = Op.MAXNUM if a.update.op is Op.MAX else Op.MINNUM
    top, nan = ex.var(f"{name}.t", d), ex.var(f"{name}.n", d)
    parts = [
        Accumulator(top, a.init, ex.native(op, x, top), ex.native(op, rhs(top), lhs(top))),
        Accumulator(nan, ex.const(0.0, d), ex.native(Op.NANOF, x, nan),
                    ex.native(Op.NANOF, rhs(nan), lhs(nan))),
    ]
    return parts, ex.where(nan.ne(nan), nan, top)


# ---- the place of a maximum ----------------------------------------------------------------------


def _place(stmt: Reduce) -> Body | None:
    """Return a search for the first largest (or smallest) element in fewer steps, if it is one.

    Within each partial result places only grow, so that a later equal element never counts, and
    32 bits hold them where there are not more. NaN, which comes before everything, is looked for
    apart: the place of the first one, if any.

    reduce k (best, at: where(x before best at k, (x, k), (best, at)))
    ->
    reduce k (t = nan; where(~(x <= t) & x == x, x, t)       the first largest that is not NaN
              i = 0;   where(~(x <= t) & x == x, k, i)
              n = big; min(n, where(x != x, k, big)))        the first NaN
    """
    if len(stmt.accumulators) != 2:
        return None
    a, b = stmt.accumulators
    if a.update.op is not Op.WHERE or b.update.op is not Op.WHERE or b.var.dtype is not dt.int64:
        return None
    condition, x, kept = a.update.args
    place = b.update.args[1]
    if kept is not a.var or b.update.args[0] is not condition or b.update.args[2] is not b.var or (
        x.dtype not in (dt.float32, dt.float64) or not _grows(stmt, place)
    ):
        return None
    with importing:
        from weft.schedule.loops.search import prefer  # few kernels get so far

    largest = next((m for m in (True, False)
                    if prefer(m, x, place, a.var, b.var) is condition), None)
    running = {a.var, b.var}
    if largest is None or any(running & ex.free_vars(s.exprs()) for s in walk(stmt.body)):
        return None
    name, d = str(a.var.attr), a.var.dtype
    top, at, nan = ex.var(f"{name}.t", d), ex.var(f"{name}.i", dt.int32), ex.var(
        f"{name}.n", dt.int32)
    here = ex.cast(place, dt.int32)
    none = ex.const(dt.int32.max, dt.int32)

    def better(new: Expr, old: Expr) -> Expr:
        return ~(new.le(old) if largest else new.ge(old)) & new.eq(new)

    takes = better(x, top)
    wins = better(rhs(top), lhs(top)) | (rhs(top).eq(lhs(top)) & rhs(at).lt(lhs(at)))
    accumulators = (
        Accumulator(top, ex.const(float("nan"), d), ex.where(takes, x, top),
                    ex.where(wins, rhs(top), lhs(top))),
        Accumulator(at, none, ex.where(takes, here, at), ex.where(wins, rhs(at), lhs(at))),
        Accumulator(nan, none, ex.minimum(nan, ex.where(x.ne(x), here, none)),
                    ex.minimum(lhs(nan), rhs(nan))),
    )
    found = nan.lt(none)
    return (Reduce(stmt.axes, accumulators, stmt.body),
            Let(a.var, ex.where(found, ex.const(float("nan"), d), top)),
            Let(b.var, ex.cast(ex.where(found, nan, at), dt.int64)))


def _grows(stmt: Reduce, place: Expr) -> bool:
    """Whether a place is that of a lone axis, or of its parts in order, and fits 32 bits."""
    variables = [a.var for a in stmt.axes]
    extents = [constant(a.extent) for a in stmt.axes]
    if ex.free_vars([place]) - set(variables) or None in extents or 0 in extents:
        return False
    zero = dict.fromkeys(variables, ex.index(0))
    base = _value(place, zero)
    steps = [None if base is None else _value(place, {**zero, v: ex.index(1)}) for v in variables]
    least = 1
    for step, n in zip(reversed(steps), reversed(extents), strict=True):
        if base is None or step is None or n is None or step - base < least:
            return False
        corner = (step - base) * (n - 1)
        least += corner
    last = {v: ex.index(max((n or 1) - 1, 0)) for v, n in zip(variables, extents, strict=True)}
    end = _value(place, last)
    linear = base is not None and end == base + least - 1
    return linear and end is not None and end < dt.int32.max


def _value(e: Expr, mapping: dict[Expr, Expr]) -> int | None:
    (made,) = ex.substitute([e], mapping)
    return constant(simplify(made, {}))
