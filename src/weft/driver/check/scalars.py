"""Interpret elementwise operations on whole NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.op import Op, Operation

__all__ = ["Array", "cast", "elementwise", "maximum", "minimum", "widen"]

Array = np.ndarray[Any, Any]
_F64: Final = np.float64


def elementwise(op: Operation, dtype: DType, args: Sequence[Array], wide: Any = None) -> Array:
    """Return an operation on arrays of one shape.

    Parameters
    ----------
    op, dtype, args
        The operation, the dtype of the result, the operands.
    wide
        The type in which functions are computed; by default one that is wider than the operands:
        NumPy's functions of float64 may be off by four units of the last place.
    """
    if op is Op.WHERE:
        return np.where(args[0], args[1], args[2])
    kind = dt.as_dtype(args[0].dtype).kind
    args = [widen(a) for a in args]
    out = dtype.numpy
    if op in _COMPARE:
        return np.asarray(_COMPARE[op](*args))
    if kind == "b":
        return np.asarray(_BOOL[op](*args))
    if kind != "f":
        return _integer(op, args).astype(out)
    if op is Op.MAD:
        a, b, c = (x.astype(np.longdouble) for x in args)
        return (a * b + c).astype(args[0].dtype).astype(out)
    if op in _FLOAT:
        if wide is None:
            fine = args[0].dtype == _F64 and op not in _ROUNDED_ONCE
            wide = np.longdouble if fine else _F64
        found = _FLOAT[op](*(a.astype(wide) for a in args))
        return np.asarray(found).astype(args[0].dtype).astype(out)
    return np.asarray(_FLOAT_EXACT[op](*args)).astype(out)


def widen(x: Array) -> Array:
    """Return float32 for floats of 16 and 8 bits, which compute in it."""
    d = dt.as_dtype(x.dtype)
    return x.astype(np.float32) if d.is_float and d.bits < 32 else x


def _error_function(complement: bool) -> Callable[[Array], Array]:
    function = math.erfc if complement else math.erf

    def apply(x: Array) -> Array:
        return np.array([function(float(v)) for v in x.ravel()], _F64).reshape(x.shape)

    return apply


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


_FLOAT: Final[Mapping[Operation, Callable[..., Any]]] = {
    Op.SQRT: np.sqrt, Op.RSQRT: lambda x: 1 / np.sqrt(x), Op.RECIPROCAL: lambda x: 1 / x,
    Op.EXP: np.exp, Op.EXP2: np.exp2, Op.EXPM1: np.expm1, Op.LOG: np.log, Op.LOG2: np.log2,
    Op.LOG10: np.log10, Op.LOG1P: np.log1p, Op.SIN: np.sin, Op.COS: np.cos, Op.TAN: np.tan,
    Op.ASIN: np.arcsin, Op.ACOS: np.arccos, Op.ATAN: np.arctan, Op.SINH: np.sinh,
    Op.COSH: np.cosh, Op.TANH: np.tanh, Op.ASINH: np.arcsinh, Op.ACOSH: np.arccosh,
    Op.ATANH: np.arctanh, Op.ERF: _error_function(False), Op.ERFC: _error_function(True),
    Op.SIGMOID: _sigmoid, Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.TRUNC: np.trunc,
    Op.ROUND: np.rint, Op.POW: np.power, Op.ATAN2: np.arctan2, Op.FMOD: np.fmod,
}  # fmt: skip
_ROUNDED_ONCE: Final = frozenset({  # which a wider type would round twice
    Op.SQRT, Op.RECIPROCAL, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.FMOD})
_COMPARE: Final[Mapping[Operation, Callable[..., Any]]] = {
    Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal,
}  # fmt: skip
_BOOL: Final[Mapping[Operation, Callable[..., Any]]] = {
    Op.NOT: np.logical_not, Op.AND: np.logical_and, Op.OR: np.logical_or, Op.XOR: np.logical_xor,
    Op.MIN: np.logical_and, Op.MAX: np.logical_or,
}  # fmt: skip


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller of each pair of floats; -0 is below 0, NaN wins."""
    zero = np.where(np.signbit(a), a, b)
    return np.where((a == 0) & (b == 0), zero, np.minimum(a, b))


def maximum(a: Array, b: Array) -> Array:
    """Return the larger of each pair of floats; -0 is below 0, NaN wins."""
    zero = np.where(np.signbit(a), b, a)
    return np.where((a == 0) & (b == 0), zero, np.maximum(a, b))


