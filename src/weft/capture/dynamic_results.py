"""Results whose number of elements is data: unique values, indices of true elements.

Everything is computed in memory for the most elements there can be, by one captured function a
signature, and the result is the beginning of it: no kernel depends on the count, so that another
count compiles nothing. What is made of places afterwards is made of a power of two of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

from weft.capture.jit import Jitted
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.api.creation import full, zeros
from weft.tensors.api.ranges import arange
from weft.tensors.api.tensor import Tensor, over_buffer
from weft.tensors.core.thread_state import later
from weft.tensors.ops.join import stack

__all__: list[str] = []

_MOST: Final = 256  # signatures that are kept ready
_ROOM: Final = 1 << 17  # bytes that a result may leave unused in its memory: a copy takes longer


def _distinct(x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    """Return how many values differ, then room for them, their places, their counts."""
    flat, n = x.ravel(), x.numel()
    if inverse:
        values, order = flat.sort(0)
    else:
        values, order = flat.sort(0).values, None
    fresh = values[1:].ne(values[:-1]).pad((1, 0), value=True)
    rank = fresh.cumsum(0) - 1  # of the run that an element belongs to
    # The first element of each run goes to its place, the others behind them all.
    found = [rank[-1] + 1, zeros(n + 1, dtype=x.dtype).scatter(0, fresh.where(rank, n), values)]
    if order is not None:
        found.append(zeros(n, dtype=dt.int64).scatter(0, order, rank).reshape(x.shape))
    if counts:
        starts = full((n + 2,), n, dtype=dt.int64).scatter(0, fresh.where(rank, n + 1), arange(n))
        found.append(starts[1:n + 1] - starts[:n])
    return tuple(found)


def _places(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many elements are true, and room for their places."""
    return _chosen(arange(mask.numel()), mask)


def _chosen(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many elements are true, and room for what another tensor has there."""
    row, flags = x.ravel(), mask.ravel()
    packed, count = infer.pack(row._read(), flags._read())
    return row._wrap(count), row._wrap(packed)


def _columns(places: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Return where places of a row-major array of a shape are along each of its axes."""
    found, rest = [], places.to(dt.uint32) if math.prod(shape) < 1 << 32 else places
    for n in reversed(shape[1:]):
        found.append(rest.remainder(n).to(dt.int64))
        rest = rest.floor_divide(n)
    return [rest.to(dt.int64), *reversed(found)]


def _rows(places: Tensor, shape: tuple[int, ...]) -> Tensor:
    return stack(_columns(places, shape), 1)


_FUNCTIONS: Final[dict[object, Callable[..., Any]]] = {
    "places": _places,
    "chosen": _chosen,
    "columns": _columns,
    "rows": _rows,
    **{(i, c): functools.partial(_distinct, inverse=i, counts=c)
       for i in (False, True) for c in (False, True)},
}
_captured: Final[dict[object, Jitted[..., Any]]] = {}


def _capture(name: object) -> Jitted[..., Any]:
    """Return a function by way of its capture; the captures go when there are too many."""
    captured = _captured.get(name)
    if captured is None or captured.captures >= _MOST:
        captured = _captured[name] = Jitted(_FUNCTIONS[name])
    return captured


def _head(tensor: Tensor, count: int, *more: int) -> Tensor:
    """Cut a result that nobody knows yet to its first elements, in a shape.

    They stay in their memory if they are most of it, or little of it is left unused.
    """
    item = tensor.dtype.itemsize * math.prod(more)
    unused = (tensor.shape[0] - count) * item
    if unused > _ROOM and unused > count * item:
        tensor._buffer = host.head(tensor._buffer, count * item)
    tensor.shape = (count, *more)
    return tensor


class _Counted:
    """What the methods of tensors call (`weft.tensors.core.thread_state.Counted`)."""

    def distinct(self, x: Tensor, inverse: bool, counts: bool) -> list[Tensor]:
        """Return the distinct values, sorted; perhaps where each element went, how often."""
        found, values, *more = _capture((inverse, counts))(x.detach() if x._requires_grad else x)
        count = host.integer(found._buffer)
        out = [_head(values, count)]
        if inverse:
            out.append(more.pop(0))
        if counts:
            out.append(_head(more.pop(0), count))
        return out

    def true_places(self, mask: Tensor, apart: bool) -> list[Tensor]:
        """Return the places of the true elements of a mask, not empty: by axis, or a row each."""
        found, places = _capture("places")(mask)
        count = host.integer(found._buffer)
        if mask.ndim == 1:
            return [_head(places, count) if apart else _head(places, count, 1)]
        room = min(1 << max(count - 1, 0).bit_length(), mask.numel())
        first = over_buffer(places._buffer, (room,), places.dtype)
        if apart:
            return [_head(x, count) for x in _capture("columns")(first, mask.shape)]
        return [_head(_capture("rows")(first, mask.shape), count, mask.ndim)]

    def chosen(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the elements of a tensor, not empty, where a mask of its shape is true."""
        found, values = _capture("chosen")(x, mask)
        return _head(values, host.integer(found._buffer))


later.counted = _Counted()
