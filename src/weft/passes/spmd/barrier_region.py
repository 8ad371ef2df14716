"""What stands between two barriers, written out for one thread or for several side by side.

Side by side (``copies``), each statement is written once for each of the threads before the next
statement is; a loop that turns equally often for all of them stays one loop. What is the same for
all - a row of a tile that they read, a sum of indices, a check - is written once. So a loop over a
tile keeps as many running sums in registers as there are copies, and reads the shared operand of
their products once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    UNROLLED,
    Address,
    Alloc,
    Assert,
    Atomic,
    Body,
    Call,
    Clock,
    Collective,
    For,
    If,
    Let,
    Load,
    Memory,
    Print,
    Stmt,
    Store,
    While,
)
from weft.ir.tile import LANES, MatrixAccess, MatrixMultiply, Place
from weft.ir.traverse import walk
from weft.passes.spmd.divergence import Divergence

__all__ = ["Copy", "Region", "copies_of"]

_MOST_COPIES: Final = 8  # threads side by side: enough to hide the latency of sums of products
_MOST_STATEMENTS: Final = 80  # of all copies: more take too long to compile for what they give
_MOST_CELLS: Final = 16  # registers that all copies keep in a loop
_MOST_WRITTEN_OUT: Final = 256  # statements of a region, if arrays are held in registers


def copies_of(body: Body, count: int, differs: Callable[[Expr], bool]) -> int:
    """Return how many of `count` threads are best written side by side.

    That pays in loops that keep something in registers. Those that end at different turns, and
    what happens lane after lane, are left alone: there is nothing to share, and threads that are
    through would wait for the others.
    """
    statements = cells = 0
    for s in walk(body):
        if isinstance(s, For) and differs(s.extent):
            return 1
        if isinstance(s, While | Atomic | Print | Collective | Call):
            return 1
        statements += not isinstance(s, Alloc)
        cells += isinstance(s, For) and sum(
            isinstance(t, Store) and not t.memory.shape for t in walk(s.body))
    if not cells:
        return 1
    most = min(_MOST_COPIES, _MOST_STATEMENTS // max(statements, 1), _MOST_CELLS // cells)
    return next((k for k in range(most, 1, -1) if count % k == 0), 1)


class Copy:
    """One of the threads that are written side by side.

    Parameters
    ----------
    index : Expr
        Its number in the block.
    names : dict of Expr to Expr
        What the names of the source mean for it.
    """

    __slots__ = ("cells", "index", "names")

    def __init__(self, index: Expr, names: dict[Expr, Expr]) -> None:
        self.index, self.names = index, names
        self.cells: dict[Memory, Memory] = {}

    def expr(self, e: Expr) -> Expr:
        """Return what an expression of the source is for this thread."""
        return ex.substitute([e], self.names)[0]


class Region:
    """Statements between two barriers, for some threads side by side."""

    def __init__(self, block: Divergence, copies: Sequence[Copy]) -> None:
        self.block, self.copies = block, copies
        self.unrolled: set[Expr] = set()  # loops over elements that are held in registers

    def run(self, body: Body) -> Body:
        """Return the statements with names of their own and what they need of other regions."""
        block = self.block
        made: set[Expr] = set()
        for s in walk(body):
            made.update(s.binds())
        needed = {v for s in walk(body) for v in ex.free_vars(s.exprs()) if v not in made}
        kept = sorted((v for v in needed if v in block.kept), key=lambda v: str(v.attr))
        used = {s.memory for s in walk(body) if isinstance(s, Load)}
        written = {s.memory for s in walk(body) if isinstance(s, Store)}
        before: list[Stmt] = []
        after: list[Stmt] = []
        held, self.unrolled = _held(body, block.spilled)
        for copy in self.copies:
            for v in kept:
                copy.names[v] = ex.var(block.fresh(str(v.attr), block.names), v.dtype)
                before.append(Load(copy.names[v], block.kept[v], (copy.index,)))
            for v in needed:
                if v in block.values:
                    copy.names[v] = copy.expr(block.values[v])
            for cell, home in block.spilled.items():
                if not cell.shape and cell in used | written:
                    self._keep_in_register(copy, cell, home, not _sets_first(body, cell),
                                           cell in written, before, after)
            for array in held:
                self._keep_array(copy, array, block.spilled[array], array in written, before, after)
        return (*before, *self.body(body, self.copies), *after)

    def _keep_in_register(self, copy: Copy, cell: Memory, home: Memory, fetched: bool,
                          written: bool, before: list[Stmt], after: list[Stmt]) -> None:
        """Let a region work on a register, which it fetches first and writes back at its end."""
        block = self.block
        own = cell.replace(name=block.fresh(cell.name, block.memory_names))
        copy.cells[cell] = own
        before.append(Alloc(own))
        if fetched:
            value = ex.var(block.fresh("fetched", block.names), cell.dtype)
            before.extend((Load(value, home, (copy.index,)), Store(own, (), value)))
        if written:
            value = ex.var(block.fresh("changed", block.names), cell.dtype)
            after.extend((Load(value, own, ()), Store(home, (copy.index,), value)))

    def _keep_array(self, copy: Copy, array: Memory, home: Memory, written: bool,
                    before: list[Stmt], after: list[Stmt]) -> None:  # fmt: skip
        """Let a region work on registers for a small array, as for a single one."""
        block = self.block
        own = array.replace(name=block.fresh(array.name, block.memory_names), scope="register")
        copy.cells[array] = own
        before.append(Alloc(own))
        wide = home.shape[-1]
        for out, fetches in ((before, True), (after, False)):
            place = tuple(ex.var(block.fresh("e", block.names), dt.int64) for _ in array.shape)
            value = ex.var(block.fresh("held", block.names), array.dtype)
            there = (copy.index // wide, *place, copy.index % wide)
            inner: Body = (Load(value, home, there), Store(own, place, value)) if fetches else (
                Load(value, own, place), Store(home, there, value))
            for var, extent in zip(reversed(place), reversed(array.shape), strict=True):
                inner = (For(var, extent, UNROLLED, inner),)
            if fetches or written:
                out.extend(inner)

    # --- statements

    def body(self, body: Body, copies: Sequence[Copy]) -> Body:
        """Return statements for some of the copies, side by side."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Alloc) and s.memory in self.block.spilled:
                continue  # it stands before the loops over threads
            if s.bodies():
                self._compound(s, copies, out)
            else:
                self._simple(s, copies, out)
            for v in s.binds():
                home = self.block.kept.get(v)
                if home is not None:
                    out.extend(Store(home, (c.index,), c.names.get(v, v)) for c in copies)
        return tuple(out)

    def _compound(self, s: Stmt, copies: Sequence[Copy], out: list[Stmt]) -> None:
        """Write a loop or a condition once if all copies agree on it, else one after another."""
        if len(copies) == 1 or (isinstance(s, For | If) and _agree(
                [[c.expr(e) for e in s.exprs()] for c in copies])):
            first = copies[0]
            self._bind(s, copies[:1])
            for v in s.binds():
                for copy in copies[1:]:
                    copy.names[v] = first.names.get(v, v)
            bodies = [self.body(inner, copies) for inner in s.bodies()]
            new = _rebound(s, first).with_bodies(*bodies)
            if isinstance(new, For) and s.binds()[0] in self.unrolled:
                new = new.replace(kind=UNROLLED)
            out.append(self.block.placed(new.map_exprs(first.expr), s))
            return
        for copy in copies:
            self._compound(s, [copy], out)

    def _simple(self, s: Stmt, copies: Sequence[Copy], out: list[Stmt]) -> None:
        if isinstance(s, Alloc):
            for k, copy in enumerate(copies):
                memory = s.memory
                if k or memory.name in self.block.allocated:
                    memory = memory.replace(name=self.block.fresh(
                        memory.name, self.block.memory_names))
                    copy.cells[s.memory] = memory
                self.block.allocated.add(memory.name)
                out.append(self.block.placed(
                    s.replace(memory=memory).map_exprs(copy.expr), s))
            return
        repeats = isinstance(s, Let | Load | Assert)  # the same again has no other result
        seen: list[tuple[Stmt, Copy]] = []
        for copy in copies:
            made = self._of(s.map_exprs(copy.expr), copy)
            same = next((c for other, c in seen if repeats and _same(made, other)), None)
            if same is not None:
                for v in s.binds():
                    copy.names[v] = same.names.get(v, v)
                continue
            seen.append((made, copy))
            self._bind(s, [copy])
            out.append(self.block.placed(_rebound(made, copy), s))

    def _of(self, s: Stmt, copy: Copy) -> Stmt:
        """Return an access to the memories of a copy."""
        if isinstance(s, MatrixAccess):
            fragment, at = self._fragment(s.fragment, copy)
            home = self.block.spilled.get(s.memory, s.memory)
            return s.replace(fragment=fragment, at=at, memory=home)
        if isinstance(s, MatrixMultiply):
            parts = (self._fragment(m, copy) for m in (s.result, s.left, s.right, s.addend))
            return s.moved(*parts)
        if isinstance(s, Address):  # of what all threads have together, where each has a part
            home = copy.cells.get(s.memory, s.memory)
            return s.replace(memory=self.block.spilled.get(home, home))
        if not isinstance(s, Load | Store | Atomic):
            return s
        own = copy.cells.get(s.memory)
        if own is not None:
            return s.replace(memory=own)
        memory = self.block.spilled.get(s.memory)
        if memory is None:
            return s
        more = len(memory.shape) - len(s.memory.shape)
        if more == 2:  # the same element of several threads side by side
            wide = memory.shape[-1]
            return s.replace(memory=memory, index=(copy.index // wide, *s.index,
                                                   copy.index % wide))
        return s.replace(memory=memory, index=(copy.index, *s.index) if more else s.index)

    def _fragment(self, memory: Memory, copy: Copy) -> Place:
        """Return where a fragment lies, and the index of its warp there."""
        home = self.block.spilled.get(memory)
        if home is None:
            return copy.cells.get(memory, memory), ()
        return home, (copy.index // LANES,)

    def _bind(self, s: Stmt, copies: Sequence[Copy]) -> None:
        """Give what a statement binds a name of its own, unless its first use is here."""
        block = self.block
        for v in s.binds():
            for copy in copies:
                copy.names.pop(v, None)
                if v in block.bound:
                    copy.names[v] = ex.var(block.fresh(str(v.attr), block.names), v.dtype)
                block.bound.add(v)


def _held(body: Body, spilled: Mapping[Memory, Memory]) -> tuple[list[Memory], set[Expr]]:
    """Return small arrays of threads that a loop works on, and the loops over their elements.

    Written out, these loops leave registers: sums of which a thread has several in an array.
    """
    known: dict[Memory, bool] = {}
    places: dict[Memory, set[Expr]] = {}
    again: set[Memory] = set()

    def look(part: Body, around: dict[Expr, Expr]) -> None:
        for s in part:
            for m in (s.memory,) if isinstance(s, Address) else (*s.reads(), *s.writes()):
                plain = isinstance(s, Load | Store)
                index = set(ex.free_vars(s.index)) if isinstance(s, Load | Store) else set()
                short = _product([around[v] for v in index if v in around]) <= _MOST_CELLS
                known[m] = known.get(m, True) and plain and short and index <= around.keys()
                places.setdefault(m, set()).update(index)
                if len(around) > len(index):
                    again.add(m)
            for inner in s.bodies():
                look(inner, {**around, s.var: s.extent} if isinstance(s, For) else around)

    look(body, {})
    held = [m for m, home in spilled.items() if known.get(m) and m in again
            and len(home.shape) == len(m.shape) + 2 and _product(m.shape) <= _MOST_CELLS]
    loops = {v for m in held for v in places[m]}
    return (held, loops) if _written_out(body, loops) <= _MOST_WRITTEN_OUT else ([], set())


def _written_out(body: Body, loops: set[Expr]) -> float:
    """Return how many statements there are if some loops are written out."""
    return sum(1 + (_product([s.extent]) if isinstance(s, For) and s.var in loops else 1)
               * sum(_written_out(inner, loops) for inner in s.bodies()) for s in body)


def _product(extents: Sequence[Expr]) -> float:
    """Return a product of sizes, infinite if one is not known."""
    return math.prod(int(e.attr) if e.op is Op.CONST else math.inf for e in extents)


def _agree(found: list[list[Expr]]) -> bool:
    return all(a is b for row in found[1:] for a, b in zip(found[0], row, strict=True))


def _same(a: Stmt, b: Stmt) -> bool:
    """Whether two statements of one kind compute the same."""
    if isinstance(a, Load) and isinstance(b, Load) and a.memory is not b.memory:
        return False
    return _agree([list(a.exprs()), list(b.exprs())])


def _rebound(s: Stmt, copy: Copy) -> Stmt:
    """Return a statement that binds the names of a copy."""
    names = copy.names
    if isinstance(s, Let | Load | Atomic | Collective | Clock | Address | For):
        return s.replace(var=names.get(s.var, s.var))
    if isinstance(s, Call):
        return s.replace(vars=tuple(names.get(v, v) for v in s.vars))
    return s


def _sets_first(body: Body, cell: Memory) -> bool:
    """Whether a cell is always set before anything reads it."""
    for s in body:
        if isinstance(s, Store) and s.memory is cell:
            return True
        if any(isinstance(inner, Load | Store) and inner.memory is cell for inner in walk((s,))):
            return False
    return False
