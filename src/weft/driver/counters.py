"""Counters of compilations and launches, and artifacts kept while a program is explained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.driver.pipeline import Built
    from weft.ir.plan.plan import Plan
    from weft.kernelize.build import Step


class Spec(Protocol):
    """The host program of a plan."""

    @property
    def host(self) -> Plan:
        """Its steps."""


class Planned(Protocol):
    """What reports read of a plan (`weft.driver.plans.plan.Plan`)."""

    @property
    def spec(self) -> Spec:
        """The plan as data."""

    @property
    def context(self) -> Context:
        """The device that it runs on."""

    @property
    def steps(self) -> list[Step] | None:
        """The loop nests, where the plan was made in this process."""


class Recording:
    """Artifacts of everything compiled while it is active.

    Attributes
    ----------
    built : list of Built
        Each kernel at every level.
    plans : list of Planned
        Each plan.
    launches : dict of str to list of float
        Seconds of each launch of a kernel that users launch themselves, by symbol.
    """

    def __init__(self) -> None:
        self.built: list[Built] = []
        self.plans: list[Planned] = []
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


def compile_count() -> int:
    """Return how often this process has prepared something to run, not how often it ran it.

    It counts the graphs of eager code that got a plan, because they were new (be it that the
    plan was found on disk), and the captures of functions under `weft.jit`. In a loop that is
    warm it stays what it is.

    Examples
    --------
    >>> before = weft.compile_count()
    >>> for t in range(100):
    ...     y = step(x, t / 100)
    >>> weft.compile_count() - before
    2
    """
    return int(_counters.get("eager plans", 0) + _counters.get("captures", 0))


def counters() -> dict[str, float]:
    """Return a copy of the counters: kernels compiled, compile seconds, cache hits."""
    return dict(_counters)


def reset() -> None:
    """Set every counter to 0."""
    _counters.clear()
