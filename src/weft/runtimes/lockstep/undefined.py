"""What threads take from partners that are not there: where such values go, and who uses them.

A shuffle that reads from a thread which does not take part gives any value. To hold one is no
mistake: reductions shuffle more than they need. So marks follow values through names, registers,
local and shared memory, and through conditions: what a register holds behind a branch on such a
value is such a value. The mistake is where it leaves the kernel or chooses what is accessed: a
store to an argument, an atomic operation, an index, a barrier, something printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.ir.analysis.registers import is_register
from weft.ir.expr import Expr, free_vars
from weft.ir.stmt import Atomic, Barrier, Body, Collective, If, Load, Memory, Print, Stmt, Store
from weft.ir.traverse import walk
from weft.runtimes.lockstep import findings as fi

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.ir.stmt import Location
    from weft.runtimes.lockstep.memory import Storage
    from weft.runtimes.lockstep.threads import Threads
    from weft.runtimes.lockstep.values import Array, Mark

__all__ = ["Undefined"]


class Undefined:
    """Follows what is not defined through one run.

    Attributes
    ----------
    names : dict of Expr to Mark
        Names that hold such a value, in some threads.
    any : bool
        Whether there has been one in the blocks that run; nothing is followed before.
    way : Mark or None
        Threads that such a value has sent where they are.
    """

    def __init__(self, machine: Threads, place: Callable[[Stmt], Location | None],
                 report: Callable[..., None]) -> None:  # fmt: skip
        self.machine, self._place, self._report = machine, place, report
        self._written: dict[Stmt, tuple[Memory, ...]] = {}
        self.begin()

    def begin(self) -> None:
        """Start with other blocks."""
        self.names: dict[Expr, Mark] = {}
        self.any = False
        self.way: Mark | None = None

    def of(self, s: Stmt) -> list[Mark | None]:
        """Return in which threads the expressions of a statement are not defined."""
        return self.machine.formula(s, s.exprs()).marks(self.machine.names, self.names)

    def pass_on(self, var: Expr, mark: Mark | None) -> None:
        """Note in which threads a name holds what nobody has given."""
        if mark is not None and mark[0].any():
            self.any = True
            self.names[var] = mark
        else:
            self.names.pop(var, None)

    def take(self, s: Collective, nobody: Array, source: Array) -> None:
        """Note a shuffle: who takes a value from nobody, and from which thread the others do."""
        m = self.machine
        mark, *others = self.of(s) if self.any else (None,)
        for other in others:
            self._used(s, other)
        mask = m.mask & (nobody if mark is None else
                         nobody | np.broadcast_to(mark[0], m.count)[source])
        self.pass_on(s.var, (mask, s if mark is None else mark[1]))

    def join(self, s: Collective, rows_of: Callable[[Array], Array], together: Array) -> None:
        """Note a vote of a warp: it is not defined where the predicate of one thread is not."""
        mark, *others = self.of(s)
        for other in others:
            self._used(s, other)
        if mark is not None:
            m = self.machine
            rows = rows_of(np.broadcast_to(mark[0], m.count)) & together
            mark = m.mask & rows.any(1), mark[1]
        self.pass_on(s.var, mark)

    def count(self, s: Collective) -> None:
        """Note a vote of the block, which is not defined where a predicate is not."""
        m = self.machine
        mark = self.of(s)[0]
        if mark is not None:
            rows = (np.broadcast_to(mark[0], m.count) & m.mask).reshape(m.nblocks, m.per_block)
            mark = np.repeat(rows.any(1), m.per_block), mark[1]
        self.pass_on(s.var, mark)

    # --- memory

    def read(self, s: Stmt, storage: Storage, at: Array, lanes: Array) -> None:
        """Note a load of some elements by some threads."""
        marks = self.of(s)
        for mark in marks:
            self._used(s, mark)
        if isinstance(s, Load):
            self.names.pop(s.var, None)
        if storage.undefined is None or not storage.undefined[0].any():
            return
        mask = np.zeros(self.machine.count, np.bool_)
        mask[lanes] = storage.undefined[0][at]
        if isinstance(s, Load):
            self.pass_on(s.var, (mask, storage.undefined[1]))
        else:  # fragments, copies on the side
            self._used(s, (mask, storage.undefined[1]))

    def write(self, s: Stmt, storage: Storage, at: Array, lanes: Array) -> None:
        """Note a store to some elements by some threads."""
        marks = self.of(s)
        value = None
        if isinstance(s, Store):
            value = self._under_way(marks.pop())
        for mark in marks:
            self._used(s, mark)
        if storage.memory.scope == "global" or storage.unit > 1:
            self._used(s, value)
            return
        if value is None and storage.undefined is None:
            return
        if storage.undefined is None:
            assert value is not None
            storage.undefined = np.zeros(len(storage.data), np.bool_), value[1]
        mask, origin = storage.undefined
        mask[at] = False if value is None else np.broadcast_to(value[0], self.machine.count)[lanes]
        storage.undefined = mask, origin if value is None else value[1]

    def update(self, s: Atomic, storage: Storage, at: Array, lanes: Array) -> None:
        """Note an atomic operation on some elements by some threads."""
        self.names.pop(s.var, None)
        self.meet(s)
        self.use(s)
        if storage.undefined is not None:
            mask = np.zeros(self.machine.count, np.bool_)
            mask[lanes] = storage.undefined[0][at]
            self._used(s, (mask, storage.undefined[1]))

    def register_read(self, s: Load, storage: Storage) -> None:
        """Note a read of a register."""
        self.pass_on(s.var, storage.undefined)

    def register_write(self, s: Store, storage: Storage) -> None:
        """Note a write of a register."""
        before, after = storage.undefined, self._under_way(self.of(s)[-1])
        mask = np.where(self.machine.mask, np.False_ if after is None else after[0],
                        np.False_ if before is None else before[0])
        origin = after or before
        storage.undefined = (mask, origin[1]) if origin is not None and mask.any() else None

    def _under_way(self, mark: Mark | None) -> Mark | None:
        """Return a mark with the threads that write because of what is not defined."""
        if self.way is None:
            return mark
        return self.way if mark is None else (mark[0] | self.way[0], mark[1])

    # --- ways

    def choose(self, s: Stmt) -> None:
        """Note which way threads go at a branch, or at the turn of a loop.

        What the statement writes to registers is not defined in threads that might have gone
        another way, wherever they go. Who calls this puts `way` back where the ways meet.
        """
        mark = self.of(s)[0]
        if mark is None:
            return
        chosen = self.machine.mask & mark[0]
        if not chosen.any():
            return
        for body in s.bodies():
            self._must_do_nothing(s, body, (chosen, mark[1]))
        if s not in self._written:
            self._written[s] = tuple({
                inner.memory for body in s.bodies() for inner in walk(body)
                if isinstance(inner, Store) and is_register(inner.memory)})
        for memory in self._written[s]:
            storage = self.machine.storages.get(memory)
            if storage is not None:
                known = storage.undefined
                mask = chosen if known is None else known[0] | chosen
                storage.undefined = mask, mark[1]
        before = self.way
        self.way = (chosen if before is None else before[0] | chosen), mark[1]

    def _must_do_nothing(self, s: Stmt, body: Body, mark: Mark) -> None:
        """Report what a way does that can be seen outside, if a thread may go there or not.

        A branch in it whose condition is known here counts only for the threads that enter it.
        """
        m = self.machine
        bound = {name for inner in walk(body) for name in inner.binds()}
        stack = [(inner, mark[0]) for inner in body]
        while stack:
            inner, lanes = stack.pop()
            if _is_seen(inner):
                self._used(s, (lanes, mark[1]))
            if not isinstance(inner, If) or not bound.isdisjoint(free_vars(inner.exprs())):
                stack.extend((child, lanes) for part in inner.bodies() for child in part)
                continue
            test = np.broadcast_to(m.formula(inner, inner.exprs())(m.names)[0], m.count)
            for part, there in ((inner.then, lanes & test), (inner.orelse, lanes & ~test)):
                if there.any():
                    stack.extend((child, there) for child in part)

    # --- uses

    def meet(self, s: Stmt) -> None:
        """Note that the threads here wait for others."""
        self._used(s, self.way)

    def use(self, s: Stmt) -> None:
        """Note a statement none of whose values may be undefined."""
        for mark in self.of(s):
            self._used(s, mark)

    def _used(self, s: Stmt, mark: Mark | None) -> None:
        """Report a value that nobody has given, at the shuffle, if a thread here uses it."""
        if mark is None:
            return
        wrong = mark[0] & self.machine.mask
        if wrong.any():
            place = self._place(s)
            line = 0 if place is None else place.line
            self._report(fi.WARP_MASK, mark[1], np.flatnonzero(wrong), "takes the value of a "
                               f"thread that does not take part, and uses it in line {line}",
                               later=place)


def _is_seen(s: Stmt) -> bool:
    if isinstance(s, Store):
        return s.memory.scope in ("global", "shared")
    return isinstance(s, Atomic | Barrier | Print) or (
        isinstance(s, Collective) and s.scope == "block")
