"""The base of optimisers: parameter groups, state, one realize a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

from weft.errors import DTypeError, GradientError, RangeError, ShapeError
from weft.ir.dtype import float32, float64
from weft.ir.node import HOST
from weft.optim.sections import SECTIONS
from weft.optim.transaction import all_or_none
from weft.tensors.api.autograd import enable_grad, no_grad
from weft.tensors.api.creation import tensor, zeros
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_tensor, number
from weft.tensors.core.pending import take_losses
from weft.tensors.core.tensor_value import realize_all
from weft.tensors.core.thread_state import outside_capture, state
from weft.tensors.core.write_lock import changing
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Group", "Optimizer"]

_HELD: Final = ("params", "lr", "initial_lr")  # what is no number of a captured step


class Group(MutableMapping[str, Any]):
    """Parameters with their options, as a dict.

    The learning rate is also held as a 0-d tensor, so that a schedule may change it without a new
    compilation, inside and outside captured functions. It is as exact as the widest parameter.
    Other options are numbers of a captured step, which is captured anew when one changes.

    Parameters
    ----------
    options : mapping of str to object
        ``params``, ``lr`` and the optimiser's other options.

    Attributes
    ----------
    rate : Tensor
        The learning rate, 0-d.

    Examples
    --------
    >>> opt = weft.optim.SGD(weft.nn.Linear(3, 2).parameters(), lr=0.5)
    >>> opt.param_groups[0]["lr"] = 0.25
    >>> opt.param_groups[0].rate.item()
    0.25
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        wide = any(p.dtype is float64 for p in options["params"])
        # In the memory of the process, a number meets parameters of every device.
        self.rate = tensor(float(options["lr"]), dtype=float64 if wide else float32,
                           device=HOST).realize()
        self._settings = object()  # another one when an option changes that a capture has read
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if state.capture is not None and key not in _HELD:
            self._read.add(key)
            state.capture.depends(self, "_settings", self._settings)
        return self._options[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._read and not _is_same(self._options.get(key), value):
            self._renew()
        self._options[key] = value
        if key == "lr":
            self.rate.copy_(value if isinstance(value, int | float) else float(value))
            self.rate.realize()

    def __delitem__(self, key: str) -> None:
        if key in self._read:
            self._renew()
        del self._options[key]

    def _renew(self) -> None:
        """Let captured functions that depend on the options be captured anew."""
        if state.capture is not None:
            state.capture.sets(self)
        self._settings = object()

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        shown = {k: v for k, v in self._options.items() if k != "params"}
        return f"Group({len(self['params'])} parameters, {shown})"


class Optimizer:
    """Base of optimisers.

    A subclass names its state tensors in `slots` and defines `update`.

    Parameters
    ----------
    params : iterable of Tensor, or of mappings
        Parameters, or dicts with ``params`` and options of their own.
    defaults : mapping of str to object
        Options for groups that do not give them.

    Attributes
    ----------
    param_groups : list of Group
        Parameters with their options.
    state : dict of Tensor to dict
        Each parameter's state tensors by name.

    Raises
    ------
    RangeError
        If an option is negative, or a beta is not in [0, 1).
    ShapeError
        If there are no parameters, or one is in two groups.
    DTypeError
        If `params` holds something else, or is a single tensor.
    GradientError
        If one was computed from others, so that it has no gradient of its own.

    Examples
    --------
    >>> class Descent(weft.optim.Optimizer):
    ...     def update(self, p, grad, state, group):
    ...         p.sub_(grad * group.rate)
    >>> opt = Descent([weft.nn.Parameter(weft.ones(1))], {"lr": 0.5})
    """

    slots: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        if not isinstance(params, Iterable) or isinstance(params, Tensor):
            raise DTypeError(type(self).__name__, found=f"a {type(params).__name__}",
                             expected="parameters, such as net.parameters() or [tensor]")
        given = list(params)
        if not given:
            raise ShapeError(type(self).__name__, found="no parameters", expected="at least one",
                             hint="layers in a list are found in an nn.ModuleList")
        if not isinstance(given[0], Mapping):
            given = [{"params": given}]
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._grouping = object()  # another one when there are more groups
        for group in given:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own, and make their state.

        Parameters
        ----------
        group : mapping of str to object
            ``params``, and options that differ from the defaults.

        Raises
        ------
        ShapeError
            If a parameter is in two groups.
        RangeError
            If an option is negative.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))])
        >>> opt.add_param_group({"params": [weft.nn.Parameter(weft.ones(2))], "lr": 0.1})
        >>> len(opt.param_groups)
        2
        """
        made = {**self.defaults, **group}
        listed = made.get("params", ())
        made["params"] = [listed] if isinstance(listed, Tensor) else list(listed)
        for p in made["params"]:
            check_tensor(p, type(self).__name__)
            if not p.is_leaf:
                raise GradientError(type(self).__name__, found="a computed tensor",
                                    expected="leaves, such as parameters",
                                    hint="optimise what it was computed from, or detach() it")
        check(made, type(self).__name__)
        for p in made["params"]:
            if p in self.state:
                raise ShapeError(type(self).__name__, found="a parameter in two groups",
                                 expected="each parameter once")
            self.state[p] = self.initial(p, made)
        self.param_groups.append(Group(made))
        self._grouping = object()

    def initial(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return a parameter's state before the first step: zeros, of its shape or 0-d.

        Parameters
        ----------
        p : Tensor
            The parameter.
        options : mapping of str to object
            Those of its group.

        Returns
        -------
        dict of str to Tensor
            State tensors by name.

        Examples
        --------
        >>> p = weft.nn.Parameter(weft.ones(2))
        >>> sorted(weft.optim.Adam([p]).initial(p, {"amsgrad": False}))
        ['exp_avg', 'exp_avg_sq', 'step']
        """
        return {
            name: (zeros(device=p.device) if name == "step"
                   else zeros(*p.shape, dtype=p.dtype, device=p.device))
            for name in self.state_names(options)
        }

    def state_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the state tensors that options need.

        Parameters
        ----------
        options : mapping of str to object
            Those of a group.

        Returns
        -------
        tuple of str
            `slots`, unless the optimiser says otherwise.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(2))])
        >>> opt.state_names({"momentum": 0.9, "dampening": 0.0})
        ('momentum_buffer',)
        """
        return self.slots

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or set them to zeros).

        Parameters
        ----------
        set_to_none : bool
            False sets gradients to zeros.

        Examples
        --------
        >>> weft.optim.SGD([weft.nn.Parameter(weft.ones(2))]).zero_grad()
        """
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

        Parameters
        ----------
        closure : callable, optional
            Called first; computes the loss and the gradients.

        Returns
        -------
        object
            What the closure returned, or None.

        Raises
        ------
        WeftError
            If the update cannot be compiled or run.

        Examples
        --------
        >>> p = weft.nn.Parameter(weft.ones(1))
        >>> (3.0 * p).sum().backward()
        >>> weft.optim.SGD([p], lr=0.5).step()
        >>> p.tolist()
        [-0.5]
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if state.capture is not None:
            state.capture.depends(self, "_grouping", self._grouping)
        self._update_all()
        return loss

    @changing
    def _update_all(self) -> None:
        with all_or_none() as changed:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        _check_current(p, type(self).__name__)
                        continue
                    own = self._state_of(p, group)
                    changed.add(p, *own.values())
                    self.update(p, p.grad, own, group)
            realize_all(changed, take_losses())

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group) -> None:
        """Change one parameter and its state in place; each optimiser defines its own.

        Parameters
        ----------
        p, grad : Tensor
            The parameter and its gradient, of one shape.
        state : dict of str to Tensor
            The parameter's state tensors.
        group : Group
            The options, and the learning rate as the tensor ``group.rate``.

        Raises
        ------
        ShapeError
            If an optimiser defines none.

        Examples
        --------
        >>> p = weft.nn.Parameter(weft.ones(1))
        >>> opt = weft.optim.SGD([p], lr=0.5)
        >>> with weft.no_grad():
        ...     opt.update(p, weft.ones(1), {}, opt.param_groups[0])
        >>> p.tolist()
        [0.5]
        """
        raise ShapeError(type(self).__name__, found="no update", expected="a method update()")

    def state_dict(self) -> dict[str, Any]:
        """Return options and state; parameters are numbered in order.

        Returns
        -------
        dict
            ``state`` by number, copied, and ``param_groups``; `weft.save` takes it.

        Examples
        --------
        >>> sorted(weft.optim.SGD([weft.nn.Parameter(weft.ones(2))]).state_dict())
        ['param_groups', 'state']
        """
        numbers = {p: i for i, p in enumerate(self._all())}
        groups = [{**{k: v for k, v in g.items() if k != "params"},
                   "params": [numbers[p] for p in g["params"]]} for g in self.param_groups]
        state = {numbers[p]: {k: v.detach().clone() for k, v in s.items()}
                 for p, s in self.state.items() if s}  # fmt: skip
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take options and state from another optimiser of the same parameters.

        {Parameters: state_dict}

        Raises
        ------
        ShapeError
            If the groups have other sizes.

        Examples
        --------
        >>> opt = weft.optim.SGD([weft.nn.Parameter(weft.ones(2))], lr=0.5)
        >>> opt.load_state_dict(weft.optim.SGD([weft.nn.Parameter(weft.ones(2))]).state_dict())
        >>> opt.param_groups[0]["lr"]
        0.001
        """
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ShapeError("load_state_dict", found="groups of other sizes",
                             expected=f"{len(self.param_groups)} groups as in the optimiser")
        for own, other in zip(self.param_groups, groups, strict=True):
            for key, value in other.items():
                if key != "params":
                    own[key] = value
        params = [(p, g) for g in self.param_groups for p in g["params"]]
        with no_grad():
            for number, values in state_dict["state"].items():
                state = self._state_of(*params[int(number)])
                for name, value in values.items():
                    target = state.get(name)
                    if target is not None:
                        target.copy_(tensor(value))

    def _state_of(self, p: Tensor, group: Group) -> dict[str, Tensor]:
        """Return a parameter's state, with what options need that were set since it was made."""
        state = self.state[p]
        if any(name not in state for name in self.state_names(group)):
            with outside_capture():  # it outlives a captured function in which this is found
                made = self.initial(p, group)
                realize_all(made.values())
            for name, value in made.items():
                state.setdefault(name, value)
        return state

    def _all(self) -> Iterator[Tensor]:
        return (p for g in self.param_groups for p in g["params"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.param_groups})"


def _is_same(old: Any, new: Any) -> bool:
    """Whether an option stays as it is; tensors are compared by identity."""
    return old is new or (type(old) is type(new) and not isinstance(old, Tensor)
                          and bool(old == new))  # fmt: skip


def _check_current(p: Tensor, name: str) -> None:
    """Raise a GradientError for a parameter in whose place its module has another by now."""
    if "_successor" in vars(p):
        raise GradientError(name, found="a parameter that its module has converted since",
                            expected="the module's parameters",
                            hint="make the optimiser after .double(), .half() or .to(dtype)")


def check(options: Mapping[str, Any], name: str) -> None:
    """Raise a RangeError for an option that no optimiser can mean."""
    for key in ("lr", "weight_decay", "momentum", "eps"):
        value = options.get(key, 0.0)
        if not isinstance(value, (bool, Tensor)):
            value = number(value, name)
        if not isinstance(value, bool) and not float(value) >= 0:
            raise RangeError(name, found=f"{key}={value}", expected="at least 0")
    for beta in options.get("betas", ()):
        if not 0 <= beta < 1:
            raise RangeError(name, found=f"betas={options['betas']}", expected="0 to 1, without 1")


fill_docstrings(globals(), SECTIONS)
