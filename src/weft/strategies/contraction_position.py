"""The position form: windows of an image with few channels of results (depthwise, grouped, one).

Lanes along the channels would stay empty, so they run along the positions of a row. The box of the
image that some rows read is copied once, without masks; a tile of channels x rows x vectors of
positions lives in registers, and each step multiplies a piece of the box with single weights. Where
a tap lies outside of the image, lanes keep their sums: no weight is multiplied there.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir.stmt import For
from weft.schedule.subscripts import Access, Space, accesses
from weft.strategies.contraction_chains import chain_levels, cut_sums, short_chains
from weft.strategies.contraction_image import (
    BOX_BYTES,
    Windowed,
    box_of_rows,
    copy_box,
    find_windows,
    is_adjoint,
    sum_chains,
    taps_last,
)
from weft.strategies.contraction_pattern import (
    MAC_SPEED,
    Parameters,
    Pattern,
    is_fixed,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
)
from weft.strategies.nest import Plan, flat_stride, loop_of, power_above, product, size_of, work

STEPS: Final = (1, 2, 3, 4)  # from one result to the next
UNROLLED_POINTS: Final = 12  # points of a window that are written out, so that loads are shared


def schedule_position(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the position form; whether it fits."""
    found = find_windows(plan, pattern)
    if found is None or len(found.channels) > 1 or not found.positions:
        return False
    space, x = Space(plan.kernel), found.positions[-1]
    stored = [a for a in accesses(pattern.rows[-1].body) if a.write]
    # Remainders of a strided adjoint leave gaps between results: other forms take several channels.
    steps = STEPS[:1] if found.channels else STEPS
    if not is_fixed(pattern) or size_of(x.extent) < 4 or any(
            flat_stride(space, a, x.var) not in steps for a in stored):
        return False
    if space.stride(found.image.index[-1], x.var) in (0, None) or flat_stride(
            space, Access(found.image), x.var) is None:
        return False
    _apply(plan, pattern, found, p)
    return True


def _apply(plan: Plan, pattern: Pattern, found: Windowed, p: Parameters) -> None:
    schedule, pattern = plan.schedule, taps_last(plan, pattern, found, found.positions[-2:-1])
    chains = sum_chains(plan, pattern, found, short_chains(pattern, p))
    name = pattern.reduce.accumulators[0].var.attr
    # 0 times an infinite weight would be NaN.
    plan.attempt("omit", name, alone=is_adjoint(Space(plan.kernel), pattern, found))
    native = native_lanes(plan, pattern)
    width = size_of(found.positions[-1].extent)
    channels = [(c.var.attr, tile_rows(size_of(c.extent), p.rows)) for c in found.channels]
    held = product_of(channels)
    y = found.positions[-2] if len(found.positions) > 1 else None
    rows = 1 if y is None else tile_rows(size_of(y.extent), max(p.rows * 3 // 2 // held, 1))
    while rows > 1 and box_of_rows(plan, pattern, found, rows) > BOX_BYTES:
        rows //= 2
    if box_of_rows(plan, pattern, found, rows) > BOX_BYTES:
        raise ScheduleError(f"window({found.image.memory.name})", found="a box of many bytes")
    lanes = min(native, power_above(width + 1) // 2)  # whole ones that overlap, and no masks
    if held * rows < 8 and width >= 2 * native:
        lanes *= 2
    amount = work((pattern.rows[0],)) // MAC_SPEED
    outer = [f.var.attr for f in [*found.shared, *found.positions[:-2]]]
    x, top = found.positions[-1].var.attr, ""
    box = outer[-1] if outer else ""
    tile: list[str] = []
    for channel, (c, size) in zip(found.channels, channels, strict=True):
        tile_split(plan, c, channel.extent, size)
        tile.append(c)
    if y is not None:
        tile_split(plan, y.var.attr, y.extent, _group(plan, pattern, found, y, rows, p))
        box, top = f"{y.var.attr}.o", f"{y.var.attr}.i"
        outer.append(box)
    outer += [f"{c}.o" for c in tile]
    order_loops(plan, outer, [*[f"{c}.i" for c in tile], *([top] if top else []), x], amount,
                keep=True)
    if not outer:
        raise ScheduleError(f"window({found.image.memory.name})", found="no loop around the box")
    copy_box(plan, found.image, box or outer[0])
    # The box has to be copied before its positions become tiles, which may overlap.
    if top:
        tile_split(plan, top, loop_of(plan, top).extent, rows)
        tile.append(top)
    tile_split(plan, x, found.positions[-1].extent, lanes)
    tile.append(x)
    for loop in tile:
        schedule.sink(f"{loop}.i")
    inner = [f"{loop}.i" for loop in tile]
    between = [f"{loop}.o" for loop in reversed(tile)]
    for loop in [*inner, *between]:
        schedule.sink(loop)
    schedule.reorder(*between, *inner)
    x, inner = inner[-1], inner[:-1]
    if not inner:
        inner = [x]
    levels = chain_levels(pattern, chains)  # the error of a sum grows with the terms of one chain
    name = cut_sums(plan, name, inner[0], x, levels)
    schedule.decompose_reduction(name, inner[0])
    points = 1
    for axis in reversed(pattern.reduce.axes):  # a loop of a few steps costs more than they do
        lengths = [length for cut, length in levels if cut == axis.var.attr]
        points *= lengths[0] if lengths else size_of(axis.extent)
        if points > UNROLLED_POINTS:
            break
        schedule.unroll(f"{axis.var.attr}.i" if lengths else axis.var.attr)
    for suffix in (".z", "", ".f"):
        for loop in inner:
            if loop != x:
                schedule.unroll(f"{loop}{suffix}")
        schedule.vectorize(f"{x}{suffix}")
    plan.why.append(f"contraction: windows of {found.image.memory.name} copied without masks, "
                    f"{held}×{rows}×{lanes} results in registers along "
                    + ", ".join([*inner, x] if x not in inner else inner))


def product_of(tiles: list[tuple[str, int]]) -> int:
    """Return how many results a tile holds of some loops."""
    total = 1
    for _, size in tiles:
        total *= size
    return total


def _group(plan: Plan, pattern: Pattern, found: Windowed, y: For, rows: int,
           p: Parameters) -> int:
    """Return how many rows of positions share one box: neighbours read mostly the same."""
    n = size_of(y.extent)
    most = n
    if product(f.extent for f in [*found.shared, *found.positions[:-2]]) < 2 * plan.threads:
        most = max(n // plan.threads, rows)
    while most > rows and box_of_rows(plan, pattern, found, most) > p.panel_bytes // 4:
        most = max(most // 2, rows)
    return n if n <= most else max(most // rows, 1) * rows
