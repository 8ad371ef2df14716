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

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Let, Load, Reduce, Stmt
from weft.schedule import dependence as dep
from weft.schedule.dependence import Space
from weft.schedule.loops import vector_obstacle
from weft.schedule.space import constant
from weft.strategies.elementwise import pick_lanes, split_for_vectors, vector_lanes
from weft.strategies.nest import (
    PARALLEL_WORK,
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    product,
    size_of,
    strides,
    work,
)

CHUNKS: Final = 256  # partial results of a large reduction: fixed, so that runs agree
CHUNK_LEAST: Final = 16384  # elements that are worth a chunk
NEAR: Final = 8  # steps between neighbouring windows up to which their elements are read together
MOST_UNROLLED: Final = 16  # points of a small window that are written out
PRIVATE_BYTES: Final = 128 << 10  # private memory of all lanes together
GATHER_OPS: Final = 10  # simple operations that cost as much as a gathered operand
STREAMS: Final = 8  # places of a long array that one core reads side by side
LONG_BYTES: Final = 4 << 20  # from where on memory, not the core, is the limit
BLOCK: Final = 64  # steps of a sum that are added up before they join the rest
LEAST_AHEAD: Final = 2048  # bytes of a row; the processor itself looks ahead over shorter ones
STEPS: Final = 128  # points of a column that are added up before they join the rest
STEP: Final = 8  # points of a column reduction for each load and store of its running sums


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
    if _prefers_columns(plan, rows[-1], body):
        _columns(plan, rows, amount)
        return
    plan.stream_outputs()
    count = product(r.extent for r in rows)
    few = count < plan.threads or (count % plan.threads and count < 4 * plan.threads)
    if plan.threads > 1 and few and amount >= 2 * PARALLEL_WORK and len(body) <= 4:
        phases(plan, body, chunked=True)
        return
    parallelise(plan, names, amount)
    phases(plan, body, chunked=False)
    _prefetch_rows(plan, names[-1])


def _prefetch_rows(plan: Plan, row: str) -> None:
    """Fetch the next row while the present one, which is in the cache, is computed with.

    The first phase of a row waits for memory with little to do; a later one with exponentials
    has time to spare.
    """
    loop = find(plan.kernel, row)
    if loop is None:
        return
    inner: dict[str, list[tuple[str, Cost, int]]] = {}
    for stmt in loop.body:
        for name, extent, inside in _innermost(stmt):
            cost = Cost((stmt,))
            for load in inside:
                if isinstance(load, Load) and load.memory.scope == "global":
                    nbytes = extent * load.memory.dtype.itemsize
                    inner.setdefault(load.memory.name, []).append((name, cost, nbytes))
    for memory in plan.kernel.params:
        reads = inner.get(memory.name, [])
        size = size_of(memory.size) * memory.dtype.itemsize
        if len(reads) < 2 or size < plan.target.l2_bytes:
            continue
        name, cost, _ = max(reads[1:], key=lambda read: read[1].heavy)
        row_bytes = max(nbytes for _, _, nbytes in reads)
        ahead = cost.heavy > 0 and LEAST_AHEAD <= row_bytes <= plan.target.l2_bytes // 4
        if not plan.pick("fetch ahead", ahead, (True, False), memory.name):
            continue
        if plan.attempt("prefetch", memory.name, name, row):
            plan.why.append(f"the next row of {memory.name} is fetched ahead")


def _innermost(stmt: Stmt) -> list[tuple[str, int, Body]]:
    """Return the innermost loops of a phase, how many points they have, and what they do."""
    found: list[tuple[str, int, Body]] = []
    stack: list[tuple[Stmt, int]] = [(stmt, 1)]
    while stack:
        top, points = stack.pop()
        if isinstance(top, Reduce):
            points *= product(a.extent for a in top.axes)
            name = str(top.axes[-1].var.attr)
        elif isinstance(top, For):
            points *= size_of(top.extent)
            name = str(top.var.attr)
        else:
            continue
        body = top.bodies()[0]
        if not _has_phases(body):
            found.append((name, points, body))
        stack.extend((s, points) for s in body)
    return found


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
    best = _best(space, {c.var: c.extent for c in chain}, body, cost)
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


