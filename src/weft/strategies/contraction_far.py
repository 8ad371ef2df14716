"""The outer form where the rows of a tile lie in another page at each step (``a.T @ b``).

Both operands are copied: blocks of one into panels, tiles of the other right before their use, so
that the inner loops read nothing but contiguous copies whatever the caches do.
"""

from __future__ import annotations

import math

from weft.ir.stmt import For
from weft.schedule.space import constant
from weft.schedule.subscripts import Space, accesses
from weft.strategies.contraction_pattern import MAC_SPEED, Parameters, Pattern, may_repeat
from weft.strategies.contraction_pieces import PAGE
from weft.strategies.nest import Cost, Plan, find, flat_stride, parallelise, size_of, work


def is_far(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> bool:
    """Whether an operand has unit stride along the rows and a page's along the reduced axis."""
    extents = [r.extent for r in pattern.rows] + [a.extent for a in pattern.reduce.axes]
    if (len(pattern.reduce.axes) != 1 or any(constant(e) is None for e in extents)
            or not may_repeat(pattern)):
        return False  # blocks and tiles overlap
    space, axis = Space(plan.kernel), pattern.reduce.axes[0]
    inside = accesses(pattern.reduce.body)
    left = [a for a in inside if flat_stride(space, a, wide.var) == 0]
    right = [a for a in inside if flat_stride(space, a, wide.var) != 0]
    if len(left) != 1 or len(right) != 1:
        return False
    step = flat_stride(space, left[0], axis.var)
    depth = size_of(axis.extent)
    # Every strip of columns reads the rows again: from memory, where the caches do not hold them.
    read = depth * size_of(row.extent) * left[0].memory.dtype.itemsize
    apart = 0 if step is None else step * left[0].memory.dtype.itemsize
    # Blocks of many columns pay sooner, and so do all where rows throw each other out.
    target = plan.target
    held = target.l1_bytes // max(math.gcd(apart, PAGE), target.line_bytes)
    soon = held < min(p.chain, depth) or _block(plan, pattern, p)[0] > p.far_block
    return (flat_stride(space, left[0], row.var) == 1 and apart >= 1024
            and (depth >= p.far_depth * p.far_block
                 or read > (target.l2_bytes // 2 if soon else 2 * target.l2_bytes))
            and min(size_of(row.extent), size_of(wide.extent)) >= 2 * p.pack_rows)


def even(n: int, most: int, unit: int) -> int:
    """Return the size of blocks of about `most`, all nearly equal, in whole units."""
    blocks = -(-n // most)
    units = -(-n // (blocks * unit))
    return min(units, max(most // unit, 1)) * unit


def _block(plan: Plan, pattern: Pattern, p: Parameters) -> tuple[int, int]:
    """Return the most columns and steps of a block.

    Twice as many columns share what is copied of the other operand where half of the second cache
    holds their sums and a panel.
    """
    least = p.far_block * p.far_block * Cost(pattern.rows[-1].body).itemsize
    if 8 * least > plan.target.l2_bytes:
        return p.far_block, p.far_block
    return 2 * p.far_block, 3 * p.far_block // 4


def far_tile(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For, rows: int,
             lanes: int) -> bool:
    """Schedule three levels of blocks with copies of both operands; whether it fits."""
    schedule, space = plan.schedule, Space(plan.kernel)
    name, axis = pattern.reduce.accumulators[0].var.attr, pattern.reduce.axes[0]
    moving = {a.memory.name: flat_stride(space, a, wide.var)
              for a in accesses(pattern.reduce.body)}
    right = next(m for m, step in moving.items() if step != 0)
    left = next(m for m, step in moving.items() if step == 0)
    amount = work((pattern.rows[0],)) // MAC_SPEED
    i, j = row.var.attr, wide.var.attr
    rest = [r.var.attr for r in pattern.rows if r is not row and r is not wide]
    outer = []
    names = {}
    columns, steps = _block(plan, pattern, p)
    for x, loop, unit, most in ((i, row, rows, p.far_block), (j, wide, lanes, columns)):
        n = size_of(loop.extent)
        block = even(n, most, unit)
        blocks = -(-n // block)
        if loop is row and 1 < blocks < 4 * plan.threads and blocks % plan.threads:
            block = even(n, -(-n // (blocks + plan.threads - blocks % plan.threads)) + unit, unit)
        if block < n:
            schedule.split(x, block, "overlap")
            outer.append(f"{x}.o")
            names[x] = f"{x}.i"
        else:
            names[x] = x
    i, j = names[i], names[j]
    schedule.reorder(*rest, *outer, i, j)
    parallelise(plan, [*rest, *outer], amount)
    schedule.split(j, lanes, "overlap").split(i, rows, "overlap")
    schedule.reorder(f"{j}.o", f"{i}.i")
    depth = even(size_of(axis.extent), steps, 8)
    k = axis.var.attr
    whole = depth >= size_of(axis.extent) and bool(outer)
    if whole:  # one block: sums need not be kept from one to the next
        schedule.stage(right, outer[-1], (f"{j}.o", k, f"{j}.i"))
    else:
        schedule.block_reduction(name, f"{i}.o", k, depth)
        schedule.stage(right, f"{k}.o", (f"{j}.o", f"{k}.i", f"{j}.i"))
    copy = f"{j}.i.s"
    (schedule.vectorize if moving[right] == 1 else schedule.unroll)(copy)
    schedule.window(left, f"{i}.o")
    last = max(x for d in range(8) if find(plan.kernel, x := f"{left}.d{d}") is not None)
    tile = find(plan.kernel, last)
    assert tile is not None
    width = size_of(tile.extent)
    if width & (width - 1):
        schedule.split(last, 8, "mask")
        last = f"{last}.i"
    schedule.vectorize(last)
    if not whole:
        schedule.vectorize(f"{j}.i.begin").vectorize(f"{j}.i.end")
    schedule.decompose_reduction(name if whole else f"{name}.b", f"{i}.i")
    for suffix in (".z", "", ".f"):
        schedule.unroll(f"{i}.i{suffix}").vectorize(f"{j}.i{suffix}")
    plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}, "
                    f"{depth} steps at a time, both operands copied")
    return True
