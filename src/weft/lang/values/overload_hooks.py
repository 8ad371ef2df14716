"""Functions, methods and attributes that a compatible interface chooses by the types of arguments.

What is registered here is asked before a kernel's own meaning of a call or an attribute. It is
given the reader of the kernel and the values, and returns what the call means.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.ir.record import Record

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.core.values import Value

__all__ = ["ATTRIBUTES", "FUNCTIONS", "METHODS", "Extension", "attribute", "function", "has",
           "method"]  # fmt: skip


class Extension(Record):
    """What a name means: whether it is for a value that it belongs to, and what a call gives."""

    fits: Callable[[Value], bool]
    call: Callable[..., Value | None]


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {}  # by the function
METHODS: Final[dict[str, Extension]] = {}  # by their names
ATTRIBUTES: Final[dict[str, Extension]] = {}


def function(c: Context, callee: Any, args: list[Value], named: dict[str, Value],
             node: ast.Call) -> Value | None:  # fmt: skip
    """Return what the call of a function gives, None if nobody has chosen anything for it."""
    try:
        found = FUNCTIONS.get(callee)
    except TypeError:  # of what has no hash
        return None
    return None if found is None else found(c, args, named, node)


def method(c: Context, owner: Value | None, node: ast.Call, func: ast.Attribute) -> Value | None:
    """Return what a method gives, None if nobody has chosen anything for its owner."""
    found = METHODS.get(func.attr)
    if found is None:
        return None
    if owner is None:
        owner = c.visit(func.value)
    if not found.fits(owner):
        return None
    args, named = c.arguments(node)
    return found.call(c, [owner, *args], named, node)


def has(owner: Value, name: str) -> bool:
    """Whether something is chosen for a method or an attribute of a value."""
    return any(found is not None and found.fits(owner)
               for found in (METHODS.get(name), ATTRIBUTES.get(name)))


def attribute(c: Context, owner: Value, node: ast.Attribute) -> Value | None:
    """Return what an attribute is, None if nobody has chosen anything for its owner."""
    found = ATTRIBUTES.get(node.attr)
    return found.call(c, [owner], {}, node) if found is not None and found.fits(owner) else None
