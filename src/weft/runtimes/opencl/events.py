"""Commands of a device that were handed over, and the events that stand for them."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from weft.errors import SyncError
from weft.runtimes.base import Event, Failure
from weft.runtimes.launches.printing import Lines, show, text_of
from weft.runtimes.opencl.driver import translated

__all__ = ["RECORD", "Home", "OpenCLEvent", "Record", "Work"]

RECORD: Final = struct.Struct("=iiiiqq")  # code, kernel, statement, pad, index, bound
_TURNS: Final = 100_000  # ns that a wait polls without a pause: most launches take less
_SHARE: Final = 32  # later it pauses for this part of the time that it has waited
_LONGEST: Final = 0.002  # seconds of a pause, after which Ctrl-C is seen
_yield: Final = getattr(os, "sched_yield", lambda: time.sleep(0))


class Record:
    """A status record of launches: memory of the device, and where the host reads it to.

    One with room for words belongs to one launch of a kernel that prints `lines`.
    """

    __slots__ = ("buffer", "host", "lines")

    def __init__(self, buffer: Any, size: int = RECORD.size, lines: Lines = ()) -> None:
        self.buffer = buffer
        self.host = bytearray(size)
        self.lines = lines


class Home(Protocol):
    """What events ask of their device."""

    @property
    def name(self) -> str:
        """The device."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its binding throws."""
        ...

    @property
    def settling(self) -> AbstractContextManager[Any]:
        """A lock that is held while the end of something is noted."""
        ...

    @property
    def texts(self) -> deque[tuple[str, str]]:
        """What launches have printed and no wait has shown yet."""
        ...

    def check(self) -> None:
        """Refuse a process that cannot use the device."""
        ...

    def give_back(self, record: Record, clean: bool) -> None:
        """Take a status record back whose launch is over."""
        ...


class Work:
    """Commands that were handed over together.

    Parameters
    ----------
    session : Home
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

    __slots__ = ("_record", "begun", "end", "error", "failure", "first", "last", "over", "session")

    def __init__(self, session: Home, begun: int, first: Any, last: Any, end: Any,
                 record: Record | None = None) -> None:  # fmt: skip
        self.session, self.begun = session, begun
        self.first, self.last, self.end, self._record = first, last, end, record
        self.over = False
        self.error: Exception | None = None
        self.failure: Failure | None = None

    def is_over(self) -> bool:
        """Return whether all of it has happened, or failed; never waits."""
        if self.over:
            return True
        self.session.check()
        try:
            if self.end.command_execution_status > 0:
                return False
        except self.session.errors as error:
            self.error = error
        self._end_noted()
        return True

    def wait(self) -> None:
        """Block until all of it has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver says that it failed.
        """
        if not self.over:
            self.session.check()
            if threading.get_ident() == threading.main_thread().ident:
                self._poll()
            else:
                self._end_noted()
        show(self.session.texts)
        if self.error is not None:
            name = self.session.name
            raise translated(name, f"wait for {name}", self.error, SyncError) from self.error

    def _poll(self) -> None:
        """Ask again and again: a driver that waits would not hear of signals."""
        begun = time.monotonic_ns()
        while not self.is_over():
            waited = time.monotonic_ns() - begun
            if waited >= _TURNS:
                time.sleep(min(waited / (_SHARE * 1e9), _LONGEST))
            else:
                _yield()

    def _end_noted(self) -> None:
        """Take note of how it ended, once, and give the status record back.

        The wait makes memory consistent, which asking for the status does not.
        """
        try:
            self.end.wait()
        except self.session.errors as error:
            self.error = error
        with self.session.settling:
            if self.over:
                return
            record = self._record
            if record is not None:
                code, _, _, _, index, bound = RECORD.unpack_from(record.host)
                if code and self.error is None:
                    self.failure = Failure(code, index, bound)
            self.over = True
            self._record = None
            if record is not None and self.error is None and not record.lines:
                self.session.give_back(record, clean=self.failure is None)
        if record is not None and record.lines and self.error is None:
            self.session.texts.append(text_of(record.lines,
                                              memoryview(record.host)[RECORD.size :]))

    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the driver tells."""
        try:
            queued = self.first.profile.queued
            start, end = self.first.profile.start - queued, self.last.profile.end - queued
        except self.session.errors:
            return None
        return (self.begun + start, self.begun + end) if 0 <= start <= end else None


class OpenCLEvent(Event):
    """An event of commands of one device."""

    __slots__ = ("work",)

    def __init__(self, device: str, work: Work) -> None:
        super().__init__(device)
        self.work = work

    @property
    def done(self) -> bool:
        """Whether it has happened, or failed; never waits."""
        return self.work.over or self.work.is_over()

    def wait(self) -> None:
        """Block until it has happened.

        Raises
        ------
        SyncError
            If the driver says that it failed, or if the process is a fork of the one that
            opened the device.
        """
        self.work.wait()

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch, once that has happened."""
        return self.work.failure

    @property
    def interval(self) -> tuple[int, int] | None:
        """When it began and ended, by the device's clock."""
        return self.work.interval()

    def share(self) -> Event:
        """Return another event of the same commands."""
        return OpenCLEvent(self.device, self.work)
