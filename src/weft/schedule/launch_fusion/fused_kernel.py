"""The kernel that a group of launches becomes.

Before, two launches on the same grid; after, one::

    if i < n: t[i] = x[i] * 2           if i < n:
                                          t[i] = x[i] * 2
    if i < n: y[i] = t[i] + 1             y[i] = x[i] * 2 + 1

Checks are left out, for they were proved. Conditions that say the same are joined. What a thread
has stored or loaded is not loaded again, as far as no other thread writes it; what it stores twice
is stored once; and the stores to an array that nobody reads afterwards go.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Alloc,
    Assert,
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
    Prefetch,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk
from weft.schedule.launch_fusion.launches import Group

__all__ = ["joined"]

_PRIVATE: Final = ("local", "register")

Key = tuple[Memory, tuple[Expr, ...]]


def joined(group: Group, temporaries: Iterable[Memory] = ()) -> Kernel:
    """Return one kernel for the launches of a group.

    Parameters
    ----------
    group : Group
        More than one launch.
    temporaries : iterable of Memory
        Parameters that nobody reads after the launches; those that are not needed are left out of
        the parameters of the result.
    """
    first = group.kernels[0]
    loops, _, _ = _nest(first)
    lets: dict[Expr, Expr] = {}
    locations: dict[Stmt, Location] = {}
    shared: list[Stmt] = []
    body: list[Stmt] = []
    for number, kernel in zip(group.parts, group.kernels, strict=True):
        _, before, inner = _nest(kernel)
        locations.update(kernel.locations)
        shared.extend(before)
        if number in group.barriers:
            body.append(Barrier())
        body.extend(inner)
        lets.update((s.var, s.value) for s in walk(kernel.body) if isinstance(s, Let))
    work = _Work(lets, locations, set(group.own), group.loops)
    done = work.forwarded(work.merged(work.plain(tuple(body))), {})
    unread = {m for m in temporaries if not any(
        isinstance(s, Load | Atomic | Prefetch) and s.memory is m for s in walk(done))}
    done = work.without(done, unread)
    for loop in reversed(loops):
        done = (loop.with_bodies(done),)
        if loop is next((k for k in loops if k.kind.startswith("thread.")), None):
            done = (*shared, *done)
    if not any(k.kind.startswith("thread.") for k in loops):
        done = (*shared, *done)  # a block of one thread
    params = tuple(m for m in group.arrays if m not in unread)
    hints = tuple(dict.fromkeys(h for k in group.kernels for h in k.meta.hints))
    name = "_".join(dict.fromkeys(k.name for k in group.kernels))
    return Kernel(name, params, done, first.meta.replace(hints=hints), locations)


def _nest(kernel: Kernel) -> tuple[list[For], list[Stmt], Body]:
    """Return the loops over blocks and threads, the shared memory, and the body of a thread."""
    loops: list[For] = []
    shared: list[Stmt] = []
    body = kernel.body
    while True:
        at = 0
        while at < len(body) and _is_shared(body[at]):
            at += 1
        rest = body[at:]
        if len(rest) == 1 and isinstance(rest[0], For) and rest[0].kind.startswith(
            ("block.", "thread.")
        ):
            shared.extend(body[:at])
            loops.append(rest[0])
            body = rest[0].body
        elif at and not any(k.kind.startswith("thread.") for k in loops):
            shared.extend(body[:at])
            return loops, shared, rest
        else:
            return loops, shared, body


def _is_shared(s: Stmt) -> bool:
    return isinstance(s, Alloc) and s.memory.scope == "shared"


class _Work:
    """Rewrites of the body of a thread."""

    def __init__(self, lets: dict[Expr, Expr], locations: dict[Stmt, Location],
                 own: set[Memory],
                 loops: Set[tuple[Expr, Expr]] = frozenset()) -> None:  # fmt: skip
        self.loops = loops
        self.turns: dict[Expr, list[Expr]] = {}  # counters of loops that were joined to one
        self.lets, self.locations, self.own = lets, locations, own
        self.plain_of: dict[Expr, Expr] = {}

    def placed(self, made: Stmt, source: Stmt) -> Stmt:
        if made is not source and source in self.locations:
            self.locations.setdefault(made, self.locations[source])
        return made

    def resolved(self, e: Expr) -> Expr:
        """Return an expression in which names of pure values are what they stand for."""
        found = self.plain_of.get(e)
        if found is None:
            found = e
            while True:
                names = {v: self.lets[v] for v in ex.free_vars([found]) if v in self.lets}
                if not names:
                    break
                found = ex.substitute([found], names)[0]
            self.plain_of[e] = found
        return found

    # --- conditions

    def plain(self, body: Body) -> Body:
        """Drop checks; write conditions with an empty first branch the other way round."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Assert):
                continue
            if s.bodies():
                s = self.placed(s.with_bodies(*map(self.plain, s.bodies())), s)
            if isinstance(s, If):
                condition = _positive(self.resolved(s.condition))
                then, orelse = s.then, s.orelse
                if not then:
                    condition, then, orelse = _positive(ex.unary(Op.NOT, condition)), orelse, ()
                if not then:
                    continue
                s = self.placed(If(condition, then, orelse), s)
            out.append(s)
        return tuple(out)

    def merged(self, body: Body) -> Body:
        """Join conditions that say the same and stand behind each other."""
        out: list[Stmt] = []
        for s in body:
            at = self._partner(out, s)
            if at is None:
                out.append(s)
                continue
            if isinstance(s, For):
                out.append(self._one_loop(out.pop(at), s))
                continue
            earlier = out.pop(at)
            assert isinstance(earlier, If)
            assert isinstance(s, If)
            out.append(self.placed(If(s.condition, (*earlier.then, *s.then)), earlier))
        return tuple(
            self.placed(s.with_bodies(*map(self.merged, s.bodies())), s) if s.bodies() else s
            for s in out
        )

    def _partner(self, out: list[Stmt], s: Stmt) -> int | None:
        """Return the position of a condition that `s` can join, behind what stands between."""
        if isinstance(s, For):
            return self._loop_before(out, s)
        if not isinstance(s, If) or s.orelse:
            return None
        for at in range(len(out) - 1, -1, -1):
            known = out[at]
            if isinstance(known, If):
                same = known.condition is s.condition and not known.orelse
                return at if same and not _rewritten(known, s.condition) else None
            if not isinstance(known, Let | Alloc):
                return None
        return None

    def _loop_before(self, out: list[Stmt], s: For) -> int | None:
        """Return the position of a loop that `s` can join: what stands between goes before it."""
        between: set[Memory] = set()
        for at in range(len(out) - 1, -1, -1):
            known = out[at]
            if isinstance(known, For):
                same = (known.kind == s.kind and self.resolved(known.extent) is self.resolved(
                    s.extent) and not any(map(_meets, (known, s))))
                counters = self.turns.get(known.var, [known.var])
                touched = {getattr(i, "memory", None) for i in walk((known,))}
                free = same and touched.isdisjoint(between) and all(
                    (x, s.var) in self.loops for x in counters)
                return at if free else None
            if isinstance(known, Load | Store) and known.memory.scope in _PRIVATE:
                between.add(known.memory)
            elif not isinstance(known, Let | Alloc):
                return None
        return None

    def _one_loop(self, known: Stmt, s: For) -> Stmt:
        """Return two loops as one: each turn does what the turns of both did."""
        assert isinstance(known, For)
        self.turns[known.var] = [*self.turns.get(known.var, [known.var]), s.var]
        self.lets[s.var] = known.var
        body = (*known.body, Let(s.var, known.var), *s.body)
        return self.placed(For(known.var, known.extent, known.kind, body), known)

    # --- loads and stores

    def forwarded(self, body: Body, known: dict[Key, Expr]) -> Body:
        """Take what a thread has loaded or stored from where it is, and drop what it overwrites.

        `known` holds the values of elements; it is changed as the body changes them.
        """
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Load) and s.memory in self.own:
                key = self._key(s)
                value = known.get(key)
                if s.mask is None and value is not None and value.dtype is s.var.dtype:
                    self.lets[s.var] = value
                    s = self.placed(Let(s.var, value), s)
                elif s.mask is None:
                    known[key] = s.var
            elif isinstance(s, Store) and s.memory in self.own:
                key = self._key(s)
                _forget(known, {s.memory}, key)
                if s.mask is None:
                    known[key] = s.value
                else:
                    known.pop(key, None)
            elif isinstance(s, Barrier | Collective) and s.scope != "warp":
                known.clear()
            elif s.bodies():
                changed = {i.memory for i in walk((s,)) if isinstance(i, Store | Atomic)}
                meets = any(isinstance(i, Barrier | Collective) for i in walk((s,)))
                loop = isinstance(s, For | While)
                if loop:
                    _forget(known, changed)
                    if meets:
                        known.clear()
                inner = [self.forwarded(b, dict(known)) for b in s.bodies()]
                s = self.placed(s.with_bodies(*inner), s)
                _forget(known, changed)
                if meets:
                    known.clear()
            out.append(s)
        return self._overwritten(tuple(out))

    def _key(self, s: Load | Store) -> Key:
        return s.memory, tuple(map(self.resolved, s.index))

    def _overwritten(self, body: Body) -> Body:
        """Drop stores whose element is stored again before anything may look at it."""
        out: list[Stmt] = []
        later: set[Key] = set()
        for s in reversed(body):
            if isinstance(s, Store) and s.memory in self.own and s.mask is None:
                key = self._key(s)
                if key in later:
                    continue
                later.add(key)
            elif isinstance(s, Load):
                later = {k for k in later if k[0] is not s.memory}
            elif not isinstance(s, Let | Alloc | Store):
                later.clear()
            out.append(s)
        return tuple(reversed(out))

    def without(self, body: Body, memories: set[Memory]) -> Body:
        """Drop the stores to some memories."""
        if not memories:
            return body
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Store | Prefetch) and s.memory in memories:
                continue
            if s.bodies():
                s = self.placed(s.with_bodies(*(self.without(b, memories) for b in s.bodies())), s)
            out.append(s)
        return tuple(out)


