"""Streams and events: an order of launches, and moments in it.

On the CPU a launch is finished when it returns, so work of any streams is in order, and what has
been asked for has happened. Programs that wait where they have to are right on every device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from weft.errors import LaunchError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Event", "Stream", "check_stream", "event", "stream"]


class Stream:
    """An order of work: ``k[grid, block, stream](...)``.

    Attributes
    ----------
    handle : int
        The address of a stream of another library that it stands for, 0 for one of ours.
    external : bool
        Whether it stands for one.
    """

    handle = 0
    external = False

    def __int__(self) -> int:
        """Return the handle."""
        return self.handle

    def synchronize(self) -> None:
        """Wait until all that was asked for is finished, which it is."""

    def query(self) -> bool:
        """Return whether all that was asked for is finished, which it is."""
        return True

    def wait(self, event: Event) -> None:
        """Let later work of this stream come after an event, which has happened."""
        _check_event(event)

    def record(self, event: Event | None = None) -> Event:
        """Return an event (by default a new one) that happens after the work so far."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def add_callback(self, callback: Callable[[Self, int, Any], Any], arg: Any = None) -> None:
        """Call ``callback(stream, 0, arg)`` after the work so far, which is now."""
        callback(self, 0, arg)

    def async_done(self) -> asyncio.Future[Self]:
        """Return what can be awaited: the stream, when the work so far is finished."""
        import asyncio

        done: asyncio.Future[Self] = asyncio.get_running_loop().create_future()
        done.set_result(self)
        return done

    @contextmanager
    def auto_synchronize(self) -> Iterator[Self]:
        """Wait at the end of a ``with`` block."""
        try:
            yield self
        finally:
            self.synchronize()


class Event:
    """A moment in a stream."""

    def __init__(self, timing: bool = True) -> None:
        self._timing = timing
        self._nanoseconds: int | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        check_stream(stream, "record")
        self._nanoseconds = time.perf_counter_ns()

    def synchronize(self) -> None:
        """Wait until it has happened, which it has."""

    def wait(self, stream: Any = None) -> None:
        """Let later work of a stream come after this event, which has happened."""
        check_stream(stream, "wait")

    def query(self) -> bool:
        """Return True: what was asked for has happened."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds from this moment to another one.

        Raises
        ------
        LaunchError
            If one of them was not recorded, or takes no times.
        """
        _check_event(other)
        for found in (self, other):
            if not found._timing:
                raise LaunchError("elapsed_time", found="an event without timing",
                                  expected="events made with timing")
        if self._nanoseconds is None or other._nanoseconds is None:
            raise LaunchError("elapsed_time", found="an event that was not recorded")
        return (other._nanoseconds - self._nanoseconds) / 1e6


def _check_event(event: Any) -> None:
    if not isinstance(event, Event):
        raise LaunchError("event", found=type(event).__name__, expected="an event")


def check_stream(stream: Any, operation: str) -> None:
    """Refuse what is no stream; None and 0 are the default one.

    Raises
    ------
    LaunchError
        If it is none.
    """
    if stream is None or isinstance(stream, Stream) or (isinstance(stream, int) and stream == 0):
        return
    raise LaunchError(operation, found=f"{stream!r} for a stream", expected="one of weft.stream()")


def stream() -> Stream:
    """Return a new stream."""
    return Stream()


def event(timing: bool = True) -> Event:
    """Return a new event; with `timing`, `Event.elapsed_time` can measure between two."""
    return Event(timing)
