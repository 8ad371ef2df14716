"""The inner form of a contraction: results as vectors of partial sums along a reduced axis."""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.schedule.dependence import Space, accesses
from weft.schedule.space import constant
from weft.strategies.contraction_pattern import (
    MAC_SPEED,
    Parameters,
    Pattern,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
)
from weft.strategies.nest import (
    Plan,
    flat_stride,
    power_above,
    product,
    size_of,
    work,
)


def inner_lanes(plan: Plan, pattern: Pattern) -> int:
    """Return how many lanes of one register the inner form would fill, 0 if it does not fit."""
    axis = _inner_axis(plan, pattern)
    return 0 if axis is None else min(size_of(axis.extent), native_lanes(plan, pattern))


def _inner_axis(plan: Plan, pattern: Pattern) -> st.Axis | None:
    """Return the reduced axis along which both operands are contiguous, None if none is."""
    space = Space(plan.kernel)
    inside = accesses(pattern.reduce.body)
    native = native_lanes(plan, pattern)
    along = [a for a in pattern.reduce.axes if 2 * size_of(a.extent) >= max(native, 4)
             and all(flat_stride(space, x, a.var) in (0, 1) for x in inside)
             and any(flat_stride(space, x, a.var) == 1 for x in inside)]
    return max(along, key=lambda a: size_of(a.extent), default=None)


def schedule_inner(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the inner form; whether it fits."""
    native = native_lanes(plan, pattern)
    axis = _inner_axis(plan, pattern)
    if axis is None:
        return False
    lefts = [r for r in pattern.rows if r.var in pattern.left - pattern.right]
    rights = [r for r in pattern.rows if r.var in pattern.right - pattern.left]
    tile = [max(side, key=lambda r: size_of(r.extent)) for side in (lefts, rights) if side]
    tile = [r for r in tile if constant(r.extent) is not None and size_of(r.extent) > 1]
    if not tile:
        return False
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    sizes = [tile_rows(size_of(r.extent), most) for r, most
             in zip(tile, (p.inner_rows, p.inner_columns), strict=False)]
    k = axis.var.attr
    lanes = min(native, power_above(size_of(axis.extent)))
    while product(ex.index(s) for s in sizes) * lanes < 8 * native and lanes < 64 and (
            size_of(axis.extent) >= 4 * lanes):
        lanes *= 2
    schedule.split(k, lanes, "mask")
    for loop, size in zip(tile, sizes, strict=True):
        tile_split(plan, loop.var.attr, loop.extent, size)
    rest = [r.var.attr for r in pattern.rows if all(r is not t for t in tile)]
    names = [r.var.attr for r in reversed(tile)]
    order_loops(plan, [*rest, *[f"{t}.o" for t in names]], [f"{t}.i" for t in reversed(names)],
           work((pattern.rows[0],)) // MAC_SPEED)
    first = f"{tile[0].var.attr}.i"
    schedule.decompose_reduction(name, first, partial=(f"{k}.i",))
    for suffix in (".z", "", ".f"):
        for loop in tile:
            schedule.unroll(f"{loop.var.attr}.i{suffix}")
        schedule.vectorize(f"{k}.i{suffix}")
    shape = "×".join(map(str, sizes))
    plan.why.append(f"contraction: {shape} results as {lanes} partial sums along {k}")
    return True
