"""A driver that was opened for one device: context, queue, status records; and forks."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import InitializationError, SyncError
from weft.locks import in_child, mutex
from weft.runtimes.launches.printing import HEAD, Lines, room_of
from weft.runtimes.opencl.driver import code_identity, describe, device_of, pyopencl
from weft.runtimes.opencl.events import RECORD, Record, Work
from weft.weak import Living

__all__ = ["Session"]

_opened: Final[list[Session]] = []


class Session:
    """One device of a driver, opened by this process.

    Attributes
    ----------
    name : str
        The device.
    cl : module
        pyopencl; ``core`` is the part of it that is the binding itself.
    errors : tuple of type
        What it throws.
    device, context, queue
        Of pyopencl. The queue is in order, and notes times.
    facts : Mapping
        What the driver says of the device.
    identity : str
        Driver and processor, as a part of the key of compiled code.
    pending : deque of Work
        What may not have happened yet, oldest first.
    texts : deque of (str, str)
        What launches have printed, and complaints about it, until a wait shows them.
    settling : lock
        Held while the end of something is noted.
    blocks, programs, owners
        Owners of the driver's objects: buffers by identity, live programs, parts of the device.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name = name
        self.cl = cl = pyopencl()
        self.core = cl._cl
        self.errors: tuple[type[Exception], ...] = (cl.Error,)
        self._lost = False
        platform, self.device = device_of(called)
        try:
            self.facts: Mapping[str, object] = describe(platform, self.device)
            self.context = cl.Context([self.device])
            self.queue = cl.CommandQueue(
                self.context, self.device,
                properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.Error as error:
            raise InitializationError(name, found=error, expected="a driver that opens it"
                                      ) from error  # fmt: skip
        self.identity = code_identity(self.facts)
        self.settling = mutex()
        self.pending: deque[Work] = deque()
        self.texts: deque[tuple[str, str]] = deque()
        self.blocks: dict[int, Any] = {}
        self.programs: Living[Any] = Living()
        self.owners: list[Any] = []
        self._clean: deque[Record] = deque()
        self._dirty: deque[Record] = deque()
        _opened.append(self)

    def check(self) -> None:
        """Refuse work in a forked child, which has none of the driver's threads.

        Raises
        ------
        SyncError
            In a forked child.
        """
        if self._lost:
            raise SyncError(self.name, found="a process that was forked after the device was used",
                            expected="the process that opened it",
                            hint="start processes with the method spawn, or fork before the first "
                            "use of the device")

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

    def printing_record(self, lines: Lines, words: int) -> Record:
        """Return a status record for a launch that prints, with room for so many words."""
        size = RECORD.size + room_of(words)
        buffer = self.buffer(size)
        self.core._enqueue_fill_buffer(self.queue, buffer, bytes(1), 0, RECORD.size + HEAD)
        return Record(buffer, size, lines)

    def give_back(self, record: Record, clean: bool) -> None:
        """Take a record back whose launch is over."""
        (self._clean if clean else self._dirty).append(record)

    def sweep(self) -> None:
        """Forget what is over by now."""
        pending = self.pending
        while pending:
            try:
                work = pending[0]
                if not work.is_over():
                    return
                pending.remove(work)
            except (IndexError, ValueError):  # another thread has removed it
                continue

    def lose(self) -> None:
        """Make the device unusable in a forked child, and keep its objects from being destroyed.

        Their destructors would wait for threads that the child does not have.
        """
        self._lost = True
        keep = ctypes.pythonapi.Py_IncRef
        events = [event for work in list(self.pending) for event in (work.first, work.last,
                                                                     work.end)]  # fmt: skip
        for kept in (self, self.queue, self.context, self.device, *self.programs, *events):
            keep(ctypes.py_object(kept))


def _forget() -> None:
    for session in _opened:
        session.lose()


in_child(_forget)
