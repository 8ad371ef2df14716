"""Functions of float32 from tables of polynomials, for targets that have LOOKUP.

A table of 16 or 32 pieces costs one instruction a coefficient there, and so gives results of almost
one rounding without a division: the value in the middle of a piece, which is an exact float as far
as can be (Gal 1986: the middle is chosen so), and a polynomial in the distance from there, which is
exact and small beside it.

Polynomials are minimax (Remez) with the coefficients rounded to the working format one after
another from the lowest, each time fitting the others anew.
"""

import struct
from functools import cache
from typing import Final

from weft.ir.expr import Expr, bitcast, mad, where
from weft.ir.lookup import lookup
from weft.passes.transcendental.floats import (
    SINGLE,
    at_least,
    at_most,
    magnitude,
    sign_of,
    with_sign,
)

_QUARTERS: Final = 21  # bits of a float32 below those that tell quarters of an octave apart

# For each quarter of an octave from 3/16 to 10 (9.2 in the last): the middle c, tanh(c), and the
# coefficients of (tanh(c + d) - tanh(c)) / d, the lowest first; tanh to 2**-29.7
_TANH_PIECES: Final = (
    (0.20313203, 0.20038347, 0.95984644, -0.19233741, -0.28094614, 0.12194936, -1.4206314,
     -5.651102),
    (0.23439117, 0.23019102, 0.94701207, -0.21799403, -0.26505682, 0.13779418, -1.3423287,
     -11.418613),
    (0.28126347, 0.27407405, 0.9248834, -0.25348672, -0.2388571, 0.15028659, 0.0892326,
     -0.23724866),
    (0.34375155, 0.3308225, 0.89055645, -0.29461613, -0.19930293, 0.16429982, -0.03651508,
     -0.2011031),
    (0.4062443, 0.38527912, 0.85156, -0.3280886, -0.157431, 0.1707895, -0.008247295, -0.5349812),
    (0.4687535, 0.4371916, 0.8088635, -0.35362855, -0.11510227, 0.16856092, 0.052044917,
     -0.25345588),
    (0.56250656, 0.5098348, 0.74006844, -0.3773126, -0.05430772, 0.15343814, -0.04655449,
     -0.034422018),
    (0.68745625, 0.59634537, 0.6443722, -0.38426834, 0.014346034, 0.11949476, -0.057559717,
     -0.006484702),
    (0.812479, 0.67095554, 0.5498187, -0.36890396, 0.064214855, 0.079898186, -0.056495145,
     0.0033927371),
    (0.93747383, 0.73405945, 0.46115673, -0.33851644, 0.09476558, 0.043264344, -0.05169799,
     0.01816713),
    (1.1251199, 0.80934244, 0.3449648, -0.27919465, 0.11097776, 0.0032473, -0.032098982,
     0.018501364),
    (1.3749012, 0.8798044, 0.22594427, -0.19878677, 0.09957926, -0.02134623, -0.009498712,
     0.010929402),
    (1.6251138, 0.9253626, 0.14370409, -0.13297836, 0.07515121, -0.025218885, 0.0014611116,
     0.0041881385),
    (1.8751132, 0.9540554, 0.08977824, -0.085653365, 0.051792767, -0.020869292, 0.0045747967,
     0.0009504391),
    (2.2499378, 0.9780234, 0.043470208, -0.042514868, 0.027090807, -0.012324507, 0.003977536,
     -0.00071529846),
    (2.7500668, 0.9918608, 0.016212143, -0.016080195, 0.010544859, -0.0050989054, 0.0019152155,
     -0.0005508595),
    (3.249268, 0.99699324, 0.0060044727, -0.005986414, 0.003966759, -0.001959591, 0.0007710561,
     -0.00024281332),
    (3.749843, 0.9988941, 0.002210586, -0.0022081381, 0.0014687829, -0.0007312296, 0.00029232475,
     -9.492699e-05),
    (4.499932, 0.9997532, 0.00049359485, -0.00049346976, 0.0003284759, -0.00016410282,
     6.829034e-05, -2.2605112e-05),
    (5.5003624, 0.9999666, 6.675747e-05, -6.675583e-05, 4.445459e-05, -2.2221368e-05,
     9.2666105e-06, -3.0919527e-06),
    (6.4989777, 0.99999547, 9.059781e-06, -9.0571e-06, 6.0374077e-06, -3.0410076e-06,
     1.2448852e-06, -3.6390855e-07),
    (7.512999, 0.9999994, 1.1922068e-06, -1.1961457e-06, 7.9461904e-07, -3.5642051e-07,
     1.628614e-07, -1.6064024e-07),
    (8.663852, 0.99999994, 1.193256e-07, -1.2169697e-07, 7.9483534e-08, -2.520406e-08,
     1.6706624e-08, -2.7723456e-08),
)  # fmt: skip
# The same with c = 0 for tanh(d) - d, below 3/16. A first coefficient that hardly counts keeps
# products of tiny numbers from vanishing, which would take long.
_TANH_ZERO: Final = (
    0.0, 0.0, -8.6736174e-19, -2.808349e-07, -0.33331195, -0.0005302593, 0.13909301, -0.028624808,
)  # fmt: skip
_TANH_LEAST: Final = 0.0625  # where pieces begin
_TANH_BELOW: Final = 6  # so many are _TANH_ZERO
_TANH_SMALL: Final = 0.1875
_TANH_MOST: Final = 9.125  # from 9.02 on the result is 1


@cache
def _tanh_columns() -> list[tuple[float, ...]]:
    """Return the tables of middles, values and coefficients by the bits of a quarter octave."""
    beyond = 32 - _TANH_BELOW - len(_TANH_PIECES)  # pieces of no argument
    pieces = [_TANH_ZERO] * _TANH_BELOW + [*_TANH_PIECES] + [_TANH_ZERO] * beyond
    # the low bits of the first number's pattern choose the first piece
    first = struct.unpack("<I", struct.pack("<f", _TANH_LEAST))[0] >> _QUARTERS
    return list(zip(*(pieces[(i - first) % 32] for i in range(32)), strict=True))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent, within 0.56 ulp."""
    y = at_most(magnitude(x), _TANH_MOST)
    piece = bitcast(at_least(y, _TANH_LEAST), SINGLE.unsigned) >> _QUARTERS
    middle, value, *coefficients = (lookup(piece, c) for c in _tanh_columns())
    d = y - middle
    slope = coefficients.pop()
    for c in reversed(coefficients):
        slope = mad(slope, d, c)
    near = at_most(y, _TANH_SMALL)  # y itself where the middle is 0
    return with_sign(mad(slope, d, where(value.lt(near), near, value)), sign_of(x))
