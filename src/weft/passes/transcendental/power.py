"""pow: ``2**(y * log2(x))`` with the special values of C99.

float32 is computed in float64, which leaves the logarithm enough bits for any exponent. float64
carries the logarithm in two floats: with ``s = (m - 1) / (m + 1)`` in two parts,
``log2(m) = s * (C0 + z * (C1 + z * P(z)))``, ``z = s**2``, where all but P is in two parts, to a
relative error of 2**-65.
"""

from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, bitcast, cast, mad, unary, where
from weft.ir.op import Op
from weft.passes.transcendental.exponential import EXP2, scale_twice
from weft.passes.transcendental.floats import (
    DOUBLE,
    INF,
    NAN,
    at_least,
    at_most,
    fast_sum,
    horner,
    lift,
    magnitude,
    power_of_two,
    rounded,
    select,
    sign_of,
    with_sign,
)

# log2(1 + f) / f to 2**-36 and 2**r to 2**-34, enough for a float32 result
_LOG2_SINGLE: Final = (
    1.4426950408687118, -0.721347520868589, 0.4808983613924413, -0.3606736748667412,
    0.2885372937220294, -0.24045316362609348, 0.2061753509665744, -0.18030063596855336,
    0.15876993578520776, -0.14315625074171087, 0.14474757078631958, -0.14283948122089912,
    0.07737177027940821,
)  # fmt: skip
_EXP2_SINGLE: Final = (
    0.9999999999616385, 0.6931471807286778, 0.24022651198683942, 0.05550410353065864,
    0.009618027181942441, 0.0013333922637983732, 0.0001546931457637079, 1.5201952988813298e-05,
)  # fmt: skip
# 2 * log2(e), a third of it, and P of the head of this file, log2(m) to 2**-72
_C0: Final = (2.8853900817779268, 4.0710547481862066e-17)
_C1: Final = (0.9617966939259756, 5.0577616648125907e-17)
_P: Final = (
    0.5770780163555851, 0.41219858311134583, 0.3205988979127403, 0.2623081986651567,
    0.22195226975708923, 0.19240134902562983, 0.16845090479366795, 0.17282287281338932,
)  # fmt: skip
_SQRT_HALF: Final = 0x3FE6A09E667F3BCD

Pair = tuple[Expr, Expr]


def exp2_single(x: Expr) -> Expr:
    """Return ``2**x`` in float64 with the accuracy of a float32 result, abs(x) < 1000."""
    n, low = rounded(x + (DOUBLE.rounder + DOUBLE.bias), DOUBLE, offset=DOUBLE.bias)
    return horner(x - n, _EXP2_SINGLE) * power_of_two(low, DOUBLE)


def _split(x: Expr) -> Pair:
    """Return k, m with ``x = 2**k * m``, m in [sqrt(1/2), sqrt(2)), for a normal float64."""
    offset = bitcast(x, dt.int64) - _SQRT_HALF
    m = bitcast((offset & ((1 << 52) - 1)) + _SQRT_HALF, dt.float64)
    return bitcast((offset >> 52) + DOUBLE.rounder_bits, dt.float64) - DOUBLE.rounder, m


def pow(x: Expr, y: Expr) -> Expr:
    """Return ``x**y`` as in C99 (``pow(x, 0)`` and ``pow(1, y)`` are 1 even for NaN)."""
    power = _power_double if x.dtype is dt.float64 else _power_single
    return with_c99_signs(x, y, power(magnitude(x), y))


def _power_single(base: Expr, y: Expr) -> Expr:
    wide = cast(base, dt.float64)
    k, m = _split(wide)
    f = m - 1.0
    logarithm = at_ends(wide, mad(f, horner(f, _LOG2_SINGLE), k))
    product = of_one(wide, y, logarithm * cast(y, dt.float64))
    return cast(exp2_single(at_most(at_least(product, -160.0), 140.0)), dt.float32)


def _power_double(base: Expr, y: Expr) -> Expr:
    high, low = _log2_double(base)
    high = at_ends(base, high)
    product = of_one(base, y, high * y)
    rest = mad(low, y, mad(high, y, -product))
    # Where the product overflows, or is that of 1 to an infinite power, the rest is no number.
    usual = magnitude(product).lt(1100.0) & magnitude(y).lt(INF)
    rest = select(usual, rest, 0.0, rest)
    product = at_most(at_least(product, -1080.0), 1030.0)
    offset = 2 * DOUBLE.bias
    n, bits = rounded(product + (DOUBLE.rounder + offset), DOUBLE, offset=offset)
    return scale_twice(horner((product - n) + rest, EXP2[64]), bits, DOUBLE)


def at_ends(base: Expr, logarithm: Expr) -> Expr:
    """Put in log2 of infinity, NaN and 0."""
    return select(base.eq(0.0), -INF, where(base.lt(INF), logarithm, base), base)


def of_one(base: Expr, y: Expr, product: Expr) -> Expr:
    """Put in ``y * log2(base)`` where the base is 1.

    1 to an infinite power is 1, but to NaN it is NaN (unless x is +1, which comes later).
    """
    return select(base.eq(1.0) & y.eq(y), 0.0, product, product)


def _log2_double(x: Expr) -> Pair:
    tiny = x.lt(DOUBLE.smallest_normal)
    k, m = _split(where(tiny, x * 2.0**54, x))
    k = where(tiny, k - 54.0, k)
    f, above = m - 1.0, m + 1.0
    inverse = 1.0 / above
    s = f * inverse
    # the rest of f / (1 + m), of which `above` is the rounded value
    s_low = (mad(-s, above, f) - s * (m - (above - 1.0))) * inverse
    z = s * s
    z_low = mad(s, s, -z) + 2.0 * s * s_low
    inner, inner_low = fast_sum(lift(_C1[0], z), z * horner(z, _P))
    inner_low = inner_low + _C1[1]
    term = z * inner
    term_low = mad(z, inner, -term) + mad(z, inner_low, z_low * inner)
    outer, outer_low = fast_sum(lift(_C0[0], z), term)
    outer_low = outer_low + (term_low + _C0[1])
    part = s * outer
    part_low = mad(s, outer, -part) + mad(s, outer_low, s_low * outer)
    total, lost = fast_sum(k, part)
    return total, lost + part_low


def with_c99_signs(x: Expr, y: Expr, value: Expr) -> Expr:
    """Give ``abs(x)**y`` its sign, and the values that do not depend on one operand."""
    half = y * 0.5
    whole = unary(Op.TRUNC, y).eq(y)
    odd = whole & unary(Op.TRUNC, half).ne(half)
    value = with_sign(value, where(odd, sign_of(x), 0))
    undefined = x.lt(0.0) & ~whole & x.gt(-INF)
    value = select(undefined, NAN, value, x)
    return select(x.eq(1.0) | y.eq(0.0), 1.0, value, x)
