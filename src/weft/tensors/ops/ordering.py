"""Sorting, and results whose size is data: sort, topk, nonzero, unique, one-hot."""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np

from weft.errors import DTypeError, ShapeError
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.tensors.core.source_positions import stamp
from weft.tensors.core.thread_state import later, state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import ORDERING
from weft.tensors.ops.gather import Gather
from weft.tensors.ops.reduction import ValuesIndices

__all__ = ["Ordering"]


class Ordering(Gather):
    """Sorting, and results whose shape is data."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
        """Return the values of an axis sorted, and their indices; stable, NaN counts as largest."""
        x = self if self.shape else self.reshape(1)
        values, indices = infer.sort(x._read(), x._axis(dim, "sort"), descending)
        if not self.shape:
            values, indices = infer.reshape(values, ()), infer.reshape(indices, ())
        return ValuesIndices(self._wrap(values), self._wrap(indices))

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """Return the indices that sort an axis; stable, NaN counts as largest."""
        return cast(Self, self.sort(dim, descending).indices)

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
             ) -> ValuesIndices:  # fmt: skip
        """Return the `k` largest (or smallest) values of an axis, in order, and their indices."""
        if not self.shape:
            row = self._row(dim, "topk").topk(k, 0, largest)
            return ValuesIndices(*(t.reshape(()) for t in row)) if k else row
        axis, k = self._axis(dim, "topk"), infer.as_int(k, "topk")
        if not 0 <= k <= self.shape[axis]:
            raise ShapeError("topk", found=f"k={k} of {self.shape[axis]}",
                             expected=f"0 to {self.shape[axis]}")
        keep = k if k < self.shape[axis] else -1
        values, indices = infer.sort(self._read(), axis, largest, keep)
        return ValuesIndices(self._wrap(values), self._wrap(indices))

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """Return the k-th smallest value (from 1) of an axis, and its index."""
        if not self.shape:
            return self._row(dim, "kthvalue").kthvalue(k, 0)
        axis, k = self._axis(dim, "kthvalue"), infer.as_int(k, "kthvalue")
        if not 1 <= k <= self.shape[axis]:
            raise ShapeError("kthvalue", found=f"k={k}", expected=f"1 to {self.shape[axis]}")
        values, indices = (t._slice(axis, k - 1, 1) for t in self.sort(axis))
        if keepdim:
            return ValuesIndices(values, indices)
        return ValuesIndices(values.squeeze(axis), indices.squeeze(axis))

    def one_hot(self, num_classes: int = -1) -> Self:
        """Return int64 vectors with a 1 at each index (-1 counts the classes, which realizes)."""
        if not self.dtype.is_integer:
            raise DTypeError("one_hot", found=self.dtype.name, expected="integers")
        num_classes = infer.as_int(num_classes, "one_hot")
        if num_classes < 0:
            num_classes = int(cast(Any, self.amax())) + 1
        x = infer.cast(self._read(), dt.int64)
        count = self.numel()
        flat = infer.reshape(x, (count,))
        checked = stamp(infer.gather(infer.iota(num_classes), flat, 0, "one_hot"))
        shape = (count, num_classes)
        wide = infer.expand(infer.reshape(checked, (count, 1)), shape)
        same = infer.elementwise(Op.EQ, wide, infer.expand(infer.iota(num_classes), shape))
        return self._wrap(infer.reshape(infer.cast(same, dt.int64), (*self.shape, num_classes)))

    # results whose shape is data

    def _known(self, operation: str) -> np.ndarray[Any, Any]:
        """Return the values as a read-only array (an error during capture)."""
        if state.capture is not None:
            state.capture.refuse(operation)
        storage = self._storage()
        return host.view(storage.buffer, self.dtype, self.shape, False)

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Return where elements are not zero, one row each (realizes: the count is data)."""
        if state.capture is not None:
            state.capture.refuse("nonzero")
        flags = self if self.dtype.is_bool else self.bool()
        if self.shape and self.numel():
            found: list[Any] = later.counted.true_places(cast(Any, flags), as_tuple)
        else:  # nothing, or one element that no axis leads to
            count = 0 if self.shape else int(cast(Any, flags))
            sizes = [(0,)] * len(self.shape) if as_tuple else [(count, len(self.shape))]
            found = [self._wrap(infer.full(n, 0, dt.int64)) for n in sizes]
        return tuple(found) if as_tuple else found[0]

    def unique(self, return_counts: bool = False, *, return_inverse: bool = False,
               sorted: bool = True) -> Any:  # fmt: skip
        """Return the distinct values, sorted (realizes: the count is data).

        Parameters
        ----------
        return_counts : bool
            Also return how often each value is there.
        return_inverse : bool
            Also return the place of each element's value among the distinct ones, before counts.
        sorted : bool
            Taken as PyTorch has it; the values are sorted anyway.

        Returns
        -------
        Tensor, or tuple of Tensor
            The distinct values as a vector; then the inverse, of this shape, and the counts, both
            int64, if they are asked for.

        Raises
        ------
        CaptureError
            In a function under `weft.jit`, where no values are known.
        """
        if state.capture is not None:
            state.capture.refuse("unique")
        if self.numel():
            found = later.counted.distinct(self, bool(return_inverse), bool(return_counts))
        else:
            empty: Any = self.ravel().detach()
            found = [empty]
            found += [empty.long().reshape(self.shape)] if return_inverse else []
            found += [empty.long()] if return_counts else []
        return tuple(found) if len(found) > 1 else found[0]


documented(Ordering, ORDERING)
