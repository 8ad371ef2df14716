"""Loop nests of sorts."""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.stmt import SERIAL, Body, For, Let, Load, Memory, Stmt, Store
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.indexing import Index
from weft.kernelize.rows import at, close_rows, open_rows


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

    loops, index = open_rows(em, node.shape, axis)
    em.open()
    k = em.loop_var("k", upper_bound(n))
    place = at(index, axis, k)
    em.emit(Store(home.values, place, em.value(node.args[0], place)))
    em.emit(Store(home.positions, place, k))
    body = em.close()
    em.emit(For(k, as_expr(n), SERIAL, body))

    passes = max(upper_bound(n) - 1, 0).bit_length()
    passes += passes % 2
    for number in range(passes):
        source, target = (home, away) if number % 2 == 0 else (away, home)
        em.scope.body.extend(_merge_pass(em, node, number, source, target, index))
    close_rows(em, loops, node.shape, axis)
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
        Load(a, source.values, at(index, axis, i), read_left),
        Load(b, source.values, at(index, axis, j), read_right),
        Let(take, read_right & (~read_left | _before(b, a, node.attr.descending))),
        Load(position, source.positions, at(index, axis, chosen)),
        Store(target.values, at(index, axis, spot), ex.where(take, b, a)),
        Store(target.positions, at(index, axis, spot), position),
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
