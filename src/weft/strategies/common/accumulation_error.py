"""Where long sums of contractions start anew, so that their rounding errors stay small."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final

from weft.ir.stmt import For
from weft.schedule.analysis.space import constant, scan
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    block_sums,
    copy_loops,
    epilogue_cost,
)
from weft.strategies.common.nest import Plan, product, size_of

CHAINS: Final = 3  # parts of a sum that is short
SHORTEST: Final = 12  # terms of a part
LANE_STEPS: Final = 16  # terms of a part in each lane


def chain_steps(pattern: Pattern, p: Parameters, block: tuple[str, int] | None = None,
                lanes: int = 1, whole: Container[str] = ()) -> tuple[str, int] | None:  # fmt: skip
    """Return the axis of a long sum and the steps after which it starts anew, None if it is short.

    The rounding error of a sum grows with the terms that are added one to the other. A sum over
    several axes starts anew more often: elsewhere those are summed axis by axis (the products of
    each image, or of each row of a window, joined afterwards), which errs less. Where the
    reduction was cut, `block` names the axis and the points of a block; `lanes` partial sums share
    the terms. Axes that are ``whole`` are not cut.
    """
    axes = pattern.reduce.axes
    if not pattern.reduce.accumulators[0].var.dtype.is_float or any(
            constant(a.extent) is None for a in axes):
        return None
    sizes = {a.var.attr: size_of(a.extent) for a in axes}
    if block is not None:
        del sizes[block[0]]
        sizes[f"{block[0]}.i"] = block[1]
    terms = math.prod(sizes.values())
    chain = (p.chain if len(sizes) == 1 else max(p.nested_chain, math.isqrt(terms))) * lanes
    # Sums along one axis start anew after as many terms elsewhere; others may be a bit longer.
    if terms <= chain or (len(sizes) * lanes > 1 and 4 * terms <= 5 * chain):
        return None
    longest = max(sizes, key=lambda name: (name not in whole, sizes[name]))
    length = sizes[longest]
    blocks = -(-length // max(chain * length // terms, 1))
    return longest, -(-length // (blocks * lanes)) * lanes


def chain_levels(pattern: Pattern, p: Parameters) -> list[tuple[str, int]]:
    """Return where sums start anew, at two levels if one leaves chains that are much too long.

    A cut along one axis leaves the terms of all others; the outer level comes first.
    """
    first = chain_steps(pattern, p)
    if first is None:
        return []
    sizes = {a.var.attr: size_of(a.extent) for a in pattern.reduce.axes}
    del sizes[first[0]]
    sizes[f"{first[0]}.i"] = first[1]
    terms = math.prod(sizes.values())
    if first[1] > 1 or terms <= 2 * p.nested_chain:
        return [first]
    longest = max(sizes, key=lambda name: sizes[name])
    length = sizes[longest]
    blocks = -(-length // max(math.isqrt(terms) * length // terms, 1))
    return [first, (longest, -(-length // blocks))] if blocks > 1 else [first]


def cut_sums(plan: Plan, name: str, loop: str, column: str,
             levels: list[tuple[str, int]]) -> str:  # fmt: skip
    """Start sums anew at some levels; return the name of the innermost ones.

    `loop` is the outermost of the tile, `column` the one of its vectors.
    """
    for cut in levels:
        name = block_sums(plan, name, loop, cut, column)
    return name


def lane_chains(pattern: Pattern, p: Parameters, along: str, lanes: int,
                block: tuple[str, int] | None = None) -> list[tuple[str, int]]:  # fmt: skip
    """Return what `chain_steps` does, of sums whose lanes share the points `along` an axis.

    Each lane has the terms of all other axes, and of its pieces of this one (``along.o``). Its sums
    stay apart until the last, so that starting anew costs little; those of many terms do so at two
    levels, the outer one first.
    """
    axes = pattern.reduce.axes
    if not pattern.reduce.accumulators[0].var.dtype.is_float or any(
            constant(a.extent) is None for a in axes):
        return []
    sizes = {a.var.attr: size_of(a.extent) for a in axes}
    sizes[f"{along}.o"] = -(-sizes.pop(along) // lanes)
    if block is not None:
        del sizes[block[0]]
        sizes[f"{block[0]}.i"] = block[1]
    found: list[tuple[str, int]] = []
    while True:
        steps = math.prod(sizes.values())
        many = not found and steps >= LANE_STEPS**3 // 4
        chain = round(steps ** (2 / 3)) if many else max(math.isqrt(steps), LANE_STEPS)
        if len(axes) == 1:
            chain = p.chain
        elif not many:
            chain = min(chain, p.nested_chain)
        if 4 * steps <= 5 * chain:
            return found
        longest = max(sizes, key=lambda name: sizes[name])
        length = sizes.pop(longest)
        blocks = -(-length // max((chain * length + steps // 2) // steps, 1))
        if blocks == 1:
            return found
        found.append((longest, -(-length // blocks)))
        if not many:
            return found
        sizes[f"{longest}.i"] = found[-1][1]


def steps_around(plan: Plan, tile: str, axes: list[str]) -> list[For]:
    """Return the loops over reduced axes that hold the update of a tile and nothing else."""
    parents = next(p for s, p in scan(plan.kernel) if isinstance(s, For) and s.var.attr == tile)
    found: list[For] = []
    for stmt in reversed(parents):
        if len(stmt.bodies()[0]) > 1 or not isinstance(stmt, For) or (
                stmt.var.attr.split(".")[0] not in axes):
            break
        found.insert(0, stmt)
    return found


def short_chains(pattern: Pattern, p: Parameters) -> Parameters:
    """Return parameters for few channels of results: a short sum starts anew as well.

    Elsewhere their gradients are summed tap by tap, which errs less than one chain.
    """
    terms = product(a.extent for a in pattern.reduce.axes)
    if terms < CHAINS * SHORTEST:
        return p
    return p.replace(nested_chain=min(p.nested_chain, terms // CHAINS))


def register_tile(plan: Plan, pattern: Pattern, p: Parameters, row: str,
                   columns: list[str]) -> None:
    """Keep a tile in registers: all its loops are written out, the last one is vectors."""
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    loops = [row, *columns]
    steps = chain_steps(pattern, p)
    if steps:
        schedule.block_reduction(name, row, *steps)
        for end in (".begin", ".end"):
            _written_out(plan, [f"{c}{end}" for c in columns])
        name = f"{name}.b"
    spill = not steps and epilogue_cost(pattern) > p.spill
    schedule.decompose_reduction(name, row, spill=spill)
    copy = copy_loops(plan, row) if spill else [f"{x}.f" for x in loops]
    for names in ([f"{x}.z" for x in loops], loops, copy):
        _written_out(plan, names)
    if spill:
        schedule.vectorize(f"{columns[-1]}.f")


def _written_out(plan: Plan, loops: list[str]) -> None:
    for loop in loops[:-1]:
        plan.schedule.unroll(loop)
    plan.schedule.vectorize(loops[-1])
