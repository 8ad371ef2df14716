"""Transcendental functions as expressions of plain arithmetic, so that every backend shares them.

`decompose` turns one op into additions, multiplications, fused multiply-adds, selects and integer
arithmetic on bit patterns. The result vectorises to any width: no tables, no calls, and branches
only around what no lane of a vector needs (`floats.seldom`).
Accuracy is stated, function by function, in docs/design/numerics.md. float16, bfloat16 and the
8-bit floats are computed in float32 and rounded once.
"""

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, cast, unary
from weft.ir.op import Op, Operation
from weft.passes.transcendental import (
    single_power,
    single_trigonometric,
    tables,
    trigonometric_tables,
)
from weft.passes.transcendental.error_function import erf, erfc
from weft.passes.transcendental.exponential import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
from weft.passes.transcendental.inverse_trigonometric import acos, asin, atan, atan2
from weft.passes.transcendental.logarithm import acosh, asinh, atanh, log, log1p, log2, log10
from weft.passes.transcendental.power import pow
from weft.passes.transcendental.trigonometric import cos, sin, tan


def reciprocal(x: Expr) -> Expr:
    """1 / x, correctly rounded."""
    return 1.0 / x


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x)."""
    return 1.0 / unary(Op.SQRT, x)


TRANSCENDENTALS: Final[dict[Operation, Callable[..., Expr]]] = {
    Op.RSQRT: rsqrt,
    Op.RECIPROCAL: reciprocal,
    Op.EXP: exp,
    Op.EXP2: exp2,
    Op.EXPM1: expm1,
    Op.LOG: log,
    Op.LOG2: log2,
    Op.LOG10: log10,
    Op.LOG1P: log1p,
    Op.SIN: sin,
    Op.COS: cos,
    Op.TAN: tan,
    Op.ASIN: asin,
    Op.ACOS: acos,
    Op.ATAN: atan,
    Op.SINH: sinh,
    Op.COSH: cosh,
    Op.TANH: tanh,
    Op.ASINH: asinh,
    Op.ACOSH: acosh,
    Op.ATANH: atanh,
    Op.ERF: erf,
    Op.ERFC: erfc,
    Op.SIGMOID: sigmoid,
    Op.POW: pow,
    Op.ATAN2: atan2,
}


# float32, for targets that have LOOKUP
FROM_TABLES: Final[dict[Operation, Callable[..., Expr]]] = {
    Op.COS: trigonometric_tables.cos,
    Op.ERF: tables.erf,
    Op.ERFC: tables.erfc,
    Op.EXP: tables.exp,
    Op.EXPM1: tables.expm1,
    Op.LOG: tables.log,
    Op.LOG10: tables.log10,
    Op.LOG1P: tables.log1p,
    Op.LOG2: tables.log2,
    Op.SIN: trigonometric_tables.sin,
    Op.TAN: trigonometric_tables.tan,
    Op.TANH: tables.tanh,
}


# float32, for targets that do not compute float64
WITHOUT_DOUBLE: Final[dict[Operation, Callable[..., Expr]]] = {
    Op.COS: single_trigonometric.cos,
    Op.ERFC: tables.erfc,
    Op.POW: single_power.pow,
    Op.SIN: single_trigonometric.sin,
    Op.TAN: single_trigonometric.tan,
}


def decompose(op: Operation, args: tuple[Expr, ...], *, tables: bool = False,
              double: bool = True) -> Expr | None:  # fmt: skip
    """Return ``op(*args)`` in plain arithmetic, or None where there is nothing to decompose.

    None is returned for ops outside `TRANSCENDENTALS` and for integer operands (``POW``). With
    `tables`, LOOKUP counts as plain arithmetic, too; without `double`, float64 does not (for
    operands of other types).
    """
    found = TRANSCENDENTALS.get(op)
    own = args[0].dtype if args else dt.bool_
    if found is None or not own.is_float:
        return None
    if not double and own.bits <= 32:
        found = WITHOUT_DOUBLE.get(op, found)
    if tables and own.bits <= 32:
        found = FROM_TABLES.get(op, found)
    if own.bits >= 32:
        return found(*args)
    return cast(found(*(cast(a, dt.float32) for a in args)), own)
