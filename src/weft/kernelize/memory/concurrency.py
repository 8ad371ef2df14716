"""Find kernels of a plan that may run at the same time, and gain by it.

A kernel whose work is too small to be shared out leaves all threads but one idle. Where several
such kernels depend on nothing that is still to come, they form a group: one parallel region whose
threads take one kernel after the other, the longest first. A kernel that is shared out but so small
that handing it over costs as much as it saves may be in a group, too; there it runs on one thread,
in the very chunks that it has alone, so results are the same to the last bit.

Two launches are independent if neither writes what the other one reads or writes. The order is
otherwise kept, but for launches that are taken forward into a group; values that come to life
earlier by that, or may not share memory because their kernels overlap, cost memory, so callers say
how far a launch may be moved, and look at what the arena became.

Launches that write over an array of the caller all stay behind the last launch that does not: a
call can be ended until the first of them, and nothing that may fail may come after it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from weft.target import CostModel

__all__ = ["ANYWHERE", "Group", "Work", "arrange"]

ANYWHERE: Final = 1 << 60  # a reach: from any place
LEAST_SHARE: Final = 10  # part that a group has to save of the time of its kernels one by one
_USUAL: Final = CostModel()


class Work(NamedTuple):
    """What one launch does.

    Attributes
    ----------
    reads, writes : frozenset
        The arrays that it touches, each once by whatever name.
    nanoseconds : int
        About how long it takes on one thread.
    width : int
        How many threads it can use alone.
    updates : bool
        Whether it writes over an array of the caller.
    """

    reads: frozenset[Hashable]
    writes: frozenset[Hashable]
    nanoseconds: int
    width: int = 1
    updates: bool = False


class Group(NamedTuple):
    """Launches that run together, the longest first, or one that runs alone.

    Attributes
    ----------
    launches : tuple of int
        Their numbers.
    saves : int
        About how many nanoseconds that saves.
    """

    launches: tuple[int, ...]
    saves: int = 0


def arrange(works: Sequence[Work], threads: int, reach: int = ANYWHERE,
            costs: CostModel = _USUAL) -> list[Group]:  # fmt: skip
    """Return the launches in an order in which they may run, those that run together as one group.

    Parameters
    ----------
    works : sequence of Work
        The launches in an order in which they may run.
    threads : int
        Threads that run a plan.
    reach : int
        How many places a launch may come forward.
    costs : CostModel
        What a parallel region costs, and from which gain on a group is worth it.
    """
    if threads < 2 or reach < 1:
        return [Group((i,)) for i in range(len(works))]
    first_update = next((i for i, w in enumerate(works) if w.updates), len(works))
    return [
        *_arrange(works, range(first_update), threads, reach, costs),
        *_arrange(works, range(first_update, len(works)), threads, reach, costs),
    ]


def _arrange(works: Sequence[Work], part: range, threads: int, reach: int,
             costs: CostModel) -> list[Group]:  # fmt: skip
    """Arrange a part of the launches, all before which have run."""
    followers, missing = _dependences(works, part)
    ready: list[int] = []  # launches that may be in a group and wait for nothing, in order
    done = [False] * len(part)
    out: list[Group] = []

    for i in part:
        if not missing[i - part.start] and _is_small(works[i], threads, costs):
            ready.append(i)
    for i in part:  # whatever comes before it has run, so nothing that it needs is missing
        if done[i - part.start]:
            continue
        group = Group((i,))
        if _is_small(works[i], threads, costs):
            # Everything before i is done, so i is the first of those that are ready.
            near = ready[: bisect_right(ready, i + min(reach, len(works)))]
            group = _group(works, near, threads, costs)
            chosen = set(group.launches)
            ready = [j for j in ready if j not in chosen]
        out.append(group)
        for j in group.launches:
            done[j - part.start] = True
        for j in group.launches:
            for follower in followers[j - part.start]:
                missing[follower - part.start] -= 1
                if not missing[follower - part.start] and _is_small(
                        works[follower], threads, costs):
                    insort(ready, follower)
    return out


def _is_small(work: Work, threads: int, costs: CostModel) -> bool:
    return work.width < threads or work.nanoseconds <= costs.group_kernel_ns


def _dependences(works: Sequence[Work], part: range) -> tuple[list[list[int]], list[int]]:
    """Return which launches each one comes before, and how many each one comes after."""
    followers: list[list[int]] = [[] for _ in part]
    missing: list[int] = []
    writer: dict[Hashable, int] = {}
    readers: dict[Hashable, list[int]] = {}  # since the last write
    for i in part:
        work = works[i]
        before: set[int] = set()
        for place in work.reads | work.writes:
            if place in writer:
                before.add(writer[place])
        for place in work.writes:
            before.update(readers.pop(place, ()))
            writer[place] = i
        for place in work.reads - work.writes:
            readers.setdefault(place, []).append(i)
        before.discard(i)
        missing.append(len(before))
        for j in before:
            followers[j - part.start].append(i)
    return followers, missing


def _group(works: Sequence[Work], near: Sequence[int], threads: int, costs: CostModel) -> Group:
    """Return those of some launches that had best run with the first of them."""
    best = Group((near[0],))
    for chosen in (near, [i for i in near if works[i].width < threads]):
        if len(chosen) > 1 and chosen[0] == near[0]:
            gain = _gain([works[i] for i in chosen], threads, costs)
            if gain > best.saves:
                longest = sorted(chosen, key=lambda i: (-works[i].nanoseconds, i))
                best = Group(tuple(longest), gain)
    return best


def _gain(works: Sequence[Work], threads: int, costs: CostModel) -> int:
    """Return the nanoseconds that running launches together saves; 0 if it is not worth it."""
    apart = sum(
        w.nanoseconds // min(w.width, threads) + costs.handover_ns if w.width > 1
        else w.nanoseconds
        for w in works
    )
    lanes = [0] * min(threads, len(works))
    for nanoseconds in sorted((w.nanoseconds for w in works), reverse=True):
        heapq.heapreplace(lanes, lanes[0] + nanoseconds)
    gain = apart - max(lanes) - costs.handover_ns
    return gain if gain >= costs.group_gain_ns and gain * LEAST_SHARE >= apart else 0
