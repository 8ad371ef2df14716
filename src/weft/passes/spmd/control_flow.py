"""What statements do with the threads that reach them: who waits, who leaves, what is read."""

from __future__ import annotations

from weft.ir.stmt import (
    LEFT,
    Barrier,
    Block,
    Body,
    Collective,
    If,
    Memory,
    Stmt,
)
from weft.ir.traverse import walk

__all__ = ["always_leaves", "has_barrier", "leaves", "memories_read"]


def has_barrier(s: Stmt) -> bool:
    """Whether a statement is, or holds, a barrier of the block."""
    return any(isinstance(inner, Barrier | Collective) and inner.scope == "block"
               for inner in walk((s,)))


def leaves(body: Body) -> bool:
    """Whether a body says where threads leave the kernel."""
    return any(isinstance(s, Block) and s.name == LEFT for s in walk(body))


def always_leaves(body: Body) -> bool:
    """Whether all threads leave the kernel at the end of a body."""
    while body:
        last = body[-1]
        if isinstance(last, Block):
            return last.name == LEFT
        if not isinstance(last, If) or not always_leaves(last.then):
            return False
        body = last.orelse
    return False


def memories_read(s: Stmt) -> set[Memory]:
    """Return what a statement and those inside it read."""
    return {memory for inner in walk((s,)) for memory in inner.reads()}
