"""Exponentials and what is made of them: exp, exp2, expm1, sigmoid, tanh, sinh, cosh.

``e**x = 2**n * e**r`` with ``n = round(x / ln 2)`` and ``abs(r) <= ln(2) / 2``. ln 2 is subtracted
in two fused steps of full width (Cody and Waite 1980, simplified by the fused operation: the first
step is exact). ``2**n`` is applied by SCALB; without such an instruction as two factors of half the
exponent, so that results down to the smallest subnormal are rounded once and overflow gives
infinity without a comparison.

Polynomials are minimax (Remez) with the coefficients rounded to the working format one after
another from the lowest, each time fitting the others anew.
"""

from typing import Final

from weft.ir.expr import Expr, mad, scalb, where
from weft.passes.transcendental.floats import (
    Layout,
    at_least,
    at_most,
    horner,
    horner_either,
    layout,
    lift,
    magnitude,
    power_of_two,
    rounded,
    sign_of,
    with_sign,
)

LOG2_E: Final = {32: 1.4426950216293335, 64: 1.4426950408889634}
LN2_HIGH: Final = {32: 0.6931471824645996, 64: 0.6931471805599453}
LN2_LOW: Final = {32: -1.9046542121259336e-09, 64: 2.3190468138462996e-17}

# e**r on abs(r) <= 0.347, relative error 2**-28 and 2**-55
EXP: Final = {
    32: (1.0, 1.0, 0.4999999403953552, 0.16666515171527863, 0.041668083518743515,
         0.00836935080587864, 0.001384042901918292),
    64: (1.0, 1.0000000000000007, 0.5000000000000007, 0.16666666666655958, 0.04166666666655937,
         0.008333333338141251, 0.0013888888937249333, 0.00019841261053060326,
         2.480149838532113e-05, 2.7564320271831004e-06, 2.7628804715303376e-07,
         2.30490736010739e-08),
}  # fmt: skip
# 2**r on abs(r) <= 1/2, relative error 2**-27 and 2**-55
EXP2: Final = {
    32: (1.0, 0.6931472420692444, 0.24022655189037323, 0.05550272762775421, 0.00961706880480051,
         0.0013418101007118821, 0.00015811582852620631),
    64: (1.0, 0.6931471805599457, 0.240226506959101, 0.05550410866478794, 0.009618129107606245,
         0.0013333558153950254, 0.00015403530441996733, 1.5252726930675741e-05,
         1.321544270286352e-06, 1.0180829053389908e-07, 7.072534428794274e-09,
         4.0514767055343553e-10),
}  # fmt: skip
# (e**r - 1 - r) / r**2 on abs(r) <= 0.347; e**r - 1 to 2**-26 and 2**-61
EXPM1: Final = {
    32: (0.4999999701976776, 0.16666537523269653, 0.041667740792036057, 0.008367319591343403,
         0.0013837923761457205),
    64: (0.5, 0.16666666666666677, 0.041666666666666685, 0.00833333333332182,
         0.0013888888888895343, 0.00019841269885259572, 2.4801587272744685e-05,
         2.755724524374308e-06, 2.7557337029017074e-07, 2.5108654328148272e-08,
         2.089101753058091e-09),
}  # fmt: skip
# (tanh(sqrt z) - sqrt z) / (z * sqrt z) on sqrt z <= 0.1735; tanh to 2**-32
_TANH_SINGLE: Final = (-0.33333322405815125, 0.1333114057779312, -0.05271453037858009)
# (tanh(sqrt z) - sqrt z) / (z * sqrt z) on sqrt z <= 0.625; tanh to 2**-56
_TANH: Final = (
    -0.33333333333332854, 0.1333333333326193, -0.05396825393119127, 0.021869487574338403,
    -0.008863220979700114, 0.003591988990095691, -0.001454957942641188, 0.0005863135047239772,
    -0.00022855812992776908, 7.7137515383729e-05, -1.606924999061546e-05,
)  # fmt: skip
# (sinh(sqrt z) - sqrt z) / (z * sqrt z) on sqrt z <= 1; sinh to 2**-31 and 2**-61
_SINH: Final = {
    32: (0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06),
    64: (0.16666666666666669, 0.008333333333332912, 0.00019841269841593394, 2.75573191067674e-06,
         2.5052130996030318e-08, 1.6056659457005527e-10, 7.77658889338056e-13),
}  # fmt: skip
# Beyond these the result is 0 (rounded) or infinity.
EXP_RANGE: Final = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
_EXP2_RANGE: Final = {32: (-151.0, 129.0), 64: (-1076.0, 1025.0)}
EXPM1_FLOOR: Final = {32: -18.0, 64: -38.0}


def reduce_exp(x: Expr, offset: int) -> tuple[Expr, Expr, Expr]:
    """Return r with ``x = n * ln 2 + r``, n, and bits whose low part is ``n + offset``."""
    f, bits = layout(x), x.dtype.bits
    n, low = rounded(mad(x, LOG2_E[bits], f.rounder + offset), f, offset=offset)
    return mad(n, -LN2_LOW[bits], mad(n, -LN2_HIGH[bits], x)), n, low


def scale(value: Expr, n: Expr) -> Expr:
    """Return ``value * 2**n``, rounded once, for a whole n below twice the bias."""
    f = layout(value)
    _, low = rounded(n + (f.rounder + 2 * f.bias), f, offset=2 * f.bias)
    return scale_twice(value, low, f)


def scale_twice(value: Expr, low: Expr, f: Layout) -> Expr:
    """Return ``value * 2**n`` where the low part of `low` is ``n + 2 * bias``, rounded once."""
    half = low >> 1
    return value * power_of_two(half, f) * power_of_two(low - half, f)


