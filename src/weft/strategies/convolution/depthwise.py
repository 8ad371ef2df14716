"""The position form: windows of an image with few channels of results (depthwise, grouped, one).

Lanes along the channels would stay empty, so they run along the positions of a row. The box of the
image that some rows read is copied once, without masks; a tile of channels x rows x vectors of
positions lives in registers, and each step multiplies a piece of the box with single weights. Where
a tap lies outside of the image, its weight is 0 as well: infinite ones make no NaN. Where the box
of all that is summed would be far, sums are cut into blocks, each with a box of its own.
"""

from __future__ import annotations

import math
from typing import Final

from weft.errors import ScheduleError
from weft.ir.stmt import For
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space, accesses
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
    flat_stride,
    loop_of,
    power_above,
    product,
    size_of,
)

STEPS: Final = (1, 2, 3, 4)  # from one result to the next
LEAST: Final = 96  # terms of a block of a sum
UNROLLED_POINTS: Final = 12  # points of a window that are written out, so that loads are shared


def schedule_position(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the position form; whether it fits."""
    found = find_windows(plan, pattern)
    if found is None or len(found.channels) > 1 or not found.positions:
        return False
    space, x = Space(plan.kernel), found.positions[-1]
    stored = [a for a in accesses(pattern.rows[-1].body) if a.write]
    if not is_fixed(pattern, _around(found)) or size_of(x.extent) < 4 or any(
            flat_stride(space, a, x.var) not in STEPS for a in stored):
        return False
    if space.stride(found.image.index[-1], x.var) in (0, None) or flat_stride(
            space, Access(found.image), x.var) is None:
        return False
    _Position(plan, pattern, found, p).apply()
    return True


class _Position:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, found: Windowed, p: Parameters) -> None:
        self.plan, self.found, self.p = plan, found, p
        self.pattern = taps_last(plan, pattern, found, found.positions[-2:-1])
        self.chains = sum_chains(plan, self.pattern, found, short_chains(self.pattern, p))
        self.name = pattern.reduce.accumulators[0].var.attr
        self.sizes = {a.var.attr: size_of(a.extent) for a in self.pattern.reduce.axes}
        self.cut = next(iter(self.sizes))  # the axis that is cut if the sums are
        self.channels = [(c.var.attr, tile_rows(size_of(c.extent), p.rows))
                         for c in found.channels]
        self.held = product_of(self.channels)
        self.around = _around(found)
        self.y = next((f for f in found.positions[-2:-1] if f not in self.around), None)
        self.length = 0  # of a block of the sums, if they are cut
        self.rows = self._rows()

    def _rows(self) -> int:
        """Return the rows of positions of a tile; cut the sums where all that they read is far."""
        n = 1 if self.y is None else size_of(self.y.extent)
        rows = tile_rows(n, max(self.p.rows * 3 // 2 // self.held, 1))
        if self._box(rows) > self.plan.costs.image_bytes:
            self.length = self._steps(rows)
        while rows > 1 and not self.length and self._box(rows) > self.plan.costs.image_bytes:
            rows //= 2
        if not self.length and self._box(rows) > self.plan.costs.image_bytes:
            raise ScheduleError(f"window({self.found.image.memory.name})",
                                found="a box of many bytes")
        return rows

    def _box(self, rows: int) -> int:
        return box_of_rows(self.plan, self.pattern, self.found, rows)

    def _steps(self, rows: int) -> int:
        """Return how many points of an axis make a block whose box is near, 0 if too few."""
        n = self.sizes[self.cut]
        most = n * self.plan.costs.image_bytes // self._box(rows)
        terms = math.prod(self.sizes.values()) // n * most
        return even_block(n, most) if most < n and terms >= LEAST else 0

    def apply(self) -> None:
        """Apply the schedule."""
        plan, found = self.plan, self.found
        # 0 times an infinite weight would be NaN.
        plan.attempt("omit", self.name,
                     alone=is_adjoint(Space(plan.kernel), self.pattern, found), zero=True)
        amount = work_of(plan, self.pattern)
        outer = [f.var.attr for f in self.around]
        x, top = found.positions[-1].var.attr, ""
        box = outer[-1] if outer else ""
        tile: list[str] = []
        for channel, (c, size) in zip(found.channels, self.channels, strict=True):
            tile_split(plan, c, channel.extent, size)
            tile.append(c)
        if self.y is not None:
            y = self.y.var.attr
            tile_split(plan, y, self.y.extent, self._group(self.y))
            box, top = f"{y}.o", f"{y}.i"
            outer.append(box)
        outer += [f"{c}.o" for c in tile]
        order_loops(plan, outer, [*[f"{c}.i" for c in tile], *([top] if top else []), x], amount,
                    keep=True)
        if not outer:
            raise ScheduleError(f"window({found.image.memory.name})",
                                found="no loop around the box")
        # The box has to be copied before its positions become tiles, which may overlap.
        if not self.length:
            copy_box(plan, found.image, box or outer[0])
        if top:
            tile_split(plan, top, loop_of(plan, top).extent, self.rows)
            tile.append(top)
        lanes = self._lanes()
        tile_split(plan, x, found.positions[-1].extent, lanes)
        self._tile([*tile, x], top)
        plan.why.append(f"contraction: windows of {found.image.memory.name} copied without masks, "
                        f"{self.held}×{self.rows}×{lanes} results in registers along "
                        + ", ".join(f"{loop}.i" for loop in [*tile, x]))

    def _lanes(self) -> int:
        """Return the positions of a row that a tile takes."""
        native, width = native_lanes(self.plan, self.pattern), size_of(
            self.found.positions[-1].extent)
        lanes = min(native, power_above(width + 1) // 2)  # whole ones that overlap, and no masks
        return 2 * lanes if self.held * self.rows < 8 and width >= 2 * native else lanes

    def _tile(self, loops: list[str], top: str) -> None:
        """Keep a tile in registers: all loops are split, the last one is vectors."""
        plan, schedule = self.plan, self.plan.schedule
        inner = [f"{loop}.i" for loop in loops]
        between = [f"{loop}.o" for loop in reversed(loops)]
        for loop in [*inner, *between]:
            schedule.sink(loop)
        schedule.reorder(*between, *inner)
        x, name = inner[-1], self.name
        inner = inner[:-1] or [x]
        sizes = dict(self.sizes)
        if self.length:
            name = cut_sums(plan, name, between[0], x, [(self.cut, self.length)])
            copy_box(plan, self.found.image, f"{self.cut}.o")
            steps = chain_steps(self.pattern, self.chains, (self.cut, self.length))
            levels = [steps] if steps else []
            sizes = {f"{n}.i" if n == self.cut else n: self.length if n == self.cut else size
                     for n, size in sizes.items()}
        else:
            levels = chain_levels(self.pattern, self.chains)
        # The error of a sum grows with the terms of one chain.
        name = cut_sums(plan, name, inner[0], x, levels)
        schedule.decompose_reduction(name, inner[0])
        points = 1
        for axis, size in reversed(sizes.items()):  # a loop of a few steps costs more than they do
            lengths = [length for cut, length in levels if cut == axis]
            points *= lengths[0] if lengths else size
            if points > UNROLLED_POINTS:
                break
            schedule.unroll(f"{axis}.i" if lengths else axis)
        for suffix in (".z", "", ".f"):
            for loop in inner:
                if loop != x:
                    schedule.unroll(f"{loop}{suffix}")
            schedule.vectorize(f"{x}{suffix}")
        if top:
            self._inside(inner[0], f"{top}.i")

    def _inside(self, tile: str, row: str) -> None:
        """Ask for no row of a tile whether it is inside where all of them are."""
        around = steps_around(self.plan, tile, list(self.sizes))
        if around:
            self.plan.attempt("specialize", around[0].var.attr, row)

    def _group(self, y: For) -> int:
        """Return how many rows of positions share one box: neighbours read mostly the same."""
        n, rows = size_of(y.extent), self.rows
        most, threads = n, self.plan.threads
        shared = product(f.extent for f in self.around)
        if shared < 2 * threads:
            most = max(-(-n // threads), rows)
        each = most
        while most > rows and (not self._steps(most) if self.length
                               else self._box(most) > self.p.panel_bytes // 4):
            most = max(most // 2, rows)
        if n > most and most != each:
            most = max(most // rows, 1) * rows
        if self.length:
            self.length = self._steps(most) or self.length
        return min(n, most)


def _around(found: Windowed) -> list[For]:
    """Return the loops around boxes: of images, and of rows if their number is symbolic."""
    rows = found.positions[-2:-1]
    return [*found.shared, *found.positions[:-2],
            *[f for f in rows if constant(f.extent) is None]]


def product_of(tiles: list[tuple[str, int]]) -> int:
    """Return how many results a tile holds of some loops."""
    total = 1
    for _, size in tiles:
        total *= size
    return total

