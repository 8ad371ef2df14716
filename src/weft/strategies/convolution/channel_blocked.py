"""The deep form of a convolution: long sums, whose weights do not stay in the first cache.

Each block of the reduced channels is gone through once: the box of the images that it reads is
copied for several tiles of channels, and a panel of weights for many positions, while the sums of
all these results stay near between the blocks. How many tiles and positions share what is copied
is chosen so that copying takes the least part of the time.
"""

from __future__ import annotations

from math import gcd, isqrt
from typing import Final

from weft.ir.record import Record
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    block_sums,
    native_lanes,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import even_block
from weft.strategies.common.nest import Plan, loop_of, product, size_of
from weft.strategies.common.weight_gradient_borders import find_edges, omit_edges, skip_edges
from weft.strategies.convolution.epilogue_transpose import finish_block
from weft.strategies.convolution.implicit_gemm import Convolution, try_in_place

CHANNELS: Final = 16  # whose taps are summed before they join the rest
PICTURE_CHAIN: Final = 240  # terms of a sum along pictures that are added to one another
FEW: Final = 2  # part of the weights of a block that need no blocks: a box may serve one tile
LEAST_POSITIONS: Final = 32  # below it, turning the weights costs as much as their products


class _Shares(Record):
    """What is gone through at once: `length` of the loop `cut`, all inside it, `tiles` of channels.

    ``steps`` of the first reduced axis make a block, and ``lines`` of the second one if it is
    cut, too; ``images`` says that threads share out what is outside in positions, not in channels.
    """

    cut: int
    length: int
    tiles: int
    steps: int
    lines: int
    images: bool


