"""Checks of the sanitiser as code of the kernel: where they are cheap enough to compile in.

Every check has a row of `ROW` numbers in an array that the kernel gets as its last parameter: how
often it failed, and of the first failure the thread (counted through the whole grid) and the two
values of the assertion. An assertion notes its failure and then stops the kernel as it does without
this pass. A read of shared or local memory that nothing has written, or of a name that has no value
yet, is noted, and the kernel goes on.

Whether an element was written is kept in an array of flags beside each array, also beside the
fragments of matrices. Arrays whose elements are also accessed by copies on the side or as other
types have none, nor have those of which single bytes are written.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.analysis.registers import copied, copies, is_register
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import (
    PARTLY,
    SERIAL,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Body,
    Collective,
    For,
    If,
    Kernel,
    Load,
    Location,
    Memory,
    Stmt,
    Store,
)
from weft.ir.tile import LANES, MatrixAccess, MatrixMultiply
from weft.ir.traverse import Rewriter, walk
from weft.passes.spmd.control_flow import always_leaves

__all__ = ["ROW", "UNSET", "UNWRITTEN", "Check", "watch"]

ROW: Final = 4  # numbers of a check: failures, thread, value, bound
UNWRITTEN: Final = "a read of what nothing has written"
UNSET: Final = "a read of a name that has no value"
_AXES: Final = ("block.", "thread.")


class Check(Record):
    """One check: what it says, where it stands, and the memory that it is about."""

    message: str
    place: Location | None
    memory: str = ""


def watch(kernel: Kernel) -> tuple[Kernel, list[Check]]:
    """Return a kernel of threads with its checks written in, and the checks by row."""
    body, axes = kernel.body, []
    allocs: list[Alloc] = []
    while True:
        here = [s for s in body if isinstance(s, Alloc) and s.memory.scope == "shared"]
        rest = body[len(here):]
        if len(rest) != 1 or not isinstance(rest[0], For) or not rest[0].kind.startswith(_AXES):
            break
        allocs += here
        axes.append(rest[0])
        body = rest[0].body
    pass_ = _Watch(kernel, axes)
    inner = pass_.body(_closed(body, pass_.locations))
    flags = [s for s in allocs if s.memory in pass_.flags]
    inner = (*pass_.clear(flags), *inner)
    threads = [axis for axis in axes if axis.kind.startswith("thread.")]
    for axis in reversed(threads):
        inner = (For(axis.var, axis.extent, axis.kind, inner),)
    inner = (*allocs, *(Alloc(pass_.flags[s.memory]) for s in flags), *inner)
    for axis in reversed(axes[:len(axes) - len(threads)]):
        inner = (For(axis.var, axis.extent, axis.kind, inner),)
    rows = max(len(pass_.checks), 1)
    memory = pass_.notes.replace(shape=(ex.index(rows * ROW),))
    return kernel.replace(body=_renotes(inner, pass_.notes, memory, pass_.locations),
                          params=(*kernel.params, memory),
                          locations=pass_.locations), pass_.checks  # fmt: skip


def _closed(body: Body, places: dict[Stmt, Location]) -> Body:
    """Return a body in which only threads that return miss the barriers of a last condition.

    Those that just have nothing left to do wait at no barrier, and would be no mistake.
    """
    if not body or not isinstance(body[-1], If):
        return body
    last = body[-1]
    meets = [any(map(_is_meeting, walk(part))) for part in last.bodies()]
    if meets[0] == meets[1] or not always_leaves(last.orelse if meets[0] else last.then):
        return (*body, Barrier("block")) if any(meets) else body
    then, orelse = (_closed(part, places) if meet else part
                    for part, meet in zip(last.bodies(), meets, strict=True))
    made = If(last.condition, then, orelse)
    if last in places:
        places[made] = places[last]
    return (*body[:-1], made)


def _maybe_unset(body: Body) -> list[Memory]:
    """Return the registers that may be read before they are written."""
    found: list[Memory] = []
    work = [body]
    while work:
        part = work.pop()
        for position, s in enumerate(part):
            work += s.bodies()
            if isinstance(s, Alloc) and is_register(s.memory):
                first = next((t for t in part[position + 1:] if any(
                    s.memory in (*u.reads(), *u.writes()) for u in walk((t,)))), None)
                if first is not None and not isinstance(first, Store):
                    found.append(s.memory)
    return found


def _is_meeting(s: Stmt) -> bool:
    return isinstance(s, Barrier | Collective) and s.scope == "block"


def _renotes(body: Body, old: Memory, new: Memory, places: dict[Stmt, Location]) -> Body:
    """Return a body in which a memory has its final size."""
    out: list[Stmt] = []
    for s in body:
        made = s
        if s.bodies():
            made = s.with_bodies(*(_renotes(b, old, new, places) for b in s.bodies()))
        elif isinstance(s, Store | Atomic) and s.memory is old:
            made = s.replace(memory=new)
        if made is not s and s in places:
            places[made] = places[s]
        out.append(made)
    return tuple(out)


class _Watch(Rewriter):
    def __init__(self, kernel: Kernel, axes: list[For]) -> None:
        super().__init__(kernel)
        names = {m.name for m in kernel.params} | {
            s.memory.name for s in walk(kernel.body) if isinstance(s, Alloc)}
        self._names = names | {str(v.attr) for s in walk(kernel.body) for v in s.binds()}
        self.checks: list[Check] = []
        self.notes = Memory(self._fresh("notes"), dt.int64, (ex.index(1),))
        self.flags = self._flagged(kernel)
        self.cells = {m: Memory(self._fresh(f"{m.name}.set"), dt.uint8, (), "register")
                      for m in _maybe_unset(kernel.body)}
        self._copies = copies(kernel)
        self._sources: dict[Expr, Expr] = {}  # whether what was copied has a value, by name
        self._thread = ex.index(0)
        self._count = 1
        for axis in axes:
            self._thread = self._thread * axis.extent + axis.var
        self._inside = ex.index(0)
        for axis in axes:
            if axis.kind.startswith("thread."):
                self._inside = self._inside * axis.extent + axis.var
                self._count *= int(axis.extent.attr)

    def _flagged(self, kernel: Kernel) -> dict[Memory, Memory]:
        """Return the arrays that have flags."""
        found: dict[Memory, Memory] = {}
        left_out: set[Memory] = set()
        for s in walk(kernel.body):
            if isinstance(s, Alloc):
                if s.base is not None:
                    left_out |= {s.memory, s.base}
                if s.memory.scope in ("shared", "local") and s.memory.shape:
                    found[s.memory] = s.memory
            elif not isinstance(s, Load | Store | Atomic | MatrixAccess | MatrixMultiply):
                left_out |= {*s.reads(), *s.writes()}
        partly = dict(kernel.meta.hints).get(PARTLY, ())
        return {m: Memory(self._fresh(f"{m.name}.written"), dt.uint8, m.shape, m.scope)
                for m in found if m not in left_out and m.name not in partly}

    def _fresh(self, base: str) -> str:
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}.{count}"
        self._names.add(name)
        return name

    def clear(self, allocs: list[Alloc]) -> Body:
        """Return what sets the flags of shared arrays to 0, by all threads of a block."""
        out: list[Stmt] = []
        for s in allocs:
            out += self._cleared(self.flags[s.memory], self._inside, self._count)
        return (*out, Barrier("block")) if out else ()

    def _cleared(self, flags: Memory, first: Expr, step: int) -> list[Stmt]:
        """Return stores of 0 to every `step`-th element."""
        total = 1
        for n in flags.shape:
            total *= int(n.attr)
        k = ex.var(self._fresh("k"), dt.int64)
        place = first + k * step
        index = []
        rest = place
        for n in reversed(flags.shape[1:]):
            index.append(rest % n)
            rest = rest // n
        index.append(rest)
        store: Stmt = Store(flags, tuple(reversed(index)), ex.const(0, dt.uint8))
        if total % step:
            store = If(place.lt(total), (store,))
        return [For(k, ex.index(-(-total // step)), SERIAL, (store,))]

    def _noted(self, s: Stmt, condition: Expr, check: Check, value: Expr | None,
               bound: Expr | None) -> Stmt:  # fmt: skip
        """Return what notes a failure under a condition."""
        row = len(self.checks) * ROW
        self.checks.append(check)
        old = ex.var(self._fresh("failures"), dt.int64)
        one = ex.index(1)
        first = tuple(Store(self.notes, (ex.index(row + k),), e) for k, e in enumerate(
            (self._thread, value, bound), 1) if e is not None)
        return If(condition, (Atomic(old, "add", self.notes, (ex.index(row),), one),
                              If(old.eq(0), first)))

    def _cell(self, stmt: Load | Store, place: Location | None) -> Stmt | Body:
        """Return an access of a register with what keeps, or asks, whether it holds a value."""
        cell = self.cells.get(stmt.memory)
        if cell is None:
            return stmt
        if isinstance(stmt, Store):
            known = self._sources.get(copied(stmt.value), ex.const(1, dt.uint8))
            return stmt, Store(cell, (), known)
        flag = ex.var(self._fresh("set"), dt.uint8)
        if stmt in self._copies:
            self._sources[stmt.var] = flag
            return Load(flag, cell, ()), stmt
        check = Check(UNSET, place, stmt.memory.name.partition(".cell")[0])
        return Load(flag, cell, ()), self._noted(stmt, flag.eq(0), check, None, None), stmt

    def visit(self, stmt: Stmt) -> Stmt | Body:
        place = self.kernel.locations.get(stmt)
        if isinstance(stmt, Assert):
            check = Check(stmt.message, place)
            bad = ex.unary(Op.NOT, stmt.condition)
            return self._noted(stmt, bad, check, stmt.value, stmt.bound), stmt
        if isinstance(stmt, Alloc) and stmt.memory in self.flags and stmt.memory.scope == "local":
            flags = self.flags[stmt.memory]
            return stmt, Alloc(flags), *self._cleared(flags, ex.index(0), 1)
        if isinstance(stmt, Alloc) and stmt.memory in self.cells:
            cell = self.cells[stmt.memory]
            return stmt, Alloc(cell), Store(cell, (), ex.const(0, dt.uint8))
        if isinstance(stmt, Load | Store) and is_register(stmt.memory):
            return self._cell(stmt, place)
        if isinstance(stmt, MatrixAccess | MatrixMultiply):
            return self._matrix(stmt, place)
        if not isinstance(stmt, Load | Store | Atomic) or stmt.memory not in self.flags:
            return stmt
        flags = self.flags[stmt.memory]
        out: list[Stmt] = []
        if isinstance(stmt, Load) or (isinstance(stmt, Atomic) and stmt.kind != "exch"):
            flag = ex.var(self._fresh("flag"), dt.uint8)
            out.append(Load(flag, flags, stmt.index))
            check = Check(UNWRITTEN, place, stmt.memory.name)
            value = stmt.index[0] if len(stmt.index) == 1 else None
            out.append(self._noted(stmt, flag.eq(0), check, value, None))
        out.append(stmt)
        if not isinstance(stmt, Load):
            out.append(Store(flags, stmt.index, ex.const(1, dt.uint8)))
        return tuple(out)

    def _matrix(self, stmt: MatrixAccess | MatrixMultiply, place: Location | None) -> Body:
        """Return an access or a product of matrices, each thread with the flags of its elements."""
        out: list[Stmt] = []
        for memory in dict.fromkeys(stmt.reads()):
            if memory in self.flags:
                k, index, count = self._own(stmt, memory)
                flag = ex.var(self._fresh("flag"), dt.uint8)
                check = Check(UNWRITTEN, place, memory.name)
                noted = self._noted(stmt, flag.eq(0), check, index[0] if len(index) == 1 else None,
                                    None)
                out.append(For(k, count, SERIAL, (Load(flag, self.flags[memory], index), noted)))
        out.append(stmt)
        for memory in stmt.writes():
            if memory in self.flags:
                k, index, count = self._own(stmt, memory)
                stored = Store(self.flags[memory], index, ex.const(1, dt.uint8))
                out.append(For(k, count, SERIAL, (stored,)))
        return tuple(out)

    def _own(self, stmt: MatrixAccess | MatrixMultiply,
             memory: Memory) -> tuple[Expr, tuple[Expr, ...], Expr]:  # fmt: skip
        """Return a counter, where the elements of a thread lie in a memory, and how many it has."""
        k = ex.var(self._fresh("k"), dt.int64)
        if isinstance(stmt, MatrixMultiply) or memory is stmt.fragment:
            return k, (k,), memory.shape[0]
        rows, columns = stmt.size
        element = k * LANES + self._inside % LANES
        row, column = element // columns, element % columns
        index = tuple(i + row * r + column * c for i, r, c in zip(
            stmt.index, stmt.row, stmt.column, strict=True))
        return k, index, ex.index(rows * columns // LANES)
