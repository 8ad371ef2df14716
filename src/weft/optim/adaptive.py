"""Adaptive optimisers: Adam, AdamW, RMSprop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.ir.dtype import float64
from weft.ir.node import HOST
from weft.optim.optimizer import Group, Optimizer
from weft.optim.sections import SECTIONS
from weft.tensors.api.creation import ones
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Adam", "AdamW", "NAdam", "RMSprop"]


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); `weight_decay` is added to the gradient.

    {Parameters: params betas weight_decay amsgrad maximize}
    {Raises: options values}

    Examples
    --------
    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> opt = weft.optim.Adam([p], lr=0.5)
    >>> (3.0 * p).sum().backward()
    >>> opt.step()
    >>> round(p.item(), 4)
    0.5
    """

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
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    Parameters
    ----------
    {params betas}
    weight_decay : float
        Times the learning rate, the share that a step takes off a parameter.
    {amsgrad maximize}

    {Raises: options values}

    Examples
    --------
    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> opt = weft.optim.AdamW([p], lr=0.5, weight_decay=0.0)
    >>> (3.0 * p).sum().backward()
    >>> opt.step()
    >>> round(p.item(), 4)
    0.5
    """

    _decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False
                 ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Parameters
    ----------
    {params betas weight_decay}
    momentum_decay : float
        How fast the momentum grows to the first beta.
    decoupled_weight_decay : bool
        Whether the decay is taken off the parameter, as in AdamW, and not added to the gradient.
    {maximize}

    {Raises: options values}

    Examples
    --------
    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> opt = weft.optim.NAdam([p], lr=0.5)
    >>> (3.0 * p).sum().backward()
    >>> opt.step()
    >>> round(p.item(), 4)
    0.4718
    """

    slots = ("step", "mu_product", "exp_avg", "exp_avg_sq")

    def __init__(self, params: Iterable[Any], lr: float = 2e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False
                 ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        })  # fmt: skip

    def initial(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return moments of zeros, and 1 as the product of momenta."""
        made = super().initial(p, options)
        return {**made, "mu_product": ones(dtype=float64, device=HOST)}

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Move by the gradient and the first moment, over the root of the second."""
        beta1, beta2 = group["betas"]
        rate = group.rate.double()
        grad = grad.neg() if group["maximize"] else grad
        old: Tensor = p
        if group["weight_decay"]:
            if group["decoupled_weight_decay"]:
                old = p.sub(p.mul(rate.mul(group["weight_decay"]).astype(p.dtype)))
            else:
                grad = grad.add(p, alpha=group["weight_decay"])
        step = state["step"].add(1)
        momentum, following = (
            number.double().mul(group["momentum_decay"]).rpow(0.96).mul(-0.5).add(1).mul(beta1)
            for number in (step, step.add(1))
        )
        product = state["mu_product"].mul(momentum)
        first = state["exp_avg"].mul(beta1).add(grad.mul(1 - beta1))
        second = state["exp_avg_sq"].mul(beta2).add(grad.mul(grad).mul(1 - beta2))
        unbias = step.double().rpow(beta2).neg().add(1).astype(p.dtype)
        size = second.div(unbias).sqrt().add(group["eps"])
        by_grad = rate.mul(momentum.neg().add(1)).div(product.neg().add(1))
        by_first = rate.mul(following).div(product.mul(following).neg().add(1))
        state["step"].copy_(step)
        state["mu_product"].copy_(product)
        state["exp_avg"].copy_(first)
        state["exp_avg_sq"].copy_(second)
        move = grad.mul(by_grad.astype(p.dtype)).add(first.mul(by_first.astype(p.dtype)))
        p.copy_(old.sub(move.div(size)))


class RMSprop(Optimizer):
    """Gradient descent scaled by a running root mean square (Hinton, 2012).

    Parameters
    ----------
    {params}
    alpha : float
        Decay rate of the mean square.
    eps : float
        Added to its root.
    {weight_decay momentum}
    centered : bool
        Whether the gradient's variance is taken instead of its mean square.

    {Raises: options values}

    Examples
    --------
    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> opt = weft.optim.RMSprop([p], lr=0.5, alpha=0.0)
    >>> (3.0 * p).sum().backward()
    >>> opt.step()
    >>> round(p.item(), 4)
    0.5
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps,
                                  "weight_decay": weight_decay, "momentum": momentum,
                                  "centered": centered})

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the mean square's name, the velocity's with momentum, the mean's if centred."""
        names = ("square_avg", "momentum_buffer") if options["momentum"] else ("square_avg",)
        return (*names, "grad_avg") if options.get("centered") else names

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Move by the gradient over its root mean square."""
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        alpha = group["alpha"]
        square = state["square_avg"].mul(alpha).add(grad.mul(grad).mul(1 - alpha))
        state["square_avg"].copy_(square)
        if group.get("centered"):
            mean = state["grad_avg"].lerp(grad, 1 - alpha)
            state["grad_avg"].copy_(mean)
            square = square.sub(mean.mul(mean))
        move = grad.div(square.sqrt().add(group["eps"]))
        if group["momentum"]:
            move = state["momentum_buffer"].mul(group["momentum"]).add(move)
            state["momentum_buffer"].copy_(move)
        p.sub_(move.mul(group.rate.astype(p.dtype)))


fill_docstrings(globals(), SECTIONS)
