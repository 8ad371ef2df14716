"""Contractions of narrow elements as dot products of packed words (bfloat16, 8-bit integers).

The outer form with the reduced axis cut into groups: a tile of rows x vectors of results in
registers, each step of which adds a whole group of products with one instruction. The operand that
fills the vectors is copied into panels of words, in the order in which the tiles read them; the
other one is read as it lies where its groups lie side by side, and copied as well where not. Short
sums of bfloat16 are those of single float32 elements where units take vectors whole.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import float32, int8, uint32
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import For, Load, Reduce
from weft.ir.traverse import walk
from weft.schedule.analysis.space import constant, find_reduce
from weft.schedule.analysis.subscripts import Space, accesses
from weft.schedule.data.float32_parts import separable_factors
from weft.schedule.data.tensorize import OPERATIONS, factors_of, narrow_factors
from weft.strategies.common.contraction_pattern import (
    LINE_POINTS,
    Parameters,
    Pattern,
    block_sums,
    copy_loops,
    copy_strided,
    epilogue_cost,
    loop_names,
    loops_since,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.nest import (
    Plan,
    flat_stride,
    loop_of,
    parallelise,
    power_above,
    product,
    registers,
    size_of,
)
from weft.strategies.common.tile_sizes import FEW_STEPS, share_rows

DOT_SIDE: Final = 4  # of a tile of sums of words: their registers hold fewer
SUMMED: Final = 28  # elements of a row that are turned while partial sums become one result
SKEW: Final = 16  # words between rows, or rows a power of two apart would fall into one cache set


class Sides(Record):
    """Which operand gives the rows of the tile, which its vectors, and by which loops.

    ``row_side`` is ``left`` or ``right``; ``row_step`` and ``wide_step`` are the distances of the
    elements of a group in memory, ``wide_stride`` that of neighbouring lanes.
    """

    op: str
    group: int
    axis: str
    depth: int
    points: int
    row: For
    wide: For
    row_side: str
    row_step: int | None
    wide_step: int | None
    row_stride: int | None
    wide_stride: int | None


def schedule_dot(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of packed words; whether it fits."""
    sides = sides_of(plan, pattern)
    if sides is not None and plan.target.supports(OPERATIONS[sides.op], uint32) and not (
            _is_short(plan, p, sides)):
        return _tile(plan, pattern, p, sides)
    sides = sides_of(plan, pattern, widened=True)
    return sides is not None and 4 * size_of(sides.row.extent) >= p.pack_rows and (
        _tile(plan, pattern, p, sides))


def _is_short(plan: Plan, p: Parameters, s: Sides) -> bool:
    """Whether pairs take longer than single elements, of which short sums hardly read more.

    Units that multiply two whole vectors a cycle take two cycles for one of pairs.
    """
    return (s.group == 2 and plan.target.whole_vectors and s.points <= FEW_STEPS
            and 4 * size_of(s.row.extent) >= p.pack_rows)


def sides_of(plan: Plan, pattern: Pattern, widened: bool = False,
             turned: bool = False, masked: bool = False, signed: bool = False,
             separated: bool = False) -> Sides | None:
    """Return how the operands take part, None if the nest does not suit.

    With `widened`, factors of float32 that are computed (from float16, from a byte and its scale)
    count as groups of one: they are computed once, in the panels. With `turned`, rows and vectors
    are what they would not be otherwise. With `masked`, loads may have masks (windows do). With
    `signed`, bytes that are signed on both sides are multiplied as such. With `separated`, factors
    of float32 count as their parts of bfloat16.
    """
    body = pattern.reduce.body
    found = (factors_of if widened else separable_factors if separated else narrow_factors)
    factors = found(pattern.reduce)
    masks = any(isinstance(s, Load) and s.mask is not None for s in body)
    if factors is None or (masks and not masked):
        return None
    if widened:
        loaded = {s.var for s in body if isinstance(s, Load)}
        if pattern.reduce.accumulators[0].var.dtype is not float32 or all(
                f in loaded for f in factors):
            return None
        op, group = Op.MAD, 1
    elif separated:
        op, group = Op.DOT2, 2
    else:
        op, group = (Op.DOT2, 2) if factors[0].dtype.is_float else (Op.DOT4, 4)
        if signed and all(f.dtype is int8 for f in factors):
            op = Op.DOT4S
    space = Space(plan.kernel)
    inside = accesses(body)
    axes = pattern.reduce.axes
    axis = max(axes, key=lambda a: size_of(a.extent))
    fewest = 1 if masked else 2 * group  # windows have taps beside it
    if any(constant(a.extent) is None for a in axes) or size_of(axis.extent) < fewest:
        return None
    stored = [a for a in accesses(pattern.rows[-1].body) if a.write]
    best: tuple[tuple[int, ...], For, For] | None = None
    for wide in pattern.rows:
        row = _partner(pattern, wide.var)
        if row is None or constant(wide.extent) is None or constant(row.extent) is None:
            continue
        direct = sum(flat_stride(space, a, wide.var) == 1 for a in stored)
        reads = sum(flat_stride(space, a, wide.var) == 1 for a in inside)
        score = (direct, reads, size_of(wide.extent))
        if best is None or score > best[0]:
            best = (score, row, wide)
    if best is None:
        return None
    _, row, wide = best
    if turned:
        row, wide = wide, row
    left = row.var in pattern.left
    # The operands: what else is read (scales) does not move along the reduced axis.
    mine, others = ([a for a in inside if _moves(space, a.index, loop.var)
                     and _moves(space, a.index, axis.var)] for loop in (row, wide))
    if len(mine) != 1 or len(others) != 1 or mine[0] is others[0]:
        return None
    a, b = mine[0], others[0]
    return Sides(op.name, group, str(axis.var.attr), size_of(axis.extent),
                  product(x.extent for x in axes),
                  row, wide, "left" if left else "right",
                  flat_stride(space, a, axis.var), flat_stride(space, b, axis.var),
                  flat_stride(space, a, row.var),
                  flat_stride(space, b, wide.var))


