"""``@overload``: Python in place of a function, chosen for the types of the arguments of a call.

A chooser is called with numba's types for the values of a call in a kernel, and returns a function,
which is read in place of the call, or None where it has nothing for such types. Choosers of the
target ``cuda`` come before those of ``generic``; in one target the last one that fits is taken.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, Final

from weft.compat import types
from weft.compat.numba_types import adopted
from weft.errors import KernelError
from weft.imports import importing
from weft.lang.values.overload_hooks import ATTRIBUTES, FUNCTIONS, METHODS, Extension

__all__ = ["Chooser", "overload", "overload_attribute", "overload_method"]

_TARGETS: Final = ("cuda", "gpu", "generic")  # the nearest comes first


class Chooser:
    """One function under ``@overload``.

    Attributes
    ----------
    choose : function
        The program's: from types to a function.
    rank : int
        How near its target is, from 0.
    literal : bool
        Whether it is asked for the values that are known before it is asked for their types.
    owner : class or type, or None
        Of a method or an attribute, what its values belong to.
    strict : bool
        Whether its functions must have its own parameters.
    """

    def __init__(self, choose: Callable[..., Any], rank: int, literal: bool,
                 owner: Any = None, strict: bool = True) -> None:  # fmt: skip
        self.choose, self.rank, self.literal, self.owner = choose, rank, literal, owner
        self.strict = strict
        self.signature = inspect.signature(choose)

    def fits(self, value: Any) -> bool:
        """Whether it is asked for a value that a method or an attribute belongs to."""
        kind = _type_of(value)
        return isinstance(kind, self.owner) if isinstance(self.owner, type) else kind == self.owner

    def function(self, args: list[Any], named: dict[str, Any]) -> Any:
        """Return a function for the values of a call, None if there is none.

        Raises
        ------
        KernelError
            What the chooser raised, as programs do to say why there is none.
        """
        try:
            bound = self.signature.bind(*args, **named)
        except TypeError:
            return None
        given = tuple(bound.arguments)
        bound.apply_defaults()
        failed: KernelError | None = None
        for known in (True, False) if self.literal else (False, True):
            kinds: dict[str, Any] = {}
            for name, value in bound.arguments.items():
                parameter = self.signature.parameters[name]
                if parameter.kind is parameter.VAR_POSITIONAL:
                    kinds[name] = tuple(_type_of(v, known) for v in value)
                elif parameter.kind is parameter.VAR_KEYWORD:
                    kinds[name] = {key: _type_of(v, known) for key, v in value.items()}
                elif name in given:
                    kinds[name] = _type_of(value, known)
                else:
                    kinds[name] = types.Omitted(value)
            asked = inspect.BoundArguments(self.signature, kinds)
            try:
                found = self.choose(*asked.args, **asked.kwargs)
            except KernelError as error:
                failed = error
                continue
            if found is not None:
                return self._checked(found)
        if failed is not None:
            raise failed
        return None

    def _checked(self, found: Any) -> Any:
        """Return the function that was chosen: its parameters are those of the chooser."""
        with importing:
            from weft.lang.reader.calls import python_of

        function = getattr(found, "__weft_function__", None) or python_of(found)
        if not inspect.isfunction(function):
            raise KernelError(f"@overload {self.choose.__name__}", found=repr(found),
                              expected="a function, or None where there is none for such types")
        here, there = (list(s.parameters.values())
                       for s in (self.signature, inspect.signature(function)))
        if self.strict and [*map(_said, here)] != [*map(_said, there)]:
            raise KernelError(
                f"@overload {self.choose.__name__}",
                found=f"{function.__name__}{inspect.signature(function)}",
                expected=f"the parameters of the chooser: {self.signature}")
        return function


def _said(parameter: inspect.Parameter) -> tuple[str, Any, str]:
    """Return what tells a parameter from another one, but for its annotation."""
    return parameter.name, parameter.kind, repr(parameter.default)


def _rank(options: dict[str, Any]) -> int | None:
    """Return how near a target is, None for one that kernels never ask."""
    target = options.get("target", (options.get("jit_options") or {}).get("target", "generic"))
    return _TARGETS.index(target) if target in _TARGETS else None


def overload(function: Any, jit_options: dict[str, Any] | None = None, strict: bool = True,
             inline: str = "never", prefer_literal: bool = False, **options: Any) -> Any:
    """Choose by types what a call of `function` in a kernel is.

    `inline` and the options of compilation change nothing here.
    """
    del inline
    rank = _rank({"jit_options": jit_options, **options})

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        if rank is not None:
            name = getattr(function, "__name__", str(function))
            _added(FUNCTIONS, function, Chooser(choose, rank, prefer_literal, None, strict),
                   name)
        return choose

    return decorate


_CHOOSERS: Final[dict[tuple[int, Any], list[Chooser]]] = {}


def _added(registry: dict[Any, Any], key: Any, chooser: Chooser, name: str) -> None:
    """Put a chooser among those of a function, method or attribute."""
    choosers = _CHOOSERS.setdefault((id(registry), key), [])
    choosers.insert(0, chooser)
    choosers.sort(key=lambda c: c.rank)  # of one rank the last one that was added comes first

    def call(c: Any, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        return _call(name, choosers, c, args, named, node)

    if registry is FUNCTIONS:
        registry.setdefault(key, call)
    else:
        registry.setdefault(key, Extension(lambda v: any(c.fits(v) for c in choosers), call))


def _call(name: str, choosers: list[Chooser], c: Any, args: list[Any], named: dict[str, Any],
          node: ast.AST) -> Any:  # fmt: skip
    """Return what a call gives, of the first chooser that has a function for it."""
    said = ""
    for chooser in choosers:
        if chooser.owner is not None and not chooser.fits(args[0]):
            continue
        try:
            function = chooser.function(args, named)
        except KernelError as error:
            said = said or error.message
            continue
        if function is not None:
            return c.inline(function, args, named, node)
    kinds = ", ".join([*(repr(_type_of(a)) for a in args),
                       *(f"{key}={_type_of(v)!r}" for key, v in named.items())])
    raise c.wrong(node, f"no @overload of {name} is for ({kinds})" + (f": {said}" if said else ""))


def overload_method(owner: Any, name: str, **options: Any) -> Any:
    """Choose by types what the method `name` of values of a type is."""
    return _of_values(METHODS, owner, name, options)


def overload_attribute(owner: Any, name: str, **options: Any) -> Any:
    """Choose by types what the attribute `name` of values of a type is."""
    return _of_values(ATTRIBUTES, owner, name, options)


def _of_values(registry: dict[Any, Any], owner: Any, name: str, options: dict[str, Any]) -> Any:
    rank, literal = _rank(options), bool(options.get("prefer_literal"))
    strict = bool(options.get("strict", True))

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        if rank is not None:
            _added(registry, name, Chooser(choose, rank, literal, adopted(owner), strict),
                   f".{name}")
        return choose

    return decorate


def _type_of(value: Any, known: bool = False) -> Any:
    """Return numba's type of a value in a kernel, whose reader is loaded by then."""
    with importing:
        from weft.compat.value_types import type_of

    return type_of(value, known)
