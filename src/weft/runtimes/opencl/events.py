"""Commands of an OpenCL device that were handed over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from weft.runtimes.launches.events import Work
from weft.runtimes.launches.printing import Lines

if TYPE_CHECKING:
    from weft.runtimes.opencl.session import Record, Session

__all__ = ["OpenCLWork"]


class OpenCLWork(Work):
    """Commands of an OpenCL device.

    Parameters
    ----------
    session : Session
        The device.
    begun : int
        When they were handed over, in nanoseconds of `time.monotonic_ns`.
    first, last : pyopencl.Event
        Of the first and the last command that compute or copy.
    end : pyopencl.Event
        Of the last command of all.
    record : Record, optional
        Which tells a failure of a launch once ``end`` has happened.
    lines : Lines
        What the launch prints.
    """

    __slots__ = ("_record", "end", "first", "last", "order")

    session: Session

    def __init__(self, session: Session, begun: int, first: Any, last: Any, end: Any,
                 record: Record | None = None, lines: Lines = ()) -> None:  # fmt: skip
        super().__init__(session, begun, lines)
        self.order = session  # which has one queue, in order
        self.first, self.last, self.end, self._record = first, last, end, record

    def has_ended(self) -> bool:
        """Return whether the driver says that it is over."""
        try:
            return bool(self.end.command_execution_status <= 0)
        except self.session.errors as error:
            self.error = error
            return True

    def until_over(self) -> None:
        """Wait; only the main thread hears of signals."""
        if threading.get_ident() == threading.main_thread().ident:
            super().until_over()
        else:
            self.note_end()

    def note_end(self) -> None:
        """Take note of how it ended, once.

        The wait makes memory consistent, which asking for the status does not.
        """
        try:
            self.end.wait()
        except self.session.errors as error:
            self.error = error
        super().note_end()

    def record(self) -> bytearray | None:
        """Return the status record and the words behind it."""
        return None if self._record is None else self._record.host

    def released(self) -> None:
        """Give the status record back."""
        record, self._record = self._record, None
        if record is not None and self.error is None and not self.lines:
            self.session.give_back(record, clean=self.failure is None)

    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the driver tells."""
        try:
            queued = self.first.profile.queued
            start, end = self.first.profile.start - queued, self.last.profile.end - queued
        except self.session.errors:
            return None
        return (self.begun + start, self.begun + end) if 0 <= start <= end else None
