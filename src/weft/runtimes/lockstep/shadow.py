"""Who accessed each element last, and whether two accesses are ordered.

Time counts accesses: one statement that all threads carry out in step takes one unit. Two accesses
of one element by two threads, one of them a write, are a race unless something orders them: a
barrier of the block between them, a warp barrier that both threads take part in, or a fence and an
atomic operation by which one thread tells the other. Atomic operations do not race with each
other, nor do two plain writes of the same bits; but an operation that is atomic for a block only
races with those of other blocks. Nor does a read race with them whose value an atomic comparison
then looks at again.

For each element the last write is kept and two reads by different threads, so that any writer
finds at least one reader that is not itself; and of atomic operations, which may follow each other
unordered, the last by another thread than the last one. Memory for it is taken as elements are
touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from weft.runtimes.lockstep.values import Array

__all__ = ["GUESS", "READ", "UPDATE", "WRITE", "Clocks", "Conflict", "Shadow"]

READ: Final = 0
WRITE: Final = 1
UPDATE: Final = 2  # atomic
GUESS: Final = 3  # a read whose value an atomic comparison looks at again
WARP: Final = 32

Conflict = tuple[int, int, int]  # the earlier thread, the later one, time of the earlier access


class Clocks:
    """What orders the accesses of the threads that run now.

    Attributes
    ----------
    now : int
        Time of the current access.
    tids : array
        Number of each thread in the whole grid.
    per_block : int
        Threads of a block.
    """

    def __init__(self, per_block: int) -> None:
        self.now, self.per_block = 0, per_block
        # what atomic operations passed on: to all, and to the threads of one block (else -1)
        self._released: dict[tuple[int, int, int], int] = {}
        self.begin(np.zeros(0, np.int64))

    def begin(self, tids: Array) -> None:
        """Start other blocks: nothing has ordered their threads yet."""
        count = len(tids)
        self.tids = tids
        self._barrier = np.full(count, self.now, np.int64)  # last barrier of the thread's block
        self._fence = np.zeros(count, np.int64)  # last fence of the thread
        self._near = np.zeros(count, np.int64)  # last fence of the thread for its block
        self._seen = np.zeros(count, np.int64)  # other blocks' accesses up to here are visible
        self._heard = np.zeros(count, np.int64)  # accesses of the own block up to here are
        self._warp: Array | None = None  # (thread, lane): the lane's accesses that are visible
        self._slot = np.arange(count) % self.per_block % WARP

    def barrier(self, lanes: Array) -> None:
        """Order all that the blocks of some threads did before what they do now."""
        self.now += 1
        first = lanes // self.per_block
        for block in np.unique(first).tolist():
            part = slice(block * self.per_block, (block + 1) * self.per_block)
            self._barrier[part] = self.now
            self._seen[part] = self._seen[part].max()

    def grid_barrier(self) -> None:
        """Order all that was done before in the whole grid."""
        self.now += 1
        self._barrier[:] = self._seen[:] = self.now

    def warp_barrier(self, groups: Array) -> None:
        """Order the accesses of the threads that meet: those of one (non-negative) number."""
        self.now += 1
        if self._warp is None:
            self._warp = np.zeros((len(self.tids), WARP), np.int64)
        lanes = np.flatnonzero(groups >= 0)
        self._warp[lanes, self._slot[lanes]] = self.now
        lanes = lanes[np.argsort(groups[lanes], kind="stable")]
        first = np.flatnonzero(np.diff(groups[lanes], prepend=-1))  # of each group
        known = np.maximum.reduceat(self._warp[lanes], first, axis=0)
        self._warp[lanes] = np.repeat(known, np.diff(first, append=len(lanes)), axis=0)

    def fence(self, lanes: Array, near: bool = False) -> None:
        """Make what threads did visible to whom they tell of it; `near`: in their block."""
        self.now += 1
        self._near[lanes] = self.now
        if not near:
            self._fence[lanes] = self.now

    def synchronise(self, memory: int, elements: Array, lanes: Array) -> None:
        """Let atomic operations pass on what fences made visible."""
        if not (self._released or self._near.any()):
            return
        for element, lane in zip(elements.tolist(), lanes.tolist(), strict=True):
            block = int(self.tids[lane]) // self.per_block
            for whom, fences, known in ((-1, self._fence, self._seen),
                                        (block, self._near, self._heard)):  # fmt: skip
                before = self._released.get((memory, element, whom), 0)
                known[lane] = max(int(known[lane]), before)
                if latest := max(int(fences[lane]), before):
                    self._released[memory, element, whom] = latest

    def ordered(self, times: Array, tids: Array, lanes: Array) -> Array:
        """Whether earlier accesses of other threads happened before what some threads do now."""
        mine = self.tids[lanes]
        same_block = tids // self.per_block == mine // self.per_block
        known = np.maximum(self._barrier[lanes], self._heard[lanes])
        found = times <= np.where(same_block, known, 0)
        found |= times <= self._seen[lanes]
        if self._warp is not None:
            local, own = tids % self.per_block, mine % self.per_block
            together = same_block & (local // WARP == own // WARP)
            found |= together & (times <= self._warp[lanes, local % WARP])
        return found


class Shadow:
    """The last accesses of each element of a memory."""

    __slots__ = ("_first_code", "_first_time", "_last_code", "_last_time", "_other_code",
                 "_other_time", "_write_code", "_write_time", "number")

    _count = 0

    def __init__(self, size: int) -> None:
        Shadow._count += 1
        self.number = Shadow._count
        self._write_time, self._write_code = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._other_time, self._other_code = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._last_time, self._last_code = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._first_time, self._first_code = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def access(self, kind: int, elements: Array, lanes: Array, clocks: Clocks,
               changed: Array | None = None, narrow: bool = False) -> list[Conflict]:
        """Note an access by some threads; return conflicts with an earlier one.

        They are the first with a thread of the same block, and the first with one of another.

        `changed` tells of plain writes which of them change what the element holds, `narrow` that
        an atomic operation is one for the threads of the block only.
        """
        clocks.now += 1
        tids = clocks.tids[lanes]
        found = self._against_writes(kind, elements, lanes, tids, clocks, changed, narrow)
        if kind in (READ, GUESS):
            if kind == READ and not found:
                found = self._against_updates(elements, lanes, tids, clocks)
            self._note_reads(elements, tids << 1 | (kind == GUESS), clocks.now)
            return found
        if not found:
            for times, codes in ((self._last_time, self._last_code),
                                 (self._first_time, self._first_code)):  # fmt: skip
                code, time = codes[elements], times[elements]
                time = np.where(code & 1 != 0, 0, time) if kind == UPDATE else time
                found = found or _conflict(time, code >> 1, lanes, tids, clocks)
        if not found and kind == WRITE:
            found = self._against_updates(elements, lanes, tids, clocks)
        before, then = self._write_code[elements], self._write_time[elements]
        codes = tids << 2 | narrow << 1 | (kind == UPDATE)
        self._write_time[elements], self._write_code[elements] = clocks.now, codes
        if kind == UPDATE:
            self._note_updates(elements, codes, before, then, clocks.now)
        else:
            self._other_time[elements] = 0
        return found

    def _note_updates(self, elements: Array, codes: Array, before: Array, then: Array,
                      now: int) -> None:  # fmt: skip
        """Keep of the atomic operations before the last one the last of another thread."""
        other = (before & 1 != 0) & (before >> 2 != codes >> 2)
        if other.any():
            moved = elements[other]
            self._other_code[moved], self._other_time[moved] = before[other], then[other]
        several = self._write_code[elements] != codes  # threads at once
        if several.any():
            moved = elements[several]
            self._other_code[moved], self._other_time[moved] = codes[several], now

    def _against_writes(self, kind: int, elements: Array, lanes: Array, tids: Array,
                        clocks: Clocks, changed: Array | None,
                        narrow: bool) -> list[Conflict]:  # fmt: skip
        times = self._write_time[elements]
        if not times.any():
            return []
        codes = self._write_code[elements]
        if kind == UPDATE:
            apart = (codes >> 2) // clocks.per_block != tids // clocks.per_block
            apart &= narrow | (codes & 2 != 0)
            times = np.where((codes & 1 != 0) & ~apart, 0, times)
        elif kind == GUESS:
            times = np.where(codes & 1 != 0, 0, times)
        elif changed is not None:
            times = np.where((codes & 1 == 0) & ~changed, 0, times)
        return _conflict(times, codes >> 2, lanes, tids, clocks)

    def _against_updates(self, elements: Array, lanes: Array, tids: Array,
                         clocks: Clocks) -> list[Conflict]:  # fmt: skip
        """Compare with the last atomic operation by another thread than the last one."""
        times = self._other_time[elements]
        if not times.any():
            return []
        return _conflict(times, self._other_code[elements] >> 2, lanes, tids, clocks)

    def _note_reads(self, elements: Array, codes: Array, now: int) -> None:
        before, then = self._last_code[elements], self._last_time[elements]
        other = before != codes
        if other.any():
            moved = elements[other]
            self._first_code[moved], self._first_time[moved] = before[other], then[other]
        self._last_code[elements], self._last_time[elements] = codes, now
        shared = self._last_code[elements] != codes  # several threads read one element
        if shared.any():
            moved = elements[shared][::-1]
            self._first_code[moved], self._first_time[moved] = codes[shared][::-1], now


def _conflict(times: Array, others: Array, lanes: Array, tids: Array,
              clocks: Clocks) -> list[Conflict]:  # fmt: skip
    """Return the first pair of one block, and the first of two, that is not ordered."""
    open_ = (times > 0) & (others != tids)
    if not open_.any():
        return []
    at = np.flatnonzero(open_)
    at = at[~clocks.ordered(times[at], others[at], lanes[at])]
    apart = others[at] // clocks.per_block != tids[at] // clocks.per_block
    return [(int(others[k]), int(tids[k]), int(times[k]))
            for k in (*at[~apart][:1], *at[apart][:1])]


def same_time(elements: Array, values: Array, tids: Array) -> tuple[int, int] | None:
    """Return two threads that write different bits to one element at once, if there are any."""
    if len(elements) < 2 or bool(np.all(elements[1:] > elements[:-1])):
        return None
    order = np.argsort(elements, kind="stable")
    element, value = elements[order], bits(values[order])
    clash = (element[1:] == element[:-1]) & (value[1:] != value[:-1])
    if not clash.any():
        return None
    first = int(np.argmax(clash))
    return int(tids[order[first]]), int(tids[order[first + 1]])


def blocks_at_once(elements: Array, tids: Array, per_block: int) -> tuple[int, int] | None:
    """Return two threads of different blocks that access one element at once, if there are any."""
    order = np.argsort(elements, kind="stable")
    element, thread = elements[order], tids[order]
    block = thread // per_block
    clash = (element[1:] == element[:-1]) & (block[1:] != block[:-1])
    if not clash.any():
        return None
    first = int(np.argmax(clash))
    return int(thread[first]), int(thread[first + 1])


def bits(values: Array) -> Array:
    """Return the bits of values, so that NaNs are equal and zeros of two signs are not."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