def schedule_deep(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the deep form; whether it fits and pays."""
    return try_in_place(plan, pattern, p, _Deep)


class _Deep(Convolution):
    """A convolution with its blocks outside, and tiles of channels and positions inside them."""

    def apply(self) -> bool:
        """Apply the schedule; whether it fits and pays."""
        plan, found, schedule = self.plan, self.found, self.plan.schedule
        channel, positions = found.channels[0], found.positions
        if found.shared:
            return False
        amount = work_of(plan, self.pattern)
        threads = plan.threads if plan.is_worth_threads(amount) else 1
        shares = self._choose(threads)
        if shares is None:
            return False
        o = channel.var.attr
        width = size_of(positions[-1].extent)
        tile_split(plan, o, channel.extent, self.lanes)
        top, groups = f"{o}.o", []
        if shares.tiles * self.lanes < size_of(channel.extent):
            schedule.split(top, shares.tiles)
            top, groups = f"{o}.o.i", [f"{o}.o.o"]
        names = [f.var.attr for f in positions]
        before, cut, loops = names[:shares.cut], names[shares.cut], names[shares.cut + 1:]
        if shares.length < size_of(positions[shares.cut].extent):
            schedule.split(cut, shares.length)
            before, cut = [*before, f"{cut}.o"], f"{cut}.i"
            if names[shares.cut] == self.x:  # the only position: its parts are the rows
                self.x, width = cut, shares.length
        loops = [cut, *loops]
        high = self._second(width, shares.length if shares.cut == len(positions) - 2 else 0)
        if high > 1:
            y = loops[-2]
            tile_split(plan, y, loop_of(plan, y).extent, high)
            loops[-2:-1] = [f"{y}.o", f"{y}.i"]
        outer = [*before, *groups] if shares.images else [*groups, *before]
        inner = [*loops, f"{o}.i"]
        for loop in [*inner, *outer, top]:
            schedule.sink(loop)
        schedule.reorder(*outer, top, *inner)
        if threads > 1:
            schedule.parallel(outer[0])
            plan.why.append(f"{outer[0]} is shared out to {threads} threads")
        axis = self.axes[0]
        schedule.block_reduction(self.name, top, axis, shares.steps)
        self.blocked = True
        if self.chains.nested_chain < self.p.nested_chain and not self.edges:
            self.cut, self.length = axis, shares.steps  # others sum it part by part
        if shares.lines:
            finish_block(plan, self.pattern, self.p, self.x, f"{o}.i")
            self._cut_lines(top, f"{o}.i", shares.lines)
            axis = self.cut
        self._copy(f"{axis}.o", shares.lines or shares.steps)
        # Rows of a picture lie near: asking for the next ones costs more than waiting for them.
        # A tile has nothing between its loops, so there is no place to ask in an only row.
        self._pack(found.weight.memory.name, top, f"{o}.i",
                   ahead=None if shares.lines or loops[0] == self.x else (loops[0], top))
        if not shares.lines:
            finish_block(plan, self.pattern, self.p, self.x, f"{o}.i")
        self._tile(self._rows(self.x, width, loops[-2] if high > 1 else "", high), f"{o}.i")
        plan.why.append(f"contraction: {shares.lines or shares.steps} of {axis} at a time for "
                        f"{shares.tiles} tiles of channels, windows of {found.image.memory.name} "
                        "copied without masks")
        return True

    def _cut_lines(self, top: str, column: str, lines: int) -> None:
        """Cut each block of the first reduced axis into blocks of the second."""
        self.axes[0], self.cut = f"{self.axes[0]}.i", self.axes[1]
        self.name = f"{self.name}.b"
        block_sums(self.plan, self.name, top, (self.cut, lines), column)

    def _omit(self) -> bool:
        self.edges = find_edges(self.plan, self.pattern, self.found)
        if not self.edges:
            return super()._omit()
        return omit_edges(self.plan, self.name, self.edges, self.pattern.reduce.axes[-1])

    def _skip(self, rows: list[str]) -> None:
        if self.edges:
            around = [a.var.attr for a in self._around(loop_of(self.plan, rows[0]))]
            skip_edges(self.plan, self.edges, self.pattern.reduce.axes[-1], [*around, *rows])
        else:
            super()._skip(rows)

    def _choose(self, threads: int) -> _Shares | None:
        """Return the shares that copy the least, None if none fits or the weights are few."""
        channel, positions, p = self.found.channels[0], self.found.positions, self.p
        tiles = -(-size_of(channel.extent) // self.lanes)
        points = product(a.extent for a in self.pattern.reduce.axes)
        depth = size_of(self.pattern.reduce.axes[0].extent)
        each = points // depth  # points of one step
        chain, lines = p.chain, 0  # of a gradient by weights, rows may be cut
        if self.edges:
            chain = PICTURE_CHAIN
            if any(e.apart for e in self.edges):  # elsewhere those are summed picture by picture
                chain = min(chain, max(self.chains.nested_chain, each))
            if each > chain and len(self.axes) > 2:
                each //= size_of(self.pattern.reduce.axes[1].extent)
                lines = self._lines(each)
                each *= lines
        elif len(self.axes) > 1:  # elsewhere as many channels are summed in one chain
            chain = min(chain, max(CHANNELS * each, 2 * p.nested_chain))
        panel = each * self.lanes * self.itemsize
        few = panel * depth <= p.window_bytes // FEW and not self.edges
        if panel * depth <= p.window_bytes and not self.edges and len(self.axes) > 1:
            # Blocks that no cache asks for: sums start anew as often as in the other forms.
            chain = min(chain, max(p.nested_chain, isqrt(points), 2 * each))
        if few or (lines and 3 * each > 4 * chain):
            return None
        native = native_lanes(self.plan, self.pattern)
        best: _Shares | None = None
        least = 0.0
        fixed = next((p for p, f in enumerate(reversed(positions)) if constant(f.extent) is None),
                     len(positions))  # of the last positions, which alone may be cut
        for cut in range(len(positions) - fixed, max(len(positions) - 1, 1)):
            n = size_of(positions[cut].extent)
            around = product(f.extent for f in positions[:cut])
            for length in [d for d in range(1, n + 1) if n % d == 0]:
                count = length * product(f.extent for f in positions[cut + 1:])
                most = p.sum_bytes // (count * self.lanes * self.itemsize)
                if count < LEAST_POSITIONS or most < 1:
                    continue
                box = self._box(cut, length, lines)
                steps = min(p.window_bytes // panel, chain // each,
                            p.sum_bytes // (box * self.itemsize))
                if lines:
                    steps = min(steps, 1)
                if steps < (1 if self.edges else 2):
                    continue
                first = size_of(positions[0].extent) if cut else n // length
                for group in [d for d in range(1, min(most, tiles) + 1) if tiles % d == 0]:
                    images = bool(tiles // group % threads)
                    if images and (10 * (-first % threads) > first or
                                   around * (n // length) == 1):
                        continue
                    copied = box + group * self.lanes * each
                    moves = self.plan.costs.lane_moves * count * group
                    cost = copied * native / (moves * self.lanes * each)
                    if best is None or cost < least:
                        best = _Shares(cut, length, group, even_block(depth, steps), lines, images)
                        least = cost
        return best

    def _lines(self, width: int) -> int:
        """Return how many rows of a picture make a block, if all of them are too many."""
        rows = size_of(self.pattern.reduce.axes[1].extent)
        room = self.p.window_bytes // (self.lanes * self.itemsize)
        return even_block(rows, max(min(PICTURE_CHAIN, room) // width, 1))

    def _box(self, cut: int, length: int, lines: int) -> int:
        """Return the elements of the images that one step of the first reduced axis reads."""
        space, total = Space(self.plan.kernel), 1
        counts = {a.var: size_of(a.extent) for a in self.pattern.reduce.axes[1:]}
        if lines:
            counts[self.pattern.reduce.axes[1].var] = lines
        counts |= {f.var: size_of(f.extent) for f in self.found.positions[cut:]}
        counts[self.found.positions[cut].var] = length
        for i in self.found.image.index:
            moves = {v: abs(space.stride(i, v) or 0) for v in counts}
            # What all loops step over is not copied.
            step = gcd(*[m for v, m in moves.items() if counts[v] > 1]) or 1
            total *= 1 + sum(moves[v] // step * (n - 1) for v, n in counts.items())
        return total
