"""Rows with reductions: softmax, layer norm, sums, and reductions over columns.

Three shapes, told apart by what has unit stride:

* the reduced axis: each row is a task, each phase of it runs in vectors with several partial
  results, so that the row stays in the first caches between its phases;
* the row axis (a reduction over columns): rows are the vector, and a single reduction walks whole
  stretches of a matrix row with its running sums in the first cache;
* no rows, or too few: the reduction itself is cut into a fixed number of chunks, whose partial
  results meet in a fixed order.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import reduction, traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Let, Load, Reduce, Store
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.elementwise import (
    FEW_STEPS,
    pick_lanes,
    split_for_vectors,
    vector_lanes,
)
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    product,
    registers,
    size_of,
    strides,
    work,
)
from weft.strategies.common.prefetches import fetch_rows
from weft.strategies.common.sums import adds, block_of, join_blocks, reduce_cost, widen
from weft.strategies.reductions.columns import LEAST_COLUMNS, prefers_columns, schedule_columns

CHUNKS: Final = 256  # partial results of a large reduction: fixed, so that runs agree
CHUNK_LEAST: Final = 16384  # elements that are worth a chunk
MOST_UNROLLED: Final = 16  # points of a small window that are written out
LANE_STEPS: Final = 4  # of a sum that all lanes take: more lanes round less
BLOCK: Final = 16  # steps of a sum that are added up before they join the rest
SHORT_ROW: Final = 4  # vectors of a row that are written out, so that one mask at most is left
SEARCH_STEPS: Final = 8  # vectors of a block in which the place of an extreme is looked for
SEARCHED: Final = 11  # columns whose extremes are looked for one after the other
LEAST_ROWS: Final = 4  # rows whose statistics are worth a vector
WASTE: Final = 8  # one in so many rows may be computed twice to fill the last vector


def schedule_rows(plan: Plan, root: str) -> None:
    """Schedule one nest of row loops around phases, named by its outermost loop."""
    loop = find(plan.kernel, root)
    assert loop is not None
    rows = chain_of(loop)
    if len(rows) > 1 and not _has_phases(rows[-1].body):
        rows = rows[:-1]  # the last loop is a phase itself
    body = rows[-1].body
    amount = work((loop,))
    names = [r.var.attr for r in rows]
    if _searched_columns(plan, rows, body, amount):
        return
    if prefers_columns(plan, rows[-1], body):
        schedule_columns(plan, rows, amount)
        return
    plan.stream_outputs()
    count = product(r.extent for r in rows)
    few = count < plan.threads or (count % plan.threads and count < 4 * plan.threads)
    if few and plan.is_worth_threads(amount // 2) and len(body) <= 4:
        phases(plan, body, chunked=True)
        return
    parallelise(plan, names, amount)
    for part in _together(plan, names[-1]):
        phases(plan, part, chunked=False)
    _short_rows(plan, names[-1])
    fetch_rows(plan, names[-1])


def _together(plan: Plan, row: str) -> list[Body]:
    """Take several short rows together if their statistics need a logarithm or the like.

    It is computed in the lanes of one vector instead of once for each row. Returns the parts of
    the body.
    """
    loop = find(plan.kernel, row)
    assert loop is not None
    body = loop.body
    count = next((p for p, s in enumerate(body) if not isinstance(s, Reduce | Let | Load)), 0)
    if not any(isinstance(s, Reduce) for s in body[:count]):
        return [body]
    n, cost = size_of(loop.extent), Cost(body)
    row_bytes = max([product(a.extent for a in s.axes) for s in body if isinstance(s, Reduce)]
                    ) * cost.itemsize
    lanes = max(plan.target.vector_bytes // cost.itemsize, 1)
    while lanes >= LEAST_ROWS and -n % lanes * WASTE > n:
        lanes //= 2
    if constant(loop.extent) is None or lanes < LEAST_ROWS or (
            lanes * row_bytes > plan.target.l1_bytes // 2):
        return [body]
    saved, edit = plan.schedule.mark(), plan.schedule
    try:
        rest = body[count]
        stored = all(isinstance(s, Store) and s.mask is None for s in body[count:])
        if not stored and isinstance(rest, For):
            edit.lift(rest.var.attr)
        elif not stored or not Cost(body[count:]).heavy:
            return [body]
        edit.split(row, lanes, "overlap").distribute(f"{row}.i", count)
        vector = f"{row}.i"
        parts = [f"{row}.i.d"]
        if not stored:
            inner = find(plan.kernel, f"{row}.i")
            assert inner is not None
            named = next(p for p, s in enumerate(inner.body) if isinstance(s, For))
            known = {s.var for s in traverse.walk(plan.kernel.body) if isinstance(s, For)}
            edit.distribute(f"{row}.i", named)
            vector = next(str(s.var.attr) for s in traverse.walk(plan.kernel.body)
                          if isinstance(s, For) and s.var not in known)
            parts.append(f"{row}.i")
        edit.vectorize(vector)
    except ScheduleError:
        edit.reset(saved)
        return [body]
    plan.why.append(f"statistics of {lanes} rows side by side")
    return [found.body for found in map(partial(find, plan.kernel), parts) if found is not None]


def _short_rows(plan: Plan, row: str) -> None:
    """Write out several rows of a few vectors each, whose lanes are then combined side by side.

    Of such a row that takes longer than all that comes before
    (`weft.passes.vector.horizontal_sums`).
    """
    loop = find(plan.kernel, row)
    if loop is None or not all(isinstance(s, Reduce | Let | Load | Store) for s in loop.body):
        return
    found = [s for s in loop.body if isinstance(s, Reduce)]
    if len(found) != 1 or len(found[0].accumulators) != 1 or not reduction.is_once(found[0]):
        return
    vector = reduction.vector_axis(found[0])
    accumulator = found[0].accumulators[0]
    count = min(0 if vector is None else reduction.lanes_of(vector), registers(plan) // 2)
    n = constant(loop.extent)
    if n is None or count < 2 or n < 2 * count or accumulator.combine.op not in reduction.FOLDED:
        return
    if plan.attempt("split", row, count, "overlap"):
        plan.schedule.unroll(f"{row}.i")
        plan.why.append(f"{count} rows side by side")


def _has_phases(body: Body) -> bool:
    return any(isinstance(s, Reduce | For) for s in body)


def phases(plan: Plan, body: Body, chunked: bool) -> None:
    """Vectorise each phase of a body; with `chunked`, share the phases out to threads."""
    for stmt in body:
        if isinstance(stmt, Reduce):
            if not (chunked and _chunk(plan, stmt)):
                _reduce(plan, stmt.accumulators[0].var.attr)
        elif isinstance(stmt, For):
            _map(plan, stmt, chunked)


def _map(plan: Plan, loop: For, chunked: bool) -> None:
    """Vectorise a phase that maps elements."""
    chain = chain_of(loop)
    names = [c.var.attr for c in chain]
    body = chain[-1].body
    if vector_obstacle(body) is not None or _has_phases(body):
        return
    space = Space(plan.kernel)
    cost = Cost(body)
    best = _best(plan, space, {c.var: c.extent for c in chain}, body, cost)
    if best is None:
        return
    if names[-1] != best.attr:
        order = [name for name in names if name != best.attr] + [best.attr]
        if not plan.attempt("reorder", *order):
            return
        names = order
    amount = work((loop,))
    names, extent = widen(plan, names, {c.var.attr: c.extent for c in chain}, cost)
    outer = split_for_vectors(plan, names[-1], extent, cost, peel=chunked)
    if chunked:
        parallelise(plan, [*names[:-1], outer or names[-1]], amount)


def _best(plan: Plan, space: Space, extents: dict[Expr, Expr], body: Body,
          cost: Cost) -> Expr | None:
    """Return the loop along which a body runs with unit stride, None if there is none.

    Gathers are paid for by a body that computes much.
    """
    scores: dict[Expr, float] = {}
    least = -2.0 - cost.ops / plan.costs.gather_cost
    for var, extent in extents.items():
        if size_of(extent) < 2:
            continue
        total = 0.0
        for _, stride in strides(space, body, var):
            total += {1: 2.0, -1: 1.5, 0: 0.0, None: -1.0}.get(stride, -1.5)
        scores[var] = total
    if not scores:
        return None
    best = max(reversed(scores), key=scores.__getitem__)
    return best if scores[best] > least or len(scores) == 1 else None


def _find_reduce(plan: Plan, accumulator: str) -> Reduce | None:
    for stmt in traverse.walk(plan.kernel.body):
        if isinstance(stmt, Reduce) and stmt.accumulators[0].var.attr == accumulator:
            return stmt
    return None


def _reduce(plan: Plan, accumulator: str) -> None:
    """Vectorise one reduction along its axis of unit stride."""
    stmt = _find_reduce(plan, accumulator)
    if stmt is None or vector_obstacle(stmt.body) is not None:
        return
    points = [constant(a.extent) for a in stmt.axes]
    if None not in points and product(a.extent for a in stmt.axes) <= MOST_UNROLLED:
        native = max(plan.target.vector_bytes // reduce_cost(stmt).itemsize, 1)
        if max(p for p in points if p is not None) < max(native // 4, 2):
            for axis in stmt.axes:  # a pooling window: too small for a vector
                plan.attempt("unroll", axis.var.attr)
            return
    space = Space(plan.kernel)
    cost = reduce_cost(stmt)
    best = _best(plan, space, {a.var: a.extent for a in stmt.axes}, stmt.body, cost)
    if best is None or _search(plan, stmt):
        return
    names = [a.var.attr for a in stmt.axes]
    if names[-1] != best.attr:
        order = [name for name in names if name != best.attr] + [best.attr]
        if not plan.attempt("reorder", *order):
            return
        names = order
    extents = {a.var.attr: a.extent for a in stmt.axes}
    names, extent = widen(plan, names, extents, cost)
    alone = len(names) == 1
    if len(names) == 2 and adds(stmt):
        alone = _block_of_rows(plan, names[0], constant(extents[names[0]]), constant(extent), cost)
    split_reduction(plan, names[-1], extent, cost, blocked=adds(stmt) and alone)


def _block_of_rows(plan: Plan, name: str, rows: int | None, row: int | None, cost: Cost) -> bool:
    """Add up rows apart from one another, a few short ones together; whether each is alone."""
    if not rows or not row:
        return False
    steps = -(-row // vector_lanes(plan, row, cost))
    steps = 1 if steps <= SHORT_ROW else steps  # written out, each vector with its own sum
    few = next(n for n in range(1, rows + 1) if rows % n == 0 and (n * steps >= BLOCK or n == rows))
    if rows < 2 * few or (few > 1 and not plan.attempt("split", name, few)):
        return False
    join_blocks(plan, name if few == 1 else f"{name}.o")
    return few == 1


def _searched_columns(plan: Plan, rows: list[For], body: Body, amount: int) -> bool:
    """Look for the places of extremes in one column after the other, if there are few of them.

    Several neighbours are read at once, and the elements of a column picked from them: of one
    column in so many lanes as there are, the running results would be a short vector.
    """
    found = [s for s in body if isinstance(s, Reduce)]
    n = constant(rows[-1].extent)
    most = SEARCHED if len(rows) == 1 else LEAST_COLUMNS - 1  # more of several are a vector each
    if len(found) != 1 or n is None or not 2 <= n <= most or any(isinstance(s, For) for s in body):
        return False
    space = Space(plan.kernel)
    axis = found[0].axes[-1].var
    if {step for _, step in strides(space, found[0].body, axis)} != {n}:
        return False
    saved = plan.schedule.mark()
    parallelise(plan, [r.var.attr for r in rows], amount)
    if _search(plan, found[0]):
        return True
    plan.schedule.reset(saved)
    return False


def _search(plan: Plan, stmt: Reduce) -> bool:
    """Look for the place of an extreme by blocks; whether the reduction is one."""
    if len(stmt.accumulators) != 2 or len(stmt.axes) != 1 or Cost(stmt.body).heavy:
        return False
    n, k = constant(stmt.axes[0].extent) or 0, str(stmt.axes[0].var.attr)
    accumulator = stmt.accumulators[0].var
    lanes = min(plan.target.vector_bytes // accumulator.dtype.itemsize, 64)
    steps = SEARCH_STEPS
    while steps > 2 and n < 2 * lanes * steps:
        steps //= 2
    steps = plan.pick("steps", steps, (2, 4, 8, 16), k)
    if lanes < 2 or n < 2 * lanes * steps or not plan.attempt(
            "search", accumulator.attr, lanes, steps):
        return False
    edit = plan.schedule
    for suffix in "zlhj":
        edit.vectorize(f"{k}.{suffix}")
    edit.split(f"{k}.f", lanes).vectorize(f"{k}.f.i").unroll(f"{k}.f.o")
    if accumulator.dtype.is_float:
        edit.split(f"{k}.g", lanes, "mask").vectorize(f"{k}.g.i")
    plan.why.append(f"{k} is searched in blocks of {lanes * steps}")
    return True


def split_reduction(plan: Plan, name: str, extent: Expr, cost: Cost,
                    blocked: bool = False) -> None:  # fmt: skip
    """Run a reduce axis in vectors, each lane with its own partial result.

    With `blocked`, a long axis is added up in blocks, for the sake of accuracy.
    """
    schedule = plan.schedule
    n, size = constant(extent), size_of(extent)
    steps = LANE_STEPS if blocked else FEW_STEPS
    lanes = pick_lanes(plan, name, vector_lanes(plan, size, cost, steps=steps), size, cost)
    if lanes < 2:
        return
    saved = schedule.mark()
    block = _block(n or 0, BLOCK * lanes) if blocked else 0
    if n is not None and block and plan.attempt("split", name, block, "peel"):
        join_blocks(plan, f"{name}.o")
        split_reduction(plan, f"{name}.i", ex.index(block), cost, blocked=True)
        if n % block:
            split_reduction(plan, f"{name}.t", ex.index(n % block), cost, blocked=True)
        plan.why.append(f"{name} added up in blocks of {block}")
        return
    try:
        if n is not None and (n % lanes == 0 or n < 4 * lanes):
            schedule.split(name, lanes, "mask").vectorize(f"{name}.i")
            if -(-n // lanes) <= SHORT_ROW:
                plan.attempt("unroll", f"{name}.o")
        else:
            native = max(plan.target.vector_bytes // cost.itemsize, 1)
            schedule.split(name, lanes, "peel").vectorize(f"{name}.i")
            schedule.split(f"{name}.t", min(native, lanes), "mask").vectorize(f"{name}.t.i")
    except ScheduleError:
        schedule.reset(saved)
        return
    plan.why.append(f"{name} reduced in {lanes} lanes")


def _block(n: int, least: int) -> int:
    """Return how many terms of a row to add up apart; one block and a good part of another do."""
    return block_of(n, least, BLOCK) or (least if 4 * n >= 5 * least else 0)


def _chunk(plan: Plan, stmt: Reduce) -> bool:
    """Cut a long reduction into chunks for the threads; whether that was done."""
    total = product(a.extent for a in stmt.axes)
    if total < 4 * CHUNK_LEAST or plan.threads < 2:
        return False
    axis = max(stmt.axes, key=lambda a: size_of(a.extent))
    if constant(axis.extent) is None:
        return False
    cost = reduce_cost(stmt)
    inner = total // max(size_of(axis.extent), 1)
    chunks = plan.pick("chunks", CHUNKS, (16, 64, 256, 1024), axis.var.attr)
    least = max(-(-size_of(axis.extent) // chunks), CHUNK_LEAST // inner, 1)
    step = vector_lanes(plan, least, cost) if len(stmt.axes) == 1 else 1
    factor = -(-least // step) * step
    if factor * 2 > size_of(axis.extent):
        return False
    schedule, name = plan.schedule, axis.var.attr
    accumulator = stmt.accumulators[0].var.attr
    saved = schedule.mark()
    divides = size_of(axis.extent) % factor == 0
    try:
        schedule.split(name, factor, "peel").rfactor(f"{name}.o").parallel(f"{name}.o")
    except ScheduleError:
        schedule.reset(saved)
        return False
    rounds = size_of(axis.extent) // factor
    plan.why.append(f"{rounds} chunks of {name} on {plan.threads} threads")
    whole = accumulator if divides else f"{accumulator}.m"
    combined = _find_reduce(plan, whole)
    if adds(stmt) and combined is not None:
        plan.attempt("promote", combined.axes[0].var.attr)
    _reduce(plan, f"{whole}.p")
    if not divides:
        _reduce(plan, f"{accumulator}.t")
    return True


def schedule_reduction(plan: Plan, body: Body) -> None:
    """Schedule phases that stand in no row loop (a sum of everything)."""
    plan.stream_outputs()
    chunked = plan.is_worth_threads(work(body))
    if chunked or not _side_by_side(plan, body):
        phases(plan, body, chunked=chunked)


def _side_by_side(plan: Plan, body: Body) -> bool:
    """Read a long array in several places at once: one core prefetches more of it than in one."""
    found = [s for s in body if isinstance(s, Reduce)]
    if len(found) != 1 or len(found[0].axes) != 1 or not all(
        isinstance(s, Load | Let) for s in found[0].body
    ):
        return False
    axis = found[0].axes[0]
    cost = Cost(found[0].body)
    most = 1 if _is_extreme(found[0]) else 4  # registers of each place
    lanes = min(most * plan.target.vector_bytes // cost.itemsize, 64)
    length = size_of(axis.extent)
    native = max(plan.target.vector_bytes // cost.itemsize, 2)
    lanes = plan.pick("lanes", lanes, (native, 2 * native, 4 * native), axis.var.attr)
    far = length * cost.itemsize >= plan.costs.memory_bound_bytes
    streams = plan.pick("places", plan.costs.streams if far else 1,
                        (1, 2, 4, 8, 16))
    if constant(axis.extent) is None or streams < 2 or length % (streams * lanes):
        return False
    name = axis.var.attr
    edit = plan.schedule
    edit.split(name, length // streams).reorder(f"{name}.i", f"{name}.o").unroll(f"{name}.o")
    edit.split(f"{name}.i", lanes).reorder(f"{name}.i.o", f"{name}.o", f"{name}.i.i")
    edit.vectorize(f"{name}.i.i")
    block = math.gcd(length // (streams * lanes), BLOCK)
    if adds(found[0]) and block > 1 and plan.attempt("split", f"{name}.i.o", block):
        join_blocks(plan, f"{name}.i.o.o")
    plan.why.append(f"{name} reduced in {lanes} lanes, in {streams} places side by side")
    return True


def _is_extreme(stmt: Reduce) -> bool:
    """Whether a reduction may keep several values for each of its own (`passes.extremes`)."""
    return any(a.var.dtype.is_float and a.combine.op is not Op.ADD for a in stmt.accumulators)