def _best(space: Space, extents: dict[Expr, Expr], body: Body, cost: Cost) -> Expr | None:
    """Return the loop along which a body runs with unit stride, None if there is none.

    Gathers are paid for by a body that computes much.
    """
    scores: dict[Expr, float] = {}
    least = -2.0 - cost.ops / GATHER_OPS
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
    best = _best(space, {a.var: a.extent for a in stmt.axes}, stmt.body, cost)
    if best is None:
        return
    names = [a.var.attr for a in stmt.axes]
    if names[-1] != best.attr:
        order = [name for name in names if name != best.attr] + [best.attr]
        if not plan.attempt("reorder", *order):
            return
        names = order
    extents = {a.var.attr: a.extent for a in stmt.axes}
    names, extent = widen(plan, names, extents, cost)
    split_reduction(plan, names[-1], extent, cost, blocked=_adds(stmt) and len(names) == 1)


def _adds(stmt: Reduce) -> bool:
    """Whether a reduction sums floats, whose roundings pile up."""
    return any(a.var.dtype.is_float and a.combine.op is Op.ADD for a in stmt.accumulators)


def widen(plan: Plan, names: list[str], extents: dict[str, Expr],
          cost: Cost) -> tuple[list[str], Expr]:  # fmt: skip
    """Make one loop of the innermost ones while they are shorter than a vector.

    Returns the loops that are left and the extent of the last one.
    """
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    extent = extents[names[-1]]
    while len(names) > 1 and constant(extent) is not None and size_of(extent) < native:
        *rest, outer, inner = names
        if not plan.attempt("fuse", outer, inner):
            break
        names, extent = [*rest, f"{outer}_{inner}"], extents[outer] * extent
    return names, extent


def reduce_cost(stmt: Reduce) -> Cost:
    """Return the cost of one point of a reduction."""
    return Cost((stmt,))


