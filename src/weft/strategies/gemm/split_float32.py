"""Contractions of float32 as products of matrices of bfloat16 parts (`float32_parts`).

Parts take half as much memory again as what they are made of, and making them takes time: so each
is made once for as much as the caches hold. Blocks of the sum run outside: in each of them the
parts of all rows (of as many as suit the second cache) are made at first; then the columns follow,
block by block, whose parts meet all these rows and are not needed again. While tiles are multiplied
the next block is asked for, because its rows lie apart in memory.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import float32, uint32
from weft.ir.expr import free_vars
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Load
from weft.ir.traverse import walk
from weft.schedule.analysis.space import find_memory
from weft.schedule.analysis.subscripts import accesses
from weft.schedule.data.float32_parts import PARTS, separable_factors
from weft.schedule.data.matrix import SIDE
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    block_sums,
    copy_strided,
    tile_split,
    work_of,
)
from weft.strategies.common.nest import Plan, find, parallelise, size_of
from weft.strategies.matrix_units.dot_instructions import Sides, panel, sides_of
from weft.strategies.matrix_units.matrix_gemm import keep_tiles, should_transpose, tile_side

FEWEST: Final = 96  # rows and columns from which on it pays
FEWEST_TERMS: Final = 256  # the same of a sum
FEWEST_RESULTS: Final = 1 << 16
MOST_WASTE: Final = 1.35  # times the products asked for, with those of filled up tiles
WORD: Final = 2  # parts that a word holds
STEP: Final = WORD * SIDE  # terms that a product of matrices sums
CHAIN_STEPS: Final = 16  # whose products of parts are added to one another
PLAIN_ROWS: Final = 8  # of a tile of vectors, beside two vectors of columns that lie far apart
BEHIND: Final = 4  # dimensions of a panel from its parts on
COLUMNS: Final = 4  # tiles of columns whose parts are made together
MOST_COLUMNS: Final = 8  # the same, if fewer do not share out
CROWDED: Final = 1.06  # times as long, then: the second cache holds less beside
MADE: Final = 1.6  # tiles of results that take as long as the parts of their rows, or columns
TURNED: Final = 3.9  # the same if these have to be turned
FAR: Final = 3.1  # times as long, if the rows come from memory: they lie apart, in groups
FAR_CACHES: Final = 6  # second caches that hold less than such rows
PLAIN: Final = 2.25  # the same of multiply-adds of vectors
KEPT: Final = 0.5  # steps that take as long as adding their sums to those before
COPY: Final = 0.5  # a tile, which a block of columns takes in addition


class _Cut(Record):
    """How a product is cut.

    ``rows`` by ``columns`` results in a tile, ``strips`` tiles of rows whose parts are kept,
    ``block`` columns whose parts are made together, ``each`` blocks in one share of them, and
    ``terms`` that are summed at a time.
    """

    rows: int
    columns: int
    strips: int
    block: int
    each: int
    terms: int


def schedule_parts(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of products of parts; whether it fits."""
    factors = separable_factors(pattern.reduce)
    if factors is None or not plan.target.supports(Op.MATRIX2, float32) or (
            not plan.target.supports(Op.MATRIX2, uint32) or len(pattern.reduce.axes) != 1):
        return False
    s = sides_of(plan, pattern, separated=True)
    if s is None:
        return False
    is_turned = should_transpose(s) and factors[0].dtype is factors[1].dtype
    if is_turned:
        turned = sides_of(plan, pattern, turned=True, separated=True)
        is_turned = turned is not None
        s = turned or s
    counts = [1 if f.op is Op.CAST else PARTS for f in factors]
    if s.row_side == "right":
        counts.reverse()
    cut = _cut(plan, s, counts, len(pattern.rows) > 2)
    if not _pays(s, cut) or not _is_faster(plan, s, cut, len(pattern.rows) > 2):
        return False
    _Parts(plan, pattern, s, cut, counts, is_turned).apply(p.chain)
    plan.why.append(f"contraction: {cut.rows}×{cut.columns} results in tiles of {SIDE}×{SIDE}, "
                    f"{max(counts)} parts of a factor, {cut.terms} terms at a time")
    return True


