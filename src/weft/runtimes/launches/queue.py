"""The queue of a driver's device: what calls check, and the order in which they are handed over."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final

from weft.errors import HandleError, LaunchError, SyncError
from weft.runtimes.base import Event, View
from weft.runtimes.launches.events import Work, WorkEvent
from weft.runtimes.launches.session import DriverSession
from weft.runtimes.memory.checked_queue import CheckedQueue
from weft.runtimes.memory.device_pool import AllOf, DeviceBuffer

__all__ = ["LaunchQueue", "pieces"]

_STAGE: Final = 64 << 20  # bytes that a copy within a block moves at a time


def pieces(to: int, of: int, count: int) -> tuple[int, list[tuple[int, int]]]:
    """Return how a copy within a block goes by way of a stage: its bytes, begin and size of parts.

    The first part is at the end that is not overwritten.
    """
    parts = [(start, min(_STAGE, count - start)) for start in range(0, count, _STAGE)]
    return min(count, _STAGE), parts[::-1] if to > of else parts


class LaunchQueue(CheckedQueue, ABC):
    """Work of a device, in order; calls return before it is done.

    Nothing waits on the host but for events of other devices. What one call hands over is not
    mixed with that of other threads. Launches share the scratch memory, each after the one before.

    Parameters
    ----------
    session : DriverSession
        The device.
    lock : lock
        Held by who hands commands over.
    """

    def __init__(self, session: DriverSession, lock: Any) -> None:
        super().__init__(session.name)
        self._home, self._lock = session, lock
        self._scratch: Any = None
        self._scratch_size = 0

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit, or the driver refuses.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        to, of, count = self._copied(destination, source, nbytes)
        self._await(wait)
        return self.moved(to, of, count)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer, or the driver refuses.
        HandleError
            If the buffer was released or is another device's, or an event was used before.
        """
        to = self._filled(target, nbytes)
        self._await(wait)
        return self.set_bytes(self.block(to), to.offset, nbytes, byte & 0xFF)

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Run a program on buffers, in its parameter order; its entries know their work-groups.

        Raises
        ------
        LaunchError
            If counts or types are wrong, the device does not bind so many or so large buffers, or
            the driver refuses.
        AllocationError
            If the device has no memory for it.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        program = self.checked(program)
        views = self._given(program.name, buffers, variables, program.nbuffers,
                            program.nvariables)
        try:
            given = self.arguments(program, views, variables)
        except struct.error:
            raise LaunchError(program.name, found=f"{list(variables)!r} for its variables",
                              expected="integers of 64 bits") from None
        self._await(wait)
        with self._home.driving(program.name, LaunchError), self._lock:
            self._home.check()
            return self.launched(program, given)

    def synchronize(self) -> None:
        """Block until all work has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver fails.
        """
        self._home.check()
        with self._home.driving(f"wait for {self.device}", SyncError):
            event = self.last()
        event.wait()
        self._home.sweep()

    def flush(self) -> None:
        """Have the driver begin with what it was given: it does so without."""
        self._home.check()

    @property
    def in_flight(self) -> int:
        """How many calls have handed over what may not have happened yet."""
        self._home.sweep()
        return len(self._home.pending)

    # ---- what a driver does ----------------------------------------------------------------------

    @abstractmethod
    def moved(self, to: View, of: View, count: int) -> Event:
        """Copy bytes between blocks, or within one."""
        ...

    @abstractmethod
    def set_bytes(self, handle: Any, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
        ...

    @abstractmethod
    def last(self) -> Event:
        """Return an event that has happened once all is over that was handed over so far."""
        ...

    @abstractmethod
    def arguments(self, program: Any, views: Sequence[View], variables: Sequence[int]) -> Any:
        """Return the arguments of a launch.

        Raises
        ------
        struct.error
            If a variable is no integer of 64 bits.
        """
        ...

    @abstractmethod
    def launched(self, program: Any, given: Any) -> Event:
        """Hand a launch over, under the lock."""
        ...

    @abstractmethod
    def scratch(self, nbytes: int) -> Any:
        """Return new memory for launches to share."""
        ...

    def block(self, view: View) -> Any:
        """Return the block of a buffer."""
        return view.buffer.handle

    def checked(self, program: Any) -> Any:
        """Return a program that can be launched.

        Raises
        ------
        HandleError
            If it is none of the device.
        """
        if getattr(program, "session", None) is not self._home:
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        return program

    # ---- parts of it -----------------------------------------------------------------------------

    def _begun(self, work: Work) -> Event:
        """Note work that was handed over."""
        self._home.pending.append(work)
        return WorkEvent(self.device, work)

    def _room(self, nbytes: int, most: int, outgrown: list[Any] | None = None) -> Any:
        """Return scratch memory, which launches use one after another.

        Parameters
        ----------
        nbytes : int
            Its bytes at least.
        most : int
            Up to which it is made larger than that.
        outgrown : list, optional
            Receives memory that is not used from now on; else drivers keep it for work under way.
        """
        if nbytes > self._scratch_size:
            size = min(max(nbytes, 2 * self._scratch_size), max(nbytes, most))
            before, self._scratch, self._scratch_size = self._scratch, None, 0
            if outgrown is not None and before is not None:
                outgrown.append(before)
            self._scratch = self.scratch(size)
            self._scratch_size = size
        return self._scratch

    def _await(self, wait: Iterable[Event]) -> None:
        """Consume events: work of this device is in order, that of others is waited for here."""
        events = list(wait)
        for event in events:
            event.consume(self.device)
        while events:
            event = events.pop()
            if isinstance(event, AllOf):
                events += event.parts
            elif not (isinstance(event, WorkEvent) and event.work.session is self._home):
                event.wait()
