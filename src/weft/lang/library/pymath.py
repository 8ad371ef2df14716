"""Functions of `math` as Python that is read in place of their calls in kernels.

Those of floats compute in float64 unless their arguments are narrower. Those of integers compute in
int64, and give what kernels, which know no exceptions, have in place of Python's long integers and
errors.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

__all__ = ["comb", "gamma", "gcd", "heaviside", "isclose", "isqrt", "lcm", "lgamma", "logaddexp",
           "perm", "remainder", "rounded"]  # fmt: skip

_TENS: Final[Any] = np.array([float(f"1e{k}") for k in range(309)])
_LARGEST: Final = (1 << 63) - 1
_LARGEST_ROOT: Final = math.isqrt(_LARGEST)

# The sum of Lanczos with g = 6.0246..., as a fraction of two polynomials: highest power first.
_G: Final = 6.024680040776729583740234375
_OVER: Final = (
    2.506628274631000270164908177133837338626, 210.8242777515793458725097339207133627117,
    8071.672002365816210638002902272250613822, 186056.2653952234950402949897160456992822,
    2876370.628935372441225409051620849613599, 31426415.58540019438061423162831820536287,
    248874557.8620541565114603864132294232163, 1439720407.311721673663223072794912393972,
    6039542586.352028005064291644307297921070, 17921034426.03720969991975575445893111267,
    35711959237.35566804944018545154716670596, 42919803642.64909876895789904700198885093,
    23531376880.41075968857200767445163675473,
)  # fmt: skip
_UNDER: Final = (
    1.0, 66.0, 1925.0, 32670.0, 357423.0, 2637558.0, 13339535.0, 45995730.0, 105258076.0,
    150917976.0, 120543840.0, 39916800.0, 0.0,
)  # fmt: skip


def lanczos(x: float) -> float:
    """Return the sum of Lanczos for a positive number."""
    over, under = 0.0, 0.0
    if x < 5.0:
        for k in range(13):
            over = over * x + _OVER[k]
            under = under * x + _UNDER[k]
    else:  # in powers of 1 / x, which do not overflow
        for k in range(13):
            over = over / x + _OVER[12 - k]
            under = under / x + _UNDER[12 - k]
    return over / under


def rounded(x: float, digits: int) -> float:
    """Return ``round(x, digits)``: the nearest multiple of a power of ten."""
    if digits < -308:
        return x * 0.0 if abs(x) < math.inf else x
    places = min(abs(digits), 330)  # beyond that every float is a multiple
    scale, rest = _TENS[min(places, 22)], _TENS[max(places - 22, 0)]
    if digits >= 0:
        found = round(x * rest * scale, 0) / scale / rest
    else:
        found = round(x / (scale * rest), 0) * (scale * rest)
    return found if abs(found) < math.inf else x


def sine_of_pi(x: float) -> float:
    """Return ``sin(pi * x)`` of a number that is not negative."""
    y = math.fmod(x, 2.0)
    half = round(2.0 * y)
    found = math.sin(math.pi * (y - 2.0))
    if half == 0:
        found = math.sin(math.pi * y)
    elif half == 1:
        found = math.cos(math.pi * (y - 0.5))
    elif half == 2:
        found = math.sin(math.pi * (1.0 - y))
    elif half == 3:
        found = -math.cos(math.pi * (y - 1.5))
    return found


def gamma(given: float) -> float:
    """Return the gamma function; NaN at the negative integers, where Python raises."""
    x = float(given)
    found = x
    size = abs(x)
    if x == 0.0:
        found = math.copysign(math.inf, x)
    elif x == -math.inf or (x < 0.0 and x == math.trunc(x)):
        found = math.nan
    elif size < 1e-20:
        found = 1.0 / x
    elif size > 200.0:
        found = 0.0 / sine_of_pi(size) if x < 0.0 else x * math.inf
    elif size <= 200.0:
        y = size + _G - 0.5
        z = 0.0  # the error of y
        if size > _G - 0.5:
            z = ((y - size) - (_G - 0.5)) * _G / y
        else:
            z = ((y - (_G - 0.5)) - size) * _G / y
        power = math.pow(y, size * 0.5 - 0.25)  # in two parts, which do not overflow
        if x < 0.0:
            found = -math.pi / sine_of_pi(size) / size * math.exp(y) / lanczos(size)
            found = (found - z * found) / power / power
        else:
            found = lanczos(size) / math.exp(y)
            found = (found + z * found) * power * power
    return found


def lgamma(given: float) -> float:
    """Return the logarithm of the size of the gamma function."""
    x = float(given)
    found = abs(x)
    size = abs(x)
    if x == math.trunc(x) and x <= 2.0:
        found = math.inf if x <= 0.0 else 0.0
    elif size < 1e-20:
        found = -math.log(size)
    elif size < math.inf:
        found = math.log(lanczos(size)) - _G + (size - 0.5) * (math.log(size + _G - 0.5) - 1.0)
        if x < 0.0:
            found = math.log(math.pi) - math.log(abs(sine_of_pi(size))) - math.log(size) - found
    return found


def remainder(x: float, y: float) -> float:
    """Return ``x - n * y`` with the nearest integer `n`, the even one of two."""
    size, step = abs(x), abs(y)
    rest = math.fmod(size, step)
    other = step - rest
    if rest > other:
        rest = -other
    elif rest == other:
        rest = rest - 2.0 * math.fmod(0.5 * (size - rest), step)
    found = rest if math.copysign(1.0, x) > 0.0 else -rest
    if math.isinf(y) and not math.isinf(x):
        found = x
    return found


def logaddexp(x: float, y: float) -> float:
    """Return ``log(exp(x) + exp(y))`` of numbers whose exponential may be too large."""
    large, small = max(x, y), min(x, y)
    found = large
    if small != large:
        found = large + math.log1p(math.exp(small - large))
    else:
        found = large + 0.6931471805599453
    return found


def heaviside(x: float, y: float) -> float:
    """Return 0, `y` or 1 for a negative number, 0 or a positive one."""
    found = x
    if x == 0:
        found = y
    elif x < 0:
        found = 0.0
    elif x > 0:
        found = 1.0
    return found


def isclose(a: float, b: float, *, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> bool:
    """Return whether two numbers differ by little beside the larger, or by little at all."""
    gap = abs(a - b)
    near = gap <= rel_tol * max(abs(a), abs(b)) or gap <= abs_tol
    return a == b or (near and not math.isinf(a) and not math.isinf(b))


def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor."""
    x, y = a, b
    while y:
        x, y = y, x % y
    return abs(x)


