"""Results whose number of elements is data: distinct values, places of true elements.

Everything is computed in memory for the most elements there can be, by one captured function a
signature, and the result is the beginning of it: no kernel depends on the count, so that another
count compiles nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from weft.exchange import host
from weft.frontend.creation import arange, full, zeros
from weft.frontend.jit import Jitted
from weft.frontend.state import later
from weft.frontend.tensor import Tensor, over_buffer
from weft.ir import dtype as dt

__all__: list[str] = []

_MOST: Final = 256  # signatures that are kept ready


def _distinct(x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    """Return how many values differ, less 1, then room for them, their places, their counts."""
    flat, n = x.ravel(), x.numel()
    if inverse:
        values, order = flat.sort(0)
    else:
        values, order = flat.sort(0).values, None
    fresh = values[1:].ne(values[:-1]).pad((1, 0), value=True)
    rank = fresh.cumsum(0) - 1  # of the run that an element belongs to
    # The first element of each run goes to its place, the others behind them all.
    found = [rank[-1], zeros(n + 1, dtype=x.dtype).scatter(0, fresh.where(rank, n), values)]
    if order is not None:
        found.append(zeros(n, dtype=dt.int64).scatter(0, order, rank).reshape(x.shape))
    if counts:
        starts = full((n + 2,), n, dtype=dt.int64).scatter(0, fresh.where(rank, n + 1), arange(n))
        found.append(starts[1:n + 1] - starts[:n])
    return tuple(found)


def _places(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many elements are true, less 1, and room for their places."""
    n = mask.numel()
    rank = mask.cumsum(0) - 1
    return rank[-1], zeros(n + 1, dtype=dt.int64).scatter(0, mask.where(rank, n), arange(n))


def _chosen(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many elements are true, less 1, and room for what another tensor has there."""
    mask, n = mask.ravel(), mask.numel()
    rank = mask.cumsum(0) - 1
    return rank[-1], zeros(n + 1, dtype=x.dtype).scatter(0, mask.where(rank, n), x.ravel())


_FUNCTIONS: Final[dict[object, Callable[..., Any]]] = {
    "places": _places,
    "chosen": _chosen,
    **{(i, c): functools.partial(_distinct, inverse=i, counts=c)
       for i in (False, True) for c in (False, True)},
}
_captured: Final[dict[object, Jitted[..., Any]]] = {}


def _call(name: object, *tensors: Tensor) -> tuple[int, list[Tensor]]:
    """Call a function by way of its capture; return its count, and the rest.

    The captures go when there are too many.
    """
    captured = _captured.get(name)
    if captured is None or captured.captures >= _MOST:
        captured = _captured[name] = Jitted(_FUNCTIONS[name])
    last, *rest = captured(*(x.detach() if x._requires_grad else x for x in tensors))
    return host.integer(last._buffer) + 1, rest


def _head(tensor: Tensor, count: int) -> Tensor:
    """Return the first elements, in their memory if they are most of it."""
    buffer = tensor._buffer
    if 2 * count < tensor.shape[0]:
        buffer = host.head(buffer, count * tensor.dtype.itemsize)
    return over_buffer(buffer, (count,), tensor.dtype)


class _Counted:
    """What the methods of tensors call (`weft.frontend.state.Counted`)."""

    def distinct(self, x: Tensor, inverse: bool, counts: bool) -> list[Tensor]:
        """Return the distinct values, sorted; perhaps where each element went, how often."""
        count, (values, *more) = _call((inverse, counts), x)
        out = [_head(values, count)]
        if inverse:
            out.append(more.pop(0))
        if counts:
            out.append(_head(more.pop(0), count))
        return out

    def true_places(self, mask: Tensor) -> Tensor:
        """Return the places of the true elements of a row of at least one, in order."""
        count, (places,) = _call("places", mask)
        return _head(places, count)

    def chosen(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the elements of a tensor, not empty, where a mask of its shape is true."""
        count, (values,) = _call("chosen", x, mask)
        return _head(values, count)


later.counted = _Counted()
