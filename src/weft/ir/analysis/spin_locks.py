"""Loops in which a thread waits for a lock that another thread holds.

A lock is taken by an atomic operation that is repeated until it finds what it is to find::

    while compare_and_swap(mutex, 0, 1) != 0: pass

The threads that wait for it cannot be lanes of one vector with the thread that holds it, which has
to leave the loop, and go on to where it gives the lock back, before any of them can leave it.
A loop that tries again with what it has found, as an atomic maximum by `cas` does, waits for
nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.expr import Expr, free_vars
from weft.ir.stmt import Atomic, Memory, Stmt, Store, While
from weft.ir.traverse import walk

__all__ = ["takes_a_lock", "waits_for_lock"]

_PRIVATE = ("local", "register")


def takes_a_lock(body: Iterable[Stmt]) -> bool:
    """Whether a loop in some statements may wait for a lock."""
    return any(isinstance(s, While) and waits_for_lock(s) for s in walk(tuple(body)))


def waits_for_lock(loop: While) -> bool:
    """Whether the end of a loop depends on an atomic operation that each turn does again."""
    inside = tuple(walk((*loop.head, *loop.body)))
    bound = {name for s in inside for name in s.binds()}
    stored = {m for s in inside if isinstance(s, Store) for m in s.writes()}
    known: set[object] = set()
    for s in inside:
        if not isinstance(s, Atomic) or s.kind not in ("cas", "exch") or (
            s.memory.scope in _PRIVATE
        ):
            continue
        if s.compare is not None and _changes(s.compare, inside, bound, stored):
            continue
        known.add(s.var)
    before = -1
    while known and len(known) > before:
        before = len(known)
        for s in inside:
            if known.isdisjoint(free_vars(s.exprs())) and known.isdisjoint(s.reads()):
                continue
            if isinstance(s, Store | Atomic) and s.memory.scope not in _PRIVATE:
                continue
            known.update(s.binds())
            for inner in (s, *walk(tuple(c for part in s.bodies() for c in part))):
                if isinstance(inner, Store) and inner.memory.scope in _PRIVATE:
                    known.add(inner.memory)  # also one that is only reached because of the value
    return not known.isdisjoint(free_vars((loop.condition,)))


def _changes(value: Expr, inside: tuple[Stmt, ...], bound: set[Expr],
             stored: set[Memory]) -> bool:  # fmt: skip
    """Whether a value may differ from turn to turn, as far as names tell."""
    names = list(free_vars((value,)))
    seen: set[Expr] = set()
    while names:
        name = names.pop()
        if name in seen or name not in bound:
            continue
        seen.add(name)
        for s in inside:
            if name not in s.binds():
                continue
            if isinstance(s, Atomic) or not stored.isdisjoint(s.reads()) or any(
                m.scope not in _PRIVATE for m in s.reads()
            ):
                return True
            names.extend(free_vars(s.exprs()))
    return False
