"""The deep form of a convolution: weights that no near cache holds, and few positions.

Each block of the reduced channels is gone through once: the box of the images that it reads is
copied for all channels of results, and a panel of weights for all positions. So what is copied is
used as often as possible, while the sums of all results stay near between the blocks.
"""

from __future__ import annotations

from typing import Final

from weft.schedule.dependence import Space
from weft.schedule.space import constant
from weft.strategies.contraction_pattern import MAC_SPEED, Parameters, Pattern, tile_split
from weft.strategies.contraction_window import (
    Convolution,
    copy_box,
    even_block,
    prepare,
)
from weft.strategies.nest import PARALLEL_WORK, Plan, parallelise, product, size_of, work

LEAST_POSITIONS: Final = 32  # below it, turning the weights costs as much as their products


def schedule_deep(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the deep form; whether it fits and pays."""
    found = prepare(plan, pattern, p)
    return found is not None and _Deep(plan, pattern, *found, p).apply()


class _Deep(Convolution):
    """A convolution with its blocks outside and its channels inside them."""

    def apply(self) -> bool:
        """Apply the schedule; whether it fits and pays."""
        plan, found, schedule = self.plan, self.found, self.plan.schedule
        channel, positions = found.channels[0], found.positions
        tiles = -(-size_of(channel.extent) // self.lanes)
        points = product(a.extent for a in self.pattern.reduce.axes)
        count = product(f.extent for f in positions)
        depth = size_of(self.pattern.reduce.axes[0].extent)
        per_tile = count * self.lanes * self.itemsize
        amount = work((self.pattern.rows[0],)) // MAC_SPEED
        threads = plan.threads if amount >= PARALLEL_WORK else 1
        most = min(self.p.sum_bytes // per_tile, tiles // threads)
        steps = min(self.p.window_bytes * depth // (points * self.lanes * self.itemsize),
                    self.p.chain * depth // points, self.p.sum_bytes // self._box())
        if (found.shared or points * self.lanes * self.itemsize <= self.p.whole_bytes or most < 1
                or count < LEAST_POSITIONS or steps < 2 or tiles % threads
                or any(constant(f.extent) is None for f in [channel, *positions])):
            return False
        group = max(d for d in range(1, most + 1) if tiles % (d * threads) == 0)
        o, x = channel.var.attr, positions[-1].var.attr
        width = size_of(positions[-1].extent)
        high = self._second(width)
        tile_split(plan, o, channel.extent, self.lanes)
        top, outer = f"{o}.o", []
        if group < tiles:
            schedule.split(top, group)
            top, outer = f"{o}.o.i", [f"{o}.o.o"]
        loops = [f.var.attr for f in positions[:-1]]
        inner = [*loops, x, f"{o}.i"]
        if high > 1:
            y = loops[-1]
            tile_split(plan, y, positions[-2].extent, high)
            inner[len(loops) - 1:len(loops)] = [f"{y}.o", f"{y}.i"]
        for loop in [*inner, *outer, top]:
            schedule.sink(loop)
        schedule.reorder(*outer, top, *inner)
        parallelise(plan, outer, amount)
        axis = self.axes[0]
        schedule.block_reduction(self.name, top, axis, even_block(depth, steps))
        self.blocked = True
        copy_box(plan, found.image, f"{axis}.o")
        self._pack(found.weight.memory.name, top, f"{o}.i", ahead=(inner[0], top))
        self._finish_block(x, f"{o}.i")
        rows = self._rows(x, width, f"{y}.i" if high > 1 else "", high)
        self._tile(rows, f"{o}.i")
        plan.why.append(f"contraction: {steps} of {axis} at a time for {group} tiles of channels, "
                        f"windows of {found.image.memory.name} copied without masks")
        return True

    def _box(self) -> int:
        """Return the bytes of the images that one step of the first reduced axis reads."""
        space, total = Space(self.plan.kernel), self.found.image.memory.dtype.itemsize
        loops = [(a.var, a.extent) for a in self.pattern.reduce.axes[1:]]
        loops += [(f.var, f.extent) for f in self.found.positions]
        for i in self.found.image.index:
            total *= 1 + sum(abs(space.stride(i, v) or 0) * (size_of(n) - 1) for v, n in loops)
        return total
