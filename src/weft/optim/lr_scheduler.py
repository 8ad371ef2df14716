"""Learning-rate schedules: one `step` an epoch (or a batch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.optim.optimizer import Optimizer
from weft.optim.plateau import ReduceLROnPlateau
from weft.optim.schedule import Schedule, groups_of
from weft.optim.sections import SECTIONS
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR",
    "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR", "WarmupCosine",
]  # fmt: skip


class LambdaLR(Schedule):
    """The factor is a function of the epoch (one for all groups, or one each).

    Parameters
    ----------
    {optimizer}
    lr_lambda : callable, or sequence of callables
        Takes the epoch, from 0; returns the factor.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> weft.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.5).get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]
                 | Sequence[Callable[[int], float]], last_epoch: int = -1) -> None:  # fmt: skip
        n = len(groups_of(optimizer, "LambdaLR"))
        self.functions = [lr_lambda] * n if callable(lr_lambda) else list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the first rate times the group's function."""
        return base * self.functions[group](epoch)


class StepLR(Schedule):
    """The factor falls by `gamma` every `step_size` epochs.

    Parameters
    ----------
    {optimizer}
    step_size : int
        Epochs between falls.
    {gamma last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
    >>> [schedule.factor(epoch) for epoch in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the number of falls."""
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(Schedule):
    """The factor falls by `gamma` at each milestone.

    Parameters
    ----------
    {optimizer}
    milestones : sequence of int
        Epochs.
    {gamma last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.MultiStepLR(opt, [1, 3], gamma=0.5)
    >>> [schedule.factor(epoch) for epoch in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the number of milestones passed."""
        return float(self.gamma ** sum(m <= epoch for m in self.milestones))


class ExponentialLR(Schedule):
    """The factor falls by `gamma` every epoch.

    {Parameters: optimizer gamma last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> [schedule.factor(epoch) for epoch in range(3)]
    [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the epoch."""
        return float(self.gamma**epoch)


class CosineAnnealingLR(Schedule):
    """The rate falls along a cosine to `eta_min` in `T_max` epochs.

    Parameters
    ----------
    {optimizer}
    T_max : int
        Half the period, in epochs.
    eta_min : float
        The lowest rate.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.CosineAnnealingLR(opt, 4)
    >>> [round(schedule.rate(1.0, epoch, 0), 3) for epoch in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.period, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the point on the cosine."""
        wave = (1 + math.cos(math.pi * epoch / self.period)) / 2
        return self.eta_min + (base - self.eta_min) * wave


class LinearLR(Schedule):
    """The factor goes from `start_factor` to `end_factor` in `total_iters` epochs (warm-up).

    Parameters
    ----------
    {optimizer}
    start_factor, end_factor : float
        The first and the last factor.
    total_iters : int
        The number of epochs between them.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LinearLR(opt, 0.0, total_iters=4)
    >>> [schedule.factor(epoch) for epoch in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5, last_epoch: int = -1) -> None:  # fmt: skip
        self.start, self.end, self.total = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the point on the line."""
        share = min(epoch, self.total) / self.total
        return self.start + (self.end - self.start) * share


class ConstantLR(Schedule):
    """The factor is `factor` for `total_iters` epochs, then 1.

    Parameters
    ----------
    {optimizer}
    factor : float
        That of the first epochs.
    total_iters : int
        Their number.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=2)
    >>> [schedule.factor(epoch) for epoch in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.small, self.total = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of the epoch."""
        return self.small if epoch < self.total else 1.0


class PolynomialLR(Schedule):
    """The factor falls to 0 in `total_iters` epochs, along a power of what is left.

    Parameters
    ----------
    {optimizer}
    total_iters : int
        The number of epochs.
    power : float
        1 is a line.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.PolynomialLR(opt, 4, power=2.0)
    >>> [schedule.factor(epoch) for epoch in range(5)]
    [1.0, 0.5625, 0.25, 0.0625, 0.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.total, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the power of the share that is left."""
        return float((1 - min(epoch, self.total) / self.total) ** self.power)


class WarmupCosine(Schedule):
    """A linear warm-up, then a cosine down to `final` times the first rate.

    Parameters
    ----------
    {optimizer}
    warmup, total : int
        Epochs of the warm-up, and of both together.
    final : float
        The last factor.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.WarmupCosine(opt, 2, 4)
    >>> [round(schedule.factor(epoch), 3) for epoch in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, final: float = 0.0,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.warmup, self.total, self.final = warmup, total, final
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of a step."""
        if epoch < self.warmup:
            return (epoch + 1) / self.warmup
        share = min((epoch - self.warmup) / max(self.total - self.warmup, 1), 1.0)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * share)) / 2


class OneCycleLR(Schedule):
    """Up to `max_lr` along a cosine and down again, once (Smith and Topin, 2019).

    Parameters
    ----------
    {optimizer}
    max_lr : float
        The highest rate.
    total_steps : int
        The number of steps.
    pct_start : float
        The share of them that goes up.
    div_factor : float
        `max_lr` divided by the first rate.
    final_div_factor : float
        The first rate divided by the last one.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
    >>> schedule = weft.optim.lr_scheduler.OneCycleLR(opt, 1.0, 10)
    >>> [round(schedule.rate(1.0, step, 0), 3) for step in (0, 2, 9)]
    [0.04, 1.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, max_lr: float, total_steps: int,
                 pct_start: float = 0.3, div_factor: float = 25.0, final_div_factor: float = 1e4,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.top, self.total = max_lr, total_steps
        self.low, self.last = max_lr / div_factor, max_lr / div_factor / final_div_factor
        self.peak = pct_start * total_steps - 1
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the point on the cycle."""
        if epoch <= self.peak:
            return _cosine(self.low, self.top, epoch / max(self.peak, 1e-9))
        share = (epoch - self.peak) / max(self.total - 1 - self.peak, 1e-9)
        return _cosine(self.top, self.last, min(share, 1.0))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


class SequentialLR(Schedule):
    """Several schedules, each from its milestone on.

    Parameters
    ----------
    {optimizer}
    schedulers : sequence of Schedule
        One more than milestones.
    milestones : sequence of int
        The epochs in which the next schedule begins.
    {last_epoch}

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> constant = weft.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=9)
    >>> falling = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> weft.optim.lr_scheduler.SequentialLR(opt, [constant, falling], [2]).get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Schedule],
                 milestones: Sequence[int], last_epoch: int = -1) -> None:  # fmt: skip
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def apply(self, epoch: int) -> None:
        """Set the rates by the schedule that is in force.

        {Parameters: epoch}

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> constant = weft.optim.lr_scheduler.ConstantLR(opt, 0.5, total_iters=9)
        >>> falling = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        >>> weft.optim.lr_scheduler.SequentialLR(opt, [constant, falling], [2]).apply(3)
        >>> opt.param_groups[0]["lr"]
        0.5
        """
        i = sum(m <= epoch for m in self.milestones)
        start = self.milestones[i - 1] if i else 0
        active = self.schedulers[i]
        active.last_epoch = epoch - start
        active.apply(active.last_epoch)


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)


fill_docstrings(globals(), SECTIONS)
