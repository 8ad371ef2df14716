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

from collections.abc import Hashable, Iterable
from itertools import combinations_with_replacement
from math import gcd
from typing import TYPE_CHECKING, Final

from weft.imports import Late
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body
from weft.ir.traverse import walk
from weft.rules.polynomial import Monomial, Poly, add
from weft.schedule.analysis.subscripts import (
    ONE,
    Access,
    Space,
    accesses,
    bound_inside,
    limits,
    lower,
    nonnegative,
    private,
)

if TYPE_CHECKING:
    from weft.schedule.analysis import affine
else:
    affine = Late("weft.schedule.analysis.affine")

_EFFECTS: Final = (st.Call, st.Print, st.Atomic)  # in an order of their own
MAX_ACCESSES: Final = 256  # pairs grow with the square; beyond it a conflict is assumed
_MOST_FAILURES: Final = 32  # systems of a kernel with a solution, before no more are solved


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


def _separated(space: Space, a: Poly, b: Poly, var: Expr, inner: set[Expr]) -> bool:
    """Whether equal values of `a` (at x) and `b` (at y) imply x == y."""
    part_a = _split(space, a, var, inner)
    if part_a is None or not part_a[0]:
        return False
    part_b = part_a if a is b else _split(space, b, var, inner)
    if part_b is None:
        return False
    (ca, ra, ia), (cb, rb, ib) = part_a, part_b
    delta = add(ib, ia, -1)
    if ca != cb or any(key for key in delta):
        return False
    shift = delta.get(ONE, 0)
    limits_a = limits(space, ra)
    limits_b = limits_a if a is b else limits(space, rb)
    if limits_a is None or limits_b is None:
        return False
    (low_a, high_a), (low_b, high_b) = limits_a, limits_b
    least = lower(space, ca)
    if least is not None and least < 0:
        ca = add({}, ca, -1)
    above = add(add(high_b, low_a, -1), {ONE: shift + 1} if shift != -1 else {})
    below = add(add(high_a, low_b, -1), {ONE: 1 - shift} if shift != 1 else {})
    return all(nonnegative(space, add(ca, over, -1)) for over in (above, below))


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
            or _eliminated(space, [*pairs, *divided, (flat[0], flat[1])], var, inner)
            or _unsolvable(space, pairs, var, inner))


def _eliminated(space: Space, pairs: list[tuple[Poly, Poly]], var: Expr, inner: set[Expr]) -> bool:
    """Whether equal subscripts imply ``x == y`` by way of the loops inside.

    All dimensions are equal at once. So a loop inside that one of them tells apart, whatever the
    others do, is at the same place in both accesses, and no longer varies: in ``a[i + 3*j, j]`` the
    second one fixes j, and then the first fixes i; in ``a[i + 1000*j]`` with i below 1000, j is
    fixed before i. Elimination by one variable at a time, as in the Delta test (Goff, Kennedy &
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
    variable is fixed alone.
    """
    inside: set[Expr] = {v for pair in pairs for p in pair for atoms in p for v in atoms}
    linear = all(len(atoms) < 2 for pair in pairs for p in pair for atoms in p)
    if not linear or space.failures >= _MOST_FAILURES:
        return False
    varying = inner | {var}
    boxes: dict[Hashable, tuple[int, int]] = {}
    moving: dict[Hashable, Hashable] = {}
    for v in inside:
        span = space.ranges.of(v)
        if span.hi - span.lo >= affine.UNBOUNDED:
            return False
        boxes[v] = (span.lo, span.hi)
        if v is var or _varies(space, (v,), varying):
            if v not in space.extents:  # it depends on what it is made of
                return False
            moving[v] = v
    if var not in moving:
        return False
    system = affine.Pair(boxes, {v: boxes[v] for v in moving}, moving)
    for p, q in pairs:
        system.meet(*(affine.Linear({atoms[0]: w for atoms, w in side.items() if atoms},
                                    side.get(ONE, 0)) for side in (p, q)))
    found = not system.differ(var)
    space.failures += not found
    return found


def _divided(space: Space, a: Access, b: Access, varying: set[Expr]) -> list[Poly]:
    """Return what is equal wherever two accesses meet, because its quotient and remainder are.

    ``a[2 * (x // 7), 2 * (x % 7) + 1]`` is one element for one x only; 7 // 3 is 5 // 2, and
    so are the remainders, so the divisor must be the same in both. What is added to a multiple of
    one of them, and is smaller, may differ: ``a[32 * (x // 7) + i, 32 * (x % 7) + j]``.
    """
    equal: set[Expr] = set()
    for i, j in zip(a.index, b.index, strict=True):
        p = space.poly(i)
        atoms = {e for m in p for e in m if e.op in (Op.FLOORDIV, Op.MOD)
                 and _varies(space, (e,), varying)} if i is j else ()  # fmt: skip
        equal.update(e for e in atoms if _separated(space, p, p, e, varying))
    found: dict[Expr, None] = {}
    while whole := [e.args[0] for e in equal if e.op is Op.MOD and e.args[0] not in found and any(
            q.op is Op.FLOORDIV and q.args == e.args for q in equal) and not any(
            _varies(space, m, varying) for m in space.poly(e.args[1]))]:  # fmt: skip
        found.update(dict.fromkeys(whole))
        equal.update(whole)
    return [space.poly(e) for e in found]


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
    limits_a, limits_b = limits(space, moving_a), limits(space, moving_b)
    if limits_a is None or limits_b is None:
        return False
    (low_a, high_a), (low_b, high_b) = limits_a, limits_b
    over = add(add(low_b, high_a, -1), distance)
    under = add(add(low_a, high_b, -1), distance, -1)
    return any(nonnegative(space, add(p, {ONE: -1})) for p in (over, under))


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
    effects = next((s for s in walk(body) if isinstance(s, _EFFECTS)), None)
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
    if any(isinstance(s, _EFFECTS) for s in walk(body)):
        return False
    touched = [a for a in found if a.memory in written]
    if len(touched) > MAX_ACCESSES:
        return False
    inside = bound_inside(body)
    for a, b in combinations_with_replacement(touched, 2):
        if not (a.write or b.write) or a.memory is not b.memory:
            continue
        left = _by_subscripts(space, a, b, list(variables), inside)
        while left:
            scope = _canonical(space, inside | set(left))
            known = [v for v in left if same_iteration(space, a, b, v, scope - {v})]
            if not known:
                return False
            left = [v for v in left if v not in known]
    return True


def _by_subscripts(space: Space, a: Access, b: Access, variables: list[Expr],
                   inside: set[Expr]) -> list[Expr]:  # fmt: skip
    """Return the variables that no subscript alone tells apart, after those that one does.

    That decides nearly all of them, and takes a fraction of the time of `same_iteration`.
    """
    pairs = [(space.poly(i), space.poly(j)) for i, j in zip(a.index, b.index, strict=True)]
    left, before = variables, len(variables) + 1
    while len(left) < before:
        before = len(left)
        scope = _canonical(space, inside | set(left))
        left = [v for v in left if space.canonical(v) is not v or not any(
            _separated(space, p, q, v, scope - {v}) for p, q in pairs)]
    return left


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
