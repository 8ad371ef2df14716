"""Gradient clipping by norm and by value."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import DTypeError
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.creation import zeros
from weft.tensors.api.tensor import Tensor
from weft.tensors.ops.join import stack

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if not isinstance(parameters, Iterable):
        raise DTypeError("clip_grad", found=f"a {type(parameters).__name__}",
                         expected="parameters, such as net.parameters()")
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in given if p.grad is not None]


@no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
                    ) -> Tensor:  # fmt: skip
    """Scale all gradients so that their common norm is at most `max_norm`; return the norm."""
    found = _with_gradients(parameters)
    if not found:
        return zeros()
    norms = [p.grad.norm(norm_type) for p in found if p.grad is not None]
    total: Tensor = stack(norms).norm(norm_type)
    scale = total.add(1e-6).reciprocal().mul(max_norm).minimum(1.0)
    for p in found:
        if p.grad is not None:
            p.grad.mul_(scale.astype(p.dtype))
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of all gradients to ``[-clip_value, clip_value]``."""
    for p in _with_gradients(parameters):
        if p.grad is not None:
            p.grad.clamp_(-clip_value, clip_value)
