"""The error function and its complement.

``erf`` of float32 is ``1 - e**q(x)`` with q a polynomial for ``log(erfc(x))``, as expm1 is
computed; that of float64 is a polynomial below 1 and ``1 - 2**-q(x)`` above. ``erfc`` is
``e**(-x**2)`` times a polynomial for ``e**(x**2) * erfc(x)`` in ``t = (x - c) / (x + c)``, which
maps [0, inf) to [-1, 1) (after Schonfelder 1978). In float64 ``x**2`` is taken in two parts, and
``1 + 2*x`` is divided out of the polynomial, which makes it flat, so that the rounding of t hardly
counts. ``erfc`` of float32 is computed in float64.

Polynomials are minimax (Remez) with the lower coefficients rounded to the working format one after
another, each time fitting the others anew.
"""

from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, cast, mad, scalb, where
from weft.passes.transcendental.exponential import (
    EXP,
    EXP2,
    EXPM1,
    LN2_HIGH,
    LOG2_E,
    reduce_exp,
)
from weft.passes.transcendental.floats import (
    at_most,
    fast_sum,
    horner,
    horner_either,
    horner_halves,
    layout,
    lift,
    magnitude,
    power_of_two,
    rounded,
    sign_of,
    with_sign,
)
from weft.passes.transcendental.power import exp2_single

# -log(erfc(x)) / x - 1 on x <= 4; erf to 2**-27
_ERFC_LOG: Final = (
    0.12837916612625122, 0.6366195678710938, 0.10277630388736725, -0.01914782077074051,
    -0.00016951217548921704, 0.0016756887780502439, -0.0006373724318109453,
    0.00011886439460795373, -9.38835546548944e-06,
)  # fmt: skip
# erf(sqrt z) / sqrt z - 1 on z <= 1; erf to 2**-55
_ERF: Final = (
    0.12837916709551256, -0.37612638903183343, 0.11283791670936949, -0.026866170641958426,
    0.005223977596726144, -0.0008548325484328236, 0.00012055280470011091,
    -1.4924464998823216e-05, 1.6444141007850195e-06, -1.6183905126199234e-07,
    1.3616271816480594e-08, -7.606912784116671e-10,
)  # fmt: skip
# -log2(erfc(x)) on [1, 6]; erf to 2**-56
_ERFC_EXPONENT: Final = (
    2.592860608188589e-07, 1.6279043756647116, 0.9184607710543075, 0.14823292988453504,
    -0.027523916124654522, -0.0004047268182046265, 0.0025522059869574226,
    -0.0009250862642574025, 6.471454390789919e-05, 0.00010148963628825675,
    -6.496255475864647e-05, 2.3820028571217633e-05, -6.241312533464585e-06,
    1.22683537375192e-06, -1.8130642375626632e-07, 1.9653343073460363e-08,
    -1.4792769512909441e-09, 6.91660494697023e-11, -1.5136420957313726e-12,
)  # fmt: skip
_ERF_ONE: Final = {32: 4.0, 64: 6.0}  # erf rounds to 1 from here
# e**(x**2) * erfc(x) in t = (x - 3) / (x + 3), x <= 10.2, to 2**-36, for float32
_ERFCX_SINGLE: Final = (
    0.17900115117961443, -0.3262335600574636, 0.2456038020745342, -0.15011593583630445,
    0.07166582584139941, -0.02439251137605335, 0.004269265216886393, 0.0007078784533896361,
    -0.0005977211674734358, 4.444195477144263e-05, 6.553728316700356e-05, -1.0393701596997876e-05,
    -8.750731916215287e-06, -8.097293733198312e-07,
)  # fmt: skip
# (1 + 2*x) * e**(x**2) * erfc(x) in t = (x - 4) / (x + 4), x <= 27.3, to 2**-54
_ERFCX_DOUBLE: Final = (
    1.2329951186255526, -0.13962111684056322, 0.015379652102604889, 0.06809705425476831,
    -0.10103906603549297, 0.09373283499606445, -0.06633036582970725, 0.03716751556753642,
    -0.016197733862827628, 0.005031969777210684, -0.0007577745606394932, -0.0001992560027370549,
    0.00015062683078231353, -2.4400145047204198e-05, -1.123527363311454e-05, 5.70840841960682e-06,
    3.150934751961261e-07, -8.185961481954859e-07, 5.442985615448851e-08, 9.999799309111535e-08,
    -8.093953468368342e-09, -7.780313085739088e-09, 2.1116665332833534e-10,
)  # fmt: skip


def erf(x: Expr) -> Expr:
    """Return the error function."""
    if x.dtype is dt.float64:
        return _erf_double(x)
    f, y = layout(x), at_most(magnitude(x), _ERF_ONE[32])
    more = horner(y, _ERFC_LOG)
    exponent = mad(-y, more, -y)
    lost = mad(-y, more, -y - exponent)
    n, low = rounded(mad(exponent, LOG2_E[32], f.rounder + f.bias), f, offset=f.bias)
    # The low part of ln 2 is left out: where n is not 0, it is below a tenth of an ulp.
    r = mad(n, -LN2_HIGH[32], exponent)
    scale = power_of_two(low, f)
    grown = r + mad(r * r, horner(r, EXPM1[32]), lost)
    return with_sign(mad(-scale, grown, 1.0 - scale), sign_of(x))


def _erf_double(x: Expr) -> Expr:
    f, y = layout(x), magnitude(x)
    small = y.lt(1.0)
    found = horner_either(small, where(small, x * x, at_most(y, _ERF_ONE[64])), _ERF,
                          _ERFC_EXPONENT)
    n, low = rounded((f.rounder + f.bias) - found, f, offset=f.bias)
    rest = horner(-found - n, EXP2[64])
    return with_sign(where(small, mad(y, found, y), mad(rest, -power_of_two(low, f), 1.0)),
                     sign_of(x))


def erfc(x: Expr) -> Expr:
    """Return ``1 - erf(x)``, accurate down to the smallest subnormal."""
    if x.dtype is dt.float64:
        return _erfc_double(x)
    w = cast(x, dt.float64)
    y = at_most(magnitude(w), 10.2)
    scaled = horner((y - 3.0) / (y + 3.0), _ERFCX_SINGLE)
    value = scaled * exp2_single(y * y * -LOG2_E[64])
    return cast(where(w.lt(0.0), 2.0 - value, value), x.dtype)


def _erfc_double(x: Expr) -> Expr:
    y = at_most(magnitude(x), 27.3)
    scale = y + y + 1.0
    inverse = 1.0 / scale
    # what the rounded sum and quotient leave out, to first order
    lost = mad(-inverse, scale, 1.0) - inverse * (y + y - (scale - 1.0))
    t = (y - 4.0) / (y + 4.0)
    rest = t * horner_halves(t, _ERFCX_DOUBLE[1:])
    flat, flat_low = fast_sum(lift(_ERFCX_DOUBLE[0], x), rest)
    scaled = flat * inverse
    scaled_low = mad(flat, inverse, -scaled) + mad(scaled, lost, flat_low * inverse)
    square = y * y
    r, n, _ = reduce_exp(-square, 0)
    r = r - mad(y, y, -square)
    # scaled * e**r as scaled + scaled * (e**r - 1)
    grown = scaled + mad(scaled, r * horner(r, EXP[64][1:]), scaled_low)
    value = scalb(grown, n)
    near = 1.0 - mad(x, horner(x * x, _ERF), x)
    return where(y.lt(0.65), near, where(x.lt(0.0), 2.0 - value, value))
