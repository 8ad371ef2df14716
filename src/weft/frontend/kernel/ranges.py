"""``range`` in kernels: what it is, how long it is, and what is in it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from weft.frontend.kernel import scalars
from weft.frontend.kernel.values import Known, Range, Value
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["is_in", "range_of", "turns_of"]


def range_of(c: Expressions, node: ast.Call, first: Value, second: Value | None = None,
           third: Value | None = None) -> Value:  # fmt: skip
    """Return ``range(stop)``, ``range(start, stop)`` or ``range(start, stop, step)``."""
    ends = [c.scalar(v, node, "an integer") for v in (first, second, third)
            if v is not None]
    for e in ends:
        if e.dtype.is_float and not c.wraps:  # numba's ranges round to zero
            raise c.wrong(node, f"range of {e.dtype.name}", "convert it with int()")
    unsigned = c.wraps and all(e.dtype.kind == "u" for e in ends)  # as in numba
    ends = [scalars.convert(e, dt.int64) for e in ends]
    if len(ends) == 1:
        ends.insert(0, ex.index(0))
    step = ends[2] if len(ends) == 3 else ex.index(1)
    if ex.is_const(step, 0):
        raise c.wrong(node, "a range with step 0", "it would never end: 1, or -1")
    return Known(Range(ends[0], ends[1], step, unsigned))


def turns_of(c: Expressions, r: Range, node: ast.AST) -> Expr:
    """Return how many numbers are in a range."""
    if r.step.op is Op.CONST:
        step = int(r.step.attr)
        gap = r.stop - r.start if step > 0 else r.start - r.stop
        extent = gap if abs(step) == 1 else (gap + (abs(step) - 1)) // abs(step)
    else:
        c.require(r.step.ne(0), "a range with step 0", node)
        # Not (gap + step - 1) // step, which may wrap around.
        up = (r.stop - r.start - 1) // r.step + 1
        down = (r.start - r.stop - 1) // ex.unary(Op.NEG, r.step) + 1
        extent = ex.where(r.step.lt(0), down, up)
    return ex.maximum(extent, 0) if c.ranges.of(extent).lo < 0 else extent


def is_in(c: Expressions, r: Range, item: Value, node: ast.AST) -> Expr:
    """Return whether a number is in a range."""
    given = c.scalar(item, node, "an integer")
    x = scalars.convert(given, dt.int64)
    ahead = ex.where(r.step.lt(0), r.start - x, x - r.start)
    size = ex.unary(Op.ABS, r.step)
    turn = ex.binary(Op.AND, ex.index(0).le(ahead), (ahead // size).lt(turns_of(c, r, node)))
    found = ex.binary(Op.AND, turn, (ahead % size).eq(0))
    if given.dtype.is_float:  # no range has 2.5
        found = ex.binary(Op.AND, found, scalars.convert(x, given.dtype).eq(given))
    return found
