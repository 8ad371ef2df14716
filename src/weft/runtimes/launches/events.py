"""Commands that were handed to a driver, and the events that stand for them.

A launch that may fail has a status record, in which the first failure is found once it is over:
``code, kernel, statement, pad`` of 32 bits and ``index, bound`` of 64.
"""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from weft.runtimes.base import Event, Failure
from weft.runtimes.launches.printing import Lines, show, text_of

__all__ = ["RECORD", "Home", "Work", "WorkEvent"]

RECORD: Final = struct.Struct("=iiiiqq")  # code, kernel, statement, pad, index, bound
_TURNS: Final = 100_000  # ns that a wait polls without a pause: most launches take less
_SHARE: Final = 32  # later it pauses for this part of the time that it has waited
_LONGEST: Final = 0.002  # seconds of a pause, after which Ctrl-C is seen
_yield: Final = getattr(os, "sched_yield", lambda: time.sleep(0))


class Home(Protocol):
    """What events ask of their device."""

    @property
    def name(self) -> str:
        """The device."""
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


class Work(ABC):
    """Commands that were handed over together.

    Parameters
    ----------
    home : Home
        The device.
    begun : int
        When they were handed over, in nanoseconds of `time.monotonic_ns`.

    Attributes
    ----------
    over : bool
        Whether somebody has seen that all of it has happened.
    error : Exception, optional
        What the driver says, if that has failed.
    failure : Failure, optional
        What stopped the launch.
    """

    __slots__ = ("begun", "error", "failure", "home", "over")

    order: object = None  # of queues that keep it, see `Event.order`

    def __init__(self, home: Home, begun: int) -> None:
        self.home, self.begun = home, begun
        self.over = False
        self.error: Exception | None = None
        self.failure: Failure | None = None

    @abstractmethod
    def has_ended(self) -> bool:
        """Return whether the driver says that it is over; what it throws is noted."""
        ...

    @abstractmethod
    def note_end(self) -> None:
        """Take note of how it ended, once."""
        ...

    @abstractmethod
    def raised(self, error: Exception) -> Exception:
        """Return the error of Weft for what the driver has thrown."""
        ...

    @abstractmethod
    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the driver tells."""
        ...

    def is_over(self) -> bool:
        """Return whether all of it has happened, or failed; never waits."""
        if self.over:
            return True
        self.home.check()
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
            self.home.check()
            self.until_over()
        show(self.home.texts)
        if self.error is not None:
            raise self.raised(self.error) from self.error

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

    def ended(self, memory: memoryview | None, lines: Lines) -> bool:
        """Note that it is over, once, and what its status record and the words behind it tell.

        Returns whether this call has noted it.
        """
        with self.home.settling:
            if self.over:
                return False
            if memory is not None and self.error is None:
                code, _, _, _, index, bound = RECORD.unpack_from(memory)
                if code:
                    self.failure = Failure(code, index, bound)
                if lines:
                    self.home.texts.append(text_of(lines, memory[RECORD.size :]))
            self.over = True
        return True


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
