"""What kernels at the limit of memory ask for before they need it.

A core's own look-ahead follows a stream within its page and begins anew with each page, so that one
stream alone leaves part of the bandwidth unused. Rows and blocks are therefore asked for one ahead,
in several places side by side, while there is something else to do: arithmetic, or stores.
"""

from __future__ import annotations

from typing import Final

from weft.ir import traverse
from weft.ir.stmt import VECTOR, Body, For, Load, Memory, Reduce, Stmt, Store
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.nest import Cost, Plan, find, flat_stride, product, size_of

KEPT: Final = 4  # first caches: columns of what is larger are written to the second one
BEYOND: Final = 2  # the second next columns begin in the last line of the next ones


def fetch_rows(plan: Plan, row: str) -> None:
    """Fetch the next row while the present one, which is in the cache, is computed with.

    The first phase of a row waits for memory with little to do; a later one with exponentials
    has time to spare, and one that writes past the caches waits for something else.
    """
    loop = find(plan.kernel, row)
    if loop is None:
        return
    inner: dict[Memory, list[_Read]] = {}
    for stmt in loop.body:
        for read in _innermost(stmt):
            for load in read.body:
                if isinstance(load, Load) and load.memory.scope == "global":
                    inner.setdefault(load.memory, []).append(read)
    for memory in plan.kernel.params:
        reads = inner.get(memory, [])
        longest = max((read.points for read in reads), default=0)
        reads = [read for read in reads if 2 * read.points > longest]  # not what vectors leave
        size = size_of(memory.size) * memory.dtype.itemsize
        if not reads or size < plan.target.l2_bytes:
            continue
        last = max(reads[1:] or reads, key=lambda read: (read.cost.heavy, read.streams))
        row_bytes = longest * memory.dtype.itemsize
        # It waits for what it writes, if at all.
        light = last.streams and row_bytes >= plan.costs.prefetch_light_bytes
        if len(reads) < 2 and not light:
            continue
        fits = plan.costs.prefetch_row_bytes <= row_bytes <= plan.target.l2_bytes // 4
        ahead = light or (fits and last.cost.heavy > 0)
        if plan.pick("fetch ahead", ahead, (True, False), memory.name) and (
                plan.attempt("prefetch", memory.name, last.around, row, **_places(plan, row_bytes))
                or (len(reads) > 1 and plan.attempt("prefetch", memory.name, last.name, row))):
            plan.why.append(f"the next row of {memory.name} is fetched ahead")
    fetch_written(plan, row)


