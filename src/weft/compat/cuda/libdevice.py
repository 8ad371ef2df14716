"""``numba.cuda.libdevice``: NVIDIA's functions by name, for kernels, with Weft's own arithmetic.

A name that ends in ``f`` takes and gives float32, the others float64. The ``fast_`` functions are
as precise as the plain ones. What numba gives back by pointers is returned after the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft.compat.cuda import bits, rounding, special
from weft.compat.cuda.bits import (
    double_as_longlong,
    half_as_short,
    longlong_as_double,
    short_as_half,
)
from weft.compat.cuda.rounding import minus, plus, times
from weft.lang.device import gpu as _operations
from weft.lang.launch.device_function import DeviceFunction, func

gpu: Any = _operations
single: Any = np.float32
double: Any = np.float64
_ZERO: Final[Any] = np.int8(0)  # beside a float32 they leave it one
_UNIT: Final[Any] = np.int8(1)
_TEN: Final[Any] = np.float32(10)


float_as_int, int_as_float = bits.float_as_int, bits.int_as_float

# --- what the tables below name: functions in the type of their arguments


def exp10(x: Any) -> Any:
    """Return ten to a power."""
    return math.pow(_TEN, x)


def sinpi(x: Any) -> Any:
    """Return ``sin(pi * x)``."""
    return math.sin(math.pi * math.fmod(np.float64(x), 2.0))


def cospi(x: Any) -> Any:
    """Return ``cos(pi * x)``."""
    return math.cos(math.pi * math.fmod(np.float64(x), 2.0))


def rsqrt(x: Any) -> Any:
    """Return one over the square root."""
    return _UNIT / math.sqrt(x)


def rcbrt(x: Any) -> Any:
    """Return one over the cube root."""
    return _UNIT / np.cbrt(x)


def away(x: Any) -> Any:
    """Return the nearest whole number, the one farther from 0 of two."""
    whole = np.trunc(x)
    return whole + math.copysign(_UNIT, x) if math.fabs(x - whole) >= 0.5 else whole


def erfcx(x: Any) -> Any:
    """Return ``exp(x * x) * erfc(x)``, by a fraction where the factors would overflow."""
    y = double(x)
    found = math.exp(y * y) * math.erfc(y)
    if y > 5.0:
        rest = 0.0
        for k in range(60, 0, -1):
            rest = 0.5 * k / (y + rest)
        found = 0.5641895835477563 / (y + rest)
    return found


def normcdf(x: Any) -> Any:
    """Return the probability of a normally distributed number below `x`."""
    return 0.5 * math.erfc(-np.float64(x) * 0.7071067811865476)


def erfinv(x: Any) -> Any:
    """Return the number whose error function is `x`: an estimate, and three steps of Newton's."""
    y = double(x)
    found = y
    if math.fabs(y) < 1.0 and y != 0.0:
        w = math.log1p(-y * y)
        t = 4.3307467508 + 0.5 * w
        found = math.copysign(math.sqrt(math.sqrt(t * t - w / 0.147) - t), y)
        for _ in range(3):
            if math.fabs(y) < 0.5:
                error = math.erf(found) - y
            else:
                error = math.copysign(1.0, y) * (
                    (1.0 - math.fabs(y)) - math.erfc(math.fabs(found)))
            step = error * 0.8862269254527580 * math.exp(found * found)
            found = found - step / (1.0 + found * step)
    elif math.fabs(y) == 1.0:
        found = math.copysign(math.inf, y)
    elif y != 0.0:
        found = math.nan
    return found


def logb(x: Any) -> Any:
    """Return the exponent of a number, as a float."""
    size = math.fabs(double(x))
    found = size
    if size == 0.0:
        found = -math.inf
    elif size < math.inf:
        found = math.frexp(size)[1] - 1.0
    return found


def nearest(x: Any) -> Any:
    """Return the nearest whole number, the even one of two."""
    return np.rint(x)


def fdim(x: Any, y: Any) -> Any:
    """Return ``x - y`` where that is positive, else 0."""
    return x - y if x > y or x != x or y != y else _ZERO


def divide(x: Any, y: Any) -> Any:
    """Return ``x / y``."""
    return x / y


