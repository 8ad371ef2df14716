"""Bessel functions and inverses of distributions, in float64, as ``libdevice`` has them.

Bessel functions of small numbers come from Miller's recurrence: from an order far above, where the
function is next to nothing, down to 0, in units that a sum of all even orders tells. The functions
of the second kind are sums over the same numbers (Neumann's series). From 25 on, two terms of
Hankel's expansion differ by less than a rounding.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["bessel_j", "bessel_j0", "bessel_j1", "bessel_y", "bessel_y0", "bessel_y1", "erfcinv",
           "normcdfinv"]  # fmt: skip

_EULER = 0.5772156649015329
_TWO_OVER_PI = 0.6366197723675814
_FAR = 25.0
_TINY = 1e-4


def _far(n: Any, x: Any) -> Any:
    """Return J and Y of order 0 or 1 of a large number."""
    square = 4.0 * n * n
    term = p = 1.0
    q = 0.0
    for k in range(1, 40):
        odd = 2.0 * k - 1.0
        following = term * (square - odd * odd) / (k * 8.0 * x)
        if math.fabs(following) > math.fabs(term):
            break
        term = following
        sign = -1.0 if k & 2 else 1.0
        if k & 1:
            q += sign * term
        else:
            p += sign * term
    size = math.sqrt(0.3183098861837907 / x)
    s, c = math.sin(x), math.cos(x)
    if n == 0:
        one, two = c + s, s - c
    else:
        one, two = s - c, -(s + c)
    return size * (p * one - q * two), size * (p * two + q * one)


def _near(n: Any, x: Any) -> Any:
    """Return J of an order, and Y of orders 0 and 1, of a number from 0.0001 to 25."""
    top = 2 * ((max(n, int(x)) + 60) // 2)
    high, here, total = 0.0, 1e-250, 0.0
    found = zero = one = even = odd = 0.0
    for k in range(top, 0, -1):
        if k == n:  # which `here` is
            found = here
        if k & 1:
            half = (k - 1) // 2  # the order is 1 + 2 * half
            if half > 0:
                odd += (-1.0 if half & 1 else 1.0) * k / (half * (half + 1.0)) * here
            one = here
        else:
            total += 2.0 * here
            even += (1.0 if k & 2 else -1.0) / (k // 2) * here
        below = 2.0 * k / x * here - high
        high, here = here, below
        if math.fabs(here) > 1e200:
            high, here, total = high * 1e-200, here * 1e-200, total * 1e-200
            found, one, even, odd = found * 1e-200, one * 1e-200, even * 1e-200, odd * 1e-200
    zero = here
    if n == 0:
        found = here
    scale = 1.0 / (total + here)
    zero, one = zero * scale, one * scale
    log = math.log(0.5 * x) + _EULER
    y0 = _TWO_OVER_PI * (log * zero + 2.0 * even * scale)
    y1 = _TWO_OVER_PI * ((log - 1.0) * one - zero / x - odd * scale)
    return found * scale, y0, y1


def bessel_j(n: Any, x: Any) -> Any:
    """Return the Bessel function of the first kind of an order that is not negative."""
    size = math.fabs(x)
    found = x - x  # NaN stays NaN
    if size < _TINY:
        half = 0.5 * size
        found = 1.0
        for k in range(1, n + 1):
            found *= half / k
        found *= 1.0 - half * half / (n + 1.0)
    elif size < _FAR or n > size:
        if size < math.inf:
            found = _near(n, size)[0]
    elif size < math.inf:
        below, found = _far(0, size)[0], _far(1, size)[0]
        if n == 0:
            found = below
        for k in range(1, n):
            below, found = found, 2.0 * k / size * found - below
    else:
        found = 0.0 if size == math.inf else size
    return -found if x < 0.0 and n & 1 else found


def bessel_y(n: Any, x: Any) -> Any:
    """Return the Bessel function of the second kind of an order that is not negative."""
    found = math.nan
    if x == 0.0:
        found = -math.inf
    elif x == math.inf:
        found = 0.0
    elif x > 0.0:
        if x < _FAR:
            below = 0.0
            if x < _TINY:
                log = math.log(0.5 * x) + _EULER
                below = _TWO_OVER_PI * (log + 0.25 * x * x * (1.0 - log))
                found = _TWO_OVER_PI * (0.5 * x * (log - 0.5) - 1.0 / x)
            else:
                _, below, found = _near(0, x)
        else:
            below, found = _far(0, x)[1], _far(1, x)[1]
        if n == 0:
            found = below
        for k in range(1, n):
            below, found = found, 2.0 * k / x * found - below
            if found == -math.inf:
                break
    return found


def bessel_j0(x: Any) -> Any:
    """Return J of order 0."""
    return bessel_j(0, x)


def bessel_j1(x: Any) -> Any:
    """Return J of order 1."""
    return bessel_j(1, x)


def bessel_y0(x: Any) -> Any:
    """Return Y of order 0."""
    return bessel_y(0, x)


def bessel_y1(x: Any) -> Any:
    """Return Y of order 1."""
    return bessel_y(1, x)


def erfcinv(x: Any) -> Any:
    """Return the number whose complementary error function is `x`: an estimate, Halley's steps."""
    y = x if x < 1.0 else 2.0 - x
    found = math.nan
    if x == 0.0 or x == 2.0:
        found = math.inf
    elif 0.0 < y <= 1.0:
        t = math.sqrt(1.3862943611198906 - 2.0 * math.log(y))
        found = 0.7071067811865476 * (t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
            1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))))
        for _ in range(3):
            error = math.erfc(found) - y
            if math.fabs(found) < 0.5:
                error = (1.0 - y) - math.erf(found)  # which keeps what is next to 1 of `y`
            step = error / (1.1283791670955126 * math.exp(-found * found))
            found += step / (1.0 + found * step)
    return -found if x > 1.0 else found


def normcdfinv(x: Any) -> Any:
    """Return the number that a normally distributed one is below with probability `x`."""
    return -1.4142135623730951 * erfcinv(2.0 * x)
