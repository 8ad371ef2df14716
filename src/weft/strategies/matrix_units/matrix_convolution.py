"""Convolutions of bfloat16 whose taps slide over one copy of the image (AMX tiles).

The words of the image, pairs of channels, are copied once for some rows of positions, those of a
position side by side, with zeros around. A tile of 16 x 16 words has 16 positions as its rows, and
the one for another tap begins elsewhere in the same copy: nothing is copied for each tap, and every
row of a tile is one line of the cache, whatever the stride. The columns are channels of results.

Rows that fill no tiles are joined: where each tap along a row has a copy of its own, the rows of
that lie one behind the other without anything between them, and a tile goes on in the next one.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.ir.record import Record
from weft.schedule.analysis.sliding import PAIR
from weft.schedule.analysis.space import find_reduce
from weft.schedule.analysis.subscripts import Space, accesses
from weft.schedule.data.matrix import SIDE
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    match,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import is_part
from weft.strategies.common.nest import (
    Plan,
    flat_stride,
    loop_of,
    parallelise,
    power_above,
    product,
    shares_evenly,
    size_of,
)
from weft.strategies.matrix_units.dot_instructions import (
    Sides,
    panel,
    sides_of,
    transpose_words,
    whole,
)
from weft.strategies.matrix_units.matrix_gemm import keep_tiles, tile_side

FEWEST: Final = 3  # channels of results, and of what is summed
LINES: Final = 8  # rows of positions that share one copy
SHORTEST: Final = 4  # positions of a row that are copied as one vector
KEPT: Final = 4  # parts of the second cache, of which one holds the copy of joined rows
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
    if not plan.target.supports(Op.MATRIX2, uint32) or (
            len(pattern.reduce.axes) < 2 and not is_part(Space(plan.kernel), pattern)):
        return False
    pattern, back = _turn_taps(plan, pattern)
    # Weights of a gradient by images lie apart: no form makes one sum of channels and taps.
    least = FEWEST if back else SIDE
    s = sides_of(plan, pattern, turned=True, masked=True)
    if s is None or s.op != Op.DOT2.name or s.depth < least or size_of(s.wide.extent) < FEWEST:
        return False
    joined = _Joined(plan, pattern, s)
    slide = joined if joined.pays() else _Slide(plan, pattern, s)
    if slide is not joined and (size_of(s.row.extent) < SIDE or s.points == s.depth):
        return False
    sizes = slide.sizes(p)
    if sizes is None:
        return False
    slide.apply(sizes, back)
    plan.why.append(f"contraction: {sizes.rows}×{sizes.columns} results in tiles of "
                    f"{SIDE}×{SIDE}, {slide.WHAT} ({s.op})")
    return True


def _turn_taps(plan: Plan, pattern: Pattern) -> tuple[Pattern, list[str]]:
    """Let taps go the way of positions; return those of a gradient by images, which do not."""
    space, rows = Space(plan.kernel), {r.var for r in pattern.rows}
    back = [str(a.var.attr) for a in pattern.reduce.axes if any(
        (space.stride(i, a.var) or 0) < 0 and space.symbols(i) & rows
        for x in accesses(pattern.reduce.body) for i in x.index)]
    for axis in back:
        plan.schedule.reverse(axis)
    found = match(plan, str(pattern.rows[0].var.attr)) if back else pattern
    assert found is not None
    return found, back


class _Slide:
    """One convolution on its way through the primitives."""

    WHAT = "taps of one copy"

    def __init__(self, plan: Plan, pattern: Pattern, s: Sides) -> None:
        self.plan, self.s = plan, s
        self.amount = work_of(plan, pattern)
        self.name = str(pattern.reduce.accumulators[0].var.attr)
        image, weights = ((pattern.right, pattern.left) if s.row_side == "right"
                          else (pattern.left, pattern.right))
        others = [r for r in pattern.rows if r is not s.row and r is not s.wide]
        self.groups = [str(r.var.attr) for r in others if r.var in weights]
        self.outer = [str(r.var.attr) for r in others if r.var not in weights]
        self.around = product(r.extent for r in others if r.var not in weights)
        self.x, self.o = str(s.row.var.attr), str(s.wide.var.attr)
        self.top = f"{self.o}.o"
        self.taps = self._taps(pattern)
        positions = [r for r in others if r.var in image - weights and size_of(r.extent) > 1]
        self.beside = self._beside([str(r.var.attr) for r in positions] + [self.x])
        self.sliding = self.beside  # those of which neighbours share a copy
        lines = [r for r in positions if str(r.var.attr) in self.beside]
        self.line = lines[-1] if lines else None

    def _taps(self, pattern: Pattern) -> list[str]:
        """Return the axes of taps in the order in which weights lie in memory."""
        space = Space(self.plan.kernel)
        weights = next(a for a in accesses(pattern.reduce.body)
                       if any(self.s.wide.var in space.symbols(i) for i in a.index))
        taps = [a.var for a in pattern.reduce.axes if a.var.attr != self.s.axis]
        return [str(v.attr) for v in sorted(
            taps, key=lambda v: -abs(flat_stride(space, weights, v) or 0))]

    def _beside(self, positions: list[str]) -> dict[str, str]:
        """Return the tap that moves the image in the same dimension, by position."""
        space = Space(self.plan.kernel)
        out = {}
        for a in accesses(find_reduce(self.plan.kernel, self.name, "taps").reduce.body):
            for i in a.index:
                seen = {str(v.attr) for v in space.symbols(i)}
                out.update({x: tap for x in positions for tap in self.taps if {x, tap} <= seen})
        return out

    @property
    def strip(self) -> str:
        """The loop over tiles of a row."""
        return f"{self.x}.o"

    def sizes(self, p: Parameters) -> _Sizes | None:
        """Return how results are cut, None where a copy would be too large."""
        n = size_of(self.s.row.extent)
        sizes = self._cut(p, n)
        return sizes and sizes.replace(lines=self._lines(sizes.rows))

    def _cut(self, p: Parameters, n: int) -> _Sizes | None:
        """Return the tiles of `n` positions that are one row."""
        plan, s = self.plan, self.s
        wide_n = size_of(s.wide.extent)
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
        return _Sizes(rows, columns, whole(-(-wide_n // blocks), columns), 1)

    def _lines(self, rows: int) -> int:
        """Return how many rows of positions share a copy: an even number where tiles pair them."""
        if self.line is None:
            return 1
        pair = 2 if rows == SIDE else 1
        n, threads = size_of(self.line.extent), self.plan.threads
        most = LINES if threads == 1 else min(LINES, max(self.around // (2 * threads), pair))
        return n if n <= most else pair * tile_rows(-(-n // pair), most // pair)

    def apply(self, sizes: _Sizes, back: list[str]) -> None:
        """Apply the schedule. `back`: the taps that have been turned for the copy of the image."""
        plan, schedule, s = self.plan, self.plan.schedule, self.s
        rounds = self._order(sizes)
        schedule.tensorize(self.name, s.axis, s.op, bias=s.row_side, multiple=SIDE)
        q = f"{s.axis}.q"
        schedule.split(q, SIDE)
        image, weights = (f"{self.name}.{side}" for side in (
            s.row_side, "left" if s.row_side == "right" else "right"))
        self._copy_image(image, rounds, q)
        for tap in [tap for tap in self.taps if tap in back]:  # weights are copied as they lie
            schedule.reverse(tap)
        # Once rows are joined it is no longer plain that threads write to places of their own.
        around = [*self.groups, *self.outer, self.top]
        shared = parallelise(plan, around, self.amount) if any(map(self._is_even, around)) else None
        tile = self._tile(rounds, sizes)
        if shared is None:
            shared = parallelise(plan, [*around[:-1], self.strip, self.top], self.amount)
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
        while len(self.outer) > 1 and not any(map(self._is_even, self.outer)):
            first, second, *rest = self.outer
            plan.schedule.fuse(first, second)
            self.outer = [f"{first}_{second}", *rest]
        return rounds

    def _is_even(self, loop: str) -> bool:
        """Whether all threads have as much to do if they share out the turns of a loop."""
        n = size_of(loop_of(self.plan, loop).extent)
        return self.plan.threads < 2 or shares_evenly(n, self.plan.threads)

    def _copy_image(self, word: str, rounds: list[str], q: str) -> None:
        """Copy the words that some rows of positions read."""
        plan = self.plan
        beside = {x.removesuffix(".i"): x for x in [*rounds, self.x]}
        pairs = {tap: beside[y] for y, tap in self.sliding.items() if y in beside}
        lines = [f"{y}{PAIR}{tap}" for tap, y in pairs.items() if y != self.x]
        along = next((f"{self.x}{PAIR}{tap}" for tap, y in pairs.items() if y == self.x), self.x)
        alone = [tap for tap in self.taps if tap not in pairs]
        free = [y for y in rounds if y not in pairs.values()]
        loops = panel(plan, word, (self.outer or [self.top])[-1],
                      (f"{q}.o", *alone, *free, *lines, along, f"{q}.i"))
        self._turn_words(loops)

    def _turn_words(self, loops: list[str]) -> None:
        """Read words along a row of the image, and write them along the channels."""
        plan, s = self.plan, self.s
        n = size_of(loop_of(plan, loops[-2]).extent)
        # Lanes that repeat what others copy cost less than stores with masks, which turn nothing.
        transpose_words(plan, loops[-2], loops[-1], min(SIDE, power_above(n + 1) // 2))
        if s.depth % (s.group * SIDE) and s.depth > s.group * SIDE:
            plan.schedule.peel(loops[0])  # all steps but the last are full: they need no masks

    def _tile(self, rounds: list[str], sizes: _Sizes) -> list[str]:
        """Cut positions and channels into tiles, and return the loops of one."""
        plan, schedule, x, o = self.plan, self.plan.schedule, self.x, self.o
        tile_split(plan, x, loop_of(plan, x).extent, sizes.rows)
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
        if not taps:
            schedule.vectorize(loops[-1])
            return [loops[0], first]
        tap = taps[0]
        for other in taps[1:]:
            schedule.fuse(tap, other)
            tap = f"{tap}_{other}"
        n = size_of(loop_of(plan, tap).extent)
        transpose_words(plan, tap, loops[-1], min(SIDE, power_above(n + 1) // 2))
        return [loops[0], first]


class _Joined(_Slide):
    """One whose rows are short: those of a copy lie one behind the other, and are one row.

    Each tap along them has a copy of its own, so that windows in which a row ends read zeros.
    """

    WHAT = "a copy of joined rows for each tap along them"

    def __init__(self, plan: Plan, pattern: Pattern, s: Sides) -> None:
        space = Space(plan.kernel)
        mine, other = ((pattern.left, pattern.right) if s.row_side == "left"
                       else (pattern.right, pattern.left))
        stored = next(a for a in accesses(pattern.rows[-1].body) if a.write)
        positions = sorted(
            [r for r in pattern.rows if r.var in mine - other and size_of(r.extent) > 1],
            key=lambda r: -abs(flat_stride(space, stored, r.var) or 0))
        super().__init__(plan, pattern, s.replace(row=positions[-1]))
        self.line = positions[-2] if len(positions) > 1 else None
        self.width = size_of(positions[-1].extent)
        self.counts = {str(a.var.attr): size_of(a.extent) for a in pattern.reduce.axes}
        self.columns = -(-size_of(s.wide.extent) // SIDE)
        self.sliding = {x: tap for x, tap in self.beside.items() if x != self.x}
        image = next(a for a in accesses(pattern.reduce.body)
                     if any(positions[-1].var in space.symbols(i) for i in a.index))
        steps = [flat_stride(space, image, r.var) for r in positions[-2:]]
        self.is_dense = steps == [self.width, 1]  # rows lie one behind the other in the image, too
        self.is_even = self.line is None or all(
            (space.stride(i, self.line.var) or 0) <= abs(space.stride(i, a.var) or 0)
            for a in pattern.reduce.axes for i in image.index
            if {self.line.var, a.var} <= space.symbols(i) and size_of(a.extent) > 1)

    def pays(self) -> bool:
        """Whether this takes less time than rows one by one, if those fill tiles."""
        if self.line is None or not self.is_even:  # rows that are skipped lie between others
            return False
        n = size_of(self.line.extent)
        if n * self.width < SIDE:
            return False
        if self.width < SIDE or not self.taps:
            return True
        tiles, row = -(-self.width // SIDE), self._reach(self.x, self.width)
        return self._time(self._best()) < min(
            self._time(k, k * tiles, row) for k in range(1, min(n, LINES) + 1))

    def _time(self, lines: int, tiles: int = 0, row: int = 0) -> int:
        """Return the cycles of one thread if so many rows share a copy.

        By default the tiles are those of joined rows. `row`: the lines of a row of the copy.
        """
        s = self.s
        y = str(self.line.var.attr) if self.line is not None else ""
        steps = -(-s.depth // (s.group * SIDE))
        tiles = tiles or -(-lines * self.width // SIDE)
        row = row or self.counts.get(self.beside.get(self.x, ""), 1) * self.width
        costs, columns = self.plan.costs, tiles * self.columns
        step = (columns * s.points // s.depth * costs.matrix_product_cycles
                + row * self._reach(y, lines) * costs.matrix_line_cycles)
        once = steps * step + columns * costs.matrix_store_cycles
        n = size_of(self.line.extent) if self.line is not None else 1
        return -(-self.around // n * -(-n // lines) // self.plan.threads) * once

    def _reach(self, position: str, n: int) -> int:
        """Return the places of the image under `n` neighbouring positions, in their dimension."""
        return n + self.counts.get(self.beside.get(position, ""), 1) - 1

    def _best(self) -> int:
        """Return how many rows share a copy."""
        n = size_of(self.line.extent) if self.line is not None else 1
        line = 2 * whole(self.s.depth, self.s.group * SIDE) * self.width * self.counts.get(
            self.beside.get(self.x, ""), 1)
        y = str(self.line.var.attr) if self.line is not None else ""
        most = self.plan.target.l2_bytes // KEPT
        least = -(-SIDE // self.width)  # rows that fill a tile
        return min([k for k in range(least, n + 1)
                    if k == least or self._reach(y, k) * line <= most], key=self._time)

    def sizes(self, p: Parameters) -> _Sizes | None:
        """Return how results are cut, None where a copy would be too large."""
        self.lines = self._best()
        sizes = self._cut(p, self.lines * self.width)
        return sizes and sizes.replace(lines=self.lines)

    def _tile(self, rounds: list[str], sizes: _Sizes) -> list[str]:
        """Join rows, cut positions and channels into tiles, and return the loops of one."""
        for above in rounds:
            self.plan.schedule.reorder(f"{self.o}.i", above, self.x).fuse(above, self.x)
            self.x = f"{above}_{self.x}"
        return super()._tile([], sizes)

    def _turn_words(self, loops: list[str]) -> None:
        """Read words along joined rows where these, or none of their own, fill vectors."""
        if (self.is_dense or self.width < SHORTEST) and self.lines > 1:
            above, along = loops[-3:-1]
            self.plan.schedule.fuse(above, along)
            loops = [*loops[:-3], f"{above}_{along}", loops[-1]]
        super()._turn_words(loops)
