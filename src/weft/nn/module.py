"""`Module`: the base class of layers, a tree with parameters, buffers and a training mode."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

import numpy as np

from weft.errors import DTypeError, ShapeError, WeftError
from weft.nn.conversion import Convertible
from weft.nn.hooks import Hook, HookHandle, LoadResult, When, called
from weft.nn.module_sections import ENTRIES, MODULE
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.creation import tensor
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented

__all__ = ["Module", "StateError"]


class StateError(WeftError, KeyError):
    """A state dict lacks an entry, or has one too many."""

    __str__ = WeftError.__str__


class Module(Convertible):
    """Base of all layers: finds parameters, buffers and layers among its attributes.

    A subclass calls ``super().__init__()``, assigns layers and parameters, and defines `forward`.

    Attributes
    ----------
    training : bool
        Whether the module is in training mode.

    Raises
    ------
    WeftError
        If a layer or a parameter is assigned before ``super().__init__()``.

    Examples
    --------
    >>> class Scale(weft.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = weft.nn.Parameter(weft.ones(1))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    _training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]
    _optional: ClassVar[frozenset[str]] = frozenset()  # what a state dict may lack
    _hooks: Mapping[int, Hook] = MappingProxyType({})

    def __init__(self) -> None:
        for name, value in (("_training", True), ("_parameters", {}), ("_buffers", {}),
                            ("_modules", {}), ("_transient", set())):  # fmt: skip
            object.__setattr__(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the layer's result; every layer defines its own."""
        raise WeftError(f"{type(self).__name__}.forward", found="no such method",
                        expected="one that computes the result")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the layer's result."""
        if not self._hooks:
            return self.forward(*args, **kwargs)
        return called(self, tuple(self._hooks.values()), args, kwargs)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                              with_kwargs: bool = False) -> HookHandle:  # fmt: skip
        """Call a function with each result, which it may replace."""
        return HookHandle(self, Hook(When.AFTER, hook, with_kwargs), prepend)

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> HookHandle:  # fmt: skip
        """Call a function with the arguments of each call, which it may replace."""
        return HookHandle(self, Hook(When.BEFORE, hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False
                                    ) -> HookHandle:  # fmt: skip
        """Call a function with the gradients of arguments, which it may replace, and of results."""
        return HookHandle(self, Hook(When.GRADIENT_AFTER, hook, False), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False
                                        ) -> HookHandle:  # fmt: skip
        """Call a function with the gradients of results, which it may replace."""
        return HookHandle(self, Hook(When.GRADIENT_BEFORE, hook, False), prepend)

    # attributes

    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if "_parameters" not in tables:
            raise WeftError(f"{type(self).__name__}.{name}", found="an assignment before "
                            "Module.__init__()", expected="super().__init__() first")
        for table, kind in self._tables():
            if name in table and not isinstance(value, Parameter | Module):
                _check(f"{type(self).__name__}.{name}", value, kind)
                table[name] = value
                return
            table.pop(name, None)
        if isinstance(value, Parameter):
            tables.pop(name, None)
            self._parameters[name] = value
        elif isinstance(value, Module):
            tables.pop(name, None)
            self._modules[name] = value
        else:
            object.__setattr__(self, name, value)

    def _tables(self) -> tuple[tuple[dict[str, Any], type], ...]:
        return ((self._parameters, Parameter), (self._buffers, Tensor), (self._modules, Module))

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in tables.get(table, ()):
                return tables[table][name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name,
                             obj=self)  # fmt: skip

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the state and is not learned."""
        self._check_name("register_buffer", name, self._buffers)
        _check("register_buffer", tensor, Tensor)
        self.__dict__.pop(name, None)
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a parameter, or None for one that this instance has not."""
        self._check_name("register_parameter", name, self._parameters)
        _check("register_parameter", parameter, Parameter)
        self.__dict__.pop(name, None)
        self._parameters[name] = parameter

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a layer under a name."""
        self._check_name("add_module", name, self._modules)
        _check("add_module", module, Module)
        self.__dict__.pop(name, None)
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, operation: str, name: Any, table: Mapping[str, object]) -> None:
        """Raise a StateError unless a name can be an attribute's and part of a path."""
        if not isinstance(name, str) or not name or "." in name:
            raise StateError(operation, found=f"the name {name!r}", expected="one without dots")
        if name not in table and (hasattr(type(self), name) or name in self.__dict__):
            raise StateError(operation, found=f"the name {name!r}", expected="another: the module "
                             "has an attribute of that name")

    # walking

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:  # fmt: skip
        """Return this module and all below it with their paths, each once."""
        seen: set[Module] = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate and module in seen:
                continue
            seen.add(module)
            yield path, module
            below = [(f"{path}.{n}" if path else n, m)
                     for n, m in module._modules.items() if m is not None]  # fmt: skip
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """Return this module and all below it, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Return the layers directly below with their names, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Return the layers directly below."""
        return (m for _, m in self.named_children())

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True
                         ) -> Iterator[tuple[str, Parameter]]:  # fmt: skip
        """Return all parameters with their paths, each once."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Return all parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True
                      ) -> Iterator[tuple[str, Tensor]]:  # fmt: skip
        """Return all buffers with their paths, each once."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Return all buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def _named(self, table: str, prefix: str, recurse: bool, once: bool
               ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        seen: set[int] = set()
        modules = (self.named_modules(prefix=prefix, remove_duplicate=once) if recurse
                   else [(prefix, self)])
        for path, module in modules:
            for name, value in getattr(module, table).items():
                if value is not None and not (once and id(value) in seen):
                    seen.add(id(value))
                    yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        """Return the module at a path."""
        module: Module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"no parameter {target!r}")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"no buffer {target!r}")
        return found

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call a function with every module, those below before it, and return this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    # mode and type

    @property
    def training(self) -> bool:
        """Whether the module is in training mode."""
        if state.capture is not None:
            state.capture.depends(self, "training", self._training)
        return self._training

    @training.setter
    def training(self, mode: bool) -> None:
        """Whether the module is in training mode.

        Returns
        -------
        bool
            True at first; `train` and `eval` set it.

        Examples
        --------
        >>> weft.nn.Dropout().eval().training
        False
        """
        if state.capture is not None:
            state.capture.sets(self)
        object.__setattr__(self, "_training", bool(mode))

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout drops, batch norm learns its statistics), below as well."""
        if not isinstance(mode, bool):
            raise DTypeError("train", found=describe(mode), expected="True or False")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode, below as well."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Learn, or freeze, all parameters."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or set them to zeros)."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                with no_grad():
                    p.grad.zero_()

    # state

    def _entries(self, prefix: str) -> Iterator[tuple[str, Module, dict[str, Any], str]]:
        """Return parameters and persistent buffers: paths, owners, their tables, names."""
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:  # what is shared has an entry for each path
            lead, module = stack.pop()
            for table in (module._parameters, module._buffers):
                for name, value in table.items():
                    if value is not None and (table is module._parameters
                                              or name not in module._transient):
                        yield lead + name, module, cast("dict[str, Any]", table), name
            below = [(f"{lead}{n}.", m) for n, m in module._modules.items() if m is not None]
            stack.extend(reversed(below))

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
                   ) -> Any:  # fmt: skip
        """Return parameters and persistent buffers by path; the values share memory."""
        out = OrderedDict() if destination is None else destination
        for key, _, table, name in self._entries(prefix):
            out[key] = table[name] if keep_vars else table[name].detach()
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> LoadResult:  # fmt: skip
        """Copy values by path into parameters and buffers."""
        if not isinstance(state_dict, Mapping):
            raise DTypeError("load_state_dict", found=describe(state_dict),
                             expected="a dict of tensors by path",
                             hint="weft.load(path) reads one from a file")
        own = {key: entry for key, *entry in self._entries("")}
        missing = [key for key, (owner, _, name) in own.items()
                   if key not in state_dict and name not in cast(Module, owner)._optional]
        unexpected = [k for k in state_dict if k not in own]
        if strict and (missing or unexpected):
            raise StateError("load_state_dict", found=f"missing {missing}, unexpected {unexpected}",
                             expected="the module's own entries")
        values = {k: _as_values(v) for k, v in state_dict.items() if k in own}
        for key, value in values.items():
            _, table, name = cast(Any, own[key])
            if value.shape != table[name].shape:
                raise ShapeError("load_state_dict", found=f"{key} of {value.shape}",
                                 expected=f"{table[name].shape}")
        with no_grad():
            for key, value in values.items():
                _, table, name = cast(Any, own[key])
                old = table[name]
                if not assign:
                    old.copy_(value)
                elif isinstance(old, Parameter):
                    given = state_dict[key]
                    table[name] = (given if isinstance(given, Parameter)
                                   else Parameter(value, old.requires_grad))
                else:
                    table[name] = value
        return LoadResult(missing, unexpected)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = object.__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            object.__setattr__(made, name, copy.deepcopy(value, memo))
        return made

    # text

    def extra_repr(self) -> str:
        """Return what `repr` shows of this layer itself."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): " + repr(module).replace("\n", "\n  ")
                 for name, module in self._modules.items()]
        head = f"{type(self).__name__}({self.extra_repr()}"
        return head + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


def _check(operation: str, value: object, kind: type) -> None:
    """Raise a DTypeError unless a value can be a parameter, a buffer or a layer; None can."""
    if value is None or isinstance(value, kind):
        return
    hint = {Parameter: "weft.nn.Parameter(tensor) makes one",
            Tensor: "weft.tensor(...) makes one"}.get(kind)  # fmt: skip
    raise DTypeError(operation, found=f"a {type(value).__name__}", expected=f"a {kind.__name__}",
                     hint=hint)


def _as_values(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    # A copy: the copy into the parameter is lazy, and the memory is somebody else's.
    return tensor(value.detach() if hasattr(value, "detach") else np.asarray(value))


documented(Module, MODULE, ENTRIES)
