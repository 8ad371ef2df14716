"""Loop nests of scans: running sums, products, maxima and minima, linear recurrences."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, Let, Load, Memory, Store
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.indexing import Index
from weft.kernelize.rows import at, close_rows, open_rows

_SCAN: Final = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}


def lower_scan(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest of a running sum, product, maximum or minimum, or of a recurrence.

    A register carries the running value: the rows beside each other in memory are lanes of it.
    """
    axis = node.attr.axis
    wide = dt.accumulator_dtype(node.dtype)
    if node.op is Op.SCAN and node.attr.kind in ("sum", "prod") and node.dtype is dt.float32:
        wide = dt.float64  # a value that is rounded to float32 at each step drifts away
    em = Emitter(sources, hoist=False)
    carry = Memory("carry", wide, (), "register")
    loops, index = open_rows(em, node.shape, axis)
    em.alloc(carry)
    linear = node.op is Op.RECURRENCE
    em.emit(Store(carry, (), ex.const(0, wide) if linear else _first(node.attr.kind, wide)))
    em.open()
    k = em.loop_var("k", upper_bound(node.shape[axis]))
    place = at(index, axis, em.simplify(_from_end(node, k)))
    before = em.fresh("carry", wide)
    value = _next(node, em, place, before, wide)
    em.emit(Load(before, carry, ()))
    after = em.fresh("next", wide)
    if linear:  # the first factor is not part of it, not even if it is infinite
        value = ex.where(k.eq(0), value.args[2], value)
    em.emit(Let(after, value))
    em.emit(Store(carry, (), after))
    em.emit(Store(stored[node], place, ex.cast(after, node.dtype)))
    body = em.close()
    em.emit(For(k, as_expr(node.shape[axis]), SERIAL, body))
    close_rows(em, loops, node.shape, axis)
    return em


def _first(kind: str, dtype: DType) -> Expr:
    if kind in ("sum", "prod"):
        return ex.const(int(kind == "prod"), dtype)
    if dtype.is_float:
        return ex.const(float("inf") if kind == "min" else float("-inf"), dtype)
    return ex.const(dtype.min if kind == "max" else dtype.max, dtype)


def _next(node: Node, em: Emitter, place: Index, before: Expr, wide: DType) -> Expr:
    """Return the running value at a place from the one before."""
    value = ex.cast(em.value(node.args[-1], place), wide)
    if node.op is Op.RECURRENCE:
        return ex.mad(ex.cast(em.value(node.args[0], place), wide), before, value)
    return _join(node.attr.kind, before, value)


def _join(kind: str, before: Expr, value: Expr) -> Expr:
    """Return the running value with one more element."""
    if kind != "logsumexp":
        return ex.binary(_SCAN[kind], before, value)
    top = ex.maximum(before, value)
    below = ex.unary(Op.NEG, ex.unary(Op.ABS, before - value))
    more = ex.unary(Op.LOG1P, ex.unary(Op.EXP, below))
    return ex.where(ex.unary(Op.ABS, top).eq(float("inf")), top, top + more)


def _from_end(node: Node, k: Expr) -> Expr:
    """Return the place of step k along the axis."""
    return as_expr(node.shape[node.attr.axis]) - 1 - k if node.attr.reverse else k
