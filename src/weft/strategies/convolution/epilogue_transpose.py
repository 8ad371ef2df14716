"""How results leave the sums of a convolution: along the rows of memory, turned in registers."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.stmt import For
from weft.schedule.analysis.space import constant, scan
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.contraction_pattern import (
    LINE_POINTS,
    Parameters,
    Pattern,
    epilogue_cost,
    tile_split,
)
from weft.strategies.common.nest import Plan, flat_stride, loop_of, power_above, size_of


def finish_block(plan: Plan, pattern: Pattern, p: Parameters, x: str, column: str) -> None:
    """Vectorise what comes before and after the blocks; results leave along the positions."""
    schedule = plan.schedule
    schedule.vectorize(f"{column}.begin")
    column = f"{column}.end"
    if epilogue_cost(pattern) > p.spill or not (
            turned(plan, column, _line(plan, f"{x}.end"))
            or turned(plan, column, [f"{x}.end"])):
        schedule.vectorize(column)


def _line(plan: Plan, last: str) -> list[str]:
    """Return the loops, down to a last one, whose results lie one behind the other.

    Rows that are shorter than vectors would leave in pieces, and each line of memory would be
    fetched and written several times: sums of all rows are there when a block is done.
    """
    space, loop = Space(plan.kernel), loop_of(plan, last)
    steps = [flat_stride(space, a, loop.var) for a in accesses(loop.body)]
    found, count = [last], size_of(loop.extent)
    parents = next(p for s, p in scan(plan.kernel) if s is loop)
    for above in reversed(parents):
        if not isinstance(above, For) or len(above.body) > 1 or (
                not above.var.attr.endswith(".end") or constant(above.extent) is None):
            break
        if above.extent != ex.index(1) and any(
                step is None or flat_stride(space, a, above.var) != step * count
                for a, step in zip(accesses(loop.body), steps, strict=True)):
            break
        found.insert(0, above.var.attr)
        count *= size_of(above.extent)
    return found


def turned(plan: Plan, column: str, rows: list[str], *before: str) -> bool:
    """Let results leave along rows of positions, if that is legal: turned in registers."""
    schedule = plan.schedule
    saved = schedule.mark()
    try:
        schedule.reorder(*before, column, *rows)
        last = rows[-1]
        for outer in reversed(rows[:-1]):
            schedule.fuse(outer, last)
            last = f"{outer}_{last}"
        _squares(plan, [column, last])
    except ScheduleError:  # of two splits that overlap, little can be proved
        schedule.reset(saved)
        return False
    return True


def _squares(plan: Plan, names: list[str]) -> None:
    schedule, inner = plan.schedule, []
    for name in names:
        n = size_of(loop_of(plan, name).extent)
        lanes = min(LINE_POINTS, power_above(n + 1) // 2)
        if lanes < n:
            tile_split(plan, name, loop_of(plan, name).extent, lanes)
            inner.append(f"{name}.i")
        else:
            inner.append(name)
    outer = [f"{n}.o" for n, i in zip(names, inner, strict=True) if n != i]
    schedule.reorder(*outer, *inner)
    schedule.unroll(inner[0]).vectorize(inner[1])
