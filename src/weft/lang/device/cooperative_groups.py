"""Cooperative groups: ``from weft import cg``, with CUDA's names.

They are plain functions and classes that kernels read like those of a user, made of the intrinsics
of `weft.gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.ir import dtype as dt
from weft.lang.device import gpu as _gpu

__all__ = ["CoalescedGroup", "GridGroup", "ThreadBlock", "ThreadTile", "bit_and", "bit_or",
           "bit_xor", "coalesced_threads", "exclusive_scan", "greater", "inclusive_scan", "less",
           "plus", "reduce", "sync", "this_grid", "this_thread_block", "tiled_partition"]

gpu: Any = _gpu  # what kernels compute with: to Python these are no numbers
uint32: Any = dt.uint32


@dataclass(frozen=True)
class GridGroup:
    """All threads of a launch."""

    def sync(self) -> None:
        """Wait for all threads of the grid; what they wrote is visible after it."""
        gpu.grid_sync()

    def size(self) -> Any:
        """Return how many threads there are."""
        blocks = gpu.gridDim.x * gpu.gridDim.y * gpu.gridDim.z
        return blocks * gpu.blockDim.x * gpu.blockDim.y * gpu.blockDim.z

    def num_threads(self) -> Any:
        """Return how many threads there are."""
        return self.size()

    def thread_rank(self) -> Any:
        """Return the number of this thread."""
        block = gpu.blockIdx.x + gpu.gridDim.x * (gpu.blockIdx.y + gpu.gridDim.y * gpu.blockIdx.z)
        inside = gpu.threadIdx.x + gpu.blockDim.x * (
            gpu.threadIdx.y + gpu.blockDim.y * gpu.threadIdx.z)
        return block * (gpu.blockDim.x * gpu.blockDim.y * gpu.blockDim.z) + inside


@dataclass(frozen=True)
class ThreadBlock:
    """The threads of a block."""

    def sync(self) -> None:
        """Wait for all threads of the block; what they wrote is visible after it."""
        gpu.syncthreads()

    def size(self) -> Any:
        """Return how many threads there are."""
        return gpu.blockDim.x * gpu.blockDim.y * gpu.blockDim.z

    def num_threads(self) -> Any:
        """Return how many threads there are."""
        return self.size()

    def thread_rank(self) -> Any:
        """Return the number of this thread."""
        return gpu.threadIdx.x + gpu.blockDim.x * (
            gpu.threadIdx.y + gpu.blockDim.y * gpu.threadIdx.z)

    def partition(self, width: Any) -> ThreadTile:
        """Return the tile of `width` threads that this thread is in."""
        return ThreadTile(width)


@dataclass(frozen=True)
class ThreadTile:
    """Neighbours in a warp, 1 to 32 of them: a power of two."""

    width: int

    def size(self) -> Any:
        """Return how many threads there are."""
        return self.width

    def num_threads(self) -> Any:
        """Return how many threads there are."""
        return self.size()

    def thread_rank(self) -> Any:
        """Return the number of this thread."""
        return gpu.laneid % self.width

    def meta_group_rank(self) -> Any:
        """Return the number of this tile in its block."""
        return ThreadBlock().thread_rank() // self.width

    def meta_group_size(self) -> Any:
        """Return how many such tiles the block has."""
        return (ThreadBlock().size() + self.width - 1) // self.width

    def mask(self) -> Any:
        """Return the threads of the tile as bits of their warp."""
        return uint32(((1 << self.width) - 1) << (gpu.laneid // self.width * self.width))

    def sync(self) -> None:
        """Wait for the threads of the tile; what they wrote is visible after it."""
        gpu.syncwarp(self.mask())

    def shfl(self, value: Any, rank: Any) -> Any:
        """Return the value of the thread with a number."""
        return gpu.shfl_sync(self.mask(), value, rank, self.width)

    def shfl_up(self, value: Any, delta: Any) -> Any:
        """Return the value of the thread so many below; the lowest keep their own."""
        return gpu.shfl_up_sync(self.mask(), value, delta, self.width)

    def shfl_down(self, value: Any, delta: Any) -> Any:
        """Return the value of the thread so many above; the highest keep their own."""
        return gpu.shfl_down_sync(self.mask(), value, delta, self.width)

    def shfl_xor(self, value: Any, lane_mask: Any) -> Any:
        """Return the value of the thread whose number is this one's xor `lane_mask`."""
        return gpu.shfl_xor_sync(self.mask(), value, lane_mask, self.width)

    def any(self, predicate: Any) -> Any:
        """Return whether a predicate holds for any thread of the tile."""
        return gpu.any_sync(self.mask(), predicate)

    def all(self, predicate: Any) -> Any:
        """Return whether a predicate holds for all threads of the tile."""
        return gpu.all_sync(self.mask(), predicate)

    def ballot(self, predicate: Any) -> Any:
        """Return the threads of the tile for which a predicate holds, a bit each, by number."""
        return uint32(gpu.ballot_sync(self.mask(), predicate)
                          >> (gpu.laneid // self.width * self.width))

    def match_any(self, value: Any) -> Any:
        """Return the threads of the tile that have the same value, a bit each, by number."""
        return uint32(gpu.match_any_sync(self.mask(), value)
                      >> (gpu.laneid // self.width * self.width))

    def partition(self, width: Any) -> ThreadTile:
        """Return the smaller tile that this thread is in."""
        return ThreadTile(width)

    def reduce(self, value: Any, op: Any) -> Any:
        """Return what a function of two values makes of those of all threads, in each of them."""
        step = self.width // 2
        while step > 0:
            value = op(value, self.shfl_xor(value, step))
            step //= 2
        return value

    def inclusive_scan(self, value: Any, op: Any) -> Any:
        """Return what a function of two values makes of this thread's and those below."""
        rank = self.thread_rank()
        step = 1
        while step < self.width:
            other = self.shfl_up(value, step)
            if rank >= step:
                value = op(other, value)
            step *= 2
        return value


@dataclass(frozen=True)
class CoalescedGroup:
    """Threads of a warp that are at one place of the program, numbered in their order."""

    bits: Any  # the lanes of its threads

    def size(self) -> Any:
        """Return how many threads there are."""
        return gpu.popc(self.bits)

    def num_threads(self) -> Any:
        """Return how many threads there are."""
        return gpu.popc(self.bits)

    def thread_rank(self) -> Any:
        """Return the number of this thread."""
        return gpu.popc(self.bits & gpu.lanemask_lt())

    def meta_group_rank(self) -> Any:
        """Return 0: it is a whole, not a part of one."""
        return 0

    def meta_group_size(self) -> Any:
        """Return 1."""
        return 1

    def mask(self) -> Any:
        """Return the threads of the group as bits of their warp."""
        return self.bits

    def lane(self, rank: Any) -> Any:
        """Return the lane of the thread with a number: halves are counted until one is left."""
        place = 0
        rest = rank
        width = 16
        while width > 0:
            below = gpu.popc((self.bits >> place) & ((1 << width) - 1))
            if rest >= below:
                rest -= below
                place += width
            width //= 2
        return place

    def packed(self, lanes: Any) -> Any:
        """Return bits of lanes as bits of the numbers that their threads have in the group."""
        found = 0
        for k in range(32):
            if (self.bits >> k) & 1 != 0 and (lanes >> k) & 1 != 0:
                found |= 1 << gpu.popc(self.bits & ((1 << k) - 1))
        return uint32(found)

    def sync(self) -> None:
        """Wait for the threads of the group; what they wrote is visible after it."""
        gpu.syncwarp(self.bits)

    def shfl(self, value: Any, rank: Any) -> Any:
        """Return the value of the thread with a number."""
        return gpu.shfl_sync(self.bits, value, self.lane(rank))

    def shfl_up(self, value: Any, delta: Any) -> Any:
        """Return the value of the thread so many below; the lowest keep their own."""
        rank = self.thread_rank()
        return gpu.shfl_sync(self.bits, value, self.lane(rank - delta if rank >= delta else rank))

    def shfl_down(self, value: Any, delta: Any) -> Any:
        """Return the value of the thread so many above; the highest keep their own."""
        rank = self.thread_rank()
        there = rank + delta
        return gpu.shfl_sync(self.bits, value, self.lane(there if there < self.size() else rank))

    def any(self, predicate: Any) -> Any:
        """Return whether a predicate holds for any thread of the group."""
        return gpu.any_sync(self.bits, predicate)

    def all(self, predicate: Any) -> Any:
        """Return whether a predicate holds for all threads of the group."""
        return gpu.all_sync(self.bits, predicate)

    def ballot(self, predicate: Any) -> Any:
        """Return the threads for which a predicate holds, a bit each, by number."""
        return self.packed(gpu.ballot_sync(self.bits, predicate))

    def match_any(self, value: Any) -> Any:
        """Return the threads that have the same value, a bit each, by number."""
        return self.packed(gpu.match_any_sync(self.bits, value))

    def partition(self, width: Any) -> CoalescedGroup:
        """Return the group of the neighbours by number, `width` of them or what is left."""
        mine = self.thread_rank() // width
        found = 0
        for k in range(32):
            if (self.bits >> k) & 1 != 0 and (
                gpu.popc(self.bits & ((1 << k) - 1)) // width == mine
            ):
                found |= 1 << k
        return CoalescedGroup(uint32(found))

    def reduce(self, value: Any, op: Any) -> Any:
        """Return what a function of two values makes of those of all threads, in each of them."""
        rank = self.thread_rank()
        count = self.size()
        step = 16
        while step > 0:
            other = self.shfl_down(value, step)
            if rank < step and rank + step < count:
                value = op(value, other)
            step //= 2
        return self.shfl(value, 0)

    def inclusive_scan(self, value: Any, op: Any) -> Any:
        """Return what a function of two values makes of this thread's and those below."""
        rank = self.thread_rank()
        step = 1
        while step < 32:
            other = self.shfl_up(value, step)
            if rank >= step:
                value = op(other, value)
            step *= 2
        return value


def this_grid() -> GridGroup:
    """Return the group of all threads of the launch."""
    return GridGroup()


def this_thread_block() -> ThreadBlock:
    """Return the group of the threads of the block."""
    return ThreadBlock()


def coalesced_threads() -> CoalescedGroup:
    """Return the group of the threads of the warp that are here together."""
    return CoalescedGroup(gpu.activemask())


def tiled_partition(group: Any, width: Any) -> Any:
    """Return the part of `width` threads (1 to 32, a power of two) that this thread is in.

    Of a block or a tile it is a `ThreadTile`, of a coalesced group a `CoalescedGroup` of as many
    that follow each other by number.
    """
    return group.partition(width)


def sync(group: Any) -> None:
    """Wait for the threads of a group; what they wrote is visible after it."""
    group.sync()


def reduce(group: Any, value: Any, op: Any) -> Any:
    """Return what a function of two values makes of those of all threads, in each of them.

    `op` is `plus`, `less`, `greater`, `bit_and`, `bit_or`, `bit_xor`, or any function of two values
    for which order and grouping do not matter.
    """
    return group.reduce(value, op)


def plus(a: Any, b: Any) -> Any:
    """Return the sum."""
    return a + b


def inclusive_scan(group: Any, value: Any, op: Any = plus) -> Any:
    """Return what a function of two values makes of this thread's value and of those below it."""
    return group.inclusive_scan(value, op)


def exclusive_scan(group: Any, value: Any, op: Any = plus, first: Any = None) -> Any:
    """Return what a function of two values makes of `first` and the values below this thread's.

    Without `first` that is what it makes of the values alone, and 0 where there is none.
    """
    found = group.shfl_up(group.inclusive_scan(value, op), 1)
    if first is None:
        return found if group.thread_rank() > 0 else 0
    return op(first, found) if group.thread_rank() > 0 else first


def less(a: Any, b: Any) -> Any:
    """Return the smaller value."""
    return min(a, b)


def greater(a: Any, b: Any) -> Any:
    """Return the larger value."""
    return max(a, b)


def bit_and(a: Any, b: Any) -> Any:
    """Return the bits that both have."""
    return a & b


def bit_or(a: Any, b: Any) -> Any:
    """Return the bits that either has."""
    return a | b


def bit_xor(a: Any, b: Any) -> Any:
    """Return the bits that one of both has."""
    return a ^ b
