"""Types of arithmetic in kernels: those of numba, so that a kernel means the same here.

* Integers compute in 64 bits: unsigned if both operands are unsigned, else signed. A comparison or
  an index takes them as they are; storing wraps to the type of the array.
* ``-x`` and ``~x`` of a narrow integer are computed in its own type, and widened then: ``~`` of the
  uint8 3 is 252, ``-`` of the least int32 is itself.
* ``/`` of integers gives float64. A float32 with a bool, an int8, an int16 or a uint8 stays
  float32; with any other integer (a uint16, too) it becomes float64. A float32 to the power of any
  integer stays float32.
* A float16 with a bool or an int8 stays float16; with an int16 or a uint8 it becomes float32, with
  any other integer float64. ``//``, ``%`` and ``**`` of it give at least float32.
* A variable that is given values of two types has the smallest type that holds both (int64 and
  uint64: float64).
* 16-bit floats compute in float32 and round after each operation; with another float they take
  its type.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["arithmetic", "division", "of_math", "power", "rounding", "shift", "unify"]

_KEPT: Final = frozenset({dt.bool_, dt.int8, dt.int16, dt.uint8})  # beside which float32 stays
_UNIFIED: Final = frozenset({*_KEPT, dt.uint16})  # the same for a variable of both types
_SINGLE: Final = frozenset({*_KEPT, dt.float16, dt.float32})  # taken as float32 by `math`


def arithmetic(a: DType, b: DType) -> DType:
    """Return the type in which ``a + b`` is computed."""
    if a.is_float and b.is_float:
        return _floats(a, b)
    if a.is_float or b.is_float:
        floating, other = (a, b) if a.is_float else (b, a)
        if floating is dt.float16 and other is dt.uint8:
            return dt.float32
        return _with_integer(floating, other, _KEPT)
    return dt.uint64 if a.kind == b.kind == "u" else dt.int64


def _floats(a: DType, b: DType) -> DType:
    if a is b:
        return dt.float32 if a.is_storage_only else a
    if a.bits == b.bits:
        return dt.float32
    return a if a.bits > b.bits else b


def _with_integer(floating: DType, other: DType, kept: frozenset[DType]) -> DType:
    """Return the type for a float and an integer; a float32 is one beside those that are kept."""
    if floating is dt.float16:
        if other.is_bool or other.bits == 8:
            return floating
        return dt.float32 if other in kept else dt.float64
    if floating.bits < 32:
        return floating if other.is_bool else dt.float32
    return floating if other in kept else dt.float64


def rounding(a: DType, b: DType) -> DType:
    """Return the type of ``a // b`` and ``a % b``."""
    found = arithmetic(a, b)
    return dt.float32 if found is dt.float16 else found


def power(a: DType, b: DType) -> DType:
    """Return the type of ``a ** b``."""
    if a is dt.float32 and not b.is_float:
        return a
    if (a is dt.float16 and not b.is_float) or (a is dt.bool_ and b is dt.int32):
        return dt.float32  # the powers that numba has of a float and an int32
    return rounding(a, b)


def of_math(name: str, a: DType, b: DType) -> DType | None:
    """Return the type of a function of two numbers in `math`, None if it has no rule of its own."""
    if name not in ("pow", "fmod", "copysign", "ldexp", "atan2", "hypot") or dt.bfloat16 in (a, b):
        return None
    single = a in _SINGLE and b in _SINGLE
    if name == "pow":
        single = single or (a in _SINGLE and b is dt.int32) or (a is dt.float32 and b is dt.uint16)
    elif name == "ldexp":
        single = a in _SINGLE
    elif name in ("atan2", "hypot"):
        single = single and (a.is_float or b.is_float)
    return dt.float32 if single else dt.float64


def division(a: DType, b: DType) -> DType:
    """Return the type of ``a / b``."""
    return arithmetic(a, b) if a.is_float or b.is_float else dt.float64


def shift(a: DType) -> DType:
    """Return the type of ``a << n`` and ``a >> n``."""
    return dt.uint64 if a.kind == "u" else dt.int64


def unify(a: DType, b: DType) -> DType:
    """Return the type of a variable that is given values of both types."""
    if a is b:
        return a
    if a.is_float and b.is_float:
        return _floats(a, b)
    if a.is_float or b.is_float:
        floating, other = (a, b) if a.is_float else (b, a)
        return _with_integer(floating, other, _UNIFIED)
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return dt.float64 if unsigned.bits == 64 else dt.signed(unsigned.bits * 2)
