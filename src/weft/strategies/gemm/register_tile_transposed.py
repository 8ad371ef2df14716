"""The outer form where the rows of a tile lie in another page at each step (``a.T @ b``).

Both operands are copied: blocks of one into panels, tiles of the other right before their use, so
that the inner loops read nothing but contiguous copies whatever the caches do.
"""

from __future__ import annotations

import math
from typing import Final

from weft.ir.stmt import For
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    is_fixed,
    may_repeat,
    work_of,
)
from weft.strategies.common.nest import (
    Cost,
    Plan,
    find,
    flat_stride,
    parallelise,
    shares_evenly,
    size_of,
)

APART: Final = 1024  # bytes from step to step, from which on rows count as lying in other pages
APART_DEEP: Final = 256  # the same for long sums


def is_far(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> bool:
    """Whether an operand has unit stride along the rows and a page's along the reduced axis."""
    if len(pattern.reduce.axes) != 1 or not is_fixed(pattern) or not may_repeat(pattern):
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
    held = target.l1_bytes // max(math.gcd(apart, plan.costs.page_bytes), target.line_bytes)
    soon = held < min(p.chain, depth) or _block(plan, pattern, p)[0] > p.far_block
    deep, side = depth >= p.far_depth * p.far_block, min(size_of(row.extent), size_of(wide.extent))
    if flat_stride(space, left[0], row.var) != 1:
        return False
    if deep:  # a panel would be cut, and each part of it throw the rows out
        return apart >= APART_DEEP and side >= p.pack_rows
    return (apart >= APART and read > (target.l2_bytes // 2 if soon else 2 * target.l2_bytes)
            and side >= 2 * p.pack_rows)


def lies_apart(plan: Plan, pattern: Pattern, row: For) -> bool:
    """Whether an operand has unit stride along the rows, and each step is in another page."""
    space, axis = Space(plan.kernel), pattern.reduce.axes[-1]
    return any(flat_stride(space, a, row.var) == 1 and (
        flat_stride(space, a, axis.var) or 0) * a.memory.dtype.itemsize >= APART
               for a in accesses(pattern.reduce.body))


def copy_tile(plan: Plan, memory: str, loop: str) -> None:
    """Copy what one tile of rows reads of an operand, a vector of neighbouring rows at a step."""
    schedule = plan.schedule
    schedule.window(memory, loop)
    last = max(x for d in range(8) if find(plan.kernel, x := f"{memory}.d{d}") is not None)
    tile = find(plan.kernel, last)
    assert tile is not None
    width = size_of(tile.extent)
    if width & (width - 1):
        schedule.split(last, 8, "mask")
        last = f"{last}.i"
    schedule.vectorize(last)


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


def _shared_blocks(plan: Plan, amount: int, sides: list[tuple[int, int, int]]) -> list[int]:
    """Return the lengths of blocks of rows and of columns: one of them shares out evenly.

    Each side has so many elements, elements in a tile, and the most of a block.
    """
    blocks = [even(n, most, unit) for n, unit, most in sides]
    threads = plan.threads
    counts = [-(-n // block) for (n, _, _), block in zip(sides, blocks, strict=True)]
    if not plan.is_worth_threads(amount) or any(shares_evenly(c, threads) for c in counts):
        return blocks
    shares = [-(-n // (-(-c // threads) * threads * unit)) * unit
              for (n, unit, _), c in zip(sides, counts, strict=True)]

    def loss(side: int) -> tuple[bool, float]:
        """Whether the side was whole, and what overlaps cost: all but one thread if too short."""
        n, pieces = sides[side][0], -(-sides[side][0] // shares[side])
        even = shares_evenly(pieces, threads)
        return counts[side] == 1, pieces * shares[side] / n if even else threads

    at = min((0, 1), key=loss)
    blocks[at] = shares[at]
    return blocks


def transposed_tile(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For, rows: int,
             lanes: int) -> bool:
    """Schedule three levels of blocks with copies of both operands; whether it fits."""
    schedule, space = plan.schedule, Space(plan.kernel)
    name, axis = pattern.reduce.accumulators[0].var.attr, pattern.reduce.axes[0]
    moving = {a.memory.name: flat_stride(space, a, wide.var)
              for a in accesses(pattern.reduce.body)}
    right = next(m for m, step in moving.items() if step != 0)
    left = next(m for m, step in moving.items() if step == 0)
    amount = work_of(plan, pattern)
    i, j = row.var.attr, wide.var.attr
    rest = [r.var.attr for r in pattern.rows if r is not row and r is not wide]
    outer = []
    names = {}
    columns, steps = _block(plan, pattern, p)
    blocks = _shared_blocks(plan, amount, [(size_of(row.extent), rows, p.far_block),
                                           (size_of(wide.extent), lanes, columns)])
    for x, loop, block in ((i, row, blocks[0]), (j, wide, blocks[1])):
        if block < size_of(loop.extent):
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
    copy_tile(plan, left, f"{i}.o")
    if not whole:
        schedule.vectorize(f"{j}.i.begin").vectorize(f"{j}.i.end")
    schedule.decompose_reduction(name if whole else f"{name}.b", f"{i}.i")
    for suffix in (".z", "", ".f"):
        schedule.unroll(f"{i}.i{suffix}").vectorize(f"{j}.i{suffix}")
    plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}, "
                    f"{depth} steps at a time, both operands copied")
    return True
