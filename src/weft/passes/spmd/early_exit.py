"""Threads that leave a kernel while others go on, and those go on to wait for each other.

Where threads leave is marked (`weft.ir.stmt.LEFT`). Most kernels have no use for the marks: what
follows an early return is the rest of the kernel, in the other branch of a condition. If threads
leave from inside of a loop with barriers, the marks tell who is still there.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.analysis.registers import is_register
from weft.ir.expr import Expr
from weft.ir.stmt import (
    LEFT,
    Barrier,
    Block,
    Body,
    Collective,
    If,
    Let,
    Load,
    Location,
    Memory,
    Stmt,
    Store,
)
from weft.ir.traverse import walk
from weft.passes.spmd.control_flow import always_leaves, leaves

__all__ = ["exits_early", "marked", "may_exit_early", "prepared", "without_early_exits"]


def exits_early(body: Body, differs: Callable[[Expr], bool]) -> bool:
    """Return whether threads leave where those that stay wait for each other later on.

    Not if what they leave by is a condition that closes the body, or if all leave together.

    Parameters
    ----------
    body : tuple of Stmt
        What a thread does.
    differs : callable
        Whether a condition may differ between the threads of a block.
    """
    stack = [(body, True)]
    while stack:
        part, last = stack.pop()
        for position, s in enumerate(part):
            if not leaves((s,)) or _is_mark(s):
                continue
            if not _waits(s):
                later = [t for t in part[position + 1:] if _waits(t)]
                closes = last and later == [part[-1]] and isinstance(part[-1], If)
                if not closes and (later or not last):
                    return True
                continue
            if not isinstance(s, If):
                stack.extend((inner, False) for inner in s.bodies())
                continue
            final = last and position == len(part) - 1
            inside = [one for one in s.bodies() if any(map(_waits, one))]
            if not differs(s.condition):
                stack.extend((inner, final) for inner in s.bodies())
            elif final and len(inside) == 1:
                stack.append((inside[0], True))
            else:
                return True
    return False


def may_exit_early(body: Body) -> bool:
    """Return whether the marks of a body may be needed, whatever differs between threads."""
    return leaves(body) and any(map(_waits, body)) and exits_early(body, lambda _: True)


def without_early_exits(body: Body, locations: dict[Stmt, Location]) -> Body:
    """Return a body without its marks, as it would be had none been written."""
    out: list[Stmt] = []
    for s in body:
        if _is_mark(s):
            continue
        if leaves((s,)):
            inner = [without_early_exits(part, locations) for part in s.bodies()]
            if isinstance(s, If) and not any(inner):
                continue
            s = _placed(s.with_bodies(*inner), s, locations)
        out.append(s)
    return tuple(out)


def prepared(body: Body, locations: dict[Stmt, Location]) -> Body:
    """Return a body in which those who stay need not ask whether they have left.

    Who waits at a barrier has not left. So a flag that is set on leaving only is not set for
    anybody between what has barriers, and what a thread keeps in registers just before it leaves
    is for nobody. Without both, what ends a loop is as uniform as if nobody left.
    """
    flags = _flags(body)

    def level(part: Body) -> Body:
        out: list[Stmt] = []
        for s in part:
            new = s
            if isinstance(s, Load) and s.memory in flags:
                new = Let(s.var, ex.const(False, dt.bool_))
            elif _waits(s) and s.bodies():
                inner = []
                for one in s.bodies():
                    if not isinstance(s, If) or any(map(_waits, one)):
                        inner.append(level(one))
                    else:
                        inner.append(_without_last_stores(one, locations))
                new = s.with_bodies(*inner)
            out.append(_placed(new, s, locations))
        return tuple(out)

    return level(body)


def marked(body: Body, mark: Stmt, locations: dict[Stmt, Location]) -> Body:
    """Return a body that says by a statement where threads leave."""
    if not leaves(body):
        return body
    return tuple(
        mark if _is_mark(s) else _placed(s.with_bodies(
            *(marked(part, mark, locations) for part in s.bodies())), s, locations)
        if leaves((s,)) else s for s in body)


def _without_last_stores(body: Body, locations: dict[Stmt, Location]) -> Body:
    """Return a body that threads leave from, without what they store for themselves before that."""
    if not always_leaves(body):
        return body
    last = body[-1]
    if isinstance(last, If):
        inner = [_without_last_stores(part, locations) for part in last.bodies()]
        return (*body[:-1], _placed(last.with_bodies(*inner), last, locations))
    end = len(body) - 1
    while end and _is_own(body[end - 1]):
        end -= 1
    return (*body[:end], last)


def _flags(body: Body) -> set[Memory]:
    """Return the registers that only threads set which leave at once."""
    found: set[Memory] = set()
    other: set[Memory] = set()
    stack = [body]
    while stack:
        part = stack.pop()
        left = False  # whether all that follows is for nobody
        for s in reversed(part):
            left = _is_mark(s) or (left and _is_own(s))
            if isinstance(s, Store) and is_register(s.memory):
                if s.memory.dtype.is_bool and (left or ex.is_const(s.value, False)):
                    found.add(s.memory)
                else:
                    other.add(s.memory)
            stack.extend(s.bodies())
    return found - other


def _is_own(s: Stmt) -> bool:
    return isinstance(s, Store) and is_register(s.memory)


def _waits(s: Stmt) -> bool:
    """Whether threads of a block, or of the grid, wait for each other in a statement."""
    return any(isinstance(t, Barrier | Collective) and t.scope != "warp" for t in walk((s,)))


def _is_mark(s: Stmt) -> bool:
    return isinstance(s, Block) and s.name == LEFT


def _placed(new: Stmt, old: Stmt, locations: dict[Stmt, Location]) -> Stmt:
    if new is not old and old in locations:
        locations[new] = locations[old]
    return new
