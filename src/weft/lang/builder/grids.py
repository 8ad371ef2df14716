"""Programs as launches: parallel loops as grids of threads, reductions as loops.

A parallel loop stays a loop where the strategies can prove that its turns are independent, and can
make vectors of them. Else it becomes a grid: each turn is a thread, as in a kernel that was written
for threads, so that every device runs it by what it has for those. The interpreter device and the
sanitiser always take grids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import (
    LEFT,
    SERIAL,
    Accumulator,
    Alloc,
    Atomic,
    Block,
    Body,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import Rewriter, map_exprs, walk
from weft.schedule.analysis.subscripts import Space
from weft.schedule.loops import loops
from weft.strategies.common.nest import strides

__all__ = ["Launch", "launches", "specialised", "without_marks", "without_reductions"]

_THREADS: Final = 256  # of a block that a parallel loop is cut into

Triple = tuple[Expr, Expr, Expr]


class Launch(Record):
    """One launch of a program.

    Attributes
    ----------
    kernel : Kernel
        What is launched.
    blocks : tuple of Expr
        How many blocks along x, y, z, from the sizes of the arguments; empty for no threads.
    threads : int
        Threads of a block.
    """

    kernel: Kernel
    blocks: tuple[Expr, ...] = ()
    threads: int = 1


def launches(kernel: Kernel, parallel: Sequence[tuple[Expr, ...]], always: bool) -> list[Launch]:
    """Return a function as launches that follow each other.

    Parameters
    ----------
    kernel
        The function.
    parallel
        Variables of its parallel loops, nest by nest.
    always
        Whether every parallel nest becomes a grid, not only what strategies cannot deal with.
    """
    nests = {axes[0]: axes for axes in parallel}
    chosen = {s for s in kernel.body if isinstance(s, For) and s.var in nests
              and (always or _needs_threads(kernel, s, nests[s.var][-1]))}
    if not chosen:
        return [Launch(kernel)]
    parts: list[list[Stmt]] = []
    for s in kernel.body:
        if s in chosen:
            parts.extend(([s], []))
        elif parts:
            parts[-1].append(s)
        else:
            parts.append([s])
    found: list[Launch] = []
    before: list[Stmt] = []
    for part in parts:
        needed = _needed(kernel, before, part)
        if needed is None:
            return [Launch(kernel)]
        before.extend(part)
        if part and part[0] in chosen:
            nest = part[0]
            assert isinstance(nest, For)
            made = _grid(kernel, needed, nest, nests[nest.var])
            if made is None:
                return [Launch(kernel)]
            found.append(made)
        elif any(_acts(s) for s in walk(tuple(part))):
            found.append(Launch(_part(kernel, (*needed, *part))))
    return found


def _acts(s: Stmt) -> bool:
    return not isinstance(s, Let | Load | Alloc)


def _part(kernel: Kernel, body: Body) -> Kernel:
    return kernel.replace(body=body)


def _needs_threads(kernel: Kernel, nest: For, inner: Expr) -> bool:
    """Whether the turns of a nest must be taken to be independent, or are no plain code.

    Strategies make no vectors of turns that read here and there; lanes of threads gather.
    """
    if loops.vector_obstacle((nest,)) is not None or any(
        isinstance(s, If) for s in walk(nest.body)
    ):
        return True
    try:
        loops.parallel(kernel, str(nest.var.attr))
    except ScheduleError:
        return True
    found = strides(Space(kernel), nest.body, inner)
    return any(step is None and not access.write for access, step in found)


def _needed(kernel: Kernel, before: Sequence[Stmt], part: Sequence[Stmt]) -> list[Stmt] | None:
    """Return the statements of other parts that one needs again; None if they must not be."""
    written = {s.memory for s in walk(kernel.body) if isinstance(s, Store | Atomic)}
    homes = {s.memory for s in before if isinstance(s, Alloc)}
    makers = {v: s for s in before for v in s.binds()}
    wanted = _names(part)
    if homes & _memories(part):
        return None
    kept: list[Stmt] = []
    for s in reversed(before):
        if wanted.isdisjoint(s.binds()):
            continue
        if not isinstance(s, Let) and not (isinstance(s, Load) and s.memory not in written):
            return None
        wanted |= set(ex.free_vars(s.exprs())) & makers.keys()
        kept.append(s)
    return kept[::-1]


def _names(part: Iterable[Stmt]) -> set[Expr]:
    return {v for s in walk(tuple(part)) for v in ex.free_vars(s.exprs())}


def _memories(part: Iterable[Stmt]) -> set[Memory]:
    return {s.memory for s in walk(tuple(part)) if isinstance(s, Load | Store | Atomic)}


def _grid(kernel: Kernel, before: Sequence[Stmt], nest: For,
          axes: tuple[Expr, ...]) -> Launch | None:  # fmt: skip
    """Return a nest of parallel loops as a grid; None if its size is not known before it runs."""
    values = {s.var: s.value for s in before if isinstance(s, Let)}
    for var in list(values):
        values[var] = ex.substitute([values[var]], values)[0]
    extents: list[Expr] = []
    body: Body = (nest,)
    for var in axes:
        (loop,) = body
        assert isinstance(loop, For)
        assert loop.var is var
        extent = ex.substitute([loop.extent], values)[0]
        if ex.free_vars([extent]):
            return None
        extents.append(extent)
        body = loop.body
    *outer, last = extents
    locations = dict(kernel.locations)
    place = locations.get(nest)
    made: list[Stmt] = []
    bx, tx = ex.var("block.x", dt.int64), ex.var("thread.x", dt.int64)
    by = ex.var("block.y", dt.int64)
    rows = ex.index(1)
    for var, extent in zip(reversed(axes[:-1]), reversed(outer), strict=True):
        row = by if ex.is_const(rows, 1) else by // rows
        made.append(Let(var, row if var is axes[0] else row % extent))
        rows = rows * extent
    column = bx * _THREADS + tx
    made.append(Let(axes[-1], column))
    made.append(If(column.lt(last), body))
    inner = For(tx, ex.index(_THREADS), "thread.x", (*before, *made))
    blocks = (last + (_THREADS - 1)) // _THREADS
    whole = For(bx, blocks, "block.x", (inner,))
    if outer:
        whole = For(by, rows, "block.y", (whole,))
    if place is not None:
        for s in walk((whole,)):
            locations.setdefault(s, place)
    meta = kernel.meta.replace(kind="custom")
    return Launch(kernel.replace(body=(whole,), locations=locations, meta=meta),
                  (blocks, rows, ex.index(1)), _THREADS)


class _Plain(Rewriter):
    """Writes reductions as loops that add up in a register."""

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Reduce):
            return stmt
        cells: list[Stmt] = []
        results: list[Stmt] = []
        reads: list[tuple[Accumulator, Memory, Expr]] = []
        for a in stmt.accumulators:
            cell = Memory(f"{a.var.attr}.sum", a.var.dtype, (), "register")
            cells.extend((Alloc(cell), Store(cell, (), a.init)))
            inner = ex.var(f"{a.var.attr}.so_far", a.var.dtype)
            reads.append((a, cell, inner))
            results.append(Load(a.var, cell, ()))
        names = {a.var: inner for a, _, inner in reads}
        body: Body = (
            *stmt.body, *(Load(inner, cell, ()) for _, cell, inner in reads),
            *(Store(cell, (), ex.substitute([a.update], names)[0]) for a, cell, _ in reads))
        for axis in reversed(stmt.axes):
            body = (For(axis.var, axis.extent, SERIAL, body),)
        made = (*cells, *body, *results)
        place = self.locations.get(stmt)
        if place is not None:
            for s in walk(made):
                self.locations.setdefault(s, place)
        return made


def without_reductions(kernel: Kernel) -> Kernel:
    """Return a kernel whose reductions are loops, in the order in which they are written."""
    return _Plain(kernel).run()


class _Unmarked(Rewriter):
    def visit(self, stmt: Stmt) -> Stmt | Body:
        return () if isinstance(stmt, Block) and stmt.name == LEFT else stmt


def without_marks(kernel: Kernel) -> Kernel:
    """Return a kernel that does not say where threads leave it."""
    return _Unmarked(kernel).run()


def specialised(kernel: Kernel, values: dict[Expr, Expr]) -> Kernel:
    """Return a kernel with values in place of some names."""
    return map_exprs(kernel, lambda e: ex.substitute([e], values)[0])
