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

from weft.ir.expr import Expr, bitcast, cast, mad, scalb, where
from weft.ir.lookup import lookup
from weft.ir.record import Record
from weft.passes.transcendental import logarithm
from weft.passes.transcendental.exponential import (
    EXP_RANGE,
    EXPM1_FLOOR,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    unless_vanished,
)
from weft.passes.transcendental.floats import (
    SINGLE,
    at_least,
    at_most,
    fast_sum,
    horner,
    lift,
    magnitude,
    seldom,
    select,
    sign_of,
    with_sign,
)

# 2**(j / 16) in float32, and the logarithm of what it is to be multiplied with to be exact
_POWERS: Final = (
    1.0, 1.0442737, 1.0905077, 1.1387886, 1.1892071, 1.2418578, 1.2968396, 1.3542556, 1.4142135,
    1.4768262, 1.5422108, 1.6104903, 1.6817929, 1.7562522, 1.8340081, 1.9152066,
)  # fmt: skip
_POWERS_LOW: Final = (
    0.0, 4.628547e-08, -1.19921575e-08, 4.729782e-08, 3.193418e-08, 3.6210572e-08, -3.0990723e-08,
    -7.475213e-09, 1.7114271e-08, -3.0476834e-08, 5.233334e-09, 6.1075918e-09, -1.4719606e-08,
    -5.258795e-09, -6.1282597e-09, 5.1406093e-09,
)  # fmt: skip
_SIXTEENTHS: Final = 1.5 * 2.0**19  # the number that, added to a small one, rounds it to 1/16
# (e**r - 1 - r) / r**2 on abs(r) <= ln(2) / 32: e**r to 2**-29.2, and e**r - 1 to 2**-31.5
_EXP: Final = (0.50001615, 0.16666718)
_EXPM1: Final = (0.5, 0.1666699, 0.041667588)
_EXPM1_HUGE: Final = 16.6  # from e**16.6, near 2**24, on, 1 may be lost beside a power

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
# The same for d itself, below 3/16: (tanh(d) - d) / d. A first coefficient that hardly counts keeps
# products of tiny numbers from vanishing, which would take long.
_TANH_NEAR: Final = (
    0.0, 0.0, -8.6736174e-19, -2.808349e-07, -0.33331195, -0.0005302593, 0.13909301, -0.028624808,
)  # fmt: skip
_TANH_MOST: Final = 9.125  # from 9.02 on the result is 1
# The error function likewise, up to 4; to 2**-30
_ERF_PIECES: Final = (
    (0.20312814, 0.22609179, 1.0827686, -0.21994063, -0.33197728, 0.103963636, 2.8373826,
     10.801203),
    (0.23437859, 0.259704, 1.0680653, -0.25033313, -0.3160999, 0.13521984, -2.5625958,
     -37.539803),
    (0.28125605, 0.30919003, 1.042558, -0.2932259, -0.29250917, 0.13932154, 0.048166893,
     -0.32478657),
    (0.34374827, 0.37312746, 1.0026228, -0.34464994, -0.25541306, 0.15871637, 0.20814216,
     0.08677795),
    (0.40621975, 0.43435797, 0.95673174, -0.3886431, -0.21367855, 0.17238615, 0.050730687,
     0.28840908),
    (0.46875262, 0.49261585, 0.9057909, -0.4245922, -0.16930775, 0.18187448, 0.068701185,
     -0.4188442),
    (0.5624843, 0.57366157, 0.82233584, -0.4625511, -0.10063779, 0.18253955, -0.015394454,
     -0.05517605),
    (0.6874839, 0.66907334, 0.7033843, -0.48356542, -0.012816007, 0.16562639, -0.044990797,
     -0.03945062),
    (0.81250226, 0.74946535, 0.583111, -0.47377908, 0.062286537, 0.13267636, -0.06699521,
     -0.026151512),
    (0.9374944, 0.8150998, 0.46854952, -0.43926236, 0.118343085, 0.09083972, -0.06722971,
     0.013009741),
    (1.125245, 0.8884662, 0.31809857, -0.35793877, 0.16247387, 0.027893007, -0.060837448,
     0.01566005),
    (1.3750521, 0.94817895, 0.17033537, -0.23422003, 0.15793206, -0.030504711, -0.030659838,
     0.021928186),
    (1.6249483, 0.97843957, 0.08048579, -0.13078523, 0.114851646, -0.049720466, -0.002280334,
     0.014476207),
    (1.8749814, 0.99198943, 0.03354817, -0.062902175, 0.067444615, -0.042262886, 0.011359755,
     0.0041977437),
    (2.2499025, 0.9985366, 0.007145437, -0.016076498, 0.021734305, -0.019094434, 0.01058417,
     -0.0027673063),
    (2.7501175, 0.99989945, 0.0005859152, -0.0016112954, 0.002756686, -0.003256003, 0.0028245403,
     -0.0016685021),
    (3.2503848, 0.9999957, 2.912068e-05, -9.4647636e-05, 0.00019478152, -0.0002853923,
     0.00033195733, -0.00027519383),
    (3.7439835, 0.9999999, 9.220825e-07, -3.4395468e-06, 8.28972e-06, -1.4840726e-05,
     2.0390957e-05, -1.6564487e-05),
)  # fmt: skip
_ERF_NEAR: Final = (
    0.0, 0.0, 0.12837917, 8.271806e-25, -0.37611988, -0.0002198524, 0.1155277, -0.014078705,
)  # fmt: skip
_ERF_MOST: Final = 3.9375  # from 3.84 on the result is 1
# For each eighth of an octave of 1 + 1.46875 * y from y = 0 to 10.2: the middle c, g(c) where
# g(y) = e**(y**2) * erfc(y), and the coefficients of (g(c + d) / g(c) - 1) / d; g to 2**-28.7
_ERFC_PIECES: Final = (
    (0.0, 1.0, -1.1283792, 1.0000042, -0.75230306, 0.498714, -0.27085686),
    (0.12767068, 0.87079674, -1.0404595, 0.8671636, -0.61982614, 0.39436954, -0.23089816),
    (0.21284087, 0.79879147, -0.9869262, 0.7899416, -0.5458569, 0.33714014, -0.19253312),
    (0.2976874, 0.73619235, -0.9373485, 0.7209632, -0.48181805, 0.28888443, -0.15831535),
    (0.38252783, 0.68126094, -0.8912541, 0.6590704, -0.42609861, 0.24821554, -0.13063045),
    (0.4685233, 0.6321912, -0.84782356, 0.60277486, -0.3769398, 0.21320693, -0.11091537),
    (0.55324155, 0.5893801, -0.80803555, 0.5529612, -0.33474016, 0.18394685, -0.09426418),
    (0.6389421, 0.5508411, -0.7705816, 0.50764287, -0.29748604, 0.15890163, -0.07786986),
    (0.76633614, 0.50098747, -0.7196379, 0.44851488, -0.2506154, 0.12850359, -0.061128363),
    (0.9368847, 0.4454629, -0.6592791, 0.382331, -0.20072001, 0.09733909, -0.043802276),
    (1.1054034, 0.4004128, -0.60723287, 0.32876232, -0.16254506, 0.074687496, -0.03207985),
    (1.2776946, 0.36212054, -0.5606428, 0.28366947, -0.13213292, 0.05752474, -0.02353404),
    (1.4452757, 0.33077314, -0.5207872, 0.24731877, -0.108896, 0.04503764, -0.017501708),
    (1.6172478, 0.30339718, -0.48465288, 0.21619606, -0.090007156, 0.035367917, -0.013105009),
    (1.7890172, 0.2799455, -0.45267585, 0.19015503, -0.074990034, 0.028033977, -0.009979357),
    (1.9584855, 0.25990245, -0.42457786, 0.16847035, -0.063087985, 0.022483436, -0.0075839623),
    (2.210653, 0.23461914, -0.38810185, 0.1420409, -0.049398378, 0.016484074, -0.005247271),
    (2.5503602, 0.20712446, -0.34711123, 0.11474102, -0.036319766, 0.011093537, -0.0032484045),
    (2.8961546, 0.18482392, -0.3128485, 0.09394214, -0.027184442, 0.0076275086, -0.0020761515),
    (3.2330325, 0.16713995, -0.28503907, 0.0784593, -0.020918172, 0.0054296018, -0.001363577),
    (3.5720322, 0.15237136, -0.26138994, 0.06630661, -0.016360298, 0.0039428584, -0.0009204905),
    (3.9169333, 0.13974194, -0.24086851, 0.05653407, -0.012952097, 0.0029061723, -0.00063767977),
    (4.2480216, 0.12940256, -0.22387038, 0.048993737, -0.010495933, 0.00220767, -0.00045091176),
    (4.588601, 0.1202215, -0.20863257, 0.042668313, -0.008563102, 0.0016906273, -0.0003256774),
    (5.102447, 0.10856077, -0.18909226, 0.035166528, -0.006437232, 0.0011664138, -0.00020674794),
    (5.7820435, 0.09617787, -0.16812533, 0.027891917, -0.004568295, 0.00074202556, -0.00011825907),
    (6.4739895, 0.08614265, -0.15098123, 0.022549033, -0.0033323886, 0.0004891165, -7.1173105e-05),
    (7.1396384, 0.078268796, -0.1374412, 0.018719463, -0.0025272018, 0.0003392295, -4.460062e-05),
    (7.826901, 0.07150891, -0.12575923, 0.015694944, -0.0019441671, 0.0002397077, -2.9251754e-05),
    (8.502918, 0.0659028, -0.11603357, 0.013376033, -0.0015321096, 0.00017474462, -1.963007e-05),
    (9.179433, 0.061103955, -0.10768309, 0.011530272, -0.0012277814, 0.00013025949,
     -1.3610306e-05),
    (9.860544, 0.056927074, -0.100397095, 0.010030001, -0.0009971645, 9.883089e-05, -9.806854e-06),
)  # fmt: skip
_ERFC_WIDTH, _ERFC_MOST = 1.46875, 10.2
_ERFC_LAST: Final = 10.055  # from 10.0542 on the result is 0
_ERFC_TINY: Final = 2.0**-40  # keeps squares from vanishing, which would take long
_ERFC_LEAST: Final = 2.0**-30  # products with smaller ones may be subnormal, and take as long
_ODD_LEAST, _ODD_SMALL = 0.0625, 0.1875  # where tables begin, and pieces: six before are alike

