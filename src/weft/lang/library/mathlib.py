"""Functions of `math` and NumPy in kernels, beyond those that are one operation of the IR."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import operators, scalar_math, scalars
from weft.lang.core.element_types import TimeOf
from weft.lang.core.values import Group, Known, Value, describe
from weft.lang.library import pymath
from weft.lang.values import complex_numbers, complex_order

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import times
else:
    times = Late("weft.lang.values.times")

__all__ = ["is_ufunc", "math_named", "ufunc_call"]

_FLOATS: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f for f in (pymath.gamma, pymath.lgamma, pymath.remainder, pymath.logaddexp,
                            pymath.heaviside)
}  # fmt: skip
_KEPT: Final = frozenset({"remainder", "logaddexp", "heaviside"})  # in the type of the arguments
_INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f for f in (pymath.gcd, pymath.lcm, pymath.isqrt, pymath.perm, pymath.comb)
}  # fmt: skip
_TYPED: Final = frozenset({"pow", "fmod", "copysign", "ldexp", "atan2", "hypot"})
_HINTS: Final = {
    "fsum": "sum() of a tuple, or a loop, rounds each sum",
    "sumprod": "multiply and add in a loop",
}


def math_named(c: Context, name: str, args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
    """Return ``math.name(*args, **named)``; what kernels do not have is an error with a hint."""
    found: Value | None = None
    if name == "isclose" and len(args) == 2:
        return c.inline(pymath.isclose, c.alike(args), named, node)
    if name == "prod" and len(args) == 1 and isinstance(args[0], Group):
        found = named.pop("start", Known(1))
        for item in args[0].items if not named else ():
            found = operators.operate(c, ast.Mult, found, item, node)
    elif name == "dist" and len(args) == 2 and all(isinstance(a, Group) for a in args):
        p, q = ([c.scalar(v, node) for v in a.items] for a in args if isinstance(a, Group))
        if len(p) != len(q):
            raise c.wrong(node, f"math.dist of {len(p)} and {len(q)} numbers")
        d = scalar_math.float_type(*p, *q) if p else dt.float64
        found = scalar_math.hypot([scalars.convert(x, d) - scalars.convert(y, d)
                               for x, y in zip(p, q, strict=True)], d)
    elif name in ("prod", "dist"):
        raise c.wrong(node, f"math.{name} is of tuples in kernels", "put the numbers in a tuple")
    if found is None and not named:
        args = c.alike(args)
        if len(args) == 2 and name in _TYPED:
            args = list(scalar_math.as_in_math(name, [c.scalar(a, node) for a in args]))
        if c.wraps and len(args) == 1 and name in _WHOLE:  # floats, as on numba's GPUs
            found = _number(c, name, [c.scalar(args[0], node)], args, node)
        else:
            found = math_call(c, name, args, node)
    if named:
        raise c.wrong(node, f"math.{name} has no argument {', '.join(named)} in kernels")
    if found is None:
        count = f"{len(args)} argument{'' if len(args) == 1 else 's'}"
        many = "" if name in _HINTS else f" of {count}"
        raise c.wrong(node, f"math.{name}{many} is not supported in kernels", _HINTS.get(name, ""))
    return found


def math_call(c: Context, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return ``math.name(*args)``, None if kernels do not have it with so many arguments."""
    if name in _INTEGERS or name == "factorial":
        return _of_integers(c, name, args, node)
    given = [c.scalar(a, node) for a in args] if name not in _HINTS else []
    if name == "hypot":
        d = scalar_math.float_type(*given) if given else dt.float64
        return scalar_math.hypot([scalars.convert(x, d) for x in given], d)
    if not given:
        return None
    if name in ("frexp", "modf") and len(given) == 1:
        x = scalars.convert(given[0], scalar_math.float_type(given[0]))
        return _frexp(x) if name == "frexp" else _modf(x)
    if name == "log" and len(given) == 2:
        d = scalar_math.float_type(*given)
        x, base = (ex.unary(Op.LOG, scalars.convert(v, d)) for v in given)
        return ex.binary(Op.DIV, x, base)
    if (name, len(given)) in (("nextafter", 2), ("ulp", 1)):
        d = scalar_math.float_type(*given)
        given = [scalars.convert(x, d) for x in given]
        return _ulp(given[0]) if name == "ulp" else _nextafter(*given)
    function = _FLOATS.get(name)
    if function is not None and len(args) == function.__code__.co_argcount:
        d = scalar_math.float_type(*given)
        if name in _KEPT:
            given = [scalars.convert(x, d) for x in given]
        return scalars.convert(c.scalar(c.inline(function, list(given), {}, node), node), d)
    return scalar_math.math_function(name, given)


