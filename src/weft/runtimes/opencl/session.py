"""A driver that was opened for one device: context, queue, status records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from weft.errors import InitializationError
from weft.runtimes.launches.events import RECORD
from weft.runtimes.launches.printing import HEAD, room_of
from weft.runtimes.launches.session import DriverSession
from weft.runtimes.opencl.driver import code_identity, describe, device_of, pyopencl
from weft.weak import Living

__all__ = ["Record", "Session"]

_NO_RESOURCES: Final = -5  # of many kinds: a fault of a kernel is one


class Record:
    """A status record of launches: memory of the device, and where the host reads it to.

    One with room for words belongs to one launch of a kernel that prints.
    """

    __slots__ = ("buffer", "host")

    def __init__(self, buffer: Any, size: int = RECORD.size) -> None:
        self.buffer, self.host = buffer, bytearray(size)


class Session(DriverSession):
    """One device of a driver, opened by this process.

    Attributes
    ----------
    cl : module
        pyopencl; ``core`` is the part of it that is the binding itself.
    device, context, queue
        Of pyopencl. The queue is in order, and notes times.
    identity : str
        Driver and processor, as a part of the key of compiled code.
    programs, owners
        Owners of the driver's objects: live programs, parts of the device.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.cl = cl = pyopencl()
        super().__init__(name, (cl.Error,))
        self.core = cl._cl
        platform, self.device = device_of(called)
        try:
            self.facts = describe(platform, self.device)
            self.context = cl.Context([self.device])
            self.queue = cl.CommandQueue(
                self.context, self.device,
                properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.Error as error:
            raise InitializationError(name, found=error, expected="a driver that opens it"
                                      ) from error  # fmt: skip
        self.identity = code_identity(self.facts)
        self.programs: Living[Any] = Living()
        self.owners: list[Any] = []
        self._clean: deque[Record] = deque()
        self._dirty: deque[Record] = deque()
        self.opened()

    def is_short(self, error: Exception) -> bool:
        """Return whether the driver says that memory is short."""
        return (isinstance(error, self.cl.MemoryError)
                and getattr(error, "code", None) != _NO_RESOURCES)

    def buffer(self, nbytes: int) -> Any:
        """Return new memory of the device, at least one byte."""
        return self.core.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(nbytes, 1))

    def record(self) -> Record:
        """Return a status record of zeros, as of when later commands run."""
        try:
            return self._clean.pop()
        except IndexError:
            pass
        try:
            found = self._dirty.pop()
        except IndexError:
            flags = self.cl.mem_flags
            return Record(self.core.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR,
                                           RECORD.size, bytes(RECORD.size)))
        self.core._enqueue_fill_buffer(self.queue, found.buffer, bytes(1), 0, RECORD.size)
        return found

    def printing_record(self, words: int) -> Record:
        """Return a status record for a launch that prints, with room for so many words."""
        size = RECORD.size + room_of(words)
        buffer = self.buffer(size)
        self.core._enqueue_fill_buffer(self.queue, buffer, bytes(1), 0, RECORD.size + HEAD)
        return Record(buffer, size)

    def give_back(self, record: Record, clean: bool) -> None:
        """Take a record back whose launch is over."""
        (self._clean if clean else self._dirty).append(record)

    def undestroyed(self) -> Iterable[Any]:
        """Return objects whose destructors would wait for threads that a child does not have."""
        events = [event for work in list(self.pending) for event in (work.first, work.last,
                                                                     work.end)]  # fmt: skip
        return self.queue, self.context, self.device, *self.programs, *events
