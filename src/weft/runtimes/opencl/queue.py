"""The queue of an OpenCL device: copies, fills and launches in the order of their calls."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.errors import SyncError
from weft.locks import mutex
from weft.runtimes.base import Event, View
from weft.runtimes.launches.events import Work
from weft.runtimes.launches.queue import LaunchQueue, pieces
from weft.runtimes.opencl.events import OpenCLWork
from weft.runtimes.opencl.program import MOST_SCRATCH, OpenCLProgram
from weft.runtimes.opencl.session import Session

__all__ = ["OpenCLQueue"]

_INT64: Final = struct.Struct("=q").pack


class OpenCLQueue(LaunchQueue):
    """Work of a device, in order: kernels keep their arguments, which are set under the lock."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, mutex())
        self._session = self.order = session
        self._spare = session.record().buffer  # of launches that cannot fail

    def moved(self, to: View, of: View, count: int) -> Event:
        """Copy bytes between blocks, or within one."""
        session = self._session
        target, origin = to.buffer.handle, of.buffer.handle
        copy, queue = session.core._enqueue_copy_buffer, session.queue
        with session.driving("copy"):
            if not count:
                return self.last()
            if target is not origin or abs(to.offset - of.offset) >= count:
                return self.submit(copy, origin, target, count, of.offset, to.offset, None)
            with self._lock:
                session.check()
                session.sweep()
                staged, parts = pieces(to.offset, of.offset, count)
                stage = session.buffer(staged)
                begun, first, last = time.monotonic_ns(), None, None
                for start, size in parts:
                    event = copy(queue, origin, stage, size, of.offset + start, 0, None)
                    first = first or event
                    last = copy(queue, stage, target, size, 0, to.offset + start, None)
                return self._begun(OpenCLWork(session, begun, first, last, last))

    def set_bytes(self, handle: Any, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
        with self._session.driving("fill"):
            if not nbytes:
                return self.last()
            return self.submit(self._session.core._enqueue_fill_buffer, handle, bytes((byte,)),
                               offset, nbytes, None)  # fmt: skip

    def arguments(self, program: OpenCLProgram, views: Sequence[View], variables: Sequence[int]
                  ) -> tuple[list[Any], list[Any], int]:  # fmt: skip
        """Return numbers and values of arguments that are memory, and of others; and their count.

        Raises
        ------
        struct.error
            If a variable is no integer of 64 bits.
        """
        memory: list[Any] = []
        numbers: list[Any] = []
        at = 0
        for view in views:
            memory += (at, view.buffer.handle)
            numbers += (at + 1, _INT64(view.offset))
            at += 2
        for number in variables:
            numbers += (at, _INT64(number))
            at += 1
        return memory, numbers, at

    def launched(self, program: OpenCLProgram, given: tuple[list[Any], list[Any], int]) -> Event:
        """Hand a launch over, under the lock."""
        session, header = self._session, program.header
        session.sweep()
        memory, numbers, at = given
        scratch = self._room(program.scratch, MOST_SCRATCH) if program.scratch else None
        record = None
        if header.lines:
            record = session.printing_record(header.room)
        elif header.fails:
            record = session.record()
        memory += (at, self._spare if record is None else record.buffer, at + 1, scratch)
        held, packed = tuple(memory), tuple(numbers)
        enqueue, queue = session.core.enqueue_nd_range_kernel, session.queue
        begun = time.monotonic_ns()
        first = event = None
        for kernel, count, items in program.launches:
            kernel._set_arg_multi(held)
            kernel._set_arg_buf_multi(packed)
            event = enqueue(queue, kernel, count, items, None, None)
            first = first or event
        end = event
        if record is not None:
            end = session.core._enqueue_read_buffer(queue, record.buffer, record.host, 0, None,
                                                    False)  # fmt: skip
        return self._begun(OpenCLWork(session, begun, first, event, end, record, header.lines))

    def submit(self, enqueue: Callable[..., Any], *given: Any) -> Event:
        """Hand over one command, which a function enqueues."""
        session = self._session
        with self._lock:
            session.check()
            session.sweep()
            begun = time.monotonic_ns()
            event = enqueue(session.queue, *given)
            return self._begun(OpenCLWork(session, begun, event, event, event))

    def last(self) -> Event:
        """Return an event that has happened once all is over that was handed over so far."""
        return self.submit(self._session.core._enqueue_marker_with_wait_list, None)

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
        super().flush()
        with self._session.driving("flush", SyncError):
            self._session.queue.flush()

    def scratch(self, nbytes: int) -> Any:
        """Return new memory for launches to share."""
        return self._session.buffer(nbytes)

    def _begun(self, work: Work) -> Event:
        """Note work, and have it begin: who asks whether it is done does not wait for that."""
        event = super()._begun(work)
        self._session.queue.flush()
        return event
