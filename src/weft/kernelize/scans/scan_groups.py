"""Scans for devices of threads: rows, or stretches of long ones, by groups of threads.

A group takes a row in rounds. Each of its threads has some neighbouring elements of a round::

    for q in rounds:
      for j in elements:  x[j] = element                            copied in the order of memory
      for t in threads:   total[t] = what the elements of t do to a running value
      starts of the threads from their totals, in two levels; the value behind the round
      for t in threads:   walk the elements of t from its start: x[j] = running value
      for j in elements:  out = x[j]

Where there are fewer rows than groups can work at, rows are cut into stretches, which are groups'
(`weft.kernelize.scans.scan_stretches`). A thread has an odd number of elements, and segments of
totals are apart by one, so that no two threads meet in a bank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import SERIAL, For, Memory, Store
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.scans.running_value import Scan
from weft.kernelize.scans.scan_stretches import (
    CUT,
    ORDERED_STRETCHES,
    STRETCHES,
    Levels,
    Stretches,
)
from weft.kernelize.scans.summaries import Values, summary_of
from weft.target import BANKS, FLAG_BYTES, Target

__all__ = ["Groups", "tile_of"]

_LEAST: Final = BANKS + 1  # elements of a row that is a group's
_MOST_EACH: Final = 15  # elements of a thread in a round
_GROUPS: Final = 8  # that a compute unit works at


class Tile(NamedTuple):
    """Threads of a group, elements of each in a round, rounds of a stretch, stretches of a row."""

    items: int
    each: int
    rounds: int
    stretches: int

    @property
    def slots(self) -> int:
        """How many elements a round has."""
        return self.items * self.each


def tile_of(scan: Scan, target: Target) -> Tile | None:
    """Return how groups scan rows, None if rows are not theirs: short, or not along memory.

    Nor are they where the first cache keeps the lines of all threads that a compute unit works at:
    each may have a row of its own there.
    """
    shape, axis = scan.node.shape, scan.axis
    n = upper_bound(shape[axis])
    if _GROUPS * target.group_items * target.line_bytes <= target.l1_bytes:
        return None
    if n < _LEAST or elements(shape[axis + 1:]) != 1:
        return None
    fitting = None
    for items in (i for i in (BANKS << k for k in range(6)) if i <= target.group_items):
        each = _most_each(scan, items, target)
        if each > 0:
            fitting = items, each
            if items * each >= n:
                return Tile(items, -(-n // items) | 1, 1, 1)
    if fitting is None:
        return None
    items, each = fitting
    rounds = -(-n // (items * each))
    stretches = _stretches(scan, rounds, target)
    if stretches > 1:
        rounds = -(-rounds // stretches)
        return Tile(items, each, rounds, -(-n // (items * each * rounds)))
    each = min(-(-n // (items * rounds)) | 1, each)
    return Tile(items, each, -(-n // (items * each)), 1)


def _most_each(scan: Scan, items: int, target: Target) -> int:
    """Return how many elements of each thread the memory of a group has room for."""
    summary, node = summary_of(scan), scan.node
    held = [held_dtype(a.dtype) for a in node.args]
    if held_dtype(node.dtype) is not held[-1]:
        held.append(held_dtype(node.dtype))
    totals = sum(d.itemsize for _, d in (*summary.parts, *summary.carried))
    room = target.shared_bytes - FLAG_BYTES - (items + 2 * items // BANKS + 2) * totals
    each = min(room // (items * sum(d.itemsize for d in held)), _MOST_EACH)
    return each if each % 2 else each - 1


def _stretches(scan: Scan, rounds: int, target: Target) -> int:
    """Return into how many stretches each row is cut, 1 if it is not."""
    shape, axis = scan.node.shape, scan.axis
    if not all(isinstance(d, int) for d in shape):
        return 1
    rows = elements(shape) // upper_bound(shape[axis])
    most = ORDERED_STRETCHES if summary_of(scan).is_ordered else STRETCHES
    cores = max(target.cores, 1)
    count = min(rounds, -(-_GROUPS * cores // max(rows, 1)), most)
    return count if count >= CUT or rows < cores else 1


def held_dtype(d: DType) -> DType:
    """Return the type in which a group holds elements: of a word at least, as its banks have."""
    if d.itemsize >= dt.int32.itemsize:
        return d
    return dt.float32 if d.is_float else dt.int32


class Groups(Stretches):
    """The lowering of a scan.

    Parameters
    ----------
    scan : Scan
        What is computed.
    tile : Tile
        How groups share it.
    """

    def __init__(self, scan: Scan, tile: Tile) -> None:
        super().__init__(scan, tile.slots * tile.rounds, tile.stretches)
        self.tile = tile
        self.held = [held_dtype(a.dtype) for a in scan.node.args]
        n, cover = scan.extent, tile.slots * tile.rounds * tile.stretches
        self.is_ragged = not ex.is_const(n) or n.attr != cover

    def emit(self) -> None:
        """Emit the launches."""
        if self.count > 1:
            super().emit()
        else:
            self.run(lambda index, rows, _: self._rounds(index, ex.index(0), rows, None))

    def summarise(self, index: Index, place: Index, totals: list[Memory]) -> None:
        """Emit the summary of a stretch."""
        self._rounds(index, place[-1] * self.tile.rounds, place, totals, out=False)

    def walk(self, index: Index, place: Index, starts: list[Memory]) -> None:
        """Emit the results of a stretch, from the value before it on."""
        self._rounds(index, place[-1] * self.tile.rounds, place, starts)

    # ---- rounds of a group

    def _rounds(self, index: Index, first: Expr, place: Index, memories: list[Memory] | None,
                out: bool = True) -> None:  # fmt: skip
        """Emit the rounds of a stretch, which begin at a round of the row.

        With results, `memories` have the value before it at a place; without, its summary is
        written there.
        """
        em, summary, tile = self.em, self.summary, self.tile
        in_order = out and summary.is_ordered
        parts = summary.carried if out else summary.parts
        self.x = [self.memory(f"x{i}", d, tile.slots) for i, d in enumerate(self.held)]
        made = held_dtype(self.scan.node.dtype)
        self.y = self.x[-1] if made is self.held[-1] else self.memory("y", made, tile.slots)
        carry = [self.memory(f"carry_{name}", d, 1) for name, d in parts]
        zero = ex.index(0)
        with_value = out and memories is not None
        o = self.open("one", 1)
        before = summary.load(memories or (), *place) if with_value else (
            summary.start() if out else summary.nothing())
        summary.store(carry, before, zero)
        self.close((o, 1))
        if in_order:
            totals = [self.memory(f"total_{n}", d, tile.items) for n, d in summary.parts]
            starts = [self.memory(f"start_{n}", d, tile.items) for n, d in summary.carried]
        else:
            levels = Levels(self, tile.items, carry)
        em.open()
        q = em.loop_var(f"round_{self.launch}", tile.rounds)
        base = (first + q) * tile.slots
        self._copy_in(index, base)
        if in_order:
            t = self.open("each", tile.items)
            summary.store(totals, summary.of(self.name("e"), tile.each, self._read(t)), t)
            self.close((t, tile.items))
            o = self.open("one", 1)
            registers = summary.registers(summary.carried, summary.load(carry, zero))
            self.hand_over(tile.items, (totals, ()), (starts, ()), registers, self._read,
                           lambda _: ex.index(tile.each))  # fmt: skip
            summary.store(carry, summary.load(registers), zero)
            self.close((o, 1))
            t = self.open("each", tile.items)
            self._walk(t, summary.load(starts, t))
            self.close((t, tile.items))
        else:
            levels.summarise(lambda t: summary.of(self.name("e"), tile.each, self._read(t)))
            levels.join()
            if out:
                levels.use(self._walk)
        if out:
            self._copy_out(index, base)
        body = em.close()
        em.emit(For(q, self._count(), SERIAL, body))
        if not out and memories is not None:
            o = self.open("one", 1)
            summary.store(memories, summary.load(carry, zero), *place)
            self.close((o, 1))

    def _count(self) -> Expr:
        """Return how many rounds a stretch has: of a row of symbolic length, what that takes."""
        n, slots = self.scan.extent, self.tile.slots
        return ex.index(self.tile.rounds) if ex.is_const(n) else (n + (slots - 1)) // slots

    def _copy_in(self, index: Index, base: Expr) -> None:
        """Emit the copy of the elements of a round; what is behind the row changes nothing."""
        em, scan = self.em, self.scan
        j = self.open("deal", self.tile.slots)
        position = base + j
        inside = position.lt(scan.extent) if self.is_ragged else None
        for which, value in enumerate(self.operands(index, position, inside)):
            if inside is not None:
                fill = self.summary.fill()[which]
                value = ex.where(inside, value, ex.cast(fill, value.dtype))
            em.emit(Store(self.x[which], (j,), ex.cast(value, self.held[which])))
        self.close((j, self.tile.slots))

    def _read(self, t: Expr) -> Callable[[Expr], Values]:
        """Return what reads the elements of a thread."""
        return lambda e: tuple(ex.cast(v, self.scan.wide) for v in self.summary.load(
            self.x, t * self.tile.each + e))

    def _walk(self, t: Expr, start: Values) -> None:
        """Emit the walk of a thread over its elements, from a running value on."""
        summary, each = self.summary, self.tile.each
        registers = summary.registers(summary.carried, start)

        def out(e: Expr, running: Values) -> None:
            value = ex.cast(summary.value(running), self.y.dtype)
            self.em.emit(Store(self.y, (t * each + e,), value))

        summary.walk(self.name("w"), each, self._read(t), registers, summary.step, out)

    def _copy_out(self, index: Index, base: Expr) -> None:
        em, scan = self.em, self.scan
        j = self.open("deal", self.tile.slots)
        position = base + j
        (value,) = self.summary.load([self.y], j)
        inside = position.lt(scan.extent) if self.is_ragged else None
        em.emit(Store(scan.stored, scan.place(index, position),
                      ex.cast(value, scan.node.dtype), inside))  # fmt: skip
        self.close((j, self.tile.slots))

