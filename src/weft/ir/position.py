"""Where a thread stands in a launch: numbers to coordinates, and how errors name it."""

from __future__ import annotations

__all__ = ["in_thread", "position", "thread_at"]

Triple = tuple[int, int, int]


def position(number: int, sizes: Triple) -> Triple:
    """Return x, y and z of something that is counted along x first."""
    x, y = number % sizes[0], number // sizes[0] % sizes[1]
    return x, y, number // (sizes[0] * sizes[1])


def thread_at(number: int, blocks: Triple, threads: Triple) -> tuple[Triple, Triple]:
    """Return block and thread of a number in the whole grid."""
    block, inside = divmod(number, threads[0] * threads[1] * threads[2])
    return position(block, blocks), position(inside, threads)


def in_thread(number: int, blocks: Triple, threads: Triple) -> str:
    """Return the end of a message about a thread, by its number in the whole grid."""
    block, thread = thread_at(number, blocks, threads)
    return f" in thread {thread} of block {block}"
