"""Reductions over columns: the rows of the result lie side by side in memory.

They are the lanes of vectors. A single reduction walks whole stretches of a matrix row with its
running sums in the first cache; several phases keep what they share in private memory.
"""

from __future__ import annotations

import math
from typing import Final

from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Body, For, Reduce, Stmt
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.elementwise import split_for_vectors
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    flat_stride,
    parallelise,
    product,
    registers,
    shares_evenly,
    size_of,
    strides,
)
from weft.strategies.common.prefetches import fetch_results
from weft.strategies.common.sums import STEPS, adds, block_of, cascade, reduce_cost, widen
from weft.target import ARRAY_BYTES

NEAR: Final = 8  # steps between neighbouring windows up to which their elements are read together
MOST_UNROLLED: Final = 16  # points of a small window that are written out
LEAST_COLUMNS: Final = 4  # that are worth a vector of their own
SIDE_BY_SIDE: Final = 4  # points of a reduction with running results of their own
LEAST_VECTORS: Final = 4  # of running results that are worth registers of their own
SPARE: Final = 4  # registers beside those of running results
KEPT: Final = 4  # times that a second cache holds an array whose written lines stay in it
LIGHT: Final = 4  # operations of a point that need few of these
STEP: Final = 8  # points of a column reduction for each load and store of its running sums


def prefers_columns(plan: Plan, row: For, body: Body) -> bool:
    """Whether the row axis, not the reduced one, has unit stride in most accesses.

    What is the same for all rows has no say: along rows it is read once for a vector of them.
    """
    if vector_obstacle(body) is not None or size_of(row.extent) < 2:
        return False
    space = Space(plan.kernel)
    own = sub.private(body)
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
                along += points * (stride == 1 and access.memory not in own
                                   and flat_stride(space, access, row.var) != 0)
        for access, stride in strides(space, (stmt,), row.var):
            across += points * (stride == 1 and access.memory not in own)
    tiny = longest * 4 <= native or (window and 2 * longest < native)
    enough = size_of(row.extent) >= (2 if window else 16)
    reads = [step for s in body if isinstance(s, Reduce) for _, step in strides(
        space, s.body, row.var)]
    if tiny and reads and not any(step != 0 for step in reads):
        return True  # the same few elements for all rows: only what is done with them differs
    return across > along or (tiny and enough and across >= along)


def _axes(stmt: Stmt) -> list[tuple[Expr, Expr, Body]]:
    """Return the loop variables of a phase, their extents, and the body they run over."""
    if isinstance(stmt, Reduce):
        return [(a.var, a.extent, stmt.body) for a in stmt.axes]
    if isinstance(stmt, For):
        chain = chain_of(stmt)
        return [(c.var, c.extent, chain[-1].body) for c in chain]
    return []


