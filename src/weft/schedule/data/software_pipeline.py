"""The primitive that copies the next panel of an operand while the present one is used."""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import SERIAL, Alloc, Body, For, Kernel, Load, Memory, Prefetch, Stmt, Store
from weft.ir.traverse import Rewriter, stores, walk
from weft.schedule.analysis.space import Edit, constant, find_for
from weft.schedule.analysis.subscripts import bound_inside
from weft.schedule.data.requests import Request, Rows, deal

BUFFERS: Final = 2  # one is read while the other is filled


def software_pipeline(kernel: Kernel, memory: str, loop: str, ahead: str, distance: int = 8,
                      read: str = "", first: str = "", around: str = "") -> Kernel:  # fmt: skip
    """Copy the next panel a row at a time between runs of steps ("software pipelining" in TVM).

    for j: { alloc t[m, 32]; for r in m: for c in 32: t[r, c] = a[r, j*32 + c]
             for i in n: for k in m: ... t[k, c] ... }
    ->  alloc t[2, m, 32]; for r in m: for c in 32: t[0, r, c] = a[r, c]
        for j: for i in n: for k.o in m/f:
            { prefetch a[i * (m/f) + k.o + distance, (j+1)*32]
              for c in 32: t[(j+1) % 2, i * (m/f) + k.o, c] = a[i * (m/f) + k.o, (j+1)*32 + c]
              for k.i in f: ... t[j % 2, k, c] ... }
    (loop = k, ahead = j, read = r, first = i; f = n, for as many rows as steps)

    Where operands come from memory, neither the copy nor its lines are waited for: loads and stores
    take the places that products leave free. The last panel is followed by itself.

    Parameters
    ----------
    memory, loop, ahead, read, first, around : str
        As for a `prefetch` of each ``row``, but that `read` fills an array right inside of `ahead`,
        a row in each of its iterations, and all loops up to `loop` have constant lengths.
    distance : int
        Rows that are asked for before they are copied; none if 0.

    Raises
    ------
    ScheduleError
        If the loops do not nest like this, `around` directly around `ahead`, are not in order, or
        write the memory.
    """
    what = f"software_pipeline({memory}, {loop}, {ahead}, {distance})"
    rows = deal(Request(kernel, what, memory, loop, ahead, 1, read, first, around))
    return _Pipeline(rows, what, read, ahead, around, distance).apply()


