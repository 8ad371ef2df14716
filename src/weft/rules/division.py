"""Division and remainder of polynomials by ranges, and proofs that a polynomial is not negative.

Floor division of exact values obeys ``(d * q + r) // d == q + r // d``; everything here follows
from that identity, from ranges, and from ``x == (x // d) * d + x % d``.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from weft.ir import dtype as dt
from weft.ir.bounds import INT64, Env, Range, Ranges
from weft.ir.expr import Expr, make
from weft.ir.op import Op, Operation
from weft.rules import polynomial as po
from weft.rules.polynomial import Monomial, Poly

DEPTH: Final = 8  # substitutions of symbolic limits in one proof
ATTEMPTS: Final = 48  # polynomials looked at in one proof
ROUNDS: Final = 16  # recombinations of one polynomial


class Divider:
    """Division of polynomials in one environment."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.ranges = Ranges(env)
        self.order = po.Order()
        self._proved: dict[frozenset[tuple[Monomial, int]], bool] = {}
        self._known_facts: list[Poly] | None = None

    def poly(self, e: Expr) -> Poly:
        """Return the polynomial of an int64 expression."""
        raise TypeError("a Divider by itself reads no expressions")

    def atom(self, e: Expr) -> Poly:
        """Return the polynomial of an expression that is not taken apart."""
        raise TypeError("a Divider by itself reads no expressions")

    def remember(self, e: Expr, p: Poly) -> None:
        """Note that the expression `e` has the polynomial `p`."""

    # --- ranges

    def interval(self, p: Poly) -> Range:
        """Return the range of `p` in ideal arithmetic."""
        return po.interval(p, self.ranges.of)

    def fits(self, p: Poly) -> bool:
        """Whether `p` equals its int64 expression exactly: its ideal range lies within int64."""
        return self.interval(p).within(INT64)

    def is_positive(self, p: Poly) -> bool:
        """Whether `p` is exact and at least 1."""
        return self.fits(p) and self.nonnegative(po.add(p, po.constant(-1)))

    def emit(self, p: Poly, lanes: int) -> Expr:
        """Return the canonical expression of `p`."""
        made = po.emit(p, lanes, self.order)
        self.remember(made, p)
        return made

    # --- division

    def div(self, p: Poly, d: Poly, lanes: int) -> Poly:
        """Return ``p // d``."""
        c = po.as_constant(d)
        if c == 0 or not p:
            return po.ZERO
        if c == 1:
            return p
        if c == -1:
            return po.scaled(p, -1)
        if c is not None and INT64.lo < c < 0 and self.fits(p) and self.fits(po.scaled(p, -1)):
            p, d, c = po.scaled(p, -1), po.constant(-c), -c
        if (c is not None and c < 0) or not self.fits(p) or not self.is_positive(d):
            return self._divided(p, d, lanes)
        quotient, rest = po.divide(p, d, self.order)
        if not self.fits(rest):
            return self._divided(p, d, lanes)
        if not rest:
            return quotient
        if c is None:
            if self._is_remainder(rest, d):
                return quotient
            return po.add(quotient, self._div_nested(rest, d, lanes))
        whole = self.interval(rest)
        if whole.lo // c == whole.hi // c:
            return po.add(quotient, po.constant(whole.lo // c))
        split = self._by_common_factor(rest, c)
        if split is not None:
            coarse, _, g = split
            return po.add(quotient, self.div(coarse, po.constant(c // g), lanes))
        return po.add(quotient, self._div_nested(rest, d, lanes))

    def _div_nested(self, rest: Poly, d: Poly, lanes: int) -> Poly:
        """Divide what no range decides: (x // a + k) // d and (x % (a * d)) // d."""
        atoms = [m for m in rest if m]
        if len(atoms) != 1 or len(atoms[0]) != 1 or rest[atoms[0]] != 1:
            return self._divided(rest, d, lanes)
        inner = atoms[0][0]
        offset = rest.get((), 0)
        if inner.op is Op.FLOORDIV:
            x, a = (self.poly(arg) for arg in inner.args)
            numerator = po.add(x, a, offset)
            product = po.multiply(a, d, self.order)
            if self.is_positive(a) and self.fits(product) and self.fits(numerator):
                return self.div(numerator, product, lanes)
        if inner.op is Op.MOD and not offset:
            x, m = (self.poly(arg) for arg in inner.args)
            times, left = po.divide(m, d, self.order)
            if not left and self.is_positive(m) and self.is_positive(times):
                return self.mod(self.div(x, d, lanes), times, lanes)
        return self._divided(rest, d, lanes)

    def _divided(self, p: Poly, d: Poly, lanes: int) -> Poly:
        return self._operation(Op.FLOORDIV, p, d, lanes)

    def _operation(self, op: Operation, p: Poly, d: Poly, lanes: int) -> Poly:
        args = (self.emit(po.wrapped(p), lanes), self.emit(po.wrapped(d), lanes))
        return self.atom(make(op, dt.int64, args, None, lanes))

    def _is_remainder(self, r: Poly, d: Poly) -> bool:
        """Whether ``0 <= r < d``."""
        below = po.add(po.add(d, r, -1), po.constant(-1))
        return self.nonnegative(r) and self.nonnegative(below)

    def _by_common_factor(self, p: Poly, c: int) -> tuple[Poly, Poly, int] | None:
        """Return (x, y, g) with ``p == g * x + y``, ``0 <= y < g`` and g > 1 a divisor of c."""
        factors = {gcd(c, coefficient) for monomial, coefficient in p.items() if monomial}
        for g in sorted(factors - {1}, reverse=True):
            coarse, fine = po.divide(p, po.constant(g), self.order)
            within = self.interval(fine)
            if within.lo >= 0 and within.hi < g and self.fits(coarse):
                return coarse, fine, g
        return None

    # --- remainder

    def mod(self, p: Poly, d: Poly, lanes: int) -> Poly:
        """Return ``p % d``."""
        c = po.as_constant(d)
        if c in (0, 1, -1) or not p:
            return po.ZERO
        power = c is not None and c > 0 and c & (c - 1) == 0
        if (c is not None and c < 0) or not (power or self.fits(p)) or not self.is_positive(d):
            return self._operation(Op.MOD, p, d, lanes)
        rest = self._without_inner_mods(po.divide(p, d, self.order)[1], d, power)
        if not rest:
            return rest
        if not self.fits(rest):
            return self._operation(Op.MOD, rest if power else p, d, lanes)
        if c is None:
            if self._is_remainder(rest, d):
                return rest
            return self._operation(Op.MOD, rest, d, lanes)
        whole = self.interval(rest)
        if whole.lo // c == whole.hi // c:
            return po.add(rest, po.constant(-c * (whole.lo // c)))
        split = self._by_common_factor(rest, c)
        if split is None:
            return self._operation(Op.MOD, rest, d, lanes)
        coarse, fine, g = split
        reduced = self.mod(coarse, po.constant(c // g), lanes)
        return po.add(po.scaled(reduced, g), fine)

    def _without_inner_mods(self, p: Poly, d: Poly, power: bool) -> Poly:
        """Replace ``k * (x % m)`` by ``k * x`` where d divides ``k * m``: equal modulo d."""
        for monomial, coefficient in p.items():
            inner = next((a for a in monomial if a.op is Op.MOD), None)
            if inner is None:
                continue
            x, m = (self.poly(arg) for arg in inner.args)
            left = po.without(monomial, (inner,))
            assert left is not None
            scale = {left: coefficient}
            if po.divide(po.multiply(scale, m, self.order), d, self.order)[1]:
                continue
            if not self.is_positive(m):
                continue
            outer = {k: v for k, v in p.items() if k != monomial}
            opened = po.add(outer, po.multiply(scale, x, self.order))
            if power or self.fits(opened):
                rest = po.divide(opened, d, self.order)[1]
                return self._without_inner_mods(rest, d, power)
        return p

    # --- recombination

    def recombine(self, p: Poly) -> Poly:
        """Join quotients with their remainders: (x // d) * d + x % d -> x, and relatives."""
        for _ in range(ROUNDS):
            step = self._joined(p)
            if step is None:
                return p
            p = step
        return p

    def _joined(self, p: Poly) -> Poly | None:
        for monomial, coefficient in p.items():
            for a in monomial:
                if a.op is Op.FLOORDIV:
                    step = self._join_quotient(p, monomial, coefficient, a)
                elif a.op is Op.MOD:
                    step = self._join_digits(p, monomial, coefficient, a)
                else:
                    continue
                if step is not None:
                    return step
        return None

    def _scale(self, monomial: Monomial, coefficient: int, a: Expr, d: Poly) -> Poly | None:
        """Return k where ``coefficient * monomial == k * a * d`` and d has a single term."""
        if len(d) != 1:
            return None
        (factors, c), = d.items()
        left = po.without(monomial, (a, *factors))
        return None if left is None or coefficient % c else {left: coefficient // c}

    def _replace(self, p: Poly, old: Poly, new: Poly) -> Poly | None:
        """Return ``p - old + new`` if `p` has exactly the terms of `old`, else None."""
        if not old or any(p.get(m) != c for m, c in old.items()):
            return None
        return po.add(po.add(p, old, -1), new)

    def _join_quotient(self, p: Poly, monomial: Monomial, coefficient: int, a: Expr) -> Poly | None:
        """Join a quotient with its remainder, or with the whole that it was taken from.

        k * d * (x // d) + k * (x % d)  ->  k * x
        k * x - k * d * (x // d)        ->  k * (x % d)
        """
        d = self.poly(a.args[1])
        k = self._scale(monomial, coefficient, a, d)
        if k is None or not self.is_positive(d):
            return None
        term = {monomial: coefficient}
        whole = self.poly(a.args[0])
        if not self.fits(whole):
            return None
        x = po.multiply(k, whole, self.order)
        remainder: Poly = {(make(Op.MOD, dt.int64, a.args, None, a.lanes),): 1}
        remainder = po.multiply(k, remainder, self.order)
        joined = self._replace(p, po.add(term, remainder), x)
        if joined is not None:
            return joined
        return self._replace(p, po.add(term, x, -1), po.scaled(remainder, -1))

    def _join_digits(self, p: Poly, monomial: Monomial, coefficient: int, a: Expr) -> Poly | None:
        """Join two digits of one number.

        k * d * ((q + x // d) % m) + k * (x % d)  ->  k * ((q * d + x) % (d * m))
        """
        digit, m = (self.poly(arg) for arg in a.args)
        for inner, c in digit.items():
            if c != 1 or len(inner) != 1 or inner[0].op is not Op.FLOORDIV:
                continue
            low, base = inner[0].args
            d = self.poly(base)
            k = self._scale(monomial, coefficient, a, d)
            if k is None or not (self.is_positive(d) and self.is_positive(m)):
                continue
            remainder: Poly = {(make(Op.MOD, dt.int64, (low, base), None, a.lanes),): 1}
            old = po.add({monomial: coefficient}, po.multiply(k, remainder, self.order))
            modulus = po.multiply(d, m, self.order)
            high = po.add(digit, {inner: 1}, -1)
            whole = po.add(po.multiply(high, d, self.order), self.poly(low))
            if not (self.fits(modulus) and self.fits(whole)):
                continue
            joined = self._replace(p, old, po.ZERO)
            if joined is not None:
                new = self.mod(whole, modulus, a.lanes)
                return po.add(joined, po.multiply(k, new, self.order))
        return None

    # --- proofs

    def nonnegative(self, p: Poly) -> bool:
        """Whether `p` is provably at least 0 in ideal arithmetic.

        Where the interval does not say so, symbolic limits of the environment, remainders and
        extrema are replaced by what bounds them, term by term.
        """
        key = frozenset(p.items())
        known = self._proved.get(key)
        if known is None:
            self._proved[key] = False  # a proof that needs itself is none
            known = self._proved[key] = self._prove(p)
        return known

    def _prove(self, p: Poly) -> bool:
        seen: set[frozenset[tuple[Monomial, int]]] = set()
        todo = [(p, 0)]
        while todo and len(seen) < ATTEMPTS:
            q, depth = todo.pop()
            q = self.recombine(q)
            key = frozenset(q.items())
            if key in seen:
                continue
            seen.add(key)
            if self.interval(q).lo >= 0:
                return True
            if depth < DEPTH:
                todo.extend((lower, depth + 1) for lower in self._lower(q))
        return False

    def _lower(self, p: Poly) -> list[Poly]:
        """Return polynomials that are nowhere above `p`, the most promising last."""
        found = [
            po.add(p, fact, -1)
            for fact in self._facts()
            if any(p.get(m, 0) * c > 0 for m, c in fact.items() if m)
        ]
        for monomial, coefficient in p.items():
            for a in dict.fromkeys(monomial):
                left = po.without(monomial, (a,))
                assert left is not None
                others = self.interval({left: coefficient})
                if others.hi <= 0:
                    limits = self._upper_limits(a)
                elif others.lo >= 0:
                    limits = self._lower_limits(a)
                else:
                    continue
                rest = {m: c for m, c in p.items() if m != monomial}
                for limit in limits:
                    found.append(
                        po.add(rest, po.multiply({left: coefficient}, limit, self.order))
                    )
        return found

    def _facts(self) -> list[Poly]:
        """Return what is never negative where the environment has any point: hi - lo."""
        if self._known_facts is None:
            self._known_facts = []
            for lo, hi in self.env.values():
                if isinstance(lo, Expr) or isinstance(hi, Expr):
                    low, high = (
                        self.poly(v) if isinstance(v, Expr) else po.constant(v) for v in (lo, hi)
                    )
                    if self.fits(low) and self.fits(high):
                        self._known_facts.append(po.add(high, low, -1))
        return self._known_facts

    def _upper_limits(self, a: Expr) -> list[Poly]:
        """Return exact polynomials that `a` is at most."""
        limits = []
        known = self.env.get(a)
        if known is not None and isinstance(known[1], Expr):
            limits.append(self.poly(known[1]))
        if a.op is Op.MIN:
            limits.extend(self.poly(arg) for arg in a.args)
        elif a.op is Op.MOD and not po.as_constant(self.poly(a.args[1])):
            d = self.poly(a.args[1])
            if self.is_positive(d):
                limits.append(po.add(d, po.constant(-1)))
        return [p for p in limits if self.fits(p)]

    def _lower_limits(self, a: Expr) -> list[Poly]:
        """Return exact polynomials that `a` is at least."""
        limits = []
        known = self.env.get(a)
        if known is not None and isinstance(known[0], Expr):
            limits.append(self.poly(known[0]))
        if a.op is Op.MAX:
            limits.extend(self.poly(arg) for arg in a.args)
        return [p for p in limits if self.fits(p)]
