"""NumPy's functions of complex numbers that order them, or take them for truth values.

NumPy orders complex numbers by their real parts, then by their imaginary parts; with a NaN in one
of the parts no order holds. Python has no order of them, so the operators of kernels have none.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import scalars
from weft.lang.core.promotion import arithmetic
from weft.lang.core.values import Group, Value
from weft.lang.values import complex_numbers

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["ufunc"]

_ORDERS: Final = ("less", "less_equal", "greater", "greater_equal")
_LOGIC: Final = {"logical_and": Op.AND, "logical_or": Op.OR, "logical_xor": Op.XOR}
_EXTREMES: Final = ("maximum", "minimum", "fmax", "fmin")


def ufunc(c: Context, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of NumPy gives for complex numbers, None if it is none of these."""
    if not any(map(complex_numbers.is_complex, args)):
        return None
    if name == "log2" and len(args) == 1:
        z = complex_numbers.function(c, "log", args[0], node)
        assert isinstance(z, Group)
        scale = ex.const(math.log2(math.e), z.items[0].dtype)
        return complex_numbers.group(z.items[0] * scale, z.items[1] * scale)
    if len(args) != 2 or name not in (*_ORDERS, *_LOGIC, *_EXTREMES):
        return None
    a, b = (complex_numbers.as_complex(c, v, node) for v in args)
    if name in _LOGIC:
        return ex.binary(_LOGIC[name], _truth(a), _truth(b))
    d = arithmetic(a.items[0].dtype, b.items[0].dtype)
    a, b = complex_numbers.convert(a, d), complex_numbers.convert(b, d)
    if name in _ORDERS:
        left, right = (a, b) if name.startswith("less") else (b, a)
        return _before(left, right, name.endswith("equal"))
    first = _before(b, a, True) if name in ("maximum", "fmax") else _before(a, b, True)
    first = ex.binary(Op.OR, first, _is_nan(b if name.startswith("f") else a))
    return complex_numbers.group(*(ex.where(first, x, y)
                             for x, y in zip(a.items, b.items, strict=True)))


def _truth(z: Group) -> Expr:
    return ex.binary(Op.OR, *(x.ne(0) for x in z.items))


def _is_nan(z: Group) -> Expr:
    return ex.binary(Op.OR, *(x.ne(x) for x in z.items))


def _before(a: Group, b: Group, equal: bool) -> Expr:
    """Return whether a number comes before another one, or with `equal` is the same."""
    imaginary = ex.unary(Op.NOT, ex.binary(Op.OR, *(z.items[1].ne(z.items[1]) for z in (a, b))))
    real = ex.binary(Op.AND, a.items[0].lt(b.items[0]), imaginary)
    last = scalars.apply_compare(ast.LtE if equal else ast.Lt, a.items[1], b.items[1])
    return ex.binary(Op.OR, real, ex.binary(Op.AND, a.items[0].eq(b.items[0]), last))
