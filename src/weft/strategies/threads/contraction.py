"""Contractions on devices of threads: a group for each block of results, a tile for each thread.

A group copies a block of each operand into its memory, in steps along a reduced axis, and each of
its threads adds products up for a tile of results that it keeps in registers::

    for block parallel:
      for t thread.x: s[t, :, :] = 0
      for k.o:
        for t thread.x: copy a[block rows, k.o] and b[k.o, block columns]
        for t thread.x: for k.i: s[t, :, :] += a.w[k.i, rows of t] * b.w[k.i, columns of t]
      for t thread.x: out[rows of t, columns of t] = epilogue(s[t, :, :])

Neighbouring threads have neighbouring columns, so that a warp stores whole transfers and reads
different banks; rows of a copy that is turned on the way are moved against each other for that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.ir.stmt import Axis, For, Load
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.aliased_operands import separate_aliases
from weft.strategies.common.contraction_pattern import Pattern, match
from weft.strategies.common.nest import Cost, Plan, flat_stride, product, size_of
from weft.strategies.threads.sharing import copy_block
from weft.target import BANKS, BYTE_COST, COPY_STEPS, GROUP_SIDES, THREAD_TILES, Target

__all__ = ["schedule_contraction"]

_WHY: Final = "blocks of {0}x{1} results by groups, {2}x{3} by each thread, {4} terms a step"
_TEXT: Final = "{0}x{1}/{2}x{3}/{4}"  # of a block, as a search names it
_LEAST: Final = 16  # rows, columns and terms from which on blocks pay


class _Block(NamedTuple):
    """Results of a group along one axis, those of a thread, and the terms of a step."""

    rows: int
    columns: int
    tall: int
    wide: int
    terms: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.tall * self.wide)


def schedule_contraction(plan: Plan, root: str) -> bool:
    """Schedule a nest if it is a contraction with enough rows, columns and terms; whether it is."""
    pattern = match(plan, root)
    if pattern is None:
        return False
    apart = separate_aliases(plan, pattern)
    if apart:
        pattern = match(plan, root)
        assert pattern is not None
    found = _sides(plan, pattern)
    axis = max(pattern.reduce.axes, key=lambda a: size_of(a.extent))
    if found is None or size_of(axis.extent) < _LEAST:
        return False
    block = _block(plan, pattern, *found)
    if block is None:
        return False
    _apply(plan, pattern, *found, axis, block)
    if apart:
        plan.schedule.unite()
    plan.why.append(_WHY.format(*block))
    return True


def _sides(plan: Plan, pattern: Pattern) -> tuple[For, For] | None:
    """Return the loops over rows and columns of blocks, None if there are none of some length.

    Columns are what lies side by side in the result.
    """
    left = [r for r in pattern.rows if r.var in pattern.left and r.var not in pattern.right]
    right = [r for r in pattern.rows if r.var in pattern.right and r.var not in pattern.left]
    space = Space(plan.kernel)
    written = [a for a in accesses(pattern.rows[-1].body) if a.write]

    def lies_along(loop: For) -> bool:
        return any(flat_stride(space, a, loop.var) == 1 for a in written)

    def longest(loops: list[For]) -> For | None:
        return max(loops, key=lambda r: (lies_along(r), size_of(r.extent)), default=None)

    row, column = longest(left), longest(right)
    if row is None or column is None or min(size_of(row.extent), size_of(column.extent)) < _LEAST:
        return None
    return (column, row) if lies_along(row) else (row, column)


def _block(plan: Plan, pattern: Pattern, row: For, column: For) -> _Block | None:
    """Return the block that takes the least time, None if no memory of groups holds one."""
    itemsize = Cost(pattern.rows[-1].body).itemsize
    others = product(r.extent for r in pattern.rows if r is not row and r is not column)
    times: dict[str, tuple[int, _Block]] = {}
    for block in _blocks(plan.target, itemsize):
        count = others * -(-size_of(row.extent) // block.rows) * (
            -(-size_of(column.extent) // block.columns))  # fmt: skip
        results = block.rows * block.columns
        reads = block.threads * (block.tall + block.wide)  # of the group's memory
        copies = (block.rows + block.columns) * itemsize * BYTE_COST
        time = -(-count // max(plan.threads, 1)) * (results + reads + copies)
        times[_TEXT.format(*block)] = time, block
    if not times:
        return None
    best = min(times, key=lambda text: times[text][0])
    return times[plan.pick("block", best, times)][1]


def _blocks(target: Target, itemsize: int) -> list[_Block]:
    """Return the blocks that a group has threads and memory for, the largest first."""
    side = next((s for s in GROUP_SIDES if s * s <= target.max_items), 0)
    found = []
    for tall in reversed(THREAD_TILES):
        for wide in reversed(THREAD_TILES):
            rows, columns = side * tall, side * wide
            for terms in COPY_STEPS:
                nbytes = (rows + columns + 2 * BANKS // terms) * terms * itemsize
                if side and 2 * nbytes <= target.shared_bytes:
                    found.append(_Block(rows, columns, tall, wide, terms))
                    break
    return found


def _apply(plan: Plan, pattern: Pattern, row: For, column: For, axis: Axis, block: _Block) -> None:
    schedule, names = plan.schedule, [r.var.attr for r in pattern.rows]
    name = pattern.reduce.accumulators[0].var.attr
    i, j, k = row.var.attr, column.var.attr, axis.var.attr
    operands = {s.memory: None for s in pattern.reduce.body if isinstance(s, Load)}
    plan.attempt("contract", name)
    schedule.split(i, block.rows).split(f"{i}.i", block.rows // block.tall)
    schedule.split(j, block.columns).split(f"{j}.i", block.columns // block.wide)
    outer = [*[n for n in names if n not in (i, j)], f"{i}.o", f"{j}.o"]
    threads, tile = [f"{i}.i.i", f"{j}.i.i"], [f"{i}.i.o", f"{j}.i.o"]
    for loop in dict.fromkeys([*names, f"{i}.o", f"{i}.i.o", f"{i}.i.i", f"{j}.o"]):
        plan.attempt("sink", loop)
    schedule.reorder(*outer, *threads, *tile)
    axes = [a.var.attr for a in pattern.reduce.axes if a is not axis]
    schedule.split(k, block.terms)
    if axes:
        schedule.reorder(*axes, f"{k}.o", f"{k}.i")
    schedule.decompose_reduction(name, threads[0], scope="local")
    schedule.reorder(*threads, f"{k}.i", *tile)
    for memory in operands:
        copy_block(plan, memory, f"{k}.o", block.terms, block.threads)
    for suffix in (".z", "", ".f"):
        schedule.bind(*[f"{t}{suffix}" for t in threads])
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
    schedule.parallel(*outer)
