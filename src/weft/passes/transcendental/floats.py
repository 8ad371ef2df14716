"""Bit layout of binary floats, and the few shapes every approximation here is written with.

Everything is free of tables in memory, and of branches but for `seldom`: polynomials in fused
multiply-adds, and exponent arithmetic on the bit pattern. No float is ever converted to an integer
by a cast (the IR's saturating cast costs several instructions); adding ``1.5 * 2**mantissa`` leaves
the rounded integer in the low bits of the sum instead.
"""

import math
from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Expr, Scalar, bitcast, const, mad, unary, where
from weft.ir.op import Op
from weft.ir.record import Record


class Layout(Record):
    """One binary format and the integer types of its width."""

    real: DType
    signed: DType
    unsigned: DType
    mantissa: int
    bias: int

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def rounder(self) -> float:
        """The number that, added to a small x, rounds x to an integer (to nearest even)."""
        return 1.5 * 2.0**self.mantissa

    @property
    def rounder_bits(self) -> int:
        """The bit pattern of `rounder`."""
        return (self.mantissa + self.bias) << self.mantissa | 1 << (self.mantissa - 1)

    @property
    def sign_bit(self) -> int:
        """The bit pattern of -0."""
        return 1 << (self.real.bits - 1)


SINGLE: Final = Layout(dt.float32, dt.int32, dt.uint32, 23, 127)
DOUBLE: Final = Layout(dt.float64, dt.int64, dt.uint64, 52, 1023)


def layout(x: Expr) -> Layout:
    """Return the layout of the type of `x`, float32 or float64."""
    return SINGLE if x.dtype is dt.float32 else DOUBLE


def select(condition: Expr, a: Expr | Scalar, b: Expr | Scalar, like: Expr) -> Expr:
    """Return ``where(condition, a, b)``, scalars taking the type of `like`."""
    return where(condition, lift(a, like), lift(b, like))


def seldom(condition: Expr, rare: Expr, usual: Expr) -> Expr:
    """Return ``where(condition, rare, usual)``, `rare` computed only if some lane takes it.

    Worth a test and a jump where `rare` takes a dozen instructions and typical vectors none.
    """
    return where(unary(Op.UNLIKELY, condition), rare, usual)


def lift(value: Expr | Scalar, like: Expr) -> Expr:
    """Return `value` as an expression of the type and lanes of `like`."""
    return value if isinstance(value, Expr) else const(value, like.dtype, like.lanes)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the polynomial ``c[0] + c[1]*x + c[2]*x**2 + ...`` in fused multiply-adds."""
    value = lift(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        value = mad(value, x, c)
    return value


def horner_halves(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the polynomial as `horner` does, even and odd powers apart.

    One operation more in half as many dependent steps, for what has two dozen coefficients.
    """
    square = x * x
    return mad(x, horner(square, coefficients[1::2]), horner(square, coefficients[::2]))


def horner_either(condition: Expr, x: Expr, yes: Sequence[float], no: Sequence[float]) -> Expr:
    """Return the polynomial `yes` where a condition holds, else the polynomial `no`, in one pass.

    Lanes differ in their coefficients: choosing one takes half the time of a multiplication.
    """
    both = min(len(yes), len(no))
    chosen = [where(condition, lift(a, x), lift(b, x)) for a, b in zip(yes, no, strict=False)]
    if len(yes) > both:
        value = where(condition, horner(x, yes[both:]), lift(0.0, x))
    elif len(no) > both:
        value = where(condition, lift(0.0, x), horner(x, no[both:]))
    else:
        value = chosen.pop()
    for c in reversed(chosen):
        value = mad(value, x, c)
    return value


def fast_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return ``a + b`` and its rounding error, given abs(a) >= abs(b) or a = 0 (Dekker 1971)."""
    total = a + b
    return total, b - (total - a)


def at_most(x: Expr, limit: float) -> Expr:
    """Return the smaller of `x` and `limit`, NaN for NaN, in one instruction on most machines."""
    return where(x.gt(limit), lift(limit, x), x)


def at_least(x: Expr, limit: float) -> Expr:
    """Return the larger of `x` and `limit`, NaN for NaN, in one instruction on most machines."""
    return where(x.lt(limit), lift(limit, x), x)


def magnitude(x: Expr) -> Expr:
    """Return ``abs(x)``."""
    f = layout(x)
    return bitcast(bitcast(x, f.unsigned) & (f.sign_bit - 1), f.real)


def sign_of(x: Expr) -> Expr:
    """Return the sign bit of `x`, in place, as an unsigned integer."""
    f = layout(x)
    return bitcast(x, f.unsigned) & f.sign_bit


def with_sign(x: Expr, sign: Expr) -> Expr:
    """Return `x` with the sign flipped where `sign` (unsigned) has the sign bit set."""
    f = layout(x)
    return bitcast(bitcast(x, f.unsigned) ^ sign, f.real)


def power_of_two(biased: Expr, f: Layout) -> Expr:
    """Return ``2**(n - bias)`` for an integer whose low bits are n; the higher bits are dropped."""
    return bitcast(biased << f.mantissa, f.real)


def rounded(x: Expr, f: Layout, *, offset: int = 0) -> tuple[Expr, Expr]:
    """Split a sum made with `rounder`: the integer value, and the bits of integer plus offset.

    `x` is ``value + (rounder + offset)``; only its low bits are meaningful as an integer.
    """
    return x - (f.rounder + offset), bitcast(x, f.unsigned)


NAN: Final = math.nan
INF: Final = math.inf
