"""Attention: blocks of queries on threads, queries in the lanes of vectors, products in tiles.

The nest (`weft.kernelize.attention.attention_nest`) has no result that crosses queries, so each of
its loops over the queries of a block is a vector. The two products run like other contractions, a
tile of keys (or channels) x queries in registers: one scalar of K (or V) is spread over the lanes
for each step. Only the results leave along the channels, because they are stored so.
"""

from __future__ import annotations

from typing import Final

from weft.ir import traverse
from weft.ir.stmt import For
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    power_above,
    size_of,
    strides,
    work,
)

VECTORS: Final = 2  # registers along the queries of a tile
MOST_LANES: Final = 64
MOST_COPIES: Final = 16  # of a vector that are turned in registers together
LEAST_COPIES: Final = 4
_TILES: Final = {"q3": "score", "q5": "result", "q6": "across"}  # lanes and what they sum up


def schedule_attention(plan: Plan, root: str) -> bool:
    """Schedule an attention, named by its outermost loop; whether its parts are all there."""
    loop = find(plan.kernel, root)
    if loop is None:
        return False
    chain = chain_of(loop)
    amount = work((loop,))
    native = max(plan.target.vector_bytes // Cost(loop.body).itemsize, 1)
    block = find(plan.kernel, "q4")
    if block is None:
        return False
    vectors = plan.pick("attention.vectors", VECTORS, (1, 2, 4))
    lanes = min(size_of(block.extent), native * vectors, MOST_LANES)
    rows = plan.pick("attention.rows", max(plan.target.vector_registers, 16) // 4,
                     (2, 4, 6, 8, 12, 16))
    for name in [s.var.attr for s in traverse.walk(loop.body) if isinstance(s, For)]:
        if name[:2] in _TILES:
            _tile(plan, f"{_TILES[name[:2]]}{name[2:]}", name, rows, lanes)
        elif name.startswith("q1"):
            turn(plan, name, native, lanes)
        elif name.startswith(("q2", "q4", "q9")):
            in_vectors(plan, name, lanes)
        elif name in ("d7", "d9"):
            in_vectors(plan, name, min(4 * native, MOST_LANES))
        elif name.startswith("q8"):
            write_results(plan, name, native, lanes)
    plan.why.append(f"attention: {lanes} queries in the lanes of a vector, tiles of {rows} keys "
                    "and channels in registers")
    parallelise(plan, [c.var.attr for c in chain], amount)
    return True


def turn(plan: Plan, name: str, native: int, lanes: int) -> None:
    """Read rows and write columns: copies of a vector along the rows, turned in registers."""
    loop = find(plan.kernel, name)
    terms = loop.body[0] if loop is not None else None
    if loop is None or not isinstance(terms, For):
        return
    inner = terms.var
    near = [a for a, s in strides(Space(plan.kernel), loop.body, inner)
            if not a.write and a.memory.scope == "global" and s == 1]
    copies = _divisor(size_of(loop.extent), MOST_COPIES)
    vector = min(native, MOST_COPIES)
    if not near or copies < LEAST_COPIES or size_of(terms.extent) % vector:
        in_vectors(plan, name, lanes)
    else:
        _pair(plan, inner.attr, name, vector, copies, "")


def write_results(plan: Plan, name: str, native: int, lanes: int) -> None:
    """Write results along the channels, where they lie side by side, or the few along queries.

    Copies of such a vector along the queries are read as columns that are turned in registers.
    """
    rows = find(plan.kernel, name)
    channels = rows.body[0] if rows is not None else None
    if rows is None or not isinstance(channels, For) or size_of(channels.extent) * 2 <= native:
        in_vectors(plan, name, lanes)
        return
    copies = _divisor(size_of(rows.extent), MOST_COPIES)
    if copies < LEAST_COPIES or size_of(channels.extent) < native:
        in_vectors(plan, channels.var.attr, native)
        return
    _pair(plan, channels.var.attr, name, native, copies, "mask")


def _pair(plan: Plan, vector: str, copied: str, lanes: int, copies: int, tail: str) -> None:
    """Run one loop in vectors, and several of them, next to each other along the other loop."""
    schedule = plan.schedule
    order = []
    for name, size in ((copied, copies), (vector, lanes)):
        loop = find(plan.kernel, name)
        assert loop is not None
        extent = size_of(loop.extent)
        if extent == size:
            order.append((name, name))
            continue
        if name == vector and extent % size:
            schedule.split(name, size, tail)
        else:
            schedule.split(name, size)
        order.append((f"{name}.o", f"{name}.i"))
    a_in, b_in = order[0][1], order[1][1]
    outer = [n for n, inside in order if n != inside]
    schedule.reorder(*outer, a_in, b_in)
    schedule.unroll(a_in).vectorize(b_in)


def _divisor(n: int, most: int) -> int:
    """Return the largest power of two up to `most` that divides a size."""
    return min(n & -n, most)


def _tile(plan: Plan, accumulator: str, query: str, rows: int, lanes: int) -> None:
    """Hold the results of some rows and all lanes in registers over the whole reduction."""
    schedule = plan.schedule
    schedule.contract(accumulator)
    row = _around(plan, query)
    extent = size_of(row.extent)
    name, column = row.var.attr, query
    factor = max(f for f in range(1, min(rows, extent) + 1) if extent % f == 0)
    if factor < extent:
        schedule.split(name, factor)
        name = f"{name}.i"
    queries = find(plan.kernel, query)
    assert queries is not None
    while size_of(queries.extent) % lanes:
        lanes //= 2
    if size_of(queries.extent) > lanes:
        schedule.split(query, lanes)
        schedule.reorder(f"{query}.o", name, f"{query}.i")
        column = f"{query}.i"
    schedule.decompose_reduction(accumulator, name)
    for suffix in (".z", "", ".f"):
        schedule.unroll(f"{name}{suffix}").vectorize(f"{column}{suffix}")


def _around(plan: Plan, name: str) -> For:
    """Return the loop directly around another."""
    return next(s for s in traverse.walk(plan.kernel.body) if isinstance(s, For)
                and any(isinstance(b, For) and b.var.attr == name for b in s.body))


def in_vectors(plan: Plan, name: str, lanes: int) -> None:
    """Run a loop in vectors, the last one masked."""
    loop = find(plan.kernel, name)
    if loop is None or size_of(loop.extent) < 2:
        return
    lanes = min(lanes, power_above(size_of(loop.extent)))
    if size_of(loop.extent) != lanes:
        plan.schedule.split(name, lanes, "mask")
        name = f"{name}.i"
    plan.schedule.vectorize(name)
