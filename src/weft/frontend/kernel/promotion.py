"""Types of arithmetic in kernels: those of numba, so that a kernel means the same here.

* Integers compute in 64 bits: unsigned if both operands are unsigned, else signed. A comparison or
  an index takes them as they are; storing wraps to the type of the array.
* ``-x`` and ``~x`` of a narrow integer are computed in its own type, and widened then: ``~`` of the
  uint8 3 is 252. ``-`` of an int32, which may be an index, is computed in 64 bits.
* ``/`` of integers gives float64. A float32 with an integer of at most 16 bits, or a bool, stays
  float32; with a wider integer it becomes float64, because float32 could not hold it. A float32 to
  the power of any integer stays float32.
* A variable that is given values of two types has the smallest type that holds both (int64 and
  uint64: float64).
* 16-bit floats compute in float32 and round after each operation; with another float they take
  its type.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["arithmetic", "division", "shift", "unify"]

_EXACT_BITS: Final = 16  # the widest integers of which float32 holds every value


def arithmetic(a: DType, b: DType) -> DType:
    """Return the type in which ``a + b`` is computed."""
    if a.is_float or b.is_float:
        return _float(a, b)
    return dt.uint64 if a.kind == b.kind == "u" else dt.int64


def _float(a: DType, b: DType) -> DType:
    if not (a.is_float and b.is_float):
        floating, other = (a, b) if a.is_float else (b, a)
        narrow = other.is_bool or other.bits <= _EXACT_BITS
        if floating.bits < 32:
            return dt.float32 if not other.is_bool else floating
        return floating if narrow else dt.float64
    if a is b:
        return dt.float32 if a.is_storage_only else a
    if a.bits == b.bits:
        return dt.float32
    return a if a.bits > b.bits else b


def division(a: DType, b: DType) -> DType:
    """Return the type of ``a / b``."""
    return _float(a, b) if a.is_float or b.is_float else dt.float64


def shift(a: DType) -> DType:
    """Return the type of ``a << n`` and ``a >> n``."""
    return dt.uint64 if a.kind == "u" else dt.int64


def unify(a: DType, b: DType) -> DType:
    """Return the type of a variable that is given values of both types."""
    if a is b:
        return a
    if a.is_float or b.is_float:
        return _float(a, b)
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return dt.float64 if unsigned.bits == 64 else dt.signed(unsigned.bits * 2)
