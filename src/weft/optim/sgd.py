"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.errors import RangeError
from weft.optim.optimizer import Group, Optimizer
from weft.optim.sections import SECTIONS
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent with momentum (Nesterov's, if asked) and weight decay.

    Parameters
    ----------
    {params momentum}
    dampening : float
        Share of the gradient that the velocity leaves out.
    {weight_decay}
    nesterov : bool
        Whether the step looks ahead along the velocity.
    {maximize}

    {Raises: options values}

    Examples
    --------
    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> opt = weft.optim.SGD([p], lr=0.5)
    >>> (3.0 * p).sum().backward()
    >>> opt.step()
    >>> p.tolist()
    [-0.5]
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.0,
                 dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, *,
                 maximize: bool = False) -> None:  # fmt: skip
        if nesterov and (momentum <= 0 or dampening != 0):
            raise RangeError("SGD", found=f"nesterov with momentum={momentum}, "
                             f"dampening={dampening}", expected="momentum above 0, no dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize,
        })  # fmt: skip

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the momentum's names, if there is momentum."""
        if not options["momentum"]:
            return ()
        return ("momentum_buffer", "step") if options["dampening"] else ("momentum_buffer",)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Move against the gradient, or along the velocity."""
        if group["maximize"]:
            grad = grad.neg()
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        momentum, dampening = group["momentum"], group["dampening"]
        if momentum:
            fresh = grad.mul(1 - dampening) if dampening else grad
            if dampening:  # the first velocity is the whole gradient
                fresh = state["step"].eq(0).where(grad, fresh)
                state["step"].add_(1)
            velocity = state["momentum_buffer"].mul(momentum).add(fresh)
            state["momentum_buffer"].copy_(velocity)
            grad = grad.add(velocity, alpha=momentum) if group["nesterov"] else velocity
        p.sub_(grad.mul(group.rate.astype(p.dtype)))


fill_docstrings(globals(), SECTIONS)
