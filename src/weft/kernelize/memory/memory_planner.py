"""Place intermediate arrays in one arena so that those alive at once never overlap."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final, NamedTuple

ALIGNMENT: Final = 64  # bytes, a cache line and the widest vector


class Lifetime(NamedTuple):
    """An array: its bytes, and the first and last step that touch it."""

    nbytes: int
    first: int
    last: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return the byte offset of each array and the size of the arena.

    Arrays are placed in order of their first use, each in the smallest hole that holds it; holes
    are merged as arrays die. An array that dies at a step may not share memory with one born
    there, for a kernel reads and writes in any order.
    """
    offsets = [0] * len(lifetimes)
    holes: list[tuple[int, int]] = []  # (offset, bytes), by offset
    end = 0
    dying: list[tuple[int, int, int]] = []  # (last, offset, bytes)
    for number in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].first):
        nbytes, first, last = lifetimes[number]
        need = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        while dying and dying[0][0] < first:
            _, offset, size = dying.pop(0)
            _release(holes, offset, size)
        best = min((h for h in holes if h[1] >= need), key=lambda h: h[1], default=None)
        if best is not None:
            holes.remove(best)
            offset = best[0]
            if best[1] > need:
                insort(holes, (offset + need, best[1] - need))
        elif holes and holes[-1][0] + holes[-1][1] == end:
            offset = holes.pop()[0]
            end = offset + need
        else:
            offset, end = end, end + need
        offsets[number] = offset
        insort(dying, (last, offset, need))
    return offsets, end


def _release(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    """Add a hole, merged with its neighbours."""
    insort(holes, (offset, size))
    at = holes.index((offset, size))
    if at + 1 < len(holes) and offset + size == holes[at + 1][0]:
        size += holes.pop(at + 1)[1]
        holes[at] = (offset, size)
    if at > 0 and sum(holes[at - 1]) == offset:
        holes[at - 1] = (holes[at - 1][0], holes[at - 1][1] + size)
        holes.pop(at)
