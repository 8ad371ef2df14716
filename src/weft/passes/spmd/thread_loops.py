"""Loops over the threads of a block: what they do between two barriers, as lanes and turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.analysis.spin_locks import takes_a_lock
from weft.ir.expr import Expr
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
    Prefetch,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.passes.spmd.barrier_region import Copy, Region, copies_of
from weft.passes.spmd.block import ThreadBlock
from weft.passes.spmd.divergence import Divergence
from weft.passes.spmd.early_exit import marked
from weft.passes.spmd.grid_stride_uniform import opened
from weft.passes.spmd.lane_axis import consecutive
from weft.passes.spmd.thread_block_coarsening import CoarsenedBlocks, Stretch

__all__ = ["ThreadLoops"]

_NARROW: Final = 4  # lanes for which vectors still pay


class ThreadLoops(Divergence):
    """Writes what threads do between two barriers as loops over them."""

    def __init__(self, nest: ThreadBlock) -> None:
        super().__init__(nest)
        self.thread = self.fresh("t", self.names)
        self.stays: Memory | None = None  # for each thread whether it has not left
        self.turn: Expr | None = None  # of the loop around, which all blocks run as one turn
        self.ahead: list[tuple[Stretch, Load]] = []  # what they will read in its next one

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
        if self.nest.neighbours is not None:
            self._of_neighbours(self.nest.neighbours, body, guards, out)
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

    def _of_neighbours(self, beside: CoarsenedBlocks, body: list[Stmt], guards: tuple[Memory, ...],
                       out: list[Stmt]) -> None:  # fmt: skip
        """Write what blocks beside each other do, each stretch for those that differ in it."""
        blocks, axes = self.axes[:2], self.axes[2:]
        count = math.prod(int(a.extent.attr) for a in axes)
        kept = self.kept.keys() | self.spilled.keys()
        for stretch in beside.stretches(self.nest.body, axes, body, kept):
            row, column = (
                ex.var(self.fresh(name, self.names), dt.int64) if differs else ex.index(0)
                for name, differs in (("upper", stretch.rows), ("left", stretch.columns)))
            first = (row * blocks[1].extent + column) * count
            part = _Part(axes, count, first, {blocks[0].var: row, blocks[1].var: column})
            inner: list[Stmt] = []
            if stretch.rows and stretch.columns:
                inner.extend(self._fetches(beside, stretch.body, row, column))
            else:
                self.ahead.extend((stretch, s) for s in self._asked(stretch.body))
            self._of_part(list(stretch.body), guards, inner, part)
            for var, here, differs in ((column, beside.here[1], stretch.columns),
                                       (row, beside.here[0], stretch.rows)):
                if differs:
                    inner = [For(var, here, SERIAL, tuple(inner))]
            out.extend(inner)

    def _asked(self, body: Body) -> list[Load]:
        """Return what the threads of a block read of global memory in each turn of a loop.

        Returned is where they will read in the next turn, if that is known from their indices.
        """
        turn = self.turn
        if turn is None:
            return []
        known = {turn, *(axis.var for axis in self.axes)}
        found: list[Load] = []
        for s in walk(body):
            if isinstance(s, Load) and s.memory.scope == "global":
                index = opened(s.index, self.lets)
                free = ex.free_vars(index)
                if turn in free and all(v in known or not self.differs(v) for v in free):
                    found.append(s.replace(index=tuple(ex.substitute(index, {turn: turn + 1}))))
        return found

    def _fetches(self, beside: CoarsenedBlocks, body: Body, row: Expr, column: Expr) -> list[Stmt]:
        """Return what asks for the tiles of the next turn, while blocks work on those of this one.

        Each block asks for its part of what blocks of its row, or of its column, share.
        """
        if not self.ahead or not any(isinstance(s, For) for s in body):
            return []
        blocks, axes = self.axes[:2], self.axes[2:]
        sizes = [int(a.extent.attr) for a in axes]
        beside_another = math.gcd(sizes[-1], self.lanes)  # threads that read one line
        groups = math.prod(sizes) // beside_another
        out: list[Stmt] = []
        for stretch, load in self.ahead:
            number, sharers = (column, beside.here[1]) if stretch.rows else (row, beside.here[0])
            group = ex.var(self.fresh("group", self.names), dt.int64)
            names = _divided((number + group * sharers) * beside_another, axes)
            names |= {blocks[0].var: row, blocks[1].var: column}
            place = tuple(ex.substitute(load.index, names))
            count = (ex.index(groups - 1) - number + sharers) // sharers
            out.append(For(group, count, SERIAL, (Prefetch(load.memory, place),)))
        self.ahead.clear()
        return out

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
            out.append(For(t, ex.index(part.count), self.nest.kind, turn))
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