# For m in 32 pieces from 45/64 to 45/32, of equal width below 1 and above: a multiple of 1/64 near
# 1 / m, so that next to 1 the product with m, less 1, is exact; minus its logarithm, in multiples
# of 2**-17; and what that leaves. The quotient is 1 around 1, where the logarithm vanishes.
_LOG_ORIGIN: Final = 0x3F340000
_LOG_PIECES: Final = 18  # bits of a float32 below those that tell pieces apart
_LOG_INVERSE: Final = (
    1.40625, 1.375, 1.34375, 1.3125, 1.296875, 1.265625, 1.25, 1.21875, 1.203125, 1.171875,
    1.15625, 1.125, 1.109375, 1.09375, 1.078125, 1.0625, 1.046875, 1.0, 1.0, 1.0, 0.953125,
    0.921875, 0.90625, 0.875, 0.859375, 0.828125, 0.8125, 0.796875, 0.765625, 0.75, 0.734375,
    0.71875,
)  # fmt: skip
_LOG_HIGH: Final = (
    -0.34092712, -0.31845093, -0.29546356, -0.2719345, -0.25995636, -0.23556519, -0.22314453,
    -0.19782257, -0.18492126, -0.15860748, -0.14517975, -0.11778259, -0.10379791, -0.08961487,
    -0.07522583, -0.06062317, -0.045806885, 0.0, 0.0, 0.0, 0.04801178, 0.081344604, 0.09844208,
    0.13352966, 0.1515503, 0.188591, 0.2076416, 0.22705841, 0.26705933, 0.28768158, 0.3087387,
    0.33023834,
)  # fmt: skip
_LOG_LOW: Final = (
    5.3705287e-07, -2.8033842e-06, -6.508821e-07, 7.937937e-07, -1.1645736e-06, -8.8576587e-07,
    9.799357e-07, -3.1725292e-06, -1.0738456e-06, 2.4527335e-06, -2.2613094e-06, -4.4288294e-07,
    1.118916e-06, 2.7094743e-06, 2.4088406e-06, -1.4528712e-06, -2.6512657e-06, 0.0, 0.0, 0.0,
    -2.560599e-06, 1.0349618e-06, -2.0048235e-06, 1.7295386e-06, -3.9484155e-07, 1.6638958e-07,
    -2.2367842e-06, -9.600092e-07, 3.459077e-06, 4.9286194e-07, -3.2268465e-06, 3.3445854e-06,
)  # fmt: skip
class _Base(Record):
    """What a logarithm of some base is made of, one to the base e being 1.

    `octave` is that of 2, and `factor` that of e, each in two parts, `high` and `low` minus that
    of each quotient; all but the last parts are multiples of 2**-17 but for `factor`. `rest` is
    ``(log(1 + r) - r) / r**2`` times the factor on abs(r) <= 1/32, to 2**-30.5 of r.
    """

    octave: tuple[float, float]
    factor: tuple[float, float]
    high: tuple[float, ...]
    low: tuple[float, ...]
    rest: tuple[float, ...]


