"""Loop nests of scans, sorts and scatters."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Assert, Body, For, Let, Load, Memory, Stmt, Store
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.indexing import Index

_SCAN: Final = {"sum": (Op.ADD, 0), "prod": (Op.MUL, 1), "max": (Op.MAX, None),
                "min": (Op.MIN, None)}  # fmt: skip


def _open_rows(em: Emitter, shape: nd.Shape, axis: int) -> tuple[list[Expr], Index]:
    """Open loops over every axis but one; return the loop variables and the index template."""
    index: list[Expr] = []
    loops: list[Expr] = []
    for a, dim in enumerate(shape):
        if a == axis:
            index.append(ex.index(0))
            continue
        em.open()
        v = em.loop_var(f"r{a}", upper_bound(dim))
        loops.append(v)
        index.append(v)
    return loops, tuple(index)


def _close_rows(em: Emitter, loops: list[Expr], shape: nd.Shape, axis: int) -> None:
    extents = [d for a, d in enumerate(shape) if a != axis]
    for v, dim in zip(reversed(loops), reversed(extents), strict=True):
        body = em.close()
        em.emit(For(v, as_expr(dim), SERIAL, body))


def _at(index: Index, axis: int, value: Expr) -> Index:
    return (*index[:axis], value, *index[axis + 1:])


def lower_scan(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest of a running sum, product, maximum or minimum."""
    em = Emitter(sources, hoist=False)
    axis = node.attr.axis
    wide = dt.accumulator_dtype(node.dtype)
    op, start = _SCAN[node.attr.kind]
    first = (wide.min if node.attr.kind == "max" else wide.max) if start is None else start
    carry = Memory("carry", wide, (ex.index(1),), "register")
    zero = (ex.index(0),)
    loops, index = _open_rows(em, node.shape, axis)
    em.alloc(carry)
    em.emit(Store(carry, zero, ex.const(first, wide)))
    em.open()
    k = em.loop_var("k", upper_bound(node.shape[axis]))
    place = _at(index, axis, k)
    value = ex.cast(em.value(node.args[0], place), wide)
    before = em.fresh("carry", wide)
    em.emit(Load(before, carry, zero))
    after = em.fresh("next", wide)
    em.emit(Let(after, ex.binary(op, before, value)))
    em.emit(Store(carry, zero, after))
    em.emit(Store(stored[node], place, ex.cast(after, node.dtype)))
    body = em.close()
    em.emit(For(k, as_expr(node.shape[axis]), SERIAL, body))
    _close_rows(em, loops, node.shape, axis)
    return em


def lower_scatter(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory]) -> Emitter:
    """Return the nest that copies the base and applies the updates in row-major order."""
    em = Emitter(sources, hoist=False)
    base, index_node, updates = node.args
    out, axis, kind = stored[node], node.attr.axis, node.attr.kind

    place = _open_all(em, base.shape, "b")
    em.emit(Store(out, place, em.value(base, place)))
    _close_all(em, base.shape, place)

    place = _open_all(em, index_node.shape, "u")
    at = ex.cast(em.value(index_node, place), dt.int64)
    bound = as_expr(base.shape[axis])
    check = Assert(ex.index(0).le(at) & at.lt(bound), f"{node.attr.what}: index out of range",
                   at, bound)
    em.check(check, node)
    em.emit(check)
    update = em.value(updates, place)
    target = _at(place, axis, at)
    if kind != "set":
        op = {"add": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}[kind]
        before = em.fresh("old", node.dtype)
        em.emit(Load(before, out, target))
        update = ex.binary(op, before, update)
    em.emit(Store(out, target, update))
    _close_all(em, index_node.shape, place)
    return em


def _open_all(em: Emitter, shape: nd.Shape, prefix: str) -> Index:
    index = []
    for a, dim in enumerate(shape):
        em.open()
        index.append(em.loop_var(f"{prefix}{a}", upper_bound(dim)))
    return tuple(index)


def _close_all(em: Emitter, shape: nd.Shape, index: Index) -> None:
    for v, dim in zip(reversed(index), reversed(shape), strict=True):
        body = em.close()
        em.emit(For(v, as_expr(dim), SERIAL, body))


