"""The stream form of a contraction: few rows times a matrix that no cache holds.

Time goes into reading the matrix, so it is read as it lies in memory: a handful of its rows at a
time from left to right, against results that stay in the first caches. A tile that ran down the
whole reduced axis would read a few lines from every page instead.
"""

from __future__ import annotations

from weft.ir.stmt import For, Load
from weft.schedule.dependence import Access, Space
from weft.schedule.space import constant
from weft.strategies.contraction_pattern import (
    MAC_SPEED,
    Parameters,
    Pattern,
    native_lanes,
)
from weft.strategies.nest import Cost, Plan, flat_stride, parallelise, size_of, work


def _find(plan: Plan, pattern: Pattern, p: Parameters) -> tuple[For, For | None] | None:
    """Return the loop along the rows of the matrix and the loop over the few rows, if it fits."""
    if len(pattern.reduce.axes) != 1 or len(pattern.rows) > 2:
        return None
    space = Space(plan.kernel)
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    if any(s.mask is not None for s in loads):
        return None
    for wide in pattern.rows:
        row = next((r for r in pattern.rows if r is not wide), None)
        steps = {s.memory: flat_stride(space, Access(s), wide.var) for s in loads}
        moving = [m for m, step in steps.items() if step]
        if len(moving) != 1 or steps[moving[0]] != 1:
            continue
        if row is not None and (size_of(row.extent) > p.rows or any(
                flat_stride(space, Access(s), row.var) for s in loads if s.memory in moving)):
            continue
        k = pattern.reduce.axes[0]
        whole = size_of(wide.extent) * size_of(k.extent) * moving[0].dtype.itemsize
        extents = [k.extent, *[r.extent for r in pattern.rows]]
        if whole > plan.target.l2_bytes and all(constant(e) is not None for e in extents):
            return wide, row
    return None


def schedule_stream(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the stream form; whether it fits and pays."""
    found = _find(plan, pattern, p)
    if found is None:
        return False
    wide, row = found
    rows = 1 if row is None else size_of(row.extent)
    n, depth = size_of(wide.extent), size_of(pattern.reduce.axes[0].extent)
    native = native_lanes(plan, pattern)
    lanes = native * (4 if rows <= 4 else 2)
    # Each row is a stream of its own for the prefetcher; with little to compute, fewer are better.
    deep = p.stream_depth if rows > 2 else p.stream_depth // 2
    if n < 2 * lanes or depth < 2 * deep:
        return False
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    itemsize = Cost(pattern.rows[-1].body).itemsize
    amount = work((pattern.rows[0],)) // MAC_SPEED
    # As few blocks of columns as the caches and the threads ask for, all of one width.
    most = max(p.stream_bytes // (rows * itemsize), 2 * lanes)
    blocks = -(-n // most)
    if plan.threads > 1:
        blocks = -(-blocks // plan.threads) * plan.threads
    width = n if blocks == 1 else (-(-n // blocks) + lanes - 1) // lanes * lanes
    j, k = wide.var.attr, pattern.reduce.axes[0].var.attr
    outer: list[str] = []
    if blocks > 1:
        schedule.split(j, width, "overlap")
        outer, j = [f"{j}.o"], f"{j}.i"
    schedule.split(j, lanes, "overlap")
    tile = [] if row is None else [row.var.attr]
    schedule.reorder(*outer, f"{j}.o", *tile, f"{j}.i")
    parallelise(plan, outer, amount)
    schedule.block_reduction(name, f"{j}.o", k, deep)
    schedule.vectorize(f"{j}.i.begin").vectorize(f"{j}.i.end")
    unroll = 4 if rows > 1 else 8
    if depth % deep == 0 and deep % unroll == 0:
        schedule.split(f"{k}.i", unroll)
    else:
        unroll = 0
    schedule.decompose_reduction(f"{name}.b", tile[0] if tile else f"{j}.i")
    if unroll:
        schedule.unroll(f"{k}.i.i")
    for suffix in (".z", "", ".f"):
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
        schedule.vectorize(f"{j}.i{suffix}")
    plan.why.append(f"contraction: {deep} rows of the matrix at a time, "
                    f"{rows}×{width} results in cache along {j}")
    return True
