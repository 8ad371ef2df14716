"""Polynomials over integer expressions: the canonical form of index arithmetic.

A polynomial is a dict from monomials to non-zero integer coefficients. A monomial is a sorted
tuple of atoms (int64 expressions that are not sums or products themselves); the empty tuple is
the constant term. int64 arithmetic is a ring modulo 2**64, so a polynomial always equals its
expression modulo 2**64, and exactly wherever its ideal range lies within int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.bounds import Range
from weft.ir.expr import Expr, make
from weft.ir.op import Op
from weft.store.digest import blake2b

Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]
Key = tuple[Any, ...]

ZERO: Final[Poly] = {}
DIVISION_STEPS: Final = 32


class Order:
    """A total order of expressions that depends on their structure and names only."""

    __slots__ = ("_digests", "_keys")

    def __init__(self) -> None:
        self._digests: dict[Expr, bytes] = {}
        self._keys: dict[Expr, Key] = {}

    def key(self, e: Expr) -> Key:
        """Return the sort key of an expression: variables by name, the rest by digest."""
        found = self._keys.get(e)
        if found is None:
            if e.op is Op.VARIABLE:
                found = (0, e.attr.name)
            elif e.op is Op.VAR:
                found = (1, e.attr)
            else:
                found = (2, e.op.name, self._digest(e))
            self._keys[e] = found
        return found

    def _digest(self, e: Expr) -> bytes:
        memo = self._digests
        stack = [e]
        while stack:
            node = stack[-1]
            missing = [a for a in node.args if a not in memo]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            head = f"{node.op.name} {node.dtype.text} {node.lanes} {node.attr!r} "
            text = head.encode() + b"".join(memo[a] for a in node.args)
            memo[node] = blake2b(text, digest_size=8).digest()
        return memo[e]

    def product(self, a: Monomial, b: Monomial) -> Monomial:
        """Return the product of two monomials."""
        if not a or not b:
            return a or b
        return tuple(sorted(a + b, key=self.key))


def constant(value: int) -> Poly:
    """Return a constant polynomial."""
    return {(): value} if value else {}


def as_constant(p: Poly) -> int | None:
    """Return the value of a constant polynomial, else None."""
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


def add(p: Poly, q: Poly, scale: int = 1) -> Poly:
    """Return ``p + scale * q`` in ideal arithmetic."""
    out = dict(p)
    for monomial, coefficient in q.items():
        total = out.get(monomial, 0) + coefficient * scale
        if total:
            out[monomial] = total
        else:
            out.pop(monomial, None)
    return out


def scaled(p: Poly, scale: int) -> Poly:
    """Return ``scale * p`` in ideal arithmetic."""
    return {m: c * scale for m, c in p.items()} if scale else {}


def multiply(p: Poly, q: Poly, order: Order) -> Poly:
    """Return ``p * q`` in ideal arithmetic."""
    out: Poly = {}
    for ma, ca in p.items():
        for mb, cb in q.items():
            monomial = order.product(ma, mb)
            total = out.get(monomial, 0) + ca * cb
            if total:
                out[monomial] = total
            else:
                del out[monomial]
    return out


def wrapped(p: Poly) -> Poly:
    """Return `p` with coefficients reduced into int64; equal modulo 2**64."""
    if all(-(1 << 63) <= c < 1 << 63 for c in p.values()):
        return p
    reduced = {m: dt.wrap(c, dt.int64) for m, c in p.items()}
    return {m: c for m, c in reduced.items() if c}


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """Return ``monomial / factors``, or None if it does not divide."""
    rest = list(monomial)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def leading(p: Poly, order: Order) -> Monomial:
    """Return the monomial of highest degree; ties go to the order of names."""
    return max(p, key=lambda m: (len(m), [order.key(a) for a in m]))


def divide(p: Poly, d: Poly, order: Order) -> tuple[Poly, Poly]:
    """Return (q, r) with ``p == q * d + r``, moving whole terms into q.

    By a constant the constant term is split with a remainder of 0 or more; every other term
    moves whole or stays.
    """
    c = as_constant(d)
    if c is not None:
        quotient: Poly = {}
        rest: Poly = {}
        for monomial, coefficient in p.items():
            whole, left = divmod(coefficient, c)
            if left and monomial:
                rest[monomial] = coefficient
                continue
            if whole:
                quotient[monomial] = whole
            if left:
                rest[monomial] = left
        return quotient, rest
    lead = leading(d, order)
    lead_coefficient = d[lead]
    quotient, rest = {}, p
    for _ in range(DIVISION_STEPS):
        step = _divisible_term(rest, lead, lead_coefficient)
        if step is None:
            break
        quotient = add(quotient, step)
        rest = add(rest, multiply(step, d, order), -1)
    return quotient, rest


def _divisible_term(p: Poly, lead: Monomial, coefficient: int) -> Poly | None:
    for monomial, c in p.items():
        if c % coefficient == 0 and len(monomial) >= len(lead):
            left = without(monomial, lead)
            if left is not None:
                return {left: c // coefficient}
    return None


def interval(p: Poly, range_of: Callable[[Expr], Range]) -> Range:
    """Return the range of `p` in ideal arithmetic."""
    lo = hi = 0
    for monomial, coefficient in p.items():
        if len(monomial) == 1:  # the common case
            a, b = range_of(monomial[0])
            if coefficient < 0:
                a, b = b, a
            lo += coefficient * a
            hi += coefficient * b
            continue
        a = b = 1
        for atom in monomial:
            corners = [a * v for v in range_of(atom)] + [b * v for v in range_of(atom)]
            a, b = min(corners), max(corners)
        if coefficient < 0:
            a, b = b, a
        lo += coefficient * a
        hi += coefficient * b
    return Range(lo, hi)


def emit(p: Poly, lanes: int, order: Order) -> Expr:
    """Return the canonical expression of a polynomial whose coefficients fit int64.

    Terms stand by falling size of their coefficient, so that what changes slowest comes first;
    the constant stands last.
    """
    if len(p) == 1:  # the common case: one atom
        (monomial, coefficient), = p.items()
        if len(monomial) == 1 and coefficient == 1:
            return monomial[0]
    terms = sorted(
        (item for item in p.items() if item[0]),
        key=lambda t: (-abs(t[1]), -len(t[0]), [order.key(a) for a in t[0]]),
    )
    offset = p.get((), 0)
    if not terms:
        return _const(offset, lanes)
    first = next((n for n, term in enumerate(terms) if term[1] > 0), None)
    if first is not None:
        total = _term(*terms.pop(first), lanes)
    elif offset > 0:
        total, offset = _const(offset, lanes), 0
    else:
        total = _term(*terms.pop(0), lanes)
    for monomial, coefficient in terms:
        if -(1 << 63) < coefficient < 0:
            total = _binary(Op.SUB, total, _term(monomial, -coefficient, lanes))
        else:
            total = _binary(Op.ADD, total, _term(monomial, coefficient, lanes))
    if offset:
        total = _binary(Op.ADD, total, _const(offset, lanes))
    return total


def _const(value: int, lanes: int) -> Expr:
    return make(Op.CONST, dt.int64, (), value, lanes)


def _binary(op: Any, a: Expr, b: Expr) -> Expr:
    return make(op, dt.int64, (a, b), None, a.lanes)


def _term(monomial: Monomial, coefficient: int, lanes: int) -> Expr:
    product = monomial[0]
    for atom in monomial[1:]:
        product = _binary(Op.MUL, product, atom)
    if coefficient == 1:
        return product
    if coefficient == -1:
        return make(Op.NEG, dt.int64, (product,), None, lanes)
    return _binary(Op.MUL, product, _const(coefficient, lanes))
