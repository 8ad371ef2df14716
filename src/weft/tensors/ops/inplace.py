"""In-place methods: arithmetic, filling and writes with masks."""

from __future__ import annotations

from typing import Any, Self

from weft.errors import DTypeError, ShapeError
from weft.ir import infer
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import CATEGORY
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.write_lock import every_write
from weft.tensors.docs.documented import documented
from weft.tensors.docs.reduction_sections import INPLACE
from weft.tensors.ops.ordering import Ordering

__all__ = ["InPlace"]


@every_write
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

    def _fitting(self, value: Any) -> Any:
        """Return an int as the type of the tensor has it: it wraps, as sums in place do."""
        if type(value) is not int or not self.dtype.is_integer:
            return value
        return (value - self.dtype.min) % (1 << self.dtype.bits) + self.dtype.min

    def fill_(self, value: Scalar) -> Self:
        """Set every element of this tensor to a number."""
        return self.copy_(value)

    def zero_(self) -> Self:
        """Set every element of this tensor to 0."""
        return self.copy_(0)

    def add_(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Add ``alpha * other`` to this tensor's elements."""
        result = self.add(self._fitting(other), alpha=self._fitting(alpha))
        return self._update(result, "add_")

    def sub_(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Subtract ``alpha * other`` from this tensor's elements."""
        result = self.sub(self._fitting(other), alpha=self._fitting(alpha))
        return self._update(result, "sub_")

    def mul_(self, other: object) -> Self:
        """Multiply this tensor's elements by `other`."""
        return self._update(self.mul(self._fitting(other)), "mul_")

    def div_(self, other: object, *, rounding_mode: str | None = None) -> Self:
        """Divide this tensor's elements by `other`."""
        return self._update(self.div(other, rounding_mode=rounding_mode), "div_")

    def pow_(self, other: object) -> Self:
        """Raise this tensor's elements to a power."""
        return self._update(self.pow(other), "pow_")

    def neg_(self) -> Self:
        """Negate this tensor's elements."""
        return self._update(self.neg(), "neg_")

    def exp_(self) -> Self:
        """Replace this tensor's elements by e to their power."""
        return self._update(self.exp(), "exp_")

    def sqrt_(self) -> Self:
        """Replace this tensor's elements by their square roots."""
        return self._update(self.sqrt(), "sqrt_")

    def relu_(self) -> Self:
        """Set this tensor's negative elements to 0."""
        return self._update(self.relu(), "relu_")

    def clamp_(self, min: object = None, max: object = None) -> Self:
        """Limit this tensor's elements to `min` and `max`."""
        return self._update(self.clamp(min, max), "clamp_")

    def lerp_(self, end: object, weight: object) -> Self:
        """Replace this tensor's elements by ``self + weight * (end - self)``."""
        return self._update(self.lerp(end, weight), "lerp_")

    def addcmul_(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Add ``value * a * b`` to this tensor's elements."""
        return self._update(self.addcmul(a, b, value=value), "addcmul_")

    def addcdiv_(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Add ``value * a / b`` to this tensor's elements."""
        return self._update(self.addcdiv(a, b, value=value), "addcdiv_")

    def masked_fill_(self, mask: object, value: object) -> Self:
        """Set this tensor's elements to `value` where `mask` holds."""
        return self._update(self.masked_fill(mask, value), "masked_fill_")

    def scatter_(self, dim: int, index: object, src: object, *, reduce: str | None = None) -> Self:
        """Write ``self[index[i, j], j] = src[i, j]`` (dim 0), in order."""
        return self._update(self.scatter(dim, index, src, reduce=reduce), "scatter_")

    def scatter_reduce_(self, dim: int, index: object, src: object, reduce: str, *,
                        include_self: bool = True) -> Self:  # fmt: skip
        """Combine this tensor with `src` at indices, as `scatter_reduce` does.

        Parameters
        ----------
        dim, index, src, reduce, include_self
            As for `scatter_reduce`.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError, DTypeError, AxisError
            As for `scatter_reduce`.
        GradientError
            If this tensor is a leaf that requires a gradient, and gradients are recorded.

        Examples
        --------
        >>> x = weft.ones(3)
        >>> x.scatter_reduce_(0, weft.tensor([1, 1]), weft.tensor([5.0, 2.0]), "amax")
        tensor([1., 5., 1.])
        """
        result = self.scatter_reduce(dim, index, src, reduce, include_self=include_self)
        return self._update(result, "scatter_reduce_")

    def scatter_add_(self, dim: int, index: object, src: object) -> Self:
        """Add ``self[index[i, j], j] += src[i, j]`` (dim 0)."""
        return self._update(self.scatter_add(dim, index, src), "scatter_add_")

    def index_add_(self, dim: int, index: object, source: object, *, alpha: Scalar = 1) -> Self:
        """Add ``alpha`` times slices of `source` to this tensor at indices of an axis."""
        return self._update(self.index_add(dim, index, source, alpha=alpha), "index_add_")

    def index_copy_(self, dim: int, index: object, source: object) -> Self:
        """Write slices of `source` to this tensor at indices of an axis, in order."""
        return self._update(self.index_copy(dim, index, source), "index_copy_")

    def index_fill_(self, dim: int, index: object, value: Scalar) -> Self:
        """Set the slices of this tensor at indices of an axis to a value."""
        return self._update(self.index_fill(dim, index, value), "index_fill_")

    def masked_scatter_(self, mask: object, source: object) -> Self:
        """Write the elements of `source`, in order, where `mask` is true."""
        return self._update(self.masked_scatter(mask, source), "masked_scatter_")

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
        return self._update(self.bitwise_and(self._fitting(other)), "and_")

    def __ior__(self, other: object) -> Self:
        return self._update(self.bitwise_or(self._fitting(other)), "or_")

    def __ixor__(self, other: object) -> Self:
        return self._update(self.bitwise_xor(self._fitting(other)), "xor_")

    def __ifloordiv__(self, other: object) -> Self:
        return self._update(self.floor_divide(other), "floor_divide_")

    def __ilshift__(self, other: object) -> Self:
        return self._update(self.bitwise_left_shift(other), "bitwise_left_shift_")

    def __irshift__(self, other: object) -> Self:
        return self._update(self.bitwise_right_shift(other), "bitwise_right_shift_")

    def __imod__(self, other: object) -> Self:
        return self._update(self.remainder(other), "remainder_")


documented(InPlace, INPLACE)
