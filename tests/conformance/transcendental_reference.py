"""Transcendental functions at more precision than any type of Weft has."""

import math

import mpmath
import numpy as np

from weft.ir.op import Op

WIDE = np.longdouble


def _each(name):
    exact = getattr(mpmath, name)

    def precise(v):
        if not math.isfinite(v) or v == 0 or abs(v) > 30:
            return WIDE(getattr(math, name)(v))
        with mpmath.workdps(40):
            value = exact(mpmath.mpf(v))
            high = float(value)
            return WIDE(high) + WIDE(float(value - high))

    def apply(x):
        if x.dtype != WIDE:  # results of 32 bits and fewer: double precision suffices
            f = getattr(math, name)
            return np.array([f(v) for v in x.tolist()])
        return np.array([precise(float(v)) for v in x], WIDE)

    return apply


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


FUNCTIONS = {
    Op.RSQRT: lambda x: 1 / np.sqrt(x), Op.EXP: np.exp, Op.EXP2: np.exp2, Op.EXPM1: np.expm1,
    Op.LOG: np.log, Op.LOG2: np.log2, Op.LOG10: np.log10, Op.LOG1P: np.log1p, Op.SIN: np.sin,
    Op.COS: np.cos, Op.TAN: np.tan, Op.ASIN: np.arcsin, Op.ACOS: np.arccos, Op.ATAN: np.arctan,
    Op.SINH: np.sinh, Op.COSH: np.cosh, Op.TANH: np.tanh, Op.ASINH: np.arcsinh,
    Op.ACOSH: np.arccosh, Op.ATANH: np.arctanh, Op.ERF: _each("erf"), Op.ERFC: _each("erfc"),
    Op.SIGMOID: _sigmoid, Op.POW: np.power, Op.ATAN2: np.arctan2,
}  # fmt: skip


def exact(op, columns):
    """Return the values of a function on arrays of one float type."""
    wide = WIDE if columns[0].dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        # Signalling NaNs become quiet ones: libm's pow(NaN, 0) is 1 for a quiet NaN alone, and no
        # operation of the IR knows the difference.
        quiet = (np.where(np.isnan(c), c.dtype.type(np.nan), c) for c in columns)
        return FUNCTIONS[op](*(c.astype(wide) for c in quiet))
