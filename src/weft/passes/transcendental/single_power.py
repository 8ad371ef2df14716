"""float32 pow for devices without float64: the logarithm in two floats, as `power` has float64.

``log2(m) = s * (C0 + z * (C1 + z * P(z)))`` with ``s = (m - 1) / (m + 1)`` and ``z = s**2``, where
all but P is in two parts, to a relative error of 2**-35.
"""

from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, bitcast, cast, mad, where
from weft.passes.transcendental.exponential import EXP2, scale_twice
from weft.passes.transcendental.floats import (
    INF,
    SINGLE,
    at_least,
    at_most,
    fast_sum,
    horner,
    lift,
    magnitude,
    rounded,
    select,
)
from weft.passes.transcendental.power import at_ends, of_one, with_c99_signs
from weft.passes.transcendental.two_floats import Pair, two_product

_C0: Final = (2.885390043258667, 3.851926067000022e-08)
_C1: Final = (0.9617967009544373, -7.028461812552678e-09)
_P: Final = (0.5770780163555851, 0.41219858311134583, 0.3205988979127403, 0.2623081986651567,
             0.22195226975708923)  # fmt: skip
_LN2: Final = (0.6931471824645996, -1.9046542121259336e-09)
# (2**r - 1 - r * ln 2) / r**2 on abs(r) <= 1/2
_EXP2: Final = EXP2[64][2:9]
_SQRT_HALF: Final = 0x3F3504F3


def pow(x: Expr, y: Expr) -> Expr:
    """Return ``x**y`` as in C99 (``pow(x, 0)`` and ``pow(1, y)`` are 1 even for NaN)."""
    base = magnitude(x)
    high, low = _log2(base)
    high = at_ends(base, high)
    product, lost = two_product(high, y)
    rest = mad(low, y, lost)
    product = of_one(base, y, product)
    # Where the product overflows, or is that of 1 to an infinite power, the rest is no number.
    usual = magnitude(product).lt(200.0) & magnitude(y).lt(INF)
    rest = select(usual, rest, 0.0, rest)
    product = at_most(at_least(product, -160.0), 140.0)
    offset = 2 * SINGLE.bias
    n, bits = rounded(product + (SINGLE.rounder + offset), SINGLE, offset=offset)
    r, low = fast_sum(product - n, rest)
    # 1 + r * ln 2 in two parts, so that the last addition rounds alone
    part, part_lost = two_product(r, lift(_LN2[0], r))
    near, near_lost = fast_sum(lift(1.0, r), part)
    more = mad(r, _LN2[1], mad(low, _LN2[0], part_lost)) + near_lost
    grown = near + mad(r * r, horner(r, _EXP2), more)
    return with_c99_signs(x, y, scale_twice(grown, bits, SINGLE))


def _log2(x: Expr) -> Pair:
    tiny = x.lt(SINGLE.smallest_normal)
    offset = bitcast(where(tiny, x * 2.0**24, x), dt.int32) - _SQRT_HALF
    m = bitcast((offset & ((1 << SINGLE.mantissa) - 1)) + _SQRT_HALF, dt.float32)
    k = cast(offset >> SINGLE.mantissa, dt.float32)
    k = where(tiny, k - 24.0, k)
    f, above = m - 1.0, m + 1.0
    inverse = 1.0 / above
    s = f * inverse
    # the rest of f / (1 + m), of which `above` is the rounded value
    s_low = (mad(-s, above, f) - s * (m - (above - 1.0))) * inverse
    z, z_lost = two_product(s, s)
    z_low = mad(s + s, s_low, z_lost)
    inner, inner_low = fast_sum(lift(_C1[0], z), z * horner(z, _P))
    inner_low = inner_low + _C1[1]
    term, term_lost = two_product(z, inner)
    term_low = term_lost + mad(z, inner_low, z_low * inner)
    outer, outer_low = fast_sum(lift(_C0[0], z), term)
    outer_low = outer_low + (term_low + _C0[1])
    part, part_lost = two_product(s, outer)
    part_low = part_lost + mad(s, outer_low, s_low * outer)
    total, lost = fast_sum(k, part)
    return total, lost + part_low
