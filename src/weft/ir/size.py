"""Arithmetic of symbolic sizes: one spelling for each size, exact division, decided comparisons.

A size is an int or an int64 expression of VARIABLEs. It is brought to the form of a polynomial
(``8 * n`` and ``n * 8`` become one expression), so that equal sizes are found equal; divisions and
other operations inside count as unknowns of their own. What cannot be decided for every value of
the variables raises, and never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final, cast

from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import bounds
from weft.ir.expr import Expr, needs_size
from weft.ir.op import Op, Operation
from weft.weak import WeakTable

__all__ = ["canonical", "decide", "evaluate", "evaluate_all", "exact_quotient", "replaced",
           "replaced_all", "span_of"]  # fmt: skip

Dim = int | Expr
Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]

_canonical: Final[WeakTable[Expr, Dim]] = WeakTable()
_RULES: Final = {Op.ADD: 1, Op.SUB: -1}


def canonical(size: Dim) -> Dim:
    """Return the one spelling of a size; an int if no variable is left."""
    if not isinstance(size, Expr):
        return size
    known: MutableMapping[Expr, Dim] = _canonical
    if type(size) is not Expr:  # of a capture, or what is left of one
        sizes: Any = cast(Any, size).sizes
        if not sizes.is_live:
            return int(cast(Any, size).value)
        known = sizes.spellings
    found = known.get(size)
    if found is None:
        found = known[size] = _build(_poly(size))
        if isinstance(found, Expr):
            known[found] = found
    return found


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """Return ``a / b`` where that is a size for every value of the variables, else None."""
    rest, divisor = _poly(a), _poly(b)
    if not divisor:
        return None
    head = _leading(divisor)
    quotient: Poly = {}
    while rest:
        top = _leading(rest)
        over = _without(top, head)
        factor, remainder = divmod(rest[top], divisor[head])
        if over is None or remainder:
            return None
        _add(quotient, over, factor)
        for monomial, c in divisor.items():
            _add(rest, _sorted(monomial + over), -c * factor)
    return _build(quotient)


def decide(op: Operation, a: Expr, b: Dim) -> bool:
    """Return whether ``a < b`` (or ``<=``, ``!=``), if it is so, or not so, for every value.

    Raises
    ------
    UnsupportedError
        If it depends on the variables.
    """
    if not _is_size(a) or (isinstance(b, Expr) and not _is_size(b)):
        raise DTypeError("bool", found=f"the expression {a!r}", expected="a Python value",
                         hint="use where() to choose between values")
    difference = _poly(a)
    for monomial, c in _poly(b).items():
        _add(difference, monomial, -c)
    low, high = _range(difference)
    if op is Op.NE:
        always, never = low > 0 or high < 0, low == high == 0
    else:
        limit = 0 if op is Op.LE else -1
        always, never = high <= limit, low > limit
    if not always and not never:
        sign = {Op.NE: "!=", Op.LE: "<="}.get(op, "<")
        error = needs_size(f"{a!r} {sign} {b!r}, which not every size decides")
        if op is not Op.NE:
            error.split = _split(difference, limit)
        raise error
    return always


def span_of(size: Dim) -> tuple[int, int]:
    """Return the least and the largest value of a size."""
    return _range(_poly(size))


def evaluate(size: Dim, values: Mapping[str, int]) -> int:
    """Return a size for values of its variables."""
    if not isinstance(size, Expr):
        return size
    done: dict[Expr, int] = {}
    for e in ex.toposort([size]):
        if e.op is Op.CONST:
            done[e] = e.attr
        elif e.op is Op.VARIABLE:
            done[e] = values[e.attr.name]
        else:
            done[e] = ex.index_value(e.op, [done[a] for a in e.args])
    return done[size]


def replaced(size: Dim, values: Mapping[str, Dim]) -> Dim:
    """Return a size with numbers, or other variables of the same names, for its variables."""
    if not isinstance(size, Expr):
        return size
    done: dict[Expr, Expr] = {}
    for e in ex.toposort([size]):
        if e.op is Op.VARIABLE:
            done[e] = _as_expr(values[e.attr.name])
        elif e.op is Op.CONST:
            done[e] = e
        else:
            args = tuple([done[a] for a in e.args])
            if all(a.op is Op.CONST for a in args):
                done[e] = ex.index(ex.index_value(e.op, [a.attr for a in args]))
            else:
                done[e] = ex.make(e.op, e.dtype, args, e.attr, e.lanes)
    found = done[size]
    return int(found.attr) if found.op is Op.CONST else found


def replaced_all(sizes: Sequence[Dim], values: Mapping[str, Dim]) -> tuple[Any, ...]:
    """Return sizes with numbers, or other variables of the same names, for their variables."""
    return tuple([replaced(s, values) for s in sizes])


def evaluate_all(sizes: Sequence[Dim], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return sizes for values of their variables."""
    return tuple([evaluate(s, values) for s in sizes])


