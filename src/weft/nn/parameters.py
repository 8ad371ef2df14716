"""Utilities on parameters: gradient clipping, conversion to and from one vector."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import ShapeError
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.clip_gradients import clip_grad_norm_, clip_grad_value_
from weft.tensors.api.tensor import Tensor
from weft.tensors.ops.join import cat

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of parameters as one axis, in their order.

    Parameters
    ----------
    parameters : iterable of Tensor
        Of any shapes.

    Returns
    -------
    Tensor
        Shape ``[count]``.

    Raises
    ------
    ShapeError
        If there are none.

    Examples
    --------
    >>> weft.nn.utils.parameters_to_vector(weft.nn.Linear(3, 2).parameters()).shape
    (8,)
    """
    parts = [p.reshape(-1) for p in parameters]
    if not parts:
        raise ShapeError("parameters_to_vector", found="no parameters", expected="at least one")
    return cat(parts, 0)


@no_grad()
def vector_to_parameters(vector: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set parameters to the elements of a vector, in their order.

    Parameters
    ----------
    vector : Tensor
        Shape ``[count]``: as many elements as the parameters together.
    parameters : iterable of Tensor
        Changed in place, without a gradient.

    Raises
    ------
    ShapeError
        If the vector has not exactly as many elements; nothing is changed then.

    Examples
    --------
    >>> layer = weft.nn.Linear(3, 2)
    >>> weft.nn.utils.vector_to_parameters(weft.zeros(8), layer.parameters())
    >>> layer.bias.tolist()
    [0.0, 0.0]
    """
    wanted = list(parameters)
    count = sum(p.numel() for p in wanted)
    if vector.shape != (count,):
        raise ShapeError("vector_to_parameters", found=f"a vector of {vector.shape}",
                         expected=f"({count},), the elements of all parameters")
    start = 0
    for p in wanted:
        p.copy_(vector[start : start + p.numel()].reshape(p.shape))
        start += p.numel()


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)
