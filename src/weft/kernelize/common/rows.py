"""Loops over all axes of an array, or over all but one."""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.stmt import SERIAL, For
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound


def open_rows(em: Emitter, shape: nd.Shape, axis: int,
              prefix: str = "r") -> tuple[list[Expr], Index]:  # fmt: skip
    """Open loops over every axis but one; return the loop variables and the index template."""
    index: list[Expr] = []
    loops: list[Expr] = []
    for a, dim in enumerate(shape):
        if a == axis:
            index.append(ex.index(0))
            continue
        em.open()
        v = em.loop_var(f"{prefix}{a}", upper_bound(dim))
        loops.append(v)
        index.append(v)
    return loops, tuple(index)


def close_rows(em: Emitter, loops: list[Expr], shape: nd.Shape, axis: int) -> None:
    """Close what `open_rows` opened."""
    extents = [d for a, d in enumerate(shape) if a != axis]
    for v, dim in zip(reversed(loops), reversed(extents), strict=True):
        body = em.close()
        em.emit(For(v, as_expr(dim), SERIAL, body))


def at(index: Index, axis: int, value: Expr) -> Index:
    """Return an index with another place along one axis."""
    return (*index[:axis], value, *index[axis + 1:])


def open_all(em: Emitter, shape: nd.Shape, prefix: str) -> Index:
    """Open a loop over each axis; return their variables."""
    index = []
    for a, dim in enumerate(shape):
        em.open()
        index.append(em.loop_var(f"{prefix}{a}", upper_bound(dim)))
    return tuple(index)


def close_all(em: Emitter, shape: nd.Shape, index: Index) -> None:
    """Close what `open_all` opened."""
    for v, dim in zip(reversed(index), reversed(shape), strict=True):
        body = em.close()
        em.emit(For(v, as_expr(dim), SERIAL, body))