class _Run:
    """The arrays of a merge sort: values and positions, in two places."""

    def __init__(self, values: Memory, positions: Memory) -> None:
        self.values, self.positions = values, positions


def lower_sort(node: Node, sources: dict[Node, Memory],
               stored: dict[Node, Memory]) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nest of a stable bottom-up merge sort of each row, and its scratch arrays.

    Runs double in length from one array to the other and back; an even number of passes leaves
    the result in the outputs.
    """
    em = Emitter(sources, hoist=False)
    axis = node.attr.axis
    n = node.shape[axis]
    outputs = {p.attr: stored[p] for p in stored}
    sizes = tuple(as_expr(d) for d in node.shape)
    scratch: list[Memory] = []

    def memory(name: str, dtype: DType) -> Memory:
        made = Memory(name, dtype, sizes)
        scratch.append(made)
        return made

    home = _Run(outputs.get(0) or memory("values", node.dtype),
                outputs.get(1) or memory("positions", dt.int64))
    away = _Run(memory("values_away", node.dtype), memory("positions_away", dt.int64))

    loops, index = _open_rows(em, node.shape, axis)
    em.open()
    k = em.loop_var("k", upper_bound(n))
    place = _at(index, axis, k)
    em.emit(Store(home.values, place, em.value(node.args[0], place)))
    em.emit(Store(home.positions, place, k))
    body = em.close()
    em.emit(For(k, as_expr(n), SERIAL, body))

    passes = max(upper_bound(n) - 1, 0).bit_length()
    passes += passes % 2
    for number in range(passes):
        source, target = (home, away) if number % 2 == 0 else (away, home)
        em.scope.body.extend(_merge_pass(em, node, number, source, target, index))
    _close_rows(em, loops, node.shape, axis)
    return em, tuple(scratch)


def _merge_pass(em: Emitter, node: Node, number: int, source: _Run, target: _Run,
                index: Index) -> Body:  # fmt: skip
    """Merge neighbouring runs of 2**number elements."""
    axis, width = node.attr.axis, 1 << number
    n = as_expr(node.shape[axis])
    one = (ex.index(1),)
    zero = (ex.index(0),)
    left = Memory(f"left{number}", dt.int64, one, "register")
    right = Memory(f"right{number}", dt.int64, one, "register")

    pair = ex.var(f"pair{number}")
    low = pair * (2 * width)
    middle = ex.minimum(low + width, n)
    high = ex.minimum(low + 2 * width, n)
    offset = ex.var(f"m{number}")
    spot = low + offset

    i, j = ex.var(f"i{number}"), ex.var(f"j{number}")
    read_left, read_right = i.lt(middle), j.lt(high)
    a, b = ex.var(f"a{number}", node.dtype), ex.var(f"b{number}", node.dtype)
    take = ex.var(f"take{number}", dt.bool_)
    chosen = ex.where(take, j, i)
    position = ex.var(f"p{number}")
    body: list[Stmt] = [
        Load(i, left, zero),
        Load(j, right, zero),
        Load(a, source.values, _at(index, axis, i), read_left),
        Load(b, source.values, _at(index, axis, j), read_right),
        Let(take, read_right & (~read_left | _before(b, a, node.attr.descending))),
        Load(position, source.positions, _at(index, axis, chosen)),
        Store(target.values, _at(index, axis, spot), ex.where(take, b, a)),
        Store(target.positions, _at(index, axis, spot), position),
        Store(left, zero, ex.where(take, i, i + 1)),
        Store(right, zero, ex.where(take, j + 1, j)),
    ]
    merge = For(offset, high - low, SERIAL, tuple(body))
    runs = (n + (2 * width - 1)) // (2 * width)
    em.alloc(left)
    em.alloc(right)
    return (For(pair, runs, SERIAL, (Store(left, zero, low), Store(right, zero, middle), merge)),)


def _before(b: Expr, a: Expr, descending: bool) -> Expr:
    """Whether `b` must come before `a` (strictly, which keeps the sort stable)."""
    nan = (a.ne(a), b.ne(b)) if a.dtype.is_float else None
    if descending:
        return b.gt(a) if nan is None else b.gt(a) | (nan[1] & ~nan[0])
    return b.lt(a) if nan is None else b.lt(a) | (nan[0] & ~nan[1])