class _Pipeline:
    """One panel that is copied ahead."""

    def __init__(self, rows: Rows, what: str, copy: str, ahead: str, around: str,
                 distance: int) -> None:
        self.rows, self.what, self.distance = rows, what, distance
        self.edit = Edit(rows.kernel)
        self.inner = find_for(rows.kernel, ahead, what)
        self.outer = find_for(rows.kernel, around, what) if around else self.inner
        self.copy = find_for(rows.kernel, copy, what).loop
        self.alloc = self._array()
        old = self.alloc.memory
        self.buffers = Memory(self.edit.names.fresh(f"{old.name}.2"), old.dtype,
                              (ex.index(BUFFERS), *old.shape), old.scope)
        self.count = constant(self.inner.extent) or 0
        self.total = self.count * (constant(self.outer.extent) or 0 if around else 1)
        self.panel: Expr = self.inner.var  # number of the present panel
        if around:
            self.panel = self.outer.var * self.count + self.inner.var
        self._check()

    def _array(self) -> Alloc:
        """Return the allocation of the array that the copy fills."""
        filled = {s.memory for s in walk(self.copy.body) if isinstance(s, Store)}
        found = [s for s in self.inner.body if isinstance(s, Alloc) and s.memory in filled]
        if len(found) != 1 or len(filled) != 1 or not any(
                s is self.copy for s in self.inner.body):
            raise ScheduleError(self.what, found=f"{len(found)} arrays that the copy fills",
                                expected="one, allocated where the copy stands")
        return found[0]

    def _check(self) -> None:
        rows, old = self.rows, self.alloc.memory
        parents: list[Stmt] = [*rows.head.parents, rows.head.stmt]
        begin = next((n for n, p in enumerate(parents) if p is self.outer.stmt), None)
        loops = parents[begin:] if begin is not None else []
        if not loops or not all(isinstance(p, For) and p.kind == SERIAL for p in loops):
            raise ScheduleError(self.what, found="other statements, or shared loops, between",
                                expected="loops in order")
        if self.outer is not self.inner and loops[1] is not self.inner.stmt:
            raise ScheduleError(self.what, found="loops between, in which panels come again",
                                expected=f"{self.inner.var.attr} right inside "
                                         f"{self.outer.var.attr}")
        lengths = [constant(p.extent) for p in [*loops, self.copy] if isinstance(p, For)]
        if not all(lengths) or list(rows.along) != [self.copy.var]:
            raise ScheduleError(self.what, found="loops whose lengths vary, or rows in parts",
                                expected="constant lengths, and a row in an iteration of the copy")
        if rows.load.memory in stores(self.outer.body) or any(
                isinstance(s, Store) and s.memory is old for s in walk(self._others())):
            raise ScheduleError(self.what, found=f"stores to {rows.load.memory.name}",
                                expected="a memory that is only read there")
        names = bound_inside(self.outer.body) - bound_inside(self.copy.body)
        used = {v for s in walk((self.copy,)) for e in s.exprs() for v in ex.free_vars([e])}
        if (used & names) - {self.copy.var, self.inner.var}:
            raise ScheduleError(self.what, found="a copy that varies with other loops",
                                expected=f"{self.inner.var.attr} alone")

    def _others(self) -> Body:
        return tuple([s for s in self.inner.body if s is not self.copy])

    def _place(self, panel: Expr) -> dict[Expr, Expr]:
        """Return where the loops stand for a panel."""
        if self.outer is self.inner:
            return {self.inner.var: panel}
        return {self.inner.var: panel % self.count, self.outer.var: panel // self.count}

    def _filling(self, body: Body, places: dict[Expr, Expr], buffer: Expr, suffix: str) -> Body:
        """Return statements of the copy for another place and one of the buffers."""
        old, new, edit = self.alloc.memory, self.buffers, self.edit

        class Redirect(Rewriter):
            def visit(self, stmt: Stmt) -> Stmt:
                if isinstance(stmt, Store) and stmt.memory is old:
                    return stmt.replace(memory=new, index=(buffer, *stmt.index))
                return stmt

        rewriter = Redirect(edit.kernel)
        rewriter.locations = edit.locations
        return rewriter.body(edit.duplicate(body, places, suffix))

    def _hints(self) -> Body:
        """Return what asks for the lines of a row to come."""
        rows, length = self.rows, constant(self.copy.extent)
        if not self.distance or not length:
            return ()
        reached = rows.row + self.distance
        places = self._place(self.panel + 1 + reached // length)
        places[self.copy.var] = reached % length
        hints = [Prefetch(rows.load.memory, tuple(ex.substitute(rows.load.index, places | line)))
                 for line in rows.lines]
        self.edit.locate(rows.load, *hints)
        return tuple(hints)

    def apply(self) -> Kernel:
        """Return the kernel with the copy in two buffers."""
        old, new, copied, head = self.alloc.memory, self.buffers, self.copy.var, self.rows.head.var
        following = ex.minimum(self.panel + 1, ex.index(self.total - 1))
        places = {**self._place(following), copied: self.rows.row}
        here = self.panel % BUFFERS
        row = self._filling(self.copy.body, places, (self.panel + 1) % BUFFERS, ".n")
        hints = self._hints()
        first = self._filling((self.copy,), self._place(ex.index(0)), ex.index(0), ".f")

        class Turn(Rewriter):
            def visit(self, stmt: Stmt) -> Stmt | Body:
                if isinstance(stmt, Load) and stmt.memory is old:
                    return stmt.replace(memory=new, index=(here, *stmt.index))
                if isinstance(stmt, Alloc) and stmt.memory is old:
                    return ()
                if isinstance(stmt, For) and stmt.var is copied:
                    return ()
                if isinstance(stmt, For) and stmt.var is head:
                    return stmt.with_bodies((*hints, *row, *stmt.body))
                return stmt

        rewriter = Turn(self.edit.kernel)
        rewriter.locations = self.edit.locations
        turned = rewriter.body((self.outer.stmt,))
        alloc = self.alloc.replace(memory=new)
        return self.edit.replace(self.outer.parents, self.outer.stmt, (alloc, *first, *turned))
