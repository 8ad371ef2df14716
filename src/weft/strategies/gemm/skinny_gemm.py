"""The stream form of a contraction: few rows times a matrix that no cache holds.

Time goes into reading the matrix, so it is read as it lies in memory: a handful of its rows at a
time from left to right, against results that stay in the caches. A tile that ran down the
whole reduced axis would read a few lines from every page instead. Vectors times matrices of their
own are the same, one after the other. For some hundred rows the next block of the matrix is copied
into the first cache while one is used.
"""

from __future__ import annotations

import math
from typing import Final

from weft.ir.record import Record
from weft.ir.stmt import For, Load, Memory
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    is_fixed,
    native_lanes,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.nest import (
    Cost,
    Plan,
    flat_stride,
    parallelise,
    product,
    registers,
    shares_evenly,
    size_of,
)
from weft.strategies.common.tile_sizes import BROAD
from weft.strategies.gemm.gemv import gemv_row_shares
from weft.target import ARRAY_BYTES

BATCH_ROWS: Final = 2  # for which a matrix is not read in strips, though a cache holds it
ASKED_TILES: Final = 4  # one below the other, in whose time the next columns can be asked for
ASKED_VECTORS: Final = 3  # of a row of their results
MOST_SUMS: Final = 25  # vectors of results that are in registers
ASKED_DEPTH: Final = range(64, 129)  # rows of the matrix that they read meanwhile
ASKED_COLUMNS: Final = 256
COPIED_ROWS: Final = 144  # from which on a block of the matrix is copied while another is used
UNCOPIED_ROWS: Final = 192  # from which on other forms are better where that cannot be,
TWICE: Final = 16  # or where more than this part of the columns would be computed twice


class _Found(Record):
    """The loops along the rows of the matrix, over the few rows, and over several matrices."""

    wide: For
    row: For | None
    batch: tuple[For, ...]
    matrix: Memory


def _find(plan: Plan, pattern: Pattern, p: Parameters) -> _Found | None:
    """Return the loops of the form, None if it does not fit."""
    space = Space(plan.kernel)
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    if len(pattern.reduce.axes) != 1 or any(s.mask is not None for s in loads) or (
            not is_fixed(pattern)):
        return None
    for wide in pattern.rows:
        steps = {s.memory: flat_stride(space, Access(s), wide.var) for s in loads}
        moving = [m for m, step in steps.items() if step]
        if len(moving) != 1 or steps[moving[0]] != 1:
            continue
        batch = tuple([r for r in pattern.rows if r is not wide and any(
            flat_stride(space, Access(s), r.var) for s in loads if s.memory in moving)])
        few = [r for r in pattern.rows if r is not wide and r not in batch]
        if len(few) > 1 or any(size_of(r.extent) >= p.stream_rows for r in few):
            continue
        whole = product([pattern.reduce.axes[0].extent, wide.extent]) * moving[0].dtype.itemsize
        every = whole * product([r.extent for r in batch])
        seldom = product([r.extent for r in few]) <= BATCH_ROWS and (
            every > 2 * plan.target.l2_bytes)
        if whole > plan.target.l2_bytes or (batch and (not few or seldom)):
            return _Found(wide, few[0] if few else None, batch, moving[0])
    return None