def clamp01(x: Any) -> Any:
    """Return a number, or the nearer of 0 and 1."""
    return np.fmin(np.fmax(x, _ZERO), _UNIT)


def reciprocal(x: Any) -> Any:
    """Return ``1 / x``."""
    return _UNIT / x


def _of_one(function: Callable[..., Any], kind: Any, result: Any = None) -> DeviceFunction:
    given = kind if result is None else result

    def call(x: Any) -> Any:
        return given(function(kind(x)))

    return func(call)


def _of_two(function: Callable[..., Any], kind: Any) -> DeviceFunction:
    def call(x: Any, y: Any) -> Any:
        return kind(function(kind(x), kind(y)))

    return func(call)


_ONE: Final[dict[str, Callable[..., Any]]] = {
    "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh,
    "atan": math.atan, "atanh": math.atanh, "cbrt": np.cbrt, "ceil": np.ceil, "cos": math.cos,
    "cosh": math.cosh, "cospi": cospi, "erf": math.erf, "erfc": math.erfc, "erfcx": erfcx,
    "erfinv": erfinv, "exp": math.exp, "exp10": exp10, "exp2": np.exp2, "expm1": math.expm1,
    "fabs": math.fabs, "floor": np.floor, "lgamma": math.lgamma, "log": math.log,
    "log10": math.log10, "log1p": math.log1p, "log2": math.log2, "logb": logb,
    "nearbyint": nearest, "normcdf": normcdf, "rcbrt": rcbrt, "rint": nearest, "round": away,
    "rsqrt": rsqrt, "sin": math.sin, "sinh": math.sinh, "sinpi": sinpi, "sqrt": math.sqrt,
    "tan": math.tan, "tanh": math.tanh, "tgamma": math.gamma, "trunc": np.trunc,
    "erfcinv": special.erfcinv, "normcdfinv": special.normcdfinv, "j0": special.bessel_j0,
    "j1": special.bessel_j1, "y0": special.bessel_y0, "y1": special.bessel_y1,
}  # fmt: skip
_TWO: Final[dict[str, Callable[..., Any]]] = {
    "atan2": math.atan2, "copysign": math.copysign, "fdim": fdim, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": math.fmod, "hypot": math.hypot, "pow": math.pow, "remainder": math.remainder,
}  # fmt: skip
for _name, _function in _ONE.items():
    globals()[_name] = _of_one(_function, double)
    globals()[_name + "f"] = _of_one(_function, single)
for _name, _function in _TWO.items():
    globals()[_name] = _of_two(_function, double)
    globals()[_name + "f"] = _of_two(_function, single)
for _name in ("cos", "exp", "exp10", "log", "log10", "log2", "sin", "tan"):
    globals()[f"fast_{_name}f"] = _of_one(_ONE[_name], single)
globals()["fast_powf"] = _of_two(math.pow, single)
globals()["fast_fdividef"] = _of_two(divide, single)
for _letter, _kind in (("d", double), ("f", single)):
    for _name, _function in (("add", plus), ("sub", minus), ("mul", times), ("div", divide)):
        globals()[f"{_letter}{_name}_rn"] = _of_two(_function, _kind)
    for _name, _function in (("rcp", reciprocal), ("sqrt", math.sqrt)):
        globals()[f"{_letter}{_name}_rn"] = _of_one(_function, _kind)
    globals()[f"isnan{_letter}"] = _of_one(math.isnan, _kind, np.int32)
    globals()[f"isinf{_letter}"] = _of_one(math.isinf, _kind, np.int32)
    globals()[f"signbit{_letter}"] = _of_one(np.signbit, _kind, np.int32)
globals()["isfinited"] = _of_one(math.isfinite, double, np.int32)
globals()["finitef"] = _of_one(math.isfinite, single, np.int32)
globals()["saturatef"] = _of_one(clamp01, single)
globals()["frsqrt_rn"] = _of_one(rsqrt, single)
_ROUNDED: Final[dict[str, Callable[..., Any]]] = {
    "rn": nearest, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}  # fmt: skip