def _float_mod(a: Array, b: Array) -> Array:
    r = np.fmod(a, b)
    r = np.where((r != 0) & (np.signbit(r) != np.signbit(b)), r + b, r)
    return np.where(r == 0, np.copysign(np.zeros_like(r), b), r)


def _float_floordiv(a: Array, b: Array) -> Array:
    return np.asarray(np.floor_divide(a.astype(_F64), b.astype(_F64))).astype(a.dtype)


_FLOAT_EXACT: Final[Mapping[Operation, Callable[..., Any]]] = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply,
    Op.DIV: np.divide, Op.MIN: minimum, Op.MAX: maximum, Op.COPYSIGN: np.copysign,
    Op.MOD: _float_mod, Op.FLOORDIV: _float_floordiv,
}  # fmt: skip
_INTEGER: Final[Mapping[Operation, Callable[..., Any]]] = {
    Op.NEG: np.negative, Op.NOT: np.invert, Op.ABS: np.abs, Op.ADD: np.add, Op.SUB: np.subtract,
    Op.MUL: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum, Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
}  # fmt: skip


def _integer(op: Operation, args: Sequence[Array]) -> Array:
    if op in _INTEGER:
        return np.asarray(_INTEGER[op](*args))
    dtype, apply = dt.as_dtype(args[0].dtype), _PYTHON_INTEGER[op]
    exact = np.frompyfunc(lambda *v: dt.wrap(apply(dtype, *map(int, v)), dtype), len(args), 1)
    return np.asarray(exact(*args)).astype(args[0].dtype)


def _fmod(d: DType, a: int, b: int) -> int:
    return (-1 if a < 0 else 1) * (abs(a) % abs(b)) if b else 0


def _int_pow(d: DType, a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << d.bits)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def _shr(d: DType, a: int, b: int) -> int:
    if 0 <= b < d.bits:
        return a >> b
    return -1 if a < 0 else 0


_PYTHON_INTEGER: Final[Mapping[Operation, Callable[..., int]]] = {
    Op.FLOORDIV: lambda d, a, b: a // b if b else 0,
    Op.MOD: lambda d, a, b: a % b if b else 0,
    Op.FMOD: _fmod,
    Op.POW: _int_pow,
    Op.SHL: lambda d, a, b: a << b if 0 <= b < d.bits else 0,
    Op.SHR: _shr,
    Op.MULHI: lambda d, a, b: (a * b) >> d.bits,
    Op.POPCOUNT: lambda d, a: (a & ((1 << d.bits) - 1)).bit_count(),
    Op.CLZ: lambda d, a: d.bits - (a & ((1 << d.bits) - 1)).bit_length(),
}


def cast(x: Array, dtype: DType) -> Array:
    """Return an array converted by the cast rules of ``weft/ir/op.py``."""
    source = dt.as_dtype(x.dtype)
    if dtype.is_bool:
        return np.asarray(widen(x) != 0)
    if source.is_float and dtype.is_integer:
        wide = x.astype(_F64)
        whole = np.where(np.isnan(wide), 0, np.trunc(wide))
        flat = [min(max(int(v), dtype.min), dtype.max) if math.isfinite(v)
                else (dtype.max if v > 0 else dtype.min) for v in whole.ravel().tolist()]
        return np.array(flat, dtype.numpy).reshape(x.shape)
    if dtype.is_float and dtype.bits < 32 and source.is_float and source.bits == 64:
        return _round_narrow(x, dtype)
    if dtype.is_float and dtype.bits < 32 and source.is_integer:
        exact: Any = _F64 if dtype is dt.float16 else np.longdouble  # float16 ends before 2**53
        return _round_narrow(x.astype(exact), dtype)
    return x.astype(dtype.numpy)


def _round_narrow(x: Array, dtype: DType) -> Array:
    """Round a wide float to a narrow one once (through float32 to odd, against double rounding)."""
    if dtype is dt.float16:
        return x.astype(np.float16)
    single = x.astype(np.float32)
    bits = single.view(np.uint32)
    inexact = (single.astype(x.dtype) != x) & np.isfinite(x)
    grew = np.abs(single.astype(x.dtype)) > np.abs(x)
    odd = np.where(grew, bits - 1, bits) | np.uint32(1)
    return np.where(inexact, odd, bits).astype(np.uint32).view(np.float32).astype(dtype.numpy)
