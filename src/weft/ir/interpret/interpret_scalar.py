"""The meaning of every scalar operation in plain Python: the oracle below all other oracles.

Values are Python bools, ints and floats; a float of a narrow type is the Python float that equals
it. Narrow floats are computed in float64 and rounded to float32, then to their type: for
``+ - * / sqrt`` this equals one correct rounding of the exact result to float32, because float64
has more than twice its bits. Payloads of NaN are not kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from weft.errors import UnsupportedError
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.interpret.interpret_value import converter, from_bits, rounding, to_bits, wrapping
from weft.ir.op import Op, Operation

Function = Callable[..., Any]

_inf: Final = math.inf
_nan: Final = math.nan


# floats


def _guard(fn: Callable[[float], float]) -> Callable[[float], float]:
    """Turn the exceptions of `math` into NaN and infinity."""

    def guarded(x: float) -> float:
        try:
            return fn(x)
        except ValueError:
            return _nan
        except OverflowError:
            return _inf

    return guarded


def _logarithm(fn: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    def log(x: float) -> float:
        if x == pole:
            return -_inf
        return fn(x) if x > pole else _nan

    return log


def _reciprocal(x: float) -> float:
    return 1.0 / x if x else math.copysign(_inf, x)


def _rsqrt(x: float) -> float:
    if x > 0:
        return 1.0 / math.sqrt(x)
    return math.copysign(_inf, x) if x == 0 else _nan


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(_inf, x)


def _atanh(x: float) -> float:
    if abs(x) == 1.0:
        return math.copysign(_inf, x)
    return math.atanh(x) if abs(x) < 1 else _nan


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


def _integral(fn: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(x: float) -> float:
        return math.copysign(float(fn(x)), x) if math.isfinite(x) else x

    return rounded


def divide(x: float, y: float) -> float:
    """IEEE division."""
    if y:
        return x / y
    if x == 0 or x != x or y != y:
        return _nan
    return math.copysign(_inf, x) * math.copysign(1.0, y)


def _float_floordiv(x: float, y: float) -> float:
    return x // y if y else divide(x, y)


def _float_mod(x: float, y: float) -> float:
    return x % y if y else _nan


def _float_fmod(x: float, y: float) -> float:
    if y == 0 or math.isinf(x):
        return _nan
    return math.fmod(x, y)


def _float_pow(x: float, y: float) -> float:
    odd = math.isfinite(y) and y == math.floor(y) and math.fmod(y, 2.0) != 0
    if x == 0 and y < 0:
        return math.copysign(_inf, x) if odd else _inf
    try:
        return math.pow(x, y)
    except ValueError:
        return _nan
    except OverflowError:
        return -_inf if x < 0 and odd else _inf


def float_min(x: float, y: float) -> float:
    """Return the smaller; NaN if either is; -0 < +0."""
    if x != x or y != y:
        return _nan
    if x == y:
        return x if math.copysign(1.0, x) < 0 else y
    return x if x < y else y


def float_max(x: float, y: float) -> float:
    """Return the larger; NaN if either is; -0 < +0."""
    if x != x or y != y:
        return _nan
    if x == y:
        return y if math.copysign(1.0, x) < 0 else x
    return x if x > y else y


def _next_odd(value: float, error: float) -> float:
    """Round to odd: a float64 that no later, narrower rounding can take for a tie."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    if error == 0 or bits & 1:
        return value
    away = (error > 0) == (value > 0)
    return float(struct.unpack("<d", struct.pack("<q", bits + (1 if away else -1)))[0])


def _mad_narrow(x: float, y: float, z: float) -> float:
    """Return x * y + z of floats of at most 32 bits, rounded to odd."""
    product = x * y  # exact: 24 + 24 bits
    total = product + z
    if not math.isfinite(total) or total == 0:
        return total
    part = total - product
    error = (product - (total - part)) + (z - part)
    return _next_odd(total, error)


def _mad_f64(x: float, y: float, z: float) -> float:
    plain = x * y + z
    if not (math.isfinite(x) and math.isfinite(y)):
        return plain
    if not math.isfinite(z):
        return z  # the product itself may overflow, but not in infinite precision
    with importing:
        from fractions import Fraction

    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return plain if x == 0 or y == 0 else 0.0  # cancellation is +0 in round to nearest
    try:
        rounded = float(exact)
    except OverflowError:
        return _inf if exact > 0 else -_inf
    return rounded if rounded or exact > 0 else -0.0