def _moves(space: Space, index: tuple[Expr, ...], var: Expr) -> bool:
    return any(var in space.symbols(i) for i in index)


def _partner(pattern: Pattern, column: Expr) -> For | None:
    """Return the loop that gives a tile its rows: in one operand alone, as `column` is."""
    if (column in pattern.left) == (column in pattern.right):
        return None
    mine, other = ((pattern.left, pattern.right) if column in pattern.left
                   else (pattern.right, pattern.left))
    rows = [r for r in pattern.rows if r.var in other - mine and size_of(r.extent) > 1]
    return max(rows, key=lambda r: size_of(r.extent), default=None)


def _tile(plan: Plan, pattern: Pattern, p: Parameters, s: Sides) -> bool:
    schedule = plan.schedule
    amount = work_of(plan, pattern)
    name = str(pattern.reduce.accumulators[0].var.attr)
    native = plan.target.vector_bytes // 4
    rows_n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
    if wide_n < native // 2:
        return False
    if s.group == 2 and rows_n < p.dot_turned and s.row_step == s.wide_step == 1 and (
            s.depth % s.group == 0 and s.points == s.depth
            and s.depth >= max(SUMMED * rows_n, 4 * s.group * native)):
        return _along(plan, pattern, p, s)
    if rows_n < p.dot_least:
        return False
    rows = tile_rows(rows_n, p.dot_rows if registers(plan) >= 32 else p.dot_rows // 2)
    lanes = min(power_above(wide_n), native * p.vectors)
    schedule.tensorize(name, s.axis, s.op, bias=s.row_side)
    words = f"{name}.{s.row_side}", f"{name}.{'left' if s.row_side == 'right' else 'right'}"
    bias = f"{name}.bias" if binds(plan, f"{name}.bias") else ""
    if binds(plan, f"{name}.dot"):
        name = f"{name}.dot"
    reduce = find_reduce(plan.kernel, name, "dot").reduce
    axes = [str(a.var.attr) for a in reduce.axes]
    ragged = any(isinstance(x, Load) and x.mask is not None for x in reduce.body)
    copied = s.group == 1 or s.row_step != 1
    short = s.group <= 2 and s.points <= FEW_STEPS  # threads would share lines of each row
    shared = plan.threads if len(pattern.rows) == 2 and wide_n >= rows_n and not short else 1
    block, points = _block(p, lanes, wide_n, s, copied, shared)
    if ragged and not copied and (points or len(axes) > 1 or wide_n < lanes):
        copied = True  # the group that is not full cannot be told from the others
        block, points = _block(p, lanes, wide_n, s, copied, shared)
    i, j = str(s.row.var.attr), str(s.wide.var.attr)
    outer = [str(r.var.attr) for r in pattern.rows if r is not s.row and r is not s.wide]
    if short and plan.is_worth_threads(amount) and not outer:
        i = share_rows(plan, pattern, s.row, rows, outer)
    tile_split(plan, i, loop_of(plan, i).extent, rows)
    tile_split(plan, j, s.wide.extent, block)
    top, columns, column = f"{j}.o", [], f"{j}.i"
    if block > lanes:
        schedule.split(column, lanes)
        columns, column = [f"{column}.o"], f"{column}.i"
    for loop in [f"{i}.o", f"{i}.i", top, *columns, column, *outer]:
        schedule.sink(loop)
    schedule.reorder(*outer, top, f"{i}.o", *columns, f"{i}.i", column)
    parallelise(plan, [*outer, top, f"{i}.o"], amount)
    if bias:
        sum_shifts(plan, s, panel(plan, bias, top, (*columns, column))[-1])
    tile = f"{i}.o"
    if points:
        count = -(-rows_n // rows)
        # Beside sums, rows that lie side by side in memory are kept for all these tiles.
        kept = max(block, points) if copied and s.row_stride == 1 else block
        many = -(-count // -(-count // max(p.dot_bytes // (4 * rows * kept), 1)))
        if many < count:
            if not (count % many and plan.attempt("split", tile, many, "overlap")):
                schedule.split(tile, max(d for d in range(1, many + 1) if count % d == 0))
            tile = f"{tile}.i"
        long = f"{s.axis}.q"
        name, top = block_sums(plan, name, tile, (long, points), column), f"{long}.o"
        axes = [f"{long}.i" if a == long else a for a in axes]
    loops = panel(plan, words[1], top, (*columns, *axes, column))
    if s.wide_stride == 1:
        schedule.vectorize(loops[-1])
    else:
        copy_strided(plan, loops[len(columns) : -1], loops[-1])
    if copied:
        _copy_rows(plan, words[0], tile, axes, f"{i}.i", s, rows, rows_n,
                   f"{long}.o" if points else "", p.dot_bytes)
    spill = not points and epilogue_cost(pattern) > p.spill
    schedule.decompose_reduction(name, f"{i}.i", spill=spill)
    copy = copy_loops(plan, f"{i}.i") if spill else [f"{i}.i.f", f"{column}.f"]
    for row_loop, lane_loop in ([f"{i}.i.z", f"{column}.z"], [f"{i}.i", column], copy):
        schedule.unroll(row_loop).vectorize(lane_loop)
    if spill:
        schedule.vectorize(f"{column}.f")
    if ragged and not copied:
        # All groups but the last are full: their loads need no masks.
        schedule.split(axes[0], -(-s.depth // s.group) - 1, "peel")
    plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}, "
                    f"{s.group} products at a time ({s.op})"
                    + (f", {points} of {long} at a time" if points else ""))
    return True


def sum_shifts(plan: Plan, s: Sides, last: str) -> None:
    """Schedule the sums of what shifted bytes add, one for each point of the loop `last`."""
    native, along = plan.target.vector_bytes // 4, f"{s.axis}.c.p"
    if s.wide_stride == 1 or s.depth < 8 * native:
        plan.schedule.vectorize(last)
    else:  # along the sum, where the bytes lie side by side
        plan.schedule.split(along, native, "peel").vectorize(f"{along}.i")


def _along(plan: Plan, pattern: Pattern, p: Parameters, s: Sides) -> bool:
    """Keep results as partial sums along the reduced axis, which both operands are read along.

    A few rows would not pay for turning the other operand into panels.
    """
    schedule = plan.schedule
    amount = work_of(plan, pattern)
    name = str(pattern.reduce.accumulators[0].var.attr)
    native = plan.target.vector_bytes // 4
    i, j, k = str(s.row.var.attr), str(s.wide.var.attr), f"{s.axis}.q"
    schedule.tensorize(name, s.axis, s.op, bias=s.row_side)
    rows = tile_rows(size_of(s.row.extent), min(p.inner_rows, DOT_SIDE))
    columns = tile_rows(size_of(s.wide.extent), min(p.inner_columns, DOT_SIDE))
    outer = [str(r.var.attr) for r in pattern.rows if r is not s.row and r is not s.wide]
    tile_split(plan, i, s.row.extent, rows)
    tile_split(plan, j, s.wide.extent, columns)
    order = [*outer, f"{j}.o", f"{i}.o", f"{i}.i", f"{j}.i"]
    for loop in order:
        schedule.sink(loop)
    schedule.reorder(*order)
    parallelise(plan, order[:-2], amount)
    schedule.split(k, native, "mask")
    schedule.decompose_reduction(name, f"{i}.i", partial=(f"{k}.i",))
    for suffix in (".z", "", ".f"):
        schedule.unroll(f"{i}.i{suffix}").unroll(f"{j}.i{suffix}").vectorize(f"{k}.i{suffix}")
    words = s.depth // s.group
    if words % native:  # all vectors but the last are full: they need no masks
        schedule.split(f"{k}.o", words // native, "peel")
    plan.why.append(f"contraction: {rows}×{columns} results as {native} partial sums along {k}, "
                    f"{s.group} products at a time ({s.op})")
    return True


def _block(p: Parameters, lanes: int, n: int, s: Sides, copied: bool,
           threads: int) -> tuple[int, int]:
    """Return how many columns share one copy of the rows, and how many words of the axis (0: all).

    What the panels of these columns need stays in the second-level cache. The blocks are shared
    out to `threads`.
    """
    words = p.dot_bytes // 4
    points = -(-s.points // s.depth) * -(-s.depth // s.group)
    tiles = -(-n // lanes)
    # Columns that have to be turned for one or two tiles of rows: fewer that are longer at a time.
    few = s.wide_stride != 1 and size_of(s.row.extent) <= 2 * p.dot_rows
    wanted = min(tiles, 2 if few else 8) if copied else 1
    most = min(words // (points * lanes), tiles if copied else 1)
    # Rows whose neighbours are far away are copied as seldom as possible: for many columns.
    cheap = s.row_stride != 1 and s.group > 1
    if most >= wanted or (most and (cheap or s.depth < 2 * p.dot_depth)):
        return _even(n, most, lanes, threads), 0
    block = _even(n, wanted, lanes, threads)
    depth = -(-s.depth // s.group)
    fitting = max(words // 2 // block // (points // depth), 1)
    return block, -(-depth // -(-depth // fitting))


def whole(n: int, unit: int) -> int:
    """Return `n` rounded up to whole units."""
    return -(-n // unit) * unit


def _even(n: int, most: int, lanes: int, threads: int) -> int:
    """Return the size of blocks of columns: the last one overlaps, a single one is filled up.

    Little is done twice.
    """
    most = min(most, -(-n // lanes))
    return lanes * min(range(most, 0, -1), default=1,
                       key=lambda t: t * whole(-(-n // (t * lanes)), threads))


def _copy_rows(plan: Plan, word: str, tile: str, axes: list[str], row: str, s: Sides,
               rows: int, n: int, block: str, most: int) -> None:
    """Copy the rows of a tile; of several tiles at once where rows lie side by side in memory.

    Of each line of the memory a single tile would use a part alone, and read it again and again.
    """
    schedule = plan.schedule
    if s.row_stride != 1 and s.row_step == s.group == 1:
        # Side by side along the reduced axis: row by row, each in cache lines of its own.
        _vectors(plan, panel(plan, word, tile, (row, *axes), skew=SKEW)[-1], LINE_POINTS)
        return
    if s.row_stride != 1:
        schedule.precompute(word, tile, (*axes, row))
        return
    words = -(-s.points // s.depth) * -(-s.depth // s.group)
    tiles = min(most // (4 * rows * words), -(-n // rows))
    if not block and tiles < 2:
        last = panel(plan, word, tile, (*axes, row))[-1]
    else:
        if not block:
            schedule.split(tile, tiles, "trim")
            tile, block = f"{tile}.i", f"{tile}.o"
        loops = panel(plan, word, block, (tile, *axes, row))
        schedule.reorder(*loops[1:-1], loops[0], loops[-1])
        last = loops[-1]
    _vectors(plan, last, power_above(rows))


def _vectors(plan: Plan, loop: str, lanes: int) -> None:
    """Cut a loop of a copy into vectors; another copy may have loops of the same name."""
    known = loop_names(plan)
    plan.schedule.split(loop, lanes, "mask")
    plan.schedule.vectorize(loops_since(plan, known)[-1])


def transpose_words(plan: Plan, along: str, words: str, lanes: int) -> None:
    """Copy words as vectors that are read along one loop and written along the other one."""
    known = loop_names(plan)
    tile_split(plan, along, loop_of(plan, along).extent, lanes)
    *outer, last = loops_since(plan, known)
    plan.schedule.reorder(*outer, words, last)
    plan.schedule.unroll(words).vectorize(last)


def panel(plan: Plan, name: str, loop: str, layout: tuple[str, ...],
          skew: int = 0, written: str = "", scope: str = "local") -> list[str]:
    """Compute a name ahead, at a loop; return the loops that do so, in the order of `layout`."""
    known = loop_names(plan)
    plan.schedule.precompute(name, loop, layout, scope, skew, written)
    return loops_since(plan, known)


def binds(plan: Plan, name: str) -> bool:
    """Whether a REDUCE has a result of this name."""
    return any(isinstance(s, Reduce) and any(v.attr == name for v in s.binds())
               for s in walk(plan.kernel.body))
