"""Updates that are reductions: which operation, and what joins the running value.

    s + x, s - x, s * x, s & x ...     if x < s: s = x     s = max(s, x)     if c: s += x
    s and c, s or c                    if c: s = True      if x < s: s = x; place = i

The order in which terms meet is a property of REDUCE, and the schedule's to choose. That changes
the rounding of float sums, as it does in tensor code. Nothing else may change, so a minimum or
maximum of floats counts only in the form that skips NaN, ``x if x < s else s``, in which the order
does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import Accumulator, Let, Load, Reduce, lhs, rhs

__all__ = ["Update", "accumulator", "accumulators_of_extreme", "follows", "is_const", "join",
           "merged", "neutral", "recognise", "starts", "update_of"]

_PLAIN: Final = (Op.ADD, Op.MUL, Op.AND, Op.OR, Op.XOR)


class Update(NamedTuple):
    """An update of a running value: ``s = s op term``. For `min` and `max`, of Python's kind."""

    kind: str  # add mul and or xor min max
    term: Expr


_OPS: Final[dict[str, Operation]] = {
    "add": Op.ADD, "mul": Op.MUL, "and": Op.AND, "or": Op.OR, "xor": Op.XOR}
_KINDS: Final = {op: kind for kind, op in _OPS.items()}


def recognise(value: Expr, old: Expr) -> Update | None:
    """Return how `value` updates `old`, None if it is no reduction."""
    if value is old:
        return None
    if value.op in _PLAIN and value.dtype is old.dtype:
        return _plain(value, old)
    if value.op is Op.SUB and value.args[0] is old and _is_free(value.args[1], old):
        return Update("add", _negative(value.args[1]))
    if value.op in (Op.MIN, Op.MAX) and old.dtype.is_integer:
        kind = "min" if value.op is Op.MIN else "max"
        other = _other(value, old)
        return None if other is None else Update(kind, other)
    if value.op is Op.WHERE:
        return _logical(value, old) or _extreme(value, old) or _conditional(value, old)
    return None


def _negative(e: Expr) -> Expr:
    """Return ``-e``, of a product as a product."""
    if e.op is Op.MUL:
        return ex.binary(Op.MUL, ex.unary(Op.NEG, e.args[0]), e.args[1])
    return ex.unary(Op.NEG, e)


def _is_free(e: Expr, var: Expr) -> bool:
    return var not in ex.free_vars([e])


def _other(value: Expr, old: Expr) -> Expr | None:
    for this, other in (value.args, value.args[::-1]):
        if this is old and _is_free(other, old):
            return other
    return None


def _plain(value: Expr, old: Expr) -> Update | None:
    """Return ``old op term`` out of a chain ``(old op a) op b``: it is ``old op (a op b)``."""
    kind, op = _KINDS[value.op], value.op
    terms: list[Expr] = []
    at = value
    while at is not old:
        if at.op is not op:
            return None
        inside = [a for a in at.args if not _is_free(a, old)]
        if len(inside) != 1:
            return None
        terms.append(at.args[1] if at.args[0] is inside[0] else at.args[0])
        at = inside[0]
    term = terms.pop()
    while terms:
        term = ex.binary(op, term, terms.pop())
    return Update(kind, term)


def _extreme(value: Expr, old: Expr) -> Update | None:
    """Return ``where(x < old, x, old)`` and its relatives as a minimum or maximum."""
    test, a, b = value.args
    if test.op not in (Op.LT, Op.LE):
        return None
    x = b if a is old else a if b is old else None
    if x is None or not _is_free(x, old) or x.dtype.is_bool:
        return None
    takes = x is a  # where the test holds
    low, high = _compared(*test.args)
    if low is x and high is old:
        kind = "min" if takes else "max"
    elif low is old and high is x:
        kind = "max" if takes else "min"
    else:
        return None
    if x.dtype.is_float and (not takes or test.op is Op.LE):
        return None  # a NaN would replace the running value; of equal ones the last would count
    return Update(kind, x)


