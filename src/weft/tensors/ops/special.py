"""Elementwise functions composed of others: sign, logit, sinc, xlogy and the like."""

from __future__ import annotations

import builtins
import math
from typing import Self, cast

from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core.arguments import check_tensor
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.composed_sections import SPECIAL
from weft.tensors.docs.documented import documented
from weft.tensors.ops.arithmetic import as_operand, float_kind
from weft.tensors.ops.loss import Losses

__all__ = ["Special"]


class Special(Losses):
    """Signs, logarithms and comparisons under PyTorch's names."""

    __slots__ = ()

    def sgn(self) -> Self:
        """Return -1, 0 or 1 by the sign, as `sign`."""
        return self.sign()

    def signbit(self) -> Self:
        """Return whether the sign of each element is minus, that of -0.0 included."""
        if not self.dtype.is_float:
            return self.lt(0)
        return self._make_scalar(1.0, self.dtype).copysign(self).lt(0)

    def isposinf(self) -> Self:
        """Return whether each element is plus infinity."""
        return self.eq(math.inf)

    def isneginf(self) -> Self:
        """Return whether each element is minus infinity."""
        return self.eq(-math.inf)

    def isreal(self) -> Self:
        """Return whether each element is a real number: all are."""
        return self._from_node(infer.full(self.shape, True, dt.bool_))

    def heaviside(self, values: object) -> Self:
        """Return 0 below 0, 1 above 0, and `values` at 0."""
        at_zero = self.eq(0).where(values, self.gt(0).astype(self.dtype))
        return self.isnan().where(self, at_zero) if self.dtype.is_float else at_zero

    def logit(self, eps: float | None = None) -> Self:
        """Return ``log(x / (1 - x))`` of each element, limited to `eps` and ``1 - eps``."""
        kind = float_kind(self.dtype)
        x = self.astype(dt.compute_dtype(kind))
        x = x if eps is None else x.clamp(eps, 1 - eps)
        return x.log().sub(x.neg().add(1).log()).astype(kind)  # its slope at 0 and 1 is infinite

    def sinc(self) -> Self:
        """Return ``sin(pi x) / (pi x)`` of each element, 1 at 0."""
        kind = float_kind(self.dtype)
        zero = self.eq(0)
        x = zero.where(1, self).astype(dt.compute_dtype(kind)).mul(math.pi)
        near = zero.where(self, 0).astype(x.dtype).mul(math.pi)  # 1 with all of its slopes
        top = near.mul(near).div(-6).add(1)
        return zero.where(top, x.sin().div(x)).astype(kind)

    def xlogy(self, other: object) -> Self:
        """Return ``self * log(other)``, 0 where `self` is 0 and `other` no NaN."""
        y = as_operand(self, other)
        # Elsewhere 0 times a logarithm is 0 by itself, and its slope the logarithm.
        zero = self.eq(0).logical_and(y.le(0).logical_or(y.eq(math.inf)))
        return zero.where(0.0, self.mul(zero.where(1, y).log()))

    def logaddexp2(self, other: object) -> Self:
        """Return ``log2(2**self + 2**other)`` without overflow."""
        scale = math.log(2)
        y = as_operand(self, other)
        kind = float_kind(self.mul(y).dtype)
        wide = dt.compute_dtype(kind)
        x, y = self.astype(wide).mul(scale), y.astype(wide).mul(scale)
        return x.logaddexp(y).div(scale).astype(kind)

    def float_power(self, exponent: object) -> Self:
        """Return ``self ** exponent`` computed in float64."""
        return self.double().pow(as_operand(self, exponent).double() if isinstance(
            exponent, TensorCore) else exponent)

    def ldexp(self, other: object) -> Self:
        """Return ``self * 2 ** other``."""
        y = as_operand(self, other)
        kind = float_kind(self.mul(y).dtype)
        power = y.double()  # in two factors: 2 ** 1030 times a small number can be held
        half = power.mul(0.5).floor().clamp(-1000, 1000)
        return self.double().mul(half.exp2()).mul(power.sub(half).exp2()).astype(kind)

    def rsub(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Return ``other - alpha * self``."""
        return as_operand(self, other).sub(self, alpha=alpha)

    def equal(self, other: object) -> bool:
        """Return whether another tensor has the same shape and elements; computes them."""
        second = check_tensor(cast(TensorCore, other), "equal")
        return self.shape == second.shape and builtins.bool(self.eq(second).all())


documented(Special, SPECIAL)
