"""The queue of an OpenCL device: copies, fills and launches in the order of their calls."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from weft.errors import CopyError, HandleError, LaunchError, SyncError, WeftError
from weft.locks import mutex
from weft.runtimes.base import Event, View
from weft.runtimes.launches.events import WorkEvent
from weft.runtimes.memory.checked_queue import CheckedQueue
from weft.runtimes.memory.device_pool import AllOf, DeviceBuffer
from weft.runtimes.opencl.driver import translated
from weft.runtimes.opencl.events import OpenCLWork
from weft.runtimes.opencl.program import MOST_SCRATCH, OpenCLProgram
from weft.runtimes.opencl.session import Session

__all__ = ["OpenCLQueue"]

_INT64: Final = struct.Struct("=q").pack
_STAGE: Final = 64 << 20  # bytes that an overlapping copy moves at a time


class OpenCLQueue(CheckedQueue):
    """Work of a device, in order; calls return before it is done.

    Nothing waits on the host but for events of other devices. What one call hands over is not
    mixed with that of other threads: kernels keep their arguments, and launches share the scratch
    memory, each after the one before.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session.name)
        self._session = self.order = session
        self._lock = mutex()  # of kernels' arguments, and the order of what is handed over
        self._scratch: Any = None
        self._scratch_size = 0
        self._spare = session.record().buffer  # of launches that cannot fail

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
        waits = self._waits(wait)
        target, origin = to.buffer.handle, of.buffer.handle
        distance = to.offset - of.offset
        with self._driving("copy"):
            if not count:
                return self._nothing(waits)
            if target is origin and abs(distance) < count:
                return self._moved(target, to.offset, of.offset, count, waits)
            copy = self._session.core._enqueue_copy_buffer
            return WorkEvent(self.device, self.submit(
                lambda queue: copy(queue, origin, target, count, of.offset, to.offset, waits)))

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
        return self.set_bytes(to.buffer.handle, to.offset, nbytes, byte, self._waits(wait))

    def set_bytes(self, handle: Any, offset: int, nbytes: int, byte: int,
                  waits: list[Any] | None = None) -> Event:  # fmt: skip
        """Set bytes of a block after events of the driver."""
        with self._driving("fill"):
            if not nbytes:
                return self._nothing(waits)
            fill = self._session.core._enqueue_fill_buffer
            pattern = bytes((byte & 0xFF,))
            return WorkEvent(self.device, self.submit(
                lambda queue: fill(queue, handle, pattern, offset, nbytes, waits)))

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Run a program on buffers, in its parameter order; its entries know their work-groups.

        Raises
        ------
        LaunchError
            If counts or types are wrong, or the driver refuses.
        AllocationError
            If the device has no memory for it.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        session = self._session
        if not isinstance(program, OpenCLProgram) or program.session is not session:
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        views = self._given(program.name, buffers, variables, program.nbuffers,
                            program.nvariables)
        memory: list[Any] = []
        numbers: list[Any] = []
        at = 0
        for view in views:
            memory += (at, view.buffer.handle)
            numbers += (at + 1, _INT64(view.offset))
            at += 2
        try:
            for number in variables:
                numbers += (at, _INT64(number))
                at += 1
        except struct.error:
            raise LaunchError(program.name, found=f"{list(variables)!r} for its variables",
                              expected="integers of 64 bits") from None
        waits = self._waits(wait)
        try:
            with self._lock:
                return self._launched(program, memory, numbers, at, waits)
        except session.errors as error:
            raise translated(self.device, program.name, error, LaunchError) from error

    def _launched(self, program: OpenCLProgram, memory: list[Any], numbers: list[Any], at: int,
                  waits: list[Any] | None) -> Event:  # fmt: skip
        """Hand a launch over, under the lock."""
        session = self._session
        session.check()
        session.sweep()
        scratch = self._room(program.scratch) if program.scratch else None
        header, record = program.header, None
        if header.lines:
            record = session.printing_record(header.lines, header.room)
        elif header.fails:
            record = session.record()
        memory += (at, self._spare if record is None else record.buffer, at + 1, scratch)
        given, packed = tuple(memory), tuple(numbers)
        enqueue, queue = session.core.enqueue_nd_range_kernel, session.queue
        begun = time.monotonic_ns()
        first = event = None
        for kernel, count, items in program.launches:
            kernel._set_arg_multi(given)
            kernel._set_arg_buf_multi(packed)
            event = enqueue(queue, kernel, count, items, None, waits)
            first, waits = first or event, None
        end = event
        if record is not None:
            end = session.core._enqueue_read_buffer(queue, record.buffer, record.host, 0, None,
                                                    False)  # fmt: skip
        return WorkEvent(self.device, self._begun(
            OpenCLWork(session, begun, first, event, end, record)))

    def submit(self, enqueue: Callable[[Any], Any]) -> OpenCLWork:
        """Hand over one command, which a function enqueues."""
        session = self._session
        with self._lock:
            session.check()
            session.sweep()
            begun = time.monotonic_ns()
            event = enqueue(session.queue)
            return self._begun(OpenCLWork(session, begun, event, event, event))

    def synchronize(self) -> None:
        """Block until all work has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver fails.
        """
        session = self._session
        session.check()
        for work in list(session.pending):
            work.wait()
        session.sweep()

    def flush(self) -> None:
        """Have the driver begin with what it was given."""
        self._session.check()
        with self._driving("flush", SyncError):
            self._session.queue.flush()

    @property
    def in_flight(self) -> int:
        """How many calls have handed over what may not have happened yet."""
        self._session.sweep()
        return len(self._session.pending)

    # ---- parts of it ---------------------------------------------------------------------------

    def _begun(self, work: OpenCLWork) -> OpenCLWork:
        """Note work, and have it begin: who asks whether it is done does not wait for that."""
        self._session.pending.append(work)
        self._session.queue.flush()
        return work

    def _moved(self, handle: Any, to: int, of: int, count: int, waits: list[Any] | None) -> Event:
        """Copy within a block, by way of a stage, from the end that is not overwritten."""
        session = self._session
        session.check()
        copy, queue = session.core._enqueue_copy_buffer, session.queue
        piece = min(count, _STAGE)
        stage = session.buffer(piece)
        starts = list(range(0, count, piece))
        if to > of:
            starts.reverse()
        with self._lock:
            session.sweep()
            begun = time.monotonic_ns()
            first = last = None
            for start in starts:
                size = min(piece, count - start)
                event = copy(queue, handle, stage, size, of + start, 0, waits)
                first, waits = first or event, None
                last = copy(queue, stage, handle, size, 0, to + start, None)
            return WorkEvent(self.device, self._begun(
                OpenCLWork(session, begun, first, last, last)))

    def _nothing(self, waits: list[Any] | None) -> Event:
        """Return the event of a copy of no bytes."""
        return WorkEvent(self.device, self.submit(self._marker(waits)))

    def _marker(self, waits: list[Any] | None) -> Callable[[Any], Any]:
        mark = self._session.core._enqueue_marker_with_wait_list
        return lambda queue: mark(queue, waits)

    def _room(self, nbytes: int) -> Any:
        """Return scratch memory, which launches use one after another."""
        if nbytes > self._scratch_size:
            size = min(max(nbytes, 2 * self._scratch_size), max(nbytes, MOST_SCRATCH))
            self._scratch = None  # the driver keeps it for launches that use it
            self._scratch_size = 0
            self._scratch = self._session.buffer(size)
            self._scratch_size = size
        return self._scratch

    def _waits(self, wait: Iterable[Event]) -> list[Any] | None:
        """Consume events: return those of this device, and wait for others on the host."""
        events = list(wait)
        if not events:
            return None
        session = self._session
        for event in events:
            event.consume(self.device)
        found: list[Any] = []
        while events:
            event = events.pop()
            if isinstance(event, AllOf):
                events += event.parts
            elif isinstance(event, WorkEvent) and event.work.home is session:
                if isinstance(event.work, OpenCLWork) and not event.done:
                    found.append(event.work.end)
            else:
                event.wait()
        return found or None

    def _driving(self, what: str, error: type[Any] = CopyError) -> _Driving:
        return _Driving(self._session, what, error)


class _Driving:
    """Makes what the driver throws an error of Weft."""

    __slots__ = ("_error", "_session", "_what")

    def __init__(self, session: Session, what: str, error: type[Any]) -> None:
        self._session, self._what, self._error = session, what, error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: object) -> None:  # fmt: skip
        if isinstance(error, Exception) and not isinstance(error, WeftError):
            raise translated(self._session.name, self._what, error, self._error) from error
