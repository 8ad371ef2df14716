"""Convolutions of bfloat16 whose taps slide over one copy of the image (AMX tiles).

The words of the image, pairs of channels, are copied once for some rows of positions, those of a
position side by side, with zeros around. A tile of 16 x 16 words has 16 positions as its rows, and
the one for another tap begins elsewhere in the same copy: nothing is copied for each tap, and every
row of a tile is one line of the cache, whatever the stride. The columns are channels of results.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.ir.record import Record
from weft.schedule.matrix import SIDE
from weft.schedule.sliding import PAIR
from weft.schedule.space import find_reduce
from weft.schedule.subscripts import Space, accesses
from weft.strategies.contraction_dot import Sides, panel, sides_of, turn_words, whole
from weft.strategies.contraction_matrix import keep_tiles, tile_side
from weft.strategies.contraction_pattern import (
    MAC_SPEED,
    Parameters,
    Pattern,
    match,
    tile_rows,
    tile_split,
)
from weft.strategies.nest import (
    Plan,
    loop_of,
    parallelise,
    power_above,
    product,
    size_of,
    work,
)

FEWEST: Final = 3  # channels of results, and of what is summed
LINES: Final = 8  # rows of positions that share one copy
OVERHEAD: Final = 8  # parts of the positions for which one more that lies idle is accepted


class _Sizes(Record):
    """Positions and channels of results of a tile, channels of a block, rows of one copy."""

    rows: int
    columns: int
    block: int
    lines: int


def schedule_slide(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of taps that slide over one copy; whether it fits.

    Raises
    ------
    ScheduleError
        If taps go another way than positions: one copy does not serve them.
    """
    if not plan.target.supports(Op.MATRIX2, uint32) or len(pattern.reduce.axes) < 2:
        return False
    pattern, is_turned = _turn_taps(plan, pattern)
    # Weights of a gradient by images lie apart: no form makes one sum of channels and taps.
    least = FEWEST if is_turned else SIDE
    s = sides_of(plan, pattern, turned=True, masked=True)
    if s is None or s.op != Op.DOT2.name or not s.points > s.depth >= least:
        return False
    if size_of(s.row.extent) < SIDE or size_of(s.wide.extent) < FEWEST:
        return False
    slide = _Slide(plan, pattern, s)
    sizes = slide.sizes(p)
    if sizes is None:
        return False
    slide.apply(sizes)
    plan.why.append(f"contraction: {sizes.rows}×{sizes.columns} results in tiles of "
                    f"{SIDE}×{SIDE}, taps of one copy ({s.op})")
    return True


def _turn_taps(plan: Plan, pattern: Pattern) -> tuple[Pattern, bool]:
    """Let taps go the way of positions: those of a gradient by images go the other way.

    Returns the contraction as it is then, and whether any taps were turned.
    """
    space, rows = Space(plan.kernel), {r.var for r in pattern.rows}
    back = {a.var.attr for a in pattern.reduce.axes for x in accesses(pattern.reduce.body)
            for i in x.index if (space.stride(i, a.var) or 0) < 0 and space.symbols(i) & rows}
    for axis in back:
        plan.schedule.reverse(axis)
    found = match(plan, str(pattern.rows[0].var.attr)) if back else pattern
    assert found is not None
    return found, bool(back)


