"""Running sums, products and extremes.

Along contiguous memory each vector is scanned in log steps and joined to the carry; the rows go to
the threads. Along another axis the lanes are columns, which a register walks down.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import stmt as st
from weft.ir.op import Op
from weft.ir.stmt import Alloc, For
from weft.schedule.dependence import Space, accesses
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
NEIGHBOURS: Final = 4  # in one lane of a converted block, added up before the lanes are


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
    plan.stream_outputs()
    for step in (s for s in body if isinstance(s, For)):
        found = [s for a, s in strides(space, step.body, step.var) if a.memory not in own]
        if found and all(s in (0, 1, -1) for s in found):
            scan_loop(plan, step)
        elif find(plan.kernel, names[-1]) is not None:
            across = strides(space, body, rows[-1].var)
            if all(s in (0, 1) for a, s in across if a.write and a.memory not in own):
                outer = split_for_vectors(plan, names[-1], rows[-1].extent, Cost(body))
                names[-1] = outer or names[-1]
    parallelise(plan, names, work((loop,)))
    return True


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
            return
        lanes //= 2
