"""Operators of kernels: arithmetic and comparisons of numbers, tuples and what is known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.frontend.kernel import complexes, members, optional, ranges, scalars, structs
from weft.frontend.kernel.elements import (
    ComplexOf,
    TextOf,
    TimeOf,
    as_element,
    is_text,
    is_time,
    spelled,
)
from weft.frontend.kernel.emitter import conjuncts, negation
from weft.frontend.kernel.hints import operands
from weft.frontend.kernel.source import Stop
from weft.frontend.kernel.values import Fields, Group, Known, Range, Value, View, Wrong, describe
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Assert

if TYPE_CHECKING:
    from weft.frontend.kernel import choices, strings, times
    from weft.frontend.kernel.expressions import Expressions
else:
    choices = Late("weft.frontend.kernel.choices")
    strings = Late("weft.frontend.kernel.strings")
    times = Late("weft.frontend.kernel.times")

__all__ = ["binary", "compare", "comparison", "negated", "operate", "unary"]

_SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip
_MOST_ITEMS: Final = 1 << 12  # of a tuple
_DIVISIONS: Final = (ast.Div, ast.FloorDiv, ast.Mod)
_STRICT: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Lt, ast.LtE: ast.Lt, ast.Gt: ast.Gt, ast.GtE: ast.Gt,
}  # fmt: skip


def binary(c: Expressions, node: ast.BinOp) -> Value:
    """Evaluate an operator between two operands; a long sum is read without recursion."""
    chain = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)
    found = c.visit_or_wrong(chain[-1].left)
    for inner in reversed(chain):
        right = c.visit_or_wrong(inner.right)
        if isinstance(found, Wrong) or isinstance(right, Wrong):
            found = Wrong()
            continue
        try:
            found = operate(c, type(inner.op), found, right, inner)
        except Stop:
            if inner is node:
                raise
            found = Wrong()
    if isinstance(found, Wrong):
        raise Stop
    return found


def operate(c: Expressions, kind: type[ast.operator], left: Value, right: Value,
            node: ast.AST, adds: bool = False) -> Value:  # fmt: skip
    """Return ``left op right``; `adds` tells that it replaces the left or the right side."""
    if isinstance(left, Known) and isinstance(right, Known):
        if scalars.is_huge(kind, left.value, right.value):
            raise c.wrong(node, f"{_SYMBOLS[kind]}: a result of more than "
                          f"{scalars.MOST_BITS} bits")
        try:
            return scalars.known_binary(kind, left.value, right.value)
        except (KeyError, ZeroDivisionError):
            pass  # by zero divides the kernel, which knows no exceptions
        except TypeError:
            raise _unsupported(c, kind, left, right, node) from None
        except Exception as error:
            raise c.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
    left, right = optional.present(c, left, node), optional.present(c, right, node)
    if is_time(left) or is_time(right):
        of_times = times.operate(c, kind, left, right, node)
        if of_times is None:
            raise _unsupported(c, kind, left, right, node)
        return of_times
    if complexes.is_complex(left) or complexes.is_complex(right):
        made_ = complexes.operate(c, kind, left, right, node)
        if made_ is not None:
            return made_
    if isinstance(left, Group) or isinstance(right, Group):
        found = structs.operate(c, kind, left, right, node)
        if found is not None:
            return found
    if structs.is_tuple(left) and structs.is_tuple(right) and kind is ast.Add:
        return Group(left.items + right.items)
    if kind is ast.Mult and (structs.is_tuple(left) or structs.is_tuple(right)):
        repeated = _repeated(c, left, right, node)
        if repeated is not None:
            return repeated
    left, right = c.alike([left, right], kind in (ast.FloorDiv, ast.Mod))
    a = _operand(c, left, right, kind, node)
    b = _operand(c, right, left, kind, node, first=False)
    if c.strict and kind in _DIVISIONS:
        c.emit(Assert(b.ne(0), "ZeroDivisionError: division by zero", c.this_thread()), node)
    try:
        fused = None
        if c.fma or (adds and c.fma is None):
            fused = scalars.apply_fused(kind, a, b)
        if fused is not None and kind is ast.Sub and c.is_same(a, b):
            fused = None  # x - x is 0, not what its rounding left over
        if fused is not None:
            return fused
        found = scalars.apply_binary(kind, a, b)
        return _quotient(c, found) if kind is ast.FloorDiv else found
    except scalars.NoOperator:
        raise _unsupported(c, kind, left, right, node) from None


def _repeated(c: Expressions, left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return a tuple times a number that is known, None for other operands."""
    group, count = (left, right) if isinstance(left, Group) else (right, left)
    times = count.value if isinstance(count, Known) else None
    if not isinstance(group, Group) or not isinstance(times, int | np.integer):
        return None
    if len(group.items) * int(times) > _MOST_ITEMS:
        raise c.wrong(node, f"a tuple of {len(group.items) * int(times)} items",
                      "gpu.local.array holds many numbers")
    return Group(group.items * int(times))