def split_reduction(plan: Plan, name: str, extent: Expr, cost: Cost,
                    blocked: bool = False) -> None:  # fmt: skip
    """Run a reduce axis in vectors, each lane with its own partial result.

    With `blocked`, a long axis is added up in blocks, for the sake of accuracy.
    """
    schedule = plan.schedule
    n, size = constant(extent), size_of(extent)
    lanes = pick_lanes(plan, name, vector_lanes(plan, size, cost), size, cost)
    if lanes < 2:
        return
    saved = schedule.mark()
    block = _block(n or 0, BLOCK * lanes, BLOCK) if blocked else 0
    if n is not None and block and plan.attempt("split", name, block, "peel"):
        schedule.cascade(f"{name}.o")
        split_reduction(plan, f"{name}.i", ex.index(block), cost, blocked=True)
        if n % block:
            split_reduction(plan, f"{name}.t", ex.index(n % block), cost, blocked=True)
        plan.why.append(f"{name} added up in blocks of {block}")
        return
    try:
        if n is not None and (n % lanes == 0 or n < 4 * lanes):
            schedule.split(name, lanes, "mask").vectorize(f"{name}.i")
        else:
            native = max(plan.target.vector_bytes // cost.itemsize, 1)
            schedule.split(name, lanes, "peel").vectorize(f"{name}.i")
            schedule.split(f"{name}.t", min(native, lanes), "mask").vectorize(f"{name}.t.i")
    except ScheduleError:
        schedule.reset(saved)
        return
    plan.why.append(f"{name} reduced in {lanes} lanes")


def _block(n: int, least: int, factor: int) -> int:
    """Return how many of n terms to add up apart, 0 for all together: a multiple of `least`.

    At most about `factor` blocks are made if n allows it, and little is left over.
    """
    if n < 2 * least:
        return 0
    most = least
    while n >= 2 * most * factor:
        most *= factor
    return n // -(-n // most) // least * least if most > least else least


def _cascade(plan: Plan, name: str, n: int) -> None:
    """Add up a reduce axis in blocks, and blocks of blocks if it is very long."""
    block = _block(n, STEPS, STEPS)
    if not block or not plan.attempt("split", name, block, "peel"):
        return
    plan.attempt("cascade", f"{name}.o")
    _cascade(plan, f"{name}.i", block)
    if n % block:
        _cascade(plan, f"{name}.t", n % block)


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
    _reduce(plan, f"{whole}.p")
    if not divides:
        _reduce(plan, f"{accumulator}.t")
    return True


def schedule_reduction(plan: Plan, body: Body) -> None:
    """Schedule phases that stand in no row loop (a sum of everything)."""
    plan.stream_outputs()
    chunked = plan.threads > 1 and work(body) >= PARALLEL_WORK
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
    streams = plan.pick("places", STREAMS if length * cost.itemsize >= LONG_BYTES else 1,
                        (1, 2, 4, 8, 16))
    if constant(axis.extent) is None or streams < 2 or length % (streams * lanes):
        return False
    name = axis.var.attr
    edit = plan.schedule
    edit.split(name, length // streams).reorder(f"{name}.i", f"{name}.o").unroll(f"{name}.o")
    edit.split(f"{name}.i", lanes).reorder(f"{name}.i.o", f"{name}.o", f"{name}.i.i")
    edit.vectorize(f"{name}.i.i")
    plan.why.append(f"{name} reduced in {lanes} lanes, in {streams} places side by side")
    return True


def _is_extreme(stmt: Reduce) -> bool:
    """Whether a reduction may keep several values for each of its own (`passes.extremes`)."""
    return any(a.var.dtype.is_float and a.combine.op is not Op.ADD for a in stmt.accumulators)


# ---- reductions over columns ---------------------------------------------------------------------


def _prefers_columns(plan: Plan, row: For, body: Body) -> bool:
    """Whether the row axis, not the reduced one, has unit stride in most accesses."""
    if vector_obstacle(body) is not None or size_of(row.extent) < 2:
        return False
    space = Space(plan.kernel)
    own = dep.private(body)
    across = along = 0  # accesses with unit stride, each as often as it takes place
    longest, native = 1, max(plan.target.vector_bytes // Cost(body).itemsize, 1)
    window = any(isinstance(s, Reduce) and len(s.axes) > 1 and any(
        step is not None and 1 <= step <= NEAR for _, step in strides(space, s.body, row.var))
        for s in body)  # fmt: skip
    for stmt in body:
        axes = _axes(stmt)
        points = product(extent for _, extent, _ in axes)
        for inner, extent, inside in axes:
            longest = max(longest, size_of(extent))
            if size_of(extent) < 4 or (window and 2 * size_of(extent) < native):
                continue  # no vector worth the name
            for access, stride in strides(space, inside, inner):
                along += points * (stride == 1 and access.memory not in own)
        for access, stride in strides(space, (stmt,), row.var):
            across += points * (stride == 1 and access.memory not in own)
    tiny = longest * 4 <= native or (window and 2 * longest < native)
    enough = size_of(row.extent) >= (2 if window else 16)
    return across > along or (tiny and enough and across >= along)


def _axes(stmt: Stmt) -> list[tuple[Expr, Expr, Body]]:
    """Return the loop variables of a phase, their extents, and the body they run over."""
    if isinstance(stmt, Reduce):
        return [(a.var, a.extent, stmt.body) for a in stmt.axes]
    if isinstance(stmt, For):
        chain = chain_of(stmt)
        return [(c.var, c.extent, chain[-1].body) for c in chain]
    return []


def _columns(plan: Plan, rows: list[For], amount: int) -> None:
    """Vectorise over the rows: running sums in the first cache if there is one reduction only."""
    body = rows[-1].body
    found = [s for s in body if isinstance(s, Reduce)]
    simple = len(found) == 1 and not any(isinstance(s, For | st.Alloc) for s in body)
    if simple and _stretch(plan, rows, found[0], amount):
        return
    plan.stream_outputs()
    own = sum(size_of(m.size) * m.dtype.itemsize for m in dep.private(body))
    most = 1 << max(PRIVATE_BYTES // max(own, 1), 1).bit_length() - 1
    for stmt in found:
        if _adds(stmt) and len(stmt.axes) == 1 and constant(stmt.axes[0].extent) is not None:
            _cascade(plan, str(stmt.axes[0].var.attr), size_of(stmt.axes[0].extent))
    cost = Cost(body)
    names, extent = widen(plan, [r.var.attr for r in rows], {r.var.attr: r.extent for r in rows},
                          cost)
    outer = split_for_vectors(plan, names[-1], extent, cost, most=min(most, 64))
    parallelise(plan, [*names[:-1], outer or names[-1]], amount)
    for stmt in found:
        if product(a.extent for a in stmt.axes) <= MOST_UNROLLED:
            for axis in stmt.axes:  # a pooling window
                plan.attempt("unroll", axis.var.attr)


def _stretch(plan: Plan, rows: list[For], stmt: Reduce, amount: int) -> bool:
    """Reduce over columns with running sums for a stretch of columns at a time."""
    row = rows[-1]
    n = constant(row.extent)
    cost = reduce_cost(stmt)
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    if n is None or n < native or cost.heavy:
        return False
    lanes = min(1 << (n.bit_length() - 1), native, 64)
    points = product(a.extent for a in stmt.axes)
    if _few_columns(plan, rows, n, points, amount):
        return _shared_columns(plan, rows, stmt, lanes, points)
    # running sums: half of the first cache, shared by those of a block and of all blocks
    half = plan.target.l1_bytes // (4 if _piles_up(stmt) else 2)
    stretch = plan.pick("stretch bytes", half, (half // 8, half // 4, half // 2, 2 * half, 4 * half)
                        ) // cost.itemsize
    parts = -(-n // max(stretch, lanes))
    if plan.threads > 1 and n >= 2 * plan.threads * lanes and product(
            r.extent for r in rows[:-1]) < plan.threads:
        parts = -(-parts // plan.threads) * plan.threads
    # strips of one width, for the last one overlaps the one before; a single one has a masked end
    width = min(-(-n // parts // lanes) * lanes, n)
    schedule, name = plan.schedule, row.var.attr
    saved = schedule.mark()
    try:
        schedule.split(name, width, "overlap")
        parallelise(plan, [*[r.var.attr for r in rows[:-1]], f"{name}.o"], amount)
        schedule.split(f"{name}.i", lanes)
        _decompose(plan, stmt, f"{name}.i.o", f"{name}.i.i")
    except ScheduleError:
        schedule.reset(saved)
        return False
    plan.why.append(f"running results of {width} columns in the first cache")
    return True


def _decompose(plan: Plan, stmt: Reduce, blocks: str, lanes: str) -> None:
    """Turn the reduction inside out, several of its points for each running sum."""
    schedule, name = plan.schedule, str(stmt.accumulators[0].var.attr)
    schedule.decompose_reduction(name, blocks, scope="local")
    last = stmt.axes[-1]
    k, n = str(last.var.attr), size_of(last.extent)
    step = plan.pick("points a sum", STEP, (2, 4, 8, 16), k)
    _add_up(plan, f"{name}.r" if _piles_up(stmt) else "", blocks, k, n, lanes, step)
    for suffix in (".z", ".f"):
        schedule.vectorize(f"{lanes}{suffix}")


def _piles_up(stmt: Reduce) -> bool:
    """Whether a reduction over columns sums so many floats that they go in blocks."""
    n = constant(stmt.axes[-1].extent)
    return _adds(stmt) and n is not None and n >= 2 * STEPS


def _loops(plan: Plan) -> set[Expr]:
    return {s.var for s in traverse.walk(plan.kernel.body) if isinstance(s, For)}


def _vectors(plan: Plan, memory: str, known: set[Expr]) -> str:
    """Vectorise the new loops over what is added up apart; return the array of it."""
    part = ""
    for loop in [s for s in traverse.walk(plan.kernel.body) if isinstance(s, For)]:
        name, last = str(loop.var.attr), loop.body[-1]
        if loop.var in known or not isinstance(last, st.Store):
            continue
        if name.startswith(f"{memory}.y"):
            part = last.memory.name
        if name.startswith((f"{memory}.y", f"{memory}.x")):
            plan.schedule.vectorize(name)
    return part


def _add_up(plan: Plan, memory: str, blocks: str, k: str, n: int, lanes: str, step: int) -> None:
    """Carry out a loop over points that adds to running sums, in blocks if `memory` is given.

    Several points are taken for each load and store of a sum.
    """
    schedule = plan.schedule
    known = _loops(plan)
    block = _block(n, STEPS, STEPS) if memory else 0
    if block and plan.attempt("block_sums", memory, k, block):
        plan.why.append(f"{k} added up in blocks of {block}")
        part = _vectors(plan, memory, known)
        _add_up(plan, part, blocks, f"{k}.i", block, lanes, step)
        left = n % block
        if left:  # apart from the rest, too: a few terms would each be rounded to the whole sum
            known = _loops(plan)
            schedule.block_sums(memory, f"{k}.t", left)
            _vectors(plan, memory, known)
            _add_up(plan, "", f"{blocks}.t", f"{k}.t.i", left, f"{lanes}.t", step)
        return
    if n >= step:
        schedule.split(k, step, "peel")
        schedule.reorder(blocks, f"{k}.i").unroll(f"{k}.i")
        if n % step:
            schedule.vectorize(f"{lanes}.t")
    schedule.vectorize(lanes)


def _few_columns(plan: Plan, rows: list[For], n: int, points: int, amount: int) -> bool:
    return (plan.threads > 1 and amount >= 2 * PARALLEL_WORK and len(rows) == 1
            and n < 64 * plan.threads and points >= 64 * plan.threads)


def _shared_columns(plan: Plan, rows: list[For], stmt: Reduce, lanes: int, points: int) -> bool:
    """Give each thread a share of the matrix rows, because there are few columns."""
    axis = stmt.axes[0]
    n = constant(axis.extent)
    if n is None or len(stmt.axes) != 1:
        return False
    chunks = min(16, max(n // 16, 1))
    factor = -(-n // chunks)
    schedule, name, k = plan.schedule, rows[-1].var.attr, axis.var.attr
    accumulator = stmt.accumulators[0].var.attr
    saved = schedule.mark()
    width = size_of(rows[-1].extent)
    lanes = min(lanes, width)
    lanes = 1 << (lanes.bit_length() - 1)
    try:
        schedule.split(name, lanes, "overlap").split(k, factor, "mask")
        schedule.decompose_reduction(accumulator, f"{name}.o", partial=(f"{k}.o",), scope="local")
        schedule.layout(f"{accumulator}.r", (2, 0, 1))
        schedule.reorder(f"{k}.o", f"{k}.i", f"{name}.o", f"{name}.i").parallel(f"{k}.o")
        schedule.reorder(f"{k}.o.z", f"{name}.o.z", f"{name}.i.z")
        for suffix in (".z", "", ".f"):
            schedule.vectorize(f"{name}.i{suffix}")
    except ScheduleError:
        schedule.reset(saved)
        return False
    plan.why.append(f"{-(-n // factor)} chunks of {k} on {plan.threads} threads")
    return True
