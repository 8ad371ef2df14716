"""Which kernels rely on the threads of a warp being in step.

Reductions for GPUs often end with statements of one warp that have no barriers between them: each
reads from shared memory what other threads of the warp wrote in the statement before. Such a warp
must be one vector, whose lanes do each statement together. What is shared memory of one thread
alone, as ``shared[4 * t + k]``, is no meeting.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import (
    Barrier,
    Body,
    Collective,
    For,
    If,
    Let,
    Load,
    Memory,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk
from weft.passes.common.lanes import linear

__all__ = ["relies_on_lockstep"]

_Index = tuple[Expr, ...]


def relies_on_lockstep(body: Body) -> bool:
    """Whether threads read shared elements that others wrote, with no barrier in between."""
    if not any(isinstance(s, Store) and s.memory.scope == "shared" for s in walk(body)):
        return False
    places = _Places(body)
    if _meets(body, places):
        return True
    loops = [s for s in walk(body) if isinstance(s, For | While)]
    return any(_meets((s, s), places) for s in loops)  # the next turn reads what this one wrote


def _meets(body: Body, places: _Places) -> bool:
    written: dict[Memory, set[_Index]] = {}
    before: list[dict[Memory, set[_Index]]] = []  # the branches that are open, outermost first
    for s in _in_order(body):
        if s is None:  # threads may have gone around the barriers of the branch
            for memory, places_before in before.pop().items():
                written[memory] = written.get(memory, set()) | places_before
        elif isinstance(s, If):
            before.append(dict(written))
        elif _is_barrier(s):
            written = {}
        elif isinstance(s, Store):
            if s.memory.scope == "shared" and places.varies(*s.index):
                written[s.memory] = written.get(s.memory, set()) | {s.index}
        elif isinstance(s, Load) and places.varies(*s.index) and any(
            not places.is_own(i, s.index) for i in written.get(s.memory, ())
        ):
            return True
    return False


def _in_order(body: Body) -> Iterator[Stmt | None]:
    """Yield the statements of a body and those inside them, and None where a branch ends."""
    stack: list[Stmt | None] = [*reversed(body)]
    while stack:
        s = stack.pop()
        yield s
        if s is not None:
            if isinstance(s, If):
                stack.append(None)
            stack.extend(inner for part in reversed(s.bodies()) for inner in reversed(part))


def _is_barrier(s: Stmt) -> bool:
    return isinstance(s, Barrier | Collective) and s.scope != "warp"


class _Places:
    """What tells the places of one thread from those of another."""

    def __init__(self, body: Body) -> None:
        self.lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
        self.varying: set[Expr] = set()  # variables in which threads differ
        for s in walk(body):
            of = (s.value,) if isinstance(s, Let) else s.index if isinstance(s, Load) else ()
            if self.varies(*of):
                self.varying.update(s.binds())

    def varies(self, *values: Expr) -> bool:
        """Whether threads may differ in one of the values."""
        return any(_is_thread(v) or v in self.varying for v in ex.free_vars(values))

    def is_own(self, a: _Index, b: _Index) -> bool:
        """Whether two places are of one thread: the same, or closer than those of two threads."""
        pairs = [(linear(i, self.lets), linear(j, self.lets)) for i, j in zip(a, b, strict=True)]
        apart = [(i, j) for i, j in pairs if i != j]
        if not apart:
            return True
        if len(apart) < len(a):  # an axis that tells threads apart may be the same
            return not any(self.varies(*i[0], *j[0]) for i, j in apart)
        (symbols, place), (others, other) = pairs[0]
        steps = [abs(times) for v, times in symbols.items() if self.varies(v)]
        return len(a) == 1 and symbols == others and all(
            abs(place - other) < step for step in steps)


def _is_thread(var: Expr) -> bool:
    return str(var.attr).startswith("thread.")
