"""Values of every type in plain Python: rounded, wrapped, converted, and as patterns of bits.

Values are Python bools, ints and floats; a float of a narrow type is the Python float that equals
it. Payloads of NaN are not kept.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType

_inf: Final = math.inf
_nan: Final = math.nan
_c_float: Final = ctypes.c_float


def _identity(x: Any) -> Any:
    return x


def round_f32(x: float) -> float:
    """Round to float32, nearest even; overflow gives infinity."""
    return _c_float(x).value


def round_float(x: float, d: DType) -> float:
    """Round to a float type with one rounding, nearest even."""
    if d.bits >= 32:
        return x if d.bits == 64 else _c_float(x).value
    if x == 0.0 or x != x:
        return x
    bias = (1 << (d.exponent - 1)) - 1
    if math.isinf(x):
        return _nan if d is dt.float8_e4m3fn else x
    fraction, exponent = math.frexp(x)
    if exponent > bias + 2:  # beyond every value, and the power below might not be a double
        return _nan if d is dt.float8_e4m3fn else math.copysign(_inf, x)
    unit = max(exponent - 1, 1 - bias) - d.mantissa
    rounded = math.ldexp(round(math.ldexp(fraction, exponent - unit)), unit)
    if abs(rounded) > _largest(d):
        return _nan if d is dt.float8_e4m3fn else math.copysign(_inf, x)
    return math.copysign(rounded, x)


def _largest(d: DType) -> float:
    if d is dt.float8_e4m3fn:
        return 448.0
    bias = (1 << (d.exponent - 1)) - 1
    return (2.0 - 2.0**-d.mantissa) * 2.0**bias


@cache
def rounding(d: DType) -> Callable[[float], float]:
    """Return what rounds a computed result to `d`: by way of float32 for narrower floats."""
    if d.bits == 64:
        return _identity
    if d.bits == 32:
        return round_f32
    return lambda x: round_float(_c_float(x).value, d)


def wrapping(d: DType) -> Callable[[int], int]:
    """Return what takes an integer modulo its type's range."""
    low, high = int(d.min), int(d.max)
    mask, span = (1 << d.bits) - 1, 1 << d.bits

    def wrap(x: int) -> int:
        if low <= x <= high:
            return x
        x &= mask
        return x - span if x > high else x

    return wrap


@cache
def converter(source: DType, target: DType) -> Callable[..., Any]:
    """Return the function that casts a value of `source` to `target`."""
    if target.is_bool:
        return lambda x: x != 0
    if target.is_float:
        if source.is_float and (
            source.exponent <= target.exponent and source.mantissa <= target.mantissa
        ):
            return _identity
        if source.is_float:
            return lambda x: round_float(x, target)
        return lambda x: _int_to_float(int(x), target)
    wrap = wrapping(target)
    if source.is_float:
        return _saturating(target)
    return int if source.is_bool else wrap


def _int_to_float(x: int, d: DType) -> float:
    if abs(x) <= 1 << 53:
        return round_float(float(x), d)
    # Round to odd at 60 bits, so that the second rounding cannot see a false tie.
    if d.bits == 64:
        return float(x)
    shift = max(abs(x).bit_length() - 50, 0)
    top = abs(x) >> shift
    if top << shift != abs(x):
        top |= 1
    return round_float(math.copysign(math.ldexp(top, shift), x), d)


def _saturating(d: DType) -> Callable[[float], int]:
    low, high = int(d.min), int(d.max)

    def convert(x: float) -> int:
        if x != x:
            return 0
        if math.isinf(x):
            return high if x > 0 else low
        return max(low, min(high, int(x)))

    return convert


def to_bits(x: Any, d: DType) -> int:
    """Return the bit pattern of a value, as an unsigned integer."""
    if not d.is_float:
        return int(x) & ((1 << max(d.bits, 8)) - 1)
    if d.bits == 64:
        return int(struct.unpack("<Q", struct.pack("<d", x))[0])
    wide = int(struct.unpack("<I", bytes(_c_float(x)))[0])
    if d.bits == 32:
        return wide
    sign = wide >> 31 << (d.bits - 1)
    if x != x:
        quiet = ((1 << d.exponent) - 1) << d.mantissa | 1 << (d.mantissa - 1)
        return sign | (0x7F if d is dt.float8_e4m3fn else quiet)
    if math.isinf(x):
        return sign | ((1 << d.exponent) - 1) << d.mantissa
    if x == 0:
        return sign
    bias = (1 << (d.exponent - 1)) - 1
    _, exponent = math.frexp(x)
    exponent = max(exponent - 1, 1 - bias)
    number = int(math.ldexp(abs(x), d.mantissa - exponent))  # hidden bit included
    return sign | number + ((exponent + bias - 1) << d.mantissa)


def from_bits(bits: int, d: DType) -> Any:
    """Return the value with this bit pattern."""
    if d.is_bool:
        return bits != 0
    if d.is_integer:
        return dt.wrap(bits, d)
    if d.bits == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if d.bits == 32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    top = (1 << d.exponent) - 1
    exponent, mantissa = bits >> d.mantissa & top, bits & ((1 << d.mantissa) - 1)
    sign = -1.0 if bits >> (d.bits - 1) else 1.0
    if d is dt.float8_e4m3fn:
        if bits & 0x7F == 0x7F:
            return math.copysign(_nan, sign)
    elif exponent == top:
        return math.copysign(_nan, sign) if mantissa else sign * _inf
    bias = (1 << (d.exponent - 1)) - 1
    number = mantissa | ((1 << d.mantissa) if exponent else 0)
    return sign * math.ldexp(number, max(exponent, 1) - bias - d.mantissa)
