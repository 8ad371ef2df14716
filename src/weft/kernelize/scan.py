"""Loop nests of scans: running sums, products, maxima and minima."""

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
from weft.kernelize.cost import elements, upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.rows import at, close_all, close_rows, open_all, open_rows

_SCAN: Final = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}


def lower_scan(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest of a running sum, product, maximum or minimum.

    Along the last axis a register carries the running value. Along another one, the row before
    does, so that the axes behind it can be walked in memory order.
    """
    axis = node.attr.axis
    wide = dt.accumulator_dtype(node.dtype)
    if wide is node.dtype and elements(node.shape[axis + 1:]) > 1:
        return _by_rows(node, sources, stored)
    return _by_carry(node, sources, stored, wide)


def _first(kind: str, dtype: DType) -> Expr:
    if kind in ("sum", "prod"):
        return ex.const(int(kind == "prod"), dtype)
    if dtype.is_float:
        return ex.const(float("-inf") if kind == "max" else float("inf"), dtype)
    return ex.const(dtype.min if kind == "max" else dtype.max, dtype)


def _by_carry(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory],
              wide: DType) -> Emitter:  # fmt: skip
    em = Emitter(sources, hoist=False)
    axis = node.attr.axis
    carry = Memory("carry", wide, (ex.index(1),), "register")
    zero = (ex.index(0),)
    loops, index = open_rows(em, node.shape, axis)
    em.alloc(carry)
    em.emit(Store(carry, zero, _first(node.attr.kind, wide)))
    em.open()
    k = em.loop_var("k", upper_bound(node.shape[axis]))
    place = at(index, axis, k)
    value = ex.cast(em.value(node.args[0], place), wide)
    before = em.fresh("carry", wide)
    em.emit(Load(before, carry, zero))
    after = em.fresh("next", wide)
    em.emit(Let(after, ex.binary(_SCAN[node.attr.kind], before, value)))
    em.emit(Store(carry, zero, after))
    em.emit(Store(stored[node], place, ex.cast(after, node.dtype)))
    body = em.close()
    em.emit(For(k, as_expr(node.shape[axis]), SERIAL, body))
    close_rows(em, loops, node.shape, axis)
    return em


def _by_rows(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Write the first row, then each row from the one before."""
    em = Emitter(sources, hoist=False)
    axis, out = node.attr.axis, stored[node]
    op, first = _SCAN[node.attr.kind], _first(node.attr.kind, node.dtype)
    size = as_expr(node.shape[axis])
    outer, inner = node.shape[:axis], node.shape[axis + 1:]
    lead = open_all(em, outer, "r")

    at_first = (*lead, ex.index(0), *open_all(em, inner, "f"))
    live = None if ex.is_const(size) and upper_bound(node.shape[axis]) else ex.index(0).lt(size)
    value = em.value(node.args[0], at_first, live)
    em.emit(Store(out, at_first, ex.binary(op, first, value), live))
    close_all(em, inner, at_first[axis + 1:])

    em.open()
    k = em.loop_var("k", upper_bound(node.shape[axis]) - 1)
    tail = open_all(em, inner, "j")
    place = (*lead, k + 1, *tail)
    value = em.value(node.args[0], place)
    before = em.fresh("before", node.dtype)
    em.emit(Load(before, out, (*lead, k, *tail)))
    em.emit(Store(out, place, ex.binary(op, before, value)))
    close_all(em, inner, tail)
    body = em.close()
    em.emit(For(k, ex.maximum(size - 1, 0), SERIAL, body))
    close_all(em, outer, lead)
    return em
