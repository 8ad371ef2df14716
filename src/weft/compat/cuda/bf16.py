"""``cuda.bf16``: arithmetic of 16-bit floats with eight bits of exponent, for kernels.

Most functions are those of `fp16` on another type: the same text, in which another name stands for
the type.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np

from weft.compat.cuda import fp16
from weft.compat.cuda.bf16_conversions import FUNCTIONS
from weft.compat.numba_types import bfloat16
from weft.lang.launch.device_function import DeviceFunction, func

__all__ = [
    *FUNCTIONS, "bfloat16", "habs", "hadd", "hadd_rn", "hadd_sat", "hceil", "hcos", "hdiv", "heq",
    "hequ", "hexp", "hexp2", "hexp10", "hfloor", "hfma", "hfma_relu", "hfma_sat", "hge", "hgeu",
    "hgt", "hgtu", "hisinf", "hisnan", "hle", "hleu", "hlog", "hlog2", "hlog10", "hlt", "hltu",
    "hmax", "hmax_nan", "hmin", "hmin_nan", "hmul", "hmul_rn", "hmul_sat", "hne", "hneg", "hneu",
    "hrcp", "hrint", "hrsqrt", "hsin", "hsqrt", "hsub", "hsub_rn", "hsub_sat", "htanh",
    "htanh_approx", "htrunc",
]  # fmt: skip


_single = np.float32


def _on_bfloat16(function: DeviceFunction) -> DeviceFunction:
    """Return a function of `fp16` on the other type."""
    text = function.__weft_function__
    made = FunctionType(text.__code__, {**text.__globals__, "_half": bfloat16}, text.__name__)
    made.__doc__, made.__module__ = text.__doc__, __name__
    return func(made)


habs, hadd, hceil, hcos, hdiv, heq, hexp, hexp2, hexp10, hfloor = map(_on_bfloat16, (
    fp16.habs, fp16.hadd, fp16.hceil, fp16.hcos, fp16.hdiv, fp16.heq, fp16.hexp, fp16.hexp2,
    fp16.hexp10, fp16.hfloor))  # fmt: skip
hfma, hge, hgt, hle, hlog, hlog2, hlog10, hlt, hmax, hmin = map(_on_bfloat16, (
    fp16.hfma, fp16.hge, fp16.hgt, fp16.hle, fp16.hlog, fp16.hlog2, fp16.hlog10, fp16.hlt,
    fp16.hmax, fp16.hmin))  # fmt: skip
hmul, hne, hneg, hrcp, hrint, hrsqrt, hsin, hsqrt, hsub, htrunc = map(_on_bfloat16, (
    fp16.hmul, fp16.hne, fp16.hneg, fp16.hrcp, fp16.hrint, fp16.hrsqrt, fp16.hsin, fp16.hsqrt,
    fp16.hsub, fp16.htrunc))  # fmt: skip
htanh = htanh_approx = _on_bfloat16(fp16.htanh)
hadd_rn, hsub_rn, hmul_rn = hadd, hsub, hmul  # nothing is contracted there, either


@func
def _saturated(a: Any) -> Any:
    """Return a number between 0 and 1, 0 for nan."""
    return bfloat16(np.fmin(np.fmax(_single(a), _single(0)), _single(1)))


@func
def hadd_sat(a: Any, b: Any) -> Any:
    """Return ``a + b``, at least 0 and at most 1."""
    return _saturated(hadd(a, b))


@func
def hsub_sat(a: Any, b: Any) -> Any:
    """Return ``a - b``, at least 0 and at most 1."""
    return _saturated(hsub(a, b))


@func
def hmul_sat(a: Any, b: Any) -> Any:
    """Return ``a * b``, at least 0 and at most 1."""
    return _saturated(hmul(a, b))


@func
def hfma_sat(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once, at least 0 and at most 1."""
    return _saturated(hfma(a, b, c))


@func
def hfma_relu(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once, at least 0."""
    return bfloat16(np.maximum(_single(hfma(a, b, c)), _single(0)))


@func
def hmax_nan(a: Any, b: Any) -> Any:
    """Return the larger number, nan if one of them is."""
    return bfloat16(np.maximum(_single(bfloat16(a)), _single(bfloat16(b))))


@func
def hmin_nan(a: Any, b: Any) -> Any:
    """Return the smaller number, nan if one of them is."""
    return bfloat16(np.minimum(_single(bfloat16(a)), _single(bfloat16(b))))


@func
def hisnan(a: Any) -> Any:
    """Return whether it is nan."""
    return math.isnan(_single(bfloat16(a)))


@func
def hisinf(a: Any) -> Any:
    """Return 1 for infinity, -1 for minus infinity, else 0."""
    x = _single(bfloat16(a))
    return np.int32((x == math.inf) - np.int32(x == -math.inf))


@func
def hequ(a: Any, b: Any) -> Any:
    """Return whether they are equal, or one is nan."""
    return not (hlt(a, b) or hgt(a, b))


@func
def hneu(a: Any, b: Any) -> Any:
    """Return whether they differ, or one is nan."""
    return not heq(a, b)


@func
def hltu(a: Any, b: Any) -> Any:
    """Return whether ``a < b``, or one is nan."""
    return not hge(a, b)


@func
def hleu(a: Any, b: Any) -> Any:
    """Return whether ``a <= b``, or one is nan."""
    return not hgt(a, b)


@func
def hgtu(a: Any, b: Any) -> Any:
    """Return whether ``a > b``, or one is nan."""
    return not hle(a, b)


@func
def hgeu(a: Any, b: Any) -> Any:
    """Return whether ``a >= b``, or one is nan."""
    return not hlt(a, b)


globals().update(FUNCTIONS)
