"""Optimisers that scale each element's step by the size of its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.frontend.tensor import Tensor
from weft.optim.optimizer import Group, Optimizer

__all__ = ["Adam", "AdamW", "RMSprop"]


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); `weight_decay` is added to the gradient."""

    slots = ("step", "exp_avg", "exp_avg_sq")
    _decoupled = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False
                 ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize,
        })  # fmt: skip

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the moments' names, and the largest one's with AMSGrad."""
        return (*self.slots, "max_exp_avg_sq") if options["amsgrad"] else self.slots

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Move by the first moment over the root of the second, both without bias."""
        beta1, beta2 = group["betas"]
        rate = group.rate
        grad = grad.neg() if group["maximize"] else grad
        old: Tensor = p
        if group["weight_decay"]:
            if self._decoupled:
                old = p.sub(p.mul(rate.mul(group["weight_decay"]).astype(p.dtype)))
            else:
                grad = grad.add(p, alpha=group["weight_decay"])
        step = state["step"].add(1)
        first = state["exp_avg"].mul(beta1).add(grad.mul(1 - beta1))
        second = state["exp_avg_sq"].mul(beta2).add(grad.mul(grad).mul(1 - beta2))
        spread = second
        if group["amsgrad"]:
            spread = state["max_exp_avg_sq"].maximum(second)
            state["max_exp_avg_sq"].copy_(spread)
        wide = step.double()
        unbias1 = wide.rpow(beta1).neg().add(1)
        unbias2 = wide.rpow(beta2).neg().add(1).sqrt()
        scale = rate.double().div(unbias1).astype(p.dtype)
        size = spread.sqrt().div(unbias2.astype(p.dtype)).add(group["eps"])
        state["step"].copy_(step)
        state["exp_avg"].copy_(first)
        state["exp_avg_sq"].copy_(second)
        p.copy_(old.sub(first.div(size).mul(scale)))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    _decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False
                 ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class RMSprop(Optimizer):
    """Gradient descent scaled by a running root mean square (Hinton, 2012)."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0
                 ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps,
                                  "weight_decay": weight_decay, "momentum": momentum})

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the mean square's name, and the velocity's with momentum."""
        return ("square_avg", "momentum_buffer") if options["momentum"] else ("square_avg",)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Move by the gradient over its root mean square."""
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        alpha = group["alpha"]
        square = state["square_avg"].mul(alpha).add(grad.mul(grad).mul(1 - alpha))
        state["square_avg"].copy_(square)
        move = grad.div(square.sqrt().add(group["eps"]))
        if group["momentum"]:
            move = state["momentum_buffer"].mul(group["momentum"]).add(move)
            state["momentum_buffer"].copy_(move)
        p.sub_(move.mul(group.rate.astype(p.dtype)))