def _logical(value: Expr, old: Expr) -> Update | None:
    """Return what `and` and `or` are read as, and flags that conditions set: ``if c: s = True``."""
    if not old.dtype.is_bool:
        return None
    test, a, b = value.args
    if test.op is Op.NOT:
        test, a, b = test.args[0], b, a
    if test is old:  # one side is what it is where s is known
        if (b is old or is_const(b, False)) and _is_free(a, old):
            return Update("and", a)
        if (a is old or is_const(a, True)) and _is_free(b, old):
            return Update("or", b)
    if _is_free(test, old):
        for side, other, holds in ((a, b, test), (b, a, ex.unary(Op.NOT, test))):
            if other is old and is_const(side, True):
                return Update("or", holds)
            if other is old and is_const(side, False):
                return Update("and", ex.unary(Op.NOT, holds))
    return None


def is_const(e: Expr, value: bool) -> bool:
    """Whether an expression is a constant of this truth."""
    return e.op is Op.CONST and bool(e.attr) is value


def follows(value: Expr, old: Expr, extreme: Expr, leads: Expr) -> Expr | None:
    """Return what a register becomes where another one finds a new extreme, None if it does else.

    ``if x > m: m = x; p = t``: of `p` this is ``t``. `extreme` is the new value of `m`, and
    `leads` its old one. An extreme that also takes what is equal to it does not count, nor does a
    condition that is about something else: it holds where nothing new is found, too.
    """
    if value.op is not Op.WHERE or extreme.op is not Op.WHERE:
        return None
    test, a, b = value.args
    if test is not extreme.args[0] or test.op is not Op.LT or b is not old:
        return None
    if _is_free(test, leads):
        return None
    if extreme.args[2] is not leads or not _is_free(a, old) or not _is_free(a, leads):
        return None
    return a


def accumulators_of_extreme(kind: str, var: Expr, term: Expr, places: Mapping[Expr, Expr]
                            ) -> tuple[Accumulator, ...]:  # fmt: skip
    """Return a minimum or maximum, and what goes with it: `places` has the terms by their names.

    The terms grow from point to point, so of equal extremes the first is the one whose place is the
    lowest, whatever order the schedule has.
    """
    one, two = (lhs(var), rhs(var)) if kind == "max" else (rhs(var), lhs(var))
    plain = accumulator(var, Update(kind, term))
    better = var.lt(term) if kind == "max" else term.lt(var)
    first = next(iter(places))
    takes = ex.binary(Op.OR, one.lt(two), ex.binary(
        Op.AND, one.eq(two), rhs(first).lt(lhs(first))))
    made = [plain.replace(combine=ex.where(takes, rhs(var), lhs(var)))]
    for place, t in places.items():
        made.append(Accumulator(place, ex.const(int(place.dtype.max), place.dtype),
                                ex.where(better, t, place),
                                ex.where(takes, rhs(place), lhs(place))))
    return tuple(made)


