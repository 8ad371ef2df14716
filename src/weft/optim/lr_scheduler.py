"""Learning rates that follow a schedule: one `step` an epoch (or a batch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR",
    "OneCycleLR", "PolynomialLR", "SequentialLR", "StepLR", "WarmupCosine",
]  # fmt: skip


class Schedule:
    """Base of schedules: the rate of a group is its first rate times `factor`."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [float(g["initial_lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return a group's learning rate in an epoch."""
        return base * self.factor(epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of the first rate in an epoch (from 0)."""
        return 1.0

    def step(self) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        self.apply(self.last_epoch)

    def apply(self, epoch: int) -> None:
        """Set the rates of an epoch."""
        for i, (group, base) in enumerate(
            zip(self.optimizer.param_groups, self.base_lrs, strict=True)
        ):
            value = self.rate(base, epoch, i)
            if value != group["lr"]:
                group["lr"] = value

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each group."""
        return [float(g["lr"]) for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch."""
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up the epoch of another schedule."""
        self.last_epoch = int(state_dict["last_epoch"])
        self.apply(self.last_epoch)


class LambdaLR(Schedule):
    """The factor is a function of the epoch (one for all groups, or one each)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]
                 | Sequence[Callable[[int], float]], last_epoch: int = -1) -> None:  # fmt: skip
        n = len(optimizer.param_groups)
        self.functions = [lr_lambda] * n if callable(lr_lambda) else list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the first rate times the group's function."""
        return base * self.functions[group](epoch)


class StepLR(Schedule):
    """The factor falls by `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the number of falls."""
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(Schedule):
    """The factor falls by `gamma` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the number of milestones passed."""
        return float(self.gamma ** sum(m <= epoch for m in self.milestones))


class ExponentialLR(Schedule):
    """The factor falls by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return gamma to the epoch."""
        return float(self.gamma**epoch)


class CosineAnnealingLR(Schedule):
    """The rate falls along a cosine to `eta_min` in `T_max` epochs."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.period, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the point on the cosine."""
        wave = (1 + math.cos(math.pi * epoch / self.period)) / 2
        return self.eta_min + (base - self.eta_min) * wave


class LinearLR(Schedule):
    """The factor goes from `start_factor` to `end_factor` in `total_iters` epochs (warm-up)."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5, last_epoch: int = -1) -> None:  # fmt: skip
        self.start, self.end, self.total = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the point on the line."""
        share = min(epoch, self.total) / self.total
        return self.start + (self.end - self.start) * share


class ConstantLR(Schedule):
    """The factor is `factor` for `total_iters` epochs, then 1."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.small, self.total = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of the epoch."""
        return self.small if epoch < self.total else 1.0


class PolynomialLR(Schedule):
    """The factor falls to 0 in `total_iters` epochs, along a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1) -> None:  # fmt: skip
        self.total, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """Return the power of the share that is left."""
        return float((1 - min(epoch, self.total) / self.total) ** self.power)


class WarmupCosine(Schedule):
    """A linear warm-up, then a cosine down to `final` times the first rate."""

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
    """Up to `max_lr` along a cosine and down again, once (Smith and Topin, 2019)."""

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
    """Several schedules, each from its milestone on."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Schedule],
                 milestones: Sequence[int], last_epoch: int = -1) -> None:  # fmt: skip
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def apply(self, epoch: int) -> None:
        """Set the rates by the schedule that is in force."""
        i = sum(m <= epoch for m in self.milestones)
        start = self.milestones[i - 1] if i else 0
        active = self.schedulers[i]
        active.last_epoch = epoch - start
        active.apply(active.last_epoch)