def _of_integers(c: Context, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of integers gives; Python's own result where they are known."""
    if all(isinstance(a, Known) for a in args):
        try:
            return Known(getattr(math, name)(*(a.value for a in args if isinstance(a, Known))))
        except (TypeError, ValueError, OverflowError) as error:
            raise c.wrong(node, f"math.{name}: {error}") from None
    if name == "perm" and len(args) == 2 and isinstance(args[1], Known) and args[1].value is None:
        args = args[:1]
    given = [c.scalar(a, node, "an integer") for a in args]
    for x in given:
        if x.dtype.is_float:
            raise c.wrong(node, f"math.{name} of {x.dtype.name}", "convert it with int()")
    if name in ("gcd", "lcm"):
        found = given[0]
        for x in given[1:]:
            found = c.scalar(c.inline(_INTEGERS[name], [found, x], {}, node), node)
        return found if len(given) > 1 or found.dtype.kind == "u" else ex.unary(Op.ABS, found)
    given = [scalars.convert(x, dt.int64) for x in given]
    if name in ("factorial", "perm") and len(given) == 1:
        return c.inline(pymath.perm, [given[0], given[0]], {}, node)
    function = _INTEGERS.get(name)
    if function is None or len(given) != function.__code__.co_argcount:
        return None
    return c.inline(function, list(given), {}, node)


def _nextafter(x: Expr, y: Expr) -> Expr:
    """Return the float beside `x` on the way to `y`."""
    u = dt.unsigned(x.dtype.bits)
    bits = ex.bitcast(x, u)
    away = ex.binary(Op.XOR, y.lt(x), x.gt(0.0))  # from zero
    beside = ex.bitcast(ex.where(away, bits + 1, bits - 1), x.dtype)
    smallest = ex.binary(Op.COPYSIGN, ex.bitcast(ex.const(1, u), x.dtype), y)
    found = ex.where(x.eq(0.0), smallest, beside)
    found = ex.where(x.eq(y), y, found)
    return ex.where(ex.binary(Op.OR, x.ne(x), y.ne(y)), x + y, found)


def _ulp(given: Expr) -> Expr:
    """Return the value of the last bit of a float."""
    x = ex.unary(Op.ABS, given)
    infinity = ex.const(math.inf, x.dtype)
    after = _nextafter(x, infinity)
    below = x - _nextafter(x, ex.const(0.0, x.dtype))
    found = ex.where(after.eq(math.inf), below, after - x)
    return ex.where(x.lt(math.inf), found, x)


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
    "copysign", "fmod", "ldexp", "frexp", "modf", "gcd", "lcm", "nextafter", "logaddexp",
    "heaviside",
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


def ufunc_call(c: Context, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of NumPy gives for numbers."""
    count = len(args)
    if any(isinstance(a, Group) and isinstance(a.kind, TimeOf) for a in args):
        of_times = times.function(c, name, args, node)
        if of_times is not None:
            return of_times
        if name not in (*_OPERATORS, *_COMPARISONS, *_SIGNS):
            raise c.wrong(node, f"numpy.{name} of {' and '.join(map(describe, args))}",
                          "times have +, -, *, /, //, %, comparisons, and what NumPy has of them")
    if count == 1 and complex_numbers.is_complex(args[0]):
        found = complex_numbers.function(c, _OTHER_NAMES.get(name, name), args[0], node)
        if found is not None:
            return found
    told = complex_order.ufunc(c, name, args, node)
    if told is not None:
        return told
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
    if name in ("real", "conjugate") and count == 1 and not complex_numbers.is_complex(args[0]):
        return c.scalar(args[0], node)
    if name in ("real", "imag", "conjugate") and count == 1:
        z = complex_numbers.as_complex(c, args[0], node)
        if name == "conjugate":
            return complex_numbers.group(z.items[0], ex.unary(Op.NEG, z.items[1]))
        part: Value = z.items[0 if name == "real" else 1]
        return part
    if name in ("maximum", "minimum", "fmax", "fmin") and count == 2:
        return _extreme(c, name, args, node)
    return _number(c, name, [c.scalar(a, node) for a in args], args, node)


def _extreme(c: Context, name: str, args: list[Value], node: ast.AST) -> Value:
    """Return the larger or smaller of two: NaN if one is, or with ``fmax`` the other one."""
    a, b = (c.scalar(v, node) for v in args)
    d = scalars.common(a.dtype, b.dtype)
    a, b = scalars.convert(a, d), scalars.convert(b, d)
    first = a.gt(b) if name in ("maximum", "fmax") else a.lt(b)
    if d.is_float:
        odd = a if name[0] == "m" else b
        first = ex.binary(Op.OR, first, odd.ne(odd))
    return ex.where(first, a, b)


def _number(c: Context, name: str, given: list[Expr], args: list[Value],
            node: ast.AST) -> Value | None:  # fmt: skip
    x = given[0] if given else ex.const(0, dt.int64)
    count = len(given)
    if count == 1 and name in _WHOLE:
        return ex.unary(_WHOLE[name], scalars.convert(x, scalar_math.float_type(x)))
    if count == 1 and name == "absolute":
        return x if x.dtype.kind in "bu" else ex.unary(Op.ABS, x)
    if count == 1 and name == "reciprocal":
        x = scalars.convert(x, dt.int8) if x.dtype is dt.bool_ else x
        return ex.binary(Op.DIV if x.dtype.is_float else Op.FLOORDIV, ex.const(1, x.dtype), x)
    if count == 1 and name == "sign":
        one = ex.const(1, x.dtype)
        below = ex.unary(Op.NEG, one) if x.dtype.kind != "u" else one
        return ex.where(x.gt(0), one, ex.where(x.lt(0), below, x))
    if count == 1 and name == "signbit":
        d = scalar_math.float_type(x)
        return ex.binary(Op.COPYSIGN, ex.const(1.0, d), scalars.convert(x, d)).lt(0.0)
    if count == 2 and name in (*_LOGIC, "logical_xor"):
        return ex.binary(_LOGIC.get(name, Op.XOR), *map(scalars.truth, given))
    if name in ("round", "around") and 1 <= count <= 2:
        digits = c.known_int(args[1], node, "the number of digits") if count == 2 else 0
        return scalar_math.rounded(x, digits) if x.dtype.is_float else x
    if name == "clip" and count == 3:
        low = _extreme(c, "maximum", [given[0], given[1]], node)
        return _extreme(c, "minimum", [low, given[2]], node)
    if name == "where" and count == 3:
        return c.select(scalars.truth(x), given[1], [], given[2], [], node)
    return None
