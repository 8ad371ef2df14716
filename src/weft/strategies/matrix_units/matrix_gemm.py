"""Contractions of narrow elements as products of 16 x 16 matrices of packed words (AMX tiles).

Both operands are copied into square tiles; two by two tiles of results stay in the tile registers
over the whole reduced axis. What few tiles share is copied for one step of that axis at a time, in
the first cache. Of operands that both lie along it, the longer one gives the rows, but
where more words of results would be turned by that. What does not fit (small sizes, sums too long
for a panel, kinds of bytes that would have to change places) is left to dot products of vectors.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.ir.stmt import Reduce
from weft.schedule.data.matrix import PRODUCTS, SIDE
from weft.schedule.data.tensorize import OPERATIONS, narrow_factors
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    copy_loops,
    copy_strided,
    may_repeat,
    tile_split,
    work_of,
)
from weft.strategies.common.nest import (
    Plan,
    find,
    loop_of,
    parallelise,
    size_of,
)
from weft.strategies.common.tile_sizes import FEW_STEPS_FAR, share_rows
from weft.strategies.matrix_units.dot_instructions import (
    Sides,
    binds,
    panel,
    sides_of,
    sum_shifts,
    whole,
)

LONG: Final = 20  # products of a tile, from which on its store comes long after the last one
FEWEST: Final = 5  # rows and columns for which whole tiles are filled up
FEWEST_APART: Final = 4  # the same where one operand lies along the sum and the other one does not
FEWEST_MADE: Final = 2  # the same where vectors would need words that are not in memory
TURNED: Final = 2  # times as many columns as rows that lie alike, from which on they give the rows
MANY: Final = 1 << 14  # results, from which on tiles of short sums pay
ENDS: Final = 0.56  # of a tile's time that vectors of a short sum take for its results
TERM: Final = 0.09  # of it that they take for each of its terms
LOW: Final = 8  # times as many rows as terms, from which on each thread copies the columns
FEW_ROWS: Final = 96  # for which a panel hardly pays beside the lines that pass it on their way
READ_NEAR: Final = 2  # times that rows are copied rather than kept for all columns
LINES: Final = 4  # lines of columns that a turn of their copy takes
COPY: Final = 2  # blocks of columns that take as long as the copy of their rows


def schedule_matrix(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of products of matrices; whether it fits."""
    if not any(plan.target.supports(op, uint32) for op in (Op.MATRIX2, Op.MATRIX4)):
        return False
    factors = narrow_factors(pattern.reduce)
    if factors is None:
        return False
    s = sides_of(plan, pattern, signed=plan.target.supports(Op.MATRIX4S, uint32))
    if s is None or len(pattern.reduce.axes) != 1:
        return False
    if not plan.target.supports(PRODUCTS[OPERATIONS[s.op]], uint32):
        return False
    if not _sums_pay(s):
        return False
    is_turned = should_transpose(s) and _turns_less(s)
    if is_turned:
        turned = sides_of(plan, pattern, turned=True, signed=s.op == Op.DOT4S.name)
        if turned is None or factors[0].dtype is not factors[1].dtype:
            is_turned = False  # unsigned bytes would be on the other side
        else:
            s = turned
    rows_n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
    if min(rows_n, wide_n) < _fewest(s):
        return False
    rows, columns = tile_side(rows_n), tile_side(wide_n)
    points = -(-s.depth // (s.group * SIDE)) * SIDE
    kept = min(p.matrix_bytes, plan.target.l2_bytes // 2)  # beside the rows of a tile
    broad = 4 * SIDE  # columns of few rows: whole lines, and enough of them under way
    if rows == SIDE and s.wide_stride == 1 and wide_n >= broad and points * broad * 4 <= kept:
        columns = broad
    if points * max(rows, columns) * 4 > kept:
        return False
    if rows_n <= FEW_ROWS and s.wide_stride == 1:
        kept = max(kept // 2, 4 * points * columns)
    # The last of several blocks overlaps the one before it, and tiles are filled up where there
    # are no two: little is done twice, and few copies of the rows are made.
    most = min(kept // (4 * points * columns), -(-wide_n // columns))
    sharers = 1
    if plan.threads > 1 and len(pattern.rows) == 2 and not _rows_are_shared(s):
        # Threads share the columns, and so the copy of these, rather than the rows.
        sharers = plan.threads
        most = min(most, -(-wide_n // (sharers * columns)))
    tiles = min(range(most, 0, -1),
                key=lambda t: -(-wide_n // (t * columns * sharers)) * (t + COPY))
    block = tiles * columns
    _schedule(plan, pattern, s, rows, columns, block, is_turned)
    plan.why.append(f"contraction: {rows}×{columns} results in tiles of {SIDE}×{SIDE} ({s.op})")
    return True


def tile_side(n: int) -> int:
    """Return the rows or columns of a tile of up to two by two matrices, for `n` of results."""
    return 2 * SIDE if n > SIDE else SIDE


def _fewest(s: Sides) -> int:
    """Return the rows and columns from which on tiles are faster than vectors.

    Vectors along the sum read pairs as they lie, but not in rows of an odd number of elements, and
    signed bytes would have to be shifted for them.
    """
    is_odd = s.row_step == s.wide_step == 1 and s.depth % s.group > 0
    if s.group > 2 or is_odd:
        return FEWEST_MADE
    return FEWEST_APART if s.row_step == s.wide_stride == 1 else FEWEST


def _sums_pay(s: Sides) -> bool:
    """Whether sums are long, or there are many of them, or tiles of pairs are filled enough."""
    rows, columns = size_of(s.row.extent), size_of(s.wide.extent)
    if s.depth >= SIDE * s.group // 2 or rows * columns >= MANY:
        return True
    done = whole(rows, tile_side(rows)) * whole(columns, tile_side(columns))
    vectors = rows * whole(columns, SIDE)
    return s.group == 2 and done <= vectors * (ENDS + TERM * s.depth)


def should_transpose(s: Sides) -> bool:
    """Whether the wide operand, whose elements lie side by side along the sum, gives the rows.

    Rows are copied as they lie, columns have to be turned: the fewer of them the better.
    """
    return (s.wide_stride != 1 and s.wide_step == s.row_step == 1
            and size_of(s.wide.extent) >= TURNED * size_of(s.row.extent))


def _rows_are_shared(s: Sides) -> bool:
    """Whether threads take rows rather than columns: of fewer, a copy is made more than once.

    Short sums copy little, and rows of results are written faster by one thread each.
    """
    rows, columns = size_of(s.row.extent), size_of(s.wide.extent)
    return columns < rows or LOW * s.points <= min(rows, LOW * FEW_STEPS_FAR)


def _turns_less(s: Sides) -> bool:
    """Whether fewer words are turned if the wide operand gives the rows: the results are, then."""
    rows, columns = size_of(s.row.extent), size_of(s.wide.extent)
    return TURNED * (columns - rows) * -(-s.points // s.group) >= rows * columns


def _schedule(plan: Plan, pattern: Pattern, s: Sides, rows: int, columns: int,
              block: int, is_turned: bool) -> None:
    schedule = plan.schedule
    amount = work_of(plan, pattern)
    name = str(pattern.reduce.accumulators[0].var.attr)
    outer = [str(r.var.attr) for r in pattern.rows if r is not s.row and r is not s.wide]
    i, j = str(s.row.var.attr), str(s.wide.var.attr)
    rows, columns, block = (min(most, size_of(loop.extent)) for most, loop in (
        (rows, s.row), (columns, s.wide), (block, s.wide)))
    if plan.is_worth_threads(amount) and not outer and _rows_are_shared(s):
        # A panel that one thread has written comes to another one slower than a copy of its own.
        i = share_rows(plan, pattern, s.row, rows, outer)
    tile_split(plan, i, loop_of(plan, i).extent, rows)
    tile_split(plan, j, s.wide.extent, block)
    for loop, factor in ((f"{i}.i", SIDE), (f"{j}.i", columns), (f"{j}.i.i", SIDE)):
        _cut(plan, loop, factor)
    top, across = f"{j}.o", f"{j}.i.o"
    tile = [f"{i}.i.o", f"{j}.i.i.o", f"{i}.i.i", f"{j}.i.i.i"]
    strip = f"{i}.o"
    for loop in [strip, top, across, *tile, *outer]:
        schedule.sink(loop)
    schedule.reorder(*outer, top, strip, across, *tile)
    parallelise(plan, [*outer, top, strip], amount)
    schedule.tensorize(name, s.axis, s.op, bias=s.row_side, multiple=SIDE)
    words = f"{name}.{s.row_side}", f"{name}.{'left' if s.row_side == 'right' else 'right'}"
    bias = f"{name}.bias" if binds(plan, f"{name}.bias") else ""
    if binds(plan, f"{name}.dot"):
        name = f"{name}.dot"
    q = f"{s.axis}.q"
    schedule.split(q, SIDE)
    if bias:
        sums = panel(plan, bias, top, (across, tile[1], tile[3]))
        if s.wide_stride == 1:
            _sum_lines(plan, sums)
        else:
            sum_shifts(plan, s, sums[-1])
    whole = s.depth // (s.group * SIDE)
    ragged = s.depth % (s.group * SIDE) > 0
    full = whole if ragged and whole > 1 else 0  # steps without masks, which go alone
    rows_near, columns_near = _near(pattern, s, rows, -(-block // columns))
    if not columns_near:
        loops = panel(plan, words[1], top, (across, f"{q}.o", tile[1], f"{q}.i", tile[3]))
        if s.wide_stride == 1:  # line by line of memory, through all panels
            schedule.reorder(loops[1], loops[3], loops[0], loops[2], loops[4]).vectorize(loops[4])
        else:
            _transpose_columns(plan, loops[1], loops[3], loops[4], full, ragged)
        if block % columns and not may_repeat(pattern):  # all columns but the last are there
            schedule.split(loops[0], block // columns, "peel")  # without masks
        if full and s.wide_stride == 1:
            schedule.split(loops[1], full, "peel")
    if not rows_near:
        first = _copy_rows(plan, s, words[0], strip, (f"{q}.o", tile[0], tile[2], f"{q}.i"))
        if full:
            schedule.split(first, full, "peel")
    copies = _sum_apart(plan, name, tile, f"{q}.i")
    if columns_near:
        loops = panel(plan, words[1], f"{q}.o", (tile[1], f"{q}.i", tile[3]))
        schedule.reorder(loops[1], loops[0], loops[2]).vectorize(loops[2])
        schedule.split(loops[1], LINES).unroll(f"{loops[1]}.i").unroll(loops[0])
    if rows_near:
        _copy_rows(plan, s, words[0], f"{q}.o", (tile[0], tile[2], f"{q}.i"))
    _by_matrices(plan, tile, words[0], copies)
    if s.depth >= LONG * s.group * SIDE:
        schedule.refresh(f"{q}.o", f"{name}.r", f"{name}.s")
    last, line = f"{tile[2]}.f", f"{tile[3]}.f"
    if is_turned:  # results lie side by side along the rows of a tile
        schedule.reorder(line, last).unroll(line).vectorize(last)
    else:
        schedule.vectorize(line)


def _near(pattern: Pattern, s: Sides, rows: int, across: int) -> tuple[bool, bool]:
    """Whether the rows and the columns are copied for one step of the sum after the other.

    Tiles read what they share but once or twice from the first cache then. A panel of whole sums
    goes to the second one and comes back, which takes longer than its products. Where results must
    not be computed twice, each side has the masks of both.
    """
    if not may_repeat(pattern):
        return False, False
    by_rows = across <= (1 if s.row_stride == 1 else READ_NEAR)
    return by_rows, s.wide_stride == 1 and size_of(s.row.extent) <= rows


def _copy_rows(plan: Plan, s: Sides, word: str, loop: str, layout: tuple[str, ...]) -> str:
    """Copy rows at a loop; return the outermost loop of the copy."""
    loops = panel(plan, word, loop, layout)
    if s.row_stride == 1:
        _turn(plan, loops[-1], loops[-2])
    else:
        plan.schedule.vectorize(loops[-1])
    return loops[0]


def _cut(plan: Plan, name: str, factor: int) -> None:
    """Split a loop of a block: pieces that overlap need no masks, which copies would gather by."""
    tile_split(plan, name, loop_of(plan, name).extent, factor)


def _transpose_columns(
    plan: Plan, step: str, depth: str, column: str, full: int, ragged: bool
) -> None:
    """Schedule a copy of columns that lie along the sum, of which some `full` steps are whole.

    Lines of the others are read under masks, which words that lie apart must have alike.
    """
    if full:
        plan.schedule.split(step, full, "peel")
        _turn(plan, f"{column}.t", f"{depth}.t")
    elif ragged:
        _turn(plan, column, depth)
    if full or not ragged:
        copy_strided(plan, [depth], column)


def _turn(plan: Plan, far: str, near: str) -> None:
    """Read vectors along the loop `near` and write them along the loop `far`, square by square."""
    plan.schedule.reorder(far, near).unroll(far).vectorize(near)


def _sum_lines(plan: Plan, loops: list[str]) -> None:
    """Sum what shifted bytes add, in loops over columns: line by line of memory."""
    schedule = plan.schedule
    loop = find(plan.kernel, loops[-1])
    assert loop is not None
    name = next(str(v.attr) for x in loop.body if isinstance(x, Reduce) for v in x.binds())
    schedule.decompose_reduction(name, loops[0], scope="local")
    for end in (".z", "", ".f"):
        schedule.vectorize(f"{loops[-1]}{end}")


def keep_tiles(plan: Plan, name: str, tile: list[str], word: str, depth: str) -> None:
    """Keep the results of a tile in registers, and multiply matrices in each step of a sum.

    `word` is what a row of matrices of results shares, `depth` the axis that matrices multiply
    along.
    """
    _by_matrices(plan, tile, word, _sum_apart(plan, name, tile, depth))


def _sum_apart(plan: Plan, name: str, tile: list[str], depth: str) -> list[str]:
    """Keep the results of a tile apart, one step of the sum around all.

    Returns the loops that copy them at the end.
    """
    plan.schedule.decompose_reduction(name, tile[0], spill=True)
    plan.schedule.reorder(*tile, depth)
    return copy_loops(plan, tile[0])


def _by_matrices(plan: Plan, tile: list[str], word: str, copies: list[str]) -> None:
    """Carry out the steps of the sums that were kept apart on whole matrices."""
    schedule = plan.schedule
    for nest in ([f"{x}.z" for x in tile], tile, copies):
        schedule.matrix(nest[2])
        if nest is tile:
            schedule.hoist(word)  # one load for a row of tiles
        schedule.unroll(nest[0]).unroll(nest[1])
