"""Gather and scatter: reading and writing elements at positions that tensors hold."""

from __future__ import annotations

from typing import Any, Self, TypeVar, cast

import numpy as np

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core.arguments import describe
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import broadcast_shapes
from weft.tensors.core.source_positions import stamp
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import GATHER
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.indexing import Advanced, Indexing, wrap_index

__all__ = ["Gather"]

T = TypeVar("T", bound=TensorCore)


class Gather(Indexing):
    """Elements at positions along an axis, or where a mask is true."""

    __slots__ = ()

    def gather(self, dim: int, index: object) -> Self:
        """Return ``out[i, j] = self[index[i, j], j]`` (dim 0); an index past the axis raises."""
        return self._gathered(dim, index, "gather")

    def _gathered(self, dim: int, index: object, what: str) -> Self:
        position = as_operand(self, index)
        if not (self.shape and position.shape):
            row = self if self.shape else self._row(dim, what)
            return row._gathered(dim, _as_row(position), what).reshape(position.shape)
        return self._wrap(stamp(infer.gather(self._read(), position._read(), dim, what)))

    def take_along_dim(self, indices: object, dim: int | None = None) -> Self:
        """Return elements picked along an axis; negative indices count from the end."""
        position = as_operand(self, indices)
        if dim is None:
            return self.ravel().take_along_dim(position.ravel(), 0)
        axis = self._axis(dim, "take_along_dim")
        if len(position.shape) != len(self.shape):
            raise ShapeError("take_along_dim", expected=f"{len(self.shape)} axes",
                             found=f"indices of {position.shape} for {self.shape}")
        index = infer.cast(position._read(), dt.int64)
        sizes = [index.shape[a] if a == axis else self.shape[a] for a in range(len(self.shape))]
        index = wrap_index(infer.expand(index, sizes), self.shape[axis])
        return self._wrap(stamp(infer.gather(self._read(), index, axis, "take_along_dim")))

    def index_select(self, dim: int, index: object) -> Self:
        """Return slices of an axis, picked by a vector of integers."""
        return self._slices_at(dim, index, "index_select")

    def _slices_at(self, dim: int, index: object, what: str) -> Self:
        position = as_operand(self, index)
        if not self.shape:
            _check_one(position, what)
            return self._row(dim, what)._slices_at(0, position, what).reshape(())
        axis = self._axis(dim, what)
        if not position.dtype.is_integer:
            raise DTypeError(what, found=f"an index of {position.dtype.name}",
                             expected="integers")
        if len(position.shape) > 1:
            raise ShapeError(what, found=f"an index of shape {position.shape}",
                             expected="a vector")
        return self._take([Advanced(axis, position.ravel()._read())], what)

    def take(self, index: object, dim: int | None = None) -> Self:
        """Return elements by their index in row-major order, or slices of an axis.

        Parameters
        ----------
        index : Tensor of integers, nested list or int
            Negative ones count from the end.
        dim : int, optional
            The axis, as of NumPy's ``take(axis=)``; None takes elements of the flattened tensor.

        Returns
        -------
        Tensor
            Of the shape of `index`, which stands in place of the axis.

        Raises
        ------
        BoundsError
            If an index is out of range; told when the result is computed.
        AxisError
            If the axis is out of range.
        DTypeError
            If the indices are no integers.

        Examples
        --------
        >>> weft.tensor([[1, 2], [3, 4]]).take([0, -1])
        tensor([1, 4])
        >>> weft.tensor([[1, 2], [3, 4]]).take([1], axis=1)
        tensor([[2],
                [4]])
        """
        x = self.ravel() if dim is None else self
        axis = x._axis(0 if dim is None else dim, "take")
        given = index if isinstance(index, TensorCore) else self._places_of(
            index if isinstance(index, list | tuple | range | np.ndarray) else [index], "take")
        if not given.dtype.is_integer:
            raise DTypeError("take", found=f"an index of {given.dtype.name}", expected="integers")
        if not isinstance(index, TensorCore | list | tuple | range | np.ndarray):
            given = cast(Self, given).reshape(())
        return x._take([Advanced(axis, given._read())], "take")

    def _mask(self, mask: object, operation: str) -> Self:
        """Return a mask as a tensor of bool.

        Raises
        ------
        DTypeError
            If it is of another type.
        """
        found = as_operand(self, mask)
        if not found.dtype.is_bool:
            raise DTypeError(operation, found=f"a mask of {found.dtype.name}", expected="bool",
                             hint="compare, as in mask != 0")
        return found

    def masked_select(self, mask: object) -> Self:
        """Return the elements where `mask` holds (realizes the mask)."""
        condition = self._mask(mask, "masked_select")
        shape = broadcast_shapes("masked_select", self.shape, condition.shape)
        wide = self.expand(shape)
        return wide[condition.expand(shape)]

    def masked_scatter(self, mask: object, source: object) -> Self:
        """Return the tensor with the elements of `source`, in order, where `mask` is true."""
        out = self.clone()
        condition = self._mask(mask, "masked_scatter").expand(self.shape)
        rank = condition.ravel().cumsum(0).sub(1).clamp(0)
        new = self._of_own_type(source, "masked_scatter")
        taken = new.ravel().index_select(0, rank).reshape(self.shape)
        return condition.where(taken, out)

    def scatter(self, dim: int, index: object, src: object, *, reduce: str | None = None) -> Self:
        """Return the tensor with ``out[index[i, j], j] = src[i, j]`` (dim 0), in order."""
        kinds = {None: "set", "add": "add", "multiply": "prod"}
        if not (reduce is None or isinstance(reduce, str)) or reduce not in kinds:
            raise ShapeError("scatter", found=f"reduce={describe(reduce)}",
                             expected="'add', 'multiply' or None")
        return self._scattered(dim, index, src, kinds[reduce], "scatter")

    def scatter_add(self, dim: int, index: object, src: object) -> Self:
        """Return the tensor with ``out[index[i, j], j] += src[i, j]`` (dim 0)."""
        return self._scattered(dim, index, src, "add", "scatter_add")

    def scatter_reduce(self, dim: int, index: object, src: object, reduce: str, *,
                       include_self: bool = True) -> Self:  # fmt: skip
        """Return the tensor combined with `src` at indices: sum, prod, mean, amax or amin.

        Parameters
        ----------
        dim : int
            The axis; a negative one counts from the last.
        index : Tensor of integers
            From 0 to ``n - 1``, of as many axes as this tensor: where each element of `src` goes.
        src : Tensor, array, nested list or number
            Of this tensor's dtype, and at least as large as `index` along each axis; or a number.
        reduce : {'sum', 'prod', 'mean', 'amax', 'amin'}
            How elements that meet are combined.
        include_self : bool, optional
            Whether the tensor's own elements count where something is written.

        Returns
        -------
        Tensor
            Of the same shape and dtype.

        Raises
        ------
        AxisError
            If the axis is out of range.
        BoundsError
            If an index is out of range; told when the result is computed.
        ShapeError
            If `reduce` is something else, or the shapes do not fit each other.
        DTypeError
            If `src` has another dtype.
        """
        kinds = {"sum": "add", "prod": "prod", "mean": "add", "amax": "max", "amin": "min"}
        if not isinstance(reduce, str) or reduce not in kinds:
            raise ShapeError("scatter_reduce", found=describe(reduce), expected=" or ".join(kinds))
        base, name = self, "scatter_reduce"
        if include_self and reduce != "mean":
            return base._scattered(dim, index, src, kinds[reduce], name)
        none = self._wrap(infer.full(self._read().shape, 0, dt.int64))
        count = none._scattered(dim, index, self._ones_at(index), "add", name)
        if not include_self:
            base = count.gt(0).where(self._neutral(kinds[reduce]), self)
        out = base._scattered(dim, index, src, kinds[reduce], name)
        if reduce != "mean":
            return out
        count = count.add(1) if include_self else count.maximum(1)
        return out.div(count, rounding_mode=None if self.dtype.is_float else "floor").astype(
            self.dtype)  # fmt: skip

    def _ones_at(self, index: object) -> Self:
        return self._wrap(infer.full(as_operand(self, index)._read().shape, 1, dt.int64))

    def _neutral(self, kind: str) -> Scalar:
        """Return the value that does not count in a reduction of the tensor's type."""
        if kind in ("add", "prod"):
            return dt.check_value(int(kind == "prod"), self.dtype, "scatter_reduce")
        least = kind == "max"
        if self.dtype.is_bool:
            return not least
        return self.dtype.min if least else self.dtype.max

    def index_add(self, dim: int, index: object, source: object, *, alpha: Scalar = 1) -> Self:
        """Return the tensor with ``alpha`` times slices of `source` added at indices of an axis."""
        if alpha != 1:
            source = self._of_own_type(source, "index_add").mul(alpha)
        return self._put_slices(dim, index, source, "add", "index_add")

    def index_copy(self, dim: int, index: object, source: object) -> Self:
        """Return the tensor with slices of `source` written at indices of an axis, in order."""
        return self._put_slices(dim, index, source, "set", "index_copy")

    def index_fill(self, dim: int, index: object, value: Scalar) -> Self:
        """Return the tensor with `value` in the slices at indices of an axis."""
        return self._put_slices(dim, index, value, "set", "index_fill")

    def _put_slices(self, dim: int, index: object, source: object, kind: str, name: str) -> Self:
        position = as_operand(self, index)
        new = self._of_own_type(source, name)
        if not self.shape:
            _check_one(position, name)
            return self._row(dim, name)._put_slices(0, position, new, kind, name).reshape(())
        out = self.clone()
        out._put_at([Advanced(self._axis(dim, name), position._read())], new, kind)
        return out

    def _scattered(self, dim: int, index: object, src: object, kind: str, name: str) -> Self:
        position, new = as_operand(self, index), self._of_own_type(src, name)
        if not (self.shape and position.shape):
            row = self if self.shape else self._row(dim, name)
            row = row._scattered(dim, _as_row(position), new, kind, name)
            return row.reshape(self.shape)
        axis = self._axis(dim, name)
        updates = new._read()
        where = position._read()
        if not new.shape:
            updates = infer.expand(updates, where.shape)
        elif new.shape != position.shape:
            if len(new.shape) != len(where.shape):
                raise ShapeError(name, found=f"updates of {new.shape}",
                                 expected=f"the index's shape, {position.shape}")
            updates = infer.slice_(updates, [0] * updates.ndim, where.shape)
        return self._wrap(stamp(infer.scatter(self._read(), where, updates, axis, kind, name)), new)


documented(Gather, GATHER)


def _as_row(x: T) -> T:
    return x if x.shape else cast(T, cast(Any, x).reshape(1))


def _check_one(index: TensorCore, name: str) -> None:
    """Raise a ShapeError unless an index into a tensor without axes has one element."""
    if index.numel() != 1:
        raise ShapeError(name, found=f"{index.numel()} indices into a tensor without axes",
                         expected="one index")
