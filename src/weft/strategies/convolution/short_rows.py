"""The strip form: convolutions of few channels of results, whose rows are too short for vectors.

The rows of a copied box lie one behind the other, with the zeros between them that both need. What
is summed for all places of such a strip fills vectors however short the rows are; the few results
for places between two rows are left out when the others are taken to their memory.
"""

from __future__ import annotations

from typing import Final

from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, For
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.accumulation_error import (
    chain_levels,
    chain_steps,
    cut_sums,
    short_chains,
    steps_around,
)
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    is_fixed,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import (
    MAC_ITEM,
    Windowed,
    box_of_rows,
    copy_box,
    even_block,
    find_windows,
    is_adjoint,
    sum_chains,
    taps_last,
)
from weft.strategies.common.nest import (
    Plan,
    loop_of,
    power_above,
    product,
    registers,
    size_of,
)

GAIN: Final = 5, 4  # how much less there has to be to multiply
LEAST: Final = 48  # terms of a sum, below which its results are not worth taking out twice
LEAST_WIDTH: Final = 4  # positions of a row that make a vector
MOST_VECTORS: Final = 8  # of a tile, for each channel
FREE: Final = 8  # registers that hold no sums
EACH: Final = 2  # what a step of a tile costs besides its products
UNROLLED: Final = 12  # points of a window that are written out


