"""The lines form of a contraction: vectors times matrices, whose whole rows are read one by one.

A row of results lives in registers, and each step of the sum adds a row of the matrix to it, as it
lies in memory: nothing is read twice, nothing is stored before the sum is complete, and prefetchers
have one stream to follow. Threads take vectors of their own, or shares of one sum.
"""

from __future__ import annotations

from typing import Final

from weft.ir.record import Record
from weft.ir.stmt import For, Load
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.accumulation_error import chain_steps, register_tile
from weft.strategies.common.contraction_pattern import Parameters, Pattern, is_fixed, native_lanes
from weft.strategies.common.nest import (
    Plan,
    flat_stride,
    parallelise,
    product,
    registers,
    shares_evenly,
    size_of,
)
from weft.target import ARRAY_BYTES

SPARE: Final = 4  # registers beside those of the results
TERM: Final = 2  # operations in whose time an element of the matrix comes
LEAST_SHARE: Final = 32  # steps of a sum that are worth a thread


class Lines(Record):
    """The loops along the rows of the matrix and over several matrices; the bytes of one."""

    wide: For
    batch: tuple[For, ...]
    nbytes: int


def find_gemv(plan: Plan, pattern: Pattern) -> Lines | None:
    """Return the loops of vectors times matrices, None if there are others."""
    space = Space(plan.kernel)
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    if len(pattern.reduce.axes) != 1 or any(s.mask is not None for s in loads) or (
            not is_fixed(pattern)):
        return None
    axis = pattern.reduce.axes[0]
    for wide in pattern.rows:
        steps = {s.memory: flat_stride(space, Access(s), wide.var) for s in loads}
        moving = [s for s in loads if steps[s.memory]]
        if len(moving) != 1 or steps[moving[0].memory] != 1:
            continue
        batch = tuple([r for r in pattern.rows if r is not wide])
        matrix = Access(moving[0])
        if all(flat_stride(space, matrix, r.var) for r in batch) and (
                flat_stride(space, matrix, axis.var) or 0) >= size_of(wide.extent):
            return Lines(wide, batch, product([axis.extent, wide.extent])
                         * moving[0].memory.dtype.itemsize)
    return None


def schedule_lines(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the lines form; whether it fits and pays."""
    found = find_gemv(plan, pattern)
    if found is None:
        return False
    native, axis = native_lanes(plan, pattern), pattern.reduce.axes[0]
    n, depth = size_of(found.wide.extent), size_of(axis.extent)
    most = (registers(plan) - SPARE) * native
    blocks = -(-n // most)
    if n < native:
        return False
    if blocks > 1 and found.nbytes > plan.target.l2_bytes:
        return False
    schedule = plan.schedule
    j, outer = found.wide.var.attr, [r.var.attr for r in found.batch]
    alike = [size_of(r.extent) for r in found.batch]
    amount = TERM * n * depth
    if blocks > 1:
        schedule.split(j, -(-n // (blocks * native)) * native, "overlap")
        outer, j = [*outer, f"{j}.o"], f"{j}.i"
        alike.append(blocks)
    schedule.split(j, native, "overlap")
    schedule.reorder(*outer, f"{j}.o", f"{j}.i")
    size = pattern.reduce.accumulators[0].var.dtype.itemsize
    shares = gemv_row_shares(plan, alike, depth, amount, -(-n // (blocks * native)) * native * size)
    if shares > 1:
        _shared_sum(plan, pattern, p, f"{j}.o", f"{j}.i", -(-depth // shares))
    else:
        parallelise(plan, outer, amount * product(r.extent for r in found.batch))
        register_tile(plan, pattern, p, f"{j}.o", [f"{j}.i"])
    plan.why.append(f"contraction: rows of {n} results in registers along {j}")
    return True


def gemv_row_shares(plan: Plan, around: list[int], depth: int, amount: int, nbytes: int) -> int:
    """Return into how many shares a sum is cut inside loops of some extents, 1 if it is not.

    A loop around it that shares out evenly is better; and each share has `nbytes` of results, all
    of which have to lie in one private array.
    """
    if amount < plan.costs.parallel_work or any(shares_evenly(n, plan.threads) for n in around):
        return 1
    return max(min(plan.threads, depth // LEAST_SHARE, ARRAY_BYTES // nbytes), 1)


def _shared_sum(plan: Plan, pattern: Pattern, p: Parameters, row: str, column: str,
                steps: int) -> None:
    """Give each thread a share of the steps of one sum, for all results of a row."""
    schedule = plan.schedule
    name, k = pattern.reduce.accumulators[0].var.attr, pattern.reduce.axes[0].var.attr
    schedule.share_reduction(name, row, k, steps).parallel(f"{k}.o").vectorize(f"{column}.end")
    name = f"{name}.b"
    chain = chain_steps(pattern, p, (k, steps))
    if chain:
        schedule.block_reduction(name, row, *chain)
        schedule.vectorize(f"{column}.begin").vectorize(f"{column}.end1")
        name = f"{name}.b"
    schedule.decompose_reduction(name, row)
    for suffix in (".z", "", ".f"):
        schedule.unroll(f"{row}{suffix}").vectorize(f"{column}{suffix}")
    plan.why.append(f"shares of {steps} steps along {k} on {plan.threads} threads")
