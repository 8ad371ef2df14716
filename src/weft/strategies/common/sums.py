"""What reductions over rows and over columns share: widths, blocks of sums, costs."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Reduce
from weft.schedule.analysis.space import constant
from weft.strategies.common.nest import Cost, Plan, size_of

STEPS: Final = 16  # points of a column that are added up before they join the rest


def adds(stmt: Reduce) -> bool:
    """Whether a reduction sums floats, whose roundings pile up."""
    return any(a.var.dtype.is_float and a.combine.op is Op.ADD for a in stmt.accumulators)


def widen(plan: Plan, names: list[str], extents: dict[str, Expr],
          cost: Cost) -> tuple[list[str], Expr]:  # fmt: skip
    """Make one loop of the innermost ones while they are shorter than a vector.

    Returns the loops that are left and the extent of the last one.
    """
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    extent = extents[names[-1]]
    while len(names) > 1 and constant(extent) is not None and size_of(extent) < native:
        *rest, outer, inner = names
        if not plan.attempt("fuse", outer, inner):
            break
        names, extent = [*rest, f"{outer}_{inner}"], extents[outer] * extent
    return names, extent


def reduce_cost(stmt: Reduce) -> Cost:
    """Return the cost of one point of a reduction."""
    return Cost((stmt,))


def block_of(n: int, least: int, factor: int) -> int:
    """Return how many of n terms to add up apart, 0 for all together: a multiple of `least`.

    At most about `factor` blocks are made if n allows it, and little is left over.
    """
    if n < 2 * least:
        return 0
    most = least
    while n >= 2 * most * factor:
        most *= factor
    return n // -(-n // most) // least * least if most > least else least


def join_blocks(plan: Plan, axis: str) -> None:
    """Add up what is left of each block in float64, which takes no time beside the blocks."""
    if plan.attempt("cascade", axis) and plan.target.computes(dt.float64):
        plan.attempt("promote", axis)


def cascade(plan: Plan, name: str, n: int) -> None:
    """Add up a reduce axis in blocks, and blocks of blocks if it is very long."""
    block = block_of(n, STEPS, STEPS)
    if not block or not plan.attempt("split", name, block, "peel"):
        return
    join_blocks(plan, f"{name}.o")
    cascade(plan, f"{name}.i", block)
    if n % block:
        cascade(plan, f"{name}.t", n % block)
