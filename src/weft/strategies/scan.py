"""Running sums, products and extremes.

Along contiguous memory each vector is scanned in log steps and joined to the carry; the rows go to
the threads. Along another axis the lanes are columns: a strip of columns stays in the first cache
while it is walked down.
"""

from __future__ import annotations

from typing import Final

from weft.ir import stmt as st
from weft.ir.op import Op
from weft.ir.stmt import Alloc, For
from weft.schedule.dependence import Space
from weft.strategies.elementwise import split_for_vectors
from weft.strategies.nest import (
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

SCAN_REGISTERS: Final = 4  # that are scanned together
STRIP_BYTES: Final = 16 << 10  # of one row of a strip: it is read again for the next row


def schedule_scan(plan: Plan, root: str) -> bool:
    """Schedule one nest of a scan, named by its outermost loop; whether it is one."""
    loop = find(plan.kernel, root)
    assert loop is not None
    chain = chain_of(loop)
    body = chain[-1].body
    if any(isinstance(s, Alloc) for s in body):
        _rows(plan, chain, work((loop,)))
        return True
    steps = [s for s in body if isinstance(s, For)]
    if steps and len(steps) == len(body):
        parallelise(plan, [c.var.attr for c in chain], work((loop,)))
        for step in steps:
            _strips(plan, step)
        return True
    _strips(plan, loop)
    return True


def _rows(plan: Plan, rows: list[For], amount: int) -> None:
    """Scan each row by itself, in lanes if it is contiguous, several rows at once if they are."""
    body = rows[-1].body
    steps = [s for s in body if isinstance(s, For)]
    space = Space(plan.kernel)
    names = [r.var.attr for r in rows]
    own = {s.memory for s in body if isinstance(s, Alloc)}
    for step in steps:
        found = [s for a, s in strides(space, step.body, step.var) if a.memory not in own]
        if found and all(s in (0, 1, -1) for s in found):
            plan.stream_outputs()
            scan_loop(plan, step)
        elif find(plan.kernel, names[-1]) is not None:
            across = [s for a, s in strides(space, body, rows[-1].var) if a.memory not in own]
            if across and all(s in (0, 1) for s in across):
                outer = split_for_vectors(plan, names[-1], rows[-1].extent, Cost(body))
                names[-1] = outer or names[-1]
    parallelise(plan, names, amount)


def scan_loop(plan: Plan, step: For) -> None:
    """Run one recurrence in lanes of several registers.

    The carry then waits for fewer joins, and the log steps of the registers overlap.

    Products of floats keep their order: a block of large factors after a zero must stay zero.
    """
    if any(isinstance(s, st.Let) and s.value.op is Op.MUL and s.value.dtype.is_float
           and any(t.value is s.var for t in step.body if isinstance(t, st.Store))
           for s in step.body):
        return
    native = max(plan.target.vector_bytes // Cost(step.body).itemsize, 1)
    lanes = max(min(SCAN_REGISTERS * native, MAX_LANES), native)
    lanes = plan.pick("scan lanes", lanes, (native // 2, native, 2 * native, 4 * native),
                      step.var.attr)
    while lanes >= 4:
        if size_of(step.extent) >= 2 * lanes and plan.attempt("scan", step.var.attr, lanes):
            plan.why.append(f"{step.var.attr} scanned in {lanes} lanes")
            return
        lanes //= 2


def _strips(plan: Plan, loop: For) -> None:
    """Walk down strips of columns, the vectors along the innermost loop."""
    chain = chain_of(loop)
    column = chain[-1]
    if any(not isinstance(s, st.Load | st.Let | st.Store) for s in column.body):
        return
    name, cost = column.var.attr, Cost(column.body)
    amount = work((loop,))
    strip = plan.pick("strip bytes", STRIP_BYTES, (4 << 10, 8 << 10, 16 << 10, 32 << 10), name)
    width = strip // cost.itemsize
    extent = column.extent
    outer = [c.var.attr for c in chain[:-1]]
    n = size_of(extent)
    if len(chain) > 1 and (n > width or plan.threads > 1) and n >= 256:
        width = min(width, max(n // plan.threads, 64))
        saved = plan.schedule.mark()
        if plan.attempt("split", name, width, "trim"):
            if plan.attempt("reorder", f"{name}.o", *outer):
                parallelise(plan, [f"{name}.o"], amount)
                plan.why.append(f"strips of {width} columns")
                name = f"{name}.i"
                inner = find(plan.kernel, name)
                assert inner is not None
                extent = inner.extent
            else:
                plan.schedule.reset(saved)
    blocks = split_for_vectors(plan, name, extent, cost)
    if name == column.var.attr:
        parallelise(plan, [*outer, blocks or name], amount)
