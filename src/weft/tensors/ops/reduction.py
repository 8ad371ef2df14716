"""Reductions, scans (running reductions) and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op
from weft.tensors.core.arguments import computes, count_of, number
from weft.tensors.core.promotion import broadcast_shapes
from weft.tensors.core.source_positions import stamp
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.reduction_sections import REDUCE
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.join import cat
from weft.tensors.ops.repetition import Repetition

__all__ = ["Reduction", "ValuesIndices"]

Axes = int | Sequence[int] | None


class ValuesIndices(NamedTuple):
    """Values of an axis and their indices along it, int64, both of the same shape."""

    values: Any
    indices: Any


class Reduction(Repetition):
    """Methods that reduce axes, or run along one."""

    __slots__ = ()

    def _reduced(self, x: Node, kind: str, axes: tuple[int, ...], keepdim: bool) -> Node:
        out = infer.reduce(x, kind, axes)
        return infer.reshape(out, _kept(x.shape, axes)) if keepdim else out

    def _summand(self, dtype: object) -> Node:
        """Return the elements in the type in which their sum is given."""
        x = self._read()
        if dtype is not None:
            return infer.cast(x, dt.as_dtype(dtype))
        if x.dtype.is_float:
            return infer.cast(x, dt.float32) if x.dtype.is_storage_only else x
        return infer.cast(x, dt.int64)

    def sum(self, dim: Axes = None, keepdim: bool = False, *, dtype: object = None,
            axis: Axes = None, keepdims: bool = False) -> Self:  # fmt: skip
        """Return sums over axes (all by default); integers and bool sum as int64."""
        axes = self._axes(axis if dim is None else dim, "sum")
        if dtype is not None and dt.as_dtype(dtype).is_bool:
            return self.any(axes, keepdim or keepdims)
        return self._wrap(self._reduced(self._summand(dtype), "sum", axes, keepdim or keepdims))

    def prod(self, dim: Axes = None, keepdim: bool = False, *, dtype: object = None,
             axis: Axes = None, keepdims: bool = False) -> Self:  # fmt: skip
        """Return products over axes (all by default)."""
        axes = self._axes(axis if dim is None else dim, "prod")
        if dtype is not None and dt.as_dtype(dtype).is_bool:
            return self.all(axes, keepdim or keepdims)
        return self._wrap(self._reduced(self._summand(dtype), "prod", axes, keepdim or keepdims))

    def mean(self, dim: Axes = None, keepdim: bool = False, *, dtype: object = None,
             axis: Axes = None, keepdims: bool = False) -> Self:  # fmt: skip
        """Return arithmetic means over axes (all by default)."""
        axes = self._axes(axis if dim is None else dim, "mean")
        x, out = self._float_input("mean", dtype)
        return x.sum(axes, keepdim or keepdims).div(self._count(axes)).astype(out)

    def _float_input(self, name: str, dtype: object = None) -> tuple[Self, DType]:
        """Return the elements in the type to compute in, and the result's type."""
        x = self if dtype is None else self.astype(dtype)
        if not x.dtype.is_float:
            raise DTypeError(name, found=x.dtype.name, expected="a float type",
                             hint="pass dtype=weft.float32")
        return x.astype(dt.compute_dtype(x.dtype)), x.dtype

    def _count(self, axes: tuple[int, ...]) -> Any:
        return math.prod(self.shape[a] for a in axes)

    def var(self, dim: Axes = None, correction: Scalar = 1, keepdim: bool = False, *,
            unbiased: bool | None = None, axis: Axes = None, keepdims: bool = False,
            ddof: Scalar | None = None) -> Self:  # fmt: skip
        """Return variances over axes (all by default); divides by ``n - correction``."""
        # Two passes, the second corrected by the sum of the deviations: what the mean lost when it
        # was rounded (Chan, Golub and LeVeque, 1983). Where squares overflow the result is inf: the
        # correction is kept finite, for inf - inf would be NaN.
        wide, out = self._variance("var", dim, correction if ddof is None else ddof,
                                   keepdim or keepdims, unbiased, axis)
        return wide.astype(out)

    def std(self, dim: Axes = None, correction: Scalar = 1, keepdim: bool = False, *,
            unbiased: bool | None = None, axis: Axes = None, keepdims: bool = False,
            ddof: Scalar | None = None) -> Self:  # fmt: skip
        """Return standard deviations over axes; divides by ``n - correction``.

        Gradients of equal elements are 0.
        """
        wide, out = self._variance("std", dim, correction if ddof is None else ddof,
                                   keepdim or keepdims, unbiased, axis)
        equal = wide.eq(0)
        return equal.where(0.0, equal.where(1.0, wide).sqrt()).astype(out)

    def _variance(self, name: str, dim: Axes, correction: Scalar, keep: bool,
                  unbiased: bool | None, axis: Axes) -> tuple[Self, DType]:  # fmt: skip
        """Return variances in the type that squares are added in, and the result's type.

        Squares are all positive, so that each rounding of their sum would count in full: elements
        of float32 are subtracted, squared and added in float64, and the result is rounded once;
        on a device that does not compute float64, in float32, where sums are made of blocks.
        """
        if isinstance(correction, bool) and unbiased is None:
            unbiased, correction = correction, 1
        if unbiased is not None:
            correction = 1 if unbiased else 0
        correction = number(correction, name)
        axes = self._axes(axis if dim is None else dim, name)
        x, out = self._float_input(name)
        wide = x.dtype
        if out is dt.float32 and computes(x._read(), dt.float64):
            wide = dt.float64
        centred = x.astype(wide).sub(x.mean(axes, True).astype(wide))
        total = centred.mul(centred).sum(axes, keep)
        drift = centred.detach().sum(axes, keep)
        drift = drift.mul(drift).minimum(2.0 ** ((1 << (wide.exponent - 1)) - 1))
        count = self._count(axes)
        if isinstance(count, Expr):
            size = self._from_node(infer.of_size(count)).astype(wide)
            total = total.sub(drift.div(size)).maximum(0.0)
            return total.div(size.sub(correction).maximum(0.0)), out
        total = total.sub(drift.div(max(count, 1))).maximum(0.0)
        return total.div(max(count - correction, 0.0)), out

    def var_mean(self, dim: Axes = None, correction: Scalar = 1, keepdim: bool = False
                 ) -> tuple[Self, Self]:  # fmt: skip
        """Return variances and means over axes (all by default)."""
        return self.var(dim, correction, keepdim), self.mean(dim, keepdim)

    def amax(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return the largest elements over axes (all by default); NaN if there is one."""
        return self._wrap(self._reduced(self._read(), "max", self._axes(dim, "amax"), keepdim))

    def amin(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return the smallest elements over axes (all by default); NaN if there is one."""
        return self._wrap(self._reduced(self._read(), "min", self._axes(dim, "amin"), keepdim))

    def aminmax(self, dim: int | None = None, keepdim: bool = False) -> tuple[Self, Self]:
        """Return the smallest and the largest elements (of all, or along an axis)."""
        return self.amin(dim, keepdim), self.amax(dim, keepdim)

    def max(self, dim: Any = None, keepdim: bool = False, *, axis: Axes = None,
            keepdims: bool = False) -> Any:  # fmt: skip
        """Return the largest element; with `dim`, (values, indices); of two tensors, the larger."""
        if isinstance(dim, Repetition):
            return self.maximum(dim)
        if dim is None:
            found = self.amax(axis, keepdim or keepdims)
            return found if axis is not None else self._shared_evenly(found)
        return self._extreme("max", dim, keepdim)

    def min(self, dim: Any = None, keepdim: bool = False, *, axis: Axes = None,
            keepdims: bool = False) -> Any:  # fmt: skip
        """Return the smallest element; with `dim`, (values, indices); of two, the smaller."""
        if isinstance(dim, Repetition):
            return self.minimum(dim)
        if dim is None:
            found = self.amin(axis, keepdim or keepdims)
            return found if axis is not None else self._shared_evenly(found)
        return self._extreme("min", dim, keepdim)

    def _shared_evenly(self, found: Self) -> Self:
        """Return one of all elements with a gradient that all of its value share, NaN included."""
        if not (self._requires_grad and state.grad):
            return found
        x, value = self.detach(), found.detach()
        same = x.eq(value).logical_or(x.isnan().logical_and(value.isnan()))
        wide = dt.accumulator_dtype(self.dtype)
        mean = same.where(self.astype(wide), 0.0).sum().div(same.astype(wide).sum())
        history = mean.astype(self.dtype).reshape(found.shape)
        return self._wrap(infer.overwritten(value._read(), history._read()))

    def _extreme(self, kind: str, dim: int, keepdim: bool) -> ValuesIndices:
        if not self.shape:
            return self._row(dim, kind)._extreme(kind, 0, False)
        axis = self._axis(dim, kind)
        if self._requires_grad and state.grad and self.shape:
            # the gradient goes to the element that the index names, not evenly to all equal ones
            places = infer.argreduce(self._read(), kind, axis)
            index = infer.reshape(places, _kept(self.shape, (axis,)))
            picked = self._wrap(stamp(infer.gather(self._read(), index, axis, kind)))
            return ValuesIndices(picked if keepdim else picked._wrap(
                infer.reshape(picked._read(), places.shape)), self._arg(kind, axis, keepdim))
        values = self._wrap(self._reduced(self._read(), kind, (axis,), keepdim))
        return ValuesIndices(values, self._arg(kind, axis, keepdim))

    def _arg(self, kind: str, dim: int | None, keepdim: bool) -> Self:
        if not self.shape:
            row = self._row(0 if dim is None else dim, f"arg{kind}")
            return self._wrap(infer.argreduce(row._read(), kind, 0))
        x = self if dim is not None else self.ravel()
        axis = x._axis(0 if dim is None else dim, f"arg{kind}")
        node = infer.argreduce(x._read(), kind, axis)
        if not keepdim:
            return self._wrap(node)
        shape = _kept(x.shape, (axis,)) if dim is not None else (1,) * len(self.shape)
        return self._wrap(infer.reshape(node, shape))

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return the index of the first largest element (along an axis, or in row-major order)."""
        return self._arg("max", dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return the index of the first smallest element (along an axis, or in row-major order)."""
        return self._arg("min", dim, keepdim)

    def any(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return whether any element is not zero, over axes (all by default)."""
        x = self.bool()._read()
        return self._wrap(self._reduced(x, "any", self._axes(dim, "any"), keepdim))

    def all(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return whether all elements are not zero, over axes (all by default)."""
        x = self.bool()._read()
        return self._wrap(self._reduced(x, "all", self._axes(dim, "all"), keepdim))

    def count_nonzero(self, dim: Axes = None) -> Self:
        """Return how many elements are not zero, over axes (all by default)."""
        return self.bool().sum(dim)

    def logsumexp(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return ``log(sum(exp(self)))`` over axes (all by default), without overflow."""
        axes = self._axes(dim, "logsumexp")
        x, out = (self if self.dtype.is_float else self.float())._float_input("logsumexp")
        if any(infer.same_dim(self.shape[a], 0) for a in axes):
            return x.sum(axes, keepdim).log().astype(out)
        top = x.amax(axes, True).detach()
        top = top.abs().eq(math.inf).where(0.0, top)
        total = x.sub(top).exp().sum(axes, True).log().add(top)
        if not keepdim:
            total = total.reshape([n for a, n in enumerate(self.shape) if a not in axes])
        return total.astype(out)

    def norm(self, p: Scalar | str = 2, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return vector p-norms over axes (all by default)."""
        axes = self._axes(dim, "norm")
        x, out = self._float_input("norm")
        if p in ("fro", 2):
            total = x.mul(x).sum(axes, keepdim)._root(0.5)
        elif p == 1:
            total = x.abs().sum(axes, keepdim)
        elif p == math.inf:
            total = x.abs().amax(axes, keepdim)
        elif p == -math.inf:
            total = x.abs().amin(axes, keepdim)
        elif p == 0:
            total = x.ne(0).astype(x.dtype).sum(axes, keepdim)
        elif isinstance(p, str):
            raise ShapeError("norm", found=f"p={p!r}", expected="a number or 'fro'")
        else:
            total = x.abs().pow(p).sum(axes, keepdim)._root(1.0 / p)
        return total.astype(out)

    def _root(self, power: float) -> Self:
        """Return a root of sums of powers, whose gradient is 0 where all summands are 0."""
        if not (self._requires_grad and state.grad):
            return self.pow(power)
        zero = self.eq(0)
        return zero.where(self, zero.where(1.0, self).pow(power))

    def normalize(self, p: Scalar = 2.0, dim: int = 1, eps: Scalar = 1e-12) -> Self:
        """Return the tensor divided by its p-norm along an axis."""
        return self.div(self.norm(p, dim, True).maximum(eps))

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the lower of the two middle elements, as PyTorch does; NaN if there is one.

        Of all elements, or along an axis: the values and their indices. (NumPy's median is the
        mean of the two.)
        """
        if dim is None:
            if self.dtype.is_float and 0 in self.shape:
                return self._wrap(infer.full((), math.nan, self.dtype))
            return self._shared_evenly(self.ravel().median(0).values)
        if not self.shape:
            return self._row(dim, "median").median(0)
        axis = self._axis(dim, "median")
        n = self.shape[axis]
        if n < 1:
            raise ShapeError("median", found=f"{self.shape}", expected="at least one element")
        found = infer.sort(self._read(), axis)
        values, indices = (self._wrap(s).narrow(axis, (n - 1) // 2, 1) for s in found)
        if self.dtype.is_float:  # NaN come last, in the order they had
            count = self.detach().isnan().astype(dt.int64).sum(axis, keepdim=True)
            first = (n - count).minimum(n - 1)._read()
            values, indices = (count.gt(0).where(self._wrap(infer.gather(s, first, axis)), t)
                               for s, t in zip(found, (values, indices), strict=True))
        if not keepdim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return ValuesIndices(values, indices)

    # running reductions

    def _scan(self, kind: str, dim: int, dtype: object = None) -> Self:
        axis = self._axis(dim, f"cum{kind}") if self.shape else infer.check_axis(dim, 1, "cum")
        x = self._summand(dtype) if kind in ("sum", "prod") else self._read()
        if not self.shape:
            return self._wrap(x)
        narrow = x.dtype
        x = infer.cast(x, dt.compute_dtype(narrow))
        return self._wrap(infer.cast(infer.scan(x, kind, axis), narrow))

    def cumsum(self, dim: int = 0, *, dtype: object = None) -> Self:
        """Return running sums along an axis."""
        return self._scan("sum", dim, dtype)

    def cumprod(self, dim: int = 0, *, dtype: object = None) -> Self:
        """Return running products along an axis."""
        return self._scan("prod", dim, dtype)

    def linear_recurrence(self, terms: object, dim: int = -1, *, initial: object = None,
                          reverse: bool = False) -> Self:  # fmt: skip
        """Return ``h[k] = self[k] * h[k - 1] + terms[k]`` along an axis.

        The scan of gated recurrent and state-space layers; its gradient is such a recurrence from
        the other end.

        Parameters
        ----------
        terms : Tensor, array, nested list or number
            Broadcast with the factors (self).
        dim : int, optional
            The axis; a negative one counts from the last.
        initial : Tensor or number, optional
            ``h[-1]``, of the shape of one step or 0 if None: then the first factor does not count.
        reverse : bool, optional
            Begin at the end of the axis: ``h[k] = self[k] * h[k + 1] + terms[k]``.

        Returns
        -------
        Tensor
            All of ``h``, of the broadcast shape; integers give float32.

        Raises
        ------
        ShapeError
            If the shapes do not broadcast.
        AxisError
            If the axis is out of range.
        """
        b = as_operand(self, terms)
        shape = broadcast_shapes("linear_recurrence", self.shape, b.shape)
        a, b = self.expand(shape), b.expand(shape)
        axis = a._axis(dim, "linear_recurrence")
        out = dt.promote(a.dtype, b.dtype)
        out = out if out.is_float else dt.float32
        wide = dt.compute_dtype(out)
        a, b = a.astype(wide), b.astype(wide)
        if initial is not None and shape[axis] != 0:
            first = a._wrap(infer.iota(shape[axis])).eq(shape[axis] - 1 if reverse else 0)
            first = first.reshape([-1 if n == axis else 1 for n in range(len(shape))])
            before = as_operand(self, initial).astype(wide)
            if len(before.shape) == len(shape) - 1:
                before = before.unsqueeze(axis)
            b = first.where(a.mul(before).add(b), b)
        found = infer.recurrence(a._read(), b._read(), axis, reverse)
        return self._wrap(infer.cast(found, out))

    def cummax(self, dim: int = 0) -> ValuesIndices:
        """Return running maxima along an axis, and the index of each one (the last of equals)."""
        return self._running("max", dim)

    def cummin(self, dim: int = 0) -> ValuesIndices:
        """Return running minima along an axis, and the index of each one (the last of equals)."""
        return self._running("min", dim)

    def _running(self, kind: str, dim: int) -> ValuesIndices:
        if not self.shape:
            values, indices = self._row(dim, f"cum{kind}")._running(kind, 0)
            return ValuesIndices(values.reshape(()), indices.reshape(()))
        axis = self._axis(dim, f"cum{kind}")
        if self.dtype.is_bool:
            values, indices = self.astype(dt.uint8)._running(kind, dim)
            return ValuesIndices(values.astype(dt.bool_), indices)
        values = self._scan(kind, axis)
        is_new = self.eq(values).logical_or(self.isnan())._read()
        n = self.shape[axis]
        shape = [n if a == axis else 1 for a in range(len(self.shape))]
        position = infer.expand(infer.reshape(infer.iota(n), shape), self.shape)
        marked = infer.elementwise(Op.WHERE, is_new, position, infer.full(self.shape, 0, dt.int64))
        return ValuesIndices(values, self._wrap(infer.scan(marked, "max", axis)))

    def logcumsumexp(self, dim: int = 0) -> Self:
        """Return running ``log(sum(exp(self)))`` along an axis, without overflow or underflow."""
        x, out = (self if self.dtype.is_float else self.float())._float_input("logcumsumexp")
        axis = x._axis(dim, "logcumsumexp") if x.shape else infer.check_axis(dim, 1, "logcumsumexp")
        if not x.shape:
            return x.astype(out)
        return self._wrap(infer.scan(x._read(), "logsumexp", axis)).astype(out)

    def diff(self, n: int = 1, dim: int = -1, *, prepend: object = None, append: object = None
             ) -> Self:  # fmt: skip
        """Return differences of neighbours along an axis, `n` times."""
        axis = self._axis(dim, "diff")
        if prepend is not None or append is not None:
            ends = [None if e is None else as_operand(self, e) for e in (prepend, append)]
            return cat([t for t in (ends[0], self, ends[1]) if t is not None], axis).diff(n, axis)
        out = self
        for _ in range(min(count_of(n, "diff", 0), out.shape[axis])):
            size = out.shape[axis]
            later = out._slice(axis, min(1, size), max(size - 1, 0))
            before = out._slice(axis, 0, max(size - 1, 0))
            out = later.ne(before) if self.dtype.is_bool else later.sub(before)
        return self.clone() if out is self else out


documented(Reduction, REDUCE)


def _kept(shape: Shape, axes: tuple[int, ...]) -> list[Any]:
    return [1 if a in axes else n for a, n in enumerate(shape)]
