"""Statistics of elements: quantiles, modes, histograms, covariances."""

from __future__ import annotations

import math
from typing import Any, Final, Self, cast

from weft.errors import DTypeError, RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core.arguments import choice, count_of, number
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.composed_sections import STATISTICS
from weft.tensors.docs.documented import documented
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.join import stack
from weft.tensors.ops.reduction import Axes, ValuesIndices
from weft.tensors.ops.special import Special

__all__ = ["Statistics", "check_one_axis"]

_INTERPOLATIONS: Final = ("linear", "lower", "higher", "nearest", "midpoint")


class Statistics(Special):
    """What is composed of sorts and reductions."""

    __slots__ = ()

    def _quantile(self, name: str, q: Any, dim: int | None, keepdim: bool, interpolation: str,
                  skips: bool) -> Self:  # fmt: skip
        """Return quantiles along an axis; `skips` leaves NaN out."""
        choice(interpolation, _INTERPOLATIONS, name, "interpolation")
        if not self.dtype.is_float:
            raise DTypeError(name, found=self.dtype.name, expected="a float type")
        levels = as_operand(self, q).astype(self.dtype) if isinstance(q, TensorCore) else None
        if levels is not None and len(levels.shape) == 1:
            parts = [self._quantile(name, levels[i], dim, keepdim, interpolation, skips)
                     for i in range(levels.shape[0])]  # fmt: skip
            if not parts:
                one = self._quantile(name, 0.0, dim, keepdim, interpolation, skips)
                return self._from_node(infer.full((0, *one.shape), 0.0, self.dtype))
            return stack(parts)
        q = number(q, name) if levels is None else q
        if levels is None and not 0 <= q <= 1:
            raise RangeError(name, found=f"q={q}", expected="0 to 1")
        x = self.ravel() if dim is None else self
        axis = x._axis(0 if dim is None else dim, name) if x.shape else 0
        x = x.movedim(axis, -1) if x.shape else x.reshape(1)
        ordered = x.sort(-1).values
        nan = x.isnan()
        count = nan.logical_not().sum(-1, True) if skips else nan.sum(-1, True).mul(0).add(
            x.shape[-1])
        place = count.sub(1).maximum(0).astype(dt.float64).mul(
            q if levels is None else levels.astype(dt.float64))
        if interpolation in ("lower", "higher", "nearest"):  # an element itself
            chosen = {"lower": place.floor, "higher": place.ceil, "nearest": place.round}
            out = ordered.gather(-1, chosen[interpolation]().long())
        else:
            below = place.floor()
            share = place.sub(below)
            if interpolation == "midpoint":
                share = share.gt(0).astype(dt.float64).mul(0.5)
            low = ordered.gather(-1, below.long())
            high = ordered.gather(-1, share.gt(0).astype(dt.int64).add(below.long()))
            out = share.eq(0).where(low, low.add(high.sub(low).mul(share.astype(self.dtype))))
        out = (count.eq(0) if skips else nan.any(-1, True)).where(math.nan, out)
        out = out.astype(self.dtype).movedim(-1, axis) if self.shape else out
        if keepdim:
            return out if dim is not None else out.reshape((1,) * len(self.shape))
        return out.squeeze(axis)

    def nansum(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return sums over axes, NaN counting as 0."""
        return self.isnan().where(0, self).sum(dim, keepdim)

    def nanmean(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return means over axes of the elements that are no NaN."""
        known = self.isnan().logical_not()
        return known.where(self, 0).sum(dim, keepdim).div(known.sum(dim, keepdim))

    def std_mean(self, dim: Axes = None, correction: Scalar = 1, keepdim: bool = False
                 ) -> tuple[Self, Self]:  # fmt: skip
        """Return standard deviations and means over axes."""
        return self.std(dim, correction, keepdim), self.mean(dim, keepdim)

    def quantile(self, q: Any, dim: int | None = None, keepdim: bool = False, *,
                 interpolation: str = "linear") -> Self:
        """Return quantiles along an axis; NaN where there is one."""
        return self._quantile("quantile", q, dim, keepdim, interpolation, False)

    def nanquantile(self, q: Any, dim: int | None = None, keepdim: bool = False, *,
                    interpolation: str = "linear") -> Self:
        """Return quantiles along an axis of the elements that are no NaN."""
        return self._quantile("nanquantile", q, dim, keepdim, interpolation, True)

    def mode(self, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """Return the most frequent values of an axis (the least of several), and their indices."""
        if not self.shape:
            return self._row(dim, "mode").mode(0)
        axis = self._axis(dim, "mode")
        count_of(self.shape[axis], "mode", 1)
        x = self.movedim(axis, -1)
        counts = x.unsqueeze(-1).eq(x.unsqueeze(-2)).sum(-1)
        best = counts.eq(counts.amax(-1, True))
        values = x.sort(-1)
        ordered = best.gather(-1, values.indices)
        first = ordered.astype(dt.uint8).argmax(-1, True)
        chosen = values.values.gather(-1, first)
        places = self._from_node(infer.iota(x.shape[-1]))
        index = x.eq(chosen).where(places, -1).amax(-1, True)
        if x.dtype.is_float:  # NaN equals nothing, and is chosen where there is nothing else
            index = chosen.isnan().where(values.indices.gather(-1, first), index)
        out = (t.movedim(-1, axis) for t in (x.gather(-1, index), index))
        return ValuesIndices(*(t if keepdim else t.squeeze(axis) for t in out))

    def msort(self) -> Self:
        """Return the elements sorted along the first axis."""
        return cast(Self, self.sort(0).values)

    def dist(self, other: object, p: Scalar = 2) -> Self:
        """Return the p-norm of a difference."""
        return self.sub(other).norm(p)

    def cov(self, *, correction: Scalar = 1) -> Self:
        """Return the covariances of variables in rows."""
        if len(self.shape) > 2:
            raise ShapeError("cov", found=f"{self.shape}", expected="at most two axes")
        x = self.reshape(1, -1) if len(self.shape) < 2 else self
        x = x.sub(x.mean(1, True))
        out = x.matmul(x.mT).div(max(x.shape[1] - correction, 0))
        return out.reshape(()) if infer.same_dim(x.shape[0], 1) else out

    def corrcoef(self) -> Self:
        """Return the correlation coefficients of variables in rows."""
        found = self.cov()
        if not found.shape:
            return found.div(found)
        scale = found.diagonal().sqrt()
        return found.div(scale.unsqueeze(0)).div(scale.unsqueeze(1)).clamp(-1, 1)

    def bincount(self, weights: object = None, minlength: int = 0) -> Self:
        """Return how often each number from 0 on is there (realizes: the size is data)."""
        if not self.dtype.is_integer:
            raise DTypeError("bincount", found=self.dtype.name, expected="integers")
        check_one_axis(self, "bincount")
        size = count_of(minlength, "bincount", 0)
        if self.numel():
            if int(cast(Any, self.amin())) < 0:
                raise RangeError("bincount", found="a negative number", expected="at least 0")
            size = max(size, int(cast(Any, self.amax())) + 1)
        factors = self._from_node(infer.full(self.shape, 1, dt.int64))
        if weights is not None:
            factors = as_operand(self, weights)
            factors = factors if factors.dtype.is_float else factors.double()
        if factors.shape != self.shape:
            raise ShapeError("bincount", found=f"weights of {factors.shape}",
                             expected=f"{self.shape}")
        zero: Scalar = 0.0 if factors.dtype.is_float else 0
        empty = self._from_node(infer.full((size,), zero, factors.dtype))
        return empty.index_add(0, self, factors)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
        """Return how many elements lie in equal bins from `min` to `max`."""
        bins = count_of(bins, "histc", 1)
        x = self.ravel()
        low, high = float(min), float(max)
        if low == high and x.numel():
            low, high = float(cast(Any, x.amin())), float(cast(Any, x.amax()))
        if low == high:
            low, high = low - 1, high + 1
        if not low < high:
            raise RangeError("histc", found=f"{low} to {high}", expected="a low end first")
        inside = x.ge(low).logical_and(x.le(high))
        places = x.sub(low).mul(bins / (high - low)).floor().clamp(0, bins - 1)
        places = inside.where(places, 0).long()
        empty = self._from_node(infer.full((bins,), 0.0, self.dtype))
        return empty.index_add(0, places, inside.astype(self.dtype))


documented(Statistics, STATISTICS)


def check_one_axis(x: TensorCore, name: str) -> None:
    """Raise a ShapeError unless a tensor is a vector."""
    if len(x.shape) != 1:
        raise ShapeError(name, found=f"{x.shape}", expected="one axis")