_NATURAL: Final = _Base(
    (0.69314575, 1.4286068e-06), (1.0, 0.0), _LOG_HIGH, _LOG_LOW,
    (-0.5, 0.33333325, -0.25014153, 0.20022203),
)  # fmt: skip
_BINARY: Final = _Base(
    (1.0, 0.0), (1.442695, 1.925963e-08),
    (
        -0.4918518, -0.4594345, -0.4262619, -0.39231873, -0.37503815, -0.33985138,
        -0.32192993, -0.2854004, -0.26678467, -0.2288208, -0.20944977, -0.16992188,
        -0.14974976, -0.12928009, -0.10852814, -0.08746338, -0.066085815, 0.0, 0.0, 0.0,
        0.06925964, 0.11735535, 0.14202118, 0.19264221, 0.21864319, 0.27207947,
        0.29956055, 0.32757568, 0.38529205, 0.41503906, 0.44541168, 0.47644043,
    ), (
        -1.2896891e-06, 2.89064e-06, -2.8528466e-06, 1.3028072e-06, -1.2843743e-06,
        1.3765099e-06, 1.8367533e-06, -1.8282373e-06, -1.8727261e-06, 2.1102853e-06,
        -3.5975625e-06, -3.1264424e-06, 2.6363548e-06, -2.926613e-06, 3.6804288e-06,
        5.376559e-07, -3.375028e-06, 0.0, 0.0, 0.0, 3.0188824e-06, 1.6039585e-06,
        -2.1743267e-06, 2.8660284e-06, -2.9020011e-06, 7.7663366e-08, -2.650161e-07,
        -1.0255652e-06, -1.8973378e-06, -1.5632212e-06, -5.3380654e-07, -2.3857444e-06,
    ),
    (-0.7213475, 0.48089823, -0.36089543, 0.2888589),
)  # fmt: skip
_DECIMAL: Final = _Base(
    (0.30103302, -3.0243555e-06), (0.4342945, -1.010305e-08),
    (
        -0.14806366, -0.13830566, -0.12831879, -0.11810303, -0.11289978, -0.10230255,
        -0.09690857, -0.08591461, -0.08030701, -0.068878174, -0.06304932, -0.05115509,
        -0.045082092, -0.03891754, -0.032669067, -0.02632904, -0.019897461, 0.0, 0.0, 0.0,
        0.020851135, 0.035331726, 0.042755127, 0.057991028, 0.06581879, 0.08190155,
        0.09017944, 0.098609924, 0.115982056, 0.124938965, 0.13407898, 0.14342499,
    ), (
        1.1242125e-06, 2.9658963e-06, 3.093614e-07, 3.7152658e-06, 1.6618812e-06,
        -2.4936253e-06, -1.4436721e-06, -1.6890187e-08, -3.7443526e-06, -3.1155796e-06,
        -2.4293408e-06, 2.5678846e-06, 3.71755e-06, -5.2452646e-07, -4.9370556e-08,
        1.0180499e-07, 2.6322205e-06, 0.0, 0.0, 0.0, -9.962807e-07, -3.7637324e-06,
        -3.1465322e-06, 9.1914563e-07, -1.5021315e-06, 2.55409e-06, -2.8130103e-06,
        -1.2643045e-07, 1.8382913e-06, -2.2823545e-07, 3.136556e-06, -2.8454906e-06,
    ),
    (-0.21714725, 0.1447648, -0.108630747, 0.0869517928),
)  # fmt: skip


