"""Functions of `cmath` as Python text that kernels call, in float64.

They take and return the parts of complex numbers. Infinities, nan, signed zeros, and numbers whose
squares overflow or vanish, give what C99 (annex G) and Python give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

__all__ = ["FUNCTIONS", "Parts"]

Parts = tuple[float, float]

_LARGE: Final = 1e150  # squares of more overflow
_SMALL: Final = 1e-150  # squares of less vanish
_UP: Final = 2.0**600
_LN_UP: Final = 600.0 * math.log(2.0)
_LN2: Final = math.log(2.0)
_HALF_PI: Final = math.pi / 2.0


def exp(a: float, b: float) -> Parts:
    """Return the exponential."""
    x, y = float(a), float(b)
    if y == 0.0:
        found = math.exp(x), y
    elif math.isinf(x) and not math.isfinite(y):
        found = (math.inf, math.nan) if x > 0.0 else (0.0, 0.0)
    else:
        size = math.exp(x)
        found = size * math.cos(y), size * math.sin(y)
    return found


def _log_of_size(x: float, y: float) -> float:
    """Return ``log(hypot(x, y))``."""
    large, small = max(abs(x), abs(y)), min(abs(x), abs(y))
    if math.isinf(x) or math.isinf(y):
        real = math.inf
    elif large > _LARGE:
        real = math.log(math.hypot(x / _UP, y / _UP)) + _LN_UP
    elif large < _SMALL:
        real = math.log(math.hypot(x * _UP, y * _UP) * _UP) - 2.0 * _LN_UP
    else:
        size = math.hypot(x, y)
        real = math.log(size)
        if 0.5 < size < 2.0:  # near 1, where the logarithm of the rounded size is nearly all error
            real = 0.5 * math.log1p((large - 1.0) * (large + 1.0) + small * small)
    return real


def log(a: float, b: float) -> Parts:
    """Return the natural logarithm."""
    x, y = float(a), float(b)
    return _log_of_size(x, y), math.atan2(y, x)


def log10(a: float, b: float) -> Parts:
    """Return the logarithm to base 10."""
    real, imag = log(a, b)
    return real / 2.302585092994046, imag / 2.302585092994046


def sqrt(a: float, b: float) -> Parts:
    """Return the square root whose real part is not negative."""
    x, y = float(a), float(b)
    large = max(abs(x), abs(y))
    scale, back = 1.0, 1.0
    if large > _LARGE:
        scale, back = 1.0 / _UP, 2.0**300
    elif large < _SMALL:
        scale, back = _UP, 2.0**-300
    p, q = x * scale, y * scale
    half = math.sqrt(0.5 * (math.hypot(p, q) + abs(p)))
    real, imag = 0.0, y
    if math.isinf(y):
        real, imag = math.inf, y
    elif math.isinf(x):
        if x > 0.0:
            real, imag = x, math.nan if math.isnan(y) else math.copysign(0.0, y)
        else:
            real = math.nan if math.isnan(y) else 0.0
            imag = math.inf if math.isnan(y) else math.copysign(math.inf, y)
    elif half != 0.0:
        if p >= 0.0:
            real, imag = half * back, q / (2.0 * half) * back
        else:
            real, imag = abs(q) / (2.0 * half) * back, math.copysign(half, q) * back
    return real, imag


def sinh(a: float, b: float) -> Parts:
    """Return the hyperbolic sine."""
    x, y = float(a), float(b)
    if y == 0.0:
        found = math.sinh(x), y
    elif x == 0.0:
        found = x * math.cos(y) if math.isfinite(y) else 0.0, math.sin(y)
    elif math.isinf(x) and not math.isfinite(y):
        found = math.inf, math.nan
    else:
        found = math.sinh(x) * math.cos(y), math.cosh(x) * math.sin(y)
    return found


def cosh(a: float, b: float) -> Parts:
    """Return the hyperbolic cosine."""
    x, y = float(a), float(b)
    if y == 0.0:
        found = math.cosh(x), 0.0 if math.isnan(x) else math.copysign(1.0, x) * y
    elif x == 0.0:
        found = math.cos(y), x * math.sin(y) if math.isfinite(y) else 0.0
    elif math.isinf(x) and not math.isfinite(y):
        found = math.inf, math.nan
    else:
        found = math.cosh(x) * math.cos(y), math.sinh(x) * math.sin(y)
    return found


def tanh(a: float, b: float) -> Parts:
    """Return the hyperbolic tangent."""
    x, y = float(a), float(b)
    if math.isinf(x):
        turn = math.sin(y) * math.cos(y) if math.isfinite(y) else 0.0
        found = math.copysign(1.0, x), math.copysign(0.0, turn)
    elif abs(x) > 20.0 and math.isfinite(y):  # the tangent is 1 to the last bit
        imag = 4.0 * math.sin(y) * math.cos(y) * math.exp(-2.0 * abs(x))
        found = math.copysign(1.0, x), imag
    elif y == 0.0:
        found = math.tanh(x), y
    elif x == 0.0 and math.isfinite(y):
        found = x, math.tan(y)
    else:
        t, u, less = math.tan(y), math.tanh(x), 1.0 / math.cosh(x)
        scale = 1.0 + (t * u) * (t * u)
        found = u * (1.0 + t * t) / scale, t / scale * less * less  # 1 - u * u has no bits left
    return found


def sin(a: float, b: float) -> Parts:
    """Return the sine."""
    real, imag = sinh(-b, a)
    return imag, -real


def cos(a: float, b: float) -> Parts:
    """Return the cosine."""
    return cosh(-b, a)


def tan(a: float, b: float) -> Parts:
    """Return the tangent."""
    real, imag = tanh(-b, a)
    return imag, -real


def _is_far(x: float, y: float) -> bool:
    """Whether the inverse functions have their form for large numbers."""
    return not (abs(x) < _LARGE and abs(y) < _LARGE)


def asinh(a: float, b: float) -> Parts:
    """Return the inverse hyperbolic sine."""
    x, y = float(a), float(b)
    if _is_far(x, y):
        size = _log_of_size(x, y) + _LN2
        size = size if math.isnan(x) else math.copysign(size, x)
        found = size, y if y == 0.0 else math.atan2(y, abs(x))
    else:
        p, q = sqrt(1.0 + y, -x)
        r, s = sqrt(1.0 - y, x)
        found = math.asinh(p * s - r * q), math.atan2(y, p * r - q * s)
    return found


def acosh(a: float, b: float) -> Parts:
    """Return the inverse hyperbolic cosine."""
    x, y = float(a), float(b)
    if _is_far(x, y):
        found = _log_of_size(x, y) + _LN2, math.atan2(y, x)
    else:
        p, q = sqrt(x - 1.0, y)
        r, s = sqrt(x + 1.0, y)
        found = math.asinh(p * r + q * s), 2.0 * math.atan2(q, r)
    return found


def atanh(a: float, b: float) -> Parts:
    """Return the inverse hyperbolic tangent."""
    x, y = float(a), float(b)
    if math.isinf(x) or math.isinf(y):
        found = math.copysign(0.0, x), math.nan if math.isnan(y) else math.copysign(_HALF_PI, y)
    elif _is_far(x, y) and not math.isnan(x + y):
        size = math.hypot(x / 2.0, y / 2.0)
        found = x / 4.0 / size / size, math.copysign(_HALF_PI, y)
    elif abs(x) == 1.0 and abs(y) < _SMALL:
        real = math.inf
        if y != 0.0:
            real = -math.log(math.sqrt(abs(y)) / math.sqrt(math.hypot(abs(y), 2.0)))
        angle = math.copysign(math.atan2(2.0, -abs(y)) / 2.0, y)
        found = math.copysign(real, x), y if y == 0.0 else angle
    else:
        far = (1.0 - abs(x)) * (1.0 - abs(x)) + y * y
        real = x if x == 0.0 else math.copysign(0.25 * math.log1p(4.0 * abs(x) / far), x)
        found = real, 0.5 * math.atan2(2.0 * y, (1.0 - x) * (1.0 + x) - y * y)
    return found


def asin(a: float, b: float) -> Parts:
    """Return the inverse sine."""
    real, imag = asinh(-b, a)
    return imag, -real


def acos(a: float, b: float) -> Parts:
    """Return the inverse cosine."""
    x, y = float(a), float(b)
    if _is_far(x, y):
        angle = _HALF_PI if x == 0.0 and math.isnan(y) else math.atan2(abs(y), x)
        size = _log_of_size(x, y) + _LN2
        found = angle, size if math.isnan(y) else math.copysign(size, -y)
    else:
        p, q = sqrt(1.0 - x, -y)
        r, s = sqrt(1.0 + x, y)
        found = 2.0 * math.atan2(p, r), math.asinh(r * q - s * p)
    return found


def atan(a: float, b: float) -> Parts:
    """Return the inverse tangent."""
    real, imag = atanh(-b, a)
    return imag, -real


FUNCTIONS: Final[dict[str, Callable[..., Parts]]] = {
    f.__name__: f for f in (exp, log, log10, sqrt, sin, cos, tan, asin, acos, atan, sinh, cosh,
                            tanh, asinh, acosh, atanh)
}  # fmt: skip
