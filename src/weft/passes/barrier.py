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
  take no part in later barriers.
* What a thread keeps over a barrier lies in an array with one element for each thread; what all
  threads share is computed once for the block.
"""

from __future__ import annotations

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
    VECTOR,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Body,
    Call,
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
from weft.ir.traverse import Tally, walk

__all__ = ["blocks_to_loops", "has_threads"]

_PRIVATE: Final = ("local", "register")
_WARP: Final = 32  # threads whose collective operations are those of lanes
_DIVERGED: Final = "a barrier that some threads of a block reach and others do not"


def has_threads(kernel: Kernel) -> bool:
    """Whether a kernel is written for blocks of threads."""
    return any(isinstance(s, For) and s.kind.startswith(("block.", "thread."))
               for s in walk(kernel.body))


def blocks_to_loops(kernel: Kernel, lanes: int = 1) -> Kernel:
    """Return a kernel without axes of blocks and threads.

    Parameters
    ----------
    kernel : Kernel
        A kernel with loops over blocks, and in them over threads.
    lanes : int
        Threads that run side by side as the lanes of a vector.

    Raises
    ------
    VerifyError
        If a loop over threads does not stand alone in its block.
    """
    Tally.passes += 1
    axes: list[For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("block."):
        axes.append(body[0])
        body = body[0].body
    block = _Block(kernel, body, lanes)
    inner = block.run()
    if axes:
        inner = _joined(axes, inner)
    return kernel.replace(body=inner, locations=block.locations)


def _joined(axes: Sequence[For], body: Body) -> Body:
    """Return one parallel loop over the blocks of all axes, the last of them fastest."""
    if len(axes) == 1:
        return (For(axes[0].var, axes[0].extent, PARALLEL, body),)
    index = ex.var("block", dt.int64)
    total, lets = ex.index(1), []
    for axis in reversed(axes):
        place = index if ex.is_const(total, 1) else index // total
        lets.append(Let(axis.var, place if axis is axes[0] else place % axis.extent))
        total = total * axis.extent
    return (For(index, total, PARALLEL, (*lets, *body)),)


class _Block:
    """The body of one block."""

    def __init__(self, kernel: Kernel, body: Body, lanes: int) -> None:
        self.kernel, self.body = kernel, body
        self.lanes = _WARP if _has_warps(body) else lanes
        self.locations: dict[Stmt, Location] = dict(kernel.locations)
        self.axes: list[For] = []
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}
        self.memory_names = {s.memory.name for s in walk(kernel.body) if isinstance(s, Alloc)}
        self.memory_names |= {m.name for m in kernel.params}
        self.counts: dict[str, int] = {}
        self.varying: set[Expr] = set()
        self.uniform_cells: set[Memory] = set()
        self.spilled: dict[Memory, Memory] = {}
        self.kept: dict[Expr, Memory] = {}
        self.values: dict[Expr, Expr] = {}
        self.thread = self.fresh("t", self.names)

    def run(self) -> Body:
        before: list[Stmt] = []
        rest = list(self.body)
        while rest and isinstance(rest[0], Alloc) and rest[0].memory.scope == "shared":
            alloc = rest.pop(0)
            assert isinstance(alloc, Alloc)
            before.append(self.placed(Alloc(alloc.memory.replace(scope="local")), alloc))
            self.spilled[alloc.memory] = alloc.memory.replace(scope="local")
        body = tuple(rest)
        while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("thread."):
            self.axes.append(body[0])
            body = body[0].body
        if any(isinstance(s, For) and s.kind.startswith("thread.") for s in walk(body)):
            raise VerifyError("barrier", found="a loop over threads beside other statements",
                              expected="one nest of them in each block")
        self.count = 1
        for axis in self.axes:
            if axis.extent.op is not Op.CONST:
                raise VerifyError("barrier", found=f"{axis.extent!r} threads",
                                  expected="a number that is known when the kernel is compiled")
            self.count *= int(axis.extent.attr)
        self.varying = {axis.var for axis in self.axes}
        self._find_varying(body)
        self._find_crossing(body)
        out: list[Stmt] = []
        self._split(body, (), out, True)
        arrays = [Alloc(m) for m in (*self.spilled.values(), *self.kept.values())
                  if m.name not in {a.memory.name for a in before if isinstance(a, Alloc)}]
        return (*before, *arrays, *out)

    # --- names

    def fresh(self, base: str, used: set[str]) -> str:
        while base in used:
            self.counts[base] = self.counts.get(base, 0) + 1
            candidate = f"{base}.{self.counts[base]}"
            if candidate not in used:
                base = candidate
        used.add(base)
        return base

    def placed(self, stmt: Stmt, source: Stmt) -> Stmt:
        """Return a statement at the place of the one that it comes from."""
        if source in self.locations:
            self.locations[stmt] = self.locations[source]
        return stmt

    # --- what differs between threads

    def _find_varying(self, body: Body) -> None:
        """Find the names that may differ between threads, and the cells that do not."""
        levels = set(self._levels(body))
        private = {s.memory for s in walk(body) if isinstance(s, Alloc)
                   and s.memory.scope in _PRIVATE}
        inner = {s.memory for s in walk(body)
                 if isinstance(s, Store | Atomic) and s not in levels}
        self.uniform_cells = {m for m in private if m not in inner and not m.shape}
        while True:
            known = len(self.varying), len(self.uniform_cells)
            self._spread(body, False)
            if known == (len(self.varying), len(self.uniform_cells)):
                return

    def _levels(self, body: Body) -> list[Stmt]:
        """Return the statements that no barrier-free loop or condition holds."""
        found: list[Stmt] = []
        stack = [body]
        while stack:
            for s in stack.pop():
                found.append(s)
                if _has_barrier(s):
                    stack.extend(s.bodies())
        return found

    def _spread(self, body: Body, diverges: bool) -> None:
        for s in body:
            if isinstance(s, Let):
                if diverges or self.differs(s.value):
                    self.varying.add(s.var)
            elif isinstance(s, Load):
                if s.memory not in self.uniform_cells or diverges:
                    self.varying.add(s.var)
            elif isinstance(s, Store):
                if s.memory in self.uniform_cells and (diverges or self.differs(s.value)):
                    self.uniform_cells.discard(s.memory)
            elif isinstance(s, Atomic | Call) or (
                isinstance(s, Collective) and s.scope == "warp"
            ):
                self.varying.update(s.binds())
            elif isinstance(s, For):
                apart = diverges or self.differs(s.extent)
                if apart or not _has_barrier(s):
                    self.varying.add(s.var)
                self._spread(s.body, apart)
            elif isinstance(s, While):
                apart = diverges or self.differs(s.condition)
                self._spread(s.head, apart)
                self._spread(s.body, apart)
            else:
                apart = diverges or (isinstance(s, If) and self.differs(s.condition))
                for inner in s.bodies():
                    self._spread(inner, apart)

    def differs(self, e: Expr) -> bool:
        """Whether a value may differ between the threads of a block."""
        return any(v in self.varying for v in ex.free_vars([e]))

    # --- what threads keep over a barrier

    def _find_crossing(self, body: Body) -> None:
        """Find what is made between two barriers and used between others."""
        made: dict[Expr, int] = {}
        homes: dict[Memory, set[int]] = {}
        used: dict[Expr, set[int]] = {}
        pure: dict[Expr, Expr] = {}
        self.region = 0

        def look(part: Body, inside: bool) -> None:
            for s in part:
                if not inside and _has_barrier(s):
                    self.region += 1
                if not isinstance(s, While):
                    note(s.exprs())
                for var in s.binds():
                    made[var] = self.region
                if isinstance(s, Let):
                    pure[s.var] = s.value
                # Where it is made counts, too: a turn of a loop may use what the one before left.
                if isinstance(s, Alloc | Load | Store | Atomic) and s.memory.scope in _PRIVATE:
                    homes.setdefault(s.memory, set()).add(self.region)
                for k, inner in enumerate(s.bodies()):
                    look(inner, inside or not _has_barrier(s))
                    if isinstance(s, While) and k == 0:
                        self.region += not inside and self.differs(s.condition)
                        note(s.exprs())
                    if not inside and _has_barrier(s):
                        self.region += 1

        def note(exprs: tuple[Expr, ...]) -> None:
            for v in ex.free_vars(exprs):
                used.setdefault(v, set()).add(self.region)

        look(body, False)
        for memory, regions in homes.items():
            if len(regions) > 1 and memory not in self.uniform_cells:
                name = self.fresh(memory.name, self.memory_names)
                self.spilled[memory] = Memory(name, memory.dtype,
                                              (ex.index(self.count), *memory.shape), "local")
        crossing = {v for v, regions in used.items() if v in self.varying and v in made
                    and regions - {made[v]}}
        axes = {axis.var for axis in self.axes}
        for v in made:
            if v not in crossing:
                continue
            value = pure.get(v)
            if value is not None and all(
                w in axes or w not in self.varying or w in self.values
                for w in ex.free_vars([value])
            ):
                self.values[v] = ex.substitute([value], self.values)[0]
            else:
                name = self.fresh(f"{v.attr}.kept", self.memory_names)
                self.kept[v] = Memory(name, v.dtype, (ex.index(self.count),), "local")

    # --- splitting

    def _split(self, body: Body, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write a body as loops over threads between its barriers.

        `guards` hold for each thread whether it is still there; `last` tells that nothing follows.
        """
        pending: list[Stmt] = []
        for position, s in enumerate(body):
            if self._is_shared(s) and not guards:
                if isinstance(s, Store):  # what comes before it may read the old value
                    self._flush(pending, guards, out)
                out.append(s)
            elif isinstance(s, Barrier) and _has_barrier(s):
                self._flush(pending, guards, out)
            elif isinstance(s, Collective) and s.scope == "block":
                self._flush(pending, guards, out)
                self._counted(s, guards, out)
            elif _has_barrier(s):
                self._flush(pending, guards, out)
                self._around(s, guards, out, last and position == len(body) - 1)
            else:
                pending.append(s)
        self._flush(pending, guards, out)

    def _is_shared(self, s: Stmt) -> bool:
        """Whether a statement is computed once for the whole block."""
        if isinstance(s, Let):
            return s.var not in self.varying
        if isinstance(s, Load | Store | Alloc):
            return s.memory in self.uniform_cells
        return False

    def _around(self, s: Stmt, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write a loop or condition that has a barrier in it."""
        if isinstance(s, If) and self.differs(s.condition):
            if last and not (any(map(_has_barrier, s.then)) and any(map(_has_barrier, s.orelse))):
                self._leaving(s, guards, out)
                return
            condition = self._agreed(s.condition, s, guards, out)
            s = self.placed(If(condition, s.then, s.orelse), s)
        if isinstance(s, If):
            then: list[Stmt] = []
            orelse: list[Stmt] = []
            self._split(s.then, guards, then, last)
            self._split(s.orelse, guards, orelse, last)
            out.append(self.placed(If(s.condition, tuple(then), tuple(orelse)), s))
        elif isinstance(s, For):
            extent = self._agreed(s.extent, s, guards, out) if self.differs(s.extent) else s.extent
            inner: list[Stmt] = []
            self._split(s.body, guards, inner, False)
            out.append(self.placed(For(s.var, extent, SERIAL, tuple(inner)), s))
        elif isinstance(s, While):
            head: list[Stmt] = []
            inner = []
            self._split(s.head, guards, head, False)
            condition = s.condition
            if self.differs(condition):
                condition = self._agreed(condition, s, guards, head)
            self._split(s.body, guards, inner, False)
            out.append(self.placed(While(tuple(head), condition, tuple(inner)), s))
        else:
            raise VerifyError("barrier", found=f"a barrier in {type(s).__name__}",
                              expected="in a loop or a condition")

    def _counted(self, s: Collective, guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write a barrier that counts the threads for which a predicate holds."""
        holds = Memory(self.fresh("holds", self.memory_names), dt.bool_, (ex.index(self.count),),
                       "local")
        total = Memory(self.fresh("total", self.memory_names), dt.int64, (), "register")
        out.append(Alloc(holds))
        absent = ex.const(s.kind == "all", dt.bool_)  # who has left does not count
        if guards:
            self._threads([Store(holds, (self._index(),), absent)], (), out)
        self._flush([self.placed(Store(holds, (self._index(),), s.args[0]), s)], guards, out)
        out.extend((Alloc(total), Store(total, (), ex.index(0))))
        k, one, old = (ex.var(self.fresh(name, self.names), d) for name, d in (
            ("k", dt.int64), ("one", dt.bool_), ("old", dt.int64)))
        body = (Load(one, holds, (k,)), Load(old, total, ()),
                Store(total, (), old + ex.cast(one, dt.int64)))
        found = ex.var(self.fresh("found", self.names), dt.int64)
        out.append(For(k, ex.index(self.count), SERIAL, body))
        out.append(Load(found, total, ()))
        value = found if s.kind == "count" else (
            found.eq(self.count) if s.kind == "all" else found.ne(0))
        out.append(self.placed(Let(s.var, value), s))

    def _leaving(self, s: If, guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write a last condition: who does not meet it takes no part in what follows."""
        here = Memory(self.fresh("here", self.memory_names), dt.bool_, (ex.index(self.count),),
                      "local")
        out.append(Alloc(here))
        inside = any(map(_has_barrier, s.then))
        condition = s.condition if inside else ex.unary(Op.NOT, s.condition)
        body, other = (s.then, s.orelse) if inside else (s.orelse, s.then)
        first: list[Stmt] = [Store(here, (self._index(),), condition)]
        if other:
            first.append(self.placed(If(ex.unary(Op.NOT, condition), other), s))
        if guards:
            out_of = Store(here, (self._index(),), ex.const(False, dt.bool_))
            self._threads([out_of], (), out)
        self._flush(first, guards, out)
        self._split(body, (here,), out, True)

    def _agreed(self, value: Expr, s: Stmt, guards: tuple[Memory, ...],
                out: list[Stmt]) -> Expr:  # fmt: skip
        """Return a value that all threads must have alike, after comparing them."""
        each = Memory(self.fresh("each", self.memory_names), value.dtype, (ex.index(self.count),),
                      "local")
        out.append(Alloc(each))
        self._flush([self.placed(Store(each, (self._index(),), value), s)], guards, out)
        first = ex.var(self.fresh("first", self.names), value.dtype)
        out.append(Load(first, each, (ex.index(0),)))
        k = ex.var(self.fresh("k", self.names), dt.int64)
        other = ex.var(self.fresh("other", self.names), value.dtype)
        check = self.placed(Assert(other.eq(first), _DIVERGED), s)
        out.append(For(k, ex.index(self.count), SERIAL, (Load(other, each, (k,)), check)))
        return first

    def _index(self) -> Expr:
        return ex.var(self.thread, dt.int64)

    def _flush(self, pending: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write what stands between two barriers as a loop over the threads."""
        if pending:
            self._threads(list(pending), guards, out)
            pending.clear()

    def _threads(self, body: list[Stmt], guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        lanes = self.lanes
        while lanes > 1 and lanes // 2 >= self.count:
            lanes //= 2
        if lanes < 2:
            t = ex.var(self.fresh(self.thread, self.names), dt.int64)
            out.append(For(t, ex.index(self.count), SERIAL, self._turn(body, t, guards)))
            return
        chunk, lane = (ex.var(self.fresh(n, self.names), dt.int64) for n in ("chunk", "lane"))
        t = chunk * lanes + lane
        inner = self._turn(body, t, guards)
        if self.count % lanes:
            inner = (If(t.lt(self.count), inner),)
        chunks = ex.index(-(-self.count // lanes))
        out.append(For(chunk, chunks, SERIAL, (For(lane, ex.index(lanes), VECTOR, inner),)))

    def _turn(self, body: list[Stmt], t: Expr, guards: tuple[Memory, ...]) -> Body:
        """Return what the thread with the number `t` does between two barriers."""
        inner = _Region(self, t).run(tuple(body))
        for guard in reversed(guards):
            here = ex.var(self.fresh("stays", self.names), dt.bool_)
            inner = (Load(here, guard, (t,)), If(here, inner))
        return inner


class _Region:
    """Statements between two barriers, for the thread with the number `t`."""

    def __init__(self, block: _Block, t: Expr) -> None:
        self.block, self.t = block, t
        self.names: dict[Expr, Expr] = {ex.var(block.thread, dt.int64): t}
        rest = t
        for axis in reversed(block.axes):
            last = axis is block.axes[0]
            self.names[axis.var] = rest if last else rest % axis.extent
            rest = rest // axis.extent
        self.made: set[Expr] = set()
        self.cells: dict[Memory, Memory] = {}

    def run(self, body: Body) -> Body:
        """Return the statements with names of their own and what they need of other regions."""
        block = self.block
        for s in walk(body):
            self.made.update(s.binds())
        needed = {v for s in walk(body) for v in ex.free_vars(s.exprs()) if v not in self.made}
        before: list[Stmt] = []
        for v in sorted((v for v in needed if v in block.kept), key=lambda v: str(v.attr)):
            self.names[v] = ex.var(block.fresh(str(v.attr), block.names), v.dtype)
            before.append(Load(self.names[v], block.kept[v], (self.t,)))
        for v in needed:
            if v in block.values:
                self.names[v] = ex.substitute([block.values[v]], self.names)[0]
        after: list[Stmt] = []
        used = {s.memory for s in walk(body) if isinstance(s, Load)}
        written = {s.memory for s in walk(body) if isinstance(s, Store)}
        for cell, home in block.spilled.items():
            if not cell.shape and cell in used | written:
                self._keep_in_register(cell, home, not _sets_first(body, cell), cell in written,
                                       before, after)
        return (*before, *self.body(body), *after)

    def _keep_in_register(self, cell: Memory, home: Memory, fetched: bool, written: bool,
                          before: list[Stmt], after: list[Stmt]) -> None:  # fmt: skip
        """Let a region work on a register, which it fetches first and writes back at its end."""
        block = self.block
        own = cell.replace(name=block.fresh(cell.name, block.memory_names))
        self.cells[cell] = own
        before.append(Alloc(own))
        if fetched:
            value = ex.var(block.fresh("fetched", block.names), cell.dtype)
            before.extend((Load(value, home, (self.t,)), Store(own, (), value)))
        if written:
            value = ex.var(block.fresh("changed", block.names), cell.dtype)
            after.extend((Load(value, own, ()), Store(home, (self.t,), value)))

    def expr(self, e: Expr) -> Expr:
        return ex.substitute([e], self.names)[0]

    def body(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Alloc) and s.memory in self.block.spilled:
                continue  # it stands before the loops over threads
            out.append(self.block.placed(self.stmt(s), s))
            for v in s.binds():
                kept = self.block.kept.get(v)
                if kept is not None:
                    out.append(Store(kept, (self.t,), v))
        return tuple(out)

    def stmt(self, s: Stmt) -> Stmt:
        """Return a statement with the names and memories of this region."""
        bodies = s.bodies()
        if bodies:
            s = self.block.placed(s.with_bodies(*map(self.body, bodies)), s)
        s = self.block.placed(s.map_exprs(self.expr), s)
        if isinstance(s, Load | Store | Atomic):
            if s.memory in self.cells:
                return s.replace(memory=self.cells[s.memory])
            memory = self.block.spilled.get(s.memory)
            if memory is not None:
                own = len(memory.shape) > len(s.memory.shape)
                return s.replace(memory=memory, index=(self.t, *s.index) if own else s.index)
        return s


def _sets_first(body: Body, cell: Memory) -> bool:
    """Whether a cell is always set before anything reads it."""
    for s in body:
        if isinstance(s, Store) and s.memory is cell:
            return True
        if any(isinstance(inner, Load | Store) and inner.memory is cell for inner in walk((s,))):
            return False
    return False


def _has_barrier(s: Stmt) -> bool:
    return any(isinstance(inner, Barrier | Collective) and inner.scope == "block"
               for inner in walk((s,)))


def _has_warps(body: Body) -> bool:
    """Whether threads of a warp work together, so that the warp must be one vector."""
    return any(isinstance(s, Barrier | Collective) and s.scope == "warp" for s in walk(body))
