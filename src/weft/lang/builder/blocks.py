"""Bodies of a program that is being built: what is open, and the jumps out of it.

Loop level has no jumps. A statement that is reached only where no jump was made before it stands in
a condition: in the other branch of the ``if`` whose branch jumped, or behind a flag that the jump
sets. Flags are made where a jump turns out to need them, when the body that they belong to closes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, For, If, Load, Memory, Stmt, Store, While
from weft.lang.builder.endings import ends
from weft.lang.builder.lowering import Lowering
from weft.lang.builder.places import Place
from weft.lang.core.emitter import conjuncts, negation

__all__ = ["FALLS", "JUMPS", "MAYBE", "Blocks", "Body", "Loop", "Return"]

FALLS: Final = 0  # what follows is reached,
MAYBE: Final = 1  # on some ways,
JUMPS: Final = 2  # never

Part = tuple[AbstractContextManager[Any], list[Stmt], Callable[[list[Stmt]], None]]


class Loop:
    """An open loop.

    Attributes
    ----------
    title : str
        How an error calls it.
    leaves : bool
        Whether it can be left early.
    ordered : bool
        Whether its turns follow each other.
    leave, skip : Memory or None
        Flags that its jumps set: that the loop is left, that the rest of the turn is skipped.
    returned : bool
        Whether the function is left from inside of it.
    """

    __slots__ = ("leave", "leaves", "ordered", "returned", "skip", "title")

    def __init__(self, title: str, leaves: bool, ordered: bool = False) -> None:
        self.title, self.leaves, self.ordered = title, leaves, ordered or leaves
        self.leave: Memory | None = None
        self.skip: Memory | None = None
        self.returned = False


class Return:
    """An open function.

    Attributes
    ----------
    name : str
        What it is called.
    flag : Memory or None
        Set by a return, where something that follows must know.
    dtype : DType or None
        Type of its result; None for none.
    cell : Memory or None
        Where a result is kept.
    device : bool
        Whether it is read in place of a call.
    """

    __slots__ = ("cell", "device", "dtype", "flag", "name")

    def __init__(self, name: str, dtype: DType | None = None, device: bool = False) -> None:
        self.name, self.dtype, self.device = name, dtype, device
        self.flag: Memory | None = None
        self.cell: Memory | None = None


class Body:
    """An open body.

    Attributes
    ----------
    place : Place
        Where it was opened.
    loop : Loop or None
        The loop that it is the turn of.
    frame : Return or None
        The function that it is the body of.
    maybe, dead : bool
        Whether some ways, or all, have left it by a jump.
    """

    __slots__ = ("dead", "frame", "loop", "maybe", "parts", "place", "reduces")

    def __init__(self, place: Place, loop: Loop | None = None, frame: Return | None = None) -> None:
        self.place, self.loop, self.frame = place, loop, frame
        self.maybe = self.dead = False
        self.reduces: Any = None
        self.parts: list[Part] = []

    @property
    def state(self) -> int:
        """Whether what follows it is reached."""
        return JUMPS if self.dead else MAYBE if self.maybe else FALLS


class _Branches:
    """An ``if`` that is closed and may still get an ``else``."""

    __slots__ = ("complete", "orelse", "other", "place", "state", "test", "then")

    def __init__(self, test: Expr, then: list[Stmt], state: int, place: Place) -> None:
        self.test, self.then, self.state, self.place = test, then, state, place
        self.orelse: list[Stmt] = []
        self.other = FALLS
        self.complete = False


class Blocks:
    """Opens and closes bodies."""

    def __init__(self, low: Lowering) -> None:
        self.low = low
        self.stack: list[Body] = []
        self.pending: _Branches | None = None

    @property
    def top(self) -> Body:
        """The innermost body."""
        return self.stack[-1]

    @property
    def frame(self) -> Return:
        """The innermost function."""
        return next(b.frame for b in reversed(self.stack) if b.frame is not None)

    def around(self, home: int) -> Loop | None:
        """Return a loop whose turns have no order between an outer body and this one."""
        return next((b.loop for b in self.stack[home:]
                     if b.loop is not None and not b.loop.ordered), None)

    def loops(self) -> list[Loop]:
        """Return the open loops of the innermost function, outermost first."""
        found: list[Loop] = []
        for body in reversed(self.stack):
            if body.loop is not None:
                found.append(body.loop)
            if body.frame is not None:
                break
        return found[::-1]

    # --- bodies

    def open(self, body: Body, facts: Any = ()) -> Body:
        """Begin a body, in which some conditions hold."""
        self.flush()
        self.stack.append(body)
        self._part(body, facts, lambda out: None)
        return body

    def close(self, body: Body) -> list[Stmt]:
        """End a body; return its statements."""
        self.flush()
        assert self.top is body
        while True:
            context, out, finish = body.parts.pop()
            context.__exit__(None, None, None)
            if not body.parts:
                break
            finish(out)
        self.stack.pop()
        return out

    def drop(self, body: Body) -> None:
        """End a body that an error has left, and those in it."""
        self.pending = None
        while self.stack and body in self.stack:
            inner = self.stack.pop()
            while inner.parts:
                inner.parts.pop()[0].__exit__(None, None, None)

    def _part(self, body: Body, facts: Any, finish: Callable[[list[Stmt]], None]) -> None:
        context = self.low.into(facts)
        body.parts.append((context, context.__enter__(), finish))

    # --- conditions

    def branch(self, test: Expr, body: Body) -> None:
        """Close the first branch of an ``if``."""
        then = self.close(body)
        self.pending = _Branches(test, then, body.state, body.place)

    def other(self, pending: _Branches, body: Body) -> None:
        """Close the second branch of an ``if``."""
        pending.orelse = self.close(body)
        pending.other = body.state
        pending.complete = True
        self.pending = pending

    def take_pending(self, complete: bool = True) -> _Branches | None:
        """Return the ``if`` that was closed last; on demand only one without an ``else``."""
        found = self.pending
        if found is None or (found.complete and not complete):
            return None
        self.pending = None
        return found

    def flush(self) -> None:
        """Write the ``if`` that was closed last: no ``else`` follows it."""
        p = self.take_pending()
        if p is None:
            return
        body, low = self.top, self.low
        ends = p.state == JUMPS, p.other == JUMPS
        if all(ends):
            self._write(p, [])
            self.kill(body)
        elif ends[0] and p.other == FALLS:
            body.maybe = True
            self._part(body, conjuncts(negation(p.test)), lambda out: self._write(p, out, False))
        elif ends[1] and p.state == FALLS:
            body.maybe = True
            self._part(body, conjuncts(p.test), lambda out: self._write(p, out, True))
        else:
            self._write(p, [])
            facts = negation(p.test) if ends[0] else p.test if ends[1] else None
            if facts is not None:
                low.facts[-1].update(conjuncts(facts))
            if max(p.state, p.other) != FALLS:
                self.guard(p.place)

    def _write(self, p: _Branches, rest: list[Stmt], in_then: bool = False) -> None:
        (p.then if in_then else p.orelse).extend(rest)
        if p.then or p.orelse:
            self.low.emit(If(p.test, tuple(p.then), tuple(p.orelse)), p.place)

    def guard(self, place: Place) -> None:
        """Let what follows run only where no jump was made."""
        self.top.maybe = True
        loops = self.loops()
        flag = self.skip_of(loops[-1]) if loops else self.flag_of(self.frame)
        skipped = self.low.get(flag, "skipped", place)
        reached = negation(skipped)

        def finish(out: list[Stmt]) -> None:
            if out:
                self.low.emit(If(reached, tuple(out)), place)

        self._part(self.top, (reached,), finish)

    # --- jumps

    def kill(self, body: Body) -> None:
        """Drop what follows in a body: it is never reached."""
        body.dead = True
        self._part(body, (), lambda out: None)

    def _flag(self, name: str) -> Memory:
        return Memory(self.low.name(f"{name}.cell"), dt.bool_, (), "register")

    def leave_of(self, loop: Loop) -> Memory:
        """Return the flag that a loop is left."""
        loop.leave = loop.leave or self._flag("leave")
        return loop.leave

    def skip_of(self, loop: Loop) -> Memory:
        """Return the flag that the rest of a turn is skipped."""
        loop.skip = loop.skip or self._flag("skip")
        return loop.skip

    def flag_of(self, frame: Return) -> Memory:
        """Return the flag that a function is left."""
        frame.flag = frame.flag or self._flag("returned")
        return frame.flag

    def jump(self, loops: list[Loop], leaves: bool, place: Place) -> None:
        """Set the flags of loops."""
        true = ex.const(True, dt.bool_)
        for loop in loops:
            if leaves:
                self.low.put(self.leave_of(loop), true, place)
            self.low.put(self.skip_of(loop), true, place)

    def leave_function(self, place: Place) -> None:
        """Set the flags of a return."""
        loops = self.loops()
        for loop in loops:
            loop.returned = True
        self.jump(loops, True, place)
        self.low.put(self.flag_of(self.frame), ex.const(True, dt.bool_), place)

    # --- loops

    def declare(self, memory: Memory | None, place: Place) -> None:
        """Write the declaration of a flag, if there is one, as not set."""
        if memory is not None:
            self.low.emit(Alloc(memory), place)
            self.low.put(memory, ex.const(False, dt.bool_), place)

    def turn(self, loop: Loop, body: list[Stmt], place: Place) -> list[Stmt]:
        """Return a turn that begins with its flag not set."""
        if loop.skip is None:
            return body
        reset = Store(loop.skip, (), ex.const(False, dt.bool_))
        return [self.low.placed(reset, place), *body]

    def count(self, loop: Loop, var: Expr, extent: Expr, kind: str, body: list[Stmt],
              place: Place) -> None:  # fmt: skip
        """Write a loop over a range; one that is left early counts by itself."""
        low = self.low
        body = self.turn(loop, body, place)
        self.declare(loop.leave, place)
        if loop.leaves:
            self.declare(loop.skip, place)
        elif loop.skip is not None:  # turns have no order, so each has a flag of its own
            body = [low.placed(Alloc(loop.skip), place), *body]
        if loop.leave is None:
            low.emit(For(var, extent, kind, tuple(body)), place)
        else:
            count = low.cell("count", dt.int64, place)
            low.put(count, ex.index(0), place)
            left = ex.var(low.name("left"), dt.bool_)
            head = (Load(var, count, ()), Load(left, loop.leave, ()))
            step = Store(count, (), var + 1)
            for stmt in (*head, step):
                low.placed(stmt, place)
            test = ex.binary(Op.AND, negation(left), var.lt(extent))
            low.emit(While(head, test, (step, *body)), place)
        self._behind(loop, place)

    def repeat(self, loop: Loop, head: list[Stmt], test: Expr, body: list[Stmt],
               place: Place) -> None:  # fmt: skip
        """Write a loop under a condition; once it is left the condition is not evaluated."""
        low, endless = self.low, not ends(head, test, body)
        body = self.turn(loop, body, place)
        self.declare(loop.leave, place)
        self.declare(loop.skip, place)
        if loop.leave is not None:
            left = ex.var(low.name("left"), dt.bool_)
            read = low.placed(Load(left, loop.leave, ()), place)
            over = low.placed(Store(loop.leave, (), ex.const(True, dt.bool_)), place)
            inner = low.placed(If(test, tuple(body), (over,)), place)
            low.emit(While((read,), negation(left), (*head, inner), endless), place)
        else:
            low.emit(While(tuple(head), test, tuple(body), endless), place)
        self._behind(loop, place)

    def _behind(self, loop: Loop, place: Place) -> None:
        if loop.returned:
            self.guard(place)