def lcm(a: int, b: int) -> int:
    """Return the least common multiple."""
    found = a
    if a != 0:
        found = abs(a // gcd(a, b) * b)
    return found


def isqrt(n: int) -> int:
    """Return the square root without its fraction; 0 of a negative number."""
    root = 0
    if n > 0:
        root = min(int(math.sqrt(n)), _LARGEST_ROOT)  # rounded from n and again from its root
        if root * root > n:
            root -= 1
    return root


def perm(n: int, k: int) -> int:
    """Return ``n! / (n - k)!``, at most the largest integer of 64 bits."""
    found = 1
    if n < 0 or k < 0 or k > n:
        found = 0
    else:
        factor = n - k
        while factor < n:
            factor += 1
            if found > _LARGEST // factor:
                found = _LARGEST
                factor = n
            else:
                found *= factor
    return found


def comb(n: int, k: int) -> int:
    """Return ``n! / (k! * (n - k)!)``, at most the largest integer of 64 bits."""
    found = 1
    if n < 0 or k < 0 or k > n:
        found = 0
    else:
        last = min(k, n - k)
        step = 0
        while step < last:
            step += 1
            # What `step` divides is a product that may be too large, so divide its factors.
            shared = gcd(found, step)
            factor = (n - last + step) // (step // shared)
            found = found // shared
            if found > _LARGEST // factor:
                found = _LARGEST
                step = last
            else:
                found *= factor
    return found
