"""Arena layouts of a plan by sizes, as a table that native code reads."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.runtimes.native.executor.native import NativePlan

__all__ = ["Layouts"]

_MOST: Final = 4096  # entries of a table


class Layouts:
    """For each sizes, rounded up to powers of two: the address of the plan, bytes of the arena.

    The table is a word with the number of variables, a word for each with the number of its powers
    of two, and two words for each entry, which are 0 until there is one.

    Parameters
    ----------
    largest : sequence of int
        The largest value of each variable.
    """

    def __init__(self, largest: Sequence[int]) -> None:
        self._counts = [_power(most) + 1 for most in largest]
        entries = math.prod(self._counts)
        self.fits = entries <= _MOST
        self._words = array("q", [len(largest), *self._counts, *[0] * (2 * entries * self.fits)])

    @property
    def address(self) -> int:
        """Where the table lies: it never moves."""
        return self._words.buffer_info()[0]

    def add(self, limits: Sequence[int], plan: NativePlan, arena: int) -> None:
        """Note the plan for sizes up to some limits, and the bytes of its arena."""
        index = 0
        for limit, count in zip(limits, self._counts, strict=True):
            index = index * count + _power(limit)
        at = 1 + len(self._counts) + 2 * index
        self._words[at + 1] = arena
        self._words[at] = plan.context_address


def _power(size: int) -> int:
    """Return the power of two that a size does not exceed."""
    return max(size - 1, 0).bit_length()