def schedule_strip(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the strip form; whether it fits and pays."""
    found = find_windows(plan, pattern)
    if found is None or len(found.channels) > 1 or len(found.positions) < 2:
        return False
    if not is_fixed(pattern, [*found.shared, *found.positions[:-2]]) or is_adjoint(
            Space(plan.kernel), pattern, found) or not _pays(plan, pattern, found):
        return False
    _Strip(plan, pattern, found, p).apply()
    return True


def _pays(plan: Plan, pattern: Pattern, found: Windowed) -> bool:
    """Whether vectors along a strip are enough fewer than vectors in each row, or of channels."""
    native, image = native_lanes(plan, pattern), found.image
    if len(image.index) < 2 or image.memory.dtype.itemsize < MAC_ITEM or product(
            a.extent for a in pattern.reduce.axes) < LEAST:
        return False
    high, width = (size_of(f.extent) for f in found.positions[-2:])
    rows = [_places(plan, pattern, i, f) for i, f in
            zip(image.index[-2:], found.positions[-2:], strict=True)]
    channels = product(c.extent for c in found.channels)
    if 0 in rows or channels >= native:
        return False
    strip = -(-((high - 1) * rows[-1] + width) // native)
    lanes = min(native, power_above(width + 1) // 2)
    others = [channels * high * -(-width // lanes)] if width >= LEAST_WIDTH else []
    if 2 * channels >= native or not others:
        others.append(high * width * -(-channels // native))
    return GAIN[0] * channels * strip <= GAIN[1] * min(others)


def _places(plan: Plan, pattern: Pattern, index: Expr, position: For) -> int:
    """Return how far apart rows of a box are where this subscript of the image runs along them.

    0 if a position moves it by more than one place of the box.
    """
    space = Space(plan.kernel)
    steps = [(abs(space.stride(index, a.var) or 0), size_of(a.extent))
             for a in pattern.reduce.axes if size_of(a.extent) > 1]
    step = space.stride(index, position.var) or 0
    if step < 1 or any(s % step for s, _ in steps):
        return 0
    return size_of(position.extent) + sum(s // step * (n - 1) for s, n in steps)


class _Strip:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, found: Windowed, p: Parameters) -> None:
        self.plan, self.found, self.p = plan, found, p
        self.pattern = taps_last(plan, pattern, found, found.positions[-2:-1])
        self.chains = sum_chains(plan, self.pattern, found, short_chains(self.pattern, p))
        self.name = pattern.reduce.accumulators[0].var.attr
        self.axes = [a.var.attr for a in self.pattern.reduce.axes]
        self.held = 1  # channels of a tile
        self.length = 0  # of a block of the sums, if they are cut

    def apply(self) -> None:
        """Apply the schedule."""
        plan, found, schedule = self.plan, self.found, self.plan.schedule
        y, x = (f.var.attr for f in found.positions[-2:])
        plan.attempt("omit", self.name, y, x)
        outer = [f.var.attr for f in [*found.shared, *found.positions[:-2]]]
        y, rows = self._share_rows(outer, y)
        tile: list[str] = []
        for loop in found.channels:
            c = loop.var.attr
            self.held = tile_rows(size_of(loop.extent), self.p.rows)
            tile_split(plan, c, loop.extent, self.held)
            tile += [f"{c}.o", f"{c}.i"]
        order_loops(plan, outer, [*tile, y, x], work_of(plan, self.pattern),
                    keep=True)
        first = [*tile, y][0]
        name, place = self._block(first, outer[-1], rows)
        schedule.strip(first, self._copy(place))
        lanes = min(plan.target.vector_bytes // self.found.image.memory.dtype.itemsize,
                    power_above(size_of(found.positions[-1].extent)))
        schedule.split(f"{x}.l", lanes, "mask").vectorize(f"{x}.l.i")
        self._tile(name, f"{y}_{x}", tile)

    def _share_rows(self, outer: list[str], y: str) -> tuple[str, int]:
        """Cut the rows if nothing else is shared out to threads; return their loop and number."""
        plan, n = self.plan, size_of(self.found.positions[-2].extent)
        around = product(loop_of(plan, name).extent for name in outer)
        if outer and (plan.threads < 2 or around >= plan.threads):
            return y, n
        rows = -(-n // plan.threads)
        tile_split(plan, y, self.found.positions[-2].extent, rows)
        outer.append(f"{y}.o")
        return f"{y}.i", rows

    def _block(self, first: str, box: str, rows: int) -> tuple[str, str]:
        """Cut sums whose box is large; return their name, and the loop that copies a box."""
        whole = box_of_rows(self.plan, self.pattern, self.found, rows)
        if whole <= self.plan.costs.image_bytes:
            return self.name, box
        n = size_of(self.pattern.reduce.axes[0].extent)
        self.length = even_block(n, max(n * self.plan.costs.image_bytes // whole, 1))
        self.plan.schedule.block_reduction(self.name, first, self.axes[0], self.length)
        return f"{self.name}.b", f"{self.axes[0]}.o"

    def _copy(self, loop: str) -> str:
        """Copy the box that a loop's turn reads; return its name."""
        known = {s.memory for s in traverse.walk(self.plan.kernel.body) if isinstance(s, Alloc)}
        copy_box(self.plan, self.found.image, loop)
        return next(s.memory.name for s in traverse.walk(loop_of(self.plan, loop).body)
                    if isinstance(s, Alloc) and s.memory not in known)

    def _tile(self, name: str, along: str, channels: list[str]) -> None:
        """Keep a tile of channels and vectors along the strip in registers."""
        plan, schedule = self.plan, self.plan.schedule
        native, held = native_lanes(plan, self.pattern), self.held
        extent = loop_of(plan, along).extent
        n = size_of(extent)
        most = min(MOST_VECTORS, max((registers(plan) - FREE) // held, 1))
        vectors = min(range(most, 0, -1), key=lambda v: -(-n // (native * v)) * (v * held + EACH))
        tile_split(plan, along, extent, native * vectors)
        inner = [*channels[1:], f"{along}.i"]
        if vectors > 1:
            schedule.split(f"{along}.i", native, "mask")
            inner[-1:] = [f"{along}.i.o", f"{along}.i.i"]
        schedule.reorder(*channels[:1], f"{along}.o", *inner)
        if self.length:
            steps = chain_steps(self.pattern, self.chains, (self.axes[0], self.length))
            levels = [steps] if steps else []
        else:
            levels = chain_levels(self.pattern, self.chains)
        name = cut_sums(plan, name, inner[0], inner[-1], levels)
        schedule.decompose_reduction(name, inner[0])
        around = steps_around(plan, inner[0], self.axes)
        points = 1
        for loop in reversed(around):  # a loop of a few steps costs more than they do
            points *= size_of(loop.extent)
            if points > UNROLLED:
                break
            schedule.unroll(loop.var.attr)
        for suffix in (".z", "", ".f"):
            for row in inner[:-1]:
                schedule.unroll(f"{row}{suffix}")
            schedule.vectorize(f"{inner[-1]}{suffix}")
        for loop in around:
            plan.attempt("branch", loop.var.attr)
        plan.why.append(f"contraction: rows of {self.found.image.memory.name} copied one behind "
                        f"the other, {held}×{vectors}×{native} results in registers along "
                        + ", ".join(inner))
