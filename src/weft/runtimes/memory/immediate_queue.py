"""What devices share whose work is done when a call returns, on memory of the host.

`HostBlocks` is raw memory for a `DevicePool`. `ImmediateQueue` copies and fills it; a device adds
its launch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

from weft.config import Debug, debug
from weft.runtimes.base import Event, Failure, View, consume
from weft.runtimes.load import InFlight
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.checked_queue import CheckedQueue
from weft.runtimes.memory.device_pool import DeviceBuffer

__all__ = ["HostBlocks", "ImmediateQueue", "Stopped", "bytes_at"]


def bytes_at(address: int, nbytes: int) -> memoryview:
    """Return memory of the host as bytes; whoever asks keeps it alive."""
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


class HostBlocks:
    """Raw memory, see `weft.runtimes.memory.device_pool.Driver`; handles are addresses."""

    def take(self, nbytes: int) -> int | None:
        """Return a new block, or None if there is no memory left."""
        return host_memory.acquire(nbytes) or None

    def give_back(self, handle: int, nbytes: int) -> None:
        """Free a block."""
        host_memory.give_back(handle, nbytes)

    def host_view(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """Return a part of a block as bytes."""
        return bytes_at(handle + offset, nbytes)

    def write(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy into a block."""
        if source.nbytes:
            bytes_at(handle + offset, source.nbytes)[:] = source

    def read(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy from a block."""
        if target.nbytes:
            target[:] = bytes_at(handle + offset, target.nbytes)


class Stopped(Event):
    """A launch that failed."""

    __slots__ = ("_failure",)

    def __init__(self, device: str, failure: Failure) -> None:
        super().__init__(device)
        self._failure = failure

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch."""
        return self._failure

    def share(self) -> Event:
        """Return another event of the same launch."""
        return Stopped(self.device, self._failure)


class ImmediateQueue(CheckedQueue):
    """Work of a device, done by the time that a call returns.

    Attributes
    ----------
    in_flight : InFlight
        The calls that are under way; a launch enters it as copies and fills do.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.in_flight = InFlight()

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        to, of, count = self._copied(destination, source, nbytes)
        with self.in_flight:
            consume(wait, self.device)
            self._move(to, of, count)
        if debug(Debug.COPY):
            print(f"weft: copy of {count} bytes on {self.device}", file=sys.stderr)
        return Event(self.device)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer.
        """
        to = self._filled(target, nbytes)
        with self.in_flight:
            consume(wait, self.device)
            self._set(to, nbytes, byte)
        return Event(self.device)

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""

    def _address(self, view: View) -> int:
        address: int = view.buffer.handle
        return address + view.offset

    def _move(self, to: View, of: View, nbytes: int) -> None:
        ctypes.memmove(self._address(to), self._address(of), nbytes)

    def _set(self, to: View, nbytes: int, byte: int) -> None:
        ctypes.memset(self._address(to), byte, nbytes)