def bits_of(x: float) -> int:
    """Return the pattern of a float32."""
    return int.from_bytes(struct.pack("<f", x), "little")


Piece = tuple[float, ...]


@cache
def _columns(near: Piece, pieces: tuple[Piece, ...]) -> list[tuple[float, ...]]:
    """Return the tables of middles, values and coefficients by the bits of a quarter octave."""
    first, small = (bits_of(x) >> _QUARTERS for x in (_ODD_LEAST, _ODD_SMALL))
    below = [near] * (small - first)
    beyond = [near] * (32 - len(below) - len(pieces))  # of no argument
    rows = [*below, *pieces, *beyond]
    return list(zip(*(rows[(i - first) % 32] for i in range(32)), strict=True))


def exp(x: Expr) -> Expr:
    """Return e to the x, within 0.57 ulp, or 0.78 if subnormal (it is rounded twice then)."""
    lowest, highest = EXP_RANGE[32]
    n, piece, r, low = _reduce_exp(at_most(x, highest))
    power, r = lookup(piece, _POWERS), r + low
    grown = mad(r * r, horner(r, _EXP), r)
    return unless_vanished(x, lowest, scalb(mad(power, grown, power), n))


def expm1(x: Expr) -> Expr:
    """Return e to the x, less 1, within 0.53 ulp, from half of it, which does not overflow."""
    n, piece, r, low = _reduce_exp(at_most(at_least(x, EXPM1_FLOOR[32]), EXP_RANGE[32][1]))
    power = scalb(lookup(piece, tuple(p / 2 for p in _POWERS)), n)
    huge = x.gt(_EXPM1_HUGE)
    start = where(huge, power, power - 0.5)
    lost = select(huge, -0.5, power - (start + 0.5), x)
    head = mad(power, r, start)
    whole = r + low
    rest = mad(whole * whole, horner(whole, _EXPM1), low)
    half = head + (mad(power, rest, mad(power, r, start - head)) + lost)
    return where(magnitude(x).lt(2.0 ** -(SINGLE.mantissa + 2)), x, half + half)