def _quotient(c: Expressions, quotient: Expr) -> Expr:
    """Return a quotient that is 0, as numba's, where the least int64 is divided by -1."""
    d = quotient.dtype
    if d is not dt.int64 or quotient.op is not Op.FLOORDIV:
        return quotient
    least, (a, b) = int(d.min), quotient.args
    divisor = c.ranges.of(b)
    if c.ranges.of(a).lo > least or divisor.lo > -1 or divisor.hi < -1:
        return quotient
    return ex.where(ex.binary(Op.AND, a.eq(least), b.eq(-1)), ex.const(0, d), quotient)


def _operand(c: Expressions, value: Value, other: Value, kind: type[ast.AST], node: ast.AST,
             first: bool = True) -> Expr:  # fmt: skip
    if isinstance(value, Wrong):
        raise Stop
    found = value if isinstance(value, Expr) else None
    if isinstance(value, Known):
        found = c.known_scalar(value.value)
    if found is None:
        left, right = (value, other) if first else (other, value)
        raise _unsupported(c, kind, left, right, node)
    return found


def unary(c: Expressions, node: ast.UnaryOp) -> Value:
    """Evaluate an operator in front of its operand."""
    asked = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp)
    return negated(c, type(node.op), choices.side(c, node.operand, asked), node)


def negated(c: Expressions, kind: type[ast.unaryop], value: Value, node: ast.AST) -> Value:
    """Return ``op value``."""
    if isinstance(value, Known):
        try:
            return Known(scalars.KNOWN_UNARY[kind](value.value))
        except Exception as error:
            raise c.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
    if kind is not ast.Not:
        value = optional.present(c, value, node)
    if is_time(value) and kind is not ast.Not:
        signed_ = times.negated(kind, value)
        if signed_ is None:
            raise c.wrong(node, f"unsupported operand for {_SYMBOLS[kind]}: {describe(value)}")
        return signed_
    if complexes.is_complex(value) and isinstance(value, Group) and kind is not ast.Invert:
        if kind is ast.Not:
            return compare(c, ast.Eq, value, Known(0), node)
        signed = (scalars.apply_unary(kind, x) for x in value.items)
        return Group(tuple(signed), value.names, value.kind)
    if kind is ast.Not and isinstance(value, Group):
        held = c.truth(value, node)
        return Known(not held) if isinstance(held, bool) else negation(held)
    found = structs.negated(c, kind, value, node)
    if found is not None:
        return found
    x = c.scalar(value, node)
    if kind is ast.USub and x.dtype is dt.int32 and c.ranges.of(x).lo > dt.int32.min:
        x = scalars.convert(x, dt.int64)  # in which indices are understood
    try:
        return scalars.apply_unary(kind, x)
    except scalars.NoOperator:
        raise c.wrong(node, f"unsupported operand for {_SYMBOLS[kind]}: "
                      f"{describe(value)}") from None


def comparison(c: Expressions, node: ast.Compare) -> Value:
    """Evaluate comparisons, of which each is evaluated only where the ones before it hold."""
    return _chain(c, c.visit(node.left), 0, node)


def _chain(c: Expressions, left: Value, position: int, node: ast.Compare) -> Value:
    right = c.visit(node.comparators[position])
    one = compare(c, type(node.ops[position]), left, right, node)
    if position == len(node.ops) - 1:
        return one
    test = c.truth(one, node)
    if isinstance(test, bool):
        return _chain(c, right, position + 1, node) if test else one
    with c.into(conjuncts(test)) as body:
        more = _chain(c, right, position + 1, node)
    return choices.joined(c, test, body, c.scalar(more, node), True, node)


