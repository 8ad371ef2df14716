"""``cuda.fp16``: arithmetic of 16-bit floats by name, for kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.lang.launch.device_function import func

__all__ = [
    "habs", "hadd", "hceil", "hcos", "hdiv", "heq", "hexp", "hexp2", "hexp10", "hfloor", "hfma",
    "hge", "hgt", "hle", "hlog", "hlog2", "hlog10", "hlt", "hmax", "hmin", "hmul", "hne", "hneg",
    "hrcp", "hrint", "hrsqrt", "hsin", "hsqrt", "hsub", "htanh", "htanh_approx", "htrunc",
]  # fmt: skip

_half = np.float16
_single = np.float32


@func
def hadd(a: Any, b: Any) -> Any:
    """Return ``a + b``."""
    return _half(a) + _half(b)


@func
def hsub(a: Any, b: Any) -> Any:
    """Return ``a - b``."""
    return _half(a) - _half(b)


@func
def hmul(a: Any, b: Any) -> Any:
    """Return ``a * b``."""
    return _half(a) * _half(b)


@func
def hdiv(a: Any, b: Any) -> Any:
    """Return ``a / b``."""
    return _half(a) / _half(b)


@func
def hfma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once."""
    return _half(np.float64(_half(a)) * np.float64(_half(b)) + np.float64(_half(c)))


@func
def hneg(a: Any) -> Any:
    """Return ``-a``."""
    return -_half(a)


@func
def habs(a: Any) -> Any:
    """Return ``abs(a)``."""
    return abs(_half(a))


@func
def hmax(a: Any, b: Any) -> Any:
    """Return the larger number."""
    return np.fmax(_half(a), _half(b))


@func
def hmin(a: Any, b: Any) -> Any:
    """Return the smaller number."""
    return np.fmin(_half(a), _half(b))


@func
def heq(a: Any, b: Any) -> Any:
    """Return ``a == b``."""
    return _half(a) == _half(b)


@func
def hne(a: Any, b: Any) -> Any:
    """Return ``a != b``."""
    return _half(a) != _half(b)


@func
def hlt(a: Any, b: Any) -> Any:
    """Return ``a < b``."""
    return _half(a) < _half(b)


@func
def hle(a: Any, b: Any) -> Any:
    """Return ``a <= b``."""
    return _half(a) <= _half(b)


@func
def hgt(a: Any, b: Any) -> Any:
    """Return ``a > b``."""
    return _half(a) > _half(b)


@func
def hge(a: Any, b: Any) -> Any:
    """Return ``a >= b``."""
    return _half(a) >= _half(b)


@func
def hsin(a: Any) -> Any:
    """Return the sine."""
    return _half(math.sin(_single(a)))


@func
def hcos(a: Any) -> Any:
    """Return the cosine."""
    return _half(math.cos(_single(a)))


@func
def hlog(a: Any) -> Any:
    """Return the natural logarithm."""
    return _half(math.log(_single(a)))


@func
def hlog2(a: Any) -> Any:
    """Return the logarithm to base 2."""
    return _half(math.log2(_single(a)))


@func
def hlog10(a: Any) -> Any:
    """Return the logarithm to base 10."""
    return _half(math.log10(_single(a)))


@func
def hexp(a: Any) -> Any:
    """Return the exponential."""
    return _half(math.exp(_single(a)))


@func
def hexp2(a: Any) -> Any:
    """Return two to a power."""
    return _half(np.exp2(_single(a)))


@func
def hexp10(a: Any) -> Any:
    """Return ten to a power."""
    return _half(math.pow(_single(10), _single(a)))


@func
def htanh(a: Any) -> Any:
    """Return the hyperbolic tangent."""
    return _half(math.tanh(_single(a)))


htanh_approx = htanh


@func
def hsqrt(a: Any) -> Any:
    """Return the square root."""
    return _half(math.sqrt(_single(a)))


@func
def hrsqrt(a: Any) -> Any:
    """Return one over the square root."""
    return _half(_single(1) / math.sqrt(_single(a)))


@func
def hrcp(a: Any) -> Any:
    """Return ``1 / a``."""
    return _half(_single(1) / _single(a))


@func
def hfloor(a: Any) -> Any:
    """Return the next whole number below."""
    return _half(np.floor(_single(a)))


@func
def hceil(a: Any) -> Any:
    """Return the next whole number above."""
    return _half(np.ceil(_single(a)))


@func
def hrint(a: Any) -> Any:
    """Return the nearest whole number, the even one of two."""
    return _half(np.rint(_single(a)))


@func
def htrunc(a: Any) -> Any:
    """Return the number without what stands behind the point."""
    return _half(np.trunc(_single(a)))
