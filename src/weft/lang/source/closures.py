"""What functions know from outside: from the functions around them and from their modules."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["closed_over", "names_of"]


def closed_over(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a function knows from the functions around it.

    A name that they set on some ways only may have no value: the kernel may not use it either.
    """
    found: dict[str, Any] = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            found[name] = cell.cell_contents
    return found


def names_of(*functions: Any) -> dict[str, object]:
    """Return the names that functions, or what was made of them, know from outside."""
    known: dict[str, object] = {}
    for decorated in functions:
        function = getattr(decorated, "__weft_function__", decorated)
        if getattr(function, "__code__", None) is None:
            continue
        known.update(function.__globals__)
        known.update(closed_over(function))
    return known
