"""Loop nests of scatters."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import PARALLEL, SERIAL, Assert, For, If, Load, Memory, Store
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.rows import at as at_axis
from weft.kernelize.common.rows import close_all, open_all

SHARED_FROM: Final = 1 << 16  # updates from which several threads are worth it
NARROWEST: Final = 64  # columns of a row whose update takes much longer than a look at its index


def lower_scatter(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest that copies the base and applies the updates in row-major order.

    An index that is the same for a whole row of updates is read and checked once (but not where
    there are no updates).
    """
    base, index_node, _ = node.args
    em = Emitter(sources, hoist=all(isinstance(d, int) and d > 0 for d in index_node.shape))
    out, parts = stored[node], _parts(base, index_node, node.attr.axis)
    if parts > 1 and _one_index_a_row(index_node, sources):
        _by_parts(em, node, out, parts)
        return em
    place = open_all(em, base.shape, "b")
    em.emit(Store(out, place, em.value(base, place)))
    close_all(em, base.shape, place)
    place = open_all(em, index_node.shape, "u")
    _update(em, node, out, place, _target(em, node, place))
    close_all(em, index_node.shape, place)
    return em


def _target(em: Emitter, node: Node, place: Index) -> Expr:
    """Emit the check of an index and return it."""
    base, index_node, _ = node.args
    at = ex.cast(em.value(index_node, place), dt.int64)
    bound = as_expr(base.shape[node.attr.axis])
    check = Assert(ex.index(0).le(at) & at.lt(bound), f"{node.attr.what}: index out of range",
                   at, bound)
    em.check(check, node)
    em.place(check, at)
    return at


def _update(em: Emitter, node: Node, out: Memory, place: Index, at: Expr) -> None:
    kind, update = node.attr.kind, em.value(node.args[2], place)
    target = at_axis(place, node.attr.axis, at)
    if kind != "set":
        op = {"add": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}[kind]
        before = em.fresh("old", node.dtype)
        em.emit(Load(before, out, target))
        update = ex.binary(op, before, update)
    em.emit(Store(out, target, update))


def _parts(base: Node, index: Node, axis: int) -> int:
    """Return into how many parts the rows of the result are shared out; one if it does not pay."""
    sizes = (*base.shape, *index.shape)
    if axis or len(sizes) != 4 or not all(isinstance(d, int) for d in sizes):
        return 1
    total, _, rows, width = (d for d in sizes if isinstance(d, int))
    if width < NARROWEST or rows * width < SHARED_FROM or total < 32:
        return 1
    return 4 if width >= 4 * NARROWEST else 2


def _one_index_a_row(index: Node, sources: dict[Node, Memory]) -> bool:
    """Whether the index is the same in all columns."""
    em = Emitter(sources, hoist=True)
    em.open()
    row = em.loop_var("u0", 2)
    em.open()
    column = em.loop_var("u1", 2)
    return em.level(em.value(index, (row, column))) < em.scope.level


def _by_parts(em: Emitter, node: Node, out: Memory, parts: int) -> None:
    """Let each part of the result's rows look at all indices and take its own.

    The updates of a row keep their order whoever makes them, without an atomic operation. A part
    writes its own rows only: it is parallel from the start, as only the scatter can know.
    """
    base, index_node, _ = node.args
    total, width = int(as_expr(base.shape[0]).attr), as_expr(base.shape[1])
    size = -(-total // parts)
    em.open()
    part = em.loop_var("part", parts)
    start = part * size
    em.open()
    row = em.loop_var("b0", size)
    em.open()
    column = em.loop_var("b1", int(width.attr))
    place = (start + row, column)
    em.emit(Store(out, place, em.value(base, place)))
    _end(em, column, width)
    _end(em, row, ex.maximum(ex.minimum(ex.index(total) - start, size), 0))

    em.open()
    row = em.loop_var("u0", int(as_expr(index_node.shape[0]).attr))
    at = _target(em, node, (row, ex.index(0)))
    em.open()
    em.open()
    columns = as_expr(index_node.shape[1])
    column = em.loop_var("u1", int(columns.attr))
    _update(em, node, out, (row, column), at)
    _end(em, column, columns)
    mine = start.le(at) & at.lt(start + size)
    em.emit(If(mine, em.close()))
    _end(em, row, as_expr(index_node.shape[0]))
    _end(em, part, ex.index(parts), PARALLEL)


def _end(em: Emitter, var: Expr, extent: Expr, kind: str = SERIAL) -> None:
    body = em.close()
    em.emit(For(var, extent, kind, body))