def _pays(s: Sides, cut: _Cut) -> bool:
    """Whether there are enough rows, columns and terms, and tiles are filled."""
    rows, wide = size_of(s.row.extent), size_of(s.wide.extent)
    if min(rows, wide) < FEWEST or s.depth < FEWEST_TERMS or rows * wide < FEWEST_RESULTS:
        return False
    done = 1
    for n, group in ((rows, cut.strips * cut.rows), (wide, cut.each * cut.block), (s.depth, STEP)):
        done *= -(-n // group) * group
    return done <= MOST_WASTE * rows * wide * s.depth


def _is_faster(plan: Plan, s: Sides, cut: _Cut, is_batched: bool) -> bool:
    """Whether it takes less than multiply-adds of vectors, in the time of a step of a tile.

    Each thread makes the parts of what it multiplies: those of columns for each group of rows, and
    those of rows for each group of columns. A few columns do not make up for rows from afar.
    """
    threads = 1 if is_batched else plan.threads
    rows, columns, steps = (-(-n // size) for n, size in (
        (size_of(s.row.extent), cut.rows), (size_of(s.wide.extent), cut.block), (s.depth, STEP)))
    turns = -(-(-(-rows // cut.strips) * -(-columns // cut.each)) // threads)
    beside = cut.each * cut.block // cut.columns
    kept = KEPT * -(-s.depth // cut.terms)
    above = cut.strips * _made(s.row_step)
    if 4 * size_of(s.row.extent) * s.depth > FAR_CACHES * plan.target.l2_bytes:
        above *= FAR
    took = turns * (cut.strips * beside * (steps + kept) + steps * (
        beside * _made(s.wide_stride) + above))
    tiles = size_of(s.row.extent) * size_of(s.wide.extent) / (cut.rows * cut.columns)
    return took <= PLAIN * tiles * s.depth / STEP / threads


def _made(stride: int | None) -> float:
    """Return how many tiles take as long as parts of elements that lie so far apart."""
    return MADE if stride == 1 else TURNED


def _cut(plan: Plan, s: Sides, counts: list[int], is_batched: bool) -> _Cut:
    """Return how a product is cut for the second cache and the threads."""
    rows_n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
    rows, columns = tile_side(rows_n), tile_side(wide_n)
    threads = 1 if is_batched else plan.threads
    across = threads if wide_n >= rows_n else 1  # share the columns
    sharers = threads // across  # of the rows
    above, beside = -(-rows_n // rows), -(-wide_n // columns)
    # Beside the parts of rows there are those of columns, and what comes next.
    room = plan.target.l2_bytes * 5 // 8 // (2 * STEP * counts[0] * rows)
    found = []
    for steps in _steps(s.depth):
        most = max(min(room // steps, -(-above // sharers)), 1)
        for strips in range(most, most // 2, -1):
            turns = -(-above // (strips * sharers))
            took = turns * (strips + _made(s.wide_stride)) * (steps + KEPT) / steps
            found.append((took, -strips, steps))
    _, strips, steps = min(found)
    strips, terms = -strips, min(steps * STEP, s.depth)
    if terms < s.depth:  # sums of all columns are kept
        fitting = max(plan.costs.held_sum_bytes // (4 * strips * rows * columns), 1)
        across *= -(-beside // (across * fitting))
    broad = max(min(MOST_COLUMNS, wide_n // columns), 1)  # whole blocks: sums have no masks
    blocks = [n for n in range(1, broad + 1) if -(-beside // n) % across == 0]
    block = min(blocks or [min(COLUMNS, broad)], key=lambda n: -(-beside // n) * (n + COPY) * (
        CROWDED if n > COLUMNS else 1))
    each = -(-beside // block) // across if blocks else 1
    return _Cut(rows, columns, strips, block * columns, each, terms)


def _meet(n: int, size: int, group: int) -> bool:
    """Whether two threads may write some results, if the last of `n` in tiles overlap.

    Of one tile all magnitudes may suit parts and of the other not: then the last one to write would
    decide how such results are rounded. `group` tiles are a thread's, the last ones overlap, too.
    """
    tiles = -(-n // size)
    return n % size > 0 and tiles > group and (tiles - 1) % group == 0


def _steps(depth: int) -> list[int]:
    """Return how many steps of a sum may be taken at a time, all alike where its length allows."""
    steps = -(-depth // STEP)
    if steps <= CHAIN_STEPS:
        return [steps]
    least = CHAIN_STEPS // 2
    alike = [n for n in range(least, CHAIN_STEPS + 1) if steps % n == 0 and depth % STEP == 0]
    return alike or [_evenly(steps, CHAIN_STEPS), _evenly(steps, least)]


def _evenly(count: int, most: int) -> int:
    """Return the size of the fewest groups of at most so many each, all nearly alike."""
    return -(-count // -(-count // most))


class _Parts:
    """One product on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, s: Sides, cut: _Cut, counts: list[int],
                 is_turned: bool) -> None:
        self.plan, self.schedule, self.s, self.cut = plan, plan.schedule, s, cut
        self.is_turned = is_turned
        self.amount = work_of(plan, pattern)
        self.name, self.axis = str(pattern.reduce.accumulators[0].var.attr), s.axis
        self.outer = [str(r.var.attr) for r in pattern.rows if r is not s.row and r is not s.wide]
        self.wide = next(a.memory.name for a in accesses(pattern.reduce.body)
                         if s.wide.var in free_vars(a.index))
        i, j = str(s.row.var.attr), str(s.wide.var.attr)
        self.strip, self.top, self.across = f"{i}.o.i", f"{j}.o.i", f"{j}.i.o"
        self.tile = [f"{i}.i.o", f"{j}.i.i.o", f"{i}.i.i", f"{j}.i.i.i"]
        self.counts = counts
        self.turned: list[str] = []  # tiles, words and columns of a copy across the rows of memory
        self.steps: list[str] = []  # the loops of copies over the steps of the sum

    def apply(self, chain: int) -> None:
        """Apply the schedule; sums of vectors have at most `chain` terms in one."""
        around = self._cut_loops()
        self.schedule.fork(self.strip).separate(self.name)
        other = "left" if self.s.row_side == "right" else "right"
        levels = {"left": f"{self.name}.l", "right": f"{self.name}.h"}
        parts = [levels[side] if count > 1 else ""
                 for side, count in zip((self.s.row_side, other), self.counts, strict=True)]
        words = [f"{self.name}.{side}" for side in (self.s.row_side, other)]
        self.schedule.tensorize(self.name, self.axis, "dot2", bias=self.s.row_side, multiple=SIDE)
        q, pairs = f"{self.axis}.q", sorted(filter(None, parts), reverse=True)
        step = f"{q}.o"
        self.schedule.split(q, SIDE).reorder(step, *pairs, f"{q}.i")
        copy = self._copy_columns(words[1], parts[1], q)
        rows = self._copy_rows(words[0], parts[0], q, around)
        self._guard(words, parts, rows)
        self._plain_tile(chain)
        # Small products first, of all steps: only the largest ones are rounded beside large sums.
        high, pair = f"{self.name}.w", f"{self.name}.p"
        self.schedule.sweep(self.name).reorder(high, step, pair, f"{q}.i")
        keep_tiles(self.plan, self.name, self.tile, words[0], f"{q}.i")
        self.schedule.unroll(high).unroll(pair)
        if self.cut.each > 1 or self._is_blocked():  # another block follows
            self.plan.attempt("prefetch", self.wide, step, self.top, granularity="lines", read=copy,
                              first=self.strip, around=around if self._is_blocked() else "")
        if self.turned:
            self._turn(*self.turned)
        whole = self.cut.terms // STEP
        if self.cut.terms % STEP and whole:  # all steps but the last are full
            for loop in self.steps:
                self.schedule.split(loop, whole, "peel")
        self.schedule.refresh(step, f"{self.name}.r", f"{self.name}.s")
        self._write()

    def _is_blocked(self) -> bool:
        return self.cut.terms < self.s.depth

    def _cut_loops(self) -> str:
        """Cut rows, columns and the sum; return the loop in which parts of rows are made."""
        plan, schedule, s, cut = self.plan, self.schedule, self.s, self.cut
        i, j = str(s.row.var.attr), str(s.wide.var.attr)
        for side, name, size, group in ((s.row, i, cut.rows, cut.strips),
                                        (s.wide, j, cut.block, cut.each)):
            if plan.threads > 1 and _meet(size_of(side.extent), size, group):
                schedule.split(name, size, "mask")
            else:
                tile_split(plan, name, side.extent, size)
        schedule.split(f"{i}.i", SIDE)
        schedule.split(f"{j}.i", cut.columns).split(f"{j}.i.i", SIDE)
        for loop in [f"{i}.o", f"{j}.o", self.across, *self.tile, *self.outer]:
            schedule.sink(loop)
        for loop, factor in ((f"{i}.o", cut.strips), (f"{j}.o", cut.each)):
            found = find(plan.kernel, loop)
            assert found is not None
            tail = "overlap" if size_of(found.extent) % factor else "trim"
            schedule.split(loop, factor, tail)
        groups = [f"{i}.o.o", f"{j}.o.o"]
        schedule.reorder(*self.outer, *groups, self.top, self.strip, self.across, *self.tile)
        if not self.outer and size_of(s.wide.extent) >= size_of(s.row.extent):
            groups.reverse()  # rather twice the parts of rows than twice those of columns
        parallelise(plan, [*self.outer, *groups], self.amount)
        if not self._is_blocked():
            return f"{j}.o.o"
        schedule.block_reduction(self.name, self.top, self.axis, cut.terms)
        self.name, block, self.axis = f"{self.name}.b", f"{self.axis}.o", f"{self.axis}.i"
        schedule.vectorize(f"{self.tile[3]}.begin")
        return block

    def _copy_columns(self, word: str, parts: str, q: str) -> str:
        """Copy the parts of a block of columns; return the outermost loop of the copy.

        `loops` are panels, steps, tiles, words of a step and columns.
        """
        loops = panel(self.plan, word, self.top,
                      (self.across, f"{q}.o", *filter(None, [parts]), self.tile[1], f"{q}.i",
                       self.tile[3]), written=parts)
        self.steps.append(loops[1])
        if self.s.wide_stride != 1:
            if parts:
                self.turned = loops[2:]
            else:  # words of a factor that is a bfloat16
                copy_strided(self.plan, [loops[3]], loops[4])
            return loops[0]
        # line by line of memory, through all panels
        self.schedule.reorder(loops[1], loops[3], loops[0], loops[2], loops[4])
        self.schedule.vectorize(loops[4])
        return loops[1]

    def _turn(self, tile: str, word: str, column: str) -> None:
        """Turn the elements of a tile in registers first: their parts are one short loop then."""
        found = find(self.plan.kernel, column)
        assert found is not None
        for load in [s for s in walk(found.body) if isinstance(s, Load)]:
            words, columns = panel(self.plan, str(load.var.attr), tile, (word, column),
                                   scope="register")  # not kept from call to call
            copy_strided(self.plan, [words], columns)
        self.schedule.vectorize(column)

    def _copy_rows(self, word: str, parts: str, q: str, around: str) -> str:
        """Copy the parts of all rows that are kept; return the outermost loop of the copy."""
        loops = panel(self.plan, word, around,
                      (self.strip, f"{q}.o", *filter(None, [parts]), self.tile[0], self.tile[2],
                       f"{q}.i"), written=parts)
        if self.s.row_stride == 1:
            self.schedule.reorder(loops[4], loops[3]).vectorize(loops[3])
        else:
            self.schedule.vectorize(loops[4])
        self.steps.append(loops[1])
        return loops[0]

    def _guard(self, words: list[str], parts: list[str], rows: str) -> None:
        """Multiply parts only where magnitudes allow it; those of each strip of `rows` apart."""
        for word, level, loop in zip(words, parts, (rows, ""), strict=True):
            shape = find_memory(self.plan.kernel, f"{word}.p", "measure").shape
            # Behind the parts come the tiles, and their rows and columns.
            axis = len(shape) - BEHIND if level else -1
            self.schedule.measure(f"{word}.p", axis, PARTS - 1 if level.endswith(".l") else 0,
                                  loop=loop)
            self.schedule.vectorize(f"{word}.p.g{len(shape) - 1}")
        self.schedule.guard(self.strip, f"{words[0]}.p", f"{words[1]}.p", self.s.depth)

    def _plain_tile(self, chain: int) -> None:
        """Compute the other body's tiles by multiply-adds of vectors, from where operands lie."""
        schedule, name = self.schedule, f"{self.name}.u"
        across, above, beside, row, column = (f"{x}.u" for x in (self.across, *self.tile))
        schedule.split(row, PLAIN_ROWS)
        schedule.reorder(across, above, f"{row}.o", beside, f"{row}.i", column)
        name = block_sums(self.plan, name, beside, (f"{self.axis}.u", chain), column)
        schedule.decompose_reduction(name, beside)
        for end in (".z", "", ".f"):
            schedule.unroll(f"{beside}{end}").unroll(f"{row}.i{end}").vectorize(f"{column}{end}")

    def _write(self) -> None:
        """Write results along the vectors of rows or of columns, where they lie side by side."""
        ends = [".f", ".end"] if self._is_blocked() else [".f"]
        for end in ends:
            last, line = f"{self.tile[2]}{end}", f"{self.tile[3]}{end}"
            if self.is_turned and end == ends[-1]:
                self.schedule.reorder(line, last).unroll(line).vectorize(last)
            else:
                self.schedule.vectorize(line)
