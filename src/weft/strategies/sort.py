"""Sorts: rows to the threads, and vectors where a step of the sort has no order to keep."""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.stmt import Body, For, Reduce
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.elementwise import split_for_vectors
from weft.strategies.common.nest import Cost, Plan, chain_of, parallelise, strides, work
from weft.strategies.common.sums import reduce_cost
from weft.strategies.reductions.rowwise import split_reduction

NETWORK = "network"  # the keys of a row that lies in a lane


def schedule_sort(plan: Plan, body: Body) -> None:
    """Schedule a kernel of kind sort.

    Loops that are parallel already stay so: chunks of one row write to places that no other chunk
    writes to, which only the sort itself can know.
    """
    if any(isinstance(s, st.Alloc) and s.memory.name == NETWORK for s in traverse.walk(body)):
        _network(plan, body)
        return
    shared = any(isinstance(s, For) and s.kind == st.PARALLEL for s in traverse.walk(body))
    for loop in traverse.walk(body):
        if isinstance(loop, For) and loop.kind == st.SERIAL:
            _vectors(plan, loop)
            _reductions(plan, loop)
    if shared:
        plan.why.append("chunks of a row are shared out to threads")
        return
    for loop in body:
        if isinstance(loop, For):
            parallelise(plan, [c.var.attr for c in chain_of(loop)], work((loop,)))


def schedule_pack(plan: Plan, body: Body) -> None:
    """Make vectors in loops that copy; blocks are shared out to threads already."""
    for loop in traverse.walk(body):
        if isinstance(loop, For) and loop.kind == st.SERIAL:
            _vectors(plan, loop)
    plan.why.append("blocks count what they pack first, so that threads share them")


def _reductions(plan: Plan, loop: For) -> None:
    """Vectorise what is counted or found of a whole row, beside the loops over it."""
    found = [s for s in loop.body if isinstance(s, Reduce) and len(s.axes) == 1
             and s.axes[0].kind == st.SERIAL]
    if not found or not any(isinstance(s, For) for s in loop.body):
        return
    space = Space(plan.kernel)
    for stmt in found:
        axis = stmt.axes[0]
        if all(step in (0, 1) for _, step in strides(space, stmt.body, axis.var)):
            split_reduction(plan, axis.var.attr, axis.extent, reduce_cost(stmt))


def _network(plan: Plan, body: Body) -> None:
    """Give each lane a row, and groups of rows to the threads."""
    rows = next(s for s in traverse.walk(body) if isinstance(s, For) and any(
        isinstance(t, st.Alloc) and t.memory.name == NETWORK for t in traverse.walk(s.body)))
    chain = chain_of(rows)
    last = chain[-1]
    keys = next(s.memory for s in traverse.walk(rows.body)
                if isinstance(s, st.Alloc) and s.memory.name == NETWORK)
    lanes = plan.target.vector_bytes // keys.dtype.itemsize
    amount = work((rows,))
    name = split_for_vectors(plan, last.var.attr, last.extent, Cost(()), most=lanes)
    names = [c.var.attr for c in chain[:-1]] + [name or last.var.attr]
    parallelise(plan, names, amount)


def _vectors(plan: Plan, loop: For) -> None:
    """Vectorise an innermost loop, or one around a count, if its iterations are independent."""
    if any(isinstance(s, st.Load | st.Let) and s.var.lanes > 1 for s in loop.body):
        return  # it is of vectors already
    inner = [s for s in traverse.walk(loop.body) if isinstance(s, For)]
    counts = [s for s in loop.body if isinstance(s, Reduce)]
    stores = [s for s in loop.body if isinstance(s, st.Store)]
    read = traverse.loads(loop.body)
    if inner or not stores or any(
            s.memory in read or loop.var not in ex.free_vars(s.index) for s in stores):
        return  # the places of its writes depend on data
    if counts or all(isinstance(s, st.Load | st.Let | st.Store) for s in loop.body):
        split_for_vectors(plan, loop.var.attr, loop.extent, Cost(loop.body))