def fetch_written(plan: Plan, name: str) -> None:
    """Fetch the lines that a row is about to be written to, if rows are no whole lines.

    Stores that touch two lines wait for both, one store after the other.
    """
    row = find(plan.kernel, name)
    if row is None:
        return
    space = Space(plan.kernel)
    pairs = [(around, lanes) for around in traverse.walk(row.body) if isinstance(around, For)
             for lanes in around.body if isinstance(lanes, For)]
    for around, lanes in pairs:
        for store in lanes.body:
            if not isinstance(store, Store) or not _is_larger(plan, store.memory, 1):
                continue
            size = store.memory.dtype.itemsize
            apart = flat_stride(space, Access(store), row.var) or 0
            if apart * size % plan.target.line_bytes == 0 or lanes.kind != VECTOR:
                continue
            distance = max(plan.costs.prefetch_written_bytes // (size_of(lanes.extent) * size), 1)
            if plan.attempt("prefetch", store.memory.name, lanes.var.attr, around.var.attr,
                            distance):
                plan.why.append(f"lines of {store.memory.name} are fetched before they are written")


def _is_larger(plan: Plan, memory: Memory, caches: int) -> bool:
    """Whether a parameter is larger than so many first caches."""
    return memory in plan.kernel.params and (
        size_of(memory.size) * memory.dtype.itemsize > caches * plan.target.l1_bytes)


def fetch_vectors(plan: Plan, name: str) -> None:
    """Fetch later vectors of long arrays while there is arithmetic to do.

    Look-ahead begins anew with each page, and what a core holds of a loop with much arithmetic is
    a few vectors: it would wait for the first lines of every page.
    """
    loop = find(plan.kernel, name)
    body = () if loop is None else loop.body
    lanes = next((s for s in body if isinstance(s, For) and s.kind == VECTOR), None)
    if lanes is None or not Cost(lanes.body).heavy:
        return
    for memory in dict.fromkeys(s.memory for s in lanes.body if isinstance(s, Load)):
        size = memory.dtype.itemsize
        vector = size_of(lanes.extent) * size
        if vector % plan.target.line_bytes == 0 and 2 * size_of(memory.size) * size >= (
                plan.target.l2_bytes) and plan.attempt(  # beside a result of that size
                "prefetch", memory.name, lanes.var.attr, name,
                plan.costs.prefetch_vector_bytes // vector):
            plan.why.append(f"later vectors of {memory.name} are fetched ahead")


def fetch_blocks(plan: Plan, rows: list[str], name: str) -> None:
    """Fetch the next block of the few long arrays that a loop over vectors walks along.

    Parameters
    ----------
    rows : list of str
        The loops around it.
    name : str
        The loop; its vectors are written past the caches.
    """
    loop = find(plan.kernel, name)
    if loop is None:
        return
    reads = dict.fromkeys(s.memory for s in traverse.walk(loop.body) if isinstance(s, Load)
                          and size_of(s.memory.size) * s.memory.dtype.itemsize
                          >= plan.costs.prefetch_array_bytes)
    if len(reads) > plan.costs.prefetch_streams:
        return
    points = size_of(loop.extent) * product(s.extent for s in traverse.walk(loop.body)
                                            if isinstance(s, For))
    for memory in reads:
        row_bytes = points * memory.dtype.itemsize
        block = size_of(loop.extent) * plan.costs.prefetch_block_bytes // row_bytes
        if row_bytes >= 2 * plan.costs.prefetch_block_bytes:
            ahead, asked = name, _pages(plan.costs.prefetch_pages, 1 << block.bit_length() - 1)
        else:
            ahead, asked = rows[-1] if rows else "", _places(plan, row_bytes)
        wanted = row_bytes >= plan.costs.prefetch_light_bytes
        if plan.pick("fetch ahead", wanted, (True, False), memory.name) and plan.attempt(
                "prefetch", memory.name, name, ahead, **asked):
            plan.why.append(f"{memory.name} is fetched ahead in {asked['count']} places")


def fetch_results(plan: Plan, columns: str) -> None:
    """Fetch the lines of rows that lie apart before the next columns are written to them.

    A store that touches two lines has to have both, and no later store asks for its own before:
    with more rows than a processor follows, each would wait for memory by itself.
    """
    loop = find(plan.kernel, columns)
    space = Space(plan.kernel)
    steps = [s for s in traverse.walk(() if loop is None else loop.body) if isinstance(s, For)]
    for step in steps:
        for store in step.body:
            if not isinstance(store, Store) or store.streaming or not _is_larger(
                    plan, store.memory, KEPT):
                continue
            apart = flat_stride(space, Access(store), step.var) or 0
            if (apart * store.memory.dtype.itemsize >= plan.target.line_bytes and plan.attempt(
                    "prefetch", store.memory.name, step.var.attr, columns, BEYOND)):
                plan.why.append(f"lines of {store.memory.name} are fetched before they are written")


def _places(plan: Plan, row_bytes: int) -> dict[str, int | str]:
    """Return how many places to ask for side by side, and of how many rows.

    Long rows are asked for in several pages, of short ones a block, each a place of its own.
    """
    costs = plan.costs
    if row_bytes >= 2 * costs.page_bytes:
        pages = 1 << (row_bytes // costs.page_bytes).bit_length() - 1
        return _pages(min(costs.prefetch_pages, pages), 1)
    rows = 1 << (costs.prefetch_pages * costs.page_bytes // max(row_bytes, 1)).bit_length() - 1
    rows = min(max(rows, 2), costs.prefetch_rows)
    return _pages(rows, rows)


def _pages(places: int, block: int) -> dict[str, int | str]:
    return {"granularity": "pages", "count": places, "distance": block}


class _Read:
    """An innermost loop of a phase.

    Attributes
    ----------
    name, around : str
        Its name, and that of the loop right around it in the same phase, if there is one.
    points : int
        How often its body runs in the phase.
    body : tuple of Stmt
        What it does.
    cost : Cost
        What the phase costs.
    streams : bool
        Whether it writes past the caches.
    """

    def __init__(self, phase: Stmt, name: str, around: str, points: int, body: Body) -> None:
        self.name, self.around, self.points, self.body = name, around, points, body
        self.cost = Cost((phase,))
        self.streams = any(isinstance(s, Store) and s.streaming for s in traverse.walk((phase,)))


def _innermost(phase: Stmt) -> list[_Read]:
    """Return the innermost loops of a phase."""
    found: list[_Read] = []
    stack: list[tuple[Stmt, int, str]] = [(phase, 1, "")]
    while stack:
        top, points, around = stack.pop()
        if isinstance(top, Reduce):
            points *= product(a.extent for a in top.axes)
            name = str(top.axes[-1].var.attr)
        elif isinstance(top, For):
            points *= size_of(top.extent)
            name = str(top.var.attr)
        else:
            continue
        body = top.bodies()[0]
        if not any(isinstance(s, Reduce | For) for s in body):
            found.append(_Read(phase, name, around, points, body))
        stack.extend((s, points, name if isinstance(top, For) else "") for s in body)
    return found