_FLOAT_UNARY: Final[dict[Operation, Callable[[float], float]]] = {
    Op.NEG: lambda x: -x,
    Op.ABS: abs,
    Op.SQRT: _guard(math.sqrt),
    Op.RSQRT: _rsqrt,
    Op.RECIPROCAL: _reciprocal,
    Op.EXP: _guard(math.exp),
    Op.EXP2: _guard(math.exp2),
    Op.EXPM1: _guard(math.expm1),
    Op.LOG: _logarithm(math.log),
    Op.LOG2: _logarithm(math.log2),
    Op.LOG10: _logarithm(math.log10),
    Op.LOG1P: _logarithm(math.log1p, -1.0),
    Op.SIN: _guard(math.sin),
    Op.COS: _guard(math.cos),
    Op.TAN: _guard(math.tan),
    Op.ASIN: _guard(math.asin),
    Op.ACOS: _guard(math.acos),
    Op.ATAN: math.atan,
    Op.SINH: _sinh,
    Op.COSH: _guard(math.cosh),
    Op.TANH: math.tanh,
    Op.ASINH: math.asinh,
    Op.ACOSH: _guard(math.acosh),
    Op.ATANH: _atanh,
    Op.ERF: math.erf,
    Op.ERFC: math.erfc,
    Op.SIGMOID: _sigmoid,
    Op.FLOOR: _integral(math.floor),
    Op.CEIL: _integral(math.ceil),
    Op.TRUNC: _integral(math.trunc),
    Op.ROUND: _integral(round),
}
def _number(choose: Callable[[float, float], float], x: float, y: float) -> float:
    """Return which of two is chosen, a number before a NaN."""
    if x != x:
        return y
    return x if y != y else choose(x, y)


_FLOAT_BINARY: Final[dict[Operation, Callable[[float, float], float]]] = {
    Op.ADD: float.__add__,
    Op.SUB: float.__sub__,
    Op.MUL: float.__mul__,
    Op.DIV: divide,
    Op.FLOORDIV: _float_floordiv,
    Op.MOD: _float_mod,
    Op.FMOD: _float_fmod,
    Op.POW: _float_pow,
    Op.ATAN2: math.atan2,
    Op.COPYSIGN: math.copysign,
    Op.MIN: float_min,
    Op.MAX: float_max,
    Op.MINNUM: lambda x, y: _number(float_min, x, y),
    Op.MAXNUM: lambda x, y: _number(float_max, x, y),
    Op.NANOF: lambda x, y: x if x != x else y,
}
_EXACT: Final = {Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.COPYSIGN, Op.MIN,
                 Op.MAX, Op.MINNUM, Op.MAXNUM, Op.NANOF}  # fmt: skip
_COMPARE: Final[dict[Operation, Function]] = {
    Op.LT: lambda x, y: x < y,
    Op.LE: lambda x, y: x <= y,
    Op.EQ: lambda x, y: x == y,
    Op.NE: lambda x, y: x != y,
}


# integers


def _int_pow(x: int, y: int, d: DType) -> int:
    if y >= 0:
        return dt.wrap(pow(x, y, 1 << d.bits), d)
    if x == 1 or (x == -1 and y % 2 == 0):
        return 1
    return -1 if x == -1 else 0


def _int_fmod(x: int, y: int) -> int:
    if not y:
        return 0
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


