"""What every renderer offers, and the encoding of float constants that they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from weft.imports import importing
from weft.ir.dtype import DType, float8_e4m3fn
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.ir.record import Record
from weft.target import Target

__all__ = ["CUT", "FENCES_AROUND", "NO_MEMORY", "PLAIN", "STOPPED", "Renderer", "Source", "Style",
           "encode_float"]  # fmt: skip

NO_MEMORY: Final = -1  # the failure of a kernel that got no memory for its private arrays
STOPPED: Final = -2  # that of one that an interrupt stopped in a loop
CUT: Final = -3  # that of one in which the driver ended a loop before its last iteration

# The orders of fences before and after an atomic operation that orders nothing else, by the order
# that it is to have; empty: none.
FENCES_AROUND: Final = {
    "relaxed": ("", ""), "acquire": ("", "acquire"), "release": ("release", ""),
    "acq_rel": ("release", "acquire"), "seq_cst": ("seq_cst", "acquire"),
}  # fmt: skip


class Source(Record):
    """Rendered text of one kernel.

    Attributes
    ----------
    language : str
        ``llvm``, ``c``, ``ptx``...
    name : str
        The symbol of the entry function.
    text : str
        The whole module.
    imports : tuple of str
        Symbols that the loader has to provide (`weft_parallel_for`).
    """

    language: str
    name: str
    text: str
    imports: tuple[str, ...] = ()


class Style(Record):
    """What the functions of a module are declared with, beside what the target asks for.

    Attributes
    ----------
    attributes : tuple of str
        Of all functions, in the compiler's words (``optsize``).
    loop_bytes : int
        Boundaries of memory on which loops begin; 0: anywhere.
    inlined : bool
        Whether the entry function is for a caller in the same module, and becomes a part of it.
    inlined_failure : bool
        Whether what reports a failure becomes a part of who calls it.
    """

    attributes: tuple[str, ...] = ()
    loop_bytes: int = 0
    inlined: bool = False
    inlined_failure: bool = False


PLAIN: Final = Style()


class Renderer(Protocol):
    """Writes kernels of one device as source text."""

    target: Target

    @property
    def device(self) -> str:
        """Name of the device family it writes for."""
        ...

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the source of a kernel, under another symbol if `name` is given.

        Raises
        ------
        UnsupportedError
            For an instruction or a type that the target lacks and that should have been
            decomposed.
        """
        ...

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        """Return a function that tells which (op, dtype) has to be decomposed beforehand."""
        ...


def encode_float(value: float, dtype: DType) -> int:
    """Return the bits of a Python float rounded to nearest even in a float type.

    Overflow gives infinity (NaN in float8_e4m3fn, which has none); a NaN gives the quiet NaN.
    """
    exponent_bits, mantissa = dtype.exponent, dtype.mantissa
    bias = (1 << (exponent_bits - 1)) - 1
    top = ((1 << exponent_bits) - 1) << mantissa
    infinity = top | ((1 << mantissa) - 1) if dtype is float8_e4m3fn else top
    nan = infinity if dtype is float8_e4m3fn else top | 1 << (mantissa - 1)
    sign = (1 << (dtype.bits - 1)) if math.copysign(1.0, value) < 0 else 0
    if math.isnan(value):
        return nan
    if math.isinf(value):
        return sign | infinity
    magnitude = abs(value)
    if magnitude == 0:
        return sign
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias)
    with importing:  # with decimal behind it, slow to import, and rarely needed
        from fractions import Fraction

    # Exact: how many units in the last place; round() of a Fraction is to nearest even.
    units = round(Fraction(magnitude) / Fraction(2) ** (exponent - mantissa))
    # A subnormal has exponent field 0; a carry out of the mantissa raises the exponent by itself.
    code = units + ((exponent + bias - 1) << mantissa)
    return sign | min(code, infinity)
