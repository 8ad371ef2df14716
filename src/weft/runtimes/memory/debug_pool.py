"""Host memory for finding faults: filled before its use, and next to inaccessible pages.

With ``WEFT_POISON`` every buffer is filled with bytes that no program expects, whether its block is
fresh or was used before. With ``WEFT_GUARD`` every buffer is a mapping of its own that ends
(``start``: begins) at an inaccessible page, so that the first access past it stops the process
there. The rest of the mapping holds known bytes, which are compared when the buffer is given back.
What was given back stays inaccessible for a while. The arena of a plan has a range of its own for
each value, with a guard behind each.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.errors import AllocationError, HandleError, UnsupportedError, VerifyError
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.buffer import Buffer, FreeList
from weft.runtimes.memory.pool import Apart, Pool

__all__ = ["POISON", "DebugPool"]

POISON: Final = {"nan": 0xFF, "ab": 0xAB}  # bytes; 0xFF... is a NaN in every format of floats

_PAGE: Final = 4096
_SLACK: Final = 0xC5  # what fills the rest of a mapping
_MOST_HELD: Final = 512  # mappings that stay inaccessible after their use


class _Mapping(NamedTuple):
    """A mapping: where it begins, its bytes, and the parts (address, bytes) that nothing writes."""

    start: int
    nbytes: int
    slack: list[tuple[int, int]]


class DebugPool(Pool):
    """A pool that fills its memory, or guards it, or both.

    Parameters
    ----------
    limit
        Most bytes that the pool may hold.
    poison
        ``nan``, ``ab``, or nothing.
    guard
        ``end``, ``start``, or nothing.

    Raises
    ------
    UnsupportedError
        If memory is to be guarded on a system other than Linux.
    """

    checks = True

    def __init__(self, limit: int | None = None, poison: str = "", guard: str = "") -> None:
        super().__init__(limit)
        if guard and sys.platform != "linux":
            raise UnsupportedError("WEFT_GUARD", found=sys.platform, expected="Linux",
                                   hint="WEFT_POISON works on every system")
        if guard:
            faulthandler.enable()  # which tells where the program was when a guard was met
        self.byte, self.guard = POISON.get(poison), guard
        self._mappings: dict[int, _Mapping] = {}
        self._held: deque[_Mapping] = deque()
        self._given = _Given(self, 0)
        self._damage = ""

    def allocate(self, nbytes: int, *, zero: bool = False) -> Buffer:
        """Return a new buffer, filled with zeros if ``zero``.

        Raises
        ------
        AllocationError
            If the memory is not to be had.
        VerifyError
            If something was written beside a buffer that was given back since the last call.
        """
        if self.guard:
            begin = self._begin(nbytes)
            return self._buffer(nbytes, [(begin, nbytes)] if nbytes else [], begin, zero)
        buffer = super().allocate(nbytes, zero=zero)
        if self.byte is not None and not zero:
            ctypes.memset(buffer.address, self.byte, nbytes)
        return buffer

    def apart(self, sizes: Sequence[int]) -> Apart:
        """Return places in an arena for values of some sizes, each with pages of its own."""
        if not self.guard:
            return super().apart(sizes)
        offsets, end = [], 0
        for nbytes in sizes:
            offsets.append(end + self._begin(nbytes))
            end += _pages(nbytes) + _PAGE
        return Apart(offsets, end, [r for r in zip(offsets, sizes, strict=True) if r[1]])

    def arena(self, places: Apart) -> Buffer:
        """Return the memory for one run of a plan with such places."""
        if not self.guard:
            return super().arena(places)
        return self._buffer(places.nbytes, places.ranges, 0, False)

    def flush(self) -> int:
        """Unmap what was given back; return how many bytes that were."""
        total = super().flush()
        with self._lock:
            while self._held:
                total += self._unmap(self._held.popleft())
        return total

    @property
    def bytes_cached(self) -> int:
        """Bytes that wait for their next use, or stay inaccessible after it."""
        return super().bytes_cached + sum(m.nbytes for m in list(self._held))

    def _begin(self, nbytes: int) -> int:
        """Return where a buffer begins in its pages."""
        return 0 if self.guard == "start" else _pages(nbytes) - nbytes

    def _buffer(self, nbytes: int, ranges: Sequence[tuple[int, int]], at: int,
                zero: bool) -> Buffer:  # fmt: skip
        """Return the buffer `at` a byte of a new mapping that is accessible in some ranges only."""
        if self._closed:
            raise HandleError("allocate", found="a pool that was deinitialized")
        self._report()
        if nbytes < 0:
            raise AllocationError("allocate", found=f"{nbytes:,} bytes", expected="0 or more")
        total = _pages(nbytes) + 2 * _PAGE
        inside = self._map(nbytes, total) + _PAGE
        slack: list[tuple[int, int]] = []
        for offset, count in ranges:
            address = inside + offset
            first = address // _PAGE * _PAGE
            last = first + _pages(count)
            host_memory.protect(first, last - first, host_memory.READ_WRITE)
            if self.byte is not None and not zero:
                ctypes.memset(address, self.byte, count)
            beside = [(first, address - first), (address + count, last - address - count)]
            slack += [part for part in beside if part[1] > 0]
        for address, count in slack:
            ctypes.memset(address, _SLACK, count)
        buffer = Buffer()
        buffer.address, buffer.nbytes, buffer.version = inside + at, nbytes, 0
        buffer._home = self._given
        self._mappings[buffer.address] = _Mapping(inside - _PAGE, total, slack)
        return buffer

    def _map(self, nbytes: int, total: int) -> int:
        """Return the begin of an inaccessible mapping."""
        with self._lock:
            if self._reserved + total > self.limit:
                self._collect()
            start = host_memory.map_pages(total) if self._reserved + total <= self.limit else 0
            if start:
                self._reserved += total
                return start
            in_use = self._reserved
        raise AllocationError(
            "allocate", found=f"{nbytes:,} bytes with {in_use:,} in use",
            expected=f"at most {self.limit:,} in all, in mappings that the system grants",
            hint="WEFT_GUARD takes two pages more for each buffer, and up to three of the "
            "mappings that vm.max_map_count allows")

    def take_back(self, address: int) -> None:
        """Make a buffer inaccessible; a finaliser may be the caller, which cannot raise."""
        mapping = self._mappings.pop(address)
        for at, count in mapping.slack:
            if ctypes.string_at(at, count) != bytes([_SLACK]) * count:
                self._damage = f"bytes beside a buffer of {mapping.nbytes - 2 * _PAGE} at {at:#x}"
        host_memory.protect(mapping.start, mapping.nbytes, host_memory.NO_ACCESS)
        self._held.append(mapping)
        if len(self._held) > _MOST_HELD:
            with self._lock:
                self._unmap(self._held.popleft())

    def _unmap(self, mapping: _Mapping) -> int:
        host_memory.unmap_pages(mapping.start, mapping.nbytes)
        self._reserved -= mapping.nbytes
        return mapping.nbytes

    def _report(self) -> None:
        if self._damage:
            found, self._damage = self._damage, ""
            raise VerifyError("memory guard", found=f"a write to {found}",
                              expected="writes within buffers",
                              hint="some launch since the last allocation made it")


class _Given(FreeList):
    """What guarded buffers go back to."""

    def append(self, address: int) -> None:
        self.pool.take_back(address)


def _pages(nbytes: int) -> int:
    """Return the bytes of the pages that hold so many."""
    return -(-nbytes // _PAGE) * _PAGE
