"""Methods that change a tensor in place."""

from __future__ import annotations

from typing import Self

from weft.errors import DTypeError, ShapeError
from weft.frontend.core import Scalar, TensorCore
from weft.frontend.ordering import Ordering
from weft.frontend.promotion import CATEGORY
from weft.ir import infer

__all__ = ["InPlace"]


class InPlace(Ordering):
    """Writes: each computes a new value, and gives it to the tensor and all its views."""

    __slots__ = ()

    def assign(self, source: object) -> Self:
        """Replace the elements by those of `source`, broadcast and converted."""
        return self.copy_(source)

    def _update(self, result: TensorCore, name: str) -> Self:
        if result.shape != self.shape:
            raise ShapeError(name, found=f"a result of {result.shape}",
                             expected=f"the shape of the tensor, {self.shape}")
        if CATEGORY[result.dtype.kind] > CATEGORY[self.dtype.kind]:
            raise DTypeError(name, found=f"a result of {result.dtype.name}",
                             expected=f"{self.dtype.name}, the type of the tensor")
        self._write(infer.cast(result._read(), self.dtype), self, result)
        return self

    def fill_(self, value: Scalar) -> Self:
        """Set every element."""
        return self.copy_(value)

    def zero_(self) -> Self:
        """Set every element to 0."""
        return self.copy_(0)

    def add_(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Add in place."""
        return self._update(self.add(other, alpha=alpha), "add_")

    def sub_(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Subtract in place."""
        return self._update(self.sub(other, alpha=alpha), "sub_")

    def mul_(self, other: object) -> Self:
        """Multiply in place."""
        return self._update(self.mul(other), "mul_")

    def div_(self, other: object) -> Self:
        """Divide in place."""
        return self._update(self.div(other), "div_")

    def pow_(self, other: object) -> Self:
        """Raise to a power in place."""
        return self._update(self.pow(other), "pow_")

    def neg_(self) -> Self:
        """Negate in place."""
        return self._update(self.neg(), "neg_")

    def exp_(self) -> Self:
        """Exponentiate in place."""
        return self._update(self.exp(), "exp_")

    def sqrt_(self) -> Self:
        """Take square roots in place."""
        return self._update(self.sqrt(), "sqrt_")

    def relu_(self) -> Self:
        """Set negative elements to 0."""
        return self._update(self.relu(), "relu_")

    def clamp_(self, min: object = None, max: object = None) -> Self:
        """Limit the elements in place."""
        return self._update(self.clamp(min, max), "clamp_")

    def lerp_(self, end: object, weight: object) -> Self:
        """Move towards `end` in place."""
        return self._update(self.lerp(end, weight), "lerp_")

    def addcmul_(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Add a scaled product in place."""
        return self._update(self.addcmul(a, b, value=value), "addcmul_")

    def addcdiv_(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Add a scaled quotient in place."""
        return self._update(self.addcdiv(a, b, value=value), "addcdiv_")

    def masked_fill_(self, mask: object, value: object) -> Self:
        """Set the elements where `mask` holds."""
        return self._update(self.masked_fill(mask, value), "masked_fill_")

    def scatter_(self, dim: int, index: object, src: object) -> Self:
        """Scatter in place."""
        return self._update(self.scatter(dim, index, src), "scatter_")

    def scatter_add_(self, dim: int, index: object, src: object) -> Self:
        """Add at indices in place."""
        return self._update(self.scatter_add(dim, index, src), "scatter_add_")

    def index_add_(self, dim: int, index: object, source: object) -> Self:
        """Add slices at places of an axis in place."""
        return self._update(self.index_add(dim, index, source), "index_add_")

    def __iadd__(self, other: object) -> Self:
        return self.add_(other)

    def __isub__(self, other: object) -> Self:
        return self.sub_(other)

    def __imul__(self, other: object) -> Self:
        return self.mul_(other)

    def __itruediv__(self, other: object) -> Self:
        return self.div_(other)

    def __ipow__(self, other: object) -> Self:
        return self.pow_(other)

    def __iand__(self, other: object) -> Self:
        return self._update(self.bitwise_and(other), "and_")

    def __ior__(self, other: object) -> Self:
        return self._update(self.bitwise_or(other), "or_")

    def __ixor__(self, other: object) -> Self:
        return self._update(self.bitwise_xor(other), "xor_")

    def __ifloordiv__(self, other: object) -> Self:
        return self._update(self.floor_divide(other), "floor_divide_")

    def __imod__(self, other: object) -> Self:
        return self._update(self.remainder(other), "remainder_")
