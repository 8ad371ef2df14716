"""The base of layers that are functions with options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from weft.errors import UnsupportedError
from weft.nn.module import Module

__all__ = ["Stateless"]


class Stateless(Module):
    """A function of `weft.nn.functional` with options, which are attributes."""

    _function: Callable[..., Any]
    _inputs: ClassVar[tuple[str, ...]] = ("input",)  # their names as keywords
    _tensors: ClassVar[tuple[str, ...]] = ()  # options that are part of the state

    def __init_subclass__(cls, function: Callable[..., Any] | None = None) -> None:
        super().__init_subclass__()
        if function is not None:
            cls._function = staticmethod(function)

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._names = tuple(options)
        for name, value in options.items():
            if name in self._tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {name: getattr(self, name) for name in self._names}

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return the function of the arguments."""
        if named:
            names = self._inputs[len(args) :]
            unknown = [name for name in named if name not in names]
            if unknown:
                raise UnsupportedError(type(self).__name__, found=f"{unknown[0]}=",
                                       expected=", ".join(f"{n}=" for n in self._inputs))
            args = (*args, *[named[name] for name in names if name in named])
        return type(self)._function(*args, **self.options)

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join([f"{k}={v!r}" for k, v in self.options.items()
                          if k != "inplace" or v])
