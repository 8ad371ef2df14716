"""Operators of kernels: arithmetic and comparisons, dispatched to the kinds of their operands."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import Assert
from weft.lang.core import optional, scalars
from weft.lang.core.element_types import ComplexOf, TextOf, TimeOf, as_element, spelled
from weft.lang.core.emitter import negation
from weft.lang.core.kind import SYMBOLS, deciding, kind_of, unsupported
from weft.lang.core.values import Fields, Group, Known, Range, Value, View, Wrong, describe
from weft.lang.source.source import Stop

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["compare", "negated", "operate"]

_DIVISIONS: Final = (ast.Div, ast.FloorDiv, ast.Mod)
_IDENTITY: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)


def operate(c: Context, kind: type[ast.operator], left: Value, right: Value,
            node: ast.AST, adds: bool = False) -> Value:  # fmt: skip
    """Return ``left op right``; `adds` tells that it replaces the left or the right side."""
    if isinstance(left, Known) and isinstance(right, Known):
        if scalars.is_huge(kind, left.value, right.value):
            raise c.wrong(node, f"{SYMBOLS[kind]}: a result of more than {scalars.MOST_BITS} bits")
        try:
            return scalars.known_binary(kind, left.value, right.value)
        except (KeyError, ZeroDivisionError):
            pass  # by zero divides the kernel, which knows no exceptions
        except TypeError:
            raise unsupported(c, kind, left, right, node) from None
        except Exception as error:
            raise c.wrong(node, f"{SYMBOLS[kind]}: {error}") from None
    left, right = optional.present(c, left, node), optional.present(c, right, node)
    for decides in deciding(left, right):
        found = decides.binary(c, kind, left, right, node)
        if found is not None:
            return found
    left, right = c.alike([left, right], kind in (ast.FloorDiv, ast.Mod))
    a, b = _operands(c, left, right, kind, node)
    if c.strict and kind in _DIVISIONS:
        c.emit(Assert(b.ne(0), "ZeroDivisionError: division by zero", c.this_thread()), node)
    try:
        fused = None
        if c.fma or (adds and c.fma is None):
            fused = scalars.apply_fused(kind, a, b)
        if fused is not None and kind is ast.Sub and c.is_same(a, b):
            fused = None  # x - x is 0, not what its rounding left over
        return scalars.apply_binary(kind, a, b) if fused is None else fused
    except scalars.NoOperator:
        raise unsupported(c, kind, left, right, node) from None


def _operands(c: Context, left: Value, right: Value, kind: type[ast.AST],
              node: ast.AST) -> tuple[Expr, Expr]:  # fmt: skip
    """Return two operands as numbers."""
    if isinstance(left, Wrong) or isinstance(right, Wrong):
        raise Stop
    a, b = c.number_of(left), c.number_of(right)
    if a is None or b is None:
        raise unsupported(c, kind, left, right, node)
    return a, b


def negated(c: Context, kind: type[ast.unaryop], value: Value, node: ast.AST) -> Value:
    """Return ``op value``."""
    if isinstance(value, Known):
        try:
            return Known(scalars.KNOWN_UNARY[kind](value.value))
        except Exception as error:
            raise c.wrong(node, f"{SYMBOLS[kind]}: {error}") from None
    if kind is ast.Not and isinstance(value, Group):
        held = c.truth(value, node)
        return Known(not held) if isinstance(held, bool) else negation(held)
    value = optional.present(c, value, node)
    found = kind_of(value).unary(c, kind, value, node)
    if found is not None:
        return found
    x = c.scalar(value, node)
    if kind is ast.USub and x.dtype is dt.int32 and c.ranges.of(x).lo > dt.int32.min:
        x = scalars.convert(x, dt.int64)  # in which indices are understood
    try:
        return scalars.apply_unary(kind, x)
    except scalars.NoOperator:
        raise c.wrong(node, f"unsupported operand for {SYMBOLS[kind]}: "
                      f"{describe(value)}") from None


def compare(c: Context, kind: type[ast.cmpop], left: Value, right: Value,
            node: ast.AST) -> Value:  # fmt: skip
    """Return one comparison."""
    if kind in _IDENTITY:
        same = _are_one(left, right, kind in (ast.Is, ast.IsNot))
        if same is not None:
            return Known(same if kind in (ast.Eq, ast.Is) else not same)
    member = kind in (ast.In, ast.NotIn)
    if isinstance(left, Known) and isinstance(right, Known) and not (
        member and isinstance(right.value, Range)
    ):
        try:
            return Known(bool(scalars.KNOWN_COMPARE[kind](left.value, right.value)))
        except TypeError:
            raise unsupported(c, kind, left, right, node) from None
        except Exception as error:
            raise c.wrong(node, f"{SYMBOLS[kind]}: {error}") from None
    if kind in _IDENTITY:
        for asked, other in ((left, right), (right, left)):
            if optional.is_optional(asked) and optional.is_none(other):
                return optional.there(asked, kind)
            if c.wraps and isinstance(asked, Expr) and optional.is_none(other):
                return Known(kind in (ast.IsNot, ast.NotEq))
        if kind in (ast.Is, ast.IsNot) and (optional.is_none(left) or optional.is_none(right)):
            return Known(kind is ast.IsNot)
    left, right = optional.present(c, left, node), optional.present(c, right, node)
    inside = kind_of(right).contains(c, right, left, node) if member else None
    if inside is not None:
        held = c.truth(inside, node) if kind is ast.NotIn else False
        return inside if kind is ast.In else Known(not held) if isinstance(held, bool) else (
            negation(held))
    for decides in deciding(left, right):
        found = decides.compare(c, kind, left, right, node)
        if found is not None:
            return found
    left, right = c.alike([left, right])
    a, b = _operands(c, left, right, kind, node)
    try:
        return scalars.apply_compare(kind, a, b)
    except scalars.NoOperator:
        raise unsupported(c, kind, left, right, node) from None


def _are_one(left: Value, right: Value, identity: bool) -> bool | None:
    """Return whether two dtypes, or two arrays that `is` compares, are one; None of others."""
    if identity and isinstance(left, View | Fields) and isinstance(right, View | Fields):
        return left == right
    sides = [v.value if isinstance(v, Known) else None for v in (left, right)]
    if not any(isinstance(v, DType | ComplexOf | TextOf | TimeOf) for v in sides):
        return None
    a, b = (as_element(spelled(v)) for v in sides)
    return None if a is None or b is None else a == b
