"""A least-recently-used table of bounded weight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from weft.locks import mutex

K = TypeVar("K")
V = TypeVar("V")


_changing: Final = mutex()


class LruTable(Generic[K, V]):
    """A table of limited weight; looking something up costs no more than in a dict.

    What is used tells so by itself: its count of uses is looked at only when room is needed. So it
    is nearly the entry that was used least recently which goes (the "clock" of page replacement).

    Parameters
    ----------
    limit : int
        Weight of all entries together.
    least : int
        Entries that are kept whatever they weigh.
    weight : callable
        Tells what an entry weighs, when it comes.
    uses : callable
        Tells how often an entry was used by now.
    dropped : callable, optional
        Called with what goes.
    """

    __slots__ = ("_dropped", "_entries", "_noted", "_total", "_uses", "_weight", "least", "limit")

    def __init__(self, limit: int, least: int, weight: Callable[[V], int],
                 uses: Callable[[V], int],
                 dropped: Callable[[V], object] | None = None) -> None:  # fmt: skip
        self.limit, self.least = limit, least
        self._weight, self._uses, self._dropped = weight, uses, dropped
        self._entries: dict[K, V] = {}
        self._noted: dict[K, tuple[int, int]] = {}  # weight, and uses at the last look
        self._total = 0

    def get(self, key: K) -> V | None:
        """Return an entry, or None."""
        return self._entries.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """Return all entries."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and entries, those that came or were looked at last behind."""
        return list(self._entries.items())

    def put(self, key: K, value: V) -> None:
        """Add an entry, and drop others if there is no room."""
        weight, uses = self._weight(value), self._uses(value)
        with _changing:
            self._drop(key)
            # The one use that it comes for does not count.
            self._entries[key], self._noted[key] = value, (weight, uses + 1)
            self._total += weight
            self._make_room(key)

    def clear(self) -> None:
        """Drop all entries, without a word to ``dropped``."""
        with _changing:
            self._entries.clear()
            self._noted.clear()
            self._total = 0

    def _make_room(self, newest: K) -> None:
        for key in list(self._entries) * 2:  # each gets a second chance, if it was used
            if self._total <= self.limit or len(self._entries) <= self.least:
                return
            value = self._entries.get(key)
            if value is None or key == newest:
                continue
            weight, noted = self._noted[key]
            uses = self._uses(value)
            if uses <= noted:
                self._drop(key)
                continue
            del self._entries[key], self._noted[key]
            self._entries[key], self._noted[key] = value, (weight, uses)

    def _drop(self, key: K) -> None:
        value = self._entries.pop(key, None)
        if value is None:
            return
        self._total -= self._noted.pop(key)[0]
        if self._dropped is not None:
            self._dropped(value)


def room(table: dict[K, V], most: int) -> dict[K, V]:
    """Return a table after its oldest entries were dropped, so that one more makes at most `most`.

    For tables whose order of use does not matter, and that other threads change meanwhile.
    """
    while len(table) >= most:
        with contextlib.suppress(RuntimeError, StopIteration):  # another thread has changed it
            table.pop(next(iter(table)), None)
    return table
