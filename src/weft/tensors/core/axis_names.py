"""NumPy's keywords beside PyTorch's: ``axis`` for ``dim``, ``keepdims`` for ``keepdim``.

Functions and methods are written with PyTorch's names alone; `takes_axis` makes them take the
others as keywords. Which of the two a caller writes changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

from weft.errors import UnsupportedError
from weft.tensors.docs.documented import misnamed, wrapping

__all__ = ["takes_axis", "with_axis_names"]

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_SYNONYMS: Final = {  # PyTorch's name: NumPy's
    "dim": ("axis",), "dims": ("axis", "axes"), "keepdim": ("keepdims",), "size": ("shape",),
}  # fmt: skip
_VARIABLE: Final = frozenset({"dims", "size", "shape"})  # take any number of sizes or axes
_VARIADIC: Final = 0x04  # CO_VARARGS
_KNOWN: Final = _VARIABLE.union(_SYNONYMS)


def takes_axis(function: _Function) -> _Function:
    """Return a function that takes NumPy's names of its parameters as keywords, too.

    >>> weft.softmax(x, axis=0)  # doctest: +SKIP
    """
    synonyms, rest = _names(function)
    if not synonyms:
        return function
    known = tuple(synonyms)

    def call(*args: Any, **options: Any) -> Any:
        for name in known:
            if name in options:
                args, options = _renamed(function, synonyms, rest, args, options)
                break
        try:
            return function(*args, **options)
        except TypeError as error:
            found = misnamed(error, function, options)
            if found is error:
                raise
            raise found from None

    return wrapping(call, function)  # type: ignore[return-value]


def with_axis_names(kind: _Class) -> _Class:
    """Make all methods of a class, and of the classes of ours below it, take NumPy's names."""
    for base in kind.__mro__:
        if not base.__module__.startswith("weft."):
            continue
        for name, value in list(vars(base).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                made = takes_axis(value)
                if made is not value:
                    setattr(base, name, made)
    return kind


def _names(function: Any) -> tuple[dict[str, str], str]:
    """Return PyTorch's name by NumPy's, and the name of the parameter that takes the rest."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    rest = code.co_varnames[count] if code.co_flags & _VARIADIC else ""
    if _KNOWN.isdisjoint(names) and rest not in _KNOWN:
        return {}, rest
    found = {
        other: name for name in (*names, rest)
        if name in _SYNONYMS and (name != "size" or names[:1] != ("self",))
        for other in _SYNONYMS[name] if other not in names
    }
    if rest in _VARIABLE:
        found[rest] = rest
    return found, rest


def _renamed(function: Any, synonyms: dict[str, str], rest: str, args: tuple[Any, ...],
             options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """Return the arguments by PyTorch's names."""
    out: dict[str, Any] = {}
    for key, value in options.items():
        name = synonyms.get(key, key)
        if name in out or (name != key and name in options):
            raise UnsupportedError(function.__name__, found=f"{name}= and {key}=",
                                   expected="one of them: both name one parameter")
        out[name] = value
    if rest in out:
        value = out.pop(rest)
        args = (*args, *(value if isinstance(value, tuple | list) else (value,)))
    return args, out
