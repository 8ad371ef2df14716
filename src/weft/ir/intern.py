"""Tables of interned values, which forget those that nothing else refers to.

`weakref.WeakValueDictionary` would do, but its callback is Python code: a Ctrl-C that arrives while
it runs is printed as "ignored", and lost. Here a dying value leaves through ``dict.pop`` itself,
and no part of a key has a hash that is Python code.
"""

from __future__ import annotations

import gc
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from weft.locks import in_child

__all__ = ["Table", "intern", "keeping", "key_of"]

T = TypeVar("T")
Table = dict[Any, weakref.ref[T]]
_PATIENCE = 1000
_pack_double: Final = struct.Struct("<d").pack
_HASHED_NATIVELY: Final = frozenset({int, bool, str, bytes, complex})
_kept: Final[list[list[Any]]] = []  # one list, while somebody keeps what is interned
_collecting: Final[list[bool]] = []  # whether garbage was collected before


@contextmanager
def keeping() -> Iterator[None]:
    """Let no interned value die inside the block: whose code runs when one does is left to chance.

    One thread at a time may be in such a block.
    """
    _collecting.append(gc.isenabled())
    gc.disable()
    _kept.append([])
    try:
        yield
    finally:
        _end()


def _end() -> None:
    """Forget what was kept, in a forked child as well."""
    _kept.clear()
    if _collecting and _collecting.pop():
        gc.enable()


in_child(_end)


def key_of(attr: Any) -> Any:
    """Return the part of a key that stands for an attribute.

    Floats are told apart by bit pattern. What may have a hash of its own is put into a frozenset,
    which remembers the hash.
    """
    kind = type(attr)
    if kind is float:
        return _pack_double(attr)
    return attr if kind in _HASHED_NATIVELY else frozenset((attr,))


def intern(table: Table[T], key: Any, made: T) -> T:
    """Return the value of `key`: `made`, or the one that another thread put there first."""
    ref = weakref.ref(made, partial(table.pop, key))
    found = made if table.setdefault(key, ref) is ref else _first(table, key, made, ref)
    for values in _kept:
        values.append(found)
    return found


def _first(table: Table[T], key: Any, made: T, ref: weakref.ref[T]) -> T:
    """Return the value that another thread put there, or `made` once that one is gone."""
    for _ in range(_PATIENCE):
        found = table.setdefault(key, ref)()
        if found is not None:
            return found
        # It has just died in another thread, which is about to remove it from the table.
        time.sleep(0)
    return made
