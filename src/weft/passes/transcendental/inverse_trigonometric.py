"""asin, acos, atan and atan2.

``atan`` is a polynomial on [-1, 1], the rest by ``atan(x) = pi/2 - atan(1/x)``; ``asin`` and
``acos`` are a polynomial below 1/2, the rest by ``asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2))``,
whose argument is exact under the root.
"""

from typing import Final

from weft.ir.expr import Expr, mad, unary, where
from weft.ir.op import Op
from weft.passes.transcendental.floats import (
    INF,
    horner,
    magnitude,
    select,
    sign_of,
    with_sign,
)

# pi / 2 in two parts
_HALF_PI: Final = {
    32: (1.5707963705062866, -4.371138828673793e-08),
    64: (1.5707963267948966, 6.123233995736766e-17),
}
# (atan(sqrt z) - sqrt z) / (z * sqrt z) on z <= 1; atan to 2**-28 and 2**-56
_ATAN: Final = {
    32: (-0.33333298563957214, 0.1999852955341339, -0.14264015853405, 0.10950879752635956,
         -0.08399298787117004, 0.05788109451532364, -0.031096430495381355, 0.010868189856410027,
         -0.0017826526891440153),
    64: (-0.33333333333333287, 0.19999999999990614, -0.14285714285044598, 0.11111111086649189,
         -0.09090908550345227, 0.0769229974228368, -0.06666583921171428, 0.058817169692106305,
         -0.05259435372990736, 0.04744922536570082, -0.042863507301407054, 0.03820841069870349,
         -0.03278102101973043, 0.0261432275350464, -0.018602215336128738, 0.011304952099250795,
         -0.0056024521148518025, 0.00214600775615354, -0.000590763107711629,
         0.00010337677187217767, -8.6013019376479e-06),
}  # fmt: skip
# (asin(sqrt z) - sqrt z) / (z * sqrt z) on z <= 1/4; asin to 2**-27 and 2**-55
_ASIN: Final = {
    32: (0.16666752099990845, 0.074953094124794, 0.045469146221876144, 0.02418483980000019,
         0.04215811938047409),
    64: (0.16666666666665408, 0.07500000000337165, 0.04464285682819817, 0.03038195914241308,
         0.022371757918261046, 0.017359706789475585, 0.013885215029179623, 0.012169349138921494,
         0.00652736449906755, 0.0195299841237968, -0.01622702776321538, 0.03191422611259059),
}  # fmt: skip


def _atan_unit(t: Expr) -> Expr:
    """Return ``atan(t)`` for 0 <= t <= 1."""
    z = t * t
    return mad(t, z * horner(z, _ATAN[t.dtype.bits]), t)


def atan(x: Expr) -> Expr:
    """Return the inverse tangent."""
    y = magnitude(x)
    high, low = _HALF_PI[x.dtype.bits]
    steep = y.gt(1.0)
    angle = _atan_unit(where(steep, 1.0 / y, y))
    return with_sign(where(steep, high - (angle - low), angle), sign_of(x))


def atan2(y: Expr, x: Expr) -> Expr:
    """Return the angle of the point (x, y), of the sign of y; zeros and infinities as in C99."""
    high, low = _HALF_PI[x.dtype.bits]
    ay, ax = magnitude(y), magnitude(x)
    steep = ay.gt(ax)
    short, long = where(steep, ax, ay), where(steep, ay, ax)
    ratio = short / long
    ratio = select(long.eq(0.0), 0.0, ratio, x)
    ratio = select(short.eq(INF), 1.0, ratio, x)
    angle = _atan_unit(ratio)
    angle = where(steep, high - (angle - low), angle)
    behind = sign_of(x).ne(0)
    angle = where(behind, 2 * high - (angle - 2 * low), angle)
    # NaN hides from the comparisons above if it is the shorter side.
    angle = where(ax.eq(ax), angle, x)
    return with_sign(where(ay.eq(ay), angle, y), sign_of(y))


def _arc(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the sine of an angle, the rest of that angle, and whether it is reflected.

    The angle is ``asin(abs(x))`` up to 1/2, else ``asin(sqrt((1 - abs(x)) / 2))``.
    """
    y = magnitude(x)
    reflected = y.gt(0.5)
    z = where(reflected, mad(y, -0.5, 0.5), y * y)
    root = where(reflected, unary(Op.SQRT, z), y)
    return root, root * (z * horner(z, _ASIN[x.dtype.bits])), reflected


def asin(x: Expr) -> Expr:
    """Return the inverse sine; NaN outside [-1, 1]."""
    high, low = _HALF_PI[x.dtype.bits]
    root, rest, reflected = _arc(x)
    near = mad(root, -2.0, high)
    lost = mad(root, -2.0, high - near)  # by rounding `near`, which may be above 1, the result not
    far = near + (lost + mad(rest, -2.0, low))
    return with_sign(where(reflected, far, root + rest), sign_of(x))


def acos(x: Expr) -> Expr:
    """Return the inverse cosine; NaN outside [-1, 1]."""
    high, low = _HALF_PI[x.dtype.bits]
    root, rest, reflected = _arc(x)
    arc = root + rest
    middle = high - (with_sign(arc, sign_of(x)) - low)
    twice = arc + arc
    far = where(x.lt(0.0), 2 * high - (twice - 2 * low), twice)
    return where(reflected, far, middle)