class _Slide:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, s: Sides) -> None:
        self.plan, self.s = plan, s
        self.amount = work((pattern.rows[0],)) // MAC_SPEED
        self.name = str(pattern.reduce.accumulators[0].var.attr)
        image, weights = ((pattern.right, pattern.left) if s.row_side == "right"
                          else (pattern.left, pattern.right))
        others = [r for r in pattern.rows if r is not s.row and r is not s.wide]
        self.groups = [str(r.var.attr) for r in others if r.var in weights]
        self.outer = [str(r.var.attr) for r in others if r.var not in weights]
        self.around = product(r.extent for r in others if r.var not in weights)
        self.x, self.o = str(s.row.var.attr), str(s.wide.var.attr)
        self.top, self.strip = f"{self.o}.o", f"{self.x}.o"
        axes = [str(a.var.attr) for a in pattern.reduce.axes]
        self.taps = [a for a in axes if a != s.axis]
        positions = [r for r in others if r.var in image - weights and size_of(r.extent) > 1]
        self.beside = self._beside([str(r.var.attr) for r in positions] + [self.x])
        lines = [r for r in positions if str(r.var.attr) in self.beside]
        self.line = lines[-1] if lines else None

    def _beside(self, positions: list[str]) -> dict[str, str]:
        """Return the tap that moves the image in the same dimension, by position."""
        space = Space(self.plan.kernel)
        out = {}
        for a in accesses(find_reduce(self.plan.kernel, self.name, "taps").reduce.body):
            for i in a.index:
                seen = {str(v.attr) for v in space.symbols(i)}
                out.update({x: tap for x in positions for tap in self.taps if {x, tap} <= seen})
        return out

    def sizes(self, p: Parameters) -> _Sizes | None:
        """Return how results are cut, None where a copy would be too large."""
        plan, s = self.plan, self.s
        n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
        rows = 2 * SIDE if n >= 2 * SIDE else SIDE
        if OVERHEAD * whole(n, rows) > (OVERHEAD + 1) * whole(n, SIDE):
            rows = SIDE
        columns = tile_side(wide_n)
        kept = min(p.matrix_bytes, plan.target.l2_bytes // 2)
        points = s.points // s.depth * whole(s.depth, s.group * SIDE) // s.group
        if 4 * points * columns > kept:
            return None
        most = min(kept // (4 * points * columns), -(-wide_n // columns))
        blocks = -(-wide_n // (most * columns))
        return _Sizes(rows, columns, whole(-(-wide_n // blocks), columns), self._lines(rows))

    def _lines(self, rows: int) -> int:
        """Return how many rows of positions share a copy: an even number where tiles pair them."""
        if self.line is None:
            return 1
        pair = 2 if rows == SIDE else 1
        n, threads = size_of(self.line.extent), self.plan.threads
        most = LINES if threads == 1 else min(LINES, max(self.around // (2 * threads), pair))
        return n if n <= most else pair * tile_rows(-(-n // pair), most // pair)

    def apply(self, sizes: _Sizes) -> None:
        """Apply the schedule."""
        plan, schedule, s = self.plan, self.plan.schedule, self.s
        rounds = self._order(sizes)
        schedule.tensorize(self.name, s.axis, s.op, bias=s.row_side, multiple=SIDE)
        q = f"{s.axis}.q"
        schedule.split(q, SIDE)
        image, weights = (f"{self.name}.{side}" for side in (
            s.row_side, "left" if s.row_side == "right" else "right"))
        self._copy_image(image, rounds, q)
        tile = self._tile(rounds, sizes)
        shared = parallelise(plan, [*self.groups, *self.outer, self.strip, self.top], self.amount)
        schedule.reorder(f"{q}.o", *self.taps, f"{q}.i")
        loops = panel(plan, weights, self.top, (
            f"{self.o}.i.o", f"{q}.o", *self.taps, tile[1], f"{q}.i", tile[3]))
        around = self._copy_weights(loops)
        if shared in (*self.outer, self.strip):  # else one thread would copy them, others wait
            parallelise(plan, around, self.amount)
        keep_tiles(plan, self.name, tile, image, f"{q}.i")
        channel, last = f"{tile[3]}.f", f"{tile[2]}.f"
        schedule.reorder(channel, last).unroll(channel).vectorize(last)

    def _order(self, sizes: _Sizes) -> list[str]:
        """Order the loops, and cut rows of positions into runs; return the loop over one."""
        plan = self.plan
        tile_split(plan, self.o, self.s.wide.extent, sizes.block)
        rounds = []
        if self.line is not None and sizes.lines > 1:
            y = str(self.line.var.attr)
            tile_split(plan, y, self.line.extent, sizes.lines)
            self.outer[self.outer.index(y)] = f"{y}.o"
            rounds = [f"{y}.i"]
        order = [*self.groups, self.top, *self.outer, *rounds, f"{self.o}.i", self.x]
        for loop in [*order[-2:], *order[:-2]]:
            plan.schedule.sink(loop)
        plan.schedule.reorder(*order)
        return rounds

    def _copy_image(self, word: str, rounds: list[str], q: str) -> None:
        """Copy the words that some rows of positions read."""
        plan, s = self.plan, self.s
        beside = {x.removesuffix(".i"): x for x in [*rounds, self.x]}
        pairs = {tap: beside[y] for y, tap in self.beside.items() if y in beside}
        lines = [f"{y}{PAIR}{tap}" for tap, y in pairs.items() if y != self.x]
        along = next((f"{self.x}{PAIR}{tap}" for tap, y in pairs.items() if y == self.x), self.x)
        alone = [tap for tap in self.taps if tap not in pairs]
        free = [y for y in rounds if y not in pairs.values()]
        loops = panel(plan, word, (self.outer or [self.top])[-1],
                      (f"{q}.o", *alone, *free, *lines, along, f"{q}.i"))
        n = size_of(loop_of(plan, loops[-2]).extent)
        turn_words(plan, loops[-2], loops[-1], min(SIDE, power_above(n)))
        if s.depth % (s.group * SIDE) and s.depth > s.group * SIDE:
            plan.schedule.peel(loops[0])  # all steps but the last are full: they need no masks

    def _tile(self, rounds: list[str], sizes: _Sizes) -> list[str]:
        """Cut positions and channels into tiles, and return the loops of one."""
        plan, schedule, x, o = self.plan, self.plan.schedule, self.x, self.o
        tile_split(plan, x, self.s.row.extent, sizes.rows)
        schedule.split(f"{o}.i", sizes.columns).split(f"{o}.i.i", SIDE)
        if sizes.rows == SIDE and rounds:
            y = rounds[0]
            tile_split(plan, y, loop_of(plan, y).extent, 2)
            above, along, rounds = f"{y}.i", f"{x}.i", [f"{y}.o"]
        else:
            schedule.split(f"{x}.i", SIDE)
            above, along = f"{x}.i.o", f"{x}.i.i"
        tile = [above, f"{o}.i.i.o", along, f"{o}.i.i.i"]
        order = [*rounds, self.strip, f"{o}.i.o", *tile]
        for loop in order:
            schedule.sink(loop)
        schedule.reorder(*order)
        return tile

    def _copy_weights(self, loops: list[str]) -> list[str]:
        """Copy weights along the taps of a channel, which lie side by side.

        `loops` are blocks of channels of results, steps, taps, channels of results in two parts
        with the words between them. Returns the loops around.
        """
        plan, schedule = self.plan, self.plan.schedule
        taps, first = loops[2 : 2 + len(self.taps)], loops[2 + len(self.taps)]
        schedule.reorder(loops[0], first, loops[1], loops[-2], *taps, loops[-1])
        tap = taps[0]
        for other in taps[1:]:
            schedule.fuse(tap, other)
            tap = f"{tap}_{other}"
        n = size_of(loop_of(plan, tap).extent)
        turn_words(plan, tap, loops[-1], min(SIDE, power_above(n + 1) // 2))
        return [loops[0], first]
