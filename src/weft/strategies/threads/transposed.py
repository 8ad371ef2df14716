"""Elements that are read across the order in which they are written: tiles through shared memory.

Neighbouring threads share a transfer where they read, or write, neighbouring elements. In
``y[a, b] = x[b, a]`` no order of the threads has both. So a group copies a tile, in the order in
which it lies in `x`, to memory that its threads share, and writes it in the order of `y`::

    for a.o, b.o parallel: { x.s[b, a] = x[b, a] (a fastest);  y[a, b] = x.s[b, a] (b fastest) }

Rows of the tile in shared memory have an odd number of words, so that neither order meets a bank
twice.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir.stmt import For
from weft.schedule.analysis import subscripts
from weft.strategies.common.nest import Plan, chain_of, loop_of, size_of, strides
from weft.strategies.threads.sharing import deal_out, fuse_all

__all__ = ["schedule_transposed"]

_SIDE: Final = 32  # of a tile: the threads that read neighbouring elements together
_WORD: Final = 4  # bytes that a bank of shared memory moves
_LEAST: Final = 2  # elements of a row that are worth a tile


def schedule_transposed(plan: Plan, loop: For) -> bool:
    """Schedule a nest of independent loops that reads a memory across its order, by tiles.

    Returns
    -------
    bool
        Whether it is one, and legal. If not, the plan is as it was.
    """
    chain = chain_of(loop)
    found = _across(plan, chain)
    if found is None:
        return False
    other, memories = found
    saved = plan.schedule.mark()
    try:
        _tile(plan, [c.var.attr for c in chain], other, memories)
    except ScheduleError as error:
        plan.schedule.reset(saved)
        plan.why.append(f"not {error.operation}: {error.found}")
        return False
    plan.why.append(f"tiles of {', '.join(memories)}, which is read across its order, are shared")
    return True


def _across(plan: Plan, chain: list[For]) -> tuple[For, dict[str, int]] | None:
    """Return the loop along which memories lie that the innermost loop steps over, and those.

    They come with the bytes of an element.
    """
    inner = chain[-1]
    space = subscripts.Space(plan.kernel)
    steps = strides(space, inner.body, inner.var)
    for other in chain[:-1]:
        along = {id(a.stmt) for a, step in strides(space, inner.body, other.var)
                 if step in (1, -1) and not a.write}
        found = {a.memory.name: a.memory.dtype.itemsize for a, step in steps
                 if id(a.stmt) in along and step not in (0, 1, -1, None)}
        if found and min(size_of(other.extent), size_of(inner.extent)) >= _LEAST:
            room = plan.target.shared_bytes // 2 // len(found)
            rows, columns = _sides(other, inner)
            fits = all((rows + _skew(rows, n)) * n * columns <= room for n in found.values())
            return (other, found) if fits else None
    return None


def _sides(other: For, inner: For) -> tuple[int, int]:
    """Return how long a tile is along two loops: where one is short, the other is longer."""
    a, b = size_of(other.extent), size_of(inner.extent)
    return min(a, _side_beside(b)), min(b, _side_beside(a))


def _side_beside(beside: int) -> int:
    """Return how long a side of a tile is whose other loop has so many iterations."""
    return max(_SIDE // max(beside, 1), 1) * _SIDE


def _skew(count: int, width: int) -> int:
    """Return how many elements make a row of an odd number of words, or of wider elements."""
    unit = max(_WORD, width)
    return (-(-count * width // unit) | 1) * unit // width - count


def _tile(plan: Plan, names: list[str], other: For, memories: dict[str, int]) -> None:
    """Cut the nest into tiles, stage what is read, and deal everything out to threads."""
    rows, columns = _sides(other, loop_of(plan, names[-1]))
    items = plan.target.group_items
    a, b = other.var.attr, names[-1]
    rest = [name for name in names if name not in (a, b)]
    plan.schedule.reorder(*rest, a, b)
    plan.schedule.tile(a, b, rows, columns)
    whole = fuse_all(plan, [*rest, f"{a}.o", f"{b}.o"])
    plan.schedule.parallel(whole)
    for memory, width in memories.items():
        plan.schedule.stage(memory, whole, layout=(f"{b}.i", f"{a}.i"), scope="shared",
                            skew=_skew(rows, width))  # fmt: skip
    for nest in loop_of(plan, whole).body:
        if isinstance(nest, For):
            deal_out(plan, fuse_all(plan, [c.var.attr for c in chain_of(nest)]), items)