_WHOLE: Final = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
for _word, _target in _WHOLE.items():
    for _mode, _function in _ROUNDED.items():
        globals()[f"double2{_word}_{_mode}"] = _of_one(_function, double, _target)
        globals()[f"float2{_word}_{_mode}"] = _of_one(_function, single, _target)
    globals()[f"{_word}2double_rn"] = _of_one(_target, double, double)
    globals()[f"{_word}2float_rn"] = _of_one(_target, _target, single)
    globals()[f"{_word}2double_rn"] = _of_one(_target, _target, double)
globals()["double2float_rn"] = _of_one(single, double, single)
globals()["llrint"] = _of_one(nearest, double, np.int64)
globals()["llrintf"] = _of_one(nearest, single, np.int64)
globals()["llround"] = _of_one(away, double, np.int64)
globals()["llroundf"] = _of_one(away, single, np.int64)


@func
def jn(n: Any, x: Any) -> Any:
    """Return the Bessel function of the first kind of an order."""
    return special.bessel_j(np.int64(n), double(x)) if n >= 0 else math.nan


@func
def jnf(n: Any, x: Any) -> Any:
    """Return the Bessel function of the first kind of an order, of a float32."""
    return single(jn(n, double(single(x))))


@func
def yn(n: Any, x: Any) -> Any:
    """Return the Bessel function of the second kind of an order."""
    return special.bessel_y(np.int64(n), double(x)) if n >= 0 else math.nan


@func
def ynf(n: Any, x: Any) -> Any:
    """Return the Bessel function of the second kind of an order, of a float32."""
    return single(yn(n, double(single(x))))


