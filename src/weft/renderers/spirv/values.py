"""Values of kernels as they are in registers, and what rows of operations may ask for.

Integers of 8 and 16 bits are in words of 32 bits, extended by their sign or by zeros, so that no
device needs arithmetic of their width; floats narrower than float32 are their bits in such a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.errors import UnsupportedError, VerifyError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute, Value
from weft.renderers.base import encode_float
from weft.renderers.ranges import Ranges
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.module import Module

__all__ = ["Values", "is_narrow", "register", "wrapped"]

_NARROW: Final = 32


def is_narrow(d: DType) -> bool:
    """Whether a type is a float of less than 32 bits."""
    return d.kind == "f" and d.bits < _NARROW


def register(d: DType) -> str:
    """Return the kind of a register that holds values of a type."""
    if d.is_bool:
        return "bool"
    if d.bits < _NARROW:
        return "u32"
    return f"{'f' if d.kind == 'f' else 'u'}{d.bits}"


def wrapped(t: Term, d: DType) -> Term:
    """Return a word of a register reduced to the bits of a type, and extended as it is."""
    if d.bits >= _NARROW:
        return t
    if d.kind != "i":
        return t & ((1 << d.bits) - 1)
    return (t << (_NARROW - d.bits)).sar(_NARROW - d.bits)


class Values:
    """The values of one entry while it is written.

    Attributes
    ----------
    module : Module
        Where it is written.
    f : Function
        The function of the entry.
    fused : mapping of str to bool
        Whether the device's own multiply-add is fused, by kind.
    """

    def __init__(self, module: Module, fused: Mapping[str, bool]) -> None:
        self.module, self.fused = module, fused
        self.f = Function(module)
        self.ranges: Ranges = {}
        self.terms: dict[int, Term] = {}
        self.numbers: dict[int, Any] = {}
        self.fixed: set[int] = set()  # values that are made of constants alone
        self.zero: Term | None = None  # a zero of 32 bits that no compiler knows

    def term(self, value: Value) -> Term:
        """Return what a value is in the module."""
        found = self.terms.get(value.id)
        if found is None:
            raise VerifyError("render", found=f"{value!r} used before its definition")
        return found

    def unfolded(self, value: Value) -> Term:
        """Return a float that no compiler knows to be zero: Mesa folds sums and quotients."""
        term = self.term(value)
        if value.id not in self.fixed or self.zero is None or self.number(value):
            return term
        bits = term.bits()
        return (bits | self.zero.to(bits.kind)).bitcast(term.kind)

    def number(self, value: Value) -> Any:
        """Return the Python value of a constant, else None."""
        return self.numbers.get(value.id)

    def literal(self, value: Any, d: DType) -> Term:
        """Return a constant of a type."""
        if is_narrow(d):
            return self.f.const("u32", encode_float(float(value), d))
        if d.kind == "f":
            return self.f.const(register(d), float(value))
        return self.f.const(register(d), bool(value) if d.is_bool else dt.wrap(int(value), d))

    def lacks(self, inst: Compute) -> UnsupportedError:
        """Return the error of an operation that there is no row for."""
        value = inst.args[-1] if inst.args else inst.result
        lanes = f" x {value.lanes}" if value.lanes > 1 else ""
        return UnsupportedError("render", found=f"{inst.op.name} of {value.dtype.name}{lanes}",
                                expected="what the target supports",
                                hint="legalize the kernel first")
