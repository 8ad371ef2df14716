"""One version of what the threads of a block do: loops over threads between barriers.

What differs between threads, and what they keep over a barrier, is known
(`weft.passes.spmd.divergence`); the statements are handed out to regions
(`weft.passes.spmd.barrier_region`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Alloc,
    Assert,
    Barrier,
    Body,
    Collective,
    For,
    If,
    Let,
    Load,
    Memory,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk
from weft.passes.spmd.barrier_region import Copy, Region
from weft.passes.spmd.control_flow import leaves, memories_read
from weft.passes.spmd.grid_stride_uniform import (
    few_statements,
    holds_for_all,
    with_prefetches,
    without_checks,
)
from weft.passes.spmd.thread_loops import ThreadLoops

if TYPE_CHECKING:
    pass

__all__ = ["Threads"]


class Threads(ThreadLoops):
    """One version of the code of a block, and its loops over threads."""

    def run(self, body: Body) -> Body:
        """Return a body that has been analysed as loops over threads."""
        out: list[Stmt] = []
        guards: tuple[Memory, ...] = ()
        if self.exits_early:
            self.stays = Memory(self.fresh("stays", self.memory_names), dt.bool_,
                                (ex.index(self.count),), "local")
            guards = (self.stays,)
            out.append(Alloc(self.stays))
            there = Store(self.stays, (self.index(),), ex.const(True, dt.bool_))
            self._threads([there], (), out)
        self._split(body, guards, out, True)
        return (*(Alloc(m) for m in self.homes), *out)

    def early_return(self, body: Body) -> tuple[Body, Expr, Body] | None:
        """Return what comes before a last condition, when its threads stay, and what they do then.

        None if there is no such condition, or no barrier behind it, or if what comes before it
        cannot be done twice.
        """
        if not body or not isinstance(body[-1], If) or not self.differs(body[-1].condition):
            return None
        last = body[-1]
        inside = [any(map(self.splits, part)) for part in last.bodies()]
        pure = all(isinstance(s, Let | Assert) or (isinstance(s, Load) and s.memory.scope in (
            "global", "constant")) for s in body[:-1])
        if sum(inside) != 1 or not pure:
            return None
        if inside[0]:
            return body[:-1], last.condition, last.then
        return body[:-1], ex.unary(Op.NOT, last.condition), last.orelse

    def renamed(self, body: Body) -> Body:
        """Return a copy of a body with names and memories of its own."""
        for s in walk(body):
            self.bound.update(s.binds())
            if isinstance(s, Alloc):
                self.allocated.add(s.memory.name)
        plain = Threads(self.nest)
        plain.spilled = {}
        return Region(plain, [Copy(self.index(), {})]).body(body, [Copy(self.index(), {})])

    # --- loops that all threads go through turn by turn

    def _in_step(self, s: Stmt, guards: tuple[Memory, ...], out: list[Stmt]) -> None:
        """Write a loop that ends at another turn for each thread: all make a turn, then the next.

        Who is through takes no part in the turns that remain.
        """
        count = (ex.index(self.count),)
        here = Memory(self.fresh("here", self.memory_names), dt.bool_, count, "local")
        place = (self.index(),)
        out.append(Alloc(here))
        if guards:
            self._threads([Store(here, place, ex.const(False, dt.bool_))], (), out)
        if isinstance(s, For):
            turns = Memory(self.fresh("turns", self.memory_names), dt.int64, count, "local")
            out.append(Alloc(turns))
            if guards:
                self._threads([Store(turns, place, ex.index(0))], (), out)
            self._flush([self.placed(Store(turns, place, s.extent), s)], guards, out)
            most = self.joint(turns, Op.MAX, ex.const(dt.int64.min, dt.int64), out)
            own = ex.var(self.fresh("turns", self.names), dt.int64)
            inner: list[Stmt] = []
            var, rest = s.var, most
            if not guards and self._is_short(s.body):
                least = self.joint(turns, Op.MIN, ex.const(dt.int64.max, dt.int64), out)
                least = ex.maximum(least, 0)
                self._full_iterations(For(s.var, least, SERIAL, s.body), s, s.var, out)
                var = ex.var(self.fresh("more", self.names), dt.int64)
                inner.append(Let(s.var, least + var))
                rest = most - least
            self._flush([Load(own, turns, place), Store(here, place, s.var.lt(own))], guards,
                        inner)
            self._split(s.body, (here,), inner, False)
            out.append(self.placed(For(var, rest, SERIAL, tuple(inner)), s))
            return
        assert isinstance(s, While)
        full = None if guards or not self._is_short(s.body) else holds_for_all(
            s.condition, self.lets, self.axes, self.varying.__contains__)
        if full is not None:
            turn = next(t.var for t in s.head if isinstance(t, Load) and t.memory in (
                self.nest.turns))
            self._full_iterations(s.replace(condition=full), s, turn, out)
        self._flush([Store(here, place, ex.const(True, dt.bool_))], guards, out)
        head: list[Stmt] = []
        body: list[Stmt] = []
        self._split(s.head, (here,), head, False)
        self._flush([self.placed(Store(here, place, s.condition), s)], (here,), head)
        some = self.joint(here, Op.OR, ex.const(False, dt.bool_), head)
        self._split(s.body, (here,), body, False)
        out.append(self.placed(While(tuple(head), some, tuple(body), s.endless), s))

    def _is_short(self, body: Body) -> bool:
        """Whether turns that all threads make are worth a form of their own."""
        return few_statements(body) and not any(t in self.in_step for t in walk(body))

    def _full_iterations(self, s: For | While, source: Stmt, turn: Expr, out: list[Stmt]) -> None:
        """Write the turns of a loop that all threads make."""
        made = {v for t in walk((s,)) for v in t.binds()}

        def known(names: Iterable[Expr]) -> bool:
            axes = [axis.var for axis in self.axes]
            return all(v in axes or not (v in made or v in self.varying) for v in names)

        def test(condition: Expr) -> Expr | None:
            found = holds_for_all(condition, self.lets, self.axes, self.varying.__contains__)
            free = () if found is None else ex.free_vars([found])
            return found if all(v is turn or v not in made for v in free) else None

        body = s.body
        if isinstance(s, While):
            body, tests = without_checks(body, test, self.placed)
            for condition in tests:
                s = s.replace(condition=ex.binary(Op.AND, s.condition, condition))
        if self.nest.hints.get("async_copy", True):
            body = with_prefetches(body, self.lets, turn, self.count, known)
        inner: list[Stmt] = []
        self._split(body, (), inner, False)
        new: Stmt = s.replace(body=tuple(inner))
        if isinstance(s, While):
            head: list[Stmt] = []
            self._split(s.head, (), head, False)
            new = While(tuple(head), s.condition, tuple(inner), s.endless)
        out.extend(self.renamed((self.placed(new, source),)))  # the other turns have the names

    # --- splitting

    def _split(self, body: Body, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write a body as loops over threads between its barriers.

        `guards` hold for each thread whether it is still there; `last` tells that nothing follows.
        """
        pending: list[Stmt] = []
        for position, s in enumerate(body):
            if self.is_shared(s):
                # What comes before a store may read the old value.
                if isinstance(s, Store) and any(s.memory in memories_read(p) for p in pending):
                    self._flush(pending, guards, out)
                out.append(s)
            elif isinstance(s, Barrier) and s.scope == "block":
                self._flush(pending, guards, out)
            elif isinstance(s, Collective) and s.scope == "block":
                self._flush(pending, guards, out)
                self._counted(s, guards, out)
            elif self.splits(s):
                self._flush(pending, guards, out)
                self._around(s, guards, out, last and position == len(body) - 1)
            else:
                pending.append(s)
            if self.stays is not None and leaves((s,)):
                self._flush(pending, guards, out)
                self._rest(body[position + 1:], guards, out, last)
                return
        self._flush(pending, guards, out)

    def _rest(self, body: Body, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write what follows where threads may have left: if any is still there, if they wait.

        Nobody would stop loops that the threads that have left would not have come to.
        """
        if not any(map(self.splits, body)):
            self._split(body, guards, out, last)
            return
        inner: list[Stmt] = []
        some = self._some(out)
        self._split(body, guards, inner, last)
        out.append(If(some, tuple(inner)))

    def _some(self, out: list[Stmt]) -> Expr:
        """Return whether any thread has not left."""
        assert self.stays is not None
        return self.joint(self.stays, Op.OR, ex.const(False, dt.bool_), out)

    def _around(self, s: Stmt, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write a loop or condition that has a barrier in it."""
        if isinstance(s, If) and self.differs(s.condition):
            if self.stays is not None and self.is_leaving(s):
                self._parting(s, guards, out, last)
                return
            if last and self.is_leaving(s):
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
        elif s in self.in_step:
            self._in_step(s, guards, out)
        elif isinstance(s, For):
            extent = self._agreed(s.extent, s, guards, out) if self.differs(s.extent) else s.extent
            inner: list[Stmt] = []
            around, self.turn = self.turn, s.var
            self._split(s.body, guards, inner, False)
            self.turn = around
            self.ahead.clear()
            out.append(self.placed(For(s.var, extent, SERIAL, tuple(inner)), s))
        elif isinstance(s, While):
            head: list[Stmt] = []
            inner = []
            self._split(s.head, guards, head, False)
            condition = s.condition
            if self.differs(condition):
                condition = self._agreed(condition, s, guards, head)
            elif self.stays is not None:
                condition = ex.binary(Op.AND, condition, self._some(head))
            around, self.turn = self.turn, next((t.var for t in s.head if isinstance(t, Load)
                                                 and t.memory in self.nest.turns), None)
            self._split(s.body, guards, inner, False)
            self.turn = around
            self.ahead.clear()
            new = While(tuple(head), condition, tuple(inner), s.endless)
            out.append(self.placed(new, s))
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
            self._threads([Store(holds, (self.index(),), absent)], (), out)
        self._flush([self.placed(Store(holds, (self.index(),), s.args[0]), s)], guards, out)
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
        inside = any(map(self.splits, s.then))
        condition = s.condition if inside else ex.unary(Op.NOT, s.condition)
        body, other = (s.then, s.orelse) if inside else (s.orelse, s.then)
        first: list[Stmt] = [Store(here, (self.index(),), condition)]
        if other:
            first.append(self.placed(If(ex.unary(Op.NOT, condition), other), s))
        if guards:
            out_of = Store(here, (self.index(),), ex.const(False, dt.bool_))
            self._threads([out_of], (), out)
        self._flush(first, guards, out)
        self._split(body, (here,), out, True)

    def _parting(self, s: If, guards: tuple[Memory, ...], out: list[Stmt], last: bool) -> None:
        """Write a condition where threads may leave: first who goes where nobody waits.

        Those who are still there then must all go the other way, unless nothing follows.
        """
        assert self.stays is not None
        inside = any(map(self.splits, s.then))
        condition = s.condition if inside else ex.unary(Op.NOT, s.condition)
        body, other = (s.then, s.orelse) if inside else (s.orelse, s.then)
        if last:
            other = (*other, Store(self.stays, (self.index(),), ex.const(False, dt.bool_)))
        apart = self.placed(If(ex.unary(Op.NOT, condition), other), s)
        if last or self.loses(s):
            self._flush([apart], guards, out)
            some = self._some(out)
        else:
            some = self._agreed(condition, s, guards, out, (apart,))
        inner: list[Stmt] = []
        self._split(body, guards, inner, last)
        out.append(self.placed(If(some, tuple(inner)), s))

    def _agreed(self, value: Expr, s: Stmt, guards: tuple[Memory, ...],
                out: list[Stmt], then: Body = ()) -> Expr:  # fmt: skip
        """Return a value that all threads must have alike at a barrier, after comparing them.

        They are compared when the threads have done what `then` says. Those that have left are not
        asked; if nobody is there, it is 0, which ends a loop.
        """
        assert self.nest.neighbours is None  # blocks that run together agree
        each = Memory(self.fresh("each", self.memory_names), value.dtype, (ex.index(self.count),),
                      "local")
        out.append(Alloc(each))
        self._flush([self.placed(Store(each, (self.index(),), value), s), *then], guards, out)
        s = next((b for b in walk((s,)) if isinstance(b, Barrier | Collective)
                  and b.scope == "block"), s)  # where threads wait for those that do not come
        first = ex.var(self.fresh("first", self.names), value.dtype)
        k = ex.var(self.fresh("k", self.names), dt.int64)
        other = ex.var(self.fresh("other", self.names), value.dtype)
        if not guards:
            out.append(Load(first, each, (ex.index(0),)))
            check = self.placed(Assert(other.eq(first), self.nest.diverged), s)
            out.append(For(k, ex.index(self.count), SERIAL, (Load(other, each, (k,)), check)))
            return first
        agreed = Memory(self.fresh("agreed", self.memory_names), value.dtype, (), "register")
        known = Memory(self.fresh("known", self.memory_names), dt.bool_, (), "register")
        here, some = (ex.var(self.fresh(n, self.names), dt.bool_) for n in ("stays", "some"))
        so_far = ex.var(self.fresh("first", self.names), value.dtype)
        nobody = ex.unary(Op.NOT, some)
        check = self.placed(
            Assert(ex.binary(Op.OR, nobody, other.eq(so_far)), self.nest.diverged), s)
        turn = (Load(other, each, (k,)), Load(some, known, ()), Load(so_far, agreed, ()), check,
                Store(agreed, (), other), Store(known, (), ex.const(True, dt.bool_)))
        out.extend((
            Alloc(agreed), Store(agreed, (), ex.const(0, value.dtype)),
            Alloc(known), Store(known, (), ex.const(False, dt.bool_)),
            For(k, ex.index(self.count), SERIAL, (Load(here, guards[0], (k,)), If(here, turn))),
            Load(first, agreed, ())))
        return first
