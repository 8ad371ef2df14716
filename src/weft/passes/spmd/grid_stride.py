"""Loops over a whole grid: ``while i < n: ...; i += gpu.gridsize(1)`` and the like.

In such a loop neighbouring threads work on neighbouring elements, turn by turn. Two things follow:

* A name that grows by the same step in every turn is what it was before the loop, and the number
  of the turn times the step (`count_iterations`). Written like this it is seen to count up with the
  lanes, so accesses are whole vectors and not gathers.
* All threads of a block should make a turn before any makes the next (`goes_through_a_grid`), or
  memory would be read in small pieces that lie far apart.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Alloc,
    Atomic,
    Body,
    Collective,
    For,
    Let,
    Load,
    Location,
    Memory,
    Print,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk

__all__ = ["count_iterations", "goes_through_a_grid"]

def count_iterations(body: Body, fresh_name: Callable[[str], str], turn_cell: Callable[[], Memory],
                locations: dict[Stmt, Location]) -> Body:  # fmt: skip
    """Return a body whose while loops tell what grows by a step in every turn."""

    def rewritten(part: Body) -> Body:
        out: list[Stmt] = []
        for s in part:
            inner = s.bodies()
            made = tuple(map(rewritten, inner))
            if any(a is not b for a, b in zip(inner, made, strict=True)):
                s = _moved(s, s.with_bodies(*made), locations)
            if isinstance(s, While):
                s = _counted(s, out, part, fresh_name, turn_cell, locations)
            out.append(s)
        same = len(out) == len(part) and all(a is b for a, b in zip(out, part, strict=True))
        return part if same else tuple(out)

    return rewritten(body)


def _moved(old: Stmt, new: Stmt, locations: dict[Stmt, Location]) -> Stmt:
    if old in locations:
        locations[new] = locations[old]
    return new


def _counted(loop: While, before: list[Stmt], around: Body, fresh_name: Callable[[str], str],
             turn_cell: Callable[[], Memory],
             locations: dict[Stmt, Location]) -> While:  # fmt: skip
    """Return a loop with what grows written by its turns; what it needs goes to `before`."""
    found: dict[Memory, tuple[Expr, Expr]] = {}
    bound = {v for s in walk((loop,)) for v in s.binds()}
    steps: dict[Memory, Store] = {}
    for s in loop.body:
        if isinstance(s, Store) and s.memory.scope == "register":
            memory = s.memory
            start = _start(memory, before)
            grown = _step(s, loop, memory)
            if start is not None and grown is not None and not (
                ex.free_vars([grown]) & bound
            ) and not ex.is_const(start):
                found[memory], steps[memory] = (start, grown), s
    if not found:
        return loop
    turn = turn_cell()
    k = ex.var(fresh_name("turn"), dt.int64)
    before.extend((Alloc(turn), Store(turn, (), ex.index(0))))

    def known(part: Body) -> Body:
        out: list[Stmt] = []
        for s in part:
            if isinstance(s, Load) and s.memory in found:
                start, grown = found[s.memory]
                s = _moved(s, Let(s.var, start + k * grown), locations)
            elif s.bodies():
                s = _moved(s, s.with_bodies(*map(known, s.bodies())), locations)
            out.append(s)
        return tuple(out)

    head = (Load(k, turn, ()), *known(loop.head))
    body = (*known(loop.body), Store(turn, (), k + 1))
    new = While(head, loop.condition, body, loop.endless)
    _moved(loop, new, locations)
    return new


def _start(memory: Memory, before: list[Stmt]) -> Expr | None:
    """Return what a register holds in front of a loop, if the statements there say so."""
    if memory.dtype is not dt.int64 or memory.shape:
        return None
    for s in reversed(before):
        if isinstance(s, Store) and s.memory is memory:
            return s.value if s.mask is None else None
        if any(isinstance(t, Store | Atomic) and t.memory is memory for t in walk((s,))):
            return None
    return None


def _step(store: Store, loop: While, memory: Memory) -> Expr | None:
    """Return by how much a register grows in a turn of a loop, None if that is not the same."""
    value = store.value
    if value.op is not Op.ADD or store.mask is not None:
        return None
    place = loop.body.index(store)
    behind = walk(loop.body[place + 1:])
    if any(isinstance(s, Load | Store | Atomic) and s.memory is memory for s in behind):
        return None
    others = [s for s in walk((*loop.head, *loop.body)) if isinstance(s, Store | Atomic)
              and s.memory is memory and s is not store]
    if others:
        return None
    old = {s.var for s in (*loop.head, *loop.body[:place])
           if isinstance(s, Load) and s.memory is memory}
    a, b = value.args
    return b if a in old else a if b in old else None


def goes_through_a_grid(loop: Stmt, lets: dict[Expr, Expr], cells: set[Memory]) -> bool:
    """Whether the turns of a loop are as far apart as a grid is wide, in memory that it touches.

    `lets` has the values of the names that are bound around it and in it, `cells` are those that
    count the turns of while loops.
    """
    if not isinstance(loop, For | While):
        return False
    turns = {loop.var} if isinstance(loop, For) else {
        s.var for s in loop.head if isinstance(s, Load) and s.memory in cells}
    if not turns:
        return False
    touches = False
    for s in walk((loop,)):
        if isinstance(s, Collective | Print):
            return False
        if not touches and isinstance(s, Load | Store | Atomic) and s.index and (
            s.memory.scope == "global"
        ):
            touches = any(_is_wide(e, turns, lets) for e in s.index)
    return touches


def _is_wide(index: Expr, turns: set[Expr], lets: dict[Expr, Expr]) -> bool:
    """Whether an index has a turn times something that grows with the grid."""
    for e in ex.toposort([_opened(index, lets)]):
        if e.op is not Op.MUL:
            continue
        for a, b in (e.args, e.args[::-1]):
            if ex.free_vars([a]) & turns and any(
                v.attr.name.startswith("grid.") for v in ex.variables([b])
            ):
                return True
    return False


def _opened(e: Expr, lets: dict[Expr, Expr]) -> Expr:
    """Return an expression with what its names stand for."""
    for _ in range(8):
        opened = ex.substitute([e], lets)[0]
        if opened is e:
            break
        e = opened
    return e
