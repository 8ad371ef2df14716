"""Loops over the threads of a block: what they do between two barriers, as lanes and turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.locks import takes_a_lock
from weft.ir.op import Op, Operation
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    VECTOR,
    Accumulator,
    Assert,
    Axis,
    Body,
    For,
    If,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.passes.departures import marked
from weft.passes.divergence import Divergence
from weft.passes.orient import consecutive
from weft.passes.region import Copy, Region, copies_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.passes.barrier import Nest

__all__ = ["ThreadLoops"]

_NARROW: Final = 4  # lanes for which vectors still pay


class ThreadLoops(Divergence):
    """Writes what threads do between two barriers as loops over them."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.locations, self.names, self.counts = nest.locations, nest.names, nest.counts
        self.bound, self.allocated = nest.bound, nest.allocated
        self.thread = self.fresh("t", self.names)
        self.stays: Memory | None = None  # for each thread whether it has not left

    def placed(self, stmt: Stmt, source: Stmt) -> Stmt:
        """Return a statement at the place of the one that it comes from."""
        if source in self.locations:
            self.locations[stmt] = self.locations[source]
        return stmt

    def joint(self, each: Memory, op: Operation, neutral: Expr, out: list[Stmt]) -> Expr:
        """Return what comes out of the values of all threads."""
        total = ex.var(self.fresh("joint", self.names), each.dtype)
        k, lane = (ex.var(self.fresh(name, self.names), dt.int64) for name in ("k", "lane"))
        one = ex.var(self.fresh("one", self.names), each.dtype)
        lanes = math.gcd(self.count, max(self.lanes, 1))
        axes = (Axis(k, ex.index(self.count // lanes)), Axis(lane, ex.index(lanes), VECTOR))
        sums = Accumulator(total, neutral, ex.binary(op, total, one),
                           ex.binary(op, lhs(total), rhs(total)))
        out.append(Reduce(axes, (sums,), (Load(one, each, (k * lanes + lane,)),)))
        return total

    def index(self) -> Expr:
        """Return the name of the number of the thread in its block."""
        return ex.var(self.thread, dt.int64)

    def _flush(self, pending: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write what stands between two barriers as a loop over the threads."""
        if any(not isinstance(s, Let) or s.var in self.kept for s in pending):
            body: Body = tuple(pending)
            if self.stays is not None:
                left = Store(self.stays, (self.index(),), ex.const(False, dt.bool_))
                body = marked(body, left, self.locations)
            self._threads(list(body), guards, out)
        pending.clear()  # names alone are written where they are used

    def _threads(self, body: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write what the threads of a block do; of a grid that waits, blocks beside each other."""
        if not self.nest.blocks:
            whole = _Part(self.axes, self.count, ex.index(0), {})
            self._of_part(body, guards, out, whole)
            return
        block = ex.var(self.fresh("block", self.names), dt.int64)
        number = self.nest.blocks
        outer, axes = self.axes[:number], self.axes[number:]
        count = math.prod(int(a.extent.attr) for a in axes)
        names = _divided(block, outer)
        inner: list[Stmt] = []
        self._of_part(body, guards, inner, _Part(axes, count, block * count, names))
        blocks = math.prod(int(a.extent.attr) for a in outer)
        out.append(For(block, ex.index(blocks), PARALLEL, tuple(inner)))

    def _of_part(self, body: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt],
                 part: _Part) -> None:  # fmt: skip
        lanes = 1 if not self.nest.warps and takes_a_lock(body) else self.lanes
        while lanes > 1 and lanes // 2 >= part.count:
            lanes //= 2
        inner = int(part.axes[-1].extent.attr) if part.axes else 1
        if lanes > inner >= _NARROW and lanes % inner == 0 and not (
            self.nest.warps or self.nest.short_loops
        ):
            lanes = inner  # a row is read at once; several rows in a vector would be gathered
        if lanes > 1 and inner % lanes == 0:
            self._rows(body, guards, out, inner, lanes, part)
            return
        if lanes < 2:
            t = ex.var(self.fresh(self.thread, self.names), dt.int64)
            turn = self._turn(body, [part.copy(self.index(), t)], guards)
            out.append(For(t, ex.index(part.count), SERIAL, turn))
            return
        chunk, lane = (ex.var(self.fresh(n, self.names), dt.int64) for n in ("chunk", "lane"))
        t = chunk * lanes + lane
        turn = self._turn(body, [part.copy(self.index(), t)], guards)
        if part.count % lanes:
            turn = (If(t.lt(part.count), turn),)
        chunks = ex.index(-(-part.count // lanes))
        out.append(For(chunk, chunks, SERIAL, (For(lane, ex.index(lanes), VECTOR, turn),)))

    def _rows(self, body: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt],
              inner: int, lanes: int, part: _Part) -> None:  # fmt: skip
        """Write the threads of the last axis as lanes, those of the others as rows of them."""
        axes = part.axes
        rows, chunks = part.count // inner, inner // lanes
        copies = 1 if guards or self.nest.warps else copies_of(
            tuple(body), rows if rows > 1 else chunks, self.differs)
        zero = ex.index(0)
        row, chunk = zero, zero
        loops: list[tuple[Expr, int]] = []
        turns = rows // copies if rows > 1 else 1
        if turns > 1:
            row = ex.var(self.fresh("row", self.names), dt.int64)
            loops.append((row, turns))
        turns = chunks if rows > 1 else chunks // copies
        turned: dict[Expr, Expr] = {}
        if turns > 1:
            repeated = None if guards or self.nest.warps else _repeated(body, axes[-1].var, self)
            if repeated is not None:
                again = ex.var(self.fresh(str(repeated.var.attr), self.names), dt.int64)
                turned[repeated.var] = again
                loops.append((again, int(repeated.extent.attr)))
                body = [*body[:-1], *repeated.body]
            chunk = ex.var(self.fresh("chunk", self.names), dt.int64)
            loops.append((chunk, turns))
        lane = ex.var(self.fresh("lane", self.names), dt.int64)
        found = []
        for k in range(copies):
            y = row * copies + k if rows > 1 else zero
            x = chunk * lanes if rows > 1 else (chunk * copies + k) * lanes
            x = x + lane
            names = {axes[-1].var: x, **_divided(y, axes[:-1]), **part.names, **turned}
            t = part.first + (y * inner + x)
            names[self.index()] = t
            found.append(Copy(t, names))
        made: Body = (For(lane, ex.index(lanes), VECTOR, self._turn(body, found, guards)),)
        for var, extent in reversed(loops):
            made = (For(var, ex.index(extent), SERIAL, made),)
        if row is not zero:
            self.nest.rows.add(made[0])
        out.extend(made)

    def _turn(self, body: list[Stmt], copies: list[Copy], guards: tuple[Memory, ...]) -> Body:
        """Return what some threads do between two barriers."""
        inner = Region(self, copies).run(tuple(body))
        for guard in reversed(guards):
            here = ex.var(self.fresh("stays", self.names), dt.bool_)
            inner = (Load(here, guard, (copies[0].index,)), If(here, inner))
        return inner


def _repeated(body: Sequence[Stmt], axis: Expr, block: ThreadLoops) -> For | None:
    """Return the loop of which all threads of a row may make a turn before the next one.

    It is all that they do, keeps nothing from turn to turn, and goes through arrays beside one
    another in each. So each piece of an array is written as a whole: the vectors of a line that
    two of them share would otherwise be written turns apart.
    """
    *lets, loop = body
    if not isinstance(loop, For) or loop.kind != SERIAL or loop.extent.op is not Op.CONST or any(
            not isinstance(s, Let) or s.var in block.kept for s in lets):
        return None
    inside = list(walk(loop.body))
    simple = all(isinstance(s, Let | Load | Store | If | Assert) for s in inside)
    simple = simple and all(v not in block.kept for s in inside for v in s.binds())
    stored = all(s.memory.scope in {"global", "shared"} for s in inside if isinstance(s, Store))
    names = {s.var: s.value for s in walk(block.nest.body) if isinstance(s, Let)}
    beside = all(consecutive(axis, s.index, names) for s in inside
                 if isinstance(s, Load | Store) and s.memory.scope == "global")
    return loop if simple and stored and beside else None


class _Part:
    """Threads that are written as one loop nest: a block, or one of the blocks of a grid.

    Parameters
    ----------
    axes : list of For
        Their axes, which all of them go through.
    count : int
        How many they are.
    first : Expr
        The number of the first one.
    names : dict of Expr to Expr
        What else is the same for them: the indices of the block.
    """

    __slots__ = ("axes", "count", "first", "names")

    def __init__(self, axes: list[For], count: int, first: Expr, names: dict[Expr, Expr]) -> None:
        self.axes, self.count, self.first, self.names = axes, count, first, names

    def copy(self, index: Expr, t: Expr) -> Copy:
        """Return the thread with the number `t` of them; `index` is the name of the number."""
        number = self.first + t
        return Copy(number, {index: number, **_divided(t, self.axes), **self.names})


def _divided(number: Expr, axes: list[For]) -> dict[Expr, Expr]:
    """Return the indices along axes of what has a number, the last axis fastest."""
    names: dict[Expr, Expr] = {}
    for axis in reversed(axes):
        names[axis.var] = number if axis is axes[0] else number % axis.extent
        number = number // axis.extent
    return names
