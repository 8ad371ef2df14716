"""Cooperative groups: ``from weft import cg``, with CUDA's names.

They are plain functions and classes that kernels read like those of a user, made of the intrinsics
of `weft.gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.frontend.kernel import gpu as _gpu
from weft.ir import dtype as dt

__all__ = ["GridGroup", "ThreadBlock", "ThreadTile", "this_grid", "this_thread_block",
           "tiled_partition"]

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

    def thread_rank(self) -> Any:
        """Return the number of this thread."""
        return gpu.threadIdx.x + gpu.blockDim.x * (
            gpu.threadIdx.y + gpu.blockDim.y * gpu.threadIdx.z)


@dataclass(frozen=True)
class ThreadTile:
    """Neighbours in a warp, 1 to 32 of them: a power of two."""

    width: int

    def size(self) -> Any:
        """Return how many threads there are."""
        return self.width

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


def this_grid() -> GridGroup:
    """Return the group of all threads of the launch."""
    return GridGroup()


def this_thread_block() -> ThreadBlock:
    """Return the group of the threads of the block."""
    return ThreadBlock()


def tiled_partition(group: Any, width: int) -> ThreadTile:
    """Return the tile of `width` threads that this thread is in."""
    return ThreadTile(width)
