"""A learning-rate schedule that follows a measure, such as the loss of a validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft.errors import RangeError
from weft.optim.optimizer import Optimizer
from weft.optim.schedule import Schedule, groups_of
from weft.optim.sections import SECTIONS
from weft.tensors.core.arguments import choice
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["ReduceLROnPlateau"]

_COUNTED: Final = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


class ReduceLROnPlateau(Schedule):
    """The rate falls by `factor` when a measure has not improved for more than `patience` epochs.

    Parameters
    ----------
    {optimizer}
    mode : str
        Whether a smaller measure is better ("min"), or a larger one ("max").
    factor : float
        The factor of a fall, below 1.
    patience : int
        Epochs without improvement that are borne.
    threshold : float
        By how much a measure has to be better than the best one.
    threshold_mode : str
        Whether that is a share of the best one ("rel"), or a difference ("abs").
    cooldown : int
        Epochs after a fall that do not count.
    min_lr : float, or sequence of float
        The lowest rate (of each group).
    eps : float
        Smaller falls are not made.

    Raises
    ------
    RangeError
        If `mode` or `threshold_mode` is unknown, or `factor` is not below 1.

    Examples
    --------
    >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
    >>> for loss in (0.5, 0.5, 0.5):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: float | Sequence[float] = 0.0,
                 eps: float = 1e-8) -> None:  # fmt: skip
        name = type(self).__name__
        n = len(groups_of(optimizer, name))
        choice(mode, ("min", "max"), name, "mode")
        choice(threshold_mode, ("rel", "abs"), name, "threshold_mode")
        if not factor < 1:
            raise RangeError(name, found=f"factor={factor}", expected="a factor below 1")
        self.optimizer, self.mode, self.gamma, self.patience = optimizer, mode, factor, patience
        self.threshold, self.is_relative = threshold, threshold_mode == "rel"
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * n
        self.best = math.inf if mode == "min" else -math.inf
        self.last_epoch = self.num_bad_epochs = self.cooldown_counter = 0

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Take the measure of an epoch, and let the rates fall if it is time.

        Parameters
        ----------
        metrics : float or Tensor
            The measure, such as the loss of a validation.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(opt, "max", 0.5, patience=0)
        >>> schedule.step(0.9)
        >>> schedule.step(weft.tensor(0.8))
        >>> schedule.get_last_lr()
        [0.5]
        """
        found = float(metrics)
        self.last_epoch += 1
        self.num_bad_epochs += 1
        if self._is_better(found):
            self.best, self.num_bad_epochs = found, 0
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(float(group["lr"]) * self.gamma, least)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate

    def _is_better(self, found: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.is_relative:
            limit = self.best * (1 + sign * self.threshold)
        else:
            limit = self.best + sign * self.threshold
        return found > limit if self.mode == "max" else found < limit

    def state_dict(self) -> dict[str, Any]:
        """Return the best measure and what has been counted since, as a dict.

        Returns
        -------
        dict
            ``best``, ``num_bad_epochs``, ``cooldown_counter`` and ``last_epoch``.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> weft.optim.lr_scheduler.ReduceLROnPlateau(opt).state_dict()["num_bad_epochs"]
        0
        """
        return {name: getattr(self, name) for name in _COUNTED}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up what another schedule has counted; the rates are the optimiser's.

        {Parameters: state_dict}

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(opt)
        >>> schedule.load_state_dict({**schedule.state_dict(), "best": 0.25})
        >>> schedule.best
        0.25
        """
        for name in _COUNTED:
            setattr(self, name, state_dict[name])


fill_docstrings(globals(), SECTIONS)
