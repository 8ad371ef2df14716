"""What each thread of a launch reads and writes, as sums over the indices of threads and loops.

The sizes and integers of a launch are known by then, so every subscript becomes a weighted sum
(`weft.schedule.analysis.affine.Linear`) of ``block.*``, ``thread.*``, loop counters and, for what
is none of these, variables of which only an interval is known. The conditions that an access stands
under are inequalities over the same variables. ``x // c`` and ``x % c`` bring a variable for the
quotient, with ``0 <= x - c*q < c``; a register that a loop counts up is its first value and a
multiple of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import (
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Body,
    Fence,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Print,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import variables, walk
from weft.schedule.analysis.affine import Constraint, Interval, Linear
from weft.schedule.launch_fusion.value_ranges import NEVER, Known, Told

__all__ = ["Footprint", "Touch", "footprint", "sets_after_reading", "sets_all",
           "shape_variables"]

_MOST_TURNS: Final = 1 << 40  # of a while loop, for intervals
_FAR: Final = 1 << 61  # what a counter does not come to in that many turns
_PRIVATE: Final = ("local", "register")


class Touch(Record):
    """One statement that reads or writes a memory, as one thread carries it out.

    Attributes
    ----------
    stmt : Stmt
        The load, store or atomic operation.
    memory : Memory
        A parameter of the kernel.
    index : tuple of Linear
        The subscripts.
    facts : tuple of Constraint
        What is true where it is reached.
    always : bool
        Whether every thread for which the facts are true reaches it.
    loops : tuple of Expr
        The counters of the loops around it.
    """

    stmt: Stmt
    memory: Memory
    index: tuple[Linear, ...]
    facts: tuple[Constraint, ...]
    always: bool = False
    loops: tuple[Expr, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it changes the element."""
        return not isinstance(self.stmt, Load)


class Footprint(Record):
    """What a launch does with memory that outlives it.

    Attributes
    ----------
    touches : tuple of Touch
        Its accesses to parameters, in the order of the program.
    boxes : dict
        Interval of each variable of the subscripts and facts.
    meanings : dict
        Constraints that say what a variable stands for (quotients).
    failing : tuple of Stmt
        Assertions that were not proved.
    printing, fences, grid_barriers : tuple of Stmt
        Statements of these kinds.
    """

    touches: tuple[Touch, ...]
    boxes: Mapping[Hashable, Interval]
    meanings: Mapping[Hashable, tuple[Constraint, ...]]
    failing: tuple[Stmt, ...]
    printing: tuple[Stmt, ...]
    fences: tuple[Stmt, ...]
    grid_barriers: tuple[Stmt, ...]


def footprint(kernel: Kernel, values: Mapping[str, int]) -> Footprint:
    """Return what a launch of a kernel reads and writes.

    Parameters
    ----------
    kernel : Kernel
        As the front end made it, with loops over blocks and threads.
    values : dict of str to int
        Value of each variable that subscripts and conditions depend on.
    """
    reader = _Reader(kernel, values)
    reader.body(kernel.body)
    kinds = {kind: tuple(s for s in walk(kernel.body) if isinstance(s, kind))
             for kind in (Print, Fence)}
    grid = tuple(s for s in walk(kernel.body) if isinstance(s, Barrier) and s.scope == "grid")
    return Footprint(tuple(reader.touches), reader.boxes, reader.meanings, tuple(reader.failing),
                     kinds[Print], kinds[Fence], grid)


def sets_all(made: Footprint, memory: Memory) -> bool:
    """Whether a launch stores every element of a memory and reads none, as far as is proved.

    One store is looked for whose subscripts go through all indices, whatever other ones do.
    """
    touches = [t for t in made.touches if t.memory is memory]
    return all(isinstance(t.stmt, Store) for t in touches) and any(
        t.always and t.stmt.mask is None and _is_onto(made, t)
        for t in touches if isinstance(t.stmt, Store)
    )


def sets_after_reading(made: Footprint, memory: Memory) -> bool:
    """Whether a launch stores every element of a memory, after all that it reads there.

    That no other thread reads what one stores is not asked.
    """
    touches = [t for t in made.touches if t.memory is memory]
    stores = [t for t in touches if isinstance(t.stmt, Store)]
    loads = touches[: len(touches) - len(stores)]
    return (all(isinstance(t.stmt, Load) for t in loads) and all(t.always for t in stores)
            and any(isinstance(t.stmt, Store) and t.stmt.mask is None and _is_onto(made, t)
                    for t in stores))


