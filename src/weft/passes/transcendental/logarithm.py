"""Logarithms and what is made of them: log, log2, log10, log1p, asinh, acosh, atanh.

``x = 2**k * m`` with ``sqrt(1/2) <= m < sqrt(2)`` by subtracting the bits of sqrt(1/2). With
``f = m - 1``, which is exact, float32 has ``log(m) = f - f**2 / 2 + f**3 * P(f)``; float64 has
``log(m) = f - f**2 / 2 + s * (f**2 / 2 + s**2 * P(s**2))`` with ``s = f / (2 + f)`` (after fdlibm),
where a division saves twelve terms. Summing the small terms first leaves one rounding of weight.

Polynomials are minimax (Remez) with the coefficients rounded to the working format one after
another from the lowest, each time fitting the others anew.
"""

from typing import Final

from weft.ir.expr import Expr, bitcast, cast, mad, unary, where
from weft.ir.op import Op
from weft.passes.transcendental.exponential import LN2_HIGH, LN2_LOW
from weft.passes.transcendental.floats import (
    INF,
    NAN,
    Layout,
    horner,
    layout,
    lift,
    magnitude,
    seldom,
    select,
    sign_of,
    with_sign,
)

_SQRT_HALF_BITS: Final = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}

# The P of the head of this file, log(1 + f) to 2**-27 and 2**-59
_LOG: Final = {
    32: (0.3333333134651184, -0.250008225440979, 0.20001259446144104, -0.16623342037200928,
         0.14201055467128754, -0.13159558176994324, 0.12765879929065704, -0.076413594186306),
    64: (0.6666666666666734, 0.39999999999416824, 0.28571428741975624, 0.22222198610409968,
         0.18183562606558304, 0.15314089821099894, 0.14795598605944285),
}  # fmt: skip
# log2(e) and log10(e) in two parts, and log10(2)
_LOG2_E: Final = {
    32: (1.4426950216293335, 1.925963033500011e-08),
    64: (1.4426950408889634, 2.0355273740931033e-17),
}
_LOG10_E: Final = {
    32: (0.4342944920063019, -1.0103049952192578e-08),
    64: (0.4342944819032518, 1.098319650216765e-17),
}
_LOG10_2: Final = {
    32: (0.3010300099849701, -1.432098883924482e-08),
    64: (0.3010299956639812, -2.8037281277851704e-18),
}


def _real(k: Expr, f: Layout, subtract: Expr) -> Expr:
    """Return the small integer `k`, less a float, as a float."""
    if f.real.bits == 32:
        return cast(k, f.real) - subtract
    # int64 to float64 is one instruction only with AVX-512; this is two everywhere.
    return bitcast(k + f.rounder_bits, f.real) - (subtract + f.rounder)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """Return k, f with ``x = 2**k * (1 + f)`` for positive normal x."""
    fmt = layout(x)
    k, m = _exponent(x, fmt)
    return _real(k, fmt, lift(0.0, x)), m - 1.0


def split_subnormal(x: Expr) -> tuple[Expr, Expr]:
    """Return k, f with ``x = 2**k * (1 + f)`` for positive subnormal x."""
    fmt = layout(x)
    units = cast(bitcast(x, fmt.signed), fmt.real)  # of the least; a product would take long
    k, m = _exponent(units, fmt)
    return _real(k, fmt, lift(float(fmt.mantissa + fmt.bias - 1), x)), m - 1.0


def _exponent(y: Expr, fmt: Layout) -> tuple[Expr, Expr]:
    """Return k as an integer and m in [sqrt(1/2), sqrt(2)) for positive normal y."""
    origin = _SQRT_HALF_BITS[fmt.real.bits]
    offset = bitcast(y, fmt.signed) - origin
    m = bitcast((offset & ((1 << fmt.mantissa) - 1)) + origin, fmt.real)
    return offset >> fmt.mantissa, m


def _tail(f: Expr) -> Expr:
    """Return ``log(1 + f) - f``."""
    coefficients = _LOG[f.dtype.bits]
    half = f * f * 0.5
    if f.dtype.bits == 32:
        return mad(f * f * f, horner(f, coefficients), -half)
    s = f / (f + 2.0)
    z = s * s
    return mad(s, mad(z, horner(z, coefficients), half), -half)


def everywhere(x: Expr, usual: Expr, subnormal: Expr) -> Expr:
    """Return a logarithm at any x, given what it is for positive normal and for subnormal x.

    Subnormal numbers, x <= 0, infinity and NaN are looked at only where some lane has one.
    """
    fmt = layout(x)
    normal = x.ge(fmt.smallest_normal)
    value = seldom(x.gt(0.0) & ~normal, subnormal, usual)
    value = where(x.lt(INF), value, x)
    value = select(x.eq(0.0), -INF, value, x)
    value = select(x.lt(0.0), NAN, value, x)
    least = 1 << fmt.mantissa  # the pattern of the smallest of them, below which it wraps around
    finite = 2 * fmt.bias << fmt.mantissa  # patterns of positive normal numbers
    return seldom((bitcast(x, fmt.unsigned) - least).ge(finite), value, usual)


