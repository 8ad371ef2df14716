"""Dependence analysis: whether two iterations of a loop may touch the same element.

Every subscript is written as a polynomial over loop variables and sizes. Two accesses of one
memory, at least one of them a write, conflict between iterations ``x != y`` of a loop if the
subscripts can be equal. The proof that they cannot is a strided interval test: where

    c*x + r(p) + d == c*y + s(q) + e

and every value of ``s(q) - r(p) + (e - d)`` lies strictly between ``-|c|`` and ``|c|``, x equals y.
One dimension that proves it suffices; else the flattened subscript is tried, in which
``x % c`` is ``x - c*(x // c)``, so that quotient and remainder of one variable meet again. Whatever
is not understood counts as a conflict, unless the two can never be equal: see `apart`. Distinct
memories do not overlap. The test is the strong-SIV case of Allen & Kennedy, "Optimizing Compilers
for Modern Architectures", section 3.3, widened from equal remainders to bounded ones (Banerjee).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations_with_replacement
from math import gcd
from typing import TYPE_CHECKING, Final

from weft.imports import Late
from weft.ir import stmt as st
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr, free_vars, index, show
from weft.ir.op import Op
from weft.ir.stmt import Body, Kernel, Memory, Stmt
from weft.ir.traverse import walk

if TYPE_CHECKING:
    from weft.schedule import affine
else:
    affine = Late("weft.schedule.affine")

Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]

ONE: Final[Monomial] = ()
MAX_ACCESSES: Final = 256  # pairs grow with the square; beyond it a conflict is assumed
_MOST_FAILURES: Final = 32  # systems of a kernel with a solution, before no more are solved


def add(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """Return ``a + factor * b``."""
    out = dict(a)
    for key, value in b.items():
        total = out.get(key, 0) + factor * value
        if total:
            out[key] = total
        else:
            out.pop(key, None)
    return out


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


class Conflict:
    """A dependence that could not be ruled out between two iterations of a loop."""

    __slots__ = ("first", "reason", "second")

    def __init__(self, first: Access, second: Access, reason: str = "") -> None:
        self.first, self.second, self.reason = first, second, reason

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        kind = "output" if self.first.write and self.second.write else "flow"
        if self.first is self.second:
            return f"{kind} dependence of {self.first!r} on itself"
        return f"{kind} dependence between {self.first!r} and {self.second!r}"


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

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.extents: dict[Expr, Expr] = {}
        self.values: dict[Expr, Expr] = {}
        for stmt in walk(kernel.body):
            if isinstance(stmt, st.Let):
                self.values[stmt.var] = stmt.value
            elif isinstance(stmt, st.For):
                self.extents[stmt.var] = stmt.extent
            elif isinstance(stmt, st.Reduce):
                for axis in stmt.axes:
                    self.extents[axis.var] = axis.extent
        self._polys: dict[tuple[Expr, bool], Poly] = {}
        self._symbols: dict[Expr, frozenset[Expr]] = {}
        self._ranges: Ranges | None = None
        self.failures = 0
        self.points: dict[Expr, Expr] = {}
        self._find_points()

    def _find_points(self) -> None:
        """Recognise the points of overlapping splits that are used in no other way."""
        written: dict[Expr, set[Memory]] = {}
        extents: dict[Expr, Expr] = {}
        read: set[Memory] = set()
        bound: set[Expr] = set()
        used: dict[Expr, None] = {}
        for stmt in walk(self.kernel.body):
            bound.update(stmt.binds())
            used.update(dict.fromkeys(stmt.exprs()))
            if isinstance(stmt, st.Load):
                read.add(stmt.memory)
            elif isinstance(stmt, st.Store):
                for point, extent in _clamped(stmt.index):
                    written.setdefault(point, set()).add(stmt.memory)
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
            self._symbols[point] = frozenset((point,))

    def canonical(self, variable: Expr) -> Expr:
        """Return the point through which a variable is used, or the variable itself."""
        return self.points.get(variable, variable)

    @property
    def ranges(self) -> Ranges:
        """Interval of any index expression."""
        if self._ranges is None:
            bare = Ranges()
            env: dict[Expr, tuple[int, int]] = {}
            for var, extent in self.extents.items():  # outer loops come first
                if var.op is not Op.VAR:
                    continue
                env[var] = (0, max(bare.of(extent).hi - 1, 0))
                bare = Ranges(env)
            self._ranges = bare
        return self._ranges

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
        limits = _limits(self, self.poly(e))
        return limits is not None and _nonnegative(
            self, add(add(self.poly(size), limits[1], -1), {ONE: 1}, -1))

    def flat(self, memory: Memory, subscript: tuple[Expr, ...]) -> Expr:
        """Return the row-major element offset of a subscript."""
        offset = subscript[0] if subscript else index(0)
        for extent, i in zip(memory.shape[1:], subscript[1:], strict=True):
            offset = offset * extent + i
        return offset


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
    return [Access(s) for s in walk(body) if isinstance(s, st.Load | st.Store | st.Atomic)]


def private(body: Body) -> set[Memory]:
    """Return the memories allocated inside a body: each iteration has its own."""
    return {s.memory for s in walk(body) if isinstance(s, st.Alloc)}


def _separated(space: Space, a: Poly, b: Poly, var: Expr, inner: set[Expr]) -> bool:
    """Whether equal values of `a` (at x) and `b` (at y) imply x == y."""
    part_a, part_b = _split(space, a, var, inner), _split(space, b, var, inner)
    if part_a is None or part_b is None:
        return False
    (ca, ra, ia), (cb, rb, ib) = part_a, part_b
    delta = add(ib, ia, -1)
    if ca != cb or not ca or any(key for key in delta):
        return False
    shift = delta.get(ONE, 0)
    limits_a, limits_b = _limits(space, ra), _limits(space, rb)
    if limits_a is None or limits_b is None:
        return False
    (low_a, high_a), (low_b, high_b) = limits_a, limits_b
    least = _lower(space, ca)
    if least is not None and least < 0:
        ca = add({}, ca, -1)
    above = add(add(high_b, low_a, -1), {ONE: shift + 1} if shift != -1 else {})
    below = add(add(high_a, low_b, -1), {ONE: 1 - shift} if shift != 1 else {})
    return all(_nonnegative(space, add(ca, over, -1)) for over in (above, below))


def _split(space: Space, p: Poly, var: Expr, inner: set[Expr]) -> tuple[Poly, Poly, Poly] | None:
    """Split a polynomial in the factor of `var`, what varies inside, and the rest."""
    factor: Poly = {}
    varying: Poly = {}
    fixed: Poly = {}
    for monomial, coefficient in p.items():
        with_var = [atom for atom in monomial if atom is var or var in space.symbols(atom)]
        if with_var:
            rest = tuple(atom for atom in monomial if atom is not var)
            if len(with_var) > 1 or with_var[0] is not var or _varies(space, rest, inner):
                return None
            factor[rest] = coefficient
        elif _varies(space, monomial, inner):
            varying[monomial] = coefficient
        else:
            fixed[monomial] = coefficient
    return factor, varying, fixed


def _varies(space: Space, monomial: Monomial, inner: set[Expr]) -> bool:
    return any(not inner.isdisjoint(space.symbols(atom)) for atom in monomial)


def _limits(space: Space, p: Poly) -> tuple[Poly, Poly] | None:
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


def _lower(space: Space, p: Poly) -> int | None:
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


def _nonnegative(space: Space, p: Poly) -> bool:
    if all(key == ONE for key in p):
        return p.get(ONE, 0) > -1
    low = _lower(space, p)
    return low is not None and low >= 0


def same_iteration(space: Space, a: Access, b: Access, var: Expr, inner: set[Expr]) -> bool:
    """Whether `a` and `b` touch one element only within one iteration of `var`."""
    at = space.canonical(var)
    if at is not var:
        inner, var = inner - {at}, at
    pairs = [(space.poly(i), space.poly(j)) for i, j in zip(a.index, b.index, strict=True)]
    if any(_separated(space, p, q, var, inner) for p, q in pairs):
        return True
    divided = [(p, p) for p in _divided(space, a, b, inner | {var})]
    if any(_separated(space, p, q, var, inner) for p, q in divided):
        return True
    flat = [space.poly(space.flat(x.memory, x.index), expand=True) for x in (a, b)]
    return (_separated(space, flat[0], flat[1], var, inner)
            or _settled(space, [*pairs, *divided, (flat[0], flat[1])], var, inner)
            or _unsolvable(space, pairs, var, inner))


def _settled(space: Space, pairs: list[tuple[Poly, Poly]], var: Expr, inner: set[Expr]) -> bool:
    """Whether equal subscripts imply ``x == y`` by way of the loops inside.

    All dimensions are equal at once. So a loop inside that one of them tells apart, whatever the
    others do, is at the same place in both accesses, and no longer varies: in ``a[i + 3*j, j]`` the
    second one settles j, and then the first settles i; in ``a[i + 1000*j]`` with i below 1000, j is
    settled before i. Elimination by one variable at a time, as in the Delta test (Goff, Kennedy &
    Tseng, "Practical dependence testing", 1991).
    """
    used = {v for p, q in pairs for side in (p, q) for atoms in side for v in atoms}
    left = [v for v in used if v in inner and v in space.extents]
    varying = inner | {var}
    while left:
        known = [v for v in left if any(_separated(space, p, q, v, varying - {v})
                                        for p, q in pairs)]
        if not known:
            return False
        varying.difference_update(known)
        left = [v for v in left if v not in known]
        if any(_separated(space, p, q, var, varying - {var}) for p, q in pairs):
            return True
    return False


def _unsolvable(space: Space, pairs: list[tuple[Poly, Poly]], var: Expr,
                inner: set[Expr]) -> bool:  # fmt: skip
    """Whether no ``x != y`` makes subscripts equal that are linear in variables with bounds.

    The system itself is solved, as in ``a[6*i + 4*j]`` with i below 2 and j below 3, where no
    variable is settled alone.
    """
    inside: set[Expr] = {v for pair in pairs for p in pair for atoms in p for v in atoms}
    linear = all(len(atoms) < 2 for pair in pairs for p in pair for atoms in p)
    if not linear or space.failures >= _MOST_FAILURES:
        return False
    varying = inner | {var}
    boxes: dict[Hashable, tuple[int, int]] = {}
    for v in inside:
        moves = v is var or _varies(space, (v,), varying)
        if moves and v not in space.extents:  # it depends on what it is made of
            return False
        span = space.ranges.of(v)
        if span.hi - span.lo >= affine.UNBOUNDED:
            return False
        boxes["here", v] = (span.lo, span.hi)
        if moves:
            width = span.hi - span.lo
            boxes["on", v] = (-width, width)  # what the other one has more
    rows = []
    for p, q in pairs:
        terms = {}
        for v in inside:
            here, there = p.get((v,), 0), q.get((v,), 0)
            terms["here", v] = here - there
            if ("on", v) in boxes:
                terms["on", v] = -there
        shift = q.get(ONE, 0) - p.get(ONE, 0)
        rows.append(affine.Constraint({k: w for k, w in terms.items() if w}, shift, shift))
    if ("on", var) not in boxes:
        return False
    low, high = boxes["on", var]
    found = all(affine.solve({**boxes, ("on", var): box}, rows) is None
                for box in ((1, high), (low, -1)) if box[0] <= box[1])
    space.failures += not found
    return found


def _divided(space: Space, a: Access, b: Access, varying: set[Expr]) -> list[Poly]:
    """Return what is equal wherever two accesses meet, because its quotient and remainder are.

    ``a[2 * (x // 7), 2 * (x % 7) + 1]`` is one element for one x only.
    """
    equal: set[Expr] = set()
    for i, j in zip(a.index, b.index, strict=True):
        moving = [m for m in space.poly(i) if _varies(space, m, varying)]
        if i is j and len(moving) == 1 and len(moving[0]) == 1:
            equal.add(moving[0][0])
    return [space.poly(e.args[0]) for e in equal if e.op is Op.MOD and any(
        q.op is Op.FLOORDIV and q.args == e.args for q in equal)]


def apart(space: Space, a: Access, b: Access, varying: set[Expr]) -> bool:
    """Whether `a` and `b` never touch one element, whatever the values of `varying` in either.

    Two tests for each dimension (Allen & Kennedy, sections 3.3.2 and 3.3.3): the greatest common
    divisor of all factors does not divide the distance (``a[2*i]`` and ``a[2*j + 1]``), or one
    subscript is always the larger one (Banerjee; ``a[k, j]`` and ``a[k + 1 + i, j]``).
    """
    return any(_never_equal(space, space.poly(i), space.poly(j), varying)
               for i, j in zip(a.index, b.index, strict=True))


def _never_equal(space: Space, a: Poly, b: Poly, varying: set[Expr]) -> bool:
    moving_a, moving_b = ({k: v for k, v in p.items() if _varies(space, k, varying)}
                          for p in (a, b))
    distance = add({k: v for k, v in b.items() if k not in moving_b},
                   {k: v for k, v in a.items() if k not in moving_a}, -1)
    if all(key == ONE for key in distance):
        divisor = gcd(*moving_a.values(), *moving_b.values())
        shift = distance.get(ONE, 0)
        if shift % divisor if divisor else shift:
            return True
    limits_a, limits_b = _limits(space, moving_a), _limits(space, moving_b)
    if limits_a is None or limits_b is None:
        return False
    (low_a, high_a), (low_b, high_b) = limits_a, limits_b
    over = add(add(low_b, high_a, -1), distance)
    under = add(add(low_a, high_b, -1), distance, -1)
    return any(_nonnegative(space, add(p, {ONE: -1})) for p in (over, under))


def conflicts(space: Space, var: Expr, body: Body, also: Iterable[Expr] = ()) -> list[Conflict]:
    """Return the dependences that iterations of `var` over `body` may carry (empty: none).

    `also` are variables of loops that, like those inside the body, differ freely between the two
    iterations compared (used when loops are permuted).
    """
    found = accesses(body)
    own = private(body)
    written = {a.memory for a in found if a.write} - own
    if not written:
        return []
    inner = _canonical(space, bound_inside(body) | set(also))
    touched = [a for a in found if a.memory in written]
    if len(touched) > MAX_ACCESSES:
        return [Conflict(touched[0], touched[0], f"more than {MAX_ACCESSES} accesses")]
    return [Conflict(a, b) for a, b in combinations_with_replacement(touched, 2)
            if (a.write or b.write) and a.memory is b.memory
            and not same_iteration(space, a, b, var, inner)
            and not apart(space, a, b, inner | {space.canonical(var), var})]


def _canonical(space: Space, variables: set[Expr]) -> set[Expr]:
    return variables | {space.points[v] for v in variables if v in space.points}


def carried(space: Space, var: Expr, body: Body) -> Conflict | None:
    """Return a dependence carried by the loop over `var`, None if iterations are independent."""
    effects = next((s for s in walk(body) if isinstance(s, st.Call | st.Print | st.Atomic)),
                   None)
    if effects is not None:
        made = Access.__new__(Access)
        return Conflict(made, made, f"{type(effects).__name__.lower()} has effects in an order")
    found = conflicts(space, var, body)
    return found[0] if found else None


def swappable(space: Space, outer: Expr, inner: Expr, body: Body,
              between: Iterable[Expr] = ()) -> Conflict | None:
    """Return a dependence that forbids exchanging two loops, None if it is legal.

    Legal if each conflicting pair stays within one iteration of `outer`, or of `inner`.
    """
    others = set(between)
    for conflict in conflicts(space, outer, body, also={inner, *others}):
        if conflict.reason:
            return conflict
        scope = _canonical(space, bound_inside(body) | {outer, *others})
        if not same_iteration(space, conflict.first, conflict.second, inner, scope):
            return conflict
    return None


def independent(space: Space, variables: Iterable[Expr], body: Body) -> bool:
    """Whether no two iterations of a whole nest touch one element that one of them writes.

    Then its loops may run in any order. Loops are proved one by one: what is known to be equal no
    longer varies, so that ``o`` and ``i`` of ``o*32 + i`` are told apart although neither is alone.
    """
    found = accesses(body)
    own = private(body)
    written = {a.memory for a in found if a.write} - own
    if any(isinstance(s, st.Call | st.Print | st.Atomic) for s in walk(body)):
        return False
    touched = [a for a in found if a.memory in written]
    if len(touched) > MAX_ACCESSES:
        return False
    inside = bound_inside(body)
    for a, b in combinations_with_replacement(touched, 2):
        if not (a.write or b.write) or a.memory is not b.memory:
            continue
        left = list(variables)
        while left:
            scope = _canonical(space, inside | set(left))
            known = [v for v in left if same_iteration(space, a, b, v, scope - {v})]
            if not known:
                return False
            left = [v for v in left if v not in known]
    return True


def idempotent(body: Body) -> Conflict | None:
    """Return why running a body twice could differ from running it once, None if it cannot.

    It cannot if nothing that it writes is also read, private memories apart.
    """
    own = private(body)
    reads = {a.memory: a for a in accesses(body) if not a.write or isinstance(a.stmt, st.Atomic)}
    for access in accesses(body):
        if access.write and access.memory in reads and access.memory not in own:
            return Conflict(reads[access.memory], access)
    return None
