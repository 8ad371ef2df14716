"""What runs while a profile is taken: kernels, copies and compilations, with the times of each.

`recorder` is None at other times, and whatever could be recorded asks for that on ways that are
slow already. Native plans are not asked: while there is a recorder, `weft.runtimes.native.executor`
has their kernels timed by native code.

Times are nanoseconds of the system's monotonic clock, which native code reads as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from weft.locks import in_child, mutex
from weft.runtimes.base import Event

__all__ = ["HOST_ROW", "Recorder", "Span", "Work", "clock", "copied", "recorder", "recording",
           "start", "stop", "switches", "thread", "timed", "whole_copy"]  # fmt: skip

_MOST: Final = 1 << 20  # pieces of work that are kept
HOST_ROW: Final = "host"  # what Python does, beside the devices
_CLOCK: Final[int | None] = getattr(time, "CLOCK_MONOTONIC", None)


def clock() -> int:
    """Return the time in nanoseconds."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)


class Span(NamedTuple):
    """A piece of work, and when it was done.

    Attributes
    ----------
    kind : str
        ``kernel``, ``copy``, ``fill``, ``compile`` or ``plan``.
    name : str
        Of a kernel its symbol; of a copy where it comes from and where it goes.
    device : str
        Where it ran.
    queue : str
        What ran it: a queue of the device, or a thread.
    start, end : int
        Nanoseconds.
    nbytes : int
        Of a copy.
    origin : str
        The device that a copy comes from.
    failed : bool
        Whether it was stopped.
    """

    kind: str
    name: str
    device: str
    queue: str
    start: int
    end: int
    nbytes: int = 0
    origin: str = ""
    failed: bool = False


class Work:
    """Something that was handed to a queue, and what it has to wait for.

    Attributes
    ----------
    span : Span
        What it is; `start` is when it was handed over.
    after : sequence of Work
        What has to be over before it begins.
    """

    __slots__ = ("after", "event", "order", "span")

    def __init__(self, span: Span, event: Event | None, order: object,
                 after: Sequence[Work] = ()) -> None:  # fmt: skip
        self.span, self.event, self.order, self.after = span, event, order, after


class _Watcher:
    """A thread that waits for the events of one queue, and notes when each has happened."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Work | SimpleQueue[None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="weft profile", daemon=True).start()

    def watch(self, work: Work) -> None:
        """Note when something has happened."""
        self._waiting.put(work)

    def finish(self) -> None:
        """Wait until everything has happened."""
        told: SimpleQueue[None] = SimpleQueue()
        self._waiting.put(told)
        told.get()

    def end(self) -> None:
        """Let the thread end once it has nothing to wait for."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            if not isinstance(item, Work):
                item.put(None)
            elif item.event is not None:
                item.event.wait()
                _over(item)


def _over(work: Work) -> None:
    """Note that something has happened: when, by the device's own clock if it tells."""
    event = work.event
    assert event is not None
    end = clock()
    times = event.interval
    start, end = (work.span.start, end) if times is None else times
    work.span = work.span._replace(start=start, end=end, failed=event.failure is not None)
    work.event = None
    if times is not None:
        work.order, work.after = None, ()  # they say nothing new


