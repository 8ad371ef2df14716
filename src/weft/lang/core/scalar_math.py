"""What `math` computes of scalars in kernels."""

from __future__ import annotations

import math
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.lang.core.promotion import arithmetic, of_math
from weft.lang.core.scalars import convert

__all__ = ["as_in_math", "cube_root", "float_type", "hypot", "math_function", "rounded"]

_MOST_EXACT: Final = 22  # the largest power of ten that a float64 holds
_MATH_UNARY: Final[dict[str, Operation]] = {
    "sqrt": Op.SQRT, "exp": Op.EXP, "exp2": Op.EXP2, "expm1": Op.EXPM1, "log": Op.LOG,
    "log2": Op.LOG2, "log10": Op.LOG10, "log1p": Op.LOG1P, "sin": Op.SIN, "cos": Op.COS,
    "tan": Op.TAN, "asin": Op.ASIN, "acos": Op.ACOS, "atan": Op.ATAN, "sinh": Op.SINH,
    "cosh": Op.COSH, "tanh": Op.TANH, "asinh": Op.ASINH, "acosh": Op.ACOSH, "atanh": Op.ATANH,
    "erf": Op.ERF, "erfc": Op.ERFC, "fabs": Op.ABS,
}  # fmt: skip
_MATH_WHOLE: Final[dict[str, Operation]] = {
    "floor": Op.FLOOR, "ceil": Op.CEIL, "trunc": Op.TRUNC,
}


def float_type(*args: Expr) -> DType:
    """Return the float type in which functions of `math` compute: float64 for integers."""
    d = args[0].dtype if args[0].dtype.is_float else dt.float64
    for a in args[1:]:
        d = _wider(d, a.dtype if a.dtype.is_float else dt.float64)
    return d


def _wider(a: DType, b: DType) -> DType:
    return a if a is b else arithmetic(a, b)


def math_function(name: str, args: list[Expr]) -> Expr | None:
    """Return ``math.name(*args)``, or None if kernels do not have it with so many arguments."""
    if len(args) == 1:
        return _math_of_one(name, args[0])
    if len(args) == 2:
        return _math_of_two(name, *args)
    if name == "fma" and len(args) == 3:
        d = float_type(*args)
        return ex.mad(convert(args[0], d), convert(args[1], d), convert(args[2], d))
    return None


def _math_of_one(name: str, given: Expr) -> Expr | None:
    d = float_type(given)
    x = convert(given, d)
    if name in _MATH_UNARY:
        return ex.unary(_MATH_UNARY[name], x)
    if name in _MATH_WHOLE:
        return convert(ex.unary(_MATH_WHOLE[name], x), dt.int64) if given.dtype.is_float else given
    if name == "isnan":
        return x.ne(x)
    if name == "isinf":
        return ex.unary(Op.ABS, x).eq(math.inf)
    if name == "cbrt":
        return cube_root(x)
    if name == "isfinite":
        return ex.unary(Op.ABS, x).lt(math.inf)
    if name in ("degrees", "radians"):
        return x * (180.0 / math.pi if name == "degrees" else math.pi / 180.0)
    return None


def as_in_math(name: str, args: list[Expr]) -> list[Expr]:
    """Return the arguments of a function of `math` in the type in which numba computes it."""
    if len(args) != 2:
        return args
    d = of_math(name, args[0].dtype, args[1].dtype)
    if d is None:
        return args
    return [convert(args[0], d), args[1] if name == "ldexp" else convert(args[1], d)]


def _math_of_two(name: str, a: Expr, b: Expr) -> Expr | None:
    d = float_type(a) if name == "ldexp" else float_type(a, b)
    x, y = convert(a, d), convert(b, d)
    if name == "pow":
        return ex.binary(Op.POW, x, y)
    if name in ("atan2", "copysign", "fmod"):
        op = {"atan2": Op.ATAN2, "copysign": Op.COPYSIGN, "fmod": Op.FMOD}[name]
        return ex.binary(op, x, y)
    if name == "ldexp":
        # One power may be too large. What is left over comes first, so that only the last product
        # of a small result is rounded.
        most = {dt.float64: 1000, dt.float16: 14}.get(d, 120)
        rest, powers = convert(b, dt.int64), []
        for _ in range(3):
            part = ex.maximum(ex.minimum(rest, most), -most)
            powers.append(ex.unary(Op.EXP2, convert(part, d)))
            rest = rest - part
        for power in reversed(powers):
            x = x * power
        return x
    return None


