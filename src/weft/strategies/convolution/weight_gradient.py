"""The filter form of a contraction: gradients of a convolution's weights with few channels.

Every weight is the sum of products of two images, one of them moved by the place of the weight:
lanes along the channels would stay empty, so they run along the rows of the images. The image that
is read through windows is copied once, without masks; the partial sums of all taps of some
channels live in registers, and each step multiplies a piece of a row with the pieces around it.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from weft.ir.record import Record
from weft.ir.stmt import For
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.accumulation_error import lane_chains
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    block_sums,
    is_fixed,
    lane_sums,
    native_lanes,
    order_loops,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import (
    Windowed,
    copy_box,
    find_windows,
    is_convolution,
)
from weft.strategies.common.nest import (
    Plan,
    flat_stride,
    power_above,
    product,
    registers,
    size_of,
)

STEPS: Final = (1, 2, 3, 4)  # of the images, from which a vector is picked
FEW_PRODUCTS: Final = 18  # of an element with one of each channel
ACROSS: Final = 2  # reads of a vector that reaches over a line
PICKED: Final = 3  # and of one that is picked from two
EACH: Final = 1  # what a step costs besides
FEW: Final = 4  # results for which a tile is too small to keep the unit for products busy


class _Blocks(Record):
    """The sides of a tile, and the axis that is cut into blocks of a length.

    Where blocks ``are_near``, all tiles read their images from the first cache, and sums of lanes
    meet behind the last one; they ``are_chains`` where sums start anew with each.
    """

    sizes: dict[str, int]
    cut: tuple[str, int]
    are_near: bool
    are_chains: bool


def schedule_filter(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the filter form; whether it fits and pays."""
    found = find_windows(plan, pattern)
    if found is None or len(found.channels) > 1 or not found.positions:
        return False
    space, native = Space(plan.kernel), native_lanes(plan, pattern)
    axes = pattern.reduce.axes
    if not is_fixed(pattern):
        return False
    along, width = axes[-1].var, size_of(axes[-1].extent)
    step = flat_stride(space, Access(found.image), along)
    if flat_stride(space, Access(found.weight), along) != 1 or step not in STEPS:
        return False
    reduced = {a.var for a in axes}
    moving = set().union(*[space.symbols(i) for i in found.image.index
                           if space.symbols(i) & reduced])
    taps = [r for r in found.positions if r.var in moving]
    if taps and is_convolution(space, pattern, found):
        return False  # a convolution itself: its results are the image, its sums the filter
    lanes = min(native, power_above(width))
    vectors = -(-width // lanes) * lanes
    idle = 2 * width < vectors
    # Half a vector of channels does as much as rows that fill none, or whose vectors reach over
    # lines of the cache; picking takes time, too.
    full = width >= 2 * native and width % native == 0
    enough = native if step == 1 and full else min(native, 8)
    # Where each element of the other image has few products, turning it for them takes longer.
    few = step == 1 and 8 * width >= 5 * vectors and product(
        f.extent for f in found.positions) <= FEW_PRODUCTS
    if not taps or idle or (product(c.extent for c in found.channels) >= enough and not few):
        return False  # rows too short for lanes, or channels enough
    return _apply(plan, pattern, found, taps, lanes, p)


def _apply(plan: Plan, pattern: Pattern, found: Windowed, taps: list[For], lanes: int,
           p: Parameters) -> bool:
    schedule = plan.schedule
    k = pattern.reduce.axes[-1].var.attr
    blocks = _blocks(plan, pattern, found, taps, lanes, p)
    if blocks is None:
        return False
    sizes = blocks.sizes
    outer = [r.var.attr for r in pattern.rows if r not in taps and r not in found.channels]
    box = list(outer)
    names = [r.var.attr for r in taps]
    tiles = list(names)
    for loop in found.channels:
        channel = loop.var.attr
        tile_split(plan, channel, loop.extent, sizes[channel])
        outer.append(f"{channel}.o")
        tiles.append(f"{channel}.i")
    order_loops(plan, outer, tiles, work_of(plan, pattern), keep=True)
    name = pattern.reduce.accumulators[0].var.attr
    if _is_cut(pattern, blocks):
        name = _cut_sums(plan, name, blocks, k, lanes, [*outer[len(box):], *tiles][0])
        copy_box(plan, found.image, f"{blocks.cut[0]}.o")
    elif outer:
        copy_box(plan, found.image, (box or outer)[-1])
    else:
        return False
    # The box has to be copied before the places of weights become tiles, which may overlap.
    for tap in taps:
        tile_split(plan, tap.var.attr, tap.extent, sizes[tap.var.attr])
    inner = [*[f"{n}.i" for n in names], *tiles[len(names):]]
    for moved in [*inner, *[f"{n}.o" for n in names]]:
        schedule.sink(moved)
    schedule.reorder(*[f"{n}.o" for n in names], *inner)
    cut = blocks.cut if name.endswith(".b") else None
    steps = [] if blocks.are_chains else lane_chains(pattern, p, k, lanes, cut)
    if not blocks.are_near:
        schedule.split(k, lanes, "mask")
    lane_sums(plan, name, inner, f"{k}.i", steps, apart=blocks.are_near)
    plan.why.append(f"contraction: {math.prod(sizes.values())} results as {lanes} partial sums "
                    f"along {k}, windows of {found.image.memory.name} copied without masks")
    return True


def _blocks(plan: Plan, pattern: Pattern, found: Windowed, taps: list[For], lanes: int,
            p: Parameters) -> _Blocks | None:
    """Return how the sums are cut; None where tiles are too small or boxes too large."""
    sizes, cut = _sizes(plan, pattern, found, taps), _cut(plan, pattern, found)
    if math.prod(sizes.values()) < FEW or cut is None:
        return None
    near = _near(plan, pattern, found, taps)
    if near is None:
        return _Blocks(sizes, cut, False, False)
    cut, sizes = near
    chains = lane_chains(pattern, p, pattern.reduce.axes[-1].var.attr, lanes)
    if chains and chains[0][0] == cut[0]:  # sums start anew with each block then
        cut = cut[0], min(cut[1], chains[0][1])
    return _Blocks(sizes, cut, True, chains[:1] == [cut])


def _is_cut(pattern: Pattern, blocks: _Blocks) -> bool:
    """Whether there is more than one block, or their sums have lanes that meet behind them."""
    axis, length = blocks.cut
    return blocks.are_near or length < size_of(
        next(a.extent for a in pattern.reduce.axes if a.var.attr == axis))


def _cut_sums(plan: Plan, name: str, blocks: _Blocks, k: str, lanes: int, first: str) -> str:
    """Cut the sums into blocks at the loop `first` of a tile; return the name of a block's."""
    if not blocks.are_near:
        return block_sums(plan, name, first, blocks.cut, f"{k}.i")
    plan.schedule.split(k, lanes, "mask")
    return block_sums(plan, name, first, blocks.cut, f"{k}.i", partial=(f"{k}.i",))


def _near(plan: Plan, pattern: Pattern, found: Windowed,
          taps: list[For]) -> tuple[tuple[str, int], dict[str, int]] | None:
    """Return blocks whose images stay in the first cache for all tiles, and tiles for them.

    None where one tile has all results, all images stay there anyway, or a row of them does not.
    """
    sizes = _sizes(plan, pattern, found, taps, whole=True)
    loops = [*taps, *found.channels]
    if all(sizes[f.var.attr] == size_of(f.extent) for f in loops):
        return None
    axes = pattern.reduce.axes
    extents = [size_of(a.extent) for a in axes]
    each = product(c.extent for c in found.channels) * found.weight.memory.dtype.itemsize
    room = plan.target.l1_bytes * 7 // 8

    def read(at: int, n: int) -> int:
        other = each * math.prod(extents) // extents[at] * n
        return _box(plan, pattern, found, axes[at].var.attr, n) + other

    for at, n in enumerate(extents[:-1]):
        if read(at, n) <= room:
            return None
        if read(at, 1) <= room:
            most = max(m for m in range(1, n + 1) if read(at, m) <= room)
            return (axes[at].var.attr, -(-n // -(-n // most))), sizes
    return None


def _sizes(plan: Plan, pattern: Pattern, found: Windowed, taps: list[For],
           whole: bool = False) -> dict[str, int]:
    """Return the sides of the tile: those with the least to multiply and to read in all.

    Tiles that are ``whole`` divide the taps, so that none of their sums needs a mask.

    Each tap reads a vector of its own, which mostly reaches over a line of the cache, and each
    channel one, which does where rows do not fill lines; sums that follow one another in a register
    wait for each other.
    """
    most = 24 if registers(plan) >= 32 else 10
    step = flat_stride(Space(plan.kernel), Access(found.image), pattern.reduce.axes[-1].var)
    loops = [*reversed(taps), *found.channels]
    extents = [size_of(f.extent) for f in loops]
    best, least = [1] * len(loops), math.inf
    across = ACROSS if size_of(pattern.reduce.axes[-1].extent) % native_lanes(plan, pattern) else 1
    possible = [[m for m in range(1, min(n, most) + 1) if n % m == 0 or not whole or i >= len(taps)]
                for i, n in enumerate(extents)]
    for sides in itertools.product(*possible):
        held = math.prod(sides)
        if held > most:
            continue
        moved = math.prod(sides[:len(taps)])
        count = math.prod([-(-n // side) for n, side in zip(extents, sides, strict=True)])
        read = moved * (ACROSS if step == 1 else PICKED) + held // moved * across
        cost = count * (max(held, read, plan.costs.products_in_flight) + EACH)
        if cost < least:
            best, least = list(sides), cost
    return {f.var.attr: side for f, side in zip(loops, best, strict=True)}


def _cut(plan: Plan, pattern: Pattern, found: Windowed) -> tuple[str, int] | None:
    """Return the axis whose blocks have boxes of a moderate size, and their length."""
    for axis in pattern.reduce.axes[:-1]:
        n = size_of(axis.extent)
        most = plan.costs.gradient_image_bytes
        while n > 1 and _box(plan, pattern, found, axis.var.attr, n) > most:
            n = (n + 1) // 2
        if _box(plan, pattern, found, axis.var.attr, n) <= plan.costs.gradient_image_bytes:
            return axis.var.attr, n
    return None


def _box(plan: Plan, pattern: Pattern, found: Windowed, cut: str, length: int) -> int:
    """Return the bytes of the image that a block of the reduction reads for one channel."""
    space, total = Space(plan.kernel), found.image.memory.dtype.itemsize
    counts = {a.var: length if a.var.attr == cut else size_of(a.extent)
              for a in pattern.reduce.axes}
    for index in found.image.index:
        if space.symbols(index) & counts.keys():
            counts |= {r.var: size_of(r.extent) for r in found.positions
                       if r.var in space.symbols(index)}
            total *= 1 + sum(abs(space.stride(index, v) or 0) * (n - 1)
                             for v, n in counts.items())
    return total