def schedule_columns(plan: Plan, rows: list[For], amount: int) -> None:
    """Vectorise over the rows: running sums in the first cache if there is one reduction only."""
    body = rows[-1].body
    found = [s for s in body if isinstance(s, Reduce)]
    simple = len(found) == 1 and not any(isinstance(s, For | st.Alloc) for s in body)
    if simple and (_lines(plan, rows, found[0], amount)
                   or _woven(plan, rows, found[0], amount)
                   or _stretch(plan, rows, found[0], amount)
                   or _narrow(plan, rows, found[0], amount)):
        return
    cost = Cost(body)
    if size_of(rows[-1].extent) * cost.itemsize % plan.target.line_bytes == 0:
        plan.stream_outputs()  # vectors that share lines with others go through the caches
    own = sum(size_of(m.size) * m.dtype.itemsize for m in sub.private(body))
    most = 1 << max(plan.costs.lane_array_bytes // max(own, 1), 1).bit_length() - 1
    for stmt in found:
        if adds(stmt) and len(stmt.axes) == 1 and constant(stmt.axes[0].extent) is not None:
            cascade(plan, str(stmt.axes[0].var.attr), size_of(stmt.axes[0].extent))
    names, extent = widen(plan, [r.var.attr for r in rows], {r.var.attr: r.extent for r in rows},
                          cost)
    outer = split_for_vectors(plan, names[-1], extent, cost, most=min(most, 64))
    apart = amount < plan.costs.line_transfer_work * _shared_lines(plan, rows, body)
    parallelise(plan, names[:-1] if apart else [*names[:-1], outer or names[-1]], amount)
    if outer is not None:
        fetch_results(plan, outer)
    for stmt in found:
        if product(a.extent for a in stmt.axes) <= MOST_UNROLLED:
            for axis in stmt.axes:  # a pooling window
                plan.attempt("unroll", axis.var.attr)


def _shared_lines(plan: Plan, rows: list[For], body: Body) -> int:
    """Return how often neighbouring columns are written to one line of the cache.

    Threads that share out the columns of such rows take the line from one another in each row,
    unless it has left the cache before the other one comes to it.
    """
    space, count = Space(plan.kernel), 0
    for stmt in body:
        if isinstance(stmt, For):
            chain = chain_of(stmt)
            written = [a for a in sub.accesses(chain[-1].body)
                       if a.write and a.memory.scope == "global" and KEPT * a.memory.dtype.itemsize
                       * size_of(a.memory.size) <= plan.target.l2_bytes]
            apart = [(flat_stride(space, a, chain[-1].var) or 0) * a.memory.dtype.itemsize
                     for a in written]
            if any(distance % plan.target.line_bytes for distance in apart):
                count += product(c.extent for c in (*rows[:-1], *chain))
    return count


def _lines(plan: Plan, rows: list[For], stmt: Reduce, amount: int) -> bool:
    """Read a matrix row by row, as it lies in memory, with one running result of each column.

    They are all in registers; what is added up is added to them in blocks.
    """
    row, cost = rows[-1], reduce_cost(stmt)
    n, native = constant(row.extent), max(plan.target.vector_bytes // cost.itemsize, 1)
    if n is None or not _is_light(stmt, cost):
        return False
    vectors, points = -(-n // native), size_of(stmt.axes[0].extent)
    around = [size_of(r.extent) for r in rows[:-1]]
    shared = (plan.is_worth_threads(amount // 2 // max(math.prod(around), 1))
              and points >= 64 * plan.threads
              and not any(shares_evenly(size, plan.threads) for size in around))
    if n < native or not (1 if shared else LEAST_VECTORS) <= vectors <= registers(plan) - SPARE:
        return False
    schedule, name = plan.schedule, str(row.var.attr)
    saved, k = schedule.mark(), str(stmt.axes[0].var.attr)
    running, tile, lanes = str(stmt.accumulators[0].var.attr), f"{name}.o", f"{name}.i"
    try:
        schedule.split(name, native, "overlap")
        if shared:
            shares = min(plan.threads, ARRAY_BYTES // (vectors * plan.target.vector_bytes))
            points = -(-points // shares)
            schedule.share_reduction(running, tile, k, points).parallel(f"{k}.o")
            plan.why.append(f"{k} is shared out to {plan.threads} threads")
            running, k = f"{running}.b", f"{k}.i"
        else:
            parallelise(plan, [r.var.attr for r in rows[:-1]], amount)
        blocks = 0
        while adds(stmt) and (block := block_of(points, STEPS, STEPS)):
            schedule.block_reduction(running, tile, k, block)
            schedule.vectorize(f"{lanes}.begin{blocks or ''}")
            running, k, points, blocks = f"{running}.b", f"{k}.i", block, blocks + 1
        for end in range(blocks + shared):
            schedule.vectorize(f"{lanes}.end{end or ''}")
        schedule.decompose_reduction(running, tile)
        for suffix in (".z", "", ".f"):
            schedule.unroll(f"{tile}{suffix}").vectorize(f"{lanes}{suffix}")
    except ScheduleError:
        schedule.reset(saved)
        return False
    plan.why.append(f"running results of {n} columns in registers")
    return True


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


def _woven(plan: Plan, rows: list[For], stmt: Reduce, amount: int) -> bool:
    """Reduce over so few columns that one vector holds several points of each.

    These have running results of their own: points side by side and the columns are one loop.
    """
    row, cost = rows[-1], reduce_cost(stmt)
    n, native = constant(row.extent), max(plan.target.vector_bytes // cost.itemsize, 1)
    points = product(a.extent for a in stmt.axes)
    if n is None or not 2 <= n < LEAST_COLUMNS or len(rows) < 2 or points < 2 * native or (
            not _is_light(stmt, cost)):
        return False
    schedule, running = plan.schedule, str(stmt.accumulators[0].var.attr)
    saved, name, k = schedule.mark(), str(row.var.attr), str(stmt.axes[0].var.attr)
    if any(step == n for _, step in strides(Space(plan.kernel), stmt.body, rows[-2].var)):
        return False  # the next columns follow
    try:
        block = block_of(points, native * STEPS, STEPS) if adds(stmt) else 0
        if block:
            schedule.block_reduction(running, name, k, block)
            running, k = f"{running}.b", f"{k}.i"
        side, ragged = f"{k}.i", points % (block or native) != 0
        schedule.split(k, native).decompose_reduction(running, name, partial=(side,))
        schedule.layout(f"{running}.r", (1, 0))
        if ragged and not block:
            schedule.peel(f"{k}.o")  # the rest needs no masks
        for end in (".z", "", ".t")[: 3 if ragged and not block else 2]:
            schedule.reorder(f"{side}{end}", f"{name}{end}").fuse(f"{side}{end}", f"{name}{end}")
            both = f"{side}{end}_{name}{end}"
            schedule.split(both, native).unroll(f"{both}.o").vectorize(f"{both}.i")
        schedule.unroll(f"{name}.f").unroll(f"{side}.f")
    except ScheduleError:
        schedule.reset(saved)
        return False
    parallelise(plan, [str(r.var.attr) for r in rows[:-1]], amount)
    plan.why.append(f"{native} points of {n} columns side by side")
    return True


def _is_light(stmt: Reduce, cost: Cost) -> bool:
    """Whether a reduction over one axis has one running result, and little else in registers."""
    return (len(stmt.accumulators) == 1 and len(stmt.axes) == 1 and cost.ops <= LIGHT
            and constant(stmt.axes[0].extent) is not None)


def _narrow(plan: Plan, rows: list[For], stmt: Reduce, amount: int) -> bool:
    """Reduce over a few columns at a time, if no more of them lie side by side in memory.

    Points of the reduction are taken side by side instead: each has running results of its own.
    """
    row, cost = rows[-1], reduce_cost(stmt)
    n, name = size_of(row.extent), str(row.var.attr)
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    if constant(row.extent) is None or len(rows) < 2 or not LEAST_COLUMNS <= n < native or (
            cost.heavy or len(stmt.axes) != 1):
        return False
    space = Space(plan.kernel)
    if any(step == n for _, step in strides(space, stmt.body, rows[-2].var)):
        return False  # the next columns follow
    k, points = str(stmt.axes[0].var.attr), size_of(stmt.axes[0].extent)
    saved = plan.schedule.mark()
    try:
        if n & (n - 1):
            plan.schedule.split(name, 1 << n.bit_length(), "mask").vectorize(f"{name}.i")
        else:
            plan.schedule.vectorize(name)
        if _piles_up(stmt):
            cascade(plan, k, points)
            if plan.attempt("split", f"{k}.i", SIDE_BY_SIDE):
                plan.attempt("unroll", f"{k}.i.i")
        elif constant(stmt.axes[0].extent) is not None and points >= 2 * SIDE_BY_SIDE:
            plan.schedule.split(k, SIDE_BY_SIDE, "peel").unroll(f"{k}.i")
    except ScheduleError:
        plan.schedule.reset(saved)
        return False
    parallelise(plan, [str(r.var.attr) for r in rows[:-1]], amount)
    plan.why.append(f"{n} columns in a vector")
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
    return adds(stmt) and n is not None and n >= 2 * STEPS


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
    block = block_of(n, STEPS, STEPS) if memory else 0
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
    return (plan.is_worth_threads(amount // 2) and len(rows) == 1
            and n < 64 * plan.threads and points >= 64 * plan.threads)


def _shared_columns(plan: Plan, rows: list[For], stmt: Reduce, lanes: int, points: int) -> bool:
    """Give each thread a share of the matrix rows, because there are few columns."""
    axis = stmt.axes[0]
    n = constant(axis.extent)
    if n is None or len(stmt.axes) != 1:
        return False
    chunks = min(16, max(n // 16, 1))
    factor = -(-n // chunks)
    factor = -(-factor // STEP) * STEP
    schedule, name, k = plan.schedule, rows[-1].var.attr, axis.var.attr
    accumulator = stmt.accumulators[0].var.attr
    saved = schedule.mark()
    width = size_of(rows[-1].extent)
    lanes = min(lanes, width)
    lanes = 1 << (lanes.bit_length() - 1)
    try:
        schedule.split(name, lanes, "overlap").split(k, factor, "mask")
        schedule.decompose_reduction(accumulator, f"{name}.o", partial=(f"{k}.o",), scope="local")
        for running in stmt.accumulators:
            schedule.layout(f"{running.var.attr}.r", (2, 0, 1))
        schedule.split(f"{k}.i", STEP)
        schedule.reorder(f"{k}.o", f"{k}.i.o", f"{name}.o", f"{k}.i.i", f"{name}.i")
        schedule.unroll(f"{k}.i.i").parallel(f"{k}.o")
        schedule.reorder(f"{k}.o.z", f"{name}.o.z", f"{name}.i.z")
        for suffix in (".z", "", ".f"):
            schedule.vectorize(f"{name}.i{suffix}")
    except ScheduleError:
        schedule.reset(saved)
        return False
    plan.why.append(f"{-(-n // factor)} chunks of {k} on {plan.threads} threads")
    return True
