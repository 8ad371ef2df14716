"""Operators and conversions of scalars in kernels."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.lang.core.promotion import (
    arithmetic,
    division,
    power,
    rounding,
    shift,
    unify,
)
from weft.lang.core.values import Known

__all__ = ["MOST_BITS", "NoOperator", "apply_binary", "apply_compare", "apply_unary",
           "as_in_divmod", "common", "convert", "coordinate", "extreme", "is_huge", "maximum",
           "minimum", "round_", "shown", "truth"]  # fmt: skip


class NoOperator(Exception):
    """The operator does not take these types."""


MOST_BITS: Final = 1 << 12  # of integers that are known, which Python does not limit
_ARITHMETIC: Final[dict[type[ast.operator], Operation]] = {
    ast.Add: Op.ADD, ast.Sub: Op.SUB, ast.Mult: Op.MUL, ast.FloorDiv: Op.FLOORDIV,
    ast.Mod: Op.MOD, ast.Pow: Op.POW,
}  # fmt: skip
_BITWISE: Final[dict[type[ast.operator], Operation]] = {
    ast.BitAnd: Op.AND, ast.BitOr: Op.OR, ast.BitXor: Op.XOR,
}
_ODD_IN_FLOAT32: Final = 1 << 24  # the integers up to which float32 holds the odd ones
_SHIFTS: Final[dict[type[ast.operator], Operation]] = {ast.LShift: Op.SHL, ast.RShift: Op.SHR}


def coordinate(var: Expr) -> Expr:
    """Return an index of the launch as the int32 that kernels see."""
    return ex.cast(var, dt.int32)


def convert(x: Expr, d: DType) -> Expr:
    """Return a scalar in another type.

    The int32 of a launch index, which is an int64 that always fits, becomes that int64 again.
    """
    if x.dtype is d:
        return x
    if x.op is Op.CAST and d is dt.int64 and x.dtype is dt.int32:
        inner = x.args[0]
        if inner.dtype is dt.int64 and (inner.op is Op.VAR or inner.op is Op.VARIABLE) and (
            str(inner.attr.name if inner.op is Op.VARIABLE else inner.attr).startswith(
                ("thread.", "block.", "grid."))
        ):
            return inner
    if x.op is Op.CONST and d.is_float:
        value = float(x.attr)
        if x.dtype.is_float and x.dtype.bits < d.bits:  # what it holds, not what was written
            with np.errstate(over="ignore"):
                value = float(np.asarray(value).astype(x.dtype.numpy))
        return ex.const(value, d)
    return ex.cast(x, d)


def truth(x: Expr) -> Expr:
    """Return whether a scalar is not zero."""
    return convert(x, dt.bool_)


def apply_binary(kind: type[ast.operator], a: Expr, b: Expr) -> Expr:
    """Return ``a op b``.

    Raises
    ------
    NoOperator
        If the operator does not take these types.
    """
    if kind is ast.Div:
        d = division(a.dtype, b.dtype)
        return ex.binary(Op.DIV, convert(a, d), convert(b, d))
    if kind in _SHIFTS:
        if a.dtype.is_float or b.dtype.is_float:
            raise NoOperator
        d = shift(a.dtype)
        return ex.binary(_SHIFTS[kind], convert(a, d), convert(b, d))
    if kind in _BITWISE:
        if a.dtype.is_float or b.dtype.is_float:
            raise NoOperator
        both = a.dtype.is_bool and b.dtype.is_bool
        d = dt.bool_ if both else arithmetic(a.dtype, b.dtype)
        return ex.binary(_BITWISE[kind], convert(a, d), convert(b, d))
    op = _ARITHMETIC.get(kind)
    if op is None:
        raise NoOperator
    if kind is ast.Pow:
        return _power(a, b)
    d = (rounding if kind in (ast.FloorDiv, ast.Mod) else arithmetic)(a.dtype, b.dtype)
    return ex.binary(op, convert(a, d), convert(b, d))


def _power(a: Expr, b: Expr) -> Expr:
    d = power(a.dtype, b.dtype)
    exact = b.dtype.is_float or b.dtype.bits < 32 or (
        b.op is Op.CONST and abs(int(b.attr)) <= _ODD_IN_FLOAT32)
    if d is dt.float32 and not exact:  # which would round whether the exponent is odd
        return convert(ex.binary(Op.POW, convert(a, dt.float64), convert(b, dt.float64)), d)
    return ex.binary(Op.POW, convert(a, d), convert(b, d))


def apply_fused(kind: type[ast.operator], a: Expr, b: Expr) -> Expr | None:
    """Return ``a + b`` or ``a - b`` as one operation if a side is a product, None if not.

    The product must have the type of the result: a conversion between them rounds.
    """
    if kind not in (ast.Add, ast.Sub):
        return None
    d = arithmetic(a.dtype, b.dtype)
    if not d.is_float:
        return None
    minus = kind is ast.Sub
    if b.op is Op.MUL and b.dtype is d:
        x, y = b.args
        return ex.mad(ex.unary(Op.NEG, x) if minus else x, y, convert(a, d))
    if a.op is Op.MUL and a.dtype is d:
        c = convert(b, d)
        return ex.mad(a.args[0], a.args[1], ex.unary(Op.NEG, c) if minus else c)
    return None


def apply_unary(kind: type[ast.unaryop], x: Expr) -> Expr:
    """Return ``op x``; see `apply_binary`."""
    if kind is ast.Not:
        return ex.unary(Op.NOT, truth(x))
    if kind is ast.Invert:
        if x.dtype.is_float:
            raise NoOperator
        found = ex.unary(Op.NOT, x)
        return found if x.dtype.is_bool else convert(found, shift(x.dtype))
    if x.dtype.is_float or x.dtype.is_bool:
        x = x if x.dtype.is_float else convert(x, dt.int64)
        return x if kind is ast.UAdd else ex.unary(Op.NEG, x)
    if kind is ast.USub:
        x = ex.unary(Op.NEG, x)
    return convert(x, shift(x.dtype))


def apply_compare(kind: type[ast.cmpop], a: Expr, b: Expr) -> Expr:
    """Return a comparison; integers of different sign compare by value, as in Python."""
    if a.dtype is not b.dtype:
        if {a.dtype.kind, b.dtype.kind} == {"i", "u"}:
            mixed = _mixed_compare(kind, a, b)
            if mixed is not None:
                return mixed
        if {a.dtype.kind, b.dtype.kind} == {"b", "u"}:
            d = b.dtype if a.dtype.is_bool else a.dtype
            return apply_compare(kind, convert(a, d), convert(b, d))
        narrow = a.dtype.is_integer and b.dtype.is_integer and a.dtype.kind == b.dtype.kind
        d = arithmetic(a.dtype, b.dtype)
        if narrow:
            d = a.dtype if a.dtype.bits > b.dtype.bits else b.dtype
            d = d if d.bits > 32 or d.kind == "u" else dt.int64
        a, b = convert(a, d), convert(b, d)
    elif a.dtype is dt.int32:
        a, b = convert(a, dt.int64), convert(b, dt.int64)
    if kind is ast.Lt:
        return a.lt(b)
    if kind is ast.LtE:
        return a.le(b)
    if kind is ast.Gt:
        return a.gt(b)
    if kind is ast.GtE:
        return a.ge(b)
    if kind in (ast.Eq, ast.Is):
        return a.eq(b)
    if kind in (ast.NotEq, ast.IsNot):
        return a.ne(b)
    raise NoOperator


def _mixed_compare(kind: type[ast.cmpop], a: Expr, b: Expr) -> Expr | None:
    """Compare a signed integer with a uint64, of which int64 holds the lower half only."""
    if dt.uint64 not in (a.dtype, b.dtype):
        return None
    if a.dtype is dt.uint64:
        flipped: dict[type[ast.cmpop], type[ast.cmpop]] = {
            ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
        return _mixed_compare(flipped.get(kind, kind), b, a)
    below = convert(a, dt.int64).lt(0)
    same = apply_compare(kind, convert(a, dt.uint64), b)
    if kind in (ast.Lt, ast.LtE, ast.NotEq, ast.IsNot):
        return ex.binary(Op.OR, below, same)
    return ex.binary(Op.AND, ex.unary(Op.NOT, below), same)


def minimum(a: Expr, b: Expr, d: DType) -> Expr:
    """Return Python's ``min(a, b)``: `b` if it is smaller, else `a`."""
    a, b = convert(a, d), convert(b, d)
    if d.is_integer:
        return ex.minimum(a, b)  # of which ranges are known
    return ex.where(b.lt(a), b, a)


