"""sin, cos and tan over the whole range of their argument.

The remainder comes from `reduction`, by its long way only where a lane needs that; polynomials do
the rest. float32 is computed in float64 throughout: sin and cos by one polynomial over half a turn,
which is less work than a remainder of two float32 parts and two polynomials over a quarter. In
float64 the remainder by ``pi / 2`` comes in two parts, the lower of which enters through the
derivative.

Polynomials are minimax (Remez) with the lower coefficients rounded to the working format one after
another, each time fitting the others anew.
"""

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, cast, mad, where
from weft.passes.transcendental.floats import (
    INF,
    NAN,
    horner,
    lift,
    magnitude,
    seldom,
    select,
    sign_of,
    with_sign,
)
from weft.passes.transcendental.reduction import (
    HALF_PI,
    QUARTER_PI,
    reduce_double,
    reduce_double_near,
    reduce_single,
    reduce_single_near,
)

# sin(pi * sqrt z) / sqrt z on z <= 0.52**2, to 2**-34
_HALF_TURN: Final = (
    3.1415926534816916, -5.167712753227836, 2.5501629387318783, -0.5992477725778462,
    0.08202945874773412, -0.006993824844666251,
)
# (sin(sqrt z) - sqrt z) / (z * sqrt z) on z <= (pi / 4)**2; sin to 2**-58
_SIN: Final = (
    -0.1666666666666663, 0.00833333333332184, -0.0001984126982935862, 2.755731353859761e-06,
    -2.505073441252112e-08, 1.589543534045521e-10,
)  # fmt: skip
# (cos(sqrt z) - 1 + z / 2) / z**2 on z <= (pi / 4)**2; cos to 2**-63
_COS: Final = (
    0.041666666666666595, -0.001388888888887334, 2.4801587288999894e-05,
    -2.7557314216238504e-07, 2.087570526965733e-09, -1.1358741967061583e-11,
)  # fmt: skip
# (tan(sqrt z) - sqrt z) / (z * sqrt z); for float32 on z <= 0.86**2, tan to 2**-30;
# for float64 on z <= (pi / 4)**2, tan to 2**-55
_TAN: Final = {
    32: (0.3333332489172523, 0.13333698077813164, 0.053914798679898596, 0.022244473855159694,
         0.007430009895104163, 0.006704297605643864, -0.00227489111759134,
         0.0027067513152656615),
    64: (0.3333333333333278, 0.1333333333341415, 0.05396825392685339, 0.0218694896054303,
         0.008863219204484997, 0.0035922887837898545, 0.0014547594726023684,
         0.0005950591973995186, 0.0002223947591048508, 0.00013649630831957042,
         -2.634598042605755e-05, 8.941570948611725e-05, -4.485676305526446e-05,
         2.085846897114623e-05),
}  # fmt: skip


def _half_turn(f: Expr, bits: Expr) -> Expr:
    """Return the sine of ``(f + n) * pi``, n being the low bits of `bits`."""
    return with_sign(f * horner(f * f, _HALF_TURN), bits << 63)


def _reduce(y: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the remainder of y >= 0 in [-pi/4, pi/4], its lower part and the quadrant."""
    direct = y.lt(QUARTER_PI)
    r, low, quadrant = reduce_double(y)
    r, low = where(direct, y, r), select(direct, 0.0, low, y)
    # infinity has no remainder
    return select(y.lt(INF), r, NAN, r), low, select(direct, 0, quadrant, quadrant)


def _either(x: Expr, function: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    """Return a function of the reduced float64 `x`, by the long way only where it is needed."""
    y = magnitude(x)
    *near, far = reduce_double_near(y)
    return seldom(far, function(*_reduce(y)), function(*near))


def _either_single(x: Expr, parts: int, function: Callable[[Expr, Expr], Expr], *,
                   offset: float = 0.0) -> Expr:  # fmt: skip
    """Return a function of the reduced float32 `x`, by the long way only where it is needed.

    Without an offset it is an odd function. Nothing but a conversion reads float32, which can read
    memory then.
    """
    wide = cast(x, dt.float64)
    y = magnitude(wide)
    *near, unsure = reduce_single_near(wide, parts, offset=offset)
    far = function(*reduce_single(y, parts, offset=offset))
    far = far if offset else with_sign(far, sign_of(wide))
    return cast(seldom(unsure, far, function(*near)), dt.float32)


def _turned(r: Expr, low: Expr, quadrant: Expr, sign: Expr) -> Expr:
    """Return the sine of ``r + low + quadrant * pi / 2``, its sign flipped by `sign`."""
    z = r * r
    sine, cosine = z * horner(z, _SIN), mad(z, horner(z, _COS), -0.5)
    sine = r + mad(r, sine, mad(z * -0.5, low, low))
    cosine = mad(z, cosine, r * -low) + 1.0
    value = where((quadrant & 1).eq(0), sine, cosine)
    return with_sign(value, ((quadrant & 2) << 62) ^ sign)


def _tangent(r: Expr, low: Expr, quadrant: Expr) -> Expr:
    """Return the tangent of ``r + low + quadrant * pi / 2``."""
    z = r * r
    value = r + mad(r, z * horner(z, _TAN[64]), mad(z, low, low))
    return where((quadrant & 1).eq(0), value, -1.0 / value)


def _tangent_single(f: Expr, quadrant: Expr) -> Expr:
    """Return the tangent of ``(f + quadrant) * pi / 2``, for float32."""
    r = f * HALF_PI
    z = r * r
    value = mad(r, z * horner(z, _TAN[32]), r)
    return where((quadrant & 1).eq(0), value, -1.0 / value)


def sin(x: Expr) -> Expr:
    """Return the sine; NaN at infinity."""
    if x.dtype is dt.float32:
        return _either_single(x, 1, _half_turn)
    return _either(x, lambda r, low, quadrant: _turned(r, low, quadrant, sign_of(x)))


def cos(x: Expr) -> Expr:
    """Return the cosine; NaN at infinity."""
    if x.dtype is dt.float32:
        return _either_single(x, 1, _half_turn, offset=0.5)
    return _either(x, lambda r, low, quadrant: _turned(r, low, quadrant + 1, lift(0, quadrant)))


def tan(x: Expr) -> Expr:
    """Return the tangent; NaN at infinity."""
    if x.dtype is dt.float32:
        return _either_single(x, 2, _tangent_single)
    return with_sign(_either(x, _tangent), sign_of(x))