def _compared(low: Expr, high: Expr) -> tuple[Expr, Expr]:
    """Return what a comparison compares, before both sides were made wider."""
    if low.op is Op.CAST and high.op is Op.CAST:
        a, b = low.args[0], high.args[0]
        if a.dtype is b.dtype and _holds(low.dtype, a.dtype):
            return a, b
    return low, high


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a type has all numbers of another one."""
    if wide.is_float and narrow.is_float:
        return dt.promote(wide, narrow) is wide
    if wide.is_integer and narrow.is_integer:
        return bool(wide.min <= narrow.min and narrow.max <= wide.max)
    return False


def _conditional(value: Expr, old: Expr) -> Update | None:
    """Return ``where(c, old op x, old)`` as an update by x or what changes nothing."""
    test, a, b = value.args
    if not _is_free(test, old):
        return None
    changed = b if a is old else a if b is old else None
    if changed is None:  # s += x on one way, s -= y on the other
        both = recognise(a, old), recognise(b, old)
        if both[0] is None or both[1] is None or both[0].kind != both[1].kind:
            return None
        return Update(both[0].kind, ex.where(test, both[0].term, both[1].term))
    inner = recognise(changed, old)
    if inner is None:
        return None
    rest = neutral(inner.kind, old.dtype)
    term = (ex.where(test, inner.term, rest) if changed is a
            else ex.where(test, rest, inner.term))
    return Update(inner.kind, term)


def neutral(kind: str, d: DType) -> Expr:
    """Return what changes nothing when it joins: -0.0 for sums, of which 0.0 would change -0.0."""
    if kind == "add":
        return ex.const(-0.0 if d.is_float else 0, d)
    if kind == "mul":
        return ex.const(1, d)
    if kind == "and":
        return ex.const(True if d.is_bool else -1 if d.kind == "i" else int(d.max), d)
    if kind in ("or", "xor"):
        return ex.const(0, d)
    if d.is_float:
        return ex.const(math.inf if kind == "min" else -math.inf, d)
    return ex.const(int(d.max) if kind == "min" else int(d.min), d)


def join(kind: str, a: Expr, b: Expr) -> Expr:
    """Return ``a op b``, where `a` comes first."""
    if kind == "min":
        return ex.where(b.lt(a), b, a)
    if kind == "max":
        return ex.where(a.lt(b), b, a)
    return ex.binary(_OPS[kind], a, b)


def accumulator(var: Expr, update: Update, start: Expr | None = None) -> Accumulator:
    """Return the accumulator of a reduction; it starts from what is neutral unless told."""
    init = neutral(update.kind, var.dtype) if start is None else start
    return Accumulator(var, init, join(update.kind, var, update.term),
                       join(update.kind, lhs(var), rhs(var)))


def starts(kind: str, start: Expr) -> bool:
    """Whether a reduction may start from a value in each of its parts: if nothing is changed."""
    if start.op is not Op.CONST:
        return False
    plain = neutral(kind, start.dtype)
    return start is plain or (kind == "add" and start.dtype is not dt.bool_ and start.attr == 0)


def update_of(value: Expr, lets: Mapping[Expr, Expr], old: Expr) -> Update | None:
    """Return how a value updates the old one; elements that were made wider count as they are."""
    value = _opened(value, lets, old)
    found = recognise(value, old)
    if found is None and value.op is Op.WHERE:
        wider = {v: lets[v] for v in ex.free_vars([value]) if v in lets and lets[v].op is Op.CAST}
        found = recognise(ex.substitute([value], wider)[0], old) if wider else None
    return found


def _opened(value: Expr, lets: Mapping[Expr, Expr], old: Expr) -> Expr:
    """Return a value with the names written out through which it depends on the old one."""
    while value in lets and value is not old:
        value = lets[value]
    return value


def merged(outer: Reduce) -> Reduce:
    """Return a reduction of a reduction as one over both axes, if it is no more than that.

    reduce k (s) { reduce l (t) { b } t + x } s + t  ->  reduce k, l (s) { b } s + x
    """
    if len(outer.accumulators) != 1 or not outer.body:
        return outer
    inner = outer.body[-1]
    front = outer.body[:-1]
    if not isinstance(inner, Reduce) or len(inner.accumulators) != 1:
        return outer
    a, b = outer.accumulators[0], inner.accumulators[0]
    update = recognise(a.update, a.var)
    below = recognise(b.update, b.var)
    if update is None or below is None or update.kind != below.kind or update.term is not b.var:
        return outer
    if not all(isinstance(s, Let | Load) for s in front):
        return outer
    own = {axis.var for axis in outer.axes} | {v for s in front for v in s.binds()}
    if any(own & ex.free_vars([axis.extent]) for axis in inner.axes):
        return outer  # a triangle
    made = accumulator(a.var, below, a.init)
    return Reduce((*outer.axes, *inner.axes), (made,), (*front, *inner.body))
