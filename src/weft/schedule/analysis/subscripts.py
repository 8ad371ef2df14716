"""What subscripts are: polynomials over loop variables and sizes, and what is known of those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from weft.ir import stmt as st
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr, free_vars, index, show
from weft.ir.op import Op
from weft.ir.stmt import Body, Kernel, Memory, Stmt
from weft.ir.traverse import walk
from weft.rules.polynomial import Monomial, Poly, add

ONE: Final[Monomial] = ()
_ACCESSES: Final = (st.Load, st.Store, st.Atomic)


def multiply(a: Poly, b: Poly) -> Poly:
    """Return ``a * b``."""
    out: Poly = {}
    for ka, va in a.items():
        for kb, vb in b.items():
            key = tuple(sorted(ka + kb, key=id)) if ka and kb else ka or kb
            total = out.get(key, 0) + va * vb
            if total:
                out[key] = total
            else:
                out.pop(key, None)
    return out


class Access:
    """One read or write of a memory, with its subscripts."""

    __slots__ = ("index", "memory", "stmt", "write")

    def __init__(self, stmt: st.Load | st.Store | st.Atomic) -> None:
        self.stmt: Stmt = stmt
        self.memory, self.index = stmt.memory, stmt.index
        self.write = not isinstance(stmt, st.Load)

    def __repr__(self) -> str:
        what = "store" if self.write else "load"
        return f"{what} {self.memory.name}[{', '.join(map(show, self.index))}]"


def _used_elsewhere(point: Expr, inside: set[Expr], users: Iterable[Expr]) -> bool:
    """Whether expressions use some variables otherwise than through a point."""
    seen, stack = {point}, list(users)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        if e in inside:
            return True
        seen.add(e)
        stack.extend(e.args)
    return False


class _Facts:
    """What a `Space` knows of its kernel, and what was worked out so far: see there."""

    def __init__(self, kernel: Kernel, overlaps: bool) -> None:
        self.extents: dict[Expr, Expr] = {}
        self.values: dict[Expr, Expr] = {}
        self.points: dict[Expr, Expr] = {}
        self.polys: dict[tuple[Expr, bool], Poly] = {}
        self.symbols: dict[Expr, frozenset[Expr]] = {}
        self.ranges: Ranges | None = None
        clamped = False
        for stmt in walk(kernel.body):
            if isinstance(stmt, st.Let):
                self.values[stmt.var] = stmt.value
            elif isinstance(stmt, st.For):
                self.extents[stmt.var] = stmt.extent
            elif isinstance(stmt, st.Store):
                clamped = clamped or (overlaps and bool(_clamped(stmt.index)))
            elif isinstance(stmt, st.Reduce):
                for axis in stmt.axes:
                    self.extents[axis.var] = axis.extent
        if clamped:  # else there is none
            self._find_points(kernel)

    def _find_points(self, kernel: Kernel) -> None:
        """Recognise the points of overlapping splits that are used in no other way.

        What is written twice may be read by other nests of the kernel, which begin when all of it
        is written, but not beside the writes.
        """
        written: dict[Expr, set[tuple[int, Memory]]] = {}
        extents: dict[Expr, Expr] = {}
        read: set[tuple[int, Memory]] = set()
        bound: set[Expr] = set()
        used: dict[Expr, None] = {}
        for nest, stmt in _by_nest(kernel.body):
            bound.update(stmt.binds())
            used.update(dict.fromkeys(stmt.exprs()))
            if isinstance(stmt, st.Load):
                read.add((nest, stmt.memory))
            elif isinstance(stmt, st.Store):
                for point, extent in _clamped(stmt.index):
                    written.setdefault(point, set()).add((nest, stmt.memory))
                    extents[point] = extent
        for point, memories in written.items():
            free = free_vars([point])
            inside = free & self.extents.keys()
            if memories & read or not inside or (free - inside) & bound:
                continue
            if free_vars([extents[point]]) & inside or _used_elsewhere(point, inside, used):
                continue
            self.points.update(dict.fromkeys(inside, point))
            self.extents[point] = extents[point]
            self.symbols[point] = frozenset((point,))


# A strategy asks many questions about one kernel before it takes the next step.
_facts: Final = lru_cache(maxsize=8)(_Facts)


class Space:
    """What the loops of one kernel say about its variables.

    Attributes
    ----------
    extents : dict
        Number of iterations by loop variable.
    values : dict
        What each LET binds.
    ranges : Ranges
        Interval of any index expression.
    failures : int
        How many systems of subscripts were found to have a solution, or too much work.
    points : dict
        The one expression through which a variable is used, for the loops of a split whose last
        round overlaps or repeats its last iteration: ``min(i.o*f, n - f) + i.i`` stands for i, or
        ``min(i.o*f + i.i, n - 1)``. Iterations with the same point are the same work, so only
        different points can conflict.
    """

    _overlaps = True  # whether the points of overlapping splits are recognised

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        facts = _facts(kernel, self._overlaps)
        self.extents, self.values, self.points = facts.extents, facts.values, facts.points
        self._facts, self._polys, self._symbols = facts, facts.polys, facts.symbols
        self.failures = 0

    def canonical(self, variable: Expr) -> Expr:
        """Return the point through which a variable is used, or the variable itself."""
        return self.points.get(variable, variable)

    @property
    def ranges(self) -> Ranges:
        """Interval of any index expression."""
        if self._facts.ranges is None:
            bare = Ranges()
            env: dict[Expr, tuple[int, int]] = {}
            for var, extent in self.extents.items():  # outer loops come first
                if var.op is not Op.VAR:
                    continue
                env[var] = (0, max(bare.of(extent).hi - 1, 0))
                bare = Ranges(env)
            self._facts.ranges = bare
        return self._facts.ranges

    def poly(self, e: Expr, expand: bool = False) -> Poly:
        """Return an integer expression as a polynomial; what is not + - * is an atom.

        With `expand`, ``x % c`` becomes ``x - c*(x // c)``.
        """
        key = (e, expand)
        found = self._polys.get(key)
        if found is None:
            found = self._polys[key] = self._poly(e, expand)
        return found

    def _poly(self, e: Expr, expand: bool) -> Poly:
        # Subscripts are shallow; a deep one is an atom, so recursion is bounded by the depth cap.
        if _deep(e) or e in self.extents:
            return {(e,): 1}
        op = e.op
        if op is Op.CONST:
            return {ONE: int(e.attr)} if e.attr else {}
        if op is Op.VAR:
            value = self.values.get(e)
            if value is not None and value.dtype.is_integer and not _deep(value):
                return self.poly(value, expand)
            return {(e,): 1}
        if op is Op.ADD:
            return add(self.poly(e.args[0], expand), self.poly(e.args[1], expand))
        if op is Op.SUB:
            return add(self.poly(e.args[0], expand), self.poly(e.args[1], expand), -1)
        if op is Op.NEG:
            return add({}, self.poly(e.args[0], expand), -1)
        if op is Op.MUL:
            return multiply(self.poly(e.args[0], expand), self.poly(e.args[1], expand))
        if expand and op is Op.MOD and e.args[1].op is Op.CONST and e.args[1].attr > 0:
            quotient = e.args[0] // e.args[1]
            return add(self.poly(e.args[0], expand), self.poly(quotient, expand), -e.args[1].attr)
        return {(e,): 1}

    def symbols(self, e: Expr) -> frozenset[Expr]:
        """Return the variables below `e`, names bound by LET resolved to what they hold."""
        found = self._symbols.get(e)
        if found is None:
            if e.op is Op.VAR:
                value = self.values.get(e)
                found = frozenset((e,)) if value is None else self.symbols(value)
            elif not e.args:
                found = frozenset()
            else:
                found = frozenset(_leaves(e, self.values))
            self._symbols[e] = found
        return found

    def stride(self, e: Expr, var: Expr) -> int | None:
        """Return by how much `e` grows per step of `var`; None if it is not a constant."""
        total = 0
        for monomial, coefficient in self.poly(e).items():
            if monomial == (var,):
                total += coefficient
            elif any(var in self.symbols(atom) for atom in monomial):
                return None
        return total

    def within(self, e: Expr, size: Expr) -> bool:
        """Whether an index is proved to lie in ``[0, size)``, whatever the symbolic sizes are."""
        span = self.ranges.of(e)
        if span.lo < 0:
            return False
        if span.hi < self.ranges.of(size).lo:
            return True
        ends = limits(self, self.poly(e))
        return ends is not None and nonnegative(
            self, add(add(self.poly(size), ends[1], -1), {ONE: 1}, -1))

    def flat(self, memory: Memory, subscript: tuple[Expr, ...]) -> Expr:
        """Return the row-major element offset of a subscript."""
        offset = subscript[0] if subscript else index(0)
        for extent, i in zip(memory.shape[1:], subscript[1:], strict=True):
            offset = offset * extent + i
        return offset


class Linear(Space):
    """A space in which overlapping splits stay what they are: a start and an offset."""

    _overlaps = False


def _by_nest(body: st.Body) -> Iterator[tuple[int, st.Stmt]]:
    """Return all statements, each with the number of the outermost one that it is part of."""
    for number, nest in enumerate(body):
        for stmt in walk((nest,)):
            yield number, stmt


def _clamped(subscript: tuple[Expr, ...]) -> set[tuple[Expr, Expr]]:
    """Return the points ``min(o*f, n - f) + i`` and ``min(o*f + i, n - 1)`` with their n."""
    out: set[tuple[Expr, Expr]] = set()
    stack = list(subscript)
    while stack:
        e = stack.pop()
        if e.op is Op.ADD and e.args[0].op is Op.MIN:
            start, end = e.args[0].args
            if _is_multiple(start):
                out.add((e, end + start.args[1]))
                continue
        if e.op is Op.MIN and e.args[0].op is Op.ADD and _is_multiple(e.args[0].args[0]):
            out.add((e, e.args[1] + 1))
            continue
        stack.extend(e.args)
    return out


def _is_multiple(e: Expr) -> bool:
    return e.op is Op.MUL and e.args[1].op is Op.CONST


def _deep(e: Expr, limit: int = 60) -> bool:
    """Whether an expression is too deep to be worth analysing."""
    level = [e]
    for _ in range(limit):
        level = list({a for x in level for a in x.args})
        if not level:
            return False
    return True


def _leaves(e: Expr, values: Mapping[Expr, Expr]) -> set[Expr]:
    out: set[Expr] = set()
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Op.VAR:
            value = values.get(node)
            if value is None:
                out.add(node)
            else:
                stack.append(value)
        else:
            stack.extend(node.args)
    return out


def bound_inside(body: Body) -> set[Expr]:
    """Return every name bound by the statements of a body, loop variables included."""
    out: set[Expr] = set()
    for stmt in walk(body):
        out.update(stmt.binds())
        if isinstance(stmt, st.Reduce):
            out.update(a.var for a in stmt.axes)
    return out


def accesses(body: Body) -> list[Access]:
    """Return the reads and writes of a body in program order."""
    return [Access(s) for s in walk(body) if isinstance(s, _ACCESSES)]


def private(body: Body) -> set[Memory]:
    """Return the memories allocated inside a body: each iteration has its own."""
    return {s.memory for s in walk(body) if isinstance(s, st.Alloc)}


def limits(space: Space, p: Poly) -> tuple[Poly, Poly] | None:
    """Return polynomials over sizes below and above `p`, whose loop variables run freely."""
    low: Poly = {}
    high: Poly = {}
    for monomial, coefficient in p.items():
        loops = [atom for atom in monomial if space.symbols(atom)]
        if len(loops) != 1:
            return None
        rest = tuple(atom for atom in monomial if atom is not loops[0])
        extent = space.extents.get(loops[0])
        if extent is not None and not space.symbols(extent):
            top = multiply({rest: 1}, add(space.poly(extent), {ONE: 1}, -1))
            bottom: Poly = {}
        else:
            span = space.ranges.of(loops[0])
            if span.hi - span.lo >= 1 << 62:
                return None
            top, bottom = {rest: span.hi}, {rest: span.lo}
        if coefficient < 0:
            top, bottom = bottom, top
        low = add(low, bottom, coefficient)
        high = add(high, top, coefficient)
    return low, high


def lower(space: Space, p: Poly) -> int | None:
    """Return a lower bound of a polynomial over sizes, None if there is none."""
    total = 0
    for monomial, coefficient in p.items():
        low = high = 1
        for atom in monomial:
            span = space.ranges.of(atom)
            if span.lo < 0 or span.hi >= 1 << 62:
                return None
            low, high = low * span.lo, high * span.hi
        total += coefficient * (low if coefficient > 0 else high)
    return total


def nonnegative(space: Space, p: Poly) -> bool:
    """Whether a polynomial over sizes is never below zero."""
    if all(key == ONE for key in p):
        return p.get(ONE, 0) > -1
    low = lower(space, p)
    return low is not None and low >= 0
