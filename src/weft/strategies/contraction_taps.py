"""Convolutions of bfloat16 as products of 16 x 16 matrices of packed words (AMX tiles).

The channels that are summed over make the words, and each tap of a window is a step of its own.
The weights of a block of channels of results are copied once, for all images and rows. The words
under a few neighbouring positions of a row are copied tap by tap, so that they lie as the tiles
read them; padding and strides matter to that copy alone. It pays for itself where many channels
of results use it.
"""

from __future__ import annotations

from typing import Final

from weft.ir.dtype import uint32
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.schedule.matrix import SIDE
from weft.strategies.contraction_dot import Sides, binds, panel, sides_of
from weft.strategies.contraction_matrix import keep_tiles
from weft.strategies.contraction_pattern import MAC_SPEED, Parameters, Pattern, tile_split
from weft.strategies.nest import Plan, find, parallelise, product, size_of, work

COPIES: Final = 25  # taps that are written out where weights are copied
FEWEST: Final = 5  # positions of a row for which tiles are filled up


def schedule_taps(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of products of matrices, tap by tap; whether it fits."""
    if not plan.target.supports(Op.MATRIX2, uint32) or len(pattern.reduce.axes) < 2:
        return False
    s = sides_of(plan, pattern, masked=True)
    if s is None or s.op != Op.DOT2.name:
        return False
    rows_n, wide_n = size_of(s.row.extent), size_of(s.wide.extent)
    if rows_n < SIDE // 2 or wide_n < FEWEST or s.depth < SIDE * s.group // 2:
        return False
    rows, columns = (2 * SIDE if n > SIDE else SIDE for n in (rows_n, wide_n))
    taps = product(a.extent for a in pattern.reduce.axes) // s.depth
    points = taps * -(-s.depth // (s.group * SIDE)) * SIDE
    kept = min(p.matrix_bytes, plan.target.l2_bytes // 2)
    if points * max(rows, columns) * 4 > kept:
        return False
    most = min(kept // (4 * points * rows), -(-rows_n // rows))
    blocks = -(-rows_n // (most * rows))
    block = -(-rows_n // (blocks * rows)) * rows
    _schedule(plan, pattern, s, rows, columns, block)
    plan.why.append(f"contraction: {rows}×{columns} results in tiles of {SIDE}×{SIDE}, "
                    f"tap by tap ({s.op})")
    return True


def _schedule(plan: Plan, pattern: Pattern, s: Sides, rows: int, columns: int,
              block: int) -> None:
    schedule = plan.schedule
    amount = work((pattern.rows[0],)) // MAC_SPEED
    name = str(pattern.reduce.accumulators[0].var.attr)
    image, weights = _sides(pattern, s)
    others = [r for r in pattern.rows if r is not s.row and r is not s.wide]
    groups = [str(r.var.attr) for r in others if r.var in weights]
    outer = [str(r.var.attr) for r in others if r.var not in weights]
    taps = [str(a.var.attr) for a in pattern.reduce.axes if a.var.attr != s.axis]
    schedule.tensorize(name, s.axis, s.op, bias=s.row_side, multiple=SIDE)
    words = f"{name}.{s.row_side}", f"{name}.{'left' if s.row_side == 'right' else 'right'}"
    if binds(plan, f"{name}.dot"):
        name = f"{name}.dot"
    q = f"{s.axis}.q"
    schedule.split(q, SIDE)
    i, j = str(s.row.var.attr), str(s.wide.var.attr)
    tile_split(plan, i, s.row.extent, block)
    tile_split(plan, j, s.wide.extent, columns)
    schedule.split(f"{i}.i", rows).split(f"{i}.i.i", SIDE)
    lines = [r for r in others if r.var in image - weights and size_of(r.extent) > 1]
    pair = lines[-1] if lines and columns == SIDE else None
    if pair is None:
        schedule.split(f"{j}.i", SIDE)
        beside, line = f"{j}.i.o", f"{j}.i.i"
    else:  # short rows of positions are taken two at a time
        tile_split(plan, str(pair.var.attr), pair.extent, 2)
        beside, line = f"{pair.var.attr}.i", f"{j}.i"
        outer = [f"{x}.o" if x == pair.var.attr else x for x in outer]
    top, strip, across = f"{i}.o", f"{j}.o", f"{i}.i.o"
    tile = [f"{i}.i.i.o", beside, f"{i}.i.i.i", line]
    for loop in [top, strip, across, *tile, *outer, *groups]:
        schedule.sink(loop)
    schedule.reorder(*groups, top, *outer, strip, across, *tile)
    shared = parallelise(plan, [*groups, *outer, strip, top], amount)
    steps = [*taps, f"{q}.o"]
    schedule.reorder(*steps, f"{q}.i")
    loops = panel(plan, words[0], top, (across, *steps, tile[0], tile[2], f"{q}.i"))
    _turn_weights(plan, loops, len(taps))
    if shared in (*outer, strip):  # else one thread would copy them while the others wait
        parallelise(plan, [loops[0], loops[-2]], amount)
    loops = panel(plan, words[1], strip, (*steps, tile[1], f"{q}.i", tile[3]))
    schedule.vectorize(loops[-1])
    keep_tiles(plan, name, tile, words[0], f"{q}.i")
    schedule.vectorize(f"{tile[3]}.f")


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
