"""Tables of interned values, which forget those that nothing else refers to.

`weakref.WeakValueDictionary` would do, but its callback is Python code: a Ctrl-C that arrives while
it runs is printed as "ignored", and lost. Here a dying value leaves through ``dict.pop`` itself.
"""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import Any, TypeVar

__all__ = ["Table", "intern"]

T = TypeVar("T")
Table = dict[Any, weakref.ref[T]]
_PATIENCE = 1000


def intern(table: Table[T], key: Any, made: T) -> T:
    """Return the value of `key`: `made`, or the one that another thread put there first."""
    for _ in range(_PATIENCE):
        ref = weakref.ref(made, partial(table.pop, key))
        first = table.setdefault(key, ref)
        found = made if first is ref else first()
        if found is not None:
            return found
        # One that has just died in another thread, which is about to remove it from the table.
        time.sleep(0)
    return made