def _reduce_exp(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Return n, the index j of a power and r in two parts: ``e**x = 2**floor(n + j/16) * e**r``.

    Here ``2**(j/16)`` stands for the number in the table, whose error r makes good.
    """
    total = mad(x, LOG2_E[32], _SIXTEENTHS)
    n, piece = total - _SIXTEENTHS, bitcast(total, SINGLE.unsigned)
    low = mad(n, -LN2_LOW[32], lookup(piece, _POWERS_LOW))
    return n, piece, mad(n, -LN2_HIGH[32], x), low


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent, within 0.57 ulp."""
    return _odd(x, _TANH_NEAR, _TANH_PIECES, _TANH_MOST)


def erf(x: Expr) -> Expr:
    """Return the error function, within 0.63 ulp."""
    return _odd(x, _ERF_NEAR, _ERF_PIECES, _ERF_MOST)


def _odd(x: Expr, near: Piece, pieces: tuple[Piece, ...], most: float) -> Expr:
    """Return an odd function that grows to its value at `most`, which it has from there on."""
    y = at_most(magnitude(x), most)
    piece = bitcast(at_least(y, _ODD_LEAST), SINGLE.unsigned) >> _QUARTERS
    middle, value, *coefficients = (lookup(piece, c) for c in _columns(near, pieces))
    d = y - middle
    slope = coefficients.pop()
    for c in reversed(coefficients):
        slope = mad(slope, d, c)
    small = at_most(y, _ODD_SMALL)  # y itself where the middle is 0
    return with_sign(mad(slope, d, where(value.lt(small), small, value)), sign_of(x))


def erfc(x: Expr) -> Expr:
    """Return 1 less the error function, within 0.8 ulp."""
    y = at_most(at_least(magnitude(x), _ERFC_LEAST), _ERFC_MOST)
    square = mad(y, y, _ERFC_TINY)
    n, index, r, low = _reduce_exp(-square)
    r = r + (low + mad(-y, y, square))
    grown = mad(r * r, horner(r, _EXP), r)
    width = bitcast(mad(y, _ERFC_WIDTH, 1.0), SINGLE.unsigned) >> (_QUARTERS - 1)
    turned = _ERFC_PIECES[8:] + _ERFC_PIECES[:8]  # those of the second octave have index 0 to 7
    middle, value, *coefficients = (lookup(width, c) for c in zip(*turned, strict=True))
    d = y - middle
    slope = coefficients.pop()
    for c in reversed(coefficients):
        slope = mad(slope, d, c)
    more = mad(slope * d, grown, grown) + slope * d
    power = lookup(index, _POWERS)
    whole = power * value
    scaled = scalb(whole + mad(whole, more, mad(power, value, -whole)), n)
    right = where(y.gt(_ERFC_LAST), lift(0.0, x), scaled)
    return where(x.lt(0.0), 2.0 - right, right)


def log(x: Expr) -> Expr:
    """Return the natural logarithm, within 0.54 ulp; that of subnormal numbers as elsewhere."""
    rare = logarithm.natural(*logarithm.split_subnormal(x))
    return logarithm.everywhere(x, _log(x), rare)


def log2(x: Expr) -> Expr:
    """Return the logarithm to base 2, within 0.54 ulp but for subnormal numbers."""
    rare = logarithm.binary(*logarithm.split_subnormal(x))
    return logarithm.everywhere(x, _log(x, base=_BINARY), rare)


def log10(x: Expr) -> Expr:
    """Return the logarithm to base 10, within 0.54 ulp but for subnormal numbers."""
    rare = logarithm.decimal(*logarithm.split_subnormal(x))
    return logarithm.everywhere(x, _log(x, base=_DECIMAL), rare)


def log1p(x: Expr) -> Expr:
    """Return the logarithm of 1 + x, within 0.67 ulp; beyond 2**60 as elsewhere."""
    total, lost = fast_sum(at_least(x, 1.0), at_most(x, 1.0))
    value = bitcast(bitcast(_log(total, lost), SINGLE.unsigned) | sign_of(x), SINGLE.real)  # of -0
    least = bits_of(SINGLE.smallest_normal)
    usual = (bitcast(total, SINGLE.unsigned) - least).lt(bits_of(2.0**60) - least)
    return seldom(~usual, logarithm.log1p(x), value)


def _log(x: Expr, rest: Expr | None = None, base: _Base = _NATURAL) -> Expr:
    """Return the logarithm of x, or of ``x + rest`` where that rounds to x, for normal x > 0.

    With ``x = 2**k * m`` and c near 1 / m it is ``k * log(2) - log(c) + log(1 + r)``, where
    ``r = m * c - 1``. The first two are exact together but for a small rest, so that what their sum
    with r loses is known.
    """
    offset = bitcast(x, SINGLE.signed) - _LOG_ORIGIN
    fraction = (1 << SINGLE.mantissa) - 1
    piece = bitcast(offset, SINGLE.unsigned) >> _LOG_PIECES
    k = cast(offset >> SINGLE.mantissa, SINGLE.real)
    m = bitcast((offset & fraction) + _LOG_ORIGIN, SINGLE.real)
    inverse = lookup(piece, _LOG_INVERSE)
    r = mad(m, inverse, -1.0)
    head, head_low = _times(r, base.factor)
    total, lost = fast_sum(_plus_times(k, base.octave[0], lookup(piece, base.high)), head)
    low = lost + _plus_times(k, base.octave[1], lookup(piece, base.low))
    if head_low is not None:
        low = low + head_low
    if rest is not None:  # its share of x; 1 - r stands for 1 / (1 + r), the slope there
        scale = bitcast(bitcast(inverse, SINGLE.signed) - (offset & ~fraction), SINGLE.real)
        share = rest * scale
        low = low + mad(-share, r, share)
    return total + mad(r * r, horner(r, base.rest), low)


def _times(r: Expr, factor: tuple[float, float]) -> tuple[Expr, Expr | None]:
    """Return the product with a factor in two parts, in two parts; of 1, the number alone."""
    high, low = factor
    if high == 1.0:
        return r, None
    head = r * high
    return head, mad(r, low, mad(r, high, -head))


def _plus_times(k: Expr, factor: float, value: Expr) -> Expr:
    """Return ``k * factor + value``."""
    if factor in (0.0, 1.0):
        return k + value if factor else value
    return mad(k, factor, value)
