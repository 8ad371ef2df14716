"""sin, cos and tan of float32 from tables in registers, for targets that have LOOKUP.

``x = n * pi/8 + d + r``, where n is an integer and d, looked up by it, makes the sine and the
cosine of ``n * pi/8 + d`` floats but for 2**-7 ulp (Gal 1986). These, from tables, and short
polynomials in r give the result by the addition theorem. What is added to the value from the table
can be as large as the result; so their sum is taken in two parts, and so is r. tan does the same in
steps of ``pi/16``, where a fraction stands for the tangent of each, whose terms can both be floats.

Polynomials are minimax, their coefficients rounded one after another from the lowest.
"""

from typing import Final

from weft.ir.expr import Expr, bitcast, mad
from weft.ir.lookup import lookup
from weft.passes.transcendental import trigonometric
from weft.passes.transcendental.floats import (
    SINGLE,
    at_least,
    fast_sum,
    horner,
    magnitude,
    seldom,
    select,
    sign_of,
    with_sign,
)

# pi / 8 in three parts: n times the second takes 24 bits below n = 2**14, and below 2**16 for the
# multiples of 4, next to which results vanish
_STEP: Final = (0.39269909262657166, -1.0928488336503506e-08, 6.408360170642724e-13)
_STEP_TAN: Final = tuple(part / 2 for part in _STEP)
_MOST: Final = 10000.0  # from there on the third part would count for more than it does
# for sin and cos: the middles less n * pi / 8, their sines and their cosines, for a whole turn
_MIDDLES: Final = tuple(
    m * 2.0**-26
    for m in (0, -14716, 12298, 14716, 0, -14716, -12298, 14716) * 2
)  # fmt: skip
_SINES: Final = (
    0.0, 0.38248083, 0.70723635, 0.9239634, 1.0, 0.9239634, 0.70723635, 0.38248083,
    0.0, -0.38248083, -0.70723635, -0.9239634, -1.0, -0.9239634, -0.70723635, -0.38248083,
)  # fmt: skip
_COSINES: Final = (
    1.0, 0.9239634, 0.7069772, 0.38248083, 0.0, -0.38248083, -0.7069772, -0.9239634,
    -1.0, -0.9239634, -0.7069772, -0.38248083, 0.0, 0.38248083, 0.7069772, 0.9239634,
)  # fmt: skip
# (sin(sqrt z) / sqrt z - 1) / z and (cos(sqrt z) - 1) / z on sqrt z <= pi / 16, to 2**-34 of 1
_SIN: Final = (-0.16666650772094727, 0.008321684785187244)
_COS: Final = (-0.5, 0.04166664928197861, -0.0013875081203877926)
# for tan: numbers a and b such that a / b is the tangent of n * pi / 16 but for 2**-22 ulp of a
_ABOVE: Final = (
    0.0, 0.29033604, 0.78977454, 1.3363221, 1.0, 1.9999473, 1.9066844, 1.4596179, 1.0,
    1.4596179, 1.9066844, 1.9999473, 1.0, 1.3363221, 0.78977454, 0.29033604,
)  # fmt: skip
_BELOW: Final = (
    1.0, 1.4596179, 1.9066844, 1.9999473, 1.0, 1.3363221, 0.78977454, 0.29033604, 0.0,
    -0.29033604, -0.78977454, -1.3363221, -1.0, -1.9999473, -1.9066844, -1.4596179,
)  # fmt: skip
# (tan(sqrt z) / sqrt z - 1) / z on sqrt z <= pi / 32; tan to 2**-28.8
_TAN: Final = (0.33333104848861694, 0.13407932221889496)
_TINY: Final = 2.0**-32  # keeps squares of tiny numbers from vanishing, which would take long
_LEAST: Final = 2.0**-60  # products with smaller numbers may be subnormal, and take as long


def sin(x: Expr) -> Expr:
    """Return the sine, within 0.59 ulp."""
    y = magnitude(x)
    usual = with_sign(_turned(y, _SINES, _COSINES, tiny=y.lt(_LEAST)), sign_of(x))
    return seldom(y.gt(_MOST), trigonometric.sin(x), usual)


def cos(x: Expr) -> Expr:
    """Return the cosine, within 0.59 ulp."""
    y = at_least(magnitude(x), _LEAST)
    usual = _turned(y, _COSINES, tuple(-s for s in _SINES))
    return seldom(y.gt(_MOST), trigonometric.cos(x), usual)


def tan(x: Expr) -> Expr:
    """Return the tangent, within 0.55 ulp."""
    y = magnitude(x)
    usual = with_sign(_tangent(y), sign_of(x))
    return seldom(y.gt(_MOST), trigonometric.tan(x), usual)


def _tangent(y: Expr) -> Expr:
    """Return ``(a + b * t) / (b - a * t)``, t the tangent of r, a and b from tables, for 0 <= y."""
    piece, r, low = _reduce(y, _STEP_TAN)
    a, b = lookup(piece, _ABOVE), lookup(piece, _BELOW)
    z = mad(r, r, _TINY)
    cube = select(y.lt(_LEAST), 0.0, r * z, y)
    t, rest = fast_sum(r, mad(cube, horner(z, _TAN), low))
    above, below = mad(b, t, a), mad(-a, t, b)
    above_low = mad(b, rest, mad(b, t, a - above))
    below_low = mad(-a, rest, mad(-a, t, b - below))
    inverse = 1.0 / below
    quotient = above * inverse
    lost = mad(-quotient, below_low, mad(-quotient, below, above) + above_low)
    return mad(lost, inverse, quotient)


def _turned(y: Expr, values: tuple[float, ...], slopes: tuple[float, ...],
            tiny: Expr | None = None) -> Expr:  # fmt: skip
    """Return ``value * cos(r) + slope * sin(r)``, both of the table, for 0 <= y."""
    piece, r, low = _reduce(y, _STEP, _MIDDLES)
    value, slope = lookup(piece, values), lookup(piece, slopes)
    whole = r + low
    if tiny is not None:
        whole = select(tiny, 0.0, whole, y)
    z = mad(whole, whole, _TINY)
    grown = slope * whole
    rest = mad(value, horner(z, _COS), grown * horner(z, _SIN))
    head = mad(slope, r, value)
    lost = mad(slope, low, mad(slope, r, value - head))
    return head + mad(z, rest, lost)


def _reduce(y: Expr, step: tuple[float, ...], middles: tuple[float, ...] = ()
            ) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """Return the bits of the number of steps next to y, and r in two parts."""
    first, second, third = step
    turns = mad(y, 1 / first, SINGLE.rounder)
    n, piece = turns - SINGLE.rounder, bitcast(turns, SINGLE.unsigned)
    exact = mad(n, -first, y)
    if middles:
        exact = exact - lookup(piece, middles)
    r = mad(n, -second, exact)
    return piece, r, mad(n, -third, mad(n, -second, exact - r))
