"""How often a native dispatch is called with which sizes, and how long that takes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from weft.runtimes.native.calls.dispatch_sizes import COUNTED, HEAD, SERVED, TALLY
from weft.runtimes.native.executor.native_ir import ticks

__all__ = ["Tally"]

_ENTRIES: Final = 256
_SPREAD: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1


class Tally:
    """A table that native code counts in; sizes that fall on one place displace each other.

    Parameters
    ----------
    often
        After how many calls with some sizes Python is asked to make a plan for them alone.
    seconds
        After how much time of two calls or more it is.
    """

    def __init__(self, often: int, seconds: float) -> None:
        longest = min(ticks(seconds), 1 << 62)
        self._words = array("q", [_ENTRIES - 1, often, longest, *[0] * (TALLY * _ENTRIES)])

    @property
    def address(self) -> int:
        """Where the table lies: it never moves."""
        return self._words.buffer_info()[0]

    def note(self, sizes: Sequence[int], calls: int, seconds: float) -> None:
        """Note calls that native code did not count."""
        at = self._find(sizes)
        if at >= 0 and self._words[at + 1] >= 0:
            self._words[at + 1], self._words[at + 2] = calls, ticks(seconds)

    def is_counted(self, sizes: Sequence[int]) -> bool:
        """Whether sizes were called often enough for a plan of their own."""
        at = self._find(sizes)
        return at >= 0 and self._words[at + 1] == COUNTED

    def ask(self, sizes: Sequence[int]) -> None:
        """Do not count sizes any more: a plan of their own was asked for, or there can be none."""
        self._mark(sizes, COUNTED)

    def serve(self, sizes: Sequence[int]) -> None:
        """Leave sizes to a plan of their own."""
        self._mark(sizes, SERVED)

    def _mark(self, sizes: Sequence[int], state: int) -> None:
        at = self._find(sizes)
        if at >= 0:
            self._words[at + 1] = state

    def _find(self, sizes: Sequence[int]) -> int:
        """Return where the entry of sizes is, making one; -1 if both its places are taken."""
        mixed = 0
        for size in sizes:
            mixed = (mixed ^ size) * _SPREAD & _WORD
            mixed ^= mixed >> 29
        key = mixed | 1
        key -= (key >> 63) << 64
        words, first = self._words, mixed >> 20 & _ENTRIES - 1
        places = [HEAD + TALLY * place for place in (first, first ^ 1)]
        for at in places:
            if words[at] == key:
                return at
        for at in places:
            if words[at + 1] >= 0:
                words[at], words[at + 1], words[at + 2] = key, 0, 0
                return at
        return -1
