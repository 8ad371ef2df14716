"""`Module`: a tree of layers with parameters, buffers and a mode."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from weft.errors import DTypeError, ShapeError, WeftError
from weft.frontend.arguments import describe
from weft.frontend.autograd import no_grad
from weft.frontend.creation import tensor
from weft.frontend.state import state
from weft.frontend.tensor import Parameter, Tensor

__all__ = ["Module", "ModuleDict", "ModuleList", "ParameterList", "Sequential", "StateError"]


class StateError(WeftError, KeyError):
    """A state dict lacks an entry, or has one too many."""

    __str__ = WeftError.__str__


class Module:
    """Base of all layers: finds parameters, buffers and layers among its attributes.

    A subclass calls ``super().__init__()``, assigns layers and parameters, and defines `forward`.
    """

    _training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]

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
        return self.forward(*args, **kwargs)

    # attributes

    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if "_parameters" not in tables:
            raise WeftError(f"{type(self).__name__}.{name}", found="an assignment before "
                            "Module.__init__()", expected="super().__init__() first")
        for table in (self._parameters, self._buffers, self._modules):
            if name in table and not isinstance(value, Parameter | Module):
                if table is self._parameters and isinstance(value, Tensor):
                    raise WeftError(f"{type(self).__name__}.{name}", found="a tensor",
                                    expected="a Parameter, in place of a parameter")
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

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in tables.get(table, ()):
                return tables[table][name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

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
        self.__dict__.pop(name, None)
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a parameter, or None for one that this instance has not."""
        self.__dict__.pop(name, None)
        self._parameters[name] = parameter

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a layer under a name."""
        self.__dict__.pop(name, None)
        self._modules[name] = module

    # walking

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Return this module and all below it with their paths, each once."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            below = [(f"{path}.{n}" if path else n, m)
                     for n, m in module._modules.items() if m is not None]  # fmt: skip
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """Return this module and all below it."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Return the layers directly below with their names."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def children(self) -> Iterator[Module]:
        """Return the layers directly below."""
        return (m for _, m in self.named_children())

    def named_parameters(self, prefix: str = "", recurse: bool = True
                         ) -> Iterator[tuple[str, Parameter]]:  # fmt: skip
        """Return all parameters with their paths, each once."""
        return self._named("_parameters", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Return all parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True
                      ) -> Iterator[tuple[str, Tensor]]:  # fmt: skip
        """Return all buffers with their paths, each once."""
        return self._named("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Return all buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def _named(self, table: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, value in getattr(module, table).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        """Return the module at a path (``"layers.0.attention"``)."""
        module: Module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
        return module

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call a function with every module, the deepest first, and return this one."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    # mode and type

    @property
    def training(self) -> bool:
        """Whether the module is in training mode."""
        if state.capture is not None:
            state.capture.mode(self, self._training)
        return self._training

    @training.setter
    def training(self, mode: bool) -> None:
        if state.capture is not None:
            state.capture.set_mode(self)
        object.__setattr__(self, "_training", bool(mode))

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout drops, batch norm learns its statistics)."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode."""
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

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating parameters and buffers to a dtype (the device is the CPU)."""
        with no_grad():
            for module in self.modules():
                for name, p in list(module._parameters.items()):
                    if p is not None and p.dtype.is_float:
                        new = p.detach().to(*args, **kwargs)
                        if new.dtype is not p.dtype:
                            module._parameters[name] = Parameter(new, p.requires_grad)
                for name, b in list(module._buffers.items()):
                    if b is not None and b.dtype.is_float:
                        module._buffers[name] = b.to(*args, **kwargs)
        return self

    def float(self) -> Self:
        """Convert floating parameters and buffers to float32."""
        return self.to("float32")

    def double(self) -> Self:
        """Convert floating parameters and buffers to float64."""
        return self.to("float64")

    def half(self) -> Self:
        """Convert floating parameters and buffers to float16."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Convert floating parameters and buffers to bfloat16."""
        return self.to("bfloat16")

    # state

    def state_dict(self) -> OrderedDict[str, Tensor]:
        """Return parameters and persistent buffers by path; the values share memory."""
        out: OrderedDict[str, Tensor] = OrderedDict()
        for path, module in self.named_modules():
            lead = f"{path}." if path else ""
            for name, p in module._parameters.items():
                if p is not None:
                    out[lead + name] = p.detach()
            for name, b in module._buffers.items():
                if b is not None and name not in module._transient:
                    out[lead + name] = b.detach()
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True
                        ) -> tuple[list[str], list[str]]:  # fmt: skip
        """Copy values by path into parameters and buffers; return (missing, unexpected) paths.

        Raises
        ------
        StateError
            If a path is missing or unknown, unless `strict` is False.
        ShapeError
            If a shape differs.
        """
        own = self.state_dict()
        missing = [k for k in own if k not in state_dict]
        unexpected = [k for k in state_dict if k not in own]
        if strict and (missing or unexpected):
            raise StateError("load_state_dict", found=f"missing {missing}, unexpected {unexpected}",
                             expected="the module's own entries")
        values = {k: _as_values(v) for k, v in state_dict.items() if k in own}
        for key, value in values.items():
            if value.shape != own[key].shape:
                raise ShapeError("load_state_dict", found=f"{key} of {value.shape}",
                                 expected=f"{own[key].shape}")
        with no_grad():
            for key, value in values.items():
                own[key].copy_(value)
        return missing, unexpected

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
        lines = []
        for name, module in self.named_children():
            lines.append(f"({name}): " + repr(module).replace("\n", "\n  "))
        head = f"{type(self).__name__}({self.extra_repr()}"
        return head + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


def _as_values(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    # A copy: the copy into the parameter is lazy, and the memory is somebody else's.
    return tensor(value.detach() if hasattr(value, "detach") else np.asarray(value))


class Sequential(Module):
    """Layers applied one after the other."""

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            for name, named in layers[0].items():
                self.add_module(name, named)
            return
        for i, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise WeftError("Sequential", found=type(layer).__name__, expected="a Module")
            self.add_module(str(i), layer)

    def forward(self, x: Any) -> Any:
        """Apply the layers in order."""
        for layer in self.children():
            x = layer(x)
        return x

    def append(self, layer: Module) -> Self:
        """Add a layer at the end."""
        self.add_module(str(len(self._modules)), layer)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int | slice) -> Module:
        layers = list(self.children())
        return Sequential(*layers[index]) if isinstance(index, slice) else layers[index]


class ModuleList(Module):
    """A list of layers whose parameters are found."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        """Add a layer at the end."""
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add several layers at the end."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]


class ModuleDict(Module):
    """A dict of layers whose parameters are found."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None and not isinstance(modules, Mapping):
            raise DTypeError("ModuleDict", found=describe(modules), expected="a dict of modules")
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Module:
        found = self._modules[name]
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._modules.keys()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Return names and layers."""
        return self.named_children()

    def values(self) -> Iterator[Module]:
        """Return the layers."""
        return self.children()


class ParameterList(Module):
    """A list of parameters that are found."""

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        super().__init__()
        for p in parameters:
            self.append(p)

    def append(self, parameter: Parameter) -> Self:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self._parameters)), parameter)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return self.parameters(recurse=False)

    def __getitem__(self, index: int) -> Parameter:
        return list(self)[index]
