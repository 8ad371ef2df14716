"""Replace symbols that a captured function stored in the user's objects by numbers.

A function may keep a size or a number that it was given: in an attribute, a list, a closure. After
the capture these objects hold the plain number. What cannot be changed (an object of C that shows
nobody what it holds) goes on with the stand-in, which then acts like the number.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from types import CellType, FrameType
from typing import Any, Final

from weft.ir.expr import Expr
from weft.ir.node import Node, Storage

__all__ = ["replace_everywhere"]

_DEEPEST: Final = 4  # tuples within tuples
_OURS: Final = (Node, Expr, Storage, FrameType)


def replace_everywhere(plain: Mapping[int, tuple[Any, Any]]) -> None:
    """Put numbers in the place of objects that stood for them, in all that refers to these.

    Parameters
    ----------
    plain
        By identity: an object, and its number.
    """
    for _ in range(_DEEPEST):
        if not plain:
            return
        sought = [old for old, _ in plain.values()]
        known = {id(plain), id(sought), *map(id, plain.values())}
        tuples: dict[int, tuple[Any, Any]] = {}
        for holder in gc.get_referrers(*sought):
            if id(holder) in known or isinstance(holder, _OURS):
                continue
            if isinstance(holder, tuple | frozenset):
                made = _rebuilt(holder, plain)
                if made is not None:
                    tuples[id(holder)] = holder, made
            else:
                with contextlib.suppress(Exception):  # an object that nobody may change
                    _replace(holder, plain)
        del sought
        plain = tuples


def _rebuilt(holder: Any, plain: Mapping[int, tuple[Any, Any]]) -> Any:
    items = [_plain(v, plain) for v in holder]
    if isinstance(holder, tuple) and hasattr(holder, "_fields"):
        return type(holder)(*items)
    return type(holder)(items) if type(holder) in (tuple, frozenset) else None


def _plain(value: Any, plain: Mapping[int, tuple[Any, Any]]) -> Any:
    found = plain.get(id(value))
    return value if found is None else found[1]


def _replace(holder: Any, plain: Mapping[int, tuple[Any, Any]]) -> None:
    """Replace items, attributes or the contents of one object."""
    if isinstance(holder, dict):
        _replace_in_dict(holder, plain)
    elif isinstance(holder, list | deque):
        for i, value in enumerate(holder):
            if id(value) in plain:
                holder[i] = plain[id(value)][1]
    elif isinstance(holder, set):
        items = [_plain(v, plain) for v in holder]  # it may not find what has another hash now
        holder.clear()
        holder.update(items)
    elif isinstance(holder, CellType):
        holder.cell_contents = _plain(holder.cell_contents, plain)
    else:
        _replace_attributes(holder, plain)


def _replace_in_dict(holder: dict[Any, Any], plain: Mapping[int, tuple[Any, Any]]) -> None:
    if any(isinstance(v, weakref.ref) for v in itertools.islice(holder.values(), 1)):
        return  # our tables of interned values, whose keys are what the values are made of
    if any(id(key) in plain for key in holder):
        items = [(_plain(k, plain), _plain(v, plain)) for k, v in holder.items()]
        holder.clear()
        holder.update(items)
        return
    for key, value in holder.items():
        if id(value) in plain:
            holder[key] = plain[id(value)][1]


def _replace_attributes(holder: Any, plain: Mapping[int, tuple[Any, Any]]) -> None:
    attributes = getattr(holder, "__dict__", None)
    if isinstance(attributes, dict):
        _replace_in_dict(attributes, plain)
    names: list[Sequence[str]] = [vars(c).get("__slots__", ()) for c in type(holder).__mro__]
    for name in [n for given in names for n in ((given,) if isinstance(given, str) else given)]:
        value = getattr(holder, name, None)
        if id(value) in plain:
            object.__setattr__(holder, name, plain[id(value)][1])
