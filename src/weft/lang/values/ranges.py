"""``range`` in kernels: what it is, how long it is, and what is in it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import scalars
from weft.lang.core.kind import THINGS, Iterations
from weft.lang.core.values import Known, Range, Value
from weft.lang.values.structs import KnownKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["ENDLESS", "iterations_of", "range_of"]

ENDLESS: Final = (1 << 62) - 1  # iterations of what has no end


def range_of(c: Context, node: ast.Call, first: Value, second: Value | None = None,
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


def iterations_of(c: Context, r: Range, node: ast.AST) -> Expr:
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


class RangeKind(KnownKind):
    """A range."""

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return where a range begins and ends, and its step."""
        if node.attr not in ("start", "stop", "step"):
            return super().attribute(c, owner, node)
        end: Expr = getattr(owner.value, node.attr)
        return end

    def length(self, c: Context, value: Any, node: ast.AST) -> Expr:
        """Return how many numbers are in a range."""
        return iterations_of(c, value.value, node)

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of numbers, and the number of each iteration."""
        r: Range = value.value
        if ex.is_const(r.stop, 1 << 62):  # of enumerate
            return ex.index(ENDLESS), lambda k: k if ex.is_const(r.start, 0) else r.start + k
        extent = iterations_of(c, r, node)

        def item(k: Expr) -> Value:
            value = r.start + k * r.step
            if ex.is_const(r.step):
                c.facts[-1].update((value.lt(r.stop), r.start.le(value)) if r.step.attr > 0 else (
                    r.stop.lt(value), value.le(r.start)))
            return scalars.convert(value, dt.uint64) if r.unsigned else value

        return extent, item

    def contains(self, c: Context, owner: Any, item: Value, node: ast.AST) -> Expr:
        """Return whether a number is in a range."""
        r: Range = owner.value
        given = c.scalar(item, node, "an integer")
        x = scalars.convert(given, dt.int64)
        ahead = ex.where(r.step.lt(0), r.start - x, x - r.start)
        size = ex.unary(Op.ABS, r.step)
        count = iterations_of(c, r, node)
        turn = ex.binary(Op.AND, ex.index(0).le(ahead), (ahead // size).lt(count))
        found = ex.binary(Op.AND, turn, (ahead % size).eq(0))
        if given.dtype.is_float:  # no range has 2.5
            found = ex.binary(Op.AND, found, scalars.convert(x, given.dtype).eq(given))
        return found



THINGS[Range] = RangeKind()
