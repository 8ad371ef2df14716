"""Functions of `math` and NumPy in kernels, beyond those that are one operation of the IR.

Those without a note are Python that is read in place of their calls; they compute in float64.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.frontend.kernel import complexes, operators, scalars
from weft.frontend.kernel.values import Group, Value
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["is_ufunc", "math_call", "ufunc_call"]

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


def isclose(a: float, b: float) -> bool:
    """Return whether two numbers differ by at most a billionth of the larger."""
    near = abs(a - b) <= 1e-09 * max(abs(a), abs(b))
    return a == b or (near and not math.isinf(a) and not math.isinf(b))


def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor."""
    x, y = abs(a), abs(b)
    while y:
        x, y = y, x % y
    return x


_PYTHON: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f for f in (gamma, lgamma, remainder, logaddexp, heaviside, isclose, gcd)
}  # fmt: skip
_KEPT: Final = frozenset({"remainder", "logaddexp", "heaviside"})  # in the type of the arguments


def math_call(c: Expressions, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return ``math.name(*args)``, None if kernels do not have it with so many arguments."""
    given = [c.scalar(a, node) for a in args]
    if not given:
        return None
    if name in ("frexp", "modf") and len(given) == 1:
        x = scalars.convert(given[0], scalars.float_type(given[0]))
        return _frexp(x) if name == "frexp" else _modf(x)
    if name == "log" and len(given) == 2:
        d = scalars.float_type(*given)
        x, base = (ex.unary(Op.LOG, scalars.convert(v, d)) for v in given)
        return ex.binary(Op.DIV, x, base)
    function = _PYTHON.get(name)
    if function is not None and len(args) == function.__code__.co_argcount:
        d = scalars.float_type(*given)
        if name in _KEPT:
            given = [scalars.convert(x, d) for x in given]
        found = c.inline(function, list(given), {}, node)
        if name in ("isclose", "gcd"):
            return found
        return scalars.convert(c.scalar(found, node), d)
    return scalars.math_function(name, given)


def _frexp(x: Expr) -> Value:
    """Return a fraction from 0.5 to 1, and the power of two to multiply it with."""
    d = x.dtype if x.dtype.bits >= 32 else dt.float32
    x = scalars.convert(x, d)
    digits, bias, shift = (52, 1022, 54) if d is dt.float64 else (23, 126, 25)
    u = dt.unsigned(d.bits)
    tiny = ex.unary(Op.ABS, x).lt(ex.const(2.0 ** (1 - bias), d))
    scaled = ex.where(tiny, x * 2.0**shift, x)
    bits = ex.bitcast(scaled, u)
    exponents = (1 << (d.bits - 1 - digits)) - 1
    held = ex.binary(Op.AND, ex.binary(Op.SHR, bits, ex.const(digits, u)), ex.const(exponents, u))
    rest = ex.binary(Op.AND, bits, ex.const(((1 << d.bits) - 1) ^ (exponents << digits), u))
    fraction = ex.bitcast(ex.binary(Op.OR, rest, ex.const(bias << digits, u)), d)
    power = scalars.convert(held, dt.int32) - bias
    power = ex.where(tiny, power - shift, power)
    special = ex.binary(Op.OR, x.eq(0.0), ex.unary(Op.NOT, ex.unary(Op.ABS, x).lt(math.inf)))
    return Group((ex.where(special, x, fraction),
                  ex.where(special, ex.const(0, dt.int32), power)))


def _modf(x: Expr) -> Value:
    """Return the part behind the point and the one before it, both with the sign."""
    whole = ex.unary(Op.TRUNC, x)
    infinite = ex.unary(Op.ABS, x).eq(math.inf)
    part = ex.where(infinite, ex.const(0.0, x.dtype), x - whole)
    return Group((ex.binary(Op.COPYSIGN, part, x), whole))


# --- NumPy's functions of numbers

_OPERATORS: Final[dict[str, type[ast.operator]]] = {
    "add": ast.Add, "subtract": ast.Sub, "multiply": ast.Mult, "divide": ast.Div,
    "true_divide": ast.Div, "floor_divide": ast.FloorDiv, "remainder": ast.Mod, "mod": ast.Mod,
    "power": ast.Pow, "float_power": ast.Pow, "bitwise_and": ast.BitAnd, "bitwise_or": ast.BitOr,
    "bitwise_xor": ast.BitXor, "left_shift": ast.LShift, "right_shift": ast.RShift,
}  # fmt: skip
_COMPARISONS: Final[dict[str, type[ast.cmpop]]] = {
    "less": ast.Lt, "less_equal": ast.LtE, "greater": ast.Gt, "greater_equal": ast.GtE,
    "equal": ast.Eq, "not_equal": ast.NotEq,
}  # fmt: skip
_LOGIC: Final = {"logical_and": Op.AND, "logical_or": Op.OR}
_SIGNS: Final[dict[str, type[ast.unaryop]]] = {
    "negative": ast.USub, "positive": ast.UAdd, "invert": ast.Invert, "bitwise_not": ast.Invert,
    "logical_not": ast.Not,
}  # fmt: skip
_OTHER_NAMES: Final = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "arctan2": "atan2", "deg2rad": "radians", "rad2deg": "degrees",
}  # fmt: skip
_SAME_NAMES: Final = frozenset({
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "isnan", "isinf", "isfinite", "degrees", "radians", "fabs", "cbrt", "hypot",
    "copysign", "fmod", "ldexp", "frexp", "modf", "gcd", "logaddexp", "heaviside",
})  # fmt: skip
_WHOLE: Final = {"floor": Op.FLOOR, "ceil": Op.CEIL, "trunc": Op.TRUNC, "rint": Op.ROUND}
_OWN: Final = frozenset({
    "absolute", "maximum", "minimum", "fmax", "fmin", "square", "reciprocal", "sign", "signbit",
    "conjugate", "logical_xor",
})  # fmt: skip
_NAMES: Final = frozenset((*_OPERATORS, *_COMPARISONS, *_LOGIC, *_SIGNS, *_OTHER_NAMES,
                           *_SAME_NAMES, *_WHOLE, *_OWN))  # fmt: skip
_FUNCTIONS: Final = frozenset({"clip", "round", "around", "where", "real", "imag"})


def is_ufunc(value: Any, name: str) -> bool:
    """Whether an object is a function of NumPy that kernels have."""
    if type(value).__name__ == "ufunc":
        return name in _NAMES
    return getattr(value, "__module__", "") == "numpy" and name in _FUNCTIONS


def ufunc_call(c: Expressions, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of NumPy gives for numbers."""
    count = len(args)
    if count == 1 and complexes.is_complex(args[0]):
        found = complexes.function(c, _OTHER_NAMES.get(name, name), args[0], node)
        if found is not None:
            return found
    if count == 2 and name in _OPERATORS:
        if name == "float_power":
            args = [scalars.convert(c.scalar(a, node), dt.float64) for a in args]
        return operators.operate(c, _OPERATORS[name], args[0], args[1], node)
    if count == 2 and name in _COMPARISONS:
        return operators.compare(c, _COMPARISONS[name], args[0], args[1], node)
    if count == 1 and name in _SIGNS:
        return operators.negated(c, _SIGNS[name], args[0], node)
    if name in _OTHER_NAMES or name in _SAME_NAMES:
        return math_call(c, _OTHER_NAMES.get(name, name), args, node)
    if name == "square" and count == 1:
        return operators.operate(c, ast.Mult, args[0], args[0], node)
    if name in ("real", "imag", "conjugate") and count == 1:
        z = complexes.as_complex(c, args[0], node)
        if name == "conjugate":
            return complexes.group(z.items[0], ex.unary(Op.NEG, z.items[1]))
        part: Value = z.items[0 if name == "real" else 1]
        return part
    if name in ("maximum", "minimum", "fmax", "fmin") and count == 2:
        return _extreme(c, name, args, node)
    return _number(c, name, [c.scalar(a, node) for a in args], args, node)


def _extreme(c: Expressions, name: str, args: list[Value], node: ast.AST) -> Value:
    """Return the larger or smaller of two: NaN if one is, or with ``fmax`` the other one."""
    a, b = (c.scalar(v, node) for v in args)
    d = scalars.common(a.dtype, b.dtype)
    a, b = scalars.convert(a, d), scalars.convert(b, d)
    first = a.gt(b) if name in ("maximum", "fmax") else a.lt(b)
    if d.is_float:
        odd = a if name[0] == "m" else b
        first = ex.binary(Op.OR, first, odd.ne(odd))
    return ex.where(first, a, b)


def _number(c: Expressions, name: str, given: list[Expr], args: list[Value],
            node: ast.AST) -> Value | None:  # fmt: skip
    x = given[0] if given else ex.const(0, dt.int64)
    count = len(given)
    if count == 1 and name in _WHOLE:
        return ex.unary(_WHOLE[name], scalars.convert(x, scalars.float_type(x)))
    if count == 1 and name == "absolute":
        return x if x.dtype.kind in "bu" else ex.unary(Op.ABS, x)
    if count == 1 and name == "reciprocal":
        return ex.binary(Op.DIV if x.dtype.is_float else Op.FLOORDIV, ex.const(1, x.dtype), x)
    if count == 1 and name == "sign":
        one = ex.const(1, x.dtype)
        below = ex.unary(Op.NEG, one) if x.dtype.kind != "u" else one
        return ex.where(x.gt(0), one, ex.where(x.lt(0), below, x))
    if count == 1 and name == "signbit":
        d = scalars.float_type(x)
        return ex.binary(Op.COPYSIGN, ex.const(1.0, d), scalars.convert(x, d)).lt(0.0)
    if count == 2 and name in (*_LOGIC, "logical_xor"):
        return ex.binary(_LOGIC.get(name, Op.XOR), *map(scalars.truth, given))
    if name in ("round", "around") and 1 <= count <= 2:
        digits = c.known_int(args[1], node, "the number of digits") if count == 2 else 0
        return scalars.rounded(x, digits) if x.dtype.is_float else x
    if name == "clip" and count == 3:
        low = _extreme(c, "maximum", [given[0], given[1]], node)
        return _extreme(c, "minimum", [low, given[2]], node)
    if name == "where" and count == 3:
        return c.select(scalars.truth(x), given[1], [], given[2], [], node)
    return None
