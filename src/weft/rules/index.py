"""Simplification of index arithmetic: int64 expressions with known ranges of loop variables.

Sums and products become canonical polynomials (`weft.rules.polynomial`); divisions, remainders,
comparisons, minima and selections are decided or simplified by ranges, numeric and symbolic
(``j < n``). The merge and split of axes that reshapes leave behind turns back into plain
variables. All results are equal for every value in the environment, wrap-around included: a
division is taken apart only where its operands provably stay within int64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import INT64, Env
from weft.ir.expr import Expr, make, rebuild
from weft.ir.op import Op, Operation
from weft.rules import polynomial as po
from weft.rules.division import Divider
from weft.rules.polynomial import Poly

if TYPE_CHECKING:
    from weft.rules import algebra
else:
    algebra = Late("weft.rules.algebra")

TERMS: Final = 24  # a longer sum is not flattened further
PRODUCTS: Final = 12  # a product of sums with more terms is not expanded
RECENT: Final = 8  # environments remembered a thread
LARGE: Final = 20_000  # expressions that a remembered simplifier may keep alive
STEPS: Final = 4  # rewrites by `ALGEBRA` of one expression that is no index


class Simplifier(Divider):
    """Simplifies many expressions in one environment, each distinct one once.

    Parameters
    ----------
    env : mapping from Expr to (lo, hi)
        Ranges of loop variables and of whatever else is known; `hi` may be an int64 expression.
    """

    def __init__(self, env: Env | None = None) -> None:
        super().__init__(_with_canonical_keys(env or {}))
        self._values: dict[Expr, Poly | Expr] = {}

    def simplify(self, e: Expr) -> Expr:
        """Return an expression of equal value, usually simpler and always canonical."""
        return self.simplify_all((e,))[0]

    def simplify_all(self, roots: Iterable[Expr]) -> list[Expr]:
        """Return the simplified expressions, in order."""
        roots = list(roots)
        self._visit(roots)
        return [self._expr(r) for r in roots]

    def poly(self, e: Expr) -> Poly:
        """Return the polynomial of an int64 expression."""
        self._visit((e,))
        return self._as_poly(e)

    @property
    def is_large(self) -> bool:
        """Whether it keeps too many expressions alive to be remembered."""
        return len(self._values) > LARGE

    def prove(self, condition: Expr) -> bool:
        """Whether a bool expression holds for every value of the environment."""
        return ex.is_const(self.simplify(condition), True)

    def linear(self, e: Expr, over: Iterable[Expr]) -> tuple[Coefficients, Expr] | None:
        """Return `linear_coefficients` in this environment."""
        chosen = set(over)
        parts: dict[Expr, Poly] = {}
        rest: Poly = {}
        for monomial, coefficient in self.poly(e).items():
            mine = [a for a in monomial if a in chosen]
            if len(mine) > 1 or any(_depends(a, chosen) for a in monomial if a not in chosen):
                return None
            if mine:
                left = po.without(monomial, (mine[0],))
                assert left is not None
                parts.setdefault(mine[0], {})[left] = coefficient
            else:
                rest[monomial] = coefficient
        found: Coefficients = {}
        for v, part in parts.items():
            value = po.as_constant(part)
            found[v] = self.emit(part, e.lanes) if value is None else value
        return found, self.emit(rest, e.lanes)

    # --- the pass

    def _visit(self, roots: Iterable[Expr]) -> None:
        values = self._values
        stack = [r for r in roots if r not in values]
        while stack:
            e = stack[-1]
            if e in values:
                stack.pop()
                continue
            missing = [a for a in e.args if a not in values]
            if missing:
                stack.extend(missing)
                continue
            values[e] = self._simplified(e)
            stack.pop()

    def _expr(self, e: Expr) -> Expr:
        value = self._values[e]
        if isinstance(value, Expr):
            return value
        made = po.emit(value, e.lanes, self.order)
        self.remember(made, value)
        return made

    def remember(self, e: Expr, p: Poly) -> None:
        """Note that the expression `e` has the polynomial `p`."""
        self._values.setdefault(e, p)

    def _as_poly(self, e: Expr) -> Poly:
        value = self._values[e]
        if not isinstance(value, Expr):
            return value
        return self.atom(value)

    def _simplified(self, e: Expr) -> Poly | Expr:
        if e.dtype is dt.int64:
            handler = _INDEX.get(e.op)
            if handler is not None:
                return po.wrapped(handler(self, e))
            return self._opaque(e)
        if e.args and e.args[0].dtype is dt.int64 and e.op in _COMPARE:
            return self._compare(e)
        return self._other(e)

    def _rebuilt(self, e: Expr) -> Expr:
        if not e.args:
            return e
        return rebuild(e, tuple(self._expr(a) for a in e.args))

    def _opaque(self, e: Expr) -> Poly:
        """Return an operation of int64 that no rule of this file knows, as an atom."""
        made = self._rebuilt(e)
        for _ in range(STEPS):
            step = algebra.ALGEBRA.step(made, self.ranges)
            if step is None:
                break
            made = step
        return self.atom(made)

    def atom(self, e: Expr) -> Poly:
        """Return the polynomial of an expression that is not taken apart."""
        if e.op is Op.CONST:
            return po.constant(e.attr)
        known = self.ranges.of(e)
        p: Poly = po.constant(known.lo) if known.is_single else {(e,): 1}
        self._values.setdefault(e, p)
        return p

    def _other(self, e: Expr) -> Expr:
        """Simplify what is no index: rebuild it and apply the algebraic rules at its root."""
        made = self._rebuilt(e)
        if e.dtype.is_bool and made.op is Op.NOT and made.args[0].op in _COMPARE:
            inner = made.args[0]
            if inner.args[0].dtype is dt.int64:
                return self._negated(inner)
        for _ in range(STEPS):
            if e.dtype.kind != "f" and made.op is not Op.CONST:
                known = self.ranges.of(made)
                if known.is_single:
                    value = bool(known.lo) if e.dtype.is_bool else known.lo
                    return make(Op.CONST, e.dtype, (), value, e.lanes)
            step = algebra.ALGEBRA.step(made, self.ranges)
            if step is None:
                return made
            made = step
        return made

    def _negated(self, e: Expr) -> Expr:
        a, b = e.args
        flipped = {Op.LT: (Op.LE, b, a), Op.LE: (Op.LT, b, a), Op.EQ: (Op.NE, a, b),
                   Op.NE: (Op.EQ, a, b)}[e.op]  # fmt: skip
        made = make(flipped[0], dt.bool_, flipped[1:], None, e.lanes)
        self._visit((made,))
        return self._expr(made)

    # --- int64 operations, each returning a polynomial

    def _const(self, e: Expr) -> Poly:
        return po.constant(e.attr)

    def _leaf(self, e: Expr) -> Poly:
        return self.atom(e)

    def _sum(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        total = po.add(p, q, 1 if e.op is Op.ADD else -1)
        if len(total) > TERMS:
            return self.atom(self._rebuilt(e))
        return self.recombine(total)

    def _product(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        if len(p) * len(q) > PRODUCTS:
            return self.atom(self._rebuilt(e))
        return self.recombine(po.multiply(p, q, self.order))

    def _neg(self, e: Expr) -> Poly:
        return po.scaled(self._as_poly(e.args[0]), -1)

    def _shl(self, e: Expr) -> Poly:
        shift = po.as_constant(self._as_poly(e.args[1]))
        if shift is None:
            return self.atom(self._rebuilt(e))
        if not 0 <= shift < 64:
            return po.ZERO
        return po.scaled(self._as_poly(e.args[0]), 1 << shift)

    def _shr(self, e: Expr) -> Poly:
        shift = po.as_constant(self._as_poly(e.args[1]))
        if shift is None or not 0 <= shift < 63:
            return self._opaque(e)
        return self.div(self._as_poly(e.args[0]), po.constant(1 << shift), e.lanes)

    def _and(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        mask = po.as_constant(q)
        if mask is None:
            p, q = q, p
            mask = po.as_constant(q)
        if mask is None or mask <= 0 or mask & (mask + 1) or mask == INT64.hi:
            return self._opaque(e)
        return self.mod(p, po.constant(mask + 1), e.lanes)

    def _floordiv(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        return self.div(p, q, e.lanes)

    def _mod(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        return self.mod(p, q, e.lanes)

    def _extremum(self, e: Expr) -> Poly:
        p, q = (self._as_poly(a) for a in e.args)
        if p == q:
            return p
        if self.fits(p) and self.fits(q):
            gap = po.add(p, q, -1)
            if self.nonnegative(gap):
                return q if e.op is Op.MIN else p
            if self.nonnegative(po.scaled(gap, -1)):
                return p if e.op is Op.MIN else q
        a, b = sorted((self._expr(a) for a in e.args), key=self.order.key)
        return self.atom(make(e.op, dt.int64, (a, b), None, e.lanes))

    def _where(self, e: Expr) -> Poly:
        condition = self._expr(e.args[0])
        p, q = self._as_poly(e.args[1]), self._as_poly(e.args[2])
        if condition.op is Op.CONST:
            return p if condition.attr else q
        if p == q:
            return p
        if condition.op is Op.NOT:
            args = (condition.args[0], self._expr(e.args[2]), self._expr(e.args[1]))
            return self.atom(make(Op.WHERE, dt.int64, args, None, e.lanes))
        return self.atom(self._rebuilt(e))

    # --- comparisons of int64

    def _compare(self, e: Expr) -> Expr:
        p, q = (self._as_poly(a) for a in e.args)
        known = self._decide(e.op, p, q)
        if known is not None:
            return make(Op.CONST, dt.bool_, (), known, e.lanes)
        if not (self.fits(p) and self.fits(q)):
            return self._rebuilt(e)
        gap = po.add(p, q, -1)
        if e.op is Op.EQ or e.op is Op.NE:
            gap = self._without_gcd(gap)
            if gap[min(gap, key=lambda m: (not m, [self.order.key(a) for a in m]))] < 0:
                gap = po.scaled(gap, -1)
            return self._sides(e.op, gap, e)
        if e.op is Op.LE:  # a <= b is a - b - 1 < 0
            gap = po.add(gap, po.constant(-1))
        return self._sides(Op.LT, self._coarsened(gap), e)

    def _decide(self, op: Operation, p: Poly, q: Poly) -> bool | None:
        gap = po.wrapped(po.add(p, q, -1))
        if not gap:
            return op is Op.LE or op is Op.EQ
        equality = op is Op.EQ or op is Op.NE
        if equality and po.as_constant(gap) is not None:
            return op is Op.NE
        if not (self.fits(p) and self.fits(q)):
            return None
        gap = po.add(p, q, -1)
        below = self.nonnegative(po.add(po.scaled(gap, -1), po.constant(-1)))
        if equality:
            unequal = below or self.nonnegative(po.add(gap, po.constant(-1))) or _indivisible(gap)
            return (op is Op.NE) if unequal else None
        if below:
            return True
        if op is Op.LT:
            return False if self.nonnegative(gap) else None
        if self.nonnegative(po.scaled(gap, -1)):
            return True
        return False if self.nonnegative(po.add(gap, po.constant(-1))) else None

    def _without_gcd(self, p: Poly) -> Poly:
        common = gcd(*p.values())
        return {m: c // common for m, c in p.items()} if common > 1 else p

    def _coarsened(self, p: Poly) -> Poly:
        """Return a polynomial that is negative where `p` is: 16 * o + i - 48 -> o - 3."""
        for g in sorted({abs(c) for m, c in p.items() if m}, reverse=True):
            if g == 1:
                break
            coarse, fine = po.divide(p, po.constant(g), self.order)
            within = self.interval(fine)
            if within.lo >= 0 and within.hi < g:
                return coarse
        common = gcd(*(c for m, c in p.items() if m))
        return po.divide(p, po.constant(common), self.order)[0] if common > 1 else p

    def _sides(self, op: Operation, gap: Poly, e: Expr) -> Expr:
        """Return ``gap op 0`` with positive terms on the left, the constant on the right."""
        left = {m: c for m, c in gap.items() if c > 0 and m}
        right = {m: -c for m, c in gap.items() if c < 0 and m}
        offset = gap.get((), 0)
        if left:
            right = po.add(right, po.constant(-offset))
        else:
            left = po.constant(offset)
        if not (self.fits(left) and self.fits(right)):
            return self._rebuilt(e)
        sides = []
        for side in (left, right):
            made = po.emit(side, e.lanes, self.order)
            self.remember(made, side)
            sides.append(made)
        made = make(op, dt.bool_, tuple(sides), None, e.lanes)
        self._values.setdefault(made, made)
        return made


def _indivisible(gap: Poly) -> bool:
    """Whether the gap is never 0 because its coefficients share what its constant lacks."""
    common = gcd(*(c for m, c in gap.items() if m))
    return common > 1 and gap.get((), 0) % common != 0


_COMPARE: Final = frozenset((Op.LT, Op.LE, Op.EQ, Op.NE))
_INDEX: Final[dict[Operation, Callable[[Simplifier, Expr], Poly]]] = {
    Op.CONST: Simplifier._const, Op.VAR: Simplifier._leaf, Op.VARIABLE: Simplifier._leaf,
    Op.ADD: Simplifier._sum, Op.SUB: Simplifier._sum, Op.MUL: Simplifier._product,
    Op.NEG: Simplifier._neg, Op.SHL: Simplifier._shl, Op.SHR: Simplifier._shr,
    Op.AND: Simplifier._and, Op.FLOORDIV: Simplifier._floordiv, Op.MOD: Simplifier._mod,
    Op.MIN: Simplifier._extremum, Op.MAX: Simplifier._extremum, Op.WHERE: Simplifier._where,
}  # fmt: skip


def _with_canonical_keys(env: Env) -> Env:
    """Add the simplified spelling of keys that are no plain variables."""
    compound = [e for e in env if e.op not in (Op.VAR, Op.VARIABLE)]
    if not compound:
        return env
    plain = Simplifier({})
    extended = dict(env)
    for e in compound:
        extended.setdefault(plain.simplify(e), env[e])
    return extended


class _Recent(threading.local):
    """The simplifiers of the environments asked last, so that single questions share work."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Simplifier] = {}

    def of(self, env: Env | None) -> Simplifier:
        key = tuple(env.items()) if env else ()
        found = self.known.get(key)
        if found is None or found.is_large:
            if len(self.known) >= RECENT:
                del self.known[next(iter(self.known))]
            found = self.known[key] = Simplifier(dict(key))
        return found


