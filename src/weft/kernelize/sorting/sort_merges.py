"""How sorted columns of vector registers are merged, and turned into rows.

An element's number is the bits of its lane, then those of its register: columns one after another.
Neighbouring columns are merged, one rising and one falling, until all lanes are one run. Only
registers are compared with registers: elements of two lanes meet once an exchange of halves between
two registers has made a bit of the lane's number one of the register's. Which element is where is
written down, so what an exchange moved is brought back only where its own bit is compared.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

import functools
from typing import Final

Picks = tuple[tuple[int, ...], ...]
Step = tuple[int, int, Picks]

COMPARED: Final[Picks] = ()


@functools.cache
def rounds(count: int, lanes: int) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each round of merges; lanes are where they were after each.

    A step is two registers, and which lanes of both each of them gets. If that is nothing, the
    first gets the smaller lanes.
    """
    made, found = _Merges(count, lanes), []
    size = count
    while size < count * lanes:
        distance = size
        while distance:
            made.compare(distance)
            distance //= 2
        found.append(made.taken())
        size *= 2
    return tuple(found)


@functools.cache
def turn(count: int, lanes: int) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Return the steps from columns to rows, and where the rows are then."""
    made = _Merges(count, lanes)
    made.turn()
    return made.taken(), tuple(sorted(range(count), key=made.held.__getitem__))


class _Merges:
    """Steps, and the numbers of the elements that each register holds after them."""

    def __init__(self, count: int, lanes: int) -> None:
        self.count, self.lanes = count, lanes
        self.held = [[lane * count + a for lane in range(lanes)] for a in range(count)]
        self.steps: list[Step] = []

    def taken(self) -> tuple[Step, ...]:
        """Return the steps since the last call."""
        steps, self.steps = self.steps, []
        return tuple(steps)

    def compare(self, bit: int) -> None:
        """Compare all elements with those whose number differs in a bit."""
        for a, b in self._pairs(bit):
            if self.held[b] != [i ^ bit for i in self.held[a]]:
                self._part(a, b, bit)
            self.steps.append((a, b, COMPARED))

    def turn(self) -> None:
        """Make bits of the register's number bits of the lane's."""
        columns, rows = self.lanes.bit_length() - 1, self.count.bit_length() - 1
        for k in range(min(columns, rows)):
            for a, b in self._pairs(1 << k):
                self._part(a, b, self.count << (k + max(columns - rows, 0)))

    def _pairs(self, bit: int) -> list[tuple[int, int]]:
        """Return the registers whose elements differ in a bit, or where one holds both, halves."""
        register = {held[0]: a for a, held in enumerate(self.held)}
        found = [(a, register.get(held[0] ^ bit, a ^ (self.count // 2)))
                 for a, held in enumerate(self.held)]
        return [(a, b) for a, b in found if self.held[a] < self.held[b]]

    def _part(self, a: int, b: int, bit: int) -> None:
        """Give one register the elements whose number lacks a bit, in order, the other the rest."""
        both = (*self.held[a], *self.held[b])
        place = {i: t for t, i in enumerate(both)}
        parts = [sorted(i for i in both if bool(i & bit) == flag) for flag in (False, True)]
        self.steps.append((a, b, tuple(tuple(place[i] for i in part) for part in parts)))
        self.held[a], self.held[b] = parts
