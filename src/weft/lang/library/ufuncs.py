"""NumPy's functions of numbers in kernels for numba: in which types they compute.

As in numba, a function of NumPy has the types of one of its loops, also where it is called with
numbers: ``np.subtract`` of two uint8 is a uint8, which wraps around, where ``-`` is an int64.
Integers beside floats become floats of that width, and small integers are computed in float32 where
NumPy takes half of that.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.op import Op
from weft.lang.core import scalars
from weft.lang.core.values import Known, Value
from weft.lang.library import mathlib

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["called"]

_KEPT: Final = frozenset({"floor", "ceil", "trunc", "positive", "conjugate"})  # of integers
_OTHER: Final = frozenset({"ldexp", "less", "less_equal", "greater", "greater_equal", "equal",
                           "not_equal"})  # fmt: skip  # of numbers as they are


def called(c: Context, callee: Any, name: str, args: list[Value],
           node: ast.AST) -> Value | None:  # fmt: skip
    """Return what a function of NumPy gives for numbers, None if kernels do not have it."""
    given = [c.number_of(a) for a in args]
    numbers = [x for x in given if x is not None]
    loop = None
    if len(numbers) == len(args) and not all(isinstance(a, Known) for a in args):
        loop = _loop(callee, name, [x.dtype for x in numbers])
    if loop is None:
        return mathlib.ufunc_call(c, name, args, node)
    *kinds, result = loop
    numbers = [scalars.convert(x, d) for x, d in zip(numbers, kinds, strict=True)]
    if name in _KEPT and result.kind in "biu":
        return numbers[0]
    if name in ("invert", "bitwise_not") and result.is_bool:
        return ex.unary(Op.NOT, numbers[0])
    found = mathlib.ufunc_call(c, name, list(numbers), node)
    x = None if found is None else c.number_of(found)
    return found if x is None else scalars.convert(x, result)


def _loop(callee: Any, name: str, kinds: list[DType]) -> list[DType] | None:
    """Return the types of the arguments and of the result, None where numba has no such loop."""
    floats = [d for d in kinds if d.is_float]
    if not isinstance(callee, np.ufunc) or callee.nout != 1 or callee.nin != len(kinds) or (
        name in _OTHER or any(d.bits < 32 for d in floats)
    ):
        return None
    if floats:
        kinds = [max(floats, key=lambda d: d.bits)] * len(kinds)
    try:
        found = callee.resolve_dtypes((*(np.dtype(d.numpy) for d in kinds), None))
    except TypeError:
        return None
    return [dt.float32 if kind == np.float16 else dt.as_dtype(kind) for kind in found]