def _split(difference: Poly, limit: int) -> tuple[str, int] | None:
    """Return the variable of ``difference <= limit``, and the last value before its answer changes.

    None unless it is a variable, or its negative, and a number.
    """
    variables = [monomial for monomial in difference if monomial]
    if len(variables) != 1 or len(variables[0]) != 1 or variables[0][0].op is not Op.VARIABLE:
        return None
    factor, rest = difference[variables[0]], difference.get((), 0)
    name: str = variables[0][0].attr.name
    if factor == 1:
        return name, limit - rest
    return (name, rest - limit - 1) if factor == -1 else None


def _is_size(e: Expr) -> bool:
    return e.dtype is dt.int64 and e.lanes == 1 and not ex.free_vars([e])


def _poly(size: Dim) -> Poly:
    """Return a size as a polynomial: products of atoms, with their factors."""
    if not isinstance(size, Expr):
        return {(): size} if size else {}
    done: dict[Expr, Poly] = {}
    for e in ex.toposort([size]):
        args = [done[a] for a in e.args]
        out: Poly = {}
        if e.op is Op.CONST:
            out = {(): int(e.attr)} if e.attr else {}
        elif e.op in _RULES:
            out = dict(args[0])
            for monomial, c in args[1].items():
                _add(out, monomial, _RULES[e.op] * c)
        elif e.op is Op.NEG:
            out = {m: -c for m, c in args[0].items()}
        elif e.op is Op.MUL:
            for m, c in args[0].items():
                for k, d in args[1].items():
                    _add(out, _sorted(m + k), c * d)
        elif e.args:
            atom = ex.rebuild(e, tuple([_as_expr(_build(p)) for p in args]))
            out = {(): atom.attr} if atom.op is Op.CONST else {(atom,): 1}
        else:
            out = {(e,): 1}
        done[e] = out
    return done[size]


def _build(poly: Poly) -> Dim:
    """Return the expression of a polynomial: higher powers first, the constant last."""
    total: Dim = 0
    for monomial in sorted(poly, key=_order, reverse=True):
        term: Dim = poly[monomial]
        for atom in monomial:
            term = atom * term
        total = term if isinstance(total, int) and total == 0 else total + term
    return total


def _as_expr(size: Dim) -> Expr:
    return size if isinstance(size, Expr) else ex.index(size)


def _add(poly: Poly, monomial: Monomial, factor: int) -> None:
    total = poly.get(monomial, 0) + factor
    if total:
        poly[monomial] = total
    else:
        poly.pop(monomial, None)


def _sorted(monomial: Monomial) -> Monomial:
    return tuple(sorted(monomial, key=ex.show)) if len(monomial) > 1 else monomial


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return len(monomial), tuple([ex.show(a) for a in monomial])


def _leading(poly: Poly) -> Monomial:
    """Return the first monomial in an order that products keep (so that division ends)."""
    return max(poly, key=_order)


def _without(a: Monomial, b: Monomial) -> Monomial | None:
    """Return the atoms of `a` that are left when those of `b` are taken out."""
    left = list(a)
    for atom in b:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _range(poly: Poly) -> tuple[int, int]:
    """Return the least and the largest value of a polynomial, in whole numbers without end."""
    low = high = 0
    for monomial, c in poly.items():
        a = b = 1
        for atom in monomial:
            ends = bounds(atom)
            corners = [x * y for x in (a, b) for y in (ends.lo, ends.hi)]
            a, b = min(corners), max(corners)
        low += min(a * c, b * c)
        high += max(a * c, b * c)
    return low, high


ex.deciding[:] = [decide]
