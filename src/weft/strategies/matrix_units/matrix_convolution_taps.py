"""Convolutions of bfloat16 as products of 16 x 16 matrices of packed words (AMX tiles).

Where the weights of a channel of results lie one behind the other, all taps and channels make one
sum: its words are pairs of neighbours among the weights, and of what lies under these in the image.
Else the channels that are summed over make the words, and each tap of a window has steps of its
own. The weights of a block of channels of results are copied once, for all images and rows. The
words under a few neighbouring positions of a row are copied so that they lie as the tiles read
them. The rows of the image that they come from are copied before, with zeros around, where windows
reach out of it: then no word has a mask.
"""

from __future__ import annotations

import math
from typing import Final

from weft.ir.dtype import uint32
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.schedule.analysis.subscripts import Space, accesses
from weft.schedule.data.matrix import SIDE
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import Windowed, box_of_rows, copy_box, find_windows
from weft.strategies.common.nest import (
    Plan,
    find,
    flat_stride,
    loop_of,
    parallelise,
    product,
    size_of,
)
from weft.strategies.matrix_units.dot_instructions import Sides, binds, panel, sides_of, whole
from weft.strategies.matrix_units.matrix_gemm import keep_tiles, tile_side

COPIES: Final = 25  # taps that are written out where weights are copied
FEWEST: Final = 5  # positions of a row for which tiles are filled up
FEWEST_JOINED: Final = 3  # the same, and channels of results, where a copy serves all taps
SHORTEST: Final = 24  # terms of a sum that is filled up to whole tiles
LINES: Final = 8  # rows of positions that share one box of the image
MOST_WRITTEN: Final = 128  # taps that are written out where the words under positions are copied
OVERHEAD: Final = 8  # parts of the positions for which one more that lies idle is accepted


class _Tiles(Record):
    """How a convolution is cut: ``rows`` by ``columns`` results in a tile, ``block`` channels.

    ``joined``: the weights of a channel of results lie one behind the other, so that all taps and
    channels make one sum; else each tap has its own steps.
    """

    rows: int
    columns: int
    block: int
    joined: bool


