"""Scatters: updates keep their order, and those of one contiguous row are lanes."""

from __future__ import annotations

from typing import Final

from weft.ir import stmt as st
from weft.ir.stmt import For
from weft.ir.traverse import walk
from weft.strategies.elementwise import schedule_nest, split_for_vectors
from weft.strategies.nest import Cost, Plan, chain_of, find, parallelise, work

ROW_WORK: Final = 1 << 13  # weighted operations of a row that is worth a hand-over to threads


def schedule_updates(plan: Plan, root: str) -> bool:
    """Schedule the loops that apply updates; whether the nest is of that form.

    An outer loop reads and checks where a row goes; the innermost one moves the row.
    """
    loop = find(plan.kernel, root)
    assert loop is not None
    rows = chain_of(loop)
    inner = [s for s in rows[-1].body if isinstance(s, For)]
    if not inner and plan.threads > 1 and len(rows) > 1:
        return _in_order(plan, rows)
    if len(inner) != 1 or inner[0].kind != st.SERIAL:
        return False
    chain = chain_of(inner[0])
    column = chain[-1]
    if not all(isinstance(s, st.Load | st.Let | st.Store) for s in column.body):
        return False
    split_for_vectors(plan, column.var.attr, column.extent, Cost(column.body))
    parallelise(plan, [r.var.attr for r in rows], work((loop,)))
    return True


def _in_order(plan: Plan, rows: list[For]) -> bool:
    """Leave rows of updates to one thread if no two of them may change places; whether it is so.

    Only the columns of each row could be shared out then, which a long row alone is worth.
    """
    mark = plan.schedule.mark()
    apart = any([plan.attempt("parallel", r.var.attr) for r in rows[:-1]])
    plan.schedule.reset(mark)
    if apart or work((rows[-1],)) >= ROW_WORK:
        return False
    threads, plan.threads = plan.threads, 1
    try:
        schedule_nest(plan, rows[0].var.attr)
    finally:
        plan.threads = threads
    return True


def schedule_parts(plan: Plan, loop: For) -> None:
    """Make vectors in a loop over parts of the result, which is parallel already."""
    inner = [s for s in walk(loop.body) if isinstance(s, For)
             and not any(isinstance(t, For) for t in walk(s.body))]  # fmt: skip
    for nest in inner:
        split_for_vectors(plan, nest.var.attr, nest.extent, Cost(nest.body))
    plan.why.append("parts of the rows are shared out to threads")
