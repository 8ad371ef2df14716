"""A primitive as a method of `Schedule`: found when it is used, and written in the trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from weft.ir.stmt import Kernel

P = ParamSpec("P")
Rewrite = Callable[Concatenate[Kernel, P], Kernel]


class Applies(Protocol):
    """What a primitive is a method of."""

    def apply(self, primitive: primitive[...], arguments: tuple[Any, ...],
              named: dict[str, Any]) -> Self:  # fmt: skip
        """Apply a primitive, and add its line to the trace."""


S = TypeVar("S", bound=Applies)


class primitive(Generic[P]):
    """A row of `Schedule`: a function ``(kernel, ...) -> kernel`` as a method with these arguments.

    The method has the function's docstring and signature. Its line in a trace has the arguments in
    order, those that are `named` with their names, and these only where they are not the default.

    Parameters
    ----------
    find : callable
        Returns the function. It is called when the primitive is first used: a simple nest takes two
        or three of them, and their modules are imported no earlier.
    named : str
        Arguments that traces show with their names.
    always : bool
        Whether they show them at their defaults, too.
    """

    def __init__(self, find: Callable[[], Rewrite[P]], *named: str, always: bool = False) -> None:
        self._find, self._named, self._always = find, named, always
        self._method: Callable[..., Any] | None = None
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        PRIMITIVES[name] = self

    @overload
    def __get__(self, schedule: None, owner: type[S]) -> Callable[Concatenate[S, P], S]: ...

    @overload
    def __get__(self, schedule: S, owner: type[S]) -> Callable[P, S]: ...

    def __get__(self, schedule: S | None, owner: type[S]) -> Callable[..., S]:
        if self._method is None:
            self._method = self._made()
        method = self._method
        return method if schedule is None else method.__get__(schedule)

    def _made(self) -> Callable[..., Any]:
        found = self._find()
        code = found.__code__
        count = code.co_argcount
        self.function: Callable[..., Kernel] = found
        self._parameters = code.co_varnames[1:count]
        defaults = found.__defaults__ or ()
        self._defaults = {**dict(zip(code.co_varnames[count - len(defaults) : count], defaults,
                                     strict=True)), **(found.__kwdefaults__ or {})}

        def method(schedule: S, *arguments: Any, **named: Any) -> S:
            return schedule.apply(self, arguments, named)

        return update_wrapper(method, found)

    def line(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        """Return the line of a trace for a call with these arguments."""
        values = {**self._defaults, **dict(zip(self._parameters, arguments, strict=False)), **named}
        shown = [_show(values[p]) for p in self._parameters if p not in self._named]
        shown += map(_show, arguments[len(self._parameters) :])
        shown += [f"{p}={_show(values[p])}" for p in self._named
                  if self._always or p not in self._defaults or values[p] != self._defaults[p]]
        return f"{self.name}({', '.join(shown)})"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


PRIMITIVES: Final[dict[str, primitive[...]]] = {}  # by name, in the order of `Schedule`