def _is_onto(made: Footprint, touch: Touch) -> bool:
    """Whether the subscripts of a store take all values, under its conditions."""
    limits: dict[frozenset[tuple[Hashable, int]], int] = {}
    seen: set[Hashable] = set()
    for form, size in zip(touch.index, touch.memory.shape, strict=True):
        if size.op is not Op.CONST or not seen.isdisjoint(form.terms) or form.constant:
            return False
        seen.update(form.terms)
        last = int(size.attr) - 1
        reached = 0  # so far from 0 on without a gap
        for key, weight in sorted(form.terms.items(), key=lambda item: item[1]):
            low, high = made.boxes[key]
            axis = isinstance(key, str) and low == 0
            if not axis or not 0 < weight <= reached + 1:
                return False
            reached += weight * high
        if reached < last:
            return False
        limits[frozenset(form.terms.items())] = last
    for row in touch.facts:
        low, high = Linear(row.terms, 0).interval(made.boxes)
        bound = limits.get(frozenset(row.terms.items()), high)
        if low < row.low or min(high, bound) > row.high:
            return False
    return True


def shape_variables(kernel: Kernel) -> frozenset[str]:
    """Return the names of the variables that subscripts, conditions and loops depend on."""
    lets = {s.var: s.value for s in walk(kernel.body) if isinstance(s, Let)}
    roots: list[Expr] = [n for m in kernel.params for n in m.shape]
    for s in walk(kernel.body):
        if isinstance(s, Load | Store | Atomic):
            roots.extend(s.index)
            if isinstance(s, Store) and not s.memory.shape and s.value.dtype.is_integer:
                roots.append(s.value)  # of a register that may count
        elif isinstance(s, Assert):
            roots.append(s.condition)
        elif isinstance(s, For | If | While | Alloc):
            roots.extend(s.exprs())
    found: set[str] = set()
    seen: set[Expr] = set()
    while roots:
        fresh = [e for e in ex.toposort(roots) if e not in seen]
        seen.update(fresh)
        found.update(e.attr.name for e in fresh if e.op is Op.VARIABLE)
        roots = [lets[e] for e in fresh if e in lets]
    return frozenset(found)


