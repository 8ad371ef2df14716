"""Weak collections whose entries leave without Python code being run.

What runs when an object dies cannot raise: Python prints "Exception ignored in ..." and goes on. A
Ctrl-C that arrives in a callback of `weakref.WeakKeyDictionary`, which is Python code, is lost so.
Here built-in functions remove entries by integer keys, which no signal handler interrupts.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

__all__ = ["Living", "WeakTable"]

K = TypeVar("K")
V = TypeVar("V")
_NOTHING: Final[tuple[Any, Any]] = (None, None)


class Living(Generic[K]):
    """A set of objects by identity that keeps none of them alive.

    One thread may go through it while another adds to it, which `weakref.WeakSet` refuses.
    """

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[K]] = {}

    def add(self, item: K) -> None:
        """Add an object."""
        key, refs = id(item), self._refs
        refs[key] = weakref.ref(item, partial(refs.pop, key))

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[K]:
        """Go through those that are alive now."""
        return iter([t for t in (r() for r in list(self._refs.values())) if t is not None])


class WeakTable(MutableMapping[K, V]):
    """A mapping from objects, by identity, that keeps none of them alive.

    One thread may go through it while another changes it.

    Attributes
    ----------
    entries : dict
        What it holds, of which hot paths ask whether there is anything.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: Final[dict[int, tuple[weakref.ref[K], V]]] = {}

    def __getitem__(self, key: K) -> V:
        return self.entries[id(key)][1]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of an object, or `default`."""
        found = self.entries.get(id(key))
        return default if found is None else found[1]

    def __contains__(self, key: object) -> bool:
        return id(key) in self.entries

    def __setitem__(self, key: K, value: V) -> None:
        number, entries = id(key), self.entries
        entries[number] = weakref.ref(key, partial(entries.pop, number)), value

    def setdefault(self, key: K, default: V) -> V:
        """Return the value of an object, which is `default` if it had none."""
        number, entries = id(key), self.entries
        found = entries.get(number)
        if found is None:
            ref = weakref.ref(key, partial(entries.pop, number))
            found = entries.setdefault(number, (ref, default))
        return found[1]

    def pop(self, key: K, default: Any = None) -> Any:
        """Remove an object, if it is there, and return its value, or `default`."""
        found = self.entries.pop(id(key), _NOTHING)
        return default if found is _NOTHING else found[1]

    def __delitem__(self, key: K) -> None:
        del self.entries[id(key)]

    def __iter__(self) -> Iterator[K]:
        """Go through the objects that are alive now."""
        return iter([k for k in (r() for r, _ in list(self.entries.values())) if k is not None])

    def __len__(self) -> int:
        return len(self.entries)
