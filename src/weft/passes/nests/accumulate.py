"""Sums in memory: loops that add to an element become reductions that store it once.

    for i: for k: for j: c[i, j] += a[i, k] * b[k, j]
    ->  for i: for j: { reduce k (s) { ... } s + a*b; load c0 = c[i, j]; store c[i, j] = c0 + s }

That is legal whatever the order of the loops, because nothing else in the nest touches the array
and a reduction may add in any order. What stands between the loops is first moved inside, if it
only names and reads what the nest does not write; and what was stored just before is not read back:

    store c[i, j] = 0; load c0 = c[i, j]; ...; store c[i, j] = c0 + s  ->  store c[i, j] = s
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import (
    SERIAL,
    Assert,
    Axis,
    Body,
    For,
    Kernel,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import Rewriter, walk
from weft.passes.nests.reductions import Update, accumulator, join, merged, recognise

__all__ = ["accumulate"]


def accumulate(kernel: Kernel) -> Kernel:
    """Return the kernel with its sums in memory as reductions."""
    return _Accumulate(kernel).run()


class _Sum(NamedTuple):
    """An innermost body that updates one element: what it reads, computes, and stores."""

    front: tuple[Stmt, ...]
    load: Load
    store: Store
    update: Update


class _Accumulate(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}

    def body(self, body: Body) -> Body:
        made = super().body(body)
        return forwarded(made)

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, For) or stmt.kind != SERIAL:
            return stmt
        stmt = self._perfect(stmt)
        chain = [stmt]
        while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
            chain.append(chain[-1].body[0])
        found = _sum_of(chain[-1].body)
        if found is None:
            return stmt
        used = _needed(found.store.index, found.front)
        if used is None:
            return stmt  # the place is read from memory: nobody knows which elements meet
        reduced = [f for f in chain if f.var not in used]
        rows = [f for f in chain if f.var in used]
        if not reduced or not _apart(rows, reduced):
            return stmt
        body = self._reduction(found, reduced)
        for row in reversed(rows):
            made = For(row.var, row.extent, SERIAL, body)
            self.carry(row, made)
            body = (made,)
        return body

    def _perfect(self, loop: For) -> For:
        """Move what stands before an inner loop into it, if it may be done there again."""
        *front, last = loop.body or (loop,)
        if not front or not isinstance(last, For):
            return loop
        if not all(isinstance(s, Let | Load) for s in front) or _sum_inside(last) is None:
            return loop
        written = {s.memory for s in walk(last.body) if isinstance(s, Store)}
        bound = {v for s in front for v in s.binds()}
        if any(isinstance(s, Load) and s.memory in written for s in front) or (
                bound & ex.free_vars([last.extent])):
            return loop
        inner = For(last.var, last.extent, last.kind, (*front, *last.body))
        self.carry(last, inner)
        made = For(loop.var, loop.extent, loop.kind, (self._perfect(inner),))
        self.carry(loop, made)
        return made

    def _reduction(self, found: _Sum, reduced: list[For]) -> Body:
        axes = tuple(Axis(f.var, f.extent) for f in reduced)
        old = found.load.var
        running = ex.var(self._fresh(f"{old.attr}_sum"), old.dtype)
        reduce = merged(Reduce(axes, (accumulator(running, found.update),), found.front))
        value = join(found.update.kind, old, running)
        stored = found.store.replace(value=value)
        self.carry(reduced[0], reduce)
        self.carry(found.store, stored)
        return (reduce, found.load, stored)

    def _fresh(self, base: str) -> str:
        name, count = base, 0
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        return name


def _sum_inside(loop: For) -> _Sum | None:
    """Return the sum in memory that the loops of a nest do, None if they do something else."""
    body = loop.body
    while isinstance(body[-1] if body else None, For) and all(
            isinstance(s, Let | Load) for s in body[:-1]):
        body = body[-1].bodies()[0]
    return _sum_of(body)


def _sum_of(body: Body) -> _Sum | None:
    if not body or not isinstance(body[-1], Store):
        return None
    *front, store = body
    assert isinstance(store, Store)
    if store.mask is not None or not all(isinstance(s, Let | Load | Reduce) for s in front):
        return None
    touching = [s for s in walk(tuple(front)) if isinstance(s, Load) and s.memory is store.memory]
    if len(touching) != 1 or touching[0] not in front:
        return None
    load = touching[0]
    if load.mask is not None or load.index != store.index:
        return None
    lets = {s.var: s.value for s in front if isinstance(s, Let)}
    value = store.value
    while value in lets:
        value = lets[value]
    update = recognise(value, load.var)
    rest = tuple(s for s in front if s is not load)
    if update is None or load.var in {v for s in walk(rest) for v in ex.free_vars(s.exprs())
                                      if s not in _lets_to(store.value, lets, rest)}:
        return None
    kept = tuple(s for s in rest if s not in _lets_to(store.value, lets, rest))
    return _Sum(kept, load, store, update)


def _lets_to(value: Expr, lets: Mapping[Expr, Expr], body: Body) -> set[Stmt]:
    """Return the statements that do nothing but name the value that is stored."""
    names = set()
    while value in lets:
        names.add(value)
        value = lets[value]
    return {s for s in body if isinstance(s, Let) and s.var in names}


def _needed(index: tuple[Expr, ...], front: Body) -> set[Expr] | None:
    """Return the variables that an index depends on; None if it depends on what is read."""
    bound = {v for s in front for v in s.binds()}
    found = ex.free_vars(index)
    return None if found & bound else found


def _apart(rows: list[For], reduced: list[For]) -> bool:
    """Whether the reduced loops can be the inner ones: no row has an extent that one changes."""
    inner = {f.var for f in reduced}
    if any(inner & ex.free_vars([f.extent]) for f in rows):
        return False
    return not any(inner & ex.free_vars([f.extent]) for f in reduced)


def forwarded(body: Body) -> Body:
    """Return a body in which nothing reads back what was stored just before, or stores it twice."""
    out: list[Stmt] = []
    known: dict[tuple[Memory, tuple[Expr, ...]], Store] = {}
    values: dict[Expr, Expr] = {}
    changed = False
    for given in body:
        stmt = given
        if values and not stmt.bodies():
            stmt = stmt.map_exprs(lambda e: ex.substitute([e], values)[0])
        elif values and any(values.keys() & ex.free_vars(s.exprs()) for s in walk((stmt,))):
            return body  # a nest that uses what is read: leave it as it is
        if isinstance(stmt, Load):
            found = known.get((stmt.memory, stmt.index)) if stmt.mask is None else None
            if found is not None and _is_plain(found.value):
                values[stmt.var] = found.value
                changed = True
                continue
        elif isinstance(stmt, Store):
            before = known.get((stmt.memory, stmt.index))
            if before is not None and stmt.mask is None and before in out and not any(
                    isinstance(s, Load) and s.memory is stmt.memory
                    for s in walk(tuple(out[out.index(before):]))):
                out.remove(before)
                changed = True
            known = {k: s for k, s in known.items() if k[0] is not stmt.memory}
            if stmt.mask is None:
                known[stmt.memory, stmt.index] = stmt
        elif not isinstance(stmt, Let | Reduce | Assert):
            known.clear()
        out.append(stmt)
    return tuple(out) if changed else body


def _is_plain(e: Expr) -> bool:
    return not e.args
