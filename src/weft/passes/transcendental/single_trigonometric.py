"""float32 sin, cos and tan for devices without float64, in float32 and integers of 32 bits.

Below 2**15 multiples of ``pi / 2`` are subtracted in three parts (Cody and Waite); beyond, those 96
bits of ``2 / pi`` that matter are multiplied by the significand in integers (Payne and Hanek 1983),
behind a test. Either way the remainder comes in two floats.
"""

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, binary, bitcast, cast, mad, where
from weft.ir.op import Op
from weft.passes.transcendental.floats import (
    INF,
    NAN,
    SINGLE,
    fast_sum,
    horner,
    lift,
    magnitude,
    rounded,
    seldom,
    select,
    sign_of,
    with_sign,
)
from weft.passes.transcendental.two_floats import Pair, two_product, two_sum

_FAR: Final = 2.0**15
_TWO_OVER_PI: Final = 0.6366197466850281
_HALF_PI: Final = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
# 2 / pi behind the point, after a word of zeros
_WORDS: Final = (0x0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041,
                 0xFE5163AB)  # fmt: skip
# (sin(sqrt z) - sqrt z) / (z * sqrt z) and (cos(sqrt z) - 1 + z / 2) / z**2 on
# z <= (pi / 4)**2, to 2**-34
_SIN: Final = (-0.1666666666666663, 0.00833333333332184, -0.0001984126982935862,
               2.755731353859761e-06)  # fmt: skip
_COS: Final = (0.041666666666666595, -0.001388888888887334, 2.4801587288999894e-05,
               -2.7557314216238504e-07)  # fmt: skip


def _near(y: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the remainder of 0 <= y < 2**15 in two parts, and the quadrant as uint32."""
    n, bits = rounded(mad(y, _TWO_OVER_PI, SINGLE.rounder), SINGLE)
    first, second, third = _HALF_PI
    coarse = mad(n, -first, y)  # exact
    taken, more = two_product(n, lift(-second, y))
    high, low = two_sum(coarse, taken)
    return *fast_sum(high, low + mad(n, -third, more)), bits


def _far(y: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the remainder of y >= 2**-1 in two parts, and the quadrant as uint32.

    ``2 / pi`` less multiples of 4 units of the last place of y leaves 96 bits whose product with
    the significand is taken modulo 2**96: two bits of the quadrant, and 62 bits behind the point
    are used. No float32 is closer to a multiple of ``pi / 2`` than 2**-31.
    """
    pattern = bitcast(y, dt.uint32)
    m = (pattern & 0x7FFFFF) | 0x800000
    place = (pattern >> 23) - (SINGLE.bias - 7)
    words = [lift(word, m) for word in _WORDS]
    for size in (4, 2, 1):
        reached = (place & (32 * size)).ne(0)
        count = len(words) - size
        words = [where(reached, words[i + size], words[i]) for i in range(count)] + words[count:]
    skip = place & 31
    a, b, c = ((words[i] << skip) | ((words[i + 1] >> 1) >> (skip ^ 31)) for i in range(3))
    middle = m * b + binary(Op.MULHI, m, c)
    carry = select(middle.lt(m * b), 1, 0, m)
    top = m * a + binary(Op.MULHI, m, b) + carry
    quadrant = (top + (1 << 29)) >> 30
    upper, lower = (top << 2) | (middle >> 30), middle << 2
    minus = upper & SINGLE.sign_bit
    flip = select(minus.ne(0), 0xFFFFFFFF, 0, m)  # less by a unit, which does not count
    upper, lower = upper ^ flip, lower ^ flip
    exact = _real(upper >> 8) * 2.0**-24
    next_bits = _real(((upper & 0xFF) << 16) | (lower >> 16)) * 2.0**-48
    high, low = fast_sum(exact, next_bits)
    low = low + _real(lower & 0xFFFF) * 2.0**-64
    angle, lost = two_product(high, lift(_HALF_PI[0], y))
    lost = mad(low, _HALF_PI[0], mad(high, _HALF_PI[1], lost))
    r, rest = fast_sum(angle, lost)
    is_finite = y.lt(INF)
    return select(is_finite, with_sign(r, minus), NAN, y), with_sign(rest, minus), quadrant


def _real(bits: Expr) -> Expr:
    """Return an integer below 2**24 as float32."""
    return cast(bitcast(bits, dt.int32), dt.float32)


def _either(y: Expr, function: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    return seldom(y.ge(_FAR), function(*_far(y)), function(*_near(y)))


def _sine(r: Expr, low: Expr) -> Pair:
    """Return the sine of ``r + low`` in two parts."""
    z = r * r
    return r, mad(r, z * horner(z, _SIN), mad(z * -0.5, low, low))


def _cosine(r: Expr, low: Expr) -> Pair:
    """Return the cosine of ``r + low`` in two parts."""
    z, lost = two_product(r, r)
    half = z * 0.5
    near = 1.0 - half
    rest = mad(-r, low, mad(lost, -0.5, (1.0 - near) - half))
    return near, mad(z * z, horner(z, _COS), rest)


def _turned(r: Expr, low: Expr, quadrant: Expr) -> Expr:
    """Return the sine of ``r + low + quadrant * pi / 2``."""
    (sine, more), (cosine, less) = _sine(r, low), _cosine(r, low)
    value = where((quadrant & 1).eq(0), sine + more, cosine + less)
    return with_sign(value, (quadrant & 2) << 30)


def _tangent(r: Expr, low: Expr, quadrant: Expr) -> Expr:
    """Return the tangent of ``r + low + quadrant * pi / 2``, what the quotient lost added."""
    sine, cosine = fast_sum(*_sine(r, low)), fast_sum(*_cosine(r, low))
    even = (quadrant & 1).eq(0)
    top, top_low = (where(even, a, b) for a, b in zip(sine, cosine, strict=True))
    divisor, divisor_low = (where(even, b, a) for a, b in zip(sine, cosine, strict=True))
    value = top / divisor
    rest = mad(-value, divisor, top) + mad(-value, divisor_low, top_low)
    return with_sign(value + rest / divisor, (quadrant & 1) << 31)


def sin(x: Expr) -> Expr:
    """Return the sine; NaN at infinity."""
    return with_sign(_either(magnitude(x), _turned), sign_of(x))


def cos(x: Expr) -> Expr:
    """Return the cosine; NaN at infinity."""
    return _either(magnitude(x), lambda r, low, quadrant: _turned(r, low, quadrant + 1))


def tan(x: Expr) -> Expr:
    """Return the tangent; NaN at infinity."""
    return with_sign(_either(magnitude(x), _tangent), sign_of(x))
