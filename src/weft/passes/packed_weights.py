"""Take copies of arrays that stay as they are out of a scheduled kernel, into kernels of their own.

A contraction copies the operand that its tiles read again and again into panels, in the order in
which they read it. Where that operand is the same from call to call (a weight), the copy is too.
This pass finds such copies, lets the kernel read all panels from one more parameter, and returns
the kernel that fills it::

    for j.o: { alloc b.s[n, 32]; for k.s: for j.s: b.s[k.s, j.s] = b[k.s, j.o*32 + j.s]
               ... b.s[k, j] ... }
    ->  for j.o: { ... b.s[j.o, k, j] ... }               (b.s is a parameter now)
    and for j.o: for k.s: for j.s: b.s[j.o, k.s, j.s] = b[k.s, j.o*32 + j.s]

The schedule of the kernel, and with it every bit of its results, is what it was: only who copies,
and when, has changed. Nothing is taken out that computes anything, that varies with more than
loops of constant extents, or that would take much more memory than the array itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, NamedTuple

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Alloc, Body, For, Kernel, Load, Memory, Meta, Prefetch, Stmt, Store
from weft.schedule.analysis.space import constant, scan

__all__ = ["Panel", "take_packed_weights"]

LARGEST: Final = 1.5  # bytes of all panels of an array to its own: what overlaps is kept twice
PARALLEL_BYTES: Final = 1 << 18  # from which on threads fill the panels together


class Panel(Record):
    """Copies that a kernel reads from a parameter of its own.

    Attributes
    ----------
    memory : Memory
        The parameter, behind those that the kernel had.
    source : str
        The parameter that they are copies of.
    kernel : Kernel
        What fills them, scheduled; its parameters are the source and the memory.
    """

    memory: Memory
    source: str
    kernel: Kernel


class _Found(NamedTuple):
    alloc: Alloc
    nest: Stmt
    source: Memory
    loops: tuple[For, ...]  # around it, outermost first, with which the copy varies


def take_packed_weights(
    kernel: Kernel, resident: Collection[str]
) -> tuple[Kernel, tuple[Panel, ...]]:
    """Return a scheduled kernel without copies of these parameters, and what makes the copies.

    Parameters
    ----------
    kernel : Kernel
        Scheduled, at loop level.
    resident : collection of str
        Parameters whose elements are the same at each call. It must not write to them.
    """
    found = _fitting(_copies(kernel, resident))
    if not found:
        return kernel, ()
    panels: list[Panel] = []
    moved: dict[Memory, tuple[Memory, tuple[Expr, ...]]] = {}
    gone: set[Stmt] = set()
    for copy in found:
        old = copy.alloc.memory
        shape = (*(loop.extent for loop in copy.loops), *old.shape)
        new = old.replace(shape=shape, scope="global")
        moved[old] = new, tuple(loop.var for loop in copy.loops)
        gone |= {copy.alloc, copy.nest}
        panels.append(Panel(new, copy.source.name, _filling(kernel, copy, new)))

    sources = {copy.source for copy in found}

    class Redirect(traverse.Rewriter):
        def stmt(self, stmt: Stmt) -> Stmt | Body:
            return () if stmt in gone else super().stmt(stmt)

        def visit(self, stmt: Stmt) -> Stmt | Body:
            if isinstance(stmt, Prefetch) and stmt.memory in sources:
                return ()  # panels are read in order, which processors fetch ahead by themselves
            if isinstance(stmt, For) and not stmt.body:
                return ()
            if isinstance(stmt, Load) and stmt.memory in moved:
                memory, before = moved[stmt.memory]
                return stmt.replace(memory=memory, index=(*before, *stmt.index))
            return stmt

    made = Redirect(kernel).run()
    return made.replace(params=(*kernel.params, *(p.memory for p in panels))), tuple(panels)


def _copies(kernel: Kernel, resident: Collection[str]) -> list[_Found]:
    """Return arrays that are filled, once and by nothing else, from one of these parameters."""
    params = {m for m in kernel.params if m.name in resident}
    params -= set(traverse.stores(kernel.body))
    writers: dict[Memory, int] = {}
    others: set[Memory] = set()  # what something else than loads and stores works on
    for stmt in traverse.walk(kernel.body):
        for memory in stmt.writes():
            writers[memory] = writers.get(memory, 0) + 1
        if not isinstance(stmt, Load | Store | Alloc):
            others.update((*stmt.reads(), *stmt.writes()))
    out: list[_Found] = []
    bodies: list[tuple[Body, tuple[Stmt, ...]]] = [(kernel.body, ())]
    bodies += [(b, (*parents, s)) for s, parents in scan(kernel) for b in s.bodies()]
    for body, around in bodies:
        for at, inner in enumerate(body):
            if not isinstance(inner, Alloc) or inner.memory.scope != "local" or (
                writers.get(inner.memory) != 1 or inner.memory in others
            ):
                continue
            nest = next((s for s in body[at + 1:] if inner.memory in traverse.stores((s,))), None)
            source = None if nest is None else _source(nest, params)
            loops = None if nest is None or source is None else _varies(nest, around)
            if nest is not None and source is not None and loops is not None:
                out.append(_Found(inner, nest, source, loops))
    return out


def _source(nest: Stmt, params: Collection[Memory]) -> Memory | None:
    """Return the parameter of which loops make a copy, and nothing else; None otherwise."""
    loads: list[Load] = []
    stores: list[Store] = []
    for stmt in traverse.walk((nest,)):
        if isinstance(stmt, Load):
            loads.append(stmt)
        elif isinstance(stmt, Store):
            stores.append(stmt)
        elif not isinstance(stmt, For):
            return None
    if len(loads) != 1 or len(stores) != 1 or loads[0].memory not in params:
        return None
    return loads[0].memory if stores[0].value is loads[0].var else None


def _varies(nest: Stmt, parents: tuple[Stmt, ...]) -> tuple[For, ...] | None:
    """Return the loops around that a nest depends on; None if it depends on anything else."""
    bound = {v for s in traverse.walk((nest,)) for v in s.binds()}
    used = {v for s in traverse.walk((nest,)) for e in s.exprs() for v in ex.free_vars([e])}
    if any(ex.variables(s.exprs()) for s in traverse.walk((nest,))):
        return None
    loops = [p for p in parents if isinstance(p, For)]
    outside = used - bound
    if outside - {p.var for p in loops}:
        return None
    # Extents of loops inside may vary as well: their names are free, and found above.
    chosen = tuple(p for p in loops if p.var in outside)
    return chosen if all(constant(p.extent) is not None for p in chosen) else None


def _fitting(copies: list[_Found]) -> list[_Found]:
    """Return the copies that, with those of the same array before, take hardly more than it."""
    taken: dict[Memory, int] = {}
    out: list[_Found] = []
    for copy in copies:
        sizes = [constant(n) for n in (*(p.extent for p in copy.loops), *copy.alloc.memory.shape)]
        whole = constant(copy.source.size)
        if whole is None or None in sizes:
            continue
        total = math.prod(n or 0 for n in sizes)
        before = taken.get(copy.source, 0)
        if total > 0 and before + total <= LARGEST * whole:
            taken[copy.source] = before + total
            out.append(copy)
    return out


def _filling(kernel: Kernel, copy: _Found, memory: Memory) -> Kernel:
    """Return the kernel that makes the copies."""
    before = tuple(loop.var for loop in copy.loops)

    class Redirect(traverse.Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, Store):
                return stmt.replace(memory=memory, index=(*before, *stmt.index))
            return stmt

    nest = Redirect(kernel).body((copy.nest,))
    nbytes = (constant(memory.size) or 0) * memory.dtype.itemsize
    # The loop that is shared out is the longest: rows of panels, whatever lies outside of it.
    longest = max(copy.loops, key=lambda p: constant(p.extent) or 0, default=None)
    order = [p for p in copy.loops if p is not longest]
    for loop in reversed(order):
        nest = (For(loop.var, loop.extent, st.SERIAL, nest),)
    if longest is not None:
        kind = st.PARALLEL if nbytes >= PARALLEL_BYTES else st.SERIAL
        nest = (For(longest.var, longest.extent, kind, nest),)
    why = f"{copy.source.name} copied into panels, once for all calls"
    meta = Meta(kind="panels", traffic=2 * nbytes, hints=(("why", why),))
    return Kernel("panels", (copy.source, memory), nest, meta)

