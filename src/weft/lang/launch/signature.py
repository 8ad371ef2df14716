"""Annotations of kernels and critical functions: what they say about parameters.

An annotation is a contract. ``float32[:, ::1]`` is an array, ``int32`` a number that is converted
to it, ``constexpr`` a value that the kernel is compiled for. A parameter without one has the type
that it comes with, and the kernel is compiled for each.
"""

from __future__ import annotations

import enum
import inspect
import re
import types as pytypes
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final

from weft.errors import KernelError, LaunchError
from weft.ir.dtype import ArrayAnnotation, ConstantAnnotation, constexpr
from weft.lang.core.element_types import as_dtype
from weft.lang.source.closures import closed_over
from weft.lang.values.types import ArrayType, ConstantType, GroupType, KernelType, ScalarType

__all__ = ["Signature", "constant_of", "evaluated", "kind_of", "told"]


_UNKNOWN: Final = object()  # an annotation that names what is not there when the program runs

Wanted = KernelType | ConstantAnnotation | None


class Signature:
    """Parameters of a kernel.

    Attributes
    ----------
    names : tuple of str
        The parameters.
    wanted : dict of str to (KernelType, constexpr or None)
        What the annotations say, None where there is none that says anything.
    lenient : bool
        Whether numbers of any type are converted, as C does it (numba's signatures).
    rest : str or None
        The parameter that takes the further arguments of a launch as a tuple: ``*rest``, the last.
    further : sequence of (KernelType, constexpr or None), or None
        What is wanted of each further argument, None where there may be any number of them.
    where : tuple of (str, int)
        File and line of the kernel.
    """

    def __init__(self, function: Callable[..., Any], wanted: Mapping[str, Wanted] | None = None,
                 takes_rest: bool = False) -> None:  # fmt: skip
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.names = tuple(self.signature.parameters)
        code = function.__code__
        self.where = code.co_filename, code.co_firstlineno
        self.lenient = wanted is not None
        self.rest = self._rest(takes_rest)
        if wanted is None:
            held = function.__annotations__
            names = evaluated_names(function) if held else {}
            wanted = {n: self._resolve(held[n], n, names) for n in self.names if n in held}
        self.wanted: dict[str, Wanted] = {name: wanted.get(name) for name in self.names}
        self.further: Sequence[Wanted] | None = None
        if self.rest is not None and self.lenient:
            given = self.wanted[self.rest]
            self.further = given.items if isinstance(given, GroupType) else None

    def _rest(self, takes_rest: bool) -> str | None:
        """Return the name of the parameter that takes the further arguments of a launch."""
        rest = None
        for p in self.signature.parameters.values():
            if p.kind is p.VAR_KEYWORD or (p.kind is p.VAR_POSITIONAL and not takes_rest):
                raise KernelError(f"kernel {self.name}", found=str(p), where=self.where,
                                  expected="parameters that each have a name")
            if rest is not None:
                raise KernelError(f"kernel {self.name}", found=f"{p} behind *{rest}",
                                  where=self.where, expected=f"*{rest} as the last parameter")
            if p.kind is p.VAR_POSITIONAL:
                rest = p.name
        return rest

    def fits(self, count: int) -> bool:
        """Whether so many arguments, given by their places, are all that a launch needs."""
        if self.rest is None:
            return count == len(self.names)
        more = count - len(self.names) + 1
        return more >= 0 if self.further is None else more == len(self.further)

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a launch by their places, defaults included.

        Raises
        ------
        LaunchError
            If there are others than the kernel takes.
        """
        name = f"launch of {self.name}"
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise LaunchError(name, found=str(error),
                              expected=f"{self.name}{self.signature}") from None
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
        if self.rest is not None:
            values = (*values[:-1], *values[-1])
        if not self.fits(len(values)):
            count = len(self.names) - 1 + len(self.further or ())
            raise LaunchError(name, found=f"{len(values)} arguments",
                              expected=f"{count}, as in its signature")
        return values

    def matched(self, args: tuple[Any, ...]) -> Iterator[tuple[str, Wanted, Any]]:
        """Return each argument of a launch with its name and what is wanted of it.

        Further ones are called as the items of a tuple are: ``rest.0``, ``rest.1``.
        """
        if self.rest is None:
            return zip(self.names, self.wanted.values(), args, strict=True)
        count = len(self.names) - 1
        names = (*self.names[:-1], *(f"{self.rest}.{k}" for k in range(len(args) - count)))
        every = repeat(self.wanted[self.rest]) if self.further is None else self.further
        return zip(names, chain([self.wanted[n] for n in self.names[:-1]], every), args,
                   strict=False)

    def folded(self, types: dict[str, KernelType]) -> dict[str, KernelType]:
        """Return the types of parameters, for those of arguments in order: the rest as a tuple."""
        if self.rest is None:
            return types
        count = len(self.names) - 1
        kinds = tuple(types.values())
        return {**dict(zip(self.names[:-1], kinds, strict=False)),
                self.rest: GroupType(kinds[count:])}

    def unfolded(self, kinds: tuple[KernelType, ...]) -> tuple[KernelType, ...]:
        """Return the types of arguments in order, for those of parameters."""
        if self.rest is None:
            return kinds
        tail: Any = kinds[-1]
        return (*kinds[:-1], *tail.items)

    @property
    def is_complete(self) -> bool:
        """Whether the annotations tell all that a kernel is compiled for."""
        if self.rest is not None and self.further is None:
            return False
        stack: list[Any] = list(self.wanted.values())
        while stack:
            kind = stack.pop()
            if kind is None or kind is constexpr:
                return False
            if isinstance(kind, GroupType):
                stack.extend(kind.items)
        return True

    def _resolve(self, annotation: Any, name: str, names: dict[str, Any]) -> Wanted:
        found = evaluated(annotation, names)
        if found is _UNKNOWN or found is Any or found is object:
            return None
        if isinstance(found, ConstantAnnotation):
            return found
        kind = kind_of(found)
        module = getattr(found, "__module__", "") or ""
        if kind is None and not callable(found) and not module.startswith(("typing", "numpy")):
            raise KernelError(f"kernel {self.name}", where=self.where,
                              found=f"the annotation {annotation!r} of parameter {name}",
                              expected="a dtype (weft.float32), an array (weft.float32[:]), "
                              "weft.constexpr, or a named tuple or dataclass of such")
        return kind


def told(name: str) -> str:
    """Return what errors call an argument: the item ``rest.2`` of a tuple ``rest[2]``."""
    return re.sub(r"\.(\d+)", r"[\1]", name) if "." in name else name


def evaluated_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what the annotations of a function may name."""
    return {**function.__globals__, **closed_over(function)}


def evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation; one that is text and names what is not there stands for nothing."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except NameError:  # imported for type checkers only
        return _UNKNOWN
    except Exception:
        return annotation


def kind_of(annotation: Any) -> KernelType | None:
    """Return the type that an annotation stands for, None for none."""
    if annotation is None or annotation is type(None):
        return ConstantType(None)
    if isinstance(annotation, ArrayAnnotation):
        shape = annotation.shape if any(n is not None for n in annotation.shape) else ()
        return ArrayType(annotation.dtype, len(annotation.shape), annotation.order, False, shape)
    origin = typing.get_origin(annotation)
    if origin is tuple:
        items = tuple(kind_of(a) for a in typing.get_args(annotation))
        return None if None in items else GroupType(items)
    if isinstance(annotation, pytypes.GenericAlias):
        return None
    if isinstance(annotation, type):
        names = tuple(getattr(annotation, "_fields", ())
                      or getattr(annotation, "__dataclass_fields__", ()))
        if names:
            try:
                hints = typing.get_type_hints(annotation)
            except NameError:
                hints = dict(annotation.__annotations__)
            items = tuple(kind_of(hints[n]) if n in hints else None for n in names)
            return None if None in items else GroupType(items, names, annotation)
    d = as_dtype(annotation)
    return None if d is None else ScalarType(d)


def constant_of(value: Any) -> ConstantType | None:
    """Return the type of a value that a kernel is compiled for, None if it cannot be one."""
    if not isinstance(value, Hashable):
        return None
    try:
        hash(value)
    except TypeError:
        return None
    return ConstantType(value, _mark(value))


def _mark(value: Any) -> str:
    """Return what tells values apart that are equal: 1, 1.0 and True; 0.0 and -0.0; members."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_mark, value))})"
    if isinstance(value, enum.Enum):  # whose class may have the name of another one
        return f"{id(type(value))} {value!r}"
    if isinstance(value, bool | int | float):
        return f"{type(value).__qualname__} {value!r}"
    return ""
