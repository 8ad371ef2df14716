"""Running sums, products and extremes.

Along contiguous memory each vector is scanned in log steps and joined to the carry; the rows go to
the threads. Along another axis the lanes are columns, which a register walks down.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, For, Reduce
from weft.ir.traverse import walk
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.elementwise import split_for_vectors
from weft.strategies.common.nest import (
    MAX_LANES,
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    size_of,
    strides,
    work,
)
from weft.strategies.common.prefetches import fetch_rows
from weft.strategies.common.sums import reduce_cost
from weft.strategies.reductions.rowwise import split_reduction

REST: Final = "k"  # the loop over the elements of a row, or over what its blocks leave
LEAST_ROWS: Final = 4  # that are worth a vector
LEAST_STEPS: Final = 2  # that are transposed at once
TOGETHER: Final = 16  # steps of a tile that is transposed
SCAN_WEIGHT: Final = 4  # of a step along memory, whose lanes wait for one another
SCAN_REGISTERS: Final = 4  # that are scanned together
NEIGHBOURS: Final = 4  # in one lane of a converted block, added up before the lanes are


def schedule_rows(plan: Plan, body: Body) -> bool:
    """Schedule a kernel whose rows are cut into blocks, or of one row; whether it is one.

    Loops over blocks are shared out already. Blocks are lanes where each keeps its order.
    """
    shared = [s for s in walk(body) if isinstance(s, For) and s.kind == st.PARALLEL]
    if not shared and not any(isinstance(s, Alloc) for s in body):
        return False
    plan.stream_outputs()
    for loop in shared:
        first = loop.body[0]
        lane = first if isinstance(first, For) and len(loop.body) == 1 else None
        for step in lane.body if lane is not None else loop.body:
            if isinstance(step, Reduce):
                axis = step.axes[0]
                split_reduction(plan, axis.var.attr, axis.extent, reduce_cost(step))
            elif isinstance(step, For) and lane is not None:
                rows_in_lanes(plan, [lane.var.attr], lane.extent, step)
            elif isinstance(step, For):
                scan_loop(plan, step)
    if shared:
        plan.why.append("blocks of a row are shared out to threads")
    inside = {s for loop in shared for s in walk(loop.body)}
    for step in walk(body):
        if isinstance(step, For) and step.var.attr == REST and step not in inside:
            scan_loop(plan, step)
    return True


def schedule_scan(plan: Plan, root: str) -> bool:
    """Schedule one nest of a scan, named by its outermost loop; whether it is one."""
    loop = find(plan.kernel, root)
    assert loop is not None
    rows = chain_of(loop)
    body = rows[-1].body
    if not any(isinstance(s, Alloc) for s in body):
        return False
    space = Space(plan.kernel)
    names = [r.var.attr for r in rows]
    own = {s.memory for s in body if isinstance(s, Alloc)}
    weight = 1
    plan.stream_outputs()
    for step in (s for s in body if isinstance(s, For)):
        found = [s for a, s in strides(space, step.body, step.var) if a.memory not in own]
        if found and all(s in (0, 1, -1) for s in found):
            weight = SCAN_WEIGHT
            if not scan_loop(plan, step):
                names = rows_in_lanes(plan, names, rows[-1].extent, step) or names
        elif find(plan.kernel, names[-1]) is not None:
            across = strides(space, body, rows[-1].var)
            if all(s in (0, 1) for a, s in across if a.write and a.memory not in own):
                outer = split_for_vectors(plan, names[-1], rows[-1].extent, Cost(body))
                names[-1] = outer or names[-1]
    parallelise(plan, names, weight * work((loop,)))
    fetch_rows(plan, names[-1])
    return True


def rows_in_lanes(plan: Plan, names: list[str], extent: Expr, step: For) -> list[str] | None:
    """Give each lane a row, which it walks down in its order.

    A tile of rows is transposed on its way into registers and out of them: the steps that are
    written out side by side read neighbouring places of each row (`weft.passes.vector.strided`).
    """
    last, k, schedule = names[-1], step.var.attr, plan.schedule
    wide = max(a.memory.dtype.itemsize for a in accesses(step.body) if a.memory.scope == "global")
    native = max(plan.target.vector_bytes // wide, 4)
    lanes = plan.pick("rows in lanes", native, (0, native // 2, native, 2 * native), last)
    while lanes > size_of(extent):
        lanes //= 2
    together = min(lanes, TOGETHER)
    while together > size_of(step.extent):
        together //= 2
    if lanes < LEAST_ROWS or together < LEAST_STEPS:
        return None
    saved = schedule.mark()
    try:
        schedule.split(last, lanes, "overlap")
        schedule.split(k, together, "peel").unroll(f"{k}.i").vectorize(f"{last}.i")
    except ScheduleError:
        schedule.reset(saved)
        return None
    plan.why.append(f"{lanes} rows of {last} in lanes, {together} steps of {k} transposed at once")
    return [*names[:-1], f"{last}.o"]


def scan_loop(plan: Plan, step: For) -> bool:
    """Run one recurrence in lanes of several registers; whether it could.

    The carry then waits for fewer joins, and the log steps of the registers overlap.

    Products of floats keep their order: a block of large factors after a zero must stay zero.
    """
    if any(isinstance(s, st.Let) and s.value.op is Op.MUL and s.value.dtype.is_float
           and any(t.value is s.var for t in step.body if isinstance(t, st.Store))
           for s in step.body):
        return False
    native = max(plan.target.vector_bytes // Cost(step.body).itemsize, 1)
    # Floats that pass through a wider type: the narrow ones change their lanes in fewer registers.
    neighbours = NEIGHBOURS if Cost(step.body).itemsize == 8 and all(
        a.memory.dtype is dt.float32 for a in accesses(step.body) if a.memory.scope == "global"
    ) else 1  # fmt: skip
    registers = SCAN_REGISTERS * min(neighbours, 2)
    lanes = max(min(registers * native, MAX_LANES), native)
    lanes = plan.pick("scan lanes", lanes, (native // 2, native, 2 * native, 4 * native),
                      step.var.attr)
    while lanes >= 4:
        each = min(max(lanes // native, 1), neighbours)
        if size_of(step.extent) >= 2 * lanes and plan.attempt("scan", step.var.attr, lanes, each):
            plan.why.append(f"{step.var.attr} scanned in {lanes} lanes")
            return True
        lanes //= 2
    return False