def maximum(a: Expr, b: Expr, d: DType) -> Expr:
    """Return Python's ``max(a, b)``: `b` if it is larger, else `a`."""
    a, b = convert(a, d), convert(b, d)
    if d.is_integer:
        return ex.maximum(a, b)
    return ex.where(a.lt(b), b, a)


def extreme(a: Expr, b: Expr, d: DType, largest: bool) -> Expr:
    """Return the smaller or the larger of two floats, the other one where one is NaN."""
    a, b = convert(a, d), convert(b, d)
    if b.op is Op.CONST and b.attr == b.attr and b.attr != 0:  # then one comparison tells it
        return ex.where(b.lt(a) if largest else a.lt(b), a, b)
    found = maximum(a, b, d) if largest else minimum(a, b, d)
    if a.op is Op.CONST and a.attr == a.attr:
        return found
    return ex.where(a.ne(a), b, found)


def round_(x: Expr) -> Expr:
    """Return ``round(x)``: the nearest integer, half to even, as an int64."""
    return convert(ex.unary(Op.ROUND, x) if x.dtype.is_float else x, dt.int64)


def as_in_divmod(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return the arguments of ``divmod`` in the type in which numba computes it."""
    kinds = {x.dtype.kind for x in (a, b)}
    if dt.uint64 in (a.dtype, b.dtype) and "i" in kinds:
        return convert(a, dt.float64), convert(b, dt.float64)
    if kinds == {"b", "u"}:
        return convert(a, dt.uint64), convert(b, dt.uint64)
    return a, b


def literal(value: bool | int | float) -> Expr | None:
    """Return a Python number as a scalar, or None if no type holds it."""
    if isinstance(value, bool):
        return ex.const(value, dt.bool_)
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return ex.const(value, dt.int64)
        return ex.const(value, dt.uint64) if 0 <= value < 1 << 64 else None
    return ex.const(value, dt.float64)


def known_binary(kind: type[ast.operator], left: Any, right: Any) -> Known:
    """Return what Python computes of two things that are known.

    Numbers of NumPy, which keep their type beside Python's, compute as those of arrays do.
    """
    compute = KNOWN_BINARY[kind]
    if not (isinstance(left, np.generic) or isinstance(right, np.generic)):
        return Known(compute(left, right))
    a, b = known_type(left), known_type(right)
    if a is None or b is None:
        return Known(compute(left, right))
    try:
        d = apply_binary(kind, ex.const(0, a), ex.const(0, b)).dtype
    except NoOperator:
        raise TypeError from None
    if d.is_float:
        with np.errstate(all="ignore"):
            return Known(d.numpy.type(compute(d.numpy.type(left), d.numpy.type(right))))
    return Known(d.numpy.type(dt.wrap(int(compute(int(left), int(right))), d)))


def known_type(value: Any) -> DType | None:
    """Return the type of a number that is known, None of anything else."""
    if isinstance(value, np.generic):
        try:
            return dt.as_dtype(value.dtype)
        except DTypeError:
            return None
    found = literal(value) if type(value) in (bool, int, float) else None
    return None if found is None else found.dtype


def shown(value: int) -> str:
    """Return how an error calls an integer; its digits only if a line can hold them."""
    bits = value.bit_length()
    return f"the integer {value}" if bits <= 128 else f"an integer of {bits} bits"


# what Python computes of numbers that are known when a kernel is compiled
KNOWN_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b, ast.LShift: lambda a, b: a << b, ast.RShift: lambda a, b: a >> b,
    ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b, ast.BitXor: lambda a, b: a ^ b,
}  # fmt: skip
KNOWN_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b, ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
KNOWN_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.Not: lambda a: not a, ast.USub: lambda a: -a, ast.UAdd: lambda a: +a,
    ast.Invert: lambda a: ~a,
}  # fmt: skip


def common(a: DType, b: DType) -> DType:
    """Return the type in which NumPy compares two numbers."""
    return unify(a, b)


def is_huge(kind: type[ast.operator], left: Any, right: Any) -> bool:
    """Whether an operation on two objects that are known makes more than anybody can use."""
    if isinstance(left, str | bytes) or isinstance(right, str | bytes):
        return kind is ast.Mult and any(isinstance(v, int) and v > MOST_BITS
                                        for v in (left, right))
    if kind not in (ast.Pow, ast.LShift) or not (isinstance(left, int) and isinstance(right, int)):
        return False
    size = right if kind is ast.LShift else right * (left.bit_length() if abs(left) > 1 else 0)
    return size > MOST_BITS
