"""Constant folding with the exact semantics of `weft.ir.op`.

An operation is folded only where the result is certain on every device: integers and bools
always; floats for the operations that IEEE 754 rounds correctly. Transcendental functions are
left to the decompositions that every device shares.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Expr, Scalar, floordiv, floormod, make
from weft.ir.op import Op, Operation

if TYPE_CHECKING:  # with decimal behind it, slow to import, and rarely needed
    from fractions import Fraction

_EXACT: Final = 1 << 53  # magnitude up to which each integer is a float64


def round_float(value: float | int | Fraction, d: DType) -> float:
    """Return `value` rounded once, to nearest even, to the float type `d`.

    Overflow gives infinity, in float8_e4m3fn (which has none) NaN.
    """
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        value = float(value)
    if isinstance(value, float) and (not math.isfinite(value) or value == 0):
        return math.nan if math.isinf(value) and d is dt.float8_e4m3fn else value
    code = _FLOAT_CODE.get(d.bits) if isinstance(value, float) and d is not dt.bfloat16 else None
    if code is not None:
        try:
            rounded: float = struct.unpack(code, struct.pack(code, value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
        return rounded
    with importing:
        from fractions import Fraction

    exact = Fraction(value)
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    least = 2 - (1 << (d.exponent - 1))  # exponent of the smallest normal number
    ulp = Fraction(2) ** (max(exponent, least) - d.mantissa)
    nearest = round(magnitude / ulp) * ulp  # Fraction rounds half to even
    if nearest > _largest(d):
        result = math.nan if d is dt.float8_e4m3fn else math.inf
    else:
        result = float(nearest)
    return math.copysign(result, -1.0 if exact < 0 else 1.0)


def _largest(d: DType) -> Fraction:
    with importing:
        from fractions import Fraction

    if d is dt.float8_e4m3fn:
        return Fraction(448)
    top = Fraction(2) ** ((1 << (d.exponent - 1)) - 1)
    return top * (2 - Fraction(1, 1 << d.mantissa))


def normalise(value: Scalar, d: DType) -> Scalar:
    """Return the value that a constant of type `d` has: a float rounded to its type."""
    if d.kind != "f" or d is dt.float64:
        return value
    return round_float(float(value), d)


# --- integers and bools: (a, b, dtype) in Python integers, wrapped afterwards


def _shl(a: int, b: int, d: DType) -> int:
    return a << b if 0 <= b < d.bits else 0


def _shr(a: int, b: int, d: DType) -> int:
    return a >> b if 0 <= b < d.bits else (-1 if a < 0 else 0)


def _fmod_int(a: int, b: int, d: DType) -> int | None:
    if b == 0:
        return 0
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _pow_int(a: int, b: int, d: DType) -> int | None:
    return pow(a, b, 1 << d.bits) if b >= 0 else None


_INTEGER_BINARY: Final[dict[Operation, Callable[[int, int, DType], int | None]]] = {
    Op.ADD: lambda a, b, d: a + b,
    Op.SUB: lambda a, b, d: a - b,
    Op.MUL: lambda a, b, d: a * b,
    Op.FLOORDIV: lambda a, b, d: floordiv(a, b),
    Op.MOD: lambda a, b, d: floormod(a, b),
    Op.FMOD: _fmod_int,
    Op.POW: _pow_int,
    Op.MIN: lambda a, b, d: min(a, b),
    Op.MAX: lambda a, b, d: max(a, b),
    Op.AND: lambda a, b, d: a & b,
    Op.OR: lambda a, b, d: a | b,
    Op.XOR: lambda a, b, d: a ^ b,
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.MULHI: lambda a, b, d: (a * b) >> d.bits,
}
_COMPARE: Final[dict[Operation, Callable[[Scalar, Scalar], bool]]] = {
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
}
_INTEGER_UNARY: Final[dict[Operation, Callable[[int, DType], int]]] = {
    Op.NEG: lambda a, d: -a,
    Op.NOT: lambda a, d: ~a,
    Op.ABS: lambda a, d: abs(a),
    Op.POPCOUNT: lambda a, d: (a & ((1 << d.bits) - 1)).bit_count(),
    Op.CLZ: lambda a, d: d.bits - (a & ((1 << d.bits) - 1)).bit_length(),
}

# --- floats: in float64; rounding that to float32 again is innocuous for these operations,
# because 53 >= 2 * 24 + 2 (Figueroa, When is double rounding innocuous?, 1995)


def _div(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fmod(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    return math.fmod(a, b)


def _min(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return min(a, b, key=lambda v: (v, math.copysign(1.0, v)))


def _max(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return max(a, b, key=lambda v: (v, math.copysign(1.0, v)))


def _sqrt(a: float) -> float:
    return math.sqrt(a) if a >= 0 else math.nan


def _integral(fn: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(a: float) -> float:
        return math.copysign(float(fn(a)), a) if math.isfinite(a) else a

    return rounded


_FLOAT_BINARY: Final[dict[Operation, Callable[[float, float], float]]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: _div,
    Op.FMOD: _fmod,
    Op.MIN: _min,
    Op.MAX: _max,
    Op.COPYSIGN: lambda a, b: math.copysign(a, b),
}
_FLOAT_UNARY: Final[dict[Operation, Callable[[float], float]]] = {
    Op.NEG: lambda a: -a,
    Op.ABS: abs,
    Op.SQRT: _sqrt,
    Op.RECIPROCAL: lambda a: _div(1.0, a),
    Op.FLOOR: _integral(math.floor),
    Op.CEIL: _integral(math.ceil),
    Op.TRUNC: _integral(math.trunc),
    Op.ROUND: _integral(round),
}


def _compute(value: float, d: DType) -> float:
    """Round a float64 result as an operation on `d` does: 16-bit types pass through float32."""
    if d is dt.float64:
        return value
    value = round_float(value, dt.float32)
    return value if d is dt.float32 else round_float(value, d)


def _float(op: Operation, values: list[float], d: DType) -> float | None:
    if op is Op.COPYSIGN and math.isnan(values[1]):
        return None  # the sign of a NaN is not defined
    if op in _FLOAT_BINARY:
        return _compute(_FLOAT_BINARY[op](values[0], values[1]), d)
    if op in _FLOAT_UNARY:
        return _compute(_FLOAT_UNARY[op](values[0]), d)
    if op is Op.MAD and d.bits >= 32 and all(map(math.isfinite, values)):
        with importing:
            from fractions import Fraction

        exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
        return round_float(exact, d) if exact else None  # the sign of an exact zero
    return None


def _integer(op: Operation, values: list[int], d: DType) -> int | None:
    if op in _INTEGER_BINARY:
        result = _INTEGER_BINARY[op](values[0], values[1], d)
    elif op in _INTEGER_UNARY:
        result = _INTEGER_UNARY[op](values[0], d)
    else:
        return None
    if result is None:
        return None
    return result & 1 if d.is_bool else dt.wrap(result, d)


def fold_cast(value: Scalar, source: DType, d: DType) -> Scalar | None:
    """Return a constant converted to `d`, or None where two correct routes differ."""
    if d.is_bool:
        return bool(value)  # NaN is true
    if d.is_integer:
        if source.kind != "f":
            return dt.wrap(int(value), d)
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return int(d.max if value > 0 else d.min)
        return max(int(d.min), min(int(d.max), math.trunc(value)))
    once = round_float(value if isinstance(value, float) else int(value), d)
    if d.bits >= 32:
        return once
    through = round_float(value if isinstance(value, float) else int(value), dt.float32)
    twice = round_float(through, d)
    return once if once == twice or (math.isnan(once) and math.isnan(twice)) else None


_FLOAT_CODE: Final = {16: "<e", 32: "<f", 64: "<d"}


def _bitcast(value: Scalar, source: DType, d: DType) -> Scalar | None:
    bits = _bits(value, source)
    if bits is None:
        return None
    if d.is_integer:
        return dt.wrap(bits, d)
    if d is dt.bfloat16:
        made: float = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    elif d.bits in _FLOAT_CODE:
        made = struct.unpack(_FLOAT_CODE[d.bits], bits.to_bytes(d.itemsize, "little"))[0]
    else:
        return None
    return None if math.isnan(made) else made  # a payload would be lost


def _bits(value: Scalar, d: DType) -> int | None:
    if d.is_integer:
        return int(value) & ((1 << d.bits) - 1)
    if math.isnan(value):
        return None
    if d is dt.bfloat16:
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    if d.bits not in _FLOAT_CODE:
        return None
    return int.from_bytes(struct.pack(_FLOAT_CODE[d.bits], value), "little")


def fold(e: Expr) -> Expr | None:
    """Return the constant that `e` is, or None if an operand is not one or it is not certain."""
    for a in e.args:
        if a.op is not Op.CONST:
            return None
    values = [normalise(a.attr, a.dtype) for a in e.args]
    result = _fold_values(e, values)
    return None if result is None else make(Op.CONST, e.dtype, (), result, e.lanes)


def _fold_values(e: Expr, values: list[Scalar]) -> Scalar | None:
    source = e.args[0].dtype
    if e.op is Op.CAST:
        return fold_cast(values[0], source, e.dtype)
    if e.op is Op.BITCAST:
        return _bitcast(values[0], source, e.dtype)
    if e.op in (Op.BROADCAST, Op.EXTRACT, Op.HALF):
        return values[0]
    if e.op in _COMPARE:
        return _COMPARE[e.op](values[0], values[1])
    if e.op is Op.WHERE:
        return values[1] if values[0] else values[2]
    if source.kind == "f":
        return _float(e.op, [float(v) for v in values], source)
    result = _integer(e.op, [int(v) for v in values], source)
    return bool(result) if result is not None and e.dtype.is_bool else result


FOLDABLE: Final[tuple[Operation, ...]] = tuple(
    {
        *_INTEGER_BINARY, *_INTEGER_UNARY, *_FLOAT_BINARY, *_FLOAT_UNARY, *_COMPARE,
        Op.CAST, Op.BITCAST, Op.WHERE, Op.MAD, Op.BROADCAST, Op.EXTRACT, Op.HALF,
    }
)  # fmt: skip
FOLDS: Final[dict[Operation, Callable[[Expr], Expr | None]]] = dict.fromkeys(FOLDABLE, fold)
