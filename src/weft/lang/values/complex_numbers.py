"""Complex numbers in kernels: groups of two floats, and their arithmetic as Python.

The functions here stand for kernels to call: they take and return the parts of complex numbers.
Those of `cmath` compute in float64 and are rounded to the type of their argument.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import optional, scalar_math, scalars
from weft.lang.core.element_types import COMPLEX, ComplexOf
from weft.lang.core.kind import GROUPS, THINGS
from weft.lang.core.operators import compare
from weft.lang.core.promotion import arithmetic
from weft.lang.core.values import Group, Known, Value
from weft.lang.values.structs import GroupKind, KnownKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import complex_functions
    from weft.lang.values.complex_functions import Parts
else:
    complex_functions = Late("weft.lang.values.complex_functions")

__all__ = ["as_complex", "convert", "function", "is_complex"]


def is_complex(value: Value) -> bool:
    """Whether a value is a complex number."""
    if isinstance(value, Known):
        return isinstance(value.value, complex | np.complexfloating)  # complex64 is no `complex`
    return isinstance(value, Group) and value.kind is complex


def group(real: Expr, imag: Expr) -> Group:
    """Return a complex number."""
    return Group((real, imag), COMPLEX, complex)


def as_complex(c: Context, value: Value, node: ast.AST) -> Group:
    """Return a number as a complex one."""
    value = optional.present(c, value, node)
    if isinstance(value, Group) and value.kind is complex:
        return value
    if isinstance(value, Known) and hasattr(value.value, "imag") and is_complex(value):
        d = dt.float32 if getattr(value.value, "itemsize", 16) == 8 else dt.float64
        return group(ex.const(float(value.value.real), d), ex.const(float(value.value.imag), d))
    x = c.scalar(value, node)
    if not x.dtype.is_float:
        # what float32 holds stays narrow beside a complex64
        x = scalars.convert(x, dt.float32 if x.dtype.bits <= 16 else dt.float64)
    return group(x, ex.const(0.0, x.dtype))


def convert(value: Group, d: DType) -> Group:
    """Return a complex number with parts of another type."""
    real, imag = value.items
    return group(scalars.convert(real, d), scalars.convert(imag, d))


class ComplexKind(GroupKind):
    """A complex number; what operators mean for it."""

    rank = 2

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return whether a number is not 0."""
        return c.truth(compare(c, ast.NotEq, value, Known(0), node), node)

    def binary(self, c: Context, op: type[ast.operator], left: Value, right: Value,
               node: ast.AST) -> Value | None:  # fmt: skip
        """Return ``left op right``, or None if complex numbers do not have the operator."""
        if op is ast.Pow and isinstance(right, Known) and right.value == 2:
            right, op = left, ast.Mult
        a, b = as_complex(c, left, node), as_complex(c, right, node)
        d = arithmetic(a.items[0].dtype, b.items[0].dtype)
        a, b = convert(a, d), convert(b, d)
        (p, q), (r, s) = a.items, b.items
        if op is ast.Add:
            return group(p + r, q + s)
        if op is ast.Sub:
            return group(p - r, q - s)
        if op is ast.Mult:
            return group(p * r - q * s, p * s + q * r)
        if op is ast.Div:
            return _call(c, divide, (p, q, r, s), d, node)
        if op is ast.Pow:
            return _call(c, power, (p, q, r, s), d, node)
        return None

    def compare(self, c: Context, op: type[ast.cmpop], left: Value, right: Value,
                node: ast.AST) -> Value | None:  # fmt: skip
        """Return whether two complex numbers are equal or not; None for other comparisons."""
        if op not in (ast.Eq, ast.NotEq):
            return None
        a, b = as_complex(c, left, node), as_complex(c, right, node)
        d = arithmetic(a.items[0].dtype, b.items[0].dtype)
        a, b = convert(a, d), convert(b, d)
        same = ex.binary(Op.AND, a.items[0].eq(b.items[0]), a.items[1].eq(b.items[1]))
        return same if op is ast.Eq else ex.unary(Op.NOT, same)

    def unary(self, c: Context, op: type[ast.unaryop], value: Any, node: ast.AST) -> Value | None:
        """Return ``op value``, None if complex numbers do not have the operator."""
        if op is ast.Invert:
            return None
        return group(*(scalars.apply_unary(op, x) for x in value.items))

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a number as a complex one."""
        is_number = is_complex(value) or c.number_of(value) is not None
        return as_complex(c, value, node) if is_number else value


class KnownComplexKind(KnownKind):
    """A complex number that is known."""

    rank = ComplexKind.rank
    binary = ComplexKind.binary
    compare = ComplexKind.compare


KIND = GROUPS[complex] = ComplexKind()
THINGS[complex] = THINGS[np.complexfloating] = KnownComplexKind()


def called(c: Context, name: str, args: tuple[Value, ...], named: dict[str, Value],
           node: ast.AST) -> Value | None:  # fmt: skip
    """Return what a call of ``cmath.name`` means, or None if kernels lack it."""
    if name == "rect" and len(args) == 2 and not named:
        return rect(c, args, node)
    if name == "log" and len(args) == 2 and not named:
        of, base = (function(c, name, a, node) for a in args)
        assert of is not None
        assert base is not None
        return KIND.binary(c, ast.Div, of, base, node)
    if name in ("rect", "isclose") or len(args) != 1:
        return None
    return function(c, name, args[0], node)


def function(c: Context, name: str, value: Value, node: ast.AST) -> Value | None:
    """Return ``cmath.name(value)``, or None if kernels lack it."""
    z = as_complex(c, value, node)
    d = z.items[0].dtype
    if name in ("isnan", "isinf", "isfinite"):
        tests = [scalar_math.math_function(name, [x]) for x in z.items]
        assert tests[0] is not None
        assert tests[1] is not None
        return ex.binary(Op.AND if name == "isfinite" else Op.OR, tests[0], tests[1])
    if name in ("phase", "angle"):
        return scalar_math.math_function("atan2", [z.items[1], z.items[0]])
    if name in ("fabs", "abs", "absolute"):
        return scalar_math.hypot(list(z.items), z.items[0].dtype)
    if name == "polar":
        parts = [function(c, n, z, node) for n in ("abs", "phase")]
        return Group(tuple(parts))
    found = complex_functions.FUNCTIONS.get(name)
    return None if found is None else _call(c, found, z.items, d, node)


def rect(c: Context, args: tuple[Value, ...], node: ast.AST) -> Value:
    """Return ``cmath.rect(r, phi)``."""
    r, phi = (as_complex(c, a, node).items[0] for a in args)
    d = arithmetic(r.dtype, phi.dtype)
    return _call(c, polar, (scalars.convert(r, d), scalars.convert(phi, d)), d, node)


def _call(c: Context, wanted: Callable[..., Any], args: tuple[Any, ...], d: DType,
          node: ast.AST) -> Value:  # fmt: skip
    found = c.inline(wanted, list(args), {}, node)
    assert isinstance(found, Group)
    real, imag = (scalars.convert(c.scalar(v, node), d) for v in found.items)
    return group(real, imag)


def element(value: Group) -> ComplexOf:
    """Return what an array holds that this number is an element of."""
    return ComplexOf(value.items[0].dtype)


# --- what kernels call: arithmetic in the type of the arguments


def divide(a: float, b: float, c: float, d: float) -> Parts:
    """Return ``(a + bj) / (c + dj)`` as Python computes it, scaled by the larger part."""
    if abs(c) >= abs(d):
        ratio = d / c
        scale = c + d * ratio
        found = (a + b * ratio) / scale, (b - a * ratio) / scale
    else:
        ratio = c / d
        scale = c * ratio + d
        found = (a * ratio + b) / scale, (b * ratio - a) / scale
    return found


def power(a: float, b: float, c: float, d: float) -> Parts:
    """Return ``(a + bj) ** (c + dj)``."""
    if c == 0 and d == 0:
        found = 1.0, 0.0
    elif a == 0 and b == 0:
        found = 0.0, 0.0
    else:
        size = math.hypot(a, b)
        angle = math.atan2(b, a)
        length = math.pow(size, c)
        phase = angle * c
        if d != 0:
            length = length / math.exp(angle * d)
            phase = phase + d * math.log(size)
        found = length * math.cos(phase), length * math.sin(phase)
    return found


def polar(r: float, phi: float) -> Parts:
    """Return the complex number of an absolute value and a phase."""
    real = math.cos(phi)
    imag = math.sin(phi)
    if phi == 0 and math.isnan(r):
        found = r, 0.0
    elif not math.isfinite(phi) and r == 0:
        found = 0.0, 0.0
    elif math.isinf(r) and not math.isfinite(phi):
        found = math.inf, math.nan
    elif math.isinf(r):
        found = real * r, imag * r if imag != 0 else imag * math.copysign(1.0, r)
    else:
        found = real * r, imag * r
    return found
