"""What each thread of a launch reads and writes, as sums over the indices of threads and loops.

The sizes and integers of a launch are known by then, so every subscript becomes a weighted sum
(`weft.schedule.affine.Linear`) of ``block.*``, ``thread.*``, loop counters and, for what is none
of these, variables of which only an interval is known. The conditions that an access stands under
are inequalities over the same variables. ``x // c`` and ``x % c`` bring a variable for the
quotient, with ``0 <= x - c*q < c``; a register that a loop counts up is its first value and a
multiple of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Ranges
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
from weft.ir.traverse import walk
from weft.schedule.affine import Constraint, Interval, Linear, solve

__all__ = ["Footprint", "Touch", "footprint", "sets_after_reading", "sets_all",
           "shape_variables"]

_MOST_TURNS: Final = 1 << 40  # of a while loop, for intervals
_FAR: Final = 1 << 61  # what a counter does not come to in that many turns
_PRIVATE: Final = ("local", "register")
_NEVER: Final = Constraint({}, 1, 1)  # 0 == 1
_NEGATED: Final = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ}


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


class _Reader:
    """Goes through a kernel once, with what is known of names, registers and conditions."""

    def __init__(self, kernel: Kernel, values: Mapping[str, int]) -> None:
        self.params = set(kernel.params)
        self.values = values
        self.touches: list[Touch] = []
        self.failing: list[Stmt] = []
        self.boxes: dict[Hashable, Interval] = {}
        self.meanings: dict[Hashable, tuple[Constraint, ...]] = {}
        self.facts: list[Constraint] = []
        self.names: dict[Expr, Linear] = {}
        self.lets: dict[Expr, Expr] = {}
        self.cells: dict[Memory, Linear] = {}
        # What is true if a register of type bool holds true, and if it holds false; of names, too.
        self.flags: dict[Memory, _Told] = {}
        self.told: dict[Expr, _Told] = {}
        self.counted = 0
        self.loops: list[Expr] = []
        self.loose = 0  # how many conditions and loops around say more than the facts
        self.env: dict[Expr, tuple[int, int]] = {}
        self.known: dict[Expr, Linear] = {}
        for e in _variables(kernel):
            value = values.get(e.attr.name)
            if value is not None:
                self.env[e] = (value, value)

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
        ends: list[tuple[tuple[Constraint, ...], dict[Memory, _Told]]] = []
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

    # --- conditions

    def assume(self, condition: Expr, truth: bool) -> None:
        """Note what a condition says about linear forms."""
        self.facts.extend(self.says(condition, truth))

    def says(self, condition: Expr, truth: bool) -> tuple[Constraint, ...]:
        """Return what is true of linear forms if a condition holds, or if it does not."""
        out: list[Constraint] = []
        stack = [(condition, truth)]
        while stack:
            e, holds = stack.pop()
            if e.op is Op.VAR and e in self.lets:
                stack.append((self.lets[e], holds))
            elif e.op is Op.NOT and e.dtype.is_bool:
                stack.append((e.args[0], not holds))
            elif e.dtype.is_bool and ((e.op is Op.AND and holds) or (e.op is Op.OR and not holds)):
                stack.extend((a, holds) for a in e.args)
            elif e.op is Op.CONST:
                out.extend(() if bool(e.attr) is holds else (_NEVER,))
            elif e in self.told:
                out.extend(self.told[e][0 if holds else 1])
            else:
                out.extend(self._compared(e, holds))
        return tuple(out)

    def _compared(self, e: Expr, holds: bool) -> list[Constraint]:
        op = e.op if holds else _NEGATED.get(e.op)
        if op not in _NEGATED or not e.args[0].dtype.is_integer:
            return []
        a, b = map(self.linear, e.args)
        if not holds and op in (Op.LT, Op.LE):
            a, b = b, a
        gap = a.plus(b, -1)
        if op is Op.NE:
            return []
        if op is Op.EQ:
            return [*self._at_most(gap), *self._at_most(gap.times(-1))]
        return self._at_most(gap.plus(Linear({}, 1)) if op is Op.LT else gap)

    def is_told(self, condition: Expr, truth: bool) -> bool:
        """Whether a condition is no more than what `says` returns."""
        stack = [(condition, truth)]
        while stack:
            e, holds = stack.pop()
            if e.op is Op.VAR and e in self.lets:
                stack.append((self.lets[e], holds))
            elif e.op is Op.NOT and e.dtype.is_bool:
                stack.append((e.args[0], not holds))
            elif e.dtype.is_bool and ((e.op is Op.AND and holds) or (e.op is Op.OR and not holds)):
                stack.extend((a, holds) for a in e.args)
            elif (e.op if holds else _NEGATED.get(e.op)) not in (Op.LT, Op.LE, Op.EQ) or not (
                e.args[0].dtype.is_integer
            ):
                return False
        return True

    def below(self, a: Linear, b: Linear) -> None:
        """Note that one form is less than another one."""
        self.facts.extend(self._at_most(a.plus(b, -1).plus(Linear({}, 1))))

    def _at_most(self, form: Linear) -> list[Constraint]:
        """Return constraints for ``form <= 0``; a quotient is also multiplied away."""
        out = [self.bounded(form)]
        for key, weight in form.terms.items():
            if isinstance(key, _Quotient) and weight in (1, -1):
                rest = Linear({k: w for k, w in form.terms.items() if k != key}, form.constant)
                x, c = key.linear(), key.divisor
                if weight < 0:  # rest <= x // c
                    out.append(self.bounded(rest.times(c).plus(x, -1)))
                else:  # x // c <= -rest
                    out.append(self.bounded(x.plus(rest, c).plus(Linear({}, 1 - c))))
        return out

    def bounded(self, form: Linear) -> Constraint:
        """Return ``form <= 0`` with the lower limit that the intervals give."""
        low = form.interval(self.boxes)[0]
        return Constraint(form.terms, low - form.constant, -form.constant)

    def holds(self, condition: Expr) -> bool:
        """Whether a condition is proved where it stands."""
        stack = [(condition, True)]
        while stack:
            e, wanted = stack.pop()
            if e.op is Op.VAR and e in self.lets:
                stack.append((self.lets[e], wanted))
            elif e.op is Op.CONST:
                if bool(e.attr) is not wanted:
                    return False
            elif e.op is Op.NOT and e.dtype.is_bool:
                stack.append((e.args[0], not wanted))
            elif e.dtype.is_bool and ((e.op is Op.AND and wanted)
                                      or (e.op is Op.OR and not wanted)):
                stack.extend((a, wanted) for a in e.args)
            elif not self._impossible(e, not wanted):
                return False
        return True

    def _impossible(self, e: Expr, holds: bool) -> bool:
        if e.args and (e.op if holds else _NEGATED.get(e.op)) is Op.NE:  # either less or greater
            a, b = e.args
            return (e.args[0].dtype.is_integer and self._impossible(a.lt(b), True)
                    and self._impossible(b.lt(a), True))
        rows = list(self.told[e][0 if holds else 1]) if e in self.told else self._compared(e, holds)
        if not rows:
            return False
        return solve(self.boxes, [*rows, *self.facts, *self.explained([*rows, *self.facts])]
                     ) is None

    def explained(self, rows: list[Constraint]) -> Iterator[Constraint]:
        """Yield what the quotients in some constraints mean."""
        return explained(self.meanings, rows)

    # --- expressions

    def range_of(self, e: Expr) -> Interval:
        """Return the interval of an integer expression."""
        form = self.linear(e)
        low, high = form.interval(self.boxes)
        found = Ranges(self.env).of(ex.substitute([e], self.lets)[0])
        return max(low, found.lo), min(high, found.hi)

    def opaque(self, key: Hashable, d: dt.DType, limits: Interval | None = None) -> Linear:
        """Return a form for a value of which only the interval is known."""
        whole = int(d.min), int(d.max)
        low, high = limits or whole
        self.boxes[key] = max(low, whole[0]), min(high, whole[1])
        return Linear({key: 1}, 0)

    def linear(self, e: Expr) -> Linear:
        """Return an integer expression as a weighted sum."""
        found = self.known.get(e)
        if found is not None:
            return found
        local: dict[Expr, Linear] = {}
        for node in ex.toposort([e]):
            if node in self.known:
                local[node] = self.known[node]
            elif node.dtype.is_integer:
                form = self._form(node, local)
                if form is None:
                    span = Ranges(self.env).of(node)
                    form = self.opaque(node, node.dtype, (span.lo, span.hi))
                local[node] = form
        if all(v.op is not Op.VAR for v in ex.toposort([e])):
            self.known[e] = local[e]
        return local[e]

    def _form(self, e: Expr, local: Mapping[Expr, Linear]) -> Linear | None:
        op = e.op
        if op is Op.CONST:
            return Linear({}, int(e.attr))
        if op is Op.VARIABLE:
            value = self.values.get(e.attr.name)
            return None if value is None else Linear({}, value)
        if op is Op.VAR:
            return self.names.get(e)
        if not e.args or any(a not in local for a in e.args):
            return self._chosen(e, local)
        found = self._combined(e, [local[a] for a in e.args])
        if found is None:
            return None
        low, high = found.interval(self.boxes)
        return found if int(e.dtype.min) <= low and high <= int(e.dtype.max) else None

    def _chosen(self, e: Expr, local: Mapping[Expr, Linear]) -> Linear | None:
        """Return the side of a choice whose condition is known."""
        if e.op is not Op.WHERE:
            return None
        found = Ranges(self.env).of(ex.substitute([e.args[0]], self.lets)[0])
        return local.get(e.args[1 if found.lo else 2]) if found.is_single else None

    def _combined(self, e: Expr, args: list[Linear]) -> Linear | None:
        op = e.op
        a = args[0]
        if op is Op.CAST:
            return a
        if op is Op.NEG:
            return a.times(-1)
        if len(args) != 2:
            return None
        b = args[1]
        if op is Op.ADD:
            return a.plus(b)
        if op is Op.SUB:
            return a.plus(b, -1)
        if op is Op.MUL:
            if not a.terms:
                a, b = b, a
            return None if b.terms else a.times(b.constant)
        return None if b.terms else self._by_constant(op, a, b.constant)

    def _by_constant(self, op: object, a: Linear, c: int) -> Linear | None:
        low = a.interval(self.boxes)[0]
        if op is Op.FLOORDIV and c > 0:
            return self.quotient(a, c)
        if (op is Op.MOD or (op is Op.FMOD and low >= 0)) and c > 0:
            return a.plus(self.quotient(a, c), -c)
        if op is Op.SHL and 0 <= c < 62:
            return a.times(1 << c)
        if op is Op.SHR and 0 <= c < 62:
            return self.quotient(a, 1 << c)
        if op is Op.AND and c >= 0 and not c & (c + 1):
            return a.plus(self.quotient(a, c + 1), -(c + 1))
        if op is Op.MAX and low >= c:
            return a
        if op is Op.MIN and a.interval(self.boxes)[1] <= c:
            return a
        return None

    def quotient(self, x: Linear, c: int) -> Linear:
        """Return ``x // c``, rounded down, for a positive number."""
        low, high = x.interval(self.boxes)
        first, last = low // c, high // c
        if first == last:
            return Linear({}, first)
        if all(w % c == 0 for w in x.terms.values()):
            return Linear({k: w // c for k, w in x.terms.items()}, x.constant // c)
        key = _Quotient(frozenset(x.terms.items()), x.constant, c)
        self.boxes[key] = (first, last)
        terms = {**x.terms, key: -c}
        self.meanings[key] = (Constraint(terms, -x.constant, c - 1 - x.constant),)
        return Linear({key: 1}, 0)


class _Quotient(Record):
    """The variable for ``x // divisor``."""

    terms: frozenset[tuple[Hashable, int]]
    constant: int
    divisor: int

    def linear(self) -> Linear:
        return Linear(dict(self.terms), self.constant)


_Told = tuple[tuple[Constraint, ...], tuple[Constraint, ...]]


def _either(ends: list[tuple[tuple[Constraint, ...], dict[Memory, _Told]]], memory: Memory,
            which: int) -> tuple[Constraint, ...]:  # fmt: skip
    """Return what is true of a register after two branches: something if one is impossible."""
    found = [(*here, *flags[memory][which]) for here, flags in ends
             if _NEVER not in flags[memory][which]]
    return (_NEVER,) if not found else found[0] if len(found) == 1 else ()


class _Trial:
    """Lets a loop be read once to see how it counts, and takes back what that noted."""

    def __init__(self, reader: _Reader) -> None:
        self.touches, self.failing = len(reader.touches), len(reader.failing)
        self.cells, self.names = dict(reader.cells), dict(reader.names)
        self.flags = dict(reader.flags)

    def undo(self, reader: _Reader) -> None:
        del reader.touches[self.touches:], reader.failing[self.failing:]
        reader.cells, reader.names, reader.flags = self.cells, self.names, self.flags


def explained(meanings: Mapping[Hashable, tuple[Constraint, ...]],
              rows: list[Constraint]) -> Iterator[Constraint]:  # fmt: skip
    """Yield what the quotients in some constraints mean, and the quotients in those."""
    stack = [k for row in rows for k in row.terms]
    seen: set[Hashable] = set()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        for row in meanings.get(key, ()):
            yield row
            stack.extend(row.terms)


def _variables(kernel: Kernel) -> set[Expr]:
    exprs = [e for s in walk(kernel.body) for e in s.exprs()]
    return ex.variables([*exprs, *(n for m in kernel.params for n in m.shape)])


_STATEMENTS: Final[dict[type[Stmt], Callable[[_Reader, Any], None]]] = {
    Let: _Reader.let, Load: _Reader.touch, Store: _Reader.touch, Atomic: _Reader.touch,
    Assert: _Reader.check, If: _Reader.branch, For: _Reader.loop, While: _Reader.turning,
}  # fmt: skip
