"""Whether a block may wait for another one, so that the two cannot go in step."""

from __future__ import annotations

from weft.ir.expr import Expr, free_vars
from weft.ir.stmt import Atomic, Body, Kernel, Load, Memory, Stmt, Store, While
from weft.ir.traverse import walk

__all__ = ["waits_for_others"]

_Name = Expr | Memory


def waits_for_others(kernel: Kernel) -> bool:
    """Whether the end of a loop depends on what other blocks may write.

    That is memory of the kernel's arguments that it writes, or counts with atomic operations;
    followed through names, private and shared memory, and conditions under which those are set.
    """
    written = {m for s in walk(kernel.body) for m in s.writes()}
    known: set[_Name] = set()
    while True:
        before = len(known)
        if _follow(kernel.body, written, known):
            return True
        if len(known) == before:
            return False


def _follow(body: Body, written: set[Memory], known: set[_Name]) -> bool:
    """Add what depends on other blocks; return whether a loop does."""
    stack: list[tuple[Stmt, bool]] = [(s, False) for s in reversed(body)]
    while stack:
        s, under = stack.pop()
        depends = not known.isdisjoint(free_vars(s.exprs()))
        if isinstance(s, Load | Atomic) and (s.memory in known or (
            s.memory.scope == "global" and s.memory in written
        )):
            depends = True
        if depends and isinstance(s, While):
            return True
        if isinstance(s, Store | Atomic) and s.memory.scope != "global" and (depends or under):
            known.add(s.memory)
        if depends:
            known.update(s.binds())
        for inner in s.bodies():
            stack.extend((child, under or depends) for child in reversed(inner))
    return False