def natural(k: Expr, f: Expr, rest: Expr | None = None) -> Expr:
    """Return the natural logarithm of ``2**k * (1 + f)``."""
    bits = f.dtype.bits
    tail = _tail(f) if rest is None else _tail(f) + rest
    return mad(k, LN2_HIGH[bits], f + mad(k, LN2_LOW[bits], tail))


def binary(k: Expr, f: Expr) -> Expr:
    """Return the logarithm to base 2 of ``2**k * (1 + f)``."""
    high, low = _LOG2_E[f.dtype.bits]
    return k + mad(f, high, mad(f, low, _tail(f) * high))


def decimal(k: Expr, f: Expr) -> Expr:
    """Return the logarithm to base 10 of ``2**k * (1 + f)``."""
    high, low = _LOG10_E[f.dtype.bits]
    step, rest = _LOG10_2[f.dtype.bits]
    return mad(k, step, mad(f, high, mad(f, low, mad(k, rest, _tail(f) * high))))


def log(x: Expr) -> Expr:
    """Return the natural logarithm."""
    return everywhere(x, natural(*_split(x)), natural(*split_subnormal(x)))


def log2(x: Expr) -> Expr:
    """Return the logarithm to base 2."""
    return everywhere(x, binary(*_split(x)), binary(*split_subnormal(x)))


def log10(x: Expr) -> Expr:
    """Return the logarithm to base 10."""
    return everywhere(x, decimal(*_split(x)), decimal(*split_subnormal(x)))


def _log1p(x: Expr, huge: Expr, *, doubled: bool = False, low: Expr | None = None) -> Expr:
    """Return ``log(1 + x)``; where `huge`, of ``2 * x`` if `doubled`, else of x.

    x > -1, and x < 2**61 unless `huge`, which means x >= 2**60. `low` is a part of x too small to
    change its float.
    """
    fmt = layout(x)
    y = where(huge, x * 2.0**-60, x)
    one = select(huge, 0.0, 1.0, x)
    k, _ = _exponent(y + one, fmt)
    scale = bitcast((-k << fmt.mantissa) + (fmt.bias << fmt.mantissa), fmt.real)
    f = mad(y, scale, mad(one, scale, -1.0))
    # 1 - f + f**2 stands for 1 / (1 + f), the slope of the logarithm
    rest = None if low is None else low * scale * mad(f, f - 1.0, 1.0)
    return natural(_real(k, fmt, select(huge, -61.0 if doubled else -60.0, 0.0, x)), f, rest)


def log1p(x: Expr) -> Expr:
    """Return the logarithm of 1 + x, accurate near 0."""
    value = where(x.lt(INF), _log1p(x, x.ge(2.0**60)), x)
    value = select(x.eq(-1.0), -INF, value, x)
    value = select(x.lt(-1.0), NAN, value, x)
    return where(magnitude(x).lt(2.0 ** -(layout(x).mantissa + 2)), x, value)


def asinh(x: Expr) -> Expr:
    """Return the inverse hyperbolic sine."""
    y = magnitude(x)
    z = y * y
    huge = y.ge(2.0**60)
    grown = where(huge, y, y + z / (unary(Op.SQRT, z + 1.0) + 1.0))
    value = where(y.lt(INF), _log1p(grown, huge, doubled=True), y)
    small = y.lt(2.0 ** -(layout(x).mantissa // 2 + 2))
    return where(small, x, with_sign(value, sign_of(x)))


def acosh(x: Expr) -> Expr:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    t = x - 1.0
    huge = x.ge(2.0**60)
    root = unary(Op.SQRT, mad(t, t, t + t))
    total = root + t
    grown, low = where(huge, x, total), select(huge, 0.0, t - (total - root), x)
    value = where(x.lt(INF), _log1p(grown, huge, doubled=True, low=low), x)
    return select(x.lt(1.0), NAN, value, x)


def atanh(x: Expr) -> Expr:
    """Return the inverse hyperbolic tangent; infinite at 1, NaN beyond."""
    y = magnitude(x)
    twice = y + y
    grown = where(y.lt(0.5), mad(twice, y / (1.0 - y), twice), twice / (1.0 - y))
    value = _log1p(grown, y.ge(1.0)) * 0.5
    value = select(y.eq(1.0), INF, value, x)
    value = select(y.gt(1.0), NAN, value, x)
    small = y.lt(2.0 ** -(layout(x).mantissa // 2 + 2))
    return where(small, x, with_sign(value, sign_of(x)))