class _Reader(Known):
    """Goes through a kernel once, with what is known of names, registers and conditions."""

    def __init__(self, kernel: Kernel, values: Mapping[str, int]) -> None:
        super().__init__(values, variables(kernel))
        self.params = set(kernel.params)
        self.touches: list[Touch] = []
        self.failing: list[Stmt] = []
        self.cells: dict[Memory, Linear] = {}
        # What is true if a register of type bool holds true, and if it holds false.
        self.flags: dict[Memory, Told] = {}
        self.counted = 0
        self.loops: list[Expr] = []
        self.loose = 0  # how many conditions and loops around say more than the facts

    # --- statements

    def body(self, body: Body) -> None:
        depth = len(self.facts)
        for s in body:
            _STATEMENTS.get(type(s), _Reader.other)(self, s)
        del self.facts[depth:]

    def other(self, s: Stmt) -> None:
        for inner in s.bodies():
            self.body(inner)

    def let(self, s: Let) -> None:
        self.lets[s.var] = s.value
        if s.value.dtype.is_integer:
            self.names[s.var] = self.linear(s.value)

    def touch(self, s: Load | Store | Atomic) -> None:
        if s.memory in self.params:
            index = tuple(map(self.linear, s.index))
            self.touches.append(Touch(s, s.memory, index, tuple(self.facts), not self.loose,
                                      tuple(self.loops)))
        if s.memory.shape or s.memory.scope not in _PRIVATE:
            return
        if s.memory.dtype.is_bool:
            if isinstance(s, Load) and s.mask is None:
                self.told[s.var] = self.flags.get(s.memory, ((), ()))
            elif isinstance(s, Store) and s.mask is None:
                self.flags[s.memory] = self.says(s.value, True), self.says(s.value, False)
            else:
                self.flags.pop(s.memory, None)
            return
        cell = s.memory.dtype.is_integer
        if isinstance(s, Load) and cell:
            value = self.cells.get(s.memory)
            if value is None or s.mask is not None:
                value = self.opaque(s.var, s.memory.dtype)
            if s.mask is None:
                self.cells[s.memory] = value
            self.names[s.var] = value
        elif isinstance(s, Store) and cell:
            self.cells.pop(s.memory, None)
            if s.mask is None:
                self.cells[s.memory] = self.linear(s.value)

    def check(self, s: Assert) -> None:
        if not self.holds(s.condition):
            self.failing.append(s)
        self.assume(s.condition, True)

    def branch(self, s: If) -> None:
        cells, flags = dict(self.cells), dict(self.flags)
        depth = len(self.facts)
        ends: list[tuple[tuple[Constraint, ...], dict[Memory, Told]]] = []
        for truth, body in ((True, s.then), (False, s.orelse)):
            self.cells, self.flags = dict(cells), dict(flags)
            self.assume(s.condition, truth)
            here = tuple(self.facts[depth:])
            exact = self.is_told(s.condition, truth)
            self.loose += not exact
            self.body(body)
            self.loose -= not exact
            ends.append((here, self.flags))
            del self.facts[depth:]
        self.cells, self.flags = cells, flags
        self.forget((*s.then, *s.orelse))
        for m in {i.memory for i in walk((s,)) if isinstance(i, Store) and i.memory.dtype.is_bool}:
            if all(m in known for _, known in ends):
                self.flags[m] = _either(ends, m, 0), _either(ends, m, 1)

    def forget(self, body: Body) -> None:
        """Take registers that a body changes for unknown."""
        for s in walk(body):
            if isinstance(s, Store | Atomic):
                self.cells.pop(s.memory, None)
                self.flags.pop(s.memory, None)

    def loop(self, s: For) -> None:
        thread = s.kind.startswith(("block.", "thread."))
        key: Hashable = s.kind if thread else s.var
        extent = s.extent
        high = max(self.range_of(extent)[1] - 1, 0)
        self.boxes[key] = (0, high)
        self.env[s.var] = (0, high)
        self.names[s.var] = Linear({key: 1}, 0)
        if not thread:
            self.forget(s.body)
        depth = len(self.facts)
        if not thread:
            if extent.op is Op.MAX and any(ex.is_const(a, 0) for a in extent.args):
                extent = next(a for a in extent.args if not ex.is_const(a, 0))
            # the body runs at all, so the counter is below the extent
            self.below(self.names[s.var], self.linear(extent))
        if thread:
            self.body(s.body)
        else:
            self.loose += 1
            self.loops.append(s.var)
            self.body(s.body)
            self.loops.pop()
            self.loose -= 1
        del self.facts[depth:]
        if not thread:
            self.forget(s.body)

    def turning(self, s: While) -> None:
        before = dict(self.cells)
        self.forget((*s.head, *s.body))
        flags = dict(self.flags)
        counting = self._counters(s, before)
        self.cells.update(counting)
        self._turn(s)
        self.cells, self.flags = before, flags
        self.forget((*s.head, *s.body))

    def _turn(self, s: While) -> None:
        depth = len(self.facts)
        # The names of the head are seen by the body, and so is what is true of them.
        for inner in s.head:
            _STATEMENTS.get(type(inner), _Reader.other)(self, inner)
        self.assume(s.condition, True)
        self.loose += 1
        self.body(s.body)
        self.loose -= 1
        del self.facts[depth:]

    def _counters(self, s: While, before: Mapping[Memory, Linear]) -> dict[Memory, Linear]:
        """Return registers to which each turn adds the same number, by the turn."""
        stored: dict[Memory, int] = {}
        for inner in walk((*s.head, *s.body)):
            if isinstance(inner, Store | Atomic):
                stored[inner.memory] = stored.get(inner.memory, 0) + 1
        cells = [m for m, n in stored.items() if n == 1 and m in before
                 and any(isinstance(i, Store) and i.memory is m for i in s.body)]
        if not cells:
            return {}
        trial = _Trial(self)
        start = {m: self.opaque((m, "start"), m.dtype, (-_FAR, _FAR)) for m in cells}
        self.cells.update(start)
        self._turn(s)
        steps = {m: self.cells[m].plus(start[m], -1) for m in cells if m in self.cells}
        trial.undo(self)
        self.counted += 1
        turn: Hashable = ("turn", self.counted)
        self.boxes[turn] = (0, _MOST_TURNS)
        found = {}
        for m, step in steps.items():
            if not step.terms:
                value = before[m].plus(Linear({turn: 1}, 0), step.constant)
                low, high = value.interval(self.boxes)
                if max(-_FAR, int(m.dtype.min)) <= low and high <= min(_FAR, int(m.dtype.max)):
                    found[m] = value
        return found


def _either(ends: list[tuple[tuple[Constraint, ...], dict[Memory, Told]]], memory: Memory,
            which: int) -> tuple[Constraint, ...]:  # fmt: skip
    """Return what is true of a register after two branches: something if one is impossible."""
    found = [(*here, *flags[memory][which]) for here, flags in ends
             if NEVER not in flags[memory][which]]
    return (NEVER,) if not found else found[0] if len(found) == 1 else ()


class _Trial:
    """Lets a loop be read once to see how it counts, and takes back what that noted."""

    def __init__(self, reader: _Reader) -> None:
        self.touches, self.failing = len(reader.touches), len(reader.failing)
        self.cells, self.names = dict(reader.cells), dict(reader.names)
        self.flags = dict(reader.flags)

    def undo(self, reader: _Reader) -> None:
        del reader.touches[self.touches:], reader.failing[self.failing:]
        reader.cells, reader.names, reader.flags = self.cells, self.names, self.flags


_STATEMENTS: Final[dict[type[Stmt], Callable[[_Reader, Any], None]]] = {
    Let: _Reader.let, Load: _Reader.touch, Store: _Reader.touch, Atomic: _Reader.touch,
    Assert: _Reader.check, If: _Reader.branch, For: _Reader.loop, While: _Reader.turning,
}  # fmt: skip