_recent: Final = _Recent()


def simplify(e: Expr, env: Env | None = None) -> Expr:
    """Return an expression equal to `e` for every value of the environment."""
    if e.op is Op.CONST or (e.op is Op.VAR and (env is None or e not in env)):
        return e
    return _recent.of(env).simplify(e)


def simplify_all(roots: Iterable[Expr], env: Env | None = None) -> list[Expr]:
    """Return the simplified expressions, in order."""
    return _recent.of(env).simplify_all(roots)


def prove(condition: Expr, env: Env | None = None) -> bool:
    """Whether a bool expression provably holds, with symbolic limits taken into account."""
    return _recent.of(env).prove(condition)


def divisible(e: Expr, k: int, env: Env | None = None) -> bool:
    """Whether an int64 expression is provably a multiple of `k` (wrapped values included)."""
    simplifier = _recent.of(env)
    p = simplifier.poly(e)
    if k & (k - 1) and not simplifier.fits(p):
        return False
    for monomial, coefficient in p.items():
        factor = coefficient
        for atom in monomial:
            factor *= known_factor(atom)
        if factor % k:
            return False
    return True


def known_factor(e: Expr) -> int:
    """Return a number that divides every value of an int64 expression (0: it is always 0)."""
    if e.op is Op.CONST:
        return abs(int(e.attr))
    if e.op in (Op.MOD, Op.MIN, Op.MAX):
        return gcd(*(_shallow_factor(a) for a in e.args))
    if e.op is Op.WHERE:
        return gcd(*(_shallow_factor(a) for a in e.args[1:]))
    return 1


def _shallow_factor(e: Expr) -> int:
    """Return the constant factor of a product or constant; 1 for anything else."""
    if e.op is Op.CONST:
        return abs(int(e.attr))
    if e.op is Op.MUL and e.args[1].op is Op.CONST:
        value = abs(int(e.args[1].attr))
        return value & -value  # wrap-around spares powers of two only
    return 1


Coefficients = dict[Expr, int | Expr]


def linear_coefficients(
    e: Expr, over: Iterable[Expr], env: Env | None = None
) -> tuple[Coefficients, Expr] | None:
    """Return (coefficients, rest) with ``e == sum(c[v] * v for v in over) + rest``.

    Coefficients are ints, or expressions free of the variables `over`; a variable that does not
    occur is left out. None if `e` is not linear in them.
    """
    return _recent.of(env).linear(e, over)


def _depends(e: Expr, over: set[Expr]) -> bool:
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node in over:
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return False
