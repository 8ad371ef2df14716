"""Functions of each element that replace a tensor's own elements."""

from __future__ import annotations

from typing import Self

from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.write_lock import every_write
from weft.tensors.docs.documented import documented
from weft.tensors.docs.inplace_sections import FUNCTIONS
from weft.tensors.ops.inplace import InPlace

__all__ = ["InPlaceFunctions"]


@every_write
class InPlaceFunctions(InPlace):
    """Each computes what the method without the underscore computes, and writes it back."""

    __slots__ = ()

    def exp2_(self) -> Self:
        """Replace this tensor's elements by 2 to their power."""
        return self._update(self.exp2(), "exp2_")

    def expm1_(self) -> Self:
        """Replace this tensor's elements by e to their power, less 1."""
        return self._update(self.expm1(), "expm1_")

    def log_(self) -> Self:
        """Replace this tensor's elements by their natural logarithms."""
        return self._update(self.log(), "log_")

    def log2_(self) -> Self:
        """Replace this tensor's elements by their logarithms to base 2."""
        return self._update(self.log2(), "log2_")

    def log10_(self) -> Self:
        """Replace this tensor's elements by their logarithms to base 10."""
        return self._update(self.log10(), "log10_")

    def log1p_(self) -> Self:
        """Replace this tensor's elements by the logarithms of 1 more."""
        return self._update(self.log1p(), "log1p_")

    def sin_(self) -> Self:
        """Replace this tensor's elements by their sines."""
        return self._update(self.sin(), "sin_")

    def cos_(self) -> Self:
        """Replace this tensor's elements by their cosines."""
        return self._update(self.cos(), "cos_")

    def tan_(self) -> Self:
        """Replace this tensor's elements by their tangents."""
        return self._update(self.tan(), "tan_")

    def tanh_(self) -> Self:
        """Replace this tensor's elements by their hyperbolic tangents."""
        return self._update(self.tanh(), "tanh_")

    def erf_(self) -> Self:
        """Replace this tensor's elements by their error functions."""
        return self._update(self.erf(), "erf_")

    def sigmoid_(self) -> Self:
        """Replace this tensor's elements by their sigmoids."""
        return self._update(self.sigmoid(), "sigmoid_")

    def rsqrt_(self) -> Self:
        """Replace this tensor's elements by 1 over their square roots."""
        return self._update(self.rsqrt(), "rsqrt_")

    def reciprocal_(self) -> Self:
        """Replace this tensor's elements by 1 over them."""
        return self._update(self.reciprocal(), "reciprocal_")

    def abs_(self) -> Self:
        """Replace this tensor's elements by their absolute values."""
        return self._update(self.abs(), "abs_")

    def sign_(self) -> Self:
        """Replace this tensor's elements by their signs."""
        return self._update(self.sign(), "sign_")

    def ceil_(self) -> Self:
        """Replace this tensor's elements by integers not below them."""
        return self._update(self.ceil(), "ceil_")

    def floor_(self) -> Self:
        """Replace this tensor's elements by integers not above them."""
        return self._update(self.floor(), "floor_")

    def trunc_(self) -> Self:
        """Replace this tensor's elements by themselves without their fractions."""
        return self._update(self.trunc(), "trunc_")

    def round_(self) -> Self:
        """Replace this tensor's elements by the nearest integers, halves to even."""
        return self._update(self.round(), "round_")

    def frac_(self) -> Self:
        """Replace this tensor's elements by their fractions."""
        return self._update(self.frac(), "frac_")

    def square_(self) -> Self:
        """Replace this tensor's elements by their squares."""
        return self._update(self.square(), "square_")

    def logical_not_(self) -> Self:
        """Replace this tensor's elements by whether they are zero."""
        return self._update(self.logical_not(), "logical_not_")

    def bitwise_not_(self) -> Self:
        """Replace this tensor's integers or bools by their complements."""
        return self._update(self.bitwise_not(), "bitwise_not_")

    def nan_to_num_(self, nan: Scalar = 0.0, posinf: Scalar | None = None,
                    neginf: Scalar | None = None) -> Self:
        """Replace NaN and infinities in this tensor by numbers."""
        return self._update(self.nan_to_num(nan, posinf, neginf), "nan_to_num_")

    def clip_(self, min: object = None, max: object = None) -> Self:
        """Limit this tensor's elements to `min` and `max`."""
        return self._update(self.clamp(min, max), "clip_")

    def clamp_min_(self, min: object) -> Self:
        """Limit this tensor's elements to at least `min`."""
        return self._update(self.clamp_min(min), "clamp_min_")

    def clamp_max_(self, max: object) -> Self:
        """Limit this tensor's elements to at most `max`."""
        return self._update(self.clamp_max(max), "clamp_max_")

    def remainder_(self, other: object) -> Self:
        """Replace this tensor's elements by their remainders, with the sign of the divisor."""
        return self._update(self.remainder(other), "remainder_")

    def fmod_(self, other: object) -> Self:
        """Replace this tensor's elements by their remainders, with their own sign."""
        return self._update(self.fmod(other), "fmod_")

    def floor_divide_(self, other: object) -> Self:
        """Replace this tensor's elements by their quotients, rounded down."""
        return self._update(self.floor_divide(other), "floor_divide_")

    def bitwise_and_(self, other: object) -> Self:
        """Replace this tensor's elements by their bitwise and with `other`."""
        return self._update(self.bitwise_and(self._fitting(other)), "bitwise_and_")

    def bitwise_or_(self, other: object) -> Self:
        """Replace this tensor's elements by their bitwise or with `other`."""
        return self._update(self.bitwise_or(self._fitting(other)), "bitwise_or_")

    def bitwise_xor_(self, other: object) -> Self:
        """Replace this tensor's elements by their bitwise exclusive or with `other`."""
        return self._update(self.bitwise_xor(self._fitting(other)), "bitwise_xor_")

    def bitwise_left_shift_(self, other: object) -> Self:
        """Shift the bits of this tensor's integers to the left."""
        return self._update(self.bitwise_left_shift(other), "bitwise_left_shift_")

    def bitwise_right_shift_(self, other: object) -> Self:
        """Shift the bits of this tensor's integers to the right."""
        return self._update(self.bitwise_right_shift(other), "bitwise_right_shift_")

    def logical_and_(self, other: object) -> Self:
        """Replace this tensor's elements by whether both are not zero."""
        return self._update(self.logical_and(other), "logical_and_")

    def logical_or_(self, other: object) -> Self:
        """Replace this tensor's elements by whether one of the two is not zero."""
        return self._update(self.logical_or(other), "logical_or_")

    def logical_xor_(self, other: object) -> Self:
        """Replace this tensor's elements by whether exactly one of the two is not zero."""
        return self._update(self.logical_xor(other), "logical_xor_")

    def eq_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are equal to `other`."""
        return self._update(self.eq(other), "eq_")

    def ne_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are not equal to `other`."""
        return self._update(self.ne(other), "ne_")

    def lt_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are less than `other`."""
        return self._update(self.lt(other), "lt_")

    def le_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are at most `other`."""
        return self._update(self.le(other), "le_")

    def gt_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are greater than `other`."""
        return self._update(self.gt(other), "gt_")

    def ge_(self, other: object) -> Self:
        """Replace this tensor's elements by whether they are at least `other`."""
        return self._update(self.ge(other), "ge_")

    def tril_(self, diagonal: int = 0) -> Self:
        """Set what is outside of this tensor's lower triangle to 0."""
        return self._update(self.tril(diagonal), "tril_")

    def triu_(self, diagonal: int = 0) -> Self:
        """Set what is outside of this tensor's upper triangle to 0."""
        return self._update(self.triu(diagonal), "triu_")

    def cumsum_(self, dim: int) -> Self:
        """Replace this tensor's elements by running sums along an axis."""
        return self._update(self.cumsum(dim), "cumsum_")

    def cumprod_(self, dim: int) -> Self:
        """Replace this tensor's elements by running products along an axis."""
        return self._update(self.cumprod(dim), "cumprod_")


documented(InPlaceFunctions, FUNCTIONS)
