"""Commands of an OpenCL device that were handed over."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from weft.errors import SyncError
from weft.runtimes.launches.events import RECORD, Home, Work
from weft.runtimes.launches.printing import Lines
from weft.runtimes.opencl.driver import translated

__all__ = ["OpenCLHome", "OpenCLWork", "Record"]


class Record:
    """A status record of launches: memory of the device, and where the host reads it to.

    One with room for words belongs to one launch of a kernel that prints `lines`.
    """

    __slots__ = ("buffer", "host", "lines")

    def __init__(self, buffer: Any, size: int = RECORD.size, lines: Lines = ()) -> None:
        self.buffer = buffer
        self.host = bytearray(size)
        self.lines = lines


class OpenCLHome(Home, Protocol):
    """What events ask of a device of OpenCL."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its binding throws."""
        ...

    def give_back(self, record: Record, clean: bool) -> None:
        """Take a status record back whose launch is over."""
        ...


class OpenCLWork(Work):
    """Commands that were handed over together.

    Parameters
    ----------
    session : OpenCLHome
        The device.
    begun : int
        When they were handed over, in nanoseconds of `time.monotonic_ns`.
    first, last : pyopencl.Event
        Of the first and the last command that compute or copy.
    end : pyopencl.Event
        Of the last command of all.
    record : Record, optional
        Which tells a failure of a launch once ``end`` has happened.
    """

    __slots__ = ("_record", "end", "first", "last", "order", "session")

    def __init__(self, session: OpenCLHome, begun: int, first: Any, last: Any, end: Any,
                 record: Record | None = None) -> None:  # fmt: skip
        super().__init__(session, begun)
        self.session = self.order = session  # which has one queue, in order
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
        """Take note of how it ended, once, and give the status record back.

        The wait makes memory consistent, which asking for the status does not.
        """
        try:
            self.end.wait()
        except self.session.errors as error:
            self.error = error
        record = self._record
        if record is None:
            self.ended(None, ())
        elif self.ended(memoryview(record.host), record.lines):
            self._record = None
            if self.error is None and not record.lines:
                self.session.give_back(record, clean=self.failure is None)

    def raised(self, error: Exception) -> Exception:
        """Return the error of Weft for what the driver has thrown."""
        return translated(self.session.name, f"wait for {self.session.name}", error, SyncError)

    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the driver tells."""
        try:
            queued = self.first.profile.queued
            start, end = self.first.profile.start - queued, self.last.profile.end - queued
        except self.session.errors:
            return None
        return (self.begun + start, self.begun + end) if 0 <= start <= end else None
