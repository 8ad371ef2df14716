"""Decide which numeric arguments of a capture stay run-time scalars, and which are constants.

The first call of a function captures it with its numbers as constants. A number that then has
another value is opened (`weft.tensors.core.runtime_scalars`): one capture serves all its values.
Where the function needs the value itself, the number is pinned: captures have it as a constant from
then on, and there is one for each value, as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from weft.capture.captured_graph import Entry
from weft.capture.captured_values import Overlap
from weft.capture.pytree import flatten, numbers_of
from weft.capture.symbols import Misled, Symbols
from weft.errors import CaptureError, WeftError
from weft.tensors.core.runtime_scalars import Scalars

__all__ = ["Family", "check_open", "explain", "family_of", "may_be_ours", "needs_constant",
           "opened", "pinned_arrays"]  # fmt: skip

Number = int | float
E = TypeVar("E", bound=Entry)


class Family:
    """The calls that differ in nothing but their numbers.

    Attributes
    ----------
    places : sequence of int or str
        The argument that each number is, or lies in: its position or its name.
    pinned : dict of int to str
        Positions of numbers that captures bake in, with the reason.
    """

    def __init__(self, numbers: Sequence[Number], places: Sequence[int | str],
                 static: Collection[int]) -> None:  # fmt: skip
        self.places = places
        self.pinned = dict.fromkeys(static, "static= says so")
        self._first = list(map(repr, numbers))
        self._varied: set[int] = set()

    def copy(self) -> Family:
        """Return a family that knows what this one does."""
        made = copy(self)
        made.pinned, made._varied = {**self.pinned}, {*self._varied}
        return made

    def open(self, numbers: Sequence[Number]) -> tuple[int, ...]:
        """Return the positions of the numbers that are open from this call on."""
        self._varied |= {i for i, n in enumerate(numbers) if repr(n) != self._first[i]}
        return tuple(sorted(self._varied - self.pinned.keys()))


def family_of(function: Callable[..., Any], static: Collection[int | str], args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> Family:  # fmt: skip
    """Return the family that a first call belongs to; `static` are arguments to bake in."""
    numbers: list[Number] = []
    places: list[int | str] = []
    pinned: list[int] = []
    chosen = {_label(function, place) for place in static}
    every: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place, value in every:
        first = len(numbers)
        numbers_of(value, numbers, ())
        places += [place] * (len(numbers) - first)
        if chosen and _label(function, place) in chosen:
            pinned += range(first, len(numbers))
    return Family(numbers, places, pinned)


def check_open(function: Callable[..., Any], dynamic: Collection[int | str], family: Family
               ) -> None:  # fmt: skip
    """Raise an error if a number is a constant of captures that the user wants to be none.

    Raises
    ------
    CaptureError
        It names the line that needs the number.
    """
    chosen = {_label(function, place) for place in dynamic}
    for position, reason in sorted(family.pinned.items()):
        label = _label(function, family.places[position])
        if label in chosen:
            raise needs_constant(f"the value of the argument {label}", reason)


def needs_constant(found: str, reason: str) -> CaptureError:
    """Return the error of a function that has to know what the user wants to be dynamic."""
    return CaptureError("jit", found=f"{found} needed: {reason}",
                        expected="a function that computes with it, and does not need to know it",
                        hint="leave the argument out of dynamic=")


def pinned_arrays(function: Callable[..., Any], static: Collection[int | str],
                  args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:  # fmt: skip
    """Return the arrays, as positions among all, that lie in arguments to bake in."""
    found: set[int] = set()
    arrays: list[Any] = []
    chosen = {_label(function, place) for place in static}
    every: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place, value in every if chosen else ():
        first = len(arrays)
        flatten(value, arrays)
        if _label(function, place) in chosen:
            found |= set(range(first, len(arrays)))
    return found


def _label(function: Callable[..., Any], place: int | str) -> str:
    """Return the name of an argument, given its position or its name."""
    names = _parameters(function) if isinstance(place, int) else []
    return names[place] if isinstance(place, int) and place < len(names) else str(place)


def _parameters(function: Callable[..., Any]) -> list[str]:
    import inspect  # slow to import, and few calls need it

    with contextlib.suppress(TypeError, ValueError):
        return [p.name for p in inspect.signature(function).parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return []


def explain(function: Callable[..., Any], entries: Iterable[tuple[Any, Sequence[Entry]]],
            families: Iterable[Family], refused: Iterable[str]) -> str:  # fmt: skip
    """Return the text of `Jitted.explain_captures`."""
    lines = [f"  {_signature(key)}" for key, found in entries for _ in found]
    reasons = dict.fromkeys(
        f"the argument {_label(function, family.places[i])} is a constant: {reason}"
        for family in families for i, reason in sorted(family.pinned.items()))
    reasons |= dict.fromkeys(f"sizes are constants: {reason}" for reason in refused if reason)
    name = getattr(function, "__name__", "function")
    count = f"{len(lines)} capture" + ("" if len(lines) == 1 else "s")
    return "\n".join([f"{name}: {count}", *lines, *reasons])


def _signature(key: Any) -> str:
    """Return the arguments of a capture in a few words."""
    structure, _, arrays, *_ = key
    shapes = iter([f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype, *_ in arrays])
    (_, (args, kwargs)) = structure
    parts = [_shown(value, shapes) for value in args[1]]
    parts += [f"{name}={_shown(value, shapes)}" for name, value in kwargs[1]]
    return ", ".join(parts)


def _shown(structure: Any, shapes: Iterator[str]) -> str:
    if not isinstance(structure, tuple):
        return next(shapes, "an array")
    kind, value = structure
    if value is None and kind in (int, float):
        return str(kind.__name__)
    if kind is float:
        return repr(float.fromhex(value))
    if kind is dict:
        return "{" + ", ".join(f"{k!r}: {_shown(v, shapes)}" for k, v in value) + "}"
    if isinstance(value, tuple) and kind is not type(value):
        return f"{kind.__name__}({', '.join(_shown(v, shapes) for v in value)})"
    if kind is tuple:
        return f"({', '.join(_shown(v, shapes) for v in value)})"
    return repr(value)


def opened(family: Family, make: Callable[[Symbols], E], scalars: Scalars) -> E | None:
    """Return a capture with open numbers; None if it has to come again without them.

    Numbers that the function needs to know are constants of it, and noted.

    Parameters
    ----------
    make
        Makes the capture.
    """
    try:
        made = make(Symbols(scalars))
    except Overlap:
        raise
    except Misled:
        family.pinned.update(scalars.reasons)
        return None
    except Exception as error:
        if not may_be_ours(error):
            raise
        scalars.reasons.clear()
        scalars.note(f"{type(error).__name__}: {error}".split("\n")[0])
        family.pinned.update(scalars.reasons)
        return None
    family.pinned.update(scalars.reasons)
    return made


def may_be_ours(error: Exception) -> bool:
    """Whether a function may have failed for want of a plain number: C code that takes no other.

    Errors of the function's own, and of numbers themselves, are those that it has anyway.
    """
    return isinstance(error, TypeError | WeftError)
