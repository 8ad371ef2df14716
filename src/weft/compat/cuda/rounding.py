"""Arithmetic of ``libdevice`` that rounds down, up or towards zero, and that is never fused.

Each function computes a result that is rounded to the nearest, and the sign of what that left over,
exactly; where the result lies on the wrong side, its neighbour is the answer. Numbers of 32 bits
are computed in 64, which holds their products, and what their sums leave over, without error. A
sum is written ``fma(x, 1, y)`` and a product ``fma(x, y, -0.0)``: the same numbers, but no product
that stands next to them becomes a part of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft.compat.cuda.bits import (
    double_as_longlong,
    float_as_int,
    int_as_float,
    longlong_as_double,
)
from weft.lang.device import gpu as _operations
from weft.lang.launch.device_function import DeviceFunction, func

__all__ = ["FUNCTIONS", "minus", "plus", "times"]

gpu: Any = _operations
double: Any = np.float64
single: Any = np.float32
_ONE: Final[Any] = np.float32(1)  # beside a float32 they leave it one
_MINUS_ONE: Final[Any] = np.float32(-1)
_NOTHING: Final[Any] = np.float32(-0.0)
_MODES: Final = {"rd": -1, "rz": 0, "ru": 1}


def plus(x: Any, y: Any) -> Any:
    """Return ``x + y``."""
    return gpu.fma(x, _ONE, y)


def minus(x: Any, y: Any) -> Any:
    """Return ``x - y``."""
    return gpu.fma(y, _MINUS_ONE, x)


def times(x: Any, y: Any) -> Any:
    """Return ``x * y``."""
    return gpu.fma(x, y, _NOTHING)


def above(x: Any) -> Any:
    """Return the next larger float64."""
    found = 5e-324
    if x != 0.0:
        found = longlong_as_double(double_as_longlong(x) + (1 if x > 0.0 else -1))
    return found


def above_single(x: Any) -> Any:
    """Return the next larger float32."""
    found = single(1.401298464324817e-45)
    if x != 0.0:
        found = int_as_float(float_as_int(x) + (1 if x > 0.0 else -1))
    return found


@func
def nextafter(x: Any, y: Any) -> Any:
    """Return the float64 next to `x` on the way to `y`."""
    x, y = double(x), double(y)
    found = y if x == y else x + y  # NaN, if one of them is
    if x < y:
        found = above(x)
    elif x > y:
        found = -above(-x)
    return found


@func
def nextafterf(x: Any, y: Any) -> Any:
    """Return the float32 next to `x` on the way to `y`."""
    x, y = single(x), single(y)
    found = y if x == y else x + y
    if x < y:
        found = above_single(x)
    elif x > y:
        found = -above_single(-x)
    return found


def turned(x: Any, rest: Any, mode: int) -> Any:
    """Return a float64 that is rounded to the nearest as `mode` rounds; `rest` is left over."""
    found = x
    if rest > 0.0 and (mode > 0 or (mode == 0 and x < 0.0)):
        found = above(x)
    elif rest < 0.0 and (mode < 0 or (mode == 0 and x > 0.0)):
        found = -above(-x)
    return found


def narrowed(x: Any, rest: Any, mode: int) -> Any:
    """Return the float32 of a float64 and of what it left over."""
    near = single(x)
    left = rest if double(near) == x else x - double(near)
    found = near
    if left > 0.0 and (mode > 0 or (mode == 0 and near < 0.0)):
        found = above_single(near)
    elif left < 0.0 and (mode < 0 or (mode == 0 and near > 0.0)):
        found = -above_single(-near)
    return found


def left_of_sum(x: Any, y: Any, total: Any) -> Any:
    """Return what the nearest float64 leaves over of ``x + y``."""
    found = -total  # beyond all numbers
    if math.fabs(total) < math.inf:
        other = total - x
        found = (x - (total - other)) + (y - other)
    elif math.fabs(x) == math.inf or math.fabs(y) == math.inf:
        found = 0.0
    return found


def zero_of_sum(x: Any, y: Any, total: Any, mode: int) -> Any:
    """Return a sum: one that cancels is -0.0 if it is rounded down."""
    found = total
    if mode < 0 and total == 0.0 and (x != 0.0 or np.signbit(x) or np.signbit(y)):
        found = -total if not np.signbit(total) else total
    return found


def sum_of(x: Any, y: Any, mode: int) -> Any:
    """Return ``x + y`` of float64."""
    total = plus(x, y)
    return zero_of_sum(x, y, turned(total, left_of_sum(x, y, total), mode), mode)


def sum_of_singles(x: Any, y: Any, mode: int) -> Any:
    """Return ``x + y`` of float32."""
    a, b = double(x), double(y)
    total = plus(a, b)
    return zero_of_sum(x, y, narrowed(total, left_of_sum(a, b, total), mode), mode)


def difference_of(x: Any, y: Any, mode: int) -> Any:
    """Return ``x - y`` of float64."""
    return sum_of(x, -y, mode)


def difference_of_singles(x: Any, y: Any, mode: int) -> Any:
    """Return ``x - y`` of float32."""
    return sum_of_singles(x, -y, mode)


def ordinary(x: Any) -> Any:
    """Whether a number is neither 0 nor infinite nor NaN."""
    return 0.0 < math.fabs(x) < math.inf


def product_of(x: Any, y: Any, mode: int) -> Any:
    """Return ``x * y`` of float64."""
    near = times(x, y)
    rest = 0.0
    if ordinary(x) and ordinary(y):
        a, m = math.frexp(x)
        b, n = math.frexp(y)
        rest = -near if math.fabs(near) == math.inf else gpu.fma(a, b, -math.ldexp(near, -(m + n)))
    return turned(near, rest, mode)


def product_of_singles(x: Any, y: Any, mode: int) -> Any:
    """Return ``x * y`` of float32."""
    return narrowed(times(double(x), double(y)), 0.0, mode)


def left_of_quotient(x: Any, y: Any, near: Any) -> Any:
    """Return a number of the sign of what the nearest float64 leaves over of ``x / y``."""
    rest = 0.0
    if ordinary(x) and ordinary(y):
        a, m = math.frexp(x)
        b, n = math.frexp(y)
        rest = gpu.fma(-math.ldexp(near, n - m), b, a)
        rest = -near if math.fabs(near) == math.inf else (rest if y > 0.0 else -rest)
    return rest


def quotient_of(x: Any, y: Any, mode: int) -> Any:
    """Return ``x / y`` of float64."""
    near = x / y
    return turned(near, left_of_quotient(x, y, near), mode)


def quotient_of_singles(x: Any, y: Any, mode: int) -> Any:
    """Return ``x / y`` of float32."""
    a, b = double(x), double(y)
    near = a / b
    return narrowed(near, left_of_quotient(a, b, near), mode)


def reciprocal_of(x: Any, mode: int) -> Any:
    """Return ``1 / x`` of float64."""
    return quotient_of(1.0, x, mode)


def reciprocal_of_single(x: Any, mode: int) -> Any:
    """Return ``1 / x`` of float32."""
    return quotient_of_singles(single(1), x, mode)


def left_of_root(x: Any, near: Any) -> Any:
    """Return a number of the sign of what the nearest float64 leaves over of a square root."""
    rest = 0.0
    if 0.0 < x < math.inf:
        a, m = math.frexp(x)
        half = math.ldexp(near, -(m >> 1))
        rest = gpu.fma(-half, half, a * (2.0 if m & 1 else 1.0))
    return rest


def root_of(x: Any, mode: int) -> Any:
    """Return the square root of a float64."""
    near = math.sqrt(x)
    return turned(near, left_of_root(x, near), mode)


def root_of_single(x: Any, mode: int) -> Any:
    """Return the square root of a float32."""
    near = math.sqrt(double(x))
    return narrowed(near, left_of_root(double(x), near), mode)


def fused_of_singles(x: Any, y: Any, z: Any, mode: int) -> Any:
    """Return ``x * y + z`` of float32, rounded once."""
    product = times(double(x), double(y))
    total = plus(product, double(z))
    found = narrowed(total, left_of_sum(product, double(z), total), mode)
    return zero_of_sum(product, double(z), found, mode)


def fused_of(x: Any, y: Any, z: Any, mode: int) -> Any:
    """Return ``x * y + z`` of float64, rounded once.

    What is left over comes from the sums of Boldo and Muller. They need numbers far from the ends
    of the range, so all is multiplied by a power of two first, where it is near one.
    """
    near = gpu.fma(x, y, z)
    rest = 0.0
    if ordinary(x) and ordinary(y) and math.fabs(z) < math.inf:
        sign = math.copysign(1.0, x) * math.copysign(1.0, y)
        size = max(math.fabs(times(x, y)), math.fabs(z))
        scale = 1.0
        if size > 1e300:
            scale = 4.909093465297727e-91  # 2 ** -300
        elif size < 1e-270:
            scale = 2.037035976334486e90
        a, b = (x, y) if (math.fabs(x) > math.fabs(y)) == (scale < 1.0) else (y, x)
        a = a * scale
        c = z * scale
        if c == 0.0 and z != 0.0:
            c = math.copysign(1e-300, z)
        p = times(a, b)
        q = gpu.fma(a, b, -p)
        if math.fabs(near) == math.inf:
            rest = -near
        elif math.fabs(p) < 1e-290:  # below all numbers, or far below z
            rest = sign
        else:
            t = plus(c, q)
            u = left_of_sum(c, q, t)
            v = plus(p, t)
            w = left_of_sum(p, t, v)
            rest = ((v - near * scale) + w) + u
    found = turned(near, rest, mode)
    if mode < 0 and found == 0.0 and rest == 0.0 and z == z:
        found = zero_of_sum(times(x, y), z, found, mode)
    return found


def whole(x: Any) -> Any:
    """Return the float64 of an integer of 64 bits, and what it left over."""
    high = double(x >> np.int64(32)) * 4294967296.0
    low = double(x & np.int64(0xFFFFFFFF))
    total = plus(high, low)
    return total, left_of_sum(high, low, total)


def unsigned(x: Any) -> Any:
    """Return the float64 of an unsigned integer of 64 bits, and what it left over."""
    high = double(x >> np.uint64(32)) * 4294967296.0
    low = double(x & np.uint64(0xFFFFFFFF))
    total = plus(high, low)
    return total, left_of_sum(high, low, total)


def _one(function: Callable[..., Any], kind: Any, mode: int) -> DeviceFunction:
    def call(x: Any) -> Any:
        return function(kind(x), mode)

    return func(call)


def _two(function: Callable[..., Any], kind: Any, mode: int) -> DeviceFunction:
    def call(x: Any, y: Any) -> Any:
        return function(kind(x), kind(y), mode)

    return func(call)


def _three(function: Callable[..., Any], kind: Any, mode: int) -> DeviceFunction:
    def call(x: Any, y: Any, z: Any) -> Any:
        return function(kind(x), kind(y), kind(z), mode)

    return func(call)


def narrowed_alone(x: Any, mode: int) -> Any:
    """Return the float32 of a float64."""
    return narrowed(x, 0.0, mode)


def of_small(x: Any, mode: int) -> Any:
    """Return the float32 of an integer of 32 bits."""
    return narrowed(double(x), 0.0, mode)


def of_whole(x: Any, mode: int) -> Any:
    """Return the float64 of an integer of 64 bits."""
    total, rest = whole(x)
    return turned(total, rest, mode)


def of_unsigned(x: Any, mode: int) -> Any:
    """Return the float64 of an unsigned integer of 64 bits."""
    total, rest = unsigned(x)
    return turned(total, rest, mode)


def narrow_of_whole(x: Any, mode: int) -> Any:
    """Return the float32 of an integer of 64 bits."""
    total, rest = whole(x)
    return narrowed(total, rest, mode)


def narrow_of_unsigned(x: Any, mode: int) -> Any:
    """Return the float32 of an unsigned integer of 64 bits."""
    total, rest = unsigned(x)
    return narrowed(total, rest, mode)


FUNCTIONS: Final[dict[str, DeviceFunction]] = {"nextafter": nextafter, "nextafterf": nextafterf}
_TABLE: Final[tuple[tuple[str, Callable[..., Any], Any, Any], ...]] = (
    ("dadd", _two, sum_of, double), ("fadd", _two, sum_of_singles, single),
    ("dsub", _two, difference_of, double), ("fsub", _two, difference_of_singles, single),
    ("dmul", _two, product_of, double), ("fmul", _two, product_of_singles, single),
    ("ddiv", _two, quotient_of, double), ("fdiv", _two, quotient_of_singles, single),
    ("drcp", _one, reciprocal_of, double), ("frcp", _one, reciprocal_of_single, single),
    ("dsqrt", _one, root_of, double), ("fsqrt", _one, root_of_single, single),
    ("fma", _three, fused_of, double), ("fmaf", _three, fused_of_singles, single),
    ("double2float", _one, narrowed_alone, double),
    ("int2float", _one, of_small, np.int32), ("uint2float", _one, of_small, np.uint32),
    ("ll2double", _one, of_whole, np.int64), ("ull2double", _one, of_unsigned, np.uint64),
    ("ll2float", _one, narrow_of_whole, np.int64),
    ("ull2float", _one, narrow_of_unsigned, np.uint64),
)  # fmt: skip
for _name, _made, _function, _kind in _TABLE:
    for _word, _mode in _MODES.items():
        FUNCTIONS[f"{_name}_{_word}"] = _made(_function, _kind, _mode)