def cube_root(x: Expr) -> Expr:
    """Return the cube root: an estimate by exp2 and log2, and two steps of Newton's method."""
    if x.dtype.bits < 32:
        return convert(cube_root(convert(x, dt.float32)), x.dtype)
    size = ex.unary(Op.ABS, x)
    tiny = size.lt(2.0**-900 if x.dtype is dt.float64 else 2.0**-90)  # its products lose bits
    huge = size.gt(2.0**90)  # the cube of its estimate may be infinite
    scale, back = (
        ex.where(tiny, ex.const(2.0**power, x.dtype),
                 ex.where(huge, ex.const(2.0**-power, x.dtype), ex.const(1.0, x.dtype)))
        for power in (90, -30)
    )  # fmt: skip
    size = size * scale
    root = ex.unary(Op.EXP2, ex.unary(Op.LOG2, size) * (1.0 / 3.0))
    for _ in range(2):
        square = root * root
        root = root - ex.binary(Op.DIV, square * root - size, square * 3.0)
    special = ex.binary(Op.OR, size.eq(0.0), ex.unary(Op.NOT, size.lt(math.inf)))
    return ex.binary(Op.COPYSIGN, ex.where(special, size, root * back), x)


def rounded(x: Expr, digits: int) -> Expr:
    """Return ``round(x, digits)`` of a float: the nearest multiple of a power of ten."""
    if x.dtype is not dt.float64:  # in which what lies near a half does not move onto it
        return convert(rounded(convert(x, dt.float64), digits), x.dtype)
    if digits > 330 or digits < -308:  # all are multiples of the power, or none but 0
        small = ex.unary(Op.ABS, x).lt(math.inf)
        return x if digits > 0 else ex.where(small, x * 0.0, x)
    scale = 10.0 ** min(abs(digits), _MOST_EXACT)
    rest = 10.0 ** max(abs(digits) - _MOST_EXACT, 0)
    if digits >= 0:
        moved = ex.unary(Op.ROUND, x * rest * scale)
        found = ex.binary(Op.DIV, moved, ex.const(scale, x.dtype))
        if digits > _MOST_EXACT:
            found = ex.binary(Op.DIV, found, ex.const(rest, x.dtype))
    else:
        scale *= rest
        found = ex.unary(Op.ROUND, ex.binary(Op.DIV, x, ex.const(scale, x.dtype))) * scale
    large = ex.unary(Op.NOT, ex.unary(Op.ABS, found).lt(math.inf))  # nothing to round, or NaN
    return ex.where(large, x, found)


def hypot(given: list[Expr], d: DType) -> Expr:
    """Return the root of the sum of squares of floats without leaving the range on the way."""
    wide = d if d.bits >= 32 else dt.float32
    sizes = [ex.unary(Op.ABS, convert(x, wide)) for x in given]
    zero = ex.const(0.0, wide)
    if len(sizes) < 2:
        return convert(sizes[0], d) if sizes else zero
    large = sizes[0]
    infinite = large.eq(math.inf)
    for size in sizes[1:]:
        large = ex.maximum(large, size)
        infinite = ex.binary(Op.OR, infinite, size.eq(math.inf))
    limit, power = (500, 600) if wide is dt.float64 else (60, 100)
    up, down = large.lt(2.0**-limit), large.gt(2.0**limit)
    scale, back = (
        ex.where(up, ex.const(2.0**sign, wide),
                 ex.where(down, ex.const(2.0**-sign, wide), ex.const(1.0, wide)))
        for sign in (power, -power)
    )  # fmt: skip
    total = zero
    for size in sizes:
        scaled = size * scale
        total = ex.mad(scaled, scaled, total)
    found = ex.unary(Op.SQRT, total) * back
    return convert(ex.where(infinite, ex.const(math.inf, wide), found), d)