@func
def fma(x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z``, rounded once."""
    return gpu.fma(double(x), double(y), double(z))


@func
def fmaf(x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z`` of float32, rounded once."""
    return gpu.fma(single(x), single(y), single(z))


fma_rn, fmaf_rn = fma, fmaf
globals().update(rounding.FUNCTIONS)


@func
def sincos(x: Any) -> Any:
    """Return sine and cosine."""
    return math.sin(double(x)), math.cos(double(x))


@func
def sincosf(x: Any) -> Any:
    """Return sine and cosine of a float32."""
    return math.sin(single(x)), math.cos(single(x))


fast_sincosf = sincosf


@func
def frexp(x: Any) -> Any:
    """Return a fraction from 0.5 to 1, and the power of two to multiply it with."""
    return math.frexp(double(x))


@func
def frexpf(x: Any) -> Any:
    """Return a fraction from 0.5 to 1 of a float32, and the power of two."""
    return math.frexp(single(x))


@func
def modf(x: Any) -> Any:
    """Return the part behind the point and the one before it."""
    return math.modf(double(x))


@func
def modff(x: Any) -> Any:
    """Return the part behind the point and the one before it, of a float32."""
    return math.modf(single(x))


@func
def ldexp(x: Any, n: Any) -> Any:
    """Return ``x * 2**n``."""
    return math.ldexp(double(x), n)


@func
def ldexpf(x: Any, n: Any) -> Any:
    """Return ``x * 2**n`` of a float32."""
    return math.ldexp(single(x), n)


scalbn, scalbnf = ldexp, ldexpf


@func
def powi(x: Any, n: Any) -> Any:
    """Return a float64 to a whole power."""
    return math.pow(double(x), double(n))


@func
def powif(x: Any, n: Any) -> Any:
    """Return a float32 to a whole power."""
    return single(math.pow(double(x), double(n)))


@func
def abs(x: Any) -> Any:
    """Return the size of an int32."""
    return max_int(np.int32(x), np.int32(-np.int32(x)))


@func
def max_int(x: Any, y: Any) -> Any:
    """Return the larger of two integers of one type."""
    return x if x > y else y


def _integers(kind: Any, larger: bool) -> DeviceFunction:
    def high(x: Any, y: Any) -> Any:
        return kind(x) if kind(x) > kind(y) else kind(y)

    def low(x: Any, y: Any) -> Any:
        return kind(x) if kind(x) < kind(y) else kind(y)

    return func(high if larger else low)


_INTEGERS: Final[tuple[tuple[str, Any], ...]] = (
    ("", np.int32), ("u", np.uint32), ("ll", np.int64), ("ull", np.uint64))
for _prefix, _kind in _INTEGERS:
    globals()[f"{_prefix}max"] = _integers(_kind, True)
    globals()[f"{_prefix}min"] = _integers(_kind, False)


@func
def llabs(x: Any) -> Any:
    """Return the size of an int64."""
    return max_int(np.int64(x), -np.int64(x))


@func
def mulhi(x: Any, y: Any) -> Any:
    """Return the upper 32 bits of a product of int32."""
    return np.int32((np.int64(np.int32(x)) * np.int64(np.int32(y))) >> 32)


@func
def umulhi(x: Any, y: Any) -> Any:
    """Return the upper 32 bits of a product of uint32."""
    return np.uint32((np.uint64(np.uint32(x)) * np.uint64(np.uint32(y))) >> np.uint64(32))


@func
def umul64hi(x: Any, y: Any) -> Any:
    """Return the upper 64 bits of a product of uint64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b = np.uint64(x) >> half, np.uint64(x) & low
    c, d = np.uint64(y) >> half, np.uint64(y) & low
    middle = a * d + ((b * d) >> half)
    other = b * c + (middle & low)
    return a * c + (middle >> half) + (other >> half)


@func
def mul24(x: Any, y: Any) -> Any:
    """Return the lower 32 bits of a product of the lower 24 bits of two int32."""
    return np.int32(((np.int64(x) << 40) >> 40) * ((np.int64(y) << 40) >> 40))


@func
def popc(x: Any) -> Any:
    """Return the number of bits that are set in an int32."""
    return gpu.popc(np.uint32(x))


@func
def popcll(x: Any) -> Any:
    """Return the number of bits that are set in an int64."""
    return gpu.popc(np.uint64(x))


@func
def clz(x: Any) -> Any:
    """Return the number of leading zeros of an int32."""
    return gpu.clz(np.uint32(x))


@func
def clzll(x: Any) -> Any:
    """Return the number of leading zeros of an int64."""
    return gpu.clz(np.uint64(x))


@func
def ffs(x: Any) -> Any:
    """Return the place of the lowest bit that is set in an int32, from 1; 0 if there is none."""
    return gpu.ffs(np.uint32(x))


@func
def ffsll(x: Any) -> Any:
    """Return the place of the lowest bit that is set in an int64, from 1; 0 if there is none."""
    return gpu.ffs(np.uint64(x))


@func
def brev(x: Any) -> Any:
    """Return an int32 with its bits in the other order."""
    return np.int32(gpu.brev(np.uint32(x)))


@func
def brevll(x: Any) -> Any:
    """Return an int64 with its bits in the other order."""
    return np.int64(gpu.brev(np.uint64(x)))


# --- parts of numbers, and integers of a few bits


@func
def double2hiint(x: Any) -> Any:
    """Return the upper 32 bits of a float64."""
    return np.int32(double_as_longlong(x) >> 32)


@func
def double2loint(x: Any) -> Any:
    """Return the lower 32 bits of a float64."""
    return np.int32(double_as_longlong(x))


@func
def hiloint2double(x: Any, y: Any) -> Any:
    """Return the float64 of upper and lower 32 bits."""
    return longlong_as_double((np.int64(np.int32(x)) << 32) | (np.int64(y) & 0xFFFFFFFF))


@func
def float2half_rn(x: Any) -> Any:
    """Return the bits of the float16 nearest to a float32."""
    return half_as_short(np.float16(single(x)))


@func
def half2float(x: Any) -> Any:
    """Return the float32 of the bits of a float16."""
    return single(short_as_half(x))


@func
def ilogb(x: Any) -> Any:
    """Return the exponent of a number: the least int32 for 0 and NaN, the largest for infinity."""
    size = math.fabs(double(x))
    found = np.int32(-2147483648)
    if size == math.inf:
        found = np.int32(2147483647)
    elif size > 0.0:
        found = np.int32(math.frexp(size)[1] - 1)
    return found


@func
def ilogbf(x: Any) -> Any:
    """Return the exponent of a float32, as :func:`ilogb`."""
    return ilogb(single(x))


@func
def remquo(x: Any, y: Any) -> Any:
    """Return what is left of `x` by the nearest multiple of `y`, and the multiple's last 3 bits."""
    return left_and_count(double(x), double(y))


@func
def remquof(x: Any, y: Any) -> Any:
    """Return :func:`remquo` of float32."""
    rest, count = left_and_count(double(single(x)), double(single(y)))
    return single(rest), count


def left_and_count(x: Any, y: Any) -> Any:
    """Return the remainder of two float64, and the last bits of the quotient with its sign."""
    rest = math.remainder(x, y)
    count = np.int32(0)
    if math.fabs(x) < math.inf and 0.0 < math.fabs(y) < math.inf:
        size = math.fabs(y)
        turns = math.fmod(math.fabs(x), 8.0 * size) if size < 2.0e307 else math.fabs(x)
        # Of a number below eight times `y`, the nearest multiple is found without error.
        count = np.int32(np.rint((turns - math.fabs(math.remainder(turns, size))
                                  if math.remainder(turns, size) > 0.0
                                  else turns + math.fabs(math.remainder(turns, size))) / size))
        count = np.int32(count & 7)
        if np.signbit(x) != np.signbit(y):
            count = np.int32(-count)
    return rest, count


@func
def sincospi(x: Any) -> Any:
    """Return sine and cosine of ``pi * x``."""
    return sinpi(double(x)), cospi(double(x))


@func
def sincospif(x: Any) -> Any:
    """Return sine and cosine of ``pi * x`` of a float32."""
    return single(sinpi(single(x))), single(cospi(single(x)))


@func
def byte_perm(x: Any, y: Any, s: Any) -> Any:
    """Return four of the eight bytes of `x` and `y`; each four bits of `s` name one."""
    both = (np.uint64(np.uint32(y)) << np.uint64(32)) | np.uint64(np.uint32(x))
    found = np.uint64(0)
    for k in range(4):
        place = (np.uint64(np.uint32(s)) >> np.uint64(4 * k)) & np.uint64(7)
        byte = (both >> (place * np.uint64(8))) & np.uint64(255)
        found |= byte << np.uint64(8 * k)
    return np.int32(found)


@func
def hadd(x: Any, y: Any) -> Any:
    """Return half the sum of two int32, rounded down."""
    return np.int32((np.int64(np.int32(x)) + np.int64(np.int32(y))) >> 1)


@func
def rhadd(x: Any, y: Any) -> Any:
    """Return half the sum of two int32, rounded up."""
    return np.int32((np.int64(np.int32(x)) + np.int64(np.int32(y)) + 1) >> 1)


@func
def uhadd(x: Any, y: Any) -> Any:
    """Return half the sum of two uint32, rounded down."""
    return np.uint32((np.int64(np.uint32(x)) + np.int64(np.uint32(y))) >> 1)


@func
def urhadd(x: Any, y: Any) -> Any:
    """Return half the sum of two uint32, rounded up."""
    return np.uint32((np.int64(np.uint32(x)) + np.int64(np.uint32(y)) + 1) >> 1)


@func
def sad(x: Any, y: Any, z: Any) -> Any:
    """Return `z` and the distance of two int32."""
    apart = np.int64(np.int32(x)) - np.int64(np.int32(y))
    return np.int32(max_int(apart, -apart) + np.int64(z))


@func
def usad(x: Any, y: Any, z: Any) -> Any:
    """Return `z` and the distance of two uint32."""
    apart = np.int64(np.uint32(x)) - np.int64(np.uint32(y))
    return np.uint32(max_int(apart, -apart) + np.int64(z))


@func
def umul24(x: Any, y: Any) -> Any:
    """Return the lower 32 bits of a product of the lower 24 bits of two uint32."""
    return np.uint32((np.int64(x) & 0xFFFFFF) * (np.int64(y) & 0xFFFFFF))


@func
def mul64hi(x: Any, y: Any) -> Any:
    """Return the upper 64 bits of a product of int64."""
    high = np.int64(umul64hi(x, y))
    return high - (np.int64(y) if np.int64(x) < 0 else 0) - (np.int64(x) if np.int64(y) < 0 else 0)