def schedule_taps(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of products of matrices, tap by tap; whether it fits."""
    if not plan.target.supports(Op.MATRIX2, uint32) or len(pattern.reduce.axes) < 2:
        return False
    s = sides_of(plan, pattern, masked=True)
    if s is None or s.op != Op.DOT2.name:
        return False
    tiles = _choose(plan, pattern, s, p)
    if tiles is None:
        return False
    _Taps(plan, pattern, s, tiles).apply()
    plan.why.append(f"contraction: {tiles.rows}×{tiles.columns} results in tiles of "
                    f"{SIDE}×{SIDE}, {'all taps' if tiles.joined else 'tap by tap'} ({s.op})")
    return True


def _choose(plan: Plan, pattern: Pattern, s: Sides, p: Parameters) -> _Tiles | None:
    """Return the tiles, None where these would hardly be filled or a panel is too large."""
    rows_n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
    joined = _is_joined(plan, pattern, s)
    if joined:
        filled = min(rows_n, wide_n) >= FEWEST_JOINED and rows_n * wide_n >= SIDE and (
            s.points >= SHORTEST)
    else:
        filled = rows_n >= SIDE // 2 and wide_n >= FEWEST and s.depth >= SIDE * s.group // 2
    if not filled:
        return None
    rows, columns = tile_side(rows_n), tile_side(wide_n)
    if joined and OVERHEAD * whole(wide_n, columns) > (OVERHEAD + 1) * whole(wide_n, SIDE):
        columns = SIDE
    depth = s.points if joined else s.depth
    points = s.points // depth * whole(depth, s.group * SIDE) // s.group
    kept = min(p.matrix_bytes, plan.target.l2_bytes // 2)
    if points * max(rows, columns) * 4 > kept:
        return None
    most = min(kept // (4 * points * rows), -(-rows_n // rows))
    blocks = -(-rows_n // (most * rows))
    return _Tiles(rows, columns, whole(-(-rows_n // blocks), rows), joined)


def _is_joined(plan: Plan, pattern: Pattern, s: Sides) -> bool:
    """Whether the weights of a channel of results lie one behind the other, in the axes' order."""
    space, count = Space(plan.kernel), 1
    mine = [a for a in accesses(pattern.reduce.body)
            if any(s.row.var in space.symbols(i) for i in a.index)]
    for axis in reversed(pattern.reduce.axes):
        n = size_of(axis.extent)
        if len(mine) != 1 or (n > 1 and flat_stride(space, mine[0], axis.var) != count):
            return False
        count *= n
    return True


class _Taps:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, s: Sides, tiles: _Tiles) -> None:
        self.plan, self.pattern, self.s, self.tiles = plan, pattern, s, tiles
        self.amount = work_of(plan, pattern)
        self.name = str(pattern.reduce.accumulators[0].var.attr)
        image, weights = _sides(pattern, s)
        others = [r for r in pattern.rows if r is not s.row and r is not s.wide]
        self.groups = [str(r.var.attr) for r in others if r.var in weights]
        self.outer = [str(r.var.attr) for r in others if r.var not in weights]
        lines = [r for r in others if r.var in image - weights and size_of(r.extent) > 1]
        self.line = lines[-1] if lines else None
        self.paired = self.line is not None and tiles.columns == SIDE  # two short rows at a time
        self.i, self.j = str(s.row.var.attr), str(s.wide.var.attr)
        self.top, self.strip = f"{self.i}.o", f"{self.j}.o"

    def apply(self) -> None:
        """Apply the schedule."""
        plan, schedule, s, tiles = self.plan, self.plan.schedule, self.s, self.tiles
        tile_split(plan, self.i, s.row.extent, tiles.block)
        rounds = self._share_lines()
        taps, q = self._join()
        name = self.name
        words = f"{name}.{s.row_side}", f"{name}.{'left' if s.row_side == 'right' else 'right'}"
        if binds(plan, f"{name}.dot"):
            name = f"{name}.dot"
        schedule.split(q, SIDE)
        tile = self._tile(rounds)
        shared = parallelise(plan, [*self.groups, *self.outer, self.strip, self.top], self.amount)
        steps = [*taps, f"{q}.o"]
        schedule.reorder(*steps, f"{q}.i")
        loops = panel(plan, words[0], self.top,
                      (f"{self.i}.i.o", *steps, tile[0], tile[2], f"{q}.i"))
        if tiles.joined:
            self._copy_weights(loops)
        else:
            _turn_weights(plan, loops, len(taps))
        if shared in (*self.outer, self.strip):  # else one thread would copy them, others wait
            parallelise(plan, [loops[0], loops[-2]], self.amount)
        if tiles.joined:
            self._copy_words(panel(plan, words[1], self.strip,
                                   (tile[1], *steps, f"{q}.i", tile[3])))
        else:
            loops = panel(plan, words[1], self.strip, (*steps, tile[1], f"{q}.i", tile[3]))
            schedule.vectorize(loops[-1])
        keep_tiles(plan, name, tile, words[0], f"{q}.i")
        schedule.vectorize(f"{tile[3]}.f")

    def _share_lines(self) -> list[str]:
        """Cut the rows of positions into runs that share a box of the image, and copy that.

        Returns the loops inside of a run, above the positions of a row.
        """
        plan, schedule = self.plan, self.plan.schedule
        found = find_windows(plan, self.pattern) if self.tiles.joined else None
        lines = self._lines(found)
        rounds = []
        if self.line is not None and (lines > 1 or self.paired):
            y = str(self.line.var.attr)
            tile_split(plan, y, self.line.extent, lines)
            self.outer[self.outer.index(y)] = f"{y}.o"
            rounds = [f"{y}.i"]
        order = [*self.groups, self.top, *self.outer, *rounds, f"{self.i}.i", self.j]
        for loop in [*order[-2:], *order[:-2]]:
            schedule.sink(loop)
        schedule.reorder(*order)
        if found is not None and found.image.mask is not None and (
                box_of_rows(plan, self.pattern, found, lines) <= plan.target.l2_bytes // 4):
            copy_box(plan, found.image, (self.outer or [self.top])[-1])
        return rounds

    def _lines(self, found: Windowed | None) -> int:
        """Return how many rows of positions are gone through at once."""
        pair = 2 if self.paired else 1
        if self.line is None or found is None:
            return pair
        space, axes = Space(self.plan.kernel), {a.var for a in self.pattern.reduce.axes}
        seen = [space.symbols(i) for i in found.image.index]
        if not any(self.line.var in i and axes & i for i in seen):
            return pair  # images of a batch have nothing in common
        n = size_of(self.line.extent)
        around = product(r.extent for r in self.pattern.rows if str(r.var.attr) in self.outer
                         and r is not self.line)
        most = min(LINES, max(n * around // (2 * self.plan.threads), pair)
                   ) if self.plan.threads > 1 else LINES
        return n if n <= most else pair * tile_rows(-(-n // pair), most // pair)

    def _join(self) -> tuple[list[str], str]:
        """Make words of what is summed; return the loops over taps, and the one over words."""
        schedule, s = self.plan.schedule, self.s
        axes = [str(a.var.attr) for a in self.pattern.reduce.axes]
        taps, axis = [a for a in axes if a != s.axis], s.axis
        if self.tiles.joined:
            taps, axis = [], axes[0]
            for other in axes[1:]:
                schedule.fuse(axis, other)
                axis = f"{axis}_{other}"
        schedule.tensorize(self.name, axis, s.op, bias=s.row_side, multiple=SIDE)
        return taps, f"{axis}.q"

    def _tile(self, rounds: list[str]) -> list[str]:
        """Cut channels and positions into tiles, and return the loops of one."""
        plan, schedule, i, j = self.plan, self.plan.schedule, self.i, self.j
        tile_split(plan, j, self.s.wide.extent, self.tiles.columns)
        schedule.split(f"{i}.i", self.tiles.rows).split(f"{i}.i.i", SIDE)
        if self.paired:
            y = rounds[0]
            tile_split(plan, y, loop_of(plan, y).extent, 2)
            beside, along, rounds = f"{y}.i", f"{j}.i", [f"{y}.o"]
        else:
            schedule.split(f"{j}.i", SIDE)
            beside, along = f"{j}.i.o", f"{j}.i.i"
        tile = [f"{i}.i.i.o", beside, f"{i}.i.i.i", along]
        order = [*rounds, self.strip, f"{i}.i.o", *tile]
        for loop in order:
            schedule.sink(loop)
        schedule.reorder(*order)
        return tile

    def _copy_weights(self, loops: list[str]) -> None:
        """Copy weights as they lie.

        `loops` are blocks of channels of results, steps, channels of results and summed words.
        """
        schedule, points = self.plan.schedule, self.s.points
        schedule.reorder(loops[0], *loops[2:4], loops[1], loops[4])
        if points % (SIDE * self.s.group) and points > SIDE * self.s.group:
            schedule.peel(loops[1])  # all steps but the last are full: they need no masks
        schedule.vectorize(loops[-1])

    def _copy_words(self, loops: list[str]) -> None:
        """Copy the words under positions: each run of some channels has taps that are known.

        `loops` are rows or pieces of rows, steps, words and positions.
        """
        schedule, s = self.plan.schedule, self.s
        taps = s.points // size_of(self.pattern.reduce.axes[0].extent)
        schedule.vectorize(loops[-1])
        schedule.fuse(loops[1], loops[2])
        words = f"{loops[1]}_{loops[2]}"
        run = taps // math.gcd(taps, s.group)
        rest = whole(s.points, SIDE * s.group) // s.group - s.points // s.group // run * run
        if rest:
            schedule.peel(words, rest)
        schedule.split(words, run)
        if run <= MOST_WRITTEN:
            schedule.unroll(f"{words}.i")


def _sides(pattern: Pattern, s: Sides) -> tuple[frozenset[Expr], frozenset[Expr]]:
    """Return the loops that the vectors depend on, and those that the rows do."""
    if s.row_side == "right":
        return pattern.left, pattern.right
    return pattern.right, pattern.left


def _turn_weights(plan: Plan, loops: list[str], taps: int) -> None:
    """Copy weights from where the taps of a channel lie side by side.

    `loops` are blocks of channels of results, taps, steps, channels of results and summed channels.
    """
    schedule = plan.schedule
    around, along, rest = loops[:1], loops[1 : 1 + taps], loops[1 + taps : -1]
    schedule.reorder(*around, *rest[1:], rest[0], *along, loops[-1])
    found = [find(plan.kernel, loop) for loop in along]
    if product(f.extent for f in found if f is not None) <= COPIES:
        for loop in along:
            schedule.unroll(loop)
    schedule.vectorize(loops[-1])
