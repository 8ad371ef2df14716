"""Registers of loop nests turned into values, conditions into selections, loops into reductions.

The front end keeps a name that changes in a register. Here each register is followed through the
code: what is read from it is the value that was stored last. A condition whose branches compute,
read and store becomes masks and selections. A loop that does nothing to memory and updates its
registers by reductions becomes a REDUCE:

    s.cell = 0.0; for k in n: { load s = s.cell; load x = a[k]; s.cell = s + x }; load r = s.cell
    ->  reduce k in n (s = 0.0) { load x = a[k] } s + x

A register that cannot be followed (a while loop sets it, or a loop carries it otherwise) stays as
it is, and so do the accesses of it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Alloc,
    Assert,
    Atomic,
    Axis,
    Body,
    Call,
    For,
    If,
    Kernel,
    Let,
    Load,
    Location,
    Memory,
    Reduce,
    Stmt,
    Store,
    is_ordering,
)
from weft.ir.traverse import walk
from weft.passes.nests.reductions import (
    Update,
    accumulator,
    accumulators_of_extreme,
    follows,
    join,
    merged,
    recognise,
    starts,
    update_of,
)

__all__ = ["follow_registers"]

_LARGE: Final = 1 << 62  # what is added to a counter, or it may wrap
_NEAR: Final = 32  # statements above a load among which a store to its element is looked for


def follow_registers(kernel: Kernel, checked: bool = True) -> Kernel:
    """Return the kernel with its registers turned into values, as far as that can be."""
    kept: set[Memory] = set()
    while True:
        attempt = _Follow(kernel, kept, checked)
        try:
            return attempt.run()
        except _Keep as found:
            kept.update(found.memories)


class _Keep(Exception):
    """Some registers have to stay."""

    def __init__(self, memories: set[Memory]) -> None:
        self.memories = memories


Cells = dict[Memory, Expr]


class _Follow:
    def __init__(self, kernel: Kernel, kept: set[Memory], checked: bool) -> None:
        self.kernel, self.kept, self.checked = kernel, kept, checked
        self.locations: dict[Stmt, Location] = dict(kernel.locations)
        self.values: dict[Expr, Expr] = {}  # of names that are gone
        self.names = {str(v.attr) for s in walk(kernel.body) for v in _bound(s)}
        self.olds: set[Expr] = set()  # what registers held at the start of a turn of a loop
        self.seen: dict[tuple[Memory, tuple[Expr, ...]], Expr] = {}  # elements read in this body
        self.lost: dict[Expr, Memory] = {}  # names of values that are not known

    def run(self) -> Kernel:
        body = self.body(self.kernel.body, {}, None)
        read = {v for s in walk(body) for v in ex.free_vars(s.exprs())}
        asked = {m for v, m in self.lost.items() if v in read}
        if asked:
            raise _Keep(asked)
        return self.kernel.replace(body=body, locations=self.locations)

    # --- names

    def fresh(self, base: str, like: Expr) -> Expr:
        name, count = base, 0
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        return ex.var(name, like.dtype)

    def now(self, e: Expr) -> Expr:
        """Return an expression with the values of names that are gone."""
        return ex.substitute([e], self.values)[0] if self.values else e

    def put(self, out: list[Stmt], made: Stmt, like: Stmt) -> None:
        """Append a statement in the place of another one."""
        if made is not like and like in self.locations:
            self.locations[made] = self.locations[like]
        out.append(made)

    def is_followed(self, memory: Memory) -> bool:
        return memory.scope == "register" and not memory.shape and memory not in self.kept

    # --- statements

    def body(self, body: Body, cells: Cells, mask: Expr | None) -> Body:
        """Return the statements of a body; `cells` has what registers hold, and is changed."""
        out: list[Stmt] = []
        around = self.seen
        if mask is None:
            self.seen = {}
        for stmt in body:
            self.stmt(stmt, cells, mask, out)
        if mask is None:
            inner = tuple(walk(tuple(out)))
            written = {s.memory for s in inner if isinstance(s, Store | Atomic)}
            self.seen = {} if any(map(_forgets, inner)) else {
                k: v for k, v in around.items() if k[0] not in written}
        return tuple(out)

    def stmt(self, stmt: Stmt, cells: Cells, mask: Expr | None, out: list[Stmt]) -> None:
        if isinstance(stmt, Alloc) and self.is_followed(stmt.memory):
            cells.pop(stmt.memory, None)
        elif isinstance(stmt, Store) and self.is_followed(stmt.memory):
            cells[stmt.memory] = self.now(stmt.value)
        elif isinstance(stmt, Load) and self.is_followed(stmt.memory):
            # A register that nothing has set on this way: the front end copies such, and no
            # correct function uses what it gets.
            held = cells.get(stmt.memory)
            self.values[stmt.var] = ex.const(0, stmt.var.dtype) if held is None else held
        elif isinstance(stmt, Let) and self._follows(stmt):
            self.values[stmt.var] = self.now(stmt.value)
        elif isinstance(stmt, If):
            self._if(stmt, cells, mask, out)
        elif isinstance(stmt, For):
            self._for(stmt, cells, out)
        elif stmt.bodies():
            self._other(stmt, cells, out)
        else:
            self._plain(stmt, mask, out)

    def _plain(self, stmt: Stmt, mask: Expr | None, out: list[Stmt]) -> None:
        made = stmt.map_exprs(self.now)
        if isinstance(made, Load) and made.mask is None:
            held = self.seen.get((made.memory, made.index))
            if held is not None:
                self.values[made.var] = held  # read before: under a mask that needs none
                return
            stored = self._just_stored(made, out)
            if stored is not None:
                self.values[made.var] = stored
                return
            if mask is None:
                self.seen[made.memory, made.index] = made.var
        elif _forgets(made):
            self.seen = {}
        elif isinstance(made, Store | Atomic):
            self.seen = {k: v for k, v in self.seen.items() if k[0] is not made.memory}
        self.put(out, made if mask is None else _masked(made, mask), stmt)

    def _just_stored(self, load: Load, out: list[Stmt]) -> Expr | None:
        """Return the value that a load finds because it stands a few statements above it."""
        for at in range(len(out) - 1, max(len(out) - _NEAR, 0) - 1, -1):
            before = out[at]
            if isinstance(before, Store) and before.memory is load.memory:
                value = before.value
                if before.index != load.index or before.mask is not None or (
                        value.dtype is not load.var.dtype):
                    return None
                if value.op not in (Op.VAR, Op.CONST):
                    name = self.fresh(str(load.var.attr) + "_stored", value)
                    made: list[Stmt] = []
                    self.put(made, Let(name, value), before)
                    self.put(made, before.replace(value=name), before)
                    out[at:at + 1] = made
                    value = name
                return value
            if not isinstance(before, Let | Load | Store | Assert):
                return None
        return None

    def _follows(self, stmt: Let) -> bool:
        """Whether a name is one for what a register holds next."""
        return bool(self.olds) and not self.olds.isdisjoint(ex.free_vars([self.now(stmt.value)]))

    def _other(self, stmt: Stmt, cells: Cells, out: list[Stmt]) -> None:
        """Read a while loop or the like: registers that it sets stay registers."""
        written = self._written(stmt.bodies())
        if written:
            raise _Keep(written)
        inner = tuple(self.body(b, dict(cells), None) for b in stmt.bodies())
        made = stmt.map_exprs(self.now).with_bodies(*inner)
        self.put(out, made, stmt)

    def _written(self, bodies: tuple[Body, ...]) -> set[Memory]:
        """Return the registers from outside that some bodies set."""
        inside = [s for b in bodies for s in walk(b)]
        own = {s.memory for s in inside if isinstance(s, Alloc)}
        return {s.memory for s in inside if isinstance(s, Store) and self.is_followed(s.memory)
                and s.memory not in own}

    # --- conditions

    def _if(self, stmt: If, cells: Cells, mask: Expr | None, out: list[Stmt]) -> None:
        test = self.now(stmt.condition)
        if not (_can_mask(stmt.then, self) and _can_mask(stmt.orelse, self)):
            self._branch(stmt, test, cells, out)
            return
        sides: list[Cells] = []
        for branch, holds in ((stmt.then, test), (stmt.orelse, _not(test))):
            side = dict(cells)
            made = self.body(branch, side, holds if mask is None else _and(mask, holds))
            out.extend(made)
            sides.append(side)
        self._meet(test, sides, cells)

    def _meet(self, test: Expr, sides: list[Cells], cells: Cells) -> None:
        for memory in {**sides[0], **sides[1]}:
            a, b = (side.get(memory) for side in sides)
            if a is None or b is None:
                cells[memory] = a if a is not None else b  # type: ignore[assignment]
            else:
                cells[memory] = a if a is b else ex.where(test, a, b)

    def _branch(self, stmt: If, test: Expr, cells: Cells, out: list[Stmt]) -> None:
        """Read a condition that stays one: registers that its branches set stay registers."""
        written = self._written(stmt.bodies())
        if written:
            raise _Keep(written)
        made = If(test, self.body(stmt.then, dict(cells), None),
                  self.body(stmt.orelse, dict(cells), None))
        self.put(out, made, stmt)

    # --- loops

    def _for(self, loop: For, cells: Cells, out: list[Stmt]) -> None:
        extent = self.now(loop.extent)
        written = sorted(self._written((loop.body,)), key=lambda m: m.name)
        olds = {m: self.fresh(m.name.removesuffix("_cell"), ex.const(0, m.dtype)) for m in written}
        inside = {**cells, **olds}
        self.olds.update(olds.values())
        body = self.body(loop.body, inside, None)
        ends = {m: inside[m] for m in written}
        if self.checked:
            body = self._read_anyway(body, {olds[m] for m in written if m.dtype.is_bool
                                            and recognise(ends[m], olds[m]) is not None})
        if written and all(ends[m] is olds[m] for m in written):
            body = self.body(loop.body, dict(cells), None)  # nothing changes: read what they hold
            self.put(out, For(loop.var, extent, loop.kind, body), loop)
            return
        read = {v for s in walk(body) for v in ex.free_vars(s.exprs())}
        lets = {s.var: s.value for s in body if isinstance(s, Let)}
        updates: dict[Memory, Update] = {}
        places = self._places(loop, body, ends, olds, lets, read)
        carried = {memory for memory, end in ends.items() if memory not in places and (
                   olds[memory] in read
                   or not self._note_update(memory, end, olds, lets, updates, cells))}
        if carried:
            raise _Keep(carried)
        if not updates:
            self.put(out, For(loop.var, extent, loop.kind, body), loop)
            return
        if not all(isinstance(s, Let | Load | Reduce | Assert) for s in body):
            if places or not _can_part(body):
                raise _Keep({*updates, *places})
            # Reductions beside stores: first a loop that stores, then one that reduces.
            self.put(out, For(loop.var, extent, loop.kind, body), loop)
            var, body, updates = self._copied(loop.var, body, updates)
            loop = For(var, extent, loop.kind, body)
        accumulators: list[Accumulator] = []
        for memory, update in updates.items():
            old, start = olds[memory], cells.get(memory, ex.const(0, memory.dtype))
            mine = {m: term for m, (leads, term) in places.items() if leads is memory}
            if mine:
                accumulators += accumulators_of_extreme(
                    update.kind, old, update.term, {olds[m]: term for m, term in mine.items()})
                cells[memory] = join(update.kind, start, old)
                found = start.lt(old) if update.kind == "max" else old.lt(start)
                for m in mine:
                    before = cells.get(m, ex.const(0, m.dtype))
                    cells[m] = ex.where(found, olds[m], before)
                continue
            direct = start if starts(update.kind, start) else None
            accumulators.append(accumulator(old, update, direct))
            cells[memory] = old if direct is not None else join(update.kind, start, old)
        reduce = Reduce((Axis(loop.var, extent),), tuple(accumulators), body)
        self.put(out, merged(reduce), loop)

    def _places(self, loop: For, body: Body, ends: Cells, olds: Cells, lets: Mapping[Expr, Expr],
                read: set[Expr]) -> dict[Memory, tuple[Memory, Expr]]:  # fmt: skip
        """Return the registers that keep where an extreme was found: with its register, and where.

        What they are set to has to grow from turn to turn, as the loop's own variable does, so
        that the first of equal extremes is known by it. No turn may look at what they hold.
        """
        found: dict[Memory, tuple[Memory, Expr]] = {}
        inside = {loop.var, *(v for s in walk(body) for v in _bound(s)), *olds.values()}
        for memory, end in ends.items():
            if memory.dtype is not dt.int64 or olds[memory] in read:
                continue
            for other, extreme in ends.items():
                update = update_of(extreme, lets, olds[other])
                if other is memory or update is None or update.kind not in ("min", "max"):
                    continue
                term = follows(end, olds[memory], extreme, olds[other])
                if term is not None and _grows(term, loop.var, inside, lets):
                    found[memory] = other, term
        return found

    def _read_anyway(self, body: Body, flags: set[Expr]) -> Body:
        """Return a body that reads what `and` and `or` would leave out.

        No check stands before such a read, so it is within its array whatever was found before.
        """
        made: list[Stmt] = []
        for stmt in body:
            if flags and isinstance(stmt, Load) and stmt.mask is not None:
                kept = [e for e in _conjuncts(stmt.mask)
                        if e not in flags and not (e.op is Op.NOT and e.args[0] in flags)]
                mask = functools.reduce(_and, kept) if kept else None
                self.put(made, stmt.replace(mask=mask), stmt)
            else:
                made.append(stmt)
        return tuple(made)

    def _copied(self, var: Expr, body: Body, updates: dict[Memory, Update]
                ) -> tuple[Expr, Body, dict[Memory, Update]]:  # fmt: skip
        """Return what a loop reads and computes under new names, for another loop."""
        renamed = {v: self.fresh(str(v.attr), v)
                   for v in (var, *(v for s in body for v in s.binds()))}

        def now(e: Expr) -> Expr:
            return ex.substitute([e], renamed)[0]

        kept = _kept(body, var)
        made: list[Stmt] = []
        for stmt in body:
            new = stmt.map_exprs(now)
            if isinstance(new, Store | Assert):
                continue  # done in the first loop
            if isinstance(stmt, Let) and stmt.var in kept:  # and what that stored is there to read
                store = kept[stmt.var]
                new = Load(stmt.var, store.memory, tuple(map(now, store.index)))
            if isinstance(new, Let | Load):
                new = new.replace(var=renamed[new.var])
            self.put(made, new, stmt)
        return renamed[var], tuple(made), {m: u._replace(term=now(u.term))
                                           for m, u in updates.items()}

    def _note_update(self, memory: Memory, end: Expr, olds: Mapping[Memory, Expr],
                lets: Mapping[Expr, Expr], updates: dict[Memory, Update],
                cells: Cells) -> bool:  # fmt: skip
        """Note what a loop does to a register; whether it is something that can be said."""
        names = set(olds.values())
        if not names & ex.free_vars([end]):
            # Set anew in every turn. What it holds behind the loop is known to nobody, so nobody
            # may ask (`run` looks).
            lost = self.fresh(f"{memory.name}_lost", end)
            self.lost[lost] = memory
            cells[memory] = lost
            return True
        update = update_of(end, lets, olds[memory])
        if update is None or names & ex.free_vars([update.term]):
            return False
        updates[memory] = update
        return True


def _conjuncts(e: Expr) -> list[Expr]:
    found, stack = [], [e]
    while stack:
        e = stack.pop()
        if e.op is Op.AND and e.dtype.is_bool:
            stack.extend(e.args[::-1])
        else:
            found.append(e)
    return found


def _grows(e: Expr, var: Expr, inside: set[Expr], lets: Mapping[Expr, Expr]) -> bool:
    """Whether an integer grows with a loop's variable: that and what stays the same, added."""
    while True:
        e = lets.get(e, e)
        if e is var:
            return True
        if e.op is Op.CAST and e.dtype is dt.int64 and e.args[0].dtype.is_integer:
            e = e.args[0]
            continue
        if e.op is not Op.ADD:
            return False
        varying = [a for a in e.args if inside & ex.free_vars([a])]
        if len(varying) != 1:
            return False
        if any(a.op is Op.CONST and abs(int(a.attr)) > _LARGE for a in e.args):
            return False  # the sum may wrap
        e = varying[0]