def compare(c: Expressions, kind: type[ast.cmpop], left: Value, right: Value,
            node: ast.AST) -> Value:  # fmt: skip
    """Return one comparison."""
    if kind in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot):
        same = _are_one(left, right, kind in (ast.Is, ast.IsNot))
        if same is not None:
            return Known(same if kind in (ast.Eq, ast.Is) else not same)
    if kind in (ast.In, ast.NotIn) and isinstance(right, Known) and isinstance(right.value, Range):
        inside = ranges.is_in(c, right.value, left, node)
        return inside if kind is ast.In else negation(inside)
    if isinstance(left, Known) and isinstance(right, Known):
        try:
            return Known(bool(scalars.KNOWN_COMPARE[kind](left.value, right.value)))
        except TypeError:
            raise _unsupported(c, kind, left, right, node) from None
        except Exception as error:
            raise c.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
    if kind in (ast.Is, ast.IsNot, ast.Eq, ast.NotEq):
        for asked, other in ((left, right), (right, left)):
            if optional.is_optional(asked) and optional.is_none(other):
                return optional.there(asked, kind)
            if c.wraps and isinstance(asked, Expr) and optional.is_none(other):
                return Known(kind in (ast.IsNot, ast.NotEq))
    if kind in (ast.Is, ast.IsNot) and (optional.is_none(left) or optional.is_none(right)):
        return Known(kind is ast.IsNot)
    left, right = optional.present(c, left, node), optional.present(c, right, node)
    if is_text(left) or is_text(right):
        of_texts = strings.compare(c, kind, left, right)
        if of_texts is not None:
            return of_texts
    if kind in (ast.In, ast.NotIn) and isinstance(right, Group) and not is_text(right):
        own = structs.contains(c, right, left, node)
        if own is not None:
            held = c.truth(own, node)
            return negated(c, ast.Not, own, node) if kind is ast.NotIn else (
                Known(held) if isinstance(held, bool) else held)
        return _contains(c, left, right, kind is ast.NotIn, node)
    if is_time(left) or is_time(right):
        of_times = times.compare(c, kind, left, right, node)
        if of_times is None:
            raise _unsupported(c, kind, left, right, node)
        return of_times
    chosen = members.compare(c, kind, left, right)
    if chosen is not None:
        return chosen
    if complexes.is_complex(left) or complexes.is_complex(right):
        found = complexes.compare(c, kind, left, right, node)
        if found is not None:
            return found
    if isinstance(left, Group) or isinstance(right, Group):
        found = structs.compare(c, kind, left, right, node, compare)
        if found is not None:
            return found
    if structs.is_tuple(left) and structs.is_tuple(right):
        if kind in (ast.Eq, ast.NotEq):
            return _compare_groups(c, kind, left, right, node)
        if kind in _STRICT:
            return _order(c, kind, left, right, node)
    left, right = c.alike([left, right])
    a = _operand(c, left, right, kind, node)
    b = _operand(c, right, left, kind, node, first=False)
    try:
        return scalars.apply_compare(kind, a, b)
    except scalars.NoOperator:
        raise _unsupported(c, kind, left, right, node) from None


def _are_one(left: Value, right: Value, identity: bool) -> bool | None:
    """Return whether two dtypes, or two arrays that `is` compares, are one; None of others."""
    if identity and isinstance(left, View | Fields) and isinstance(right, View | Fields):
        return left == right
    sides = [v.value if isinstance(v, Known) else None for v in (left, right)]
    if not any(isinstance(v, DType | ComplexOf | TextOf | TimeOf) for v in sides):
        return None
    a, b = (as_element(spelled(v)) for v in sides)
    return None if a is None or b is None else a == b


def _unsupported(c: Expressions, kind: type[ast.AST], left: Value, right: Value,
                 node: ast.AST) -> Stop:  # fmt: skip
    return c.wrong(node, f"unsupported operands for {_SYMBOLS[kind]}: "
                   f"{describe(left)} and {describe(right)}",
                   operands(kind, left, right))


def _contains(c: Expressions, item: Value, group: Group, negated: bool, node: ast.AST) -> Value:
    """Return ``item in group``: it equals one of the items."""
    found: Value = Known(False)
    for other in group.items:
        same = compare(c, ast.Eq, item, other, node)
        if isinstance(same, Known) and isinstance(found, Known):
            found = Known(found.value or same.value)
        else:
            both = (c.scalar(found, node), c.scalar(same, node))
            found = ex.binary(Op.OR, *both)
    if not negated:
        return found
    return Known(not found.value) if isinstance(found, Known) else (
        negation(c.scalar(found, node)))


def _compare_groups(c: Expressions, kind: type[ast.cmpop], left: Group, right: Group,
                    node: ast.AST) -> Value:  # fmt: skip
    if len(left.items) != len(right.items):
        return Known(kind is ast.NotEq)
    equal: Expr = ex.const(True, dt.bool_)
    for a, b in zip(left.items, right.items, strict=True):
        one = compare(c, ast.Eq, a, b, node)
        equal = ex.binary(Op.AND, equal, c.scalar(one, node))
    return equal if kind is ast.Eq else negation(equal)


def _order(c: Expressions, kind: type[ast.cmpop], left: Group, right: Group,
           node: ast.AST) -> Value:  # fmt: skip
    """Return which of two tuples comes first: the first items that differ decide."""
    count = min(len(left.items), len(right.items))
    found: Value = compare(c, kind, Known(len(left.items)), Known(len(right.items)), node)
    for a, b in zip(left.items[:count][::-1], right.items[:count][::-1], strict=True):
        same = c.scalar(compare(c, ast.Eq, a, b, node), node)
        here = c.scalar(compare(c, _STRICT[kind], a, b, node), node)
        found = ex.binary(Op.OR, ex.binary(Op.AND, negation(same), here),
                          ex.binary(Op.AND, same, c.scalar(found, node)))
    return found
