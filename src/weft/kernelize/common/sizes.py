"""Sizes of shapes that may be symbolic: by the largest values of their variables."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import node as nd
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.infer import same_dim
from weft.ir.node import Dim

__all__ = ["elements", "same_size", "upper_bound"]


def upper_bound(dim: Dim) -> int:
    """Return a size, the largest one if it is symbolic."""
    if not isinstance(dim, Expr):
        return dim
    return bounds(dim, {})[1]


def elements(shape: Sequence[Dim]) -> int:
    """Return the (largest possible) number of elements of a shape."""
    total = 1
    for dim in shape:
        total *= upper_bound(dim)
    return total


def same_size(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes have as many elements for all values of their variables.

    Equal upper bounds do not say so: 40 rows are not n rows, of which there are 40 at most.
    """
    if elements(a) != elements(b):
        return False
    if not any(isinstance(dim, Expr) for dim in (*a, *b)):
        return True
    return same_dim(nd.size(tuple(a)), nd.size(tuple(b)))
