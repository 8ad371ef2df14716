"""What the driver did: counters for summaries, and full artifacts while a program is explained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.driver.pipeline import Built
    from weft.driver.plan import Plan


class Recording:
    """Artifacts of everything compiled while it is active.

    Attributes
    ----------
    built : list of Built
        Each kernel at every level.
    plans : list of Plan
        Each plan.
    launches : dict of str to list of float
        Seconds of each launch of a kernel that users launch themselves, by symbol.
    """

    def __init__(self) -> None:
        self.built: list[Built] = []
        self.plans: list[Plan] = []
        self.launches: dict[str, list[float]] = {}


_recording: ContextVar[Recording | None] = ContextVar("weft_recording", default=None)
_counters: Final[dict[str, float]] = {}


def active() -> Recording | None:
    """Return the recording in progress; caches are bypassed while there is one."""
    return _recording.get()


@contextmanager
def record() -> Iterator[Recording]:
    """Record all kernels and plans made inside the block."""
    recording = Recording()
    token = _recording.set(recording)
    try:
        yield recording
    finally:
        _recording.reset(token)


def count(what: str, amount: float = 1) -> None:
    """Add to a counter of this process."""
    _counters[what] = _counters.get(what, 0) + amount


def compiled(seconds: float, built: Built) -> None:
    """Note a kernel that went through the compiler."""
    count("kernels compiled")
    count("compile seconds", seconds)
    recording = _recording.get()
    if recording is not None:
        recording.built.append(built)


def counters() -> dict[str, float]:
    """Return a copy of the counters: kernels compiled, compile seconds, cache hits."""
    return dict(_counters)


def reset() -> None:
    """Set every counter to 0."""
    _counters.clear()