class Recorder:
    """Everything that runs while at least one profile is taken.

    Attributes
    ----------
    sources : dict of str to callable
        Each returns what ran that it knows, and how much is missing because there was too much.
    """

    def __init__(self) -> None:
        self._work: list[Work] = []
        self._watchers: dict[int, tuple[object, _Watcher]] = {}
        self._lock = mutex()
        self._dropped = 0
        self.sources: dict[str, Callable[[], tuple[list[Span], int]]] = {}

    def add(self, span: Span) -> None:
        """Note something that is over."""
        self._keep(Work(span, None, None))

    def begun(self, span: Span, event: Event, queue: object,
              after: Sequence[Work] = ()) -> Work:  # fmt: skip
        """Note something that was handed to a queue.

        Parameters
        ----------
        span
            What it is; it starts when it was handed over.
        event
            What it is the event of. If it has happened, it took from then until now.
        queue
            The queue, whose work happens in order.
        after
            What it waits for.
        """
        work = Work(span, event, None)
        if event.done:
            _over(work)
        else:
            work.order, work.after = queue, after
            work.event = event.share()
            self._watcher(queue).watch(work)
        self._keep(work)
        return work

    def _keep(self, work: Work) -> None:
        if len(self._work) < _MOST:
            self._work.append(work)
        else:
            self._dropped += 1

    def _watcher(self, queue: object) -> _Watcher:
        with self._lock:
            found = self._watchers.get(id(queue))
            if found is None:
                found = self._watchers[id(queue)] = queue, _Watcher()
            return found[1]

    def spans(self) -> tuple[list[Span], int]:
        """Wait for what was handed over; return it all, and how much is missing.

        It is in the order of its beginning.

        What a device does not tell the times of began when it was handed over, or when the last
        thing ended that it had to wait for: what it reads, and what its queue did before.
        """
        with self._lock:
            watchers = [w for _, w in self._watchers.values()]
        for watcher in watchers:
            watcher.finish()
        last: dict[int, int] = {}
        found: list[Span] = []
        everything = list(self._work)
        for work in reversed(everything):  # threads may notice an end later than what came of it
            for earlier in work.after:
                if earlier.order is not None and earlier.span.end > work.span.end:
                    earlier.span = earlier.span._replace(end=work.span.end)
        for work in everything:
            span = work.span
            if work.order is not None:
                before = [last.get(id(work.order), 0), *(w.span.end for w in work.after)]
                start = min(max(span.start, *before), span.end)
                last[id(work.order)] = span.end
                work.span = span = span._replace(start=start)
            found.append(span)
        missing = self._dropped
        for source in list(self.sources.values()):
            more, lost = source()
            found += more
            missing += lost
        return sorted(found, key=lambda s: (s.start, -s.end)), missing

    def end(self) -> None:
        """Let the threads end that wait for events."""
        for _, watcher in self._watchers.values():
            watcher.end()


recorder: Recorder | None = None
_lock: Final = mutex()
_users = 0
# Called with True when the first profile begins and with False when the last one has ended.
switches: Final[list[Callable[[bool], None]]] = []


def start() -> Recorder:
    """Begin to record, if nobody did; return the recorder."""
    global recorder, _users
    with _lock:
        if recorder is None:
            recorder = Recorder()
            try:
                for switch in switches:
                    switch(True)
            except BaseException:  # nobody records then
                recorder = None
                for switch in switches:
                    switch(False)
                raise
        _users += 1
        return recorder


def stop() -> None:
    """End what `start` began; the last one ends the recording."""
    global recorder, _users
    with _lock:
        _users -= 1
        if _users == 0 and recorder is not None:
            ended, recorder = recorder, None
            for switch in switches:
                switch(False)
            ended.end()


def _forget() -> None:
    """End the profiles of the parent in a forked child, which does not have their threads."""
    global recorder, _users
    if recorder is not None:
        recorder, _users = None, 0
        for switch in switches:
            switch(False)


in_child(_forget)


def thread() -> str:
    """Return the row of the calling thread."""
    return threading.current_thread().name


class _Inside(threading.local):
    """Whether a copy is recorded already by who has it made."""

    copy = False


inside: Final = _Inside()


@contextmanager
def whole_copy() -> Iterator[None]:
    """Have the steps of a copy not recorded by themselves, on this thread."""
    before, inside.copy = inside.copy, True
    try:
        yield
    finally:
        inside.copy = before


def copied(begun: int, origin: str, device: str, nbytes: int) -> None:
    """Note a copy that the calling thread made from one device to another, and that is over."""
    if recorder is not None and not inside.copy:
        recorder.add(Span("copy", f"{origin} to {device}", device, "copies", begun, clock(),
                          nbytes, origin))  # fmt: skip


@contextmanager
def timed(kind: str, name: str, device: str = HOST_ROW) -> Iterator[None]:
    """Record what the calling thread does in a block, where there is a recorder."""
    begun, into, failed = clock(), recorder, True
    try:
        yield
        failed = False
    finally:
        if into is not None:
            into.add(Span(kind, name, device, thread(), begun, clock(), failed=failed))


def recording(kind: str, name: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that records its call, where there is a recorder now; else itself."""
    if recorder is None:
        return function

    def timed_function() -> Any:
        with timed(kind, name):
            return function()

    return timed_function
