"""sin, cos and tan over the whole range of their argument.

The remainder by ``pi / 2`` comes from `reduction`; polynomials do the rest. In float64 it comes in
two parts, the lower of which enters through the derivative. ``tan`` of float32 keeps the remainder
in float64.

Polynomials are minimax (Remez) with the lower coefficients rounded to the working format one after
another, each time fitting the others anew.
"""

from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, cast, mad, where
from weft.passes.transcendental.floats import (
    INF,
    NAN,
    horner,
    layout,
    lift,
    magnitude,
    select,
    sign_of,
    with_sign,
)
from weft.passes.transcendental.reduction import QUARTER_PI, reduce_double, reduce_single

# (sin(sqrt z) - sqrt z) / (z * sqrt z) on z <= (pi / 4)**2; sin to 2**-28 and 2**-58
_SIN: Final = {
    32: (-0.16666655242443085, 0.008332189172506332, -0.00019518288900144398),
    64: (-0.1666666666666663, 0.00833333333332184, -0.0001984126982935862, 2.755731353859761e-06,
         -2.505073441252112e-08, 1.589543534045521e-10),
}  # fmt: skip
# (cos(sqrt z) - 1 + z / 2) / z**2 on z <= (pi / 4)**2; cos to 2**-33 and 2**-63
_COS: Final = {
    32: (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05),
    64: (0.041666666666666595, -0.001388888888887334, 2.4801587288999894e-05,
         -2.7557314216238504e-07, 2.087570526965733e-09, -1.1358741967061583e-11),
}  # fmt: skip
# (tan(sqrt z) - sqrt z) / (z * sqrt z) on z <= (pi / 4)**2; tan to 2**-33 (for float32) and 2**-55
_TAN: Final = {
    32: (0.3333333184842763, 0.13333410443124113, 0.05395465526310269, 0.021984469914084283,
         0.00833224344473846, 0.004990807148199444, -0.0005936421109196861,
         0.0020401611224987416),
    64: (0.3333333333333278, 0.1333333333341415, 0.05396825392685339, 0.0218694896054303,
         0.008863219204484997, 0.0035922887837898545, 0.0014547594726023684,
         0.0005950591973995186, 0.0002223947591048508, 0.00013649630831957042,
         -2.634598042605755e-05, 8.941570948611725e-05, -4.485676305526446e-05,
         2.085846897114623e-05),
}  # fmt: skip


def _reduce(x: Expr, *, wide: bool = False) -> tuple[Expr, Expr | None, Expr]:
    """Return the remainder of abs(x) in [-pi/4, pi/4], its lower part, and the quadrant.

    There is a lower part in float64 only; with `wide` the remainder of a float32 is float64.
    """
    y = magnitude(x)
    direct = y.lt(QUARTER_PI)
    low: Expr | None = None
    if x.dtype is dt.float64:
        r, low, quadrant = reduce_double(y)
        r, low = where(direct, y, r), select(direct, 0.0, low, y)
    else:
        r, quadrant = reduce_single(y)
        real = dt.float64 if wide else dt.float32
        r = where(direct, cast(y, real), cast(r, real))
    # infinity has no remainder
    return select(y.lt(INF), r, NAN, r), low, select(direct, 0, quadrant, quadrant)


def _turned(r: Expr, low: Expr | None, quadrant: Expr, sign: Expr) -> Expr:
    """Return the sine of ``r + low + quadrant * pi / 2``, its sign flipped by `sign`."""
    f, bits = layout(r), r.dtype.bits
    z = r * r
    sine, cosine = z * horner(z, _SIN[bits]), mad(z, horner(z, _COS[bits]), -0.5)
    if low is None:
        sine, cosine = mad(r, sine, r), mad(z, cosine, 1.0)
    else:
        sine = r + mad(r, sine, mad(z * -0.5, low, low))
        cosine = mad(z, cosine, r * -low) + 1.0
    value = where((quadrant & 1).eq(0), sine, cosine)
    return with_sign(value, ((quadrant & 2) << (f.real.bits - 2)) ^ sign)


def sin(x: Expr) -> Expr:
    """Return the sine; NaN at infinity."""
    r, low, quadrant = _reduce(x)
    return _turned(r, low, quadrant, sign_of(x))


def cos(x: Expr) -> Expr:
    """Return the cosine; NaN at infinity."""
    r, low, quadrant = _reduce(x)
    return _turned(r, low, quadrant + 1, lift(0, quadrant))


def tan(x: Expr) -> Expr:
    """Return the tangent; NaN at infinity."""
    r, low, quadrant = _reduce(x, wide=True)
    z = r * r
    value = z * horner(z, _TAN[x.dtype.bits])
    value = mad(r, value, r) if low is None else r + mad(r, value, mad(z, low, low))
    value = where((quadrant & 1).eq(0), value, -1.0 / value)
    return with_sign(cast(value, x.dtype), sign_of(x))
