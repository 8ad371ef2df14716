"""Scatters: updates keep their order, and those of one contiguous row are lanes."""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.stmt import For
from weft.ir.traverse import walk
from weft.strategies.common.elementwise import schedule_nest, split_for_vectors
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    parallelise,
    size_of,
    work,
)

LEAST_LINES: Final = 4  # of a row that is worth a loop of its own
UPDATE_WEIGHT: Final = 4  # of an update that waits for its place, beside work in vectors


def schedule_updates(plan: Plan, root: str) -> bool:
    """Schedule the loops that apply updates; whether the nest is of that form.

    An outer loop reads and checks where a row goes; the innermost one moves the row.
    """
    loop = find(plan.kernel, root)
    assert loop is not None
    rows = chain_of(loop)
    inner = [s for s in rows[-1].body if isinstance(s, For)]
    if not inner and len(rows) > 1:
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
    """Schedule rows of updates of which no two may change places; whether they are such.

    A thread takes some columns of all rows: a hand-over for each row takes longer than the row.
    """
    mark, names = plan.schedule.mark(), [r.var.attr for r in rows]
    apart = any([plan.attempt("parallel", name) for name in names[:-1]])
    plan.schedule.reset(mark)
    if apart:
        loops = {r.var for r in rows}
        found = any(isinstance(s, st.Store) and not ex.free_vars(s.index) <= loops
                    for s in rows[-1].body)
        if found:
            parallelise(plan, names, UPDATE_WEIGHT * work((rows[0],)))
        return found
    if not _by_columns(plan, rows):
        plan.schedule.reset(mark)
    schedule_nest(plan, rows[0].var.attr, shared=False)
    return True


def _by_columns(plan: Plan, rows: list[For]) -> bool:
    """Apply all rows of updates to some columns, then to others; whether that is legal and pays.

    The columns are whole lines of a thread's own, if there are enough, and stay in its cache while
    rows change.
    """
    column, names = rows[-1], [r.var.attr for r in rows]
    outer, inner = f"{names[-1]}.o", f"{names[-1]}.i"
    out = next(s.memory for s in walk(column.body) if isinstance(s, st.Store))
    line = max(plan.target.line_bytes // out.dtype.itemsize, 1)
    size, threads, least = size_of(column.extent), plan.threads, LEAST_LINES * line
    if not size:
        return False
    if UPDATE_WEIGHT * work((rows[0],)) < plan.costs.parallel_work or size < threads * line:
        threads = 1
    if size < threads * least:
        line = 1
    count, cache = -(-size // threads), plan.target.l2_bytes // 2
    whole = size_of(out.size) * out.dtype.itemsize
    if whole > cache > 0:
        count = min(count, max(cache * size_of(out.shape[-1]) // whole, least))
    blocks = -(-size // (count * threads)) * threads
    count = -(-size // (blocks * line)) * line
    if count >= size or not (plan.attempt("split", names[-1], count, "trim")
                             and plan.attempt("reorder", outer, *names[:-1], inner)):
        return False
    plan.why.append(f"{outer}: columns that stay in a cache")
    return threads < 2 or plan.attempt("parallel", outer)


def schedule_parts(plan: Plan, loop: For) -> None:
    """Make vectors in a loop over parts of the result, which is parallel already."""
    inner = [s for s in walk(loop.body) if isinstance(s, For)
             and not any(isinstance(t, For) for t in walk(s.body))]  # fmt: skip
    for nest in inner:
        split_for_vectors(plan, nest.var.attr, nest.extent, Cost(nest.body))
    plan.why.append("parts of the rows are shared out to threads")
