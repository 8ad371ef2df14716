"""Commands that were handed to a driver, and the events that stand for them.

A launch that may fail has a status record, in which the first failure is found once it is over:
``code, kernel, statement, pad`` of 32 bits and ``index, bound`` of 64.
"""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from weft.errors import SyncError
from weft.runtimes.base import Event, Failure
from weft.runtimes.launches.printing import Lines, show, text_of

if TYPE_CHECKING:
    from weft.runtimes.launches.session import DriverSession

__all__ = ["RECORD", "Work", "WorkEvent"]

RECORD: Final = struct.Struct("=iiiiqq")  # code, kernel, statement, pad, index, bound
_TURNS: Final = 100_000  # ns that a wait polls without a pause: most launches take less
_SHARE: Final = 32  # later it pauses for this part of the time that it has waited
_LONGEST: Final = 0.002  # seconds of a pause, after which Ctrl-C is seen
_yield: Final = getattr(os, "sched_yield", lambda: time.sleep(0))


class Work(ABC):
    """Commands that were handed over together.

    Parameters
    ----------
    session : DriverSession
        The device.
    begun : int
        When they were handed over, in nanoseconds of `time.monotonic_ns`.
    lines : Lines
        What a launch prints, whose values stand behind its status record.

    Attributes
    ----------
    over : bool
        Whether somebody has seen that all of it has happened.
    error : Exception, optional
        What the driver says, if that has failed.
    failure : Failure, optional
        What stopped the launch.
    """

    __slots__ = ("begun", "error", "failure", "lines", "over", "session")

    order: object = None  # of queues that keep it, see `Event.order`

    def __init__(self, session: DriverSession, begun: int, lines: Lines = ()) -> None:
        self.session, self.begun, self.lines = session, begun, lines
        self.over = False
        self.error: Exception | None = None
        self.failure: Failure | None = None

    @abstractmethod
    def has_ended(self) -> bool:
        """Return whether the driver says that it is over; what it throws is noted."""
        ...

    def record(self) -> bytes | bytearray | memoryview | None:
        """Return the status record and the words behind it, None for work that has none.

        It is asked for once, when all has happened and nobody else notes that.
        """
        return None

    def released(self) -> None:
        """Give back what the work has held, once its end was noted."""
        return

    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the driver tells."""
        return None

    def is_over(self) -> bool:
        """Return whether all of it has happened, or failed; never waits."""
        if self.over:
            return True
        self.session.check()
        if not self.has_ended():
            return False
        self.note_end()
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
            self.until_over()
        show(self.session.texts)
        if self.error is not None:
            what = f"wait for {self.session.name}"
            raise self.session.translated(what, self.error, SyncError) from self.error

    def until_over(self) -> None:
        """Ask again and again: a driver that waits would not hear of signals."""
        begun = time.monotonic_ns()
        while not self.is_over():
            waited = time.monotonic_ns() - begun
            if waited >= _TURNS:
                self.pause(min(waited / (_SHARE * 1e9), _LONGEST))
            else:
                _yield()

    def pause(self, seconds: float) -> None:
        """Let others work for a while, at most."""
        time.sleep(seconds)

    def note_end(self) -> None:
        """Take note of how it ended, once, and of what its status record tells."""
        with self.session.settling:
            if self.over:
                return
            try:
                record = None if self.error is not None else self.record()
            except self.session.errors as error:
                record, self.error = None, error
            if record is not None:
                code, _, _, _, index, bound = RECORD.unpack_from(record)
                if code:
                    self.failure = Failure(code, index, bound)
                if self.lines:
                    words = memoryview(record)[RECORD.size :]
                    self.session.texts.append(text_of(self.lines, words))
            self.over = True
        self.released()


class WorkEvent(Event):
    """An event of commands of one device."""

    __slots__ = ("order", "work")

    def __init__(self, device: str, work: Work) -> None:
        super().__init__(device)
        self.work = work
        self.order = work.order

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
        return WorkEvent(self.device, self.work)