def schedule_stream(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the stream form; whether it fits and pays."""
    found = _find(plan, pattern, p)
    if found is None:
        return False
    wide, row = found.wide, found.row
    rows = 1 if row is None else size_of(row.extent)
    n, depth = size_of(wide.extent), size_of(pattern.reduce.axes[0].extent)
    itemsize = Cost(pattern.rows[-1].body).itemsize
    native = native_lanes(plan, pattern)
    lanes = native * (4 if rows <= 4 else 2)
    # Each row is a stream of its own for the prefetcher; with little to compute, fewer are better.
    deep = p.stream_depth if rows > 2 else p.stream_depth // 2
    if found.batch and rows > 1:
        lanes = max(min(lanes, 1 << (n.bit_length() - 2)), 2 * native)
    if n < 2 * lanes or depth < 2 * deep:
        return False
    if _panels_pay(plan, p, rows, n * itemsize, depth):
        return False
    high, pieces = tile_rows(rows, p.rows), 1
    block = _asked_block(plan, pattern, p, rows, n)
    if block:
        pieces = _pieces(plan, -(-n // native), rows)
        deep, high = block, _tall(rows, p.rows, pieces)
        lanes = pieces * native
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    # Multiplied with one row, a matrix is waited for; several rows have more to compute.
    amount = work_of(plan, pattern, waits=rows == 1)
    alike = [size_of(r.extent) for r in found.batch]
    sums = n * pattern.reduce.accumulators[0].var.dtype.itemsize
    shares = gemv_row_shares(plan, alike, depth, n * depth, sums) if (
        rows == 1 and plan.threads * sums <= ARRAY_BYTES) else 1  # else they share the columns
    whole = depth % (shares * deep) == 0
    copied = rows >= COPIED_ROWS and block > 0 and whole and shares == 1
    # As few blocks of columns as the caches and the threads ask for, all of one width.
    # What several tiles of rows add to is used seldom enough to lie in the second cache.
    held = p.stream_bytes if rows <= p.rows else max(
        p.stream_bytes, min(plan.target.l2_bytes // 4, plan.costs.held_result_bytes))
    most = max(held // (-(-rows // high) * high * itemsize) // lanes, 2) * lanes
    blocks, step = -(-n // most), 1
    if plan.is_worth_threads(amount) and shares == 1 and not any(
            shares_evenly(size, plan.threads) for size in alike):
        step = plan.threads
        blocks = -(-blocks // step) * step
    width = n if blocks == 1 else _width(n, blocks, step, lanes)
    blocks = -(-n // width)
    if rows >= UNCOPIED_ROWS and (not copied or TWICE * (blocks * width - n) > n):
        return False
    j, k = wide.var.attr, pattern.reduce.axes[0].var.attr
    outer = [r.var.attr for r in found.batch]
    if blocks > 1:
        schedule.split(j, width, "overlap")
        outer, j = [*outer, f"{j}.o"], f"{j}.i"
    schedule.split(j, lanes, "overlap")
    tile = [] if row is None else [row.var.attr]
    groups: list[str] = []
    if row is not None and rows > p.rows:
        tile_split(plan, row.var.attr, row.extent, high)
        groups, tile = [f"{row.var.attr}.o"], [f"{row.var.attr}.i"]
    schedule.reorder(*outer, f"{j}.o", *groups, *tile, f"{j}.i")
    lane = f"{j}.i"
    if pieces > 1:
        schedule.split(lane, native)
        tile, lane = [*tile, f"{lane}.o"], f"{lane}.i"
    ends = ["begin", "end"]
    if shares > 1:
        depth = -(-depth // shares)
        top = outer[len(found.batch)] if blocks > 1 else f"{j}.o"
        schedule.share_reduction(name, top, k, depth)
        schedule.parallel(f"{k}.o").vectorize(f"{lane}.end")
        name, k, ends = f"{name}.b", f"{k}.i", ["begin", "end1"]
        plan.why.append(f"{shares} shares of {depth} steps along {k} on {plan.threads} threads")
    else:
        parallelise(plan, outer, amount)
    root = math.isqrt if depth % deep else _even_root
    many = root(depth // deep) if rows > 2 else 1
    if depth > p.stream_sums * deep and many > 1:
        # A result that so many sums are added to rounds: those of a larger block come first.
        schedule.block_reduction(name, f"{j}.o", k, deep * many)
        name, k = f"{name}.b", f"{k}.i"
        ends += ["begin1", "end1"]
    schedule.block_reduction(name, f"{j}.o", k, deep)
    for end in ends:
        schedule.vectorize(f"{lane}.{end}")
    if groups and len(ends) == 2 and plan.attempt(
            "fuse_prologue_epilogue", f"{j}.o.end", f"{k}.o", groups[0]):  # fmt: skip
        plan.why.append("results leave with the last terms")
    unroll = 4 if rows > 1 else 8
    if not block and whole and deep % unroll == 0:
        schedule.split(f"{k}.i", unroll)
    else:
        unroll = 0
    if copied:
        schedule.stage(found.matrix.name, f"{j}.o", (f"{k}.i", *tile[1:], lane))
        schedule.vectorize(f"{lane}.s")
        for piece in tile[1:]:
            schedule.unroll(f"{piece}.s")
    schedule.decompose_reduction(f"{name}.b", tile[0] if tile else lane)
    if copied:
        schedule.software_pipeline(found.matrix.name, f"{k}.i", f"{j}.o",
                                   2 * -(-deep * high // rows), read=f"{k}.i.s", first=groups[0],
                                   around=f"{k}.o")
        plan.why.append(f"the next rows of {found.matrix.name} are copied meanwhile")
    elif block and plan.attempt("prefetch", found.matrix.name, f"{k}.i", f"{j}.o",
                                granularity="row", first=groups[0], around=f"{k}.o"):
        plan.why.append(f"the next rows of {found.matrix.name} are asked for meanwhile")
    if unroll:
        schedule.unroll(f"{k}.i.i")
    for suffix in (".z", "", ".f"):
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
        schedule.vectorize(f"{lane}{suffix}")
    plan.why.append(f"contraction: {deep} rows of the matrix at a time, "
                    f"{rows}×{width} results in cache along {j}")
    return True


def _panels_pay(plan: Plan, p: Parameters, rows: int, length: int, depth: int) -> bool:
    """Whether panels of the matrix are better than its rows of `length` bytes as they lie.

    Units that take vectors whole wait for those across two lines, which copies have not. Panels of
    broad tiles must not be cut.
    """
    if not plan.target.whole_vectors or depth * BROAD.vectors * plan.target.vector_bytes > (
            p.panel_bytes):
        return False
    return rows >= (p.pack_rows * 5 // 6 if length % plan.target.line_bytes else COPIED_ROWS)


def _width(n: int, blocks: int, step: int, lanes: int) -> int:
    """Return how wide the blocks of columns are: few are computed twice, then there are few."""
    shares = [-(-n // b) for b in range(blocks, 2 * blocks, step)]
    widths = [-(-each // lanes) * lanes for each in shares]
    least = min(-(-n // w) * w for w in widths)
    return next(w for w in widths if 100 * (-(-n // w) * w) <= 101 * least)


def _asked_block(plan: Plan, pattern: Pattern, p: Parameters, rows: int, n: int) -> int:
    """Return how many rows are read at a time if the next columns are asked for, 0 if too few."""
    whole = n * Cost(pattern.rows[-1].body).itemsize % plan.target.line_bytes == 0
    tiles = ASKED_TILES if whole else 2 * ASKED_TILES  # vectors lie across two lines
    depth, usual = size_of(pattern.reduce.axes[0].extent), ASKED_DEPTH[len(ASKED_DEPTH) // 2]
    if rows < tiles * p.rows or n < ASKED_COLUMNS or depth <= 2 * usual:
        return 0
    fitting = [d for d in ASKED_DEPTH if depth % d == 0]
    if rows >= COPIED_ROWS:  # two blocks lie in the first cache
        width = ASKED_VECTORS * plan.target.vector_bytes
        most = 3 * plan.target.l1_bytes // (8 * width)
        fitting = [d for d in fitting if d <= most] or fitting
    return min(fitting, key=lambda d: abs(d - usual), default=usual)


def _pieces(plan: Plan, vectors: int, rows: int) -> int:
    """Return how many vectors make a row of a tile: three, or more that fill a short row better."""
    if registers(plan) < 32:
        return 1
    if not plan.target.whole_vectors or rows < COPIED_ROWS // 2:
        return ASKED_VECTORS
    share = -(-vectors // plan.threads)
    return min((ASKED_VECTORS, ASKED_VECTORS + 2), key=lambda v: -(-share // v) * v)


def _tall(n: int, most: int, pieces: int) -> int:
    """Return how many rows a tile takes: the fewest steps, two vectors' time of each for a tile."""
    most = min(most, MOST_SUMS // pieces)
    return min(range(most, most // 2, -1), key=lambda r: -(-n // r) * (r * pieces + 2))


def _even_root(n: int) -> int:
    """Return the divisor of a number that is next to its root from below."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
