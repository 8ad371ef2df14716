"""The base of learning-rate schedules: epochs, and the rates of an optimiser's groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import DTypeError
from weft.optim.optimizer import Group, Optimizer
from weft.optim.sections import SECTIONS
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Schedule", "groups_of"]


def groups_of(optimizer: object, name: str) -> list[Group]:
    """Return the groups of what has to be an optimiser."""
    if isinstance(optimizer, Optimizer):
        return optimizer.param_groups
    raise DTypeError(name, found=f"a {type(optimizer).__name__}", expected="an optimiser",
                     hint="such as weft.optim.Adam(net.parameters())")


class Schedule:
    """Base of schedules: the rate of a group is its first rate times `factor`.

    A subclass defines `factor`, or `rate`.

    {Parameters: optimizer last_epoch}

    Examples
    --------
    >>> class Halved(weft.optim.lr_scheduler.Schedule):
    ...     def factor(self, epoch):
    ...         return 0.5**epoch
    >>> schedule = Halved(weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in groups_of(optimizer, type(self).__name__):
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [float(g["initial_lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return a group's learning rate in an epoch.

        Parameters
        ----------
        base : float
            The group's first rate.
        {epoch}
        group : int
            The group's number.

        Returns
        -------
        float
            The rate.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> weft.optim.lr_scheduler.StepLR(opt, 10, gamma=0.5).rate(1.0, 10, 0)
        0.5
        """
        return base * self.factor(epoch)

    def factor(self, epoch: int) -> float:
        """Return the factor of the first rate in an epoch.

        {Parameters: epoch}

        Returns
        -------
        float
            1, unless the schedule says otherwise.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> weft.optim.lr_scheduler.StepLR(opt, 10, gamma=0.5).factor(20)
        0.25
        """
        return 1.0

    def step(self) -> None:
        """Go on to the next epoch, and set its rates.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> schedule = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
        """
        self.last_epoch += 1
        self.apply(self.last_epoch)

    def apply(self, epoch: int) -> None:
        """Set the rates of an epoch.

        {Parameters: epoch}

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> schedule = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        >>> schedule.apply(2)
        >>> opt.param_groups[0]["lr"]
        0.25
        """
        for i, (group, base) in enumerate(
            zip(self.optimizer.param_groups, self.base_lrs, strict=True)
        ):
            value = self.rate(base, epoch, i)
            if value != group["lr"]:
                group["lr"] = value

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each group.

        Returns
        -------
        list of float
            In the order of the groups.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> weft.optim.lr_scheduler.StepLR(opt, 10).get_last_lr()
        [1.0]
        """
        return [float(g["lr"]) for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, as a dict.

        Returns
        -------
        dict
            ``last_epoch``.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> weft.optim.lr_scheduler.StepLR(opt, 10).state_dict()
        {'last_epoch': 0}
        """
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up the epoch of another schedule.

        {Parameters: state_dict}

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
        >>> schedule = weft.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        >>> schedule.load_state_dict({"last_epoch": 3})
        >>> schedule.get_last_lr()
        [0.125]
        """
        self.last_epoch = int(state_dict["last_epoch"])
        self.apply(self.last_epoch)


fill_docstrings(globals(), SECTIONS)
