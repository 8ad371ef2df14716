"""Attention of packed words: products of 16 x 16 matrices, and vectors along the queries of a tile.

The nest (`weft.kernelize.attention.attention_matrix`) holds all that is multiplied in square tiles
already.
"""

from __future__ import annotations

from typing import Final

from weft.ir import traverse
from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.ir.stmt import For
from weft.strategies.attention import in_vectors, turn, write_results
from weft.strategies.common.contraction_pattern import copy_loops
from weft.strategies.common.nest import Plan, chain_of, find, parallelise, size_of, work

SIDE: Final = 16


def schedule_matrices(plan: Plan, root: str) -> bool:
    """Schedule an attention of words, named by its outermost loop."""
    loop = find(plan.kernel, root)
    if loop is None or find(plan.kernel, "a5") is None or (
            not plan.target.supports(Op.MATRIX2, uint32)):
        return False
    chain = chain_of(loop)
    amount = work((loop,))
    schedule = plan.schedule
    names = [str(s.var.attr) for s in traverse.walk(loop.body) if isinstance(s, For)]
    for at, name in enumerate(names):
        if name.startswith(("wq", "ww")):  # rows are read, and columns written
            schedule.unroll(name).vectorize(names[at + 1])
        elif name.startswith("q1"):
            turn(plan, name, SIDE, SIDE)
        elif name.startswith(("wk", "q2", "q4", "q9")):
            schedule.vectorize(name)
        elif name.startswith("q8"):
            write_results(plan, name, SIDE, SIDE)
        elif name in ("d7", "d9"):
            in_vectors(plan, name, 4 * SIDE)
    _products(plan, "score", ["k3"], ["u3", "t3"], "a3", "q3", "e3", spill=False)
    _products(plan, "result", [], ["d5", "t5"], "a5", "q5", "e5", spill=True)
    plan.why.append("attention: queries in the lanes of a vector, products in tiles of 16×16")
    parallelise(plan, [c.var.attr for c in chain], amount)
    return True


def _products(plan: Plan, name: str, outer: list[str], tiles: list[str], row: str, lane: str,
              depth: str, spill: bool) -> None:  # fmt: skip
    """Keep the sums of two by two tiles in registers, and multiply matrices in each step.

    Where they are not spilled, nothing but copies to matrices may follow.
    """
    schedule = plan.schedule
    outer, inner = [*outer], []
    for tile in tiles:
        loop = find(plan.kernel, tile)
        assert loop is not None
        if size_of(loop.extent) == 2:
            inner.append(tile)
        else:
            schedule.split(tile, 2)
            outer.append(f"{tile}.o")
            inner.append(f"{tile}.i")
    nest = [*inner, row, lane]
    schedule.reorder(*outer, *nest)
    schedule.decompose_reduction(name, nest[0], spill=spill)
    schedule.reorder(*nest, depth)
    for loops in ([f"{x}.z" for x in nest], nest, copy_loops(plan, nest[0])):
        schedule.matrix(loops[-2])
        for unit in loops[:-2]:
            schedule.unroll(unit)
    if spill:
        schedule.unroll("p5").unroll(f"{row}.f").vectorize(f"{lane}.f")
