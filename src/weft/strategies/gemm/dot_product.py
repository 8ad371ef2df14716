"""The inner form of a contraction: results as vectors of partial sums along a reduced axis."""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.record import Record
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.accumulation_error import lane_chains
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    copy_strided,
    epilogue_cost,
    lane_sums,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
    time_of_moves,
)
from weft.strategies.common.nest import (
    Cost,
    Plan,
    flat_stride,
    power_above,
    product,
    registers,
    size_of,
    work,
)

FAR_ROWS: Final = 8  # of a matrix that comes from memory: as many places are fetched ahead
FAR_LEAST: Final = 4  # times as many that a row has at least
FAR_CACHES: Final = 4  # second ones: what is larger comes from memory, or a cache that others share


class _Found(Record):
    """The reduced axis of the lanes, the loops of the tile, and the operand to turn for it.

    The loops stand in the order in which they are put inside; ``turned`` names the memory that is
    not contiguous along the axis, which only the last of them moves ("" if there is none).
    """

    axis: st.Axis
    tile: tuple[st.For, ...]
    turned: str


def dot_product_cost(plan: Plan, pattern: Pattern, p: Parameters) -> int | None:
    """Return about how many cycles the inner form takes, None if it does not fit."""
    found = _find(plan, pattern)
    if found is None:
        return None
    native = native_lanes(plan, pattern)
    depth = size_of(found.axis.extent)
    results = product(r.extent for r in pattern.rows)
    points = product(a.extent for a in pattern.reduce.axes) // max(depth, 1)
    sizes = _sizes(plan, found, p)
    held, read = product(ex.index(s) for s in sizes), sum(sizes) + (len(sizes) < 2)
    slow = max(held, read, 4)
    if plan.target.whole_vectors:
        slow = held + 2 * read  # all that is read are whole vectors
    tiles = results // product(r.extent for r in found.tile)
    for loop, size in zip(found.tile, sizes, strict=True):
        tiles *= -(-size_of(loop.extent) // size)
    cost = tiles * points * -(-depth // native) * slow
    cost = max(cost, _traffic(plan, pattern, found, sizes) * tiles)
    # Of one result after the other:
    cost += results * (plan.costs.lane_sum_cycles + epilogue_cost(pattern))
    if found.turned:
        others = product(r.extent for r in pattern.rows if r in found.tile[:-1])
        cost += time_of_moves(plan, pattern, results // max(others, 1) * points * depth)
    return cost


def _traffic(plan: Plan, pattern: Pattern, found: _Found, sizes: list[int]) -> int:
    """Return the cycles in which one tile gets its operands past the first cache."""
    row = product(a.extent for a in pattern.reduce.axes) * Cost(pattern.rows[-1].body).itemsize
    whole = row * size_of(found.tile[0].extent)
    if whole <= plan.target.l1_bytes // 2:
        return 0
    target = plan.target
    rate = plan.costs.l2_rate if whole <= target.l2_bytes else (
        plan.costs.l3_rate if whole <= target.l3_bytes else plan.costs.memory_rate)
    cycles = row * sizes[0] // rate
    if _reads_once(plan, pattern, found):  # by the first of the tiles side by side
        cycles = cycles // -(-size_of(found.tile[-1].extent) // sizes[-1]) + row * sizes[0] // (
            plan.costs.l2_rate)
    if row * (sizes[0] + sizes[-1]) > target.l1_bytes * 3 // 4:  # the other side goes, too
        other = row * size_of(found.tile[-1].extent)
        cycles += row * sizes[-1] // (plan.costs.l2_rate if other <= target.l2_bytes else rate)
    return 2 * cycles if target.whole_vectors else cycles  # two multiplications in each


def _sizes(plan: Plan, found: _Found, p: Parameters) -> list[int]:
    """Return the sides of the tile: those with the least to multiply and to read in all.

    The sums of a tile, one side of it and an element of the other are in registers.
    """
    room = registers(plan) - 1
    extents = [size_of(r.extent) for r in found.tile]
    most = [min(n, side) for n, side in zip(extents, (p.inner_rows, p.inner_columns),
                                            strict=False)]
    if len(most) == 1:
        if _is_far(plan, found) and p.inner_rows == Parameters().inner_rows:
            most = [min(extents[0], FAR_ROWS)]
        return [tile_rows(extents[0], most[0])]
    best, least = most, 0
    for rows in range(most[0], 0, -1):
        for columns in range(most[1], 0, -1):
            held, read = rows * columns, rows + columns
            if held + min(rows, columns) > room:
                continue
            count = -(-extents[0] // rows) * -(-extents[1] // columns)
            cost = count * (2 * max(held, read, 4) + read)
            if least == 0 or cost < least:
                best, least = [rows, columns], cost
    return best


def _is_far(plan: Plan, found: _Found) -> bool:
    """Whether the one matrix of a product with a vector comes from memory, as far as is known."""
    whole = 4 * size_of(found.tile[0].extent) * size_of(found.axis.extent)  # bytes, about
    return len(found.tile) == 1 and (
        whole > min(plan.target.l3_bytes // 2, FAR_CACHES * plan.target.l2_bytes))


def _fetch_rows(plan: Plan, pattern: Pattern, found: _Found, lanes: int,
                steps: list[tuple[str, int]]) -> None:  # fmt: skip
    """Ask for what comes next in rows side by side: all of them go to another page at once.

    A core follows each row within its page, and waits for the first lines of the next ones.
    """
    k, space = str(found.axis.var.attr), Space(plan.kernel)
    loop = f"{k}.o"
    for axis, _ in steps:
        loop = f"{loop}.i" if axis == loop else loop
    for read in accesses(pattern.reduce.body):
        if not flat_stride(space, read, found.tile[0].var):
            continue
        size = read.memory.dtype.itemsize
        if lanes * size % plan.target.line_bytes == 0 and (
                size * size_of(found.axis.extent) >= FAR_LEAST * plan.costs.prefetch_far_bytes):
            plan.attempt("prefetch", read.memory.name, f"{k}.i", loop,
                         plan.costs.prefetch_far_bytes // (lanes * size))


def _find(plan: Plan, pattern: Pattern) -> _Found | None:
    """Return what the form is built from: both operands contiguous, or one that can be turned."""
    space = Space(plan.kernel)
    inside = accesses(pattern.reduce.body)
    native = native_lanes(plan, pattern)
    lefts = [r for r in pattern.rows if r.var in pattern.left - pattern.right]
    rights = [r for r in pattern.rows if r.var in pattern.right - pattern.left]
    tile = [max(side, key=lambda r: size_of(r.extent)) for side in (lefts, rights) if side]
    tile = [r for r in tile if constant(r.extent) is not None and size_of(r.extent) > 1]
    if not tile:
        return None
    best: _Found | None = None
    for a in pattern.reduce.axes:
        if 2 * size_of(a.extent) < max(native, 4) or (
                best is not None and size_of(a.extent) <= size_of(best.axis.extent)):
            continue
        steps = [flat_stride(space, x, a.var) for x in inside]
        if 1 not in steps:
            continue
        far = [x for x, step in zip(inside, steps, strict=True) if step not in (0, 1)]
        if not far:
            best = _Found(a, tuple(tile), "")
        elif len(far) == 1 and constant(a.extent) is not None and len(tile) == 2:
            moving = [r for r in tile if flat_stride(space, far[0], r.var) != 0]
            others = [r for r in tile if r not in moving]
            if len(moving) == 1 and flat_stride(space, far[0], moving[0].var) == 1 and all(
                    s.mask is None for s in pattern.reduce.body if isinstance(s, st.Load)):
                best = _Found(a, (*others, *moving), far[0].memory.name)
    return best


def _reads_once(plan: Plan, pattern: Pattern, found: _Found) -> bool:
    """Whether the first operand comes from far, and its rows are better read once.

    The other one lies in the second cache then.
    """
    if found.turned or len(found.tile) < 2:
        return False
    row = product(a.extent for a in pattern.reduce.axes) * Cost(pattern.rows[-1].body).itemsize
    first, last = (row * size_of(loop.extent) for loop in found.tile)
    return first > plan.target.l2_bytes >= 2 * last


def _amount(plan: Plan, pattern: Pattern, reused: bool) -> int:
    """Return the weighted operations: those of the terms, or of reading them from a far cache.

    Without a tile, elements of a matrix are not `reused`, and each is waited for.
    """
    space = Space(plan.kernel)
    loops = [(x.var, x.extent) for x in pattern.rows]
    loops += [(x.var, x.extent) for x in pattern.reduce.axes]
    read = sum(a.memory.dtype.itemsize * product(
        extent for var, extent in loops if flat_stride(space, a, var) != 0)
        for a in accesses(pattern.reduce.body))
    speed = plan.costs.term_rate if reused else plan.costs.waiting_term_rate
    return max(work((pattern.rows[0],)) // speed, read // plan.costs.operation_bytes)


def schedule_inner(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the inner form; whether it fits."""
    native = native_lanes(plan, pattern)
    found = _find(plan, pattern)
    if found is None:
        return False
    schedule = plan.schedule
    axis, tile = found.axis, found.tile
    name = pattern.reduce.accumulators[0].var.attr
    sizes = _sizes(plan, found, p)
    k = axis.var.attr
    lanes = min(native, power_above(size_of(axis.extent)))
    while product(ex.index(s) for s in sizes) * lanes < 8 * native and lanes < 64 and (
            size_of(axis.extent) >= 4 * lanes):
        lanes *= 2
    for loop, size in zip(tile, sizes, strict=True):
        tile_split(plan, loop.var.attr, loop.extent, size)
    rest = [r.var.attr for r in pattern.rows if all(r is not t for t in tile)]
    order = list(tile if _reads_once(plan, pattern, found) else reversed(tile))
    names = [str(r.var.attr) for r in order]
    order_loops(plan, [*rest, *[f"{t}.o" for t in names]], [f"{t.var.attr}.i" for t in tile],
                _amount(plan, pattern, len(tile) > 1), keep=bool(found.turned))
    if found.turned:
        space = Space(plan.kernel)
        load = next(s for s in pattern.reduce.body
                    if isinstance(s, st.Load) and s.memory.name == found.turned)
        used = set().union(*[space.symbols(i) for i in load.index])
        dims = [a.var.attr for a in pattern.reduce.axes if a is not axis and a.var in used]
        schedule.stage(found.turned, f"{names[0]}.o", (*dims, f"{names[0]}.i", k))
        copy_strided(plan, [f"{names[0]}.i.s"], f"{k}.s")
    steps = lane_chains(pattern, p, k, lanes)
    schedule.split(k, lanes, "mask")
    lane_sums(plan, name, [f"{loop.var.attr}.i" for loop in tile], f"{k}.i", steps)
    if _is_far(plan, found):
        _fetch_rows(plan, pattern, found, lanes, steps)
    shape = "×".join(map(str, sizes))
    plan.why.append(f"contraction: {shape} results as {lanes} partial sums along {k}"
                    + (f", {found.turned} turned for them" if found.turned else ""))
    return True
