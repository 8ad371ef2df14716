"""The primitive `widen`: more points of a sum, whose products are zeros."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Axis, Kernel, Load, Reduce
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis.space import Edit, constant, find_reduce
from weft.schedule.analysis.subscripts import Space
from weft.schedule.data.tensorize import SIDES, narrow_factors


def widen(kernel: Kernel, accumulator: str, axis: str, multiple: int, side: str) -> Kernel:
    """Round the points of an axis of a sum of products up; one factor of the new ones is 0.

    reduce k in 5 (s) {s + a[k] * b[k]}
    ->  reduce k in 8 (s) {s + (a[k] where k < 5, else 0) * (b[k] where k < 5, else 0)}

    The mask of the other factor says only that no element is read which no window reached before:
    one that another window reached may meet a zero, and must be finite.

    Parameters
    ----------
    accumulator : str
        Name of the only accumulator of the REDUCE.
    multiple : int
        The number of points becomes a multiple of it.
    side : str
        ``left`` or ``right``: the factor that is 0, which has to be an element of a memory.

    Raises
    ------
    ScheduleError
        If the axis has no constant extent, or the REDUCE is no sum of products of such elements.
    """
    what = f"widen({accumulator}, {axis}, {multiple}, {side})"
    if multiple < 1 or side not in SIDES:
        raise ScheduleError(what, found=f"multiple {multiple}, side {side!r}",
                            expected="at least 1, and left or right")
    site = find_reduce(kernel, accumulator, "widen")
    stmt, factors = site.reduce, narrow_factors(site.reduce)
    old = next((a for a in stmt.axes if a.var.attr == axis), None)
    n = None if old is None else constant(old.extent)
    zero = next((s for s in stmt.body if isinstance(s, Load) and factors is not None
                 and s.var is factors[SIDES.index(side)] and s.fill is None), None)
    if old is None or n is None or zero is None:
        raise ScheduleError(what, found=f"axes {[a.var.attr for a in stmt.axes]}",
                            expected="a constant axis, and a factor that a load gives")
    if n % multiple == 0:
        return kernel
    whole = -(-n // multiple) * multiple
    axes = tuple([Axis(a.var, ex.index(whole), a.kind) if a is old else a
                  for a in stmt.axes])
    edit = Edit(kernel)
    wide = Reduce(axes, stmt.accumulators, stmt.body)
    before, after = Space(kernel), Space(edit.replace(site.parents, stmt, (wide,)))
    body = tuple([s.replace(mask=gd.both(s.mask, old.var.lt(n))) if s is zero else
                  _inside(before, after, s, old.var) if isinstance(s, Load) else s
                  for s in stmt.body])
    return Edit(kernel).replace(site.parents, stmt, (Reduce(axes, stmt.accumulators, body),))


def _inside(before: Space, after: Space, load: Load, var: Expr) -> Load:
    """Return a load that stays where it was before an axis had more points, and in its memory."""
    mask, stays = load.mask, gd.stays(after, load)
    for i, size in zip(load.index, load.memory.shape, strict=True):
        if var not in after.symbols(i):
            continue
        end = before.ranges.of(i).hi + 1
        if end < after.ranges.of(size).hi:
            mask = gd.both(mask, i.lt(end))
        elif not stays and not after.within(i, size):
            mask = gd.both(mask, i.lt(size))
    return load.replace(mask=mask)