def exp(x: Expr) -> Expr:
    """Return e to the x."""
    bits = x.dtype.bits
    lowest, highest = EXP_RANGE[bits]
    r, n, _ = reduce_exp(at_most(x, highest), 0)
    return unless_vanished(x, lowest, scalb(horner(r, EXP[bits]), n))


def unless_vanished(x: Expr, lowest: float, value: Expr) -> Expr:
    """Return a power of x, 0 below the range: no result is rounded down to 0, which takes long."""
    return where(x.lt(lowest), lift(0.0, x), value)


def exp2(x: Expr) -> Expr:
    """Return 2 to the x."""
    f, bits = layout(x), x.dtype.bits
    lowest, highest = _EXP2_RANGE[bits]
    y = at_most(x, highest)
    n, _ = rounded(y + f.rounder, f)
    return unless_vanished(x, lowest, scalb(horner(y - n, EXP2[bits]), n))


def expm1(x: Expr) -> Expr:
    """Return e to the x, less 1, accurate near 0."""
    f, bits = layout(x), x.dtype.bits
    y = at_most(at_least(x, EXPM1_FLOOR[bits]), EXP_RANGE[bits][1])
    # Half of the result, for 2**n itself overflows where the result does not yet.
    r, n, biased = reduce_exp(y, f.bias - 1)
    low = mad(n, -LN2_LOW[bits], mad(n, -LN2_HIGH[bits], y) - r)
    scale = power_of_two(biased, f)
    head = mad(scale, r, scale - 0.5)
    lost = mad(scale, r, scale - 0.5 - head)
    half = head + mad(scale, mad(r * r, horner(r, EXPM1[bits]), low), lost)
    return where(magnitude(x).lt(2.0 ** -(f.mantissa + 2)), x, half + half)


def sigmoid(x: Expr) -> Expr:
    """Return ``1 / (1 + e**-x)``."""
    decayed = exp_of_negative(-magnitude(x))
    # numerator / (1 + decayed), written so that the quotient's errors weigh less than one ulp
    numerator = where(x.lt(0.0), decayed, lift(1.0, x))
    return mad(-numerator, decayed / (decayed + 1.0), numerator)


def exp_of_negative(x: Expr) -> Expr:
    """Return e to the x for x <= 0 or NaN."""
    bits = x.dtype.bits
    r, n, _ = reduce_exp(x, 0)
    return unless_vanished(x, EXP_RANGE[bits][0], scalb(horner(r, EXP[bits]), n))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent.

    With ``y = n * ln(2) / 2 + r``, ``t = tanh(r)`` and ``s = 2**n / 2`` it is
    ``1 - (1 - t) / (b + a * t)``, where ``a = s - 1/2`` and ``b = s + 1/2``. What the quotient's
    roundings cost is computed exactly enough from itself and added at last, so that next to that
    addition no rounding has weight but the one of t, where n is 1.
    """
    f, bits = layout(x), x.dtype.bits
    if bits == 64:
        return _tanh_split(x)
    y = at_most(magnitude(x), 9.1)  # from there on the result is 1
    n, low = rounded(mad(y, 2 * LOG2_E[bits], f.rounder + f.bias - 1), f, offset=f.bias - 1)
    # The low part of ln 2 is left out: what it adds to r counts for the less, the larger n.
    r = mad(n, -LN2_HIGH[bits] / 2, y)
    s, z = power_of_two(low, f), r * r
    t = mad(r * z, horner(z, _TANH_SINGLE), r)
    a, b = s - 0.5, s + 0.5
    inverse = 1.0 / mad(a, t, b)
    near = 1.0 - mad(-t, inverse, inverse)
    rest = 1.0 - near  # exact
    lost = mad(t, mad(rest, a, 1.0), mad(rest, b, -1.0))
    return with_sign(mad(lost, inverse, near), sign_of(x))


def _tanh_split(x: Expr) -> Expr:
    """Return the hyperbolic tangent: a polynomial below 0.625, else ``1 - 2 / (e**2x + 1)``."""
    f, bits = layout(x), x.dtype.bits
    y = magnitude(x)
    capped = at_most(y, 0.45 * (f.mantissa + 2))
    n, low = rounded(mad(capped, 2 * LOG2_E[bits], f.rounder + f.bias), f, offset=f.bias)
    r = mad(n, -LN2_HIGH[bits] / 2, capped)
    z = x * x
    small = y.lt(0.625)
    value = horner_either(small, where(small, z, r), (0.0, *_TANH),
                          tuple(c * 2.0**i for i, c in enumerate(EXP[bits])))
    one = lift(1.0, x)
    ended = mad(value, where(small, y, power_of_two(low, f)), where(small, y, one))
    return with_sign(where(small, ended, one - 2.0 / ended), sign_of(x))


def _half_exp(y: Expr) -> Expr:
    """Return ``e**y / 2`` for y >= 0, which overflows only where cosh does."""
    bits = y.dtype.bits
    r, n, _ = reduce_exp(at_most(y, EXP_RANGE[bits][1] + 1.0), 0)
    return scalb(horner(r, EXP[bits]), n - 1.0)


def sinh(x: Expr) -> Expr:
    """Return the hyperbolic sine: a polynomial below 1, else from e**x / 2."""
    bits = x.dtype.bits
    y = magnitude(x)
    grown = _half_exp(y)
    z = x * x
    small = mad(y, z * horner(z, _SINH[bits]), y)
    return with_sign(where(y.lt(1.0), small, grown - 0.25 / grown), sign_of(x))


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine, from e**x / 2."""
    grown = _half_exp(magnitude(x))
    return grown + 0.25 / grown
