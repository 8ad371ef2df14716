"""Remainder by ``pi`` or ``pi / 2`` of an argument of any size.

Payne and Hanek (1983): only those bits of ``1 / pi`` are multiplied that matter for the exponent at
hand, modulo a whole turn. They are chosen by selects, so there is no table in memory. float32 is
reduced in float64 fused multiply-adds, float64 in integer arithmetic. Usual arguments have shorter
ways, which callers take by `floats.seldom`.
"""

import math
from typing import Final

from weft.ir import dtype as dt
from weft.ir.expr import Expr, bitcast, cast, mad, where
from weft.passes.transcendental.floats import (
    DOUBLE,
    fast_sum,
    lift,
    magnitude,
    rounded,
    select,
)

QUARTER_PI: Final = 0.78515625  # a little less

# 1 / pi in two parts, less whole turns: for any float32, and for those from a power of two on
_PER_HALF_TURN: Final = (0.3183098861837907, -1.9678676675182486e-17)
_PER_HALF_TURN_FROM: Final = (
    (2.0**50, -2.0598845603958264e-09, 1.4188110088932633e-25),
    (2.0**77, 3.583247455607534e-17, -1.0721436282893004e-33),
    (2.0**102, -2.7170920538718753e-25, 1.9429493537593412e-41),
)
# the same for small ones: both parts are positive, so that -0 stays -0
_PER_HALF_TURN_NEAR: Final = (0.31830988618379064, 3.583247455607534e-17)
# 2 / pi: bits behind the point from -54 on
_WORDS_DOUBLE: Final = (
    0x0000000000000145, 0xF306DC9C882A53F8, 0x4EAFA3EA69BB81B6, 0xC52B3278872083FC,
    0xA2C757BD778AC36E, 0x48DC74849BA5C00C, 0x925DD413A32439FC, 0x3BD63962534E7DD1,
    0x046BEA5D768909D3, 0x38E04D68BEFC8273, 0x23AC7306A673E939, 0x08BF177BF250763F,
    0xF12FFFBC0B301FDE, 0x5E2316B414DA3EDA, 0x6CFD9E4F96136E9E, 0x8C7ECD3CBFD45AEA,
    0x4F758FD7CBE2F67A, 0x0E73EF14A525D4D7, 0xF6BF623F1ABA10AC, 0x06608DF8F6D757E1,
)
HALF_PI: Final = 1.5707963267948966
_HALF_PI_LOW: Final = 6.123233995736766e-17
_HALF_PI_PARTS: Final = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
FAR_DOUBLE: Final = 2.0**20


def reduce_single(y: Expr, parts: int, *, offset: float = 0.0) -> tuple[Expr, Expr]:
    """Return ``y * parts / pi + offset - n``, and n as the low bits of a uint64.

    y >= 0 is a float32 as float64, `parts` a power of two, `offset` 0 or 1/2; n is the nearest
    integer, except that large arguments may miss it by so little that the remainder stays below
    0.56 (infinity gives NaN).

    A float32 from ``2**e`` on is a multiple of ``2**(e - 23)``, so multiples of ``2**(24 - e)`` in
    ``1 / pi`` make whole turns. What is left of it, times y, stays below ``2**51 / parts`` for some
    26 exponents. The first product cancels exactly, and the two parts have 106 bits: as no float32
    is closer to a multiple of ``pi / 2`` than 2**-31 (relative to it), the remainder keeps 26.
    """
    head, tail = (lift(part * parts, y) for part in _PER_HALF_TURN)
    for least, *constants in _PER_HALF_TURN_FROM:
        reached = y.ge(least)
        head, tail = (
            select(reached, part * parts, before, y)
            for part, before in zip(constants, (head, tail), strict=True)
        )
    return _remainder(y, head, tail, offset)


def reduce_single_near(x: Expr, parts: int, *, offset: float = 0.0) -> tuple[Expr, Expr, Expr]:
    """Return what `reduce_single` does, of x of either sign, and where that is not to be relied on.

    Where n, counted from ``-2**47``, reaches 48 bits, the sum that rounds it has other upper bits.
    """
    head, tail = (lift(part * parts, x) for part in _PER_HALF_TURN_NEAR)
    f, bits = _remainder(x, head, tail, offset, 1 << 47)
    return f, bits, ((bits ^ DOUBLE.rounder_bits) & (0xFFFF << 48)).ne(0)


def _remainder(x: Expr, head: Expr, tail: Expr, offset: float, first: int = 0
               ) -> tuple[Expr, Expr]:  # fmt: skip
    """Return ``x * (head + tail) + offset - n`` and the bits of n less `first`."""
    rounder = DOUBLE.rounder + first
    turns = mad(x, head, offset) + rounder if offset else mad(x, head, rounder)
    n, bits = rounded(turns, DOUBLE, offset=first)
    return mad(x, tail, mad(x, head, offset - n if offset else -n)), bits