def _integer_op(op: Operation, d: DType) -> Function | None:
    wrap, bits, mask = wrapping(d), d.bits, (1 << d.bits) - 1
    table: dict[Operation, Function] = {
        Op.NEG: lambda x: wrap(-x),
        Op.NOT: lambda x: wrap(~x),
        Op.ABS: lambda x: wrap(abs(x)),
        Op.POPCOUNT: lambda x: (x & mask).bit_count(),
        Op.CLZ: lambda x: bits - (x & mask).bit_length(),
        Op.ADD: lambda x, y: wrap(x + y),
        Op.SUB: lambda x, y: wrap(x - y),
        Op.MUL: lambda x, y: wrap(x * y),
        Op.FLOORDIV: lambda x, y: wrap(x // y) if y else 0,
        Op.MOD: lambda x, y: x % y if y else 0,
        Op.FMOD: _int_fmod,
        Op.POW: lambda x, y: _int_pow(x, y, d),
        Op.MIN: min,
        Op.MAX: max,
        Op.AND: lambda x, y: x & y,
        Op.OR: lambda x, y: x | y,
        Op.XOR: lambda x, y: x ^ y,
        Op.SHL: lambda x, y: wrap(x << y) if 0 <= y < bits else 0,
        Op.SHR: lambda x, y: x >> y if 0 <= y < bits else (-1 if x < 0 else 0),
        Op.MULHI: lambda x, y: wrap((x * y) >> bits),
    }
    return table.get(op)


_BOOL_OPS: Final[dict[Operation, Function]] = {
    Op.NOT: lambda x: not x,
    Op.MIN: lambda x, y: x and y,
    Op.MAX: lambda x, y: x or y,
    Op.AND: lambda x, y: x and y,
    Op.OR: lambda x, y: x or y,
    Op.XOR: lambda x, y: x != y,
    Op.UNLIKELY: lambda x: x,
}


# dot products of packed words


def _flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def _dot2(total: float, a: int, b: int) -> float:
    after = rounding(dt.float32)
    total = _flushed(total)
    for shift in (16, 0):
        x, y = (_flushed(from_bits(w >> shift & 0xFFFF, dt.bfloat16)) for w in (a, b))
        total = _flushed(after(_mad_narrow(x, y, total)))
    return total


def _dot4(total: int, a: int, b: int, first: DType = dt.uint8) -> int:
    for shift in (0, 8, 16, 24):
        total += dt.wrap(a >> shift & 0xFF, first) * dt.wrap(b >> shift & 0xFF, dt.int8)
    return int(dt.wrap(total, dt.int32))


def _dot4s(total: int, a: int, b: int) -> int:
    return _dot4(total, a, b, dt.int8)


# the table

_DOTS: Final[dict[Operation, Function]] = {Op.DOT2: _dot2, Op.DOT4: _dot4, Op.DOT4S: _dot4s}


@cache
def function(op: Operation, operand: DType, result: DType) -> Function:
    """Return the Python function of an elementwise op on one lane.

    `operand` is the type of the last operand (the values of WHERE), `result` that of the result.

    Raises
    ------
    UnsupportedError
        If the op table has no such row.
    """
    if op is Op.WHERE:
        return lambda c, x, y: x if c else y
    if op is Op.CAST:
        return converter(operand, result)
    if op is Op.BITCAST:
        return lambda x: from_bits(to_bits(x, operand), result)
    if op in _COMPARE:
        return _COMPARE[op]
    if op.group == "dot":
        return _DOTS[op]
    found: Function | None = None
    if operand.is_bool:
        found = _BOOL_OPS.get(op)
    elif operand.is_integer:
        found = _integer_op(op, operand)
    else:
        found = _float_op(op, operand)
    if found is None:
        raise UnsupportedError(op.name, found=operand.name, expected=f"a kind of {op.kinds!r}")
    return found


def _scalb(x: float, n: float) -> float:
    if math.isnan(x) or math.isnan(n):
        return _nan
    try:
        return math.ldexp(x, math.floor(max(min(n, 5000.0), -5000.0)))
    except OverflowError:
        return math.copysign(_inf, x)


def _float_op(op: Operation, d: DType) -> Function | None:
    after = rounding(d)
    if op is Op.SCALB:
        return _scalb if d.bits == 64 else lambda x, n: after(_scalb(x, n))
    if op is Op.MAD:
        if d.bits == 64:
            return _mad_f64
        return lambda x, y, z: after(_mad_narrow(x, y, z))
    unary = _FLOAT_UNARY.get(op)
    if unary is not None:
        if op in _EXACT or d.bits == 64:
            return unary
        one = unary
        return lambda x: after(one(x))
    binary = _FLOAT_BINARY.get(op)
    if binary is None:
        return None
    if op in _EXACT or d.bits == 64:
        return binary
    two = binary
    return lambda x, y: after(two(x, y))