def _kept(body: Body, var: Expr) -> dict[Expr, Store]:
    """Return the values of a turn of a loop that are in memory when the loop is over."""
    stores = [s for s in body if isinstance(s, Store)]
    lets = {s.var: s.value for s in body if isinstance(s, Let)}
    inside = {var, *(v for s in body for v in _bound(s))}
    return {s.value: s for s in stores
            if s.value in lets and s.mask is None
            and sum(other.memory is s.memory for other in stores) == 1
            and any(_grows(i, var, inside, lets) for i in s.index)
            and s.memory.scope == "global"}


def _can_part(body: Body) -> bool:
    """Whether a body may run once more without its stores: it reads nothing that it writes."""
    written = {s.memory for s in body if isinstance(s, Store)}
    return all(isinstance(s, Let | Store | Assert) or (
        isinstance(s, Load) and s.memory not in written) for s in body)


def _can_mask(body: Body, follow: _Follow) -> bool:
    """Whether every statement of a branch can be carried out under a mask."""
    for stmt in body:
        if isinstance(stmt, If):
            if not (_can_mask(stmt.then, follow) and _can_mask(stmt.orelse, follow)):
                return False
        elif isinstance(stmt, Load | Store | Alloc):
            if stmt.memory.scope == "register" and not follow.is_followed(stmt.memory):
                return False
            if isinstance(stmt, Alloc) and not follow.is_followed(stmt.memory):
                return False
            if isinstance(stmt, Store) and stmt.memory.scope != "register":
                return False
        elif not isinstance(stmt, Let | Assert):
            return False
    return True


def _masked(stmt: Stmt, mask: Expr) -> Stmt:
    if isinstance(stmt, Load):
        return stmt.replace(mask=mask if stmt.mask is None else _and(mask, stmt.mask))
    if isinstance(stmt, Assert):
        return stmt.replace(condition=ex.binary(Op.OR, _not(mask), stmt.condition))
    return stmt


def _forgets(stmt: Stmt) -> bool:
    """Whether memory may hold something else behind a statement, whichever it is."""
    return is_ordering(stmt) or isinstance(stmt, Call)


def _and(a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.AND, a, b)


def _not(a: Expr) -> Expr:
    if a.op is Op.NOT:
        return a.args[0]
    if a.op in (Op.LT, Op.LE) and a.args[0].dtype.is_integer:
        x, y = a.args
        return y.le(x) if a.op is Op.LT else y.lt(x)
    return ex.unary(Op.NOT, a)


def _bound(stmt: Stmt) -> tuple[Expr, ...]:
    axes = tuple(a.var for a in stmt.axes) if isinstance(stmt, Reduce) else ()
    return stmt.binds() + axes