def _positive(condition: Expr) -> Expr:
    """Return a condition without a negation at its top, if integers are compared there."""
    turned = False
    while condition.op is Op.NOT and condition.dtype.is_bool:
        condition, turned = condition.args[0], not turned
    if not turned:
        return condition
    if condition.op in (Op.LT, Op.LE) and condition.args[0].dtype.is_integer:
        a, b = condition.args
        return b.le(a) if condition.op is Op.LT else b.lt(a)
    return ex.unary(Op.NOT, condition)


def _meets(s: Stmt) -> bool:
    """Whether threads wait for each other in a statement."""
    return any(isinstance(i, Barrier | Collective) for i in walk((s,)))


def _rewritten(s: If, condition: Expr) -> bool:
    """Whether a condition depends on a name that its own branch binds: names are bound once."""
    inside = {v for inner in walk(s.then) for v in inner.binds()}
    return any(v in inside for v in ex.free_vars([condition]))


def _forget(known: dict[Key, Expr], memories: set[Memory], key: Key | None = None) -> None:
    """Drop what is known of some memories; of a store's memory keep what is surely apart."""
    for other in [k for k in known if k[0] in memories]:
        if key is None or not _apart(other[1], key[1]):
            del known[other]


def _apart(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Whether two subscripts differ by a constant somewhere."""
    for x, y in zip(a, b, strict=True):
        gap = _split(x), _split(y)
        if gap[0][0] is gap[1][0] and gap[0][1] != gap[1][1]:
            return True
    return False


def _split(e: Expr) -> tuple[Expr | None, int]:
    if e.op is Op.CONST:
        return None, int(e.attr)
    if e.op is Op.ADD and e.args[1].op is Op.CONST:
        return e.args[0], int(e.args[1].attr)
    if e.op is Op.SUB and e.args[1].op is Op.CONST:
        return e.args[0], -int(e.args[1].attr)
    return e, 0