def reduce_double_near(y: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Return what `reduce_double` does of 0 <= y, and where that is not to be relied on.

    ``pi / 2`` is subtracted in three parts (Cody and Waite), of which the first two have 33 bits:
    n times those is exact, and the difference from the first, too. What the parts leave out comes
    to less than 2**-97, so only remainders from 2**-41 on are accurate to 56 bits.
    """
    rounder = DOUBLE.rounder
    n, bits = rounded(mad(y, 2 / math.pi, rounder), DOUBLE)
    first, second, third = _HALF_PI_PARTS
    coarse = mad(n, -first, y)
    taken = n * second
    rest = coarse - taken
    lost = mad(n, -third, (coarse - rest) - taken)
    high, low = fast_sum(rest, lost)
    unsure = magnitude(high).lt(2.0**-41) & y.ge(QUARTER_PI)
    return high, low, bits, y.ge(FAR_DOUBLE) | unsure


def _significand(pattern: Expr) -> tuple[Expr, Expr]:
    """Return m and how many bits of ``2 / pi`` to leave out, for 1/2 <= y.

    Below 1 no bits are left out and m is half as large, which keeps the count below 1024.
    """
    f = DOUBLE
    usual = pattern.ge(f.bias << f.mantissa)
    m = (pattern & ((1 << f.mantissa) - 1)) | (1 << f.mantissa)
    return where(usual, m + m, m), select(usual, (pattern >> f.mantissa) - f.bias, 0, m)


def _funnel(a: Expr, b: Expr, skip: Expr) -> Expr:
    """Return 64 bits of the words a, b from bit ``skip % 64`` on (no shift reaches 64)."""
    skip = skip & 63
    return (a << skip) | ((b >> 1) >> (skip ^ 63))


def reduce_double(y: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the remainder of float64 y >= 0.78 in two parts, and the quadrant as uint64.

    The significand, cut into 24 and 30 bits, is multiplied by the 120 bits of ``2 / pi`` that count
    modulo 4 and by 60 more, in limbs of 30 bits, whose products leave room for the carries. No
    float64 is closer to a multiple of ``pi / 2`` than 2**-62; 118 bits are computed.
    """
    pattern = bitcast(y, dt.uint64)
    m, skip = _significand(pattern)
    words = _words_double(skip)
    a, b, c = (_funnel(words[i], words[i + 1], skip) for i in range(3))
    mask = (1 << 30) - 1
    limbs = (
        a >> 34, (a >> 4) & mask, ((a << 26) | (b >> 38)) & mask, (b >> 8) & mask,
        ((b << 22) | (c >> 42)) & mask, (c >> 12) & mask,
    )  # fmt: skip
    high, low = m >> 30, m & mask
    columns = [low * limbs[i] + high * limbs[i + 1] for i in range(5)]
    for i in (3, 2, 1, 0):
        columns[i] = columns[i] + (columns[i + 1] >> 30)
    top = ((columns[0] & mask) << 34) | ((columns[1] & mask) << 4)
    bottom = ((columns[2] & mask) << 30) | (columns[3] & mask)
    return *_to_angle(top << 2, bottom), (top + (1 << 61)) >> 62


def _words_double(skip: Expr) -> list[Expr]:
    """Return the four words of ``2 / pi`` that hold bit `skip` (below 1024) and those after it."""
    words = [lift(word, skip) for word in _WORDS_DOUBLE]
    for size in (8, 4, 2, 1):
        reached = (skip & (64 * size)).ne(0)
        words = [where(reached, words[i + size], words[i]) for i in range(3 + size)]
    return words


def _to_angle(turn: Expr, below: Expr) -> tuple[Expr, Expr]:
    """Return ``(turn + below * 2**-58) * 2**-64 * pi / 2`` in two floats, turn taken as signed.

    `turn` has 58 bits at the top of the word, `below` the 60 that follow.
    """
    upper = cast(bitcast(turn & 0xFFFFFFFF00000000, dt.int64), dt.float64)
    lower = cast(turn & 0xFFFFFFFF, dt.float64)
    total = upper + lower
    rest = (lower - (total - upper)) + cast(below, dt.float64) * 2.0**-54
    high = total + rest
    low = rest - (high - total)
    scale = 2.0**-64
    angle = high * (HALF_PI * scale)
    error = mad(high, HALF_PI * scale, -angle)
    return angle, mad(low, HALF_PI * scale, mad(high, _HALF_PI_LOW * scale, error))
