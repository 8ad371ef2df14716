"""What all optimisers share: groups of parameters, state, one realize a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from weft.errors import RangeError, ShapeError
from weft.frontend.arguments import check_tensor
from weft.frontend.autograd import no_grad
from weft.frontend.core import realize_all
from weft.frontend.creation import tensor, zeros
from weft.frontend.pending import take_losses
from weft.frontend.tensor import Tensor
from weft.frontend.undo import all_or_none
from weft.ir.dtype import float32, float64

__all__ = ["Group", "Optimizer"]


class Group(MutableMapping[str, Any]):
    """Parameters with their options.

    The learning rate is also held as a 0-d tensor, so that a schedule may change it without a new
    compilation, inside and outside captured functions. It is as exact as the widest parameter.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        wide = any(p.dtype is float64 for p in options["params"])
        self.rate = tensor(float(options["lr"]), dtype=float64 if wide else float32).realize()

    def __getitem__(self, key: str) -> Any:
        return self._options[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._options[key] = value
        if key == "lr":
            self.rate.copy_(float(value))
            self.rate.realize()

    def __delitem__(self, key: str) -> None:
        del self._options[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        shown = {k: v for k, v in self._options.items() if k != "params"}
        return f"Group({len(self['params'])} parameters, {shown})"


class Optimizer:
    """Base of optimisers.

    Parameters
    ----------
    params
        Parameters, or dicts with ``params`` and options of their own.
    defaults
        Options for groups that do not give them.

    A subclass names its state tensors in `slots` and defines `update`.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        given = list(params)
        if not given:
            raise ShapeError(type(self).__name__, found="no parameters", expected="at least one")
        if not isinstance(given[0], Mapping):
            given = [{"params": given}]
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        for group in given:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own, and make their state."""
        made = {**self.defaults, **group}
        listed = made.get("params", ())
        made["params"] = [listed] if isinstance(listed, Tensor) else list(listed)
        for p in made["params"]:
            check_tensor(p, type(self).__name__)
        check(made, type(self).__name__)
        for p in made["params"]:
            if p in self.state:
                raise ShapeError(type(self).__name__, found="a parameter in two groups",
                                 expected="each parameter once")
            self.state[p] = self.initial(p, made)
        self.param_groups.append(Group(made))

    def initial(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return a parameter's state before the first step: zeros, of its shape or 0-d."""
        return {
            name: (zeros() if name == "step" else zeros(*p.shape, dtype=p.dtype))
            for name in self.state_names(options)
        }

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the state tensors that these options need."""
        return self.slots

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients (or set them to zeros)."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad.zero_()

    @no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter that has a gradient; all in one plan.

        If that fails, parameters and state keep their values.
        """
        loss = closure() if closure is not None else None
        with all_or_none() as changed:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    changed.add(p, *state.values())
                    self.update(p, p.grad, state, group)
            realize_all(changed, take_losses())
        return loss

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Change one parameter and its state in place; each optimiser defines its own."""
        raise ShapeError(type(self).__name__, found="no update", expected="a method update()")

    def state_dict(self) -> dict[str, Any]:
        """Return options and state; parameters are numbered in order."""
        numbers = {p: i for i, p in enumerate(self._all())}
        groups = [{**{k: v for k, v in g.items() if k != "params"},
                   "params": [numbers[p] for p in g["params"]]} for g in self.param_groups]
        state = {numbers[p]: {k: v.detach().clone() for k, v in s.items()}
                 for p, s in self.state.items() if s}  # fmt: skip
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take options and state from another optimiser of the same parameters."""
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ShapeError("load_state_dict", found="groups of other sizes",
                             expected=f"{len(self.param_groups)} groups as in the optimiser")
        for own, other in zip(self.param_groups, groups, strict=True):
            for key, value in other.items():
                if key != "params":
                    own[key] = value
        params = list(self._all())
        with no_grad():
            for number, values in state_dict["state"].items():
                for name, value in values.items():
                    target = self.state[params[int(number)]].get(name)
                    if target is not None:
                        target.copy_(tensor(value))

    def _all(self) -> Iterator[Tensor]:
        return (p for g in self.param_groups for p in g["params"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.param_groups})"


def check(options: Mapping[str, Any], name: str) -> None:
    """Raise a RangeError for an option that no optimiser can mean."""
    for key in ("lr", "weight_decay", "momentum", "eps"):
        value = options.get(key, 0.0)
        if not isinstance(value, bool) and not float(value) >= 0:
            raise RangeError(name, found=f"{key}={value}", expected="at least 0")
    for beta in options.get("betas", ()):
        if not 0 <= beta < 1:
            raise RangeError(name, found=f"betas={options['betas']}", expected="0 to 1, without 1")
