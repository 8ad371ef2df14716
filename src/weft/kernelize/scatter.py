"""Loop nests of scatters."""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import Assert, Load, Memory, Store
from weft.kernelize.emit import Emitter
from weft.kernelize.rows import at as at_axis
from weft.kernelize.rows import close_all, open_all


def lower_scatter(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest that copies the base and applies the updates in row-major order.

    An index that is the same for a whole row of updates is read and checked once (but not where
    there are no updates).
    """
    base, index_node, updates = node.args
    em = Emitter(sources, hoist=all(isinstance(d, int) and d > 0 for d in index_node.shape))
    out, axis, kind = stored[node], node.attr.axis, node.attr.kind

    place = open_all(em, base.shape, "b")
    em.emit(Store(out, place, em.value(base, place)))
    close_all(em, base.shape, place)

    place = open_all(em, index_node.shape, "u")
    at = ex.cast(em.value(index_node, place), dt.int64)
    bound = as_expr(base.shape[axis])
    check = Assert(ex.index(0).le(at) & at.lt(bound), f"{node.attr.what}: index out of range",
                   at, bound)
    em.check(check, node)
    em.place(check, at)
    update = em.value(updates, place)
    target = at_axis(place, axis, at)
    if kind != "set":
        op = {"add": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}[kind]
        before = em.fresh("old", node.dtype)
        em.emit(Load(before, out, target))
        update = ex.binary(op, before, update)
    em.emit(Store(out, target, update))
    close_all(em, index_node.shape, place)
    return em
