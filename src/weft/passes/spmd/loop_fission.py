"""Blocks of threads as loops: for devices that have no threads of that kind.

Before: a kernel with loops over ``block.*`` and ``thread.*``, barriers in them. After: one parallel
loop over the blocks; in it, between any two barriers, a loop over the threads of the block::

    for b in blocks block.x              for b in blocks parallel
      for t in 256 thread.x                for t in 256: A
        A                          ->      for t in 256: B
        barrier
        B

* Loops and conditions around a barrier stay outside of the loops over threads; they must be the
  same for all threads of a block. What makes them so is proved, by following values from the sizes
  and indices that threads share; where it cannot be, the threads' values are compared and the
  kernel fails if they differ.
* A condition that closes the body, as an early return makes, may differ: threads that have left
  take no part in later barriers. Where threads leave from inside of a loop, it is kept for each
  whether it is still there (`weft.passes.spmd.early_exit`).
* What a thread keeps over a barrier lies in an array with one element for each thread; what all
  threads share is computed once for the block.
* A block that begins with an early return has a version for the case that nobody leaves, without
  masks and with all that is then the same for all threads.
* Threads make the turns of a loop over the whole grid together, as if it had a barrier.
* Blocks beside each other that fill the same tiles are run as one
  (`weft.passes.spmd.thread_block_coarsening`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    Alloc,
    Atomic,
    Barrier,
    Body,
    Collective,
    For,
    If,
    Kernel,
    Let,
    Load,
    Location,
    Memory,
    Stmt,
    Store,
    While,
)
from weft.ir.tile import MatrixAccess, MatrixMultiply
from weft.ir.traverse import Rewriter, Tally, walk
from weft.passes.spmd.async_copies import copy_at_once
from weft.passes.spmd.block import ThreadBlock
from weft.passes.spmd.control_flow import has_barrier, leaves
from weft.passes.spmd.divergence import MUCH
from weft.passes.spmd.early_exit import exits_early, may_exit_early, prepared, without_early_exits
from weft.passes.spmd.grid import blocks_of_grid, grid_to_block, waits_for_grid
from weft.passes.spmd.grid_stride import count_iterations
from weft.passes.spmd.lane_axis import CLEARLY, lanes_last
from weft.passes.spmd.symbolic_threads import threads_to_blocks
from weft.passes.spmd.thread_block_coarsening import CoarsenedBlocks, Room, coarsened_blocks
from weft.passes.spmd.threads import Threads
from weft.passes.spmd.warp_synchrony import relies_on_lockstep

__all__ = ["blocks_to_loops", "has_threads", "unroll_loops"]

_GROUP: Final = 4  # rows of blocks that are walked side by side
_WIDE: Final = 256  # elements that one row of threads of blocks side by side goes through
_LIGHT: Final = 64  # turns of the loops of a thread that does little
_SHORT: Final = 32  # statements of a loop whose values still fit in registers twice
_VERSIONS: Final = 3  # of a block's code, if it has so many early returns
_APART: Final = ("a barrier of a kernel that waits for its grid, which some threads of the grid "
                 "reach and others do not")
_DIVERGED: Final = "a barrier that some threads of a block reach and others do not"


def has_threads(kernel: Kernel) -> bool:
    """Whether a kernel is written for blocks of threads."""
    return any(isinstance(s, For) and s.kind.startswith(("block.", "thread."))
               for s in walk(kernel.body))


def unroll_loops(kernel: Kernel, most: int) -> Kernel:
    """Return a kernel whose loops of up to `most` turns, known in number, are written out."""

    class Unroll(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            short = isinstance(stmt, For) and stmt.kind == SERIAL and (
                stmt.extent.op is Op.CONST and stmt.extent.attr <= most)
            return stmt.replace(kind=UNROLLED) if short else stmt

    return Unroll(kernel).run() if most > 1 else kernel


def blocks_to_loops(kernel: Kernel, lanes: int = 1, room: Room | None = None,
                    kind: str = SERIAL) -> Kernel:  # fmt: skip
    """Return a kernel without axes of blocks and threads.

    Loops over blocks that stand behind each other run behind each other.

    Parameters
    ----------
    kernel : Kernel
        A kernel with loops over blocks, and in them over threads.
    lanes : int
        Threads that run side by side as the lanes of a vector.
    room : Room, optional
        What blocks that share tiles can have together; without it each block is run alone.
    kind : str
        What loops over threads become: serial, or ``thread.x`` where a device has threads that can
        share a loop, each group the threads of one block.

    Raises
    ------
    VerifyError
        If a loop over threads does not stand alone in its block.
    """
    Tally.passes += 1
    whole = waits_for_grid(kernel.body)
    blocks = blocks_of_grid(kernel) if whole else 0
    kernel = threads_to_blocks(grid_to_block(copy_at_once(kernel)))
    parts: list[Body] = [kernel.body]
    if all(isinstance(s, For) and s.kind.startswith("block.") for s in kernel.body):
        parts = [(s,) for s in kernel.body]  # one launch after another
    done: Body = ()
    while parts:
        names = (*done, *(s for part in parts for s in part))
        kernel = kernel.replace(body=names)  # with all names that are taken
        inner, locations = _without_blocks(kernel, parts.pop(0), lanes, blocks, room, kind)
        kernel = kernel.replace(locations=locations)
        done = (*done, *inner)
    return kernel.replace(body=done)


def _without_blocks(kernel: Kernel, body: Body, lanes: int, blocks: int,
                    room: Room | None, kind: str) -> tuple[Body, dict[Stmt, Location]]:  # fmt: skip
    """Return a part of a kernel as loops, and the places of all statements.

    The first `blocks` axes of threads of a grid that waits are those of its blocks.
    """
    axes: list[For] = []
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("block."):
        axes.append(body[0])
        body = body[0].body
    beside = None if room is None or blocks else coarsened_blocks(kernel, axes, body, room, lanes)
    if room is not None and beside is not None and not relies_on_lockstep(body):
        return _rectangles(beside, axes[:-2], body, lanes, room)
    nest = Nest(kernel, body, lanes, kind)
    nest.diverged = _APART if blocks else _DIVERGED
    nest.blocks = blocks
    inner = nest.run(body)
    if axes:
        inner = _joined(nest, axes, body, inner)
    return inner, nest.locations


def _rectangles(beside: CoarsenedBlocks, axes: Sequence[For], body: Body, lanes: int,
                room: Room) -> tuple[Body, dict[Stmt, Location]]:  # fmt: skip
    """Return the loop over rectangles of blocks that run together; `axes` are those around them."""
    nest = Nest(beside.kernel, beside.body, lanes)
    nest.neighbours, nest.blocks = beside, 2
    nest.names |= beside.names
    index = ex.var(nest.fresh("block", nest.names), dt.int64)
    inner = nest.run(beside.body)
    if beside.everyone is not None:
        beside.names |= nest.names
        single = Nest(beside.kernel, body, lanes)
        single.names, single.memory_names = beside.names, nest.memory_names
        single.bound, single.allocated = nest.bound, nest.allocated
        single.locations, single.counts = nest.locations, nest.counts
        copy = Threads(single).renamed(body)
        inner = (If(beside.everyone, inner, beside.alone(single.run(copy))),)
    return beside.loop(axes, room, index, inner), nest.locations


def _joined(nest: Nest, axes: Sequence[For], source: Body, body: Body) -> Body:
    """Return one parallel loop over the blocks of all axes, the last of them fastest.

    Blocks that go through tiles in a loop usually read the same tiles as their neighbours on both
    of the last axes. So those are walked in groups of few rows, column by column: what a row of
    blocks reads stays in the cache for the group, and what a column reads is used by all its rows.
    """
    index = ex.var(nest.fresh("block", nest.names), dt.int64)
    total, lets = ex.index(1), []
    if len(axes) > 1 and any(isinstance(s, For | While) and has_barrier(s) for s in walk(source)):
        rows, columns = axes[-2:]
        axes = axes[:-2]
        total = columns.extent * rows.extent
        place = index % total if axes else index
        size = columns.extent * _GROUP
        first = place // size * _GROUP
        high = ex.minimum(rows.extent - first, _GROUP)
        lets = [Let(rows.var, first + place % size % high), Let(columns.var, place % size // high)]
    elif len(axes) > 1 and len(body) == 1 and body[0] in nest.rows and (
        _is_light(nest.body)
    ):
        row = body[0]
        assert isinstance(row, For)
        return _side_by_side(nest, axes, row, index)
    elif len(axes) == 1:
        return (For(axes[0].var, axes[0].extent, PARALLEL, body),)
    for axis in reversed(axes):
        place = index if ex.is_const(total, 1) else index // total
        lets.append(Let(axis.var, place if axis is axes[0] else place % axis.extent))
        total = total * axis.extent
    return (For(index, total, PARALLEL, (*lets, *body)),)


def _side_by_side(nest: Nest, axes: Sequence[For], row: For, index: Expr) -> Body:
    """Return the loops over blocks whose threads never wait: row by row of several blocks.

    A block of few threads a row would read a piece of as many rows of a matrix, the next block the
    piece beside it. Blocks that lie side by side are run as one wide block.
    """
    letter = nest.axes[-1].kind[-1]
    wide = _WIDE // int(nest.axes[-1].extent.attr)
    along = next((a for a in axes if a.kind[-1] == letter and wide > 1), None)
    body: Body = (row,)
    lets: list[Stmt] = []
    total = ex.index(1)
    for axis in reversed(axes):
        extent, var = axis.extent, axis.var
        if axis is along:
            part = ex.var(nest.fresh("part", nest.names), dt.int64)
            beside = ex.var(nest.fresh("beside", nest.names), dt.int64)
            count = ex.minimum(extent - part * wide, wide)
            inner = (Let(var, part * wide + beside), *row.body)
            body = (row.replace(body=(For(beside, count, SERIAL, inner),)),)
            extent, var = (extent + (wide - 1)) // wide, part
        place = index if ex.is_const(total, 1) else index // total
        lets.append(Let(var, place if axis is axes[0] else place % extent))
        total = total * extent
    return (For(index, total, PARALLEL, (*lets, *body)),)


def _is_light(body: Body) -> bool:
    """Whether threads do little, so that a grid need not be divided into all of its blocks."""
    turns = 1
    for s in walk(body):
        if isinstance(s, While) or (isinstance(s, For) and s.extent.op is not Op.CONST):
            return False
        if isinstance(s, For):
            turns *= int(s.extent.attr)
    return turns <= _LIGHT


class Nest(ThreadBlock):
    """The code of a block, in versions."""

    def __init__(self, kernel: Kernel, body: Body, lanes: int, kind: str = SERIAL) -> None:
        warps = _has_warps(body) or relies_on_lockstep(body)
        super().__init__(kernel, lanes, warps, _has_short_loops(body), kind)
        self.diverged = _DIVERGED

    def run(self, body: Body) -> Body:
        """Return what a block does."""
        before: list[Stmt] = []
        rest = list(body)
        while rest and isinstance(rest[0], Alloc) and rest[0].memory.scope == "shared":
            alloc = rest.pop(0)
            assert isinstance(alloc, Alloc)
            own = self.shared[alloc.memory] = alloc.memory.replace(scope="local")
            base = None if alloc.base is None else self.shared[alloc.base]
            made = Alloc(own, alloc.align, base)
            if alloc in self.locations:
                self.locations[made] = self.locations[alloc]
            before.append(made)
        body = tuple(rest)
        while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("thread."):
            self.axes.append(body[0])
            body = body[0].body
        if any(isinstance(s, For) and s.kind.startswith("thread.") for s in walk(body)):
            raise VerifyError("barrier", found="a loop over threads beside other statements",
                              expected="one nest of them in each block")
        for axis in self.axes:
            if axis.extent.op is not Op.CONST:
                raise VerifyError("barrier", found=f"{axis.extent!r} threads",
                                  expected="a number that is known when the kernel is compiled")
            self.count *= int(axis.extent.attr)
        body = _without_unread(body, self.locations)
        if leaves(body):
            body = _without_unread(self._with_early_exits(body), self.locations)
        body = count_iterations(body, lambda name: self.fresh(name, self.names),
                           self._turn_cell, self.locations)
        body = _without_unread(body, self.locations)  # what is known by the turn is not kept
        self.body = body
        coalesced = self.hints.get("coalesced")
        if not self.warps and coalesced is not False:
            self.axes = [*self.axes[:self.blocks], *lanes_last(
                self.axes[self.blocks:], body, self.lanes, 1 if coalesced else CLEARLY)]
        return (*before, *self._versions(body, _VERSIONS))

    def _with_early_exits(self, body: Body) -> Body:
        """Return a body that says where threads leave if others wait for each other then."""
        plain = without_early_exits(body, self.locations)
        if not may_exit_early(body):
            return plain
        names, memory_names, counts = set(self.names), set(self.memory_names), dict(self.counts)
        block = Threads(self)
        block.analyse(plain)
        self.names, self.memory_names, self.counts = names, memory_names, counts
        self.exits_early = exits_early(body, block.differs)
        return prepared(body, self.locations) if self.exits_early else plain

    def _turn_cell(self) -> Memory:
        made = Memory(self.fresh("turn", self.memory_names), dt.int64, (), "register")
        self.turns.add(made)
        return made

    def _versions(self, body: Body, more: int) -> Body:
        """Return the code of a block; if it begins with an early return, that for none who leaves.

        Most blocks lose no thread to ``if i >= n: return``. In code for them no access has a mask,
        and what depends on sizes and loop counters only is the same for all threads.
        """
        block = Threads(self)
        block.analyse(body)
        often = more > 1 and block.kept_bytes <= MUCH  # each version has memory of its own
        split = block.early_return(body) if often else None
        if split is None:
            return block.run(body)
        before, condition, going = split
        test, everyone = self._test(before, condition)
        then = self._versions((*before, *going), more - 1)
        orelse = Threads(self)
        copy = orelse.renamed(body)
        orelse.analyse(copy)
        return (*test, If(everyone, then, orelse.run(copy)))

    def _test(self, before: Body, condition: Expr) -> tuple[Body, Expr]:
        """Return statements that find out whether a condition holds for all threads of a block."""
        block = Threads(self)
        here = Memory(self.fresh("stays", self.memory_names), dt.bool_, (ex.index(self.count),),
                      "local")
        value = ex.var(self.fresh("stays", self.names), dt.bool_)
        copy = block.renamed((*before, Let(value, condition)))
        last = copy[-1]
        assert isinstance(last, Let)
        copy = (*copy, Store(here, (block.index(),), last.var))
        block.analyse(copy)
        out = [Alloc(here), *block.run(copy)]
        every = block.joint(here, Op.AND, ex.const(True, dt.bool_), out)
        return tuple(out), every


def _without_unread(body: Body, locations: dict[Stmt, Location]) -> Body:
    """Return a body without registers that nothing uses, and what only goes into such.

    Those are counters of loops, and what is handed from branch to branch up to the end: were it
    left, threads that return early would come back to hand it over.
    """
    used = _used(body)

    def kept(part: Body) -> Body:
        out: list[Stmt] = []
        for s in part:
            if isinstance(s, Alloc | Store) and s.memory.scope == "register" and (
                s.memory not in used
            ):
                continue
            if (isinstance(s, Let) or (isinstance(s, Load) and s.memory.scope == "register")) and (
                s.var not in used
            ):
                continue
            inner = s.bodies()
            made = tuple(map(kept, inner))
            if any(a is not b for a, b in zip(inner, made, strict=True)):
                new = s.with_bodies(*made)
                if s in locations:
                    locations[new] = locations[s]
                s = new
                if isinstance(s, If) and not any(made):
                    continue
            out.append(s)
        return part if len(out) == len(part) and all(map(operator.is_, out, part)) else tuple(out)

    return kept(body)


def _used(body: Body) -> set[Expr | Memory]:
    """Return the names, and the registers, that something which has an effect depends on."""
    needs: dict[Expr | Memory, list[Expr | Memory]] = {}
    todo: list[Expr | Memory] = []
    for s in walk(body):
        found = ex.free_vars(s.exprs())
        if isinstance(s, Let):
            needs.setdefault(s.var, []).extend(found)
        elif isinstance(s, Load) and s.memory.scope == "register":
            needs.setdefault(s.var, []).extend((*found, s.memory))
        elif isinstance(s, Store) and s.memory.scope == "register":
            needs.setdefault(s.memory, []).extend(found)
        else:
            todo.extend(found)
            todo.extend(m for m in s.reads() if m.scope == "register")
    used: set[Expr | Memory] = set()
    while todo:
        one = todo.pop()
        if one not in used:
            used.add(one)
            todo.extend(needs.get(one, ()))
    return used


def _has_short_loops(body: Body) -> bool:
    """Whether threads spend their time in loops whose turns wait for the turn before.

    Such a loop ends where a value says so. With two registers for each value, the processor has
    something to do while it waits.
    """
    loops = [s for s in walk(body) if isinstance(s, While) and not has_barrier(s)]
    return bool(loops) and all(
        sum(1 for _ in walk(s.body)) <= _SHORT
        and not any(isinstance(t, Atomic) for t in walk(s.body)) for s in loops)


def _has_warps(body: Body) -> bool:
    """Whether threads of a warp work together, so that the warp must be one vector."""
    return any(isinstance(s, MatrixAccess | MatrixMultiply)
               or (isinstance(s, Barrier | Collective) and s.scope == "warp") for s in walk(body))
