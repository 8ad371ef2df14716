"""Searches: positions in sorted values, membership, runs of equal elements."""

from __future__ import annotations

import sys
from typing import Any, Self, cast

from weft.errors import ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core.arguments import check_rank, choice
from weft.tensors.docs.composed_sections import SEARCHING
from weft.tensors.docs.documented import documented
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.join import cat
from weft.tensors.ops.statistics import Statistics, check_one_axis

__all__ = ["Searching"]


class Searching(Statistics):
    """What is composed of comparisons."""

    __slots__ = ()

    def _places_or_values(self, elements: object) -> object:
        if not isinstance(elements, list | tuple):
            return elements
        return sys.modules["weft"].tensor(elements, device=self.device)

    def argwhere(self) -> Self:
        """Return where elements are not zero, one row each (realizes: the count is data)."""
        return cast(Self, self.nonzero())

    def searchsorted(self, values: object, *, right: bool = False, side: str | None = None,
                     sorter: object = None) -> Self:
        """Return where values would stand in this sorted tensor."""
        if side is not None:
            choice(side, ("left", "right"), "searchsorted", "side")
            right = side == "right"
        x = self if sorter is None else self.take_along_dim(as_operand(self, sorter), -1)
        check_rank(x, 1, "searchsorted")
        y = as_operand(x, values)
        if len(x.shape) > 1 and x.shape[:-1] != y.shape[:-1]:
            raise ShapeError("searchsorted", found=f"values of {y.shape} in {x.shape}",
                             expected="equal leading axes")
        rows = x.unsqueeze(-2) if len(x.shape) > 1 else x
        points = y.unsqueeze(-1)
        nan = points.isnan() if y.dtype.is_float else None
        before = rows.le(points) if right else rows.lt(points)
        if nan is not None:  # NaN stands behind all numbers
            before = before.logical_or(nan)
        return before.sum(-1)

    def bucketize(self, boundaries: object, *, right: bool = False) -> Self:
        """Return between which sorted boundaries each element lies."""
        edges = as_operand(self, boundaries)
        check_one_axis(edges, "bucketize")
        return edges.searchsorted(self, right=right)

    def isin(self, elements: object, *, invert: bool = False) -> Self:
        """Return whether each element is among others."""
        others = as_operand(self, self._places_or_values(elements)).ravel()
        found = self.unsqueeze(-1).eq(others).any(-1)
        return found.logical_not() if invert else found

    def unique_consecutive(self, return_inverse: bool = False, return_counts: bool = False) -> Any:
        """Return the first of each run of equal elements (realizes: the count is data)."""
        x = self.ravel()
        if x.shape[0] == 0:
            fresh = x.astype(dt.bool_)
        else:
            one = self._from_node(infer.full((1,), True, dt.bool_))
            changes = x.narrow(0, 1, x.shape[0] - 1).ne(x.narrow(0, 0, x.shape[0] - 1))
            fresh = cat([one, changes])
        found: list[Any] = [x[fresh]]
        run = fresh.cumsum(0).sub(1)
        if return_inverse:
            found.append(run.reshape(self.shape))
        if return_counts:
            found.append(run.bincount())
        return tuple(found) if len(found) > 1 else found[0]


documented(Searching, SEARCHING)
