"""What printing in a kernel writes for a number, on every device.

Integers and bools are written as Python writes them. A float has the fewest digits that name it
among the floats of its own type (1.65, whether float32 or float64), in Python's form: a point and
a digit behind it from 0.0001 to below 1e16, an exponent elsewhere. `weft.renderers.llvm.llvm_print`
does the same natively.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from weft.ir.dtype import DType

__all__ = ["shown"]

_MOST: Final = 16  # digits behind the first one that tell any two float64 apart
_FIXED: Final = range(-4, 16)  # exponents of numbers that are written without one


def shown(value: Any, dtype: DType) -> str:
    """Return the text of a number of a type; floats narrower than float32 are written as those."""
    if not dtype.is_float:
        return str(value)
    x = float(value)
    if not math.isfinite(x):
        return "nan" if x != x else "inf" if x > 0 else "-inf"
    digits, text = 0, ""
    for digits in range(_MOST + 1):
        text = f"{x:.{digits}e}"
        if (float(text) if dtype.bits == 64 else _single(text)) == x:
            break
    exponent = int(text.partition("e")[2])
    return f"{x:.{max(digits - exponent, 1)}f}" if exponent in _FIXED else text


def _single(text: str) -> float:
    """Return the float32 nearest to a number, which may be none near the largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", float(text)))[0])
    except OverflowError:
        return math.inf
