"""Annotations of kernels and critical functions: what they say about parameters.

An annotation is a contract. ``float32[:, ::1]`` is an array, ``int32`` a number that is converted
to it, ``constexpr`` a value that the kernel is compiled for. A parameter without one has the type
that it comes with, and the kernel is compiled for each.
"""

from __future__ import annotations

import inspect
import types as pytypes
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from weft.errors import KernelError
from weft.frontend.kernel.closures import closed_over
from weft.frontend.kernel.elements import as_dtype
from weft.frontend.kernel.types import ArrayType, ConstantType, GroupType, KernelType, ScalarType
from weft.ir.dtype import ArrayAnnotation, ConstantAnnotation, constexpr

__all__ = ["Signature", "constant_of", "evaluated", "kind_of"]


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
    where : tuple of (str, int)
        File and line of the kernel.
    """

    def __init__(self, function: Callable[..., Any],
                 wanted: Mapping[str, Wanted] | None = None) -> None:  # fmt: skip
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.names = tuple(self.signature.parameters)
        code = function.__code__
        self.where = code.co_filename, code.co_firstlineno
        self.lenient = wanted is not None
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                raise KernelError(f"kernel {self.name}", found=str(p), where=self.where,
                                  expected="parameters that each have a name")
        if wanted is None:
            held = function.__annotations__
            names = evaluated_names(function) if held else {}
            wanted = {n: self._resolve(held[n], n, names) for n in self.names if n in held}
        self.wanted: dict[str, Wanted] = {name: wanted.get(name) for name in self.names}

    @property
    def is_complete(self) -> bool:
        """Whether the annotations tell all that a kernel is compiled for."""
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
    """Return what tells values apart that are equal: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_mark, value))})"
    if isinstance(value, bool | int | float):
        return f"{type(value).__qualname__} {value!r}"
    return ""
