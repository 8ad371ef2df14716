"""Kernels of native plans in profiles: when to time them, and their rows as pieces of work."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from weft.runtimes import trace
from weft.runtimes.native.executor import kernel_times, threads
from weft.runtimes.native.executor.kernel_times import KernelTimes, Row
from weft.runtimes.trace import HOST_ROW, Span
from weft.weak import Living

if TYPE_CHECKING:
    from weft.runtimes.base import Library
    from weft.runtimes.native.executor.threads import ThreadPool

__all__ = ["spans_of", "started"]


class Runtime(Protocol):
    """What loads code and has threads (`weft.runtimes.cpu.runtime.CpuRuntime`)."""

    @property
    def threads(self) -> ThreadPool:
        """The thread pool."""
        ...

    def support(self, text: str, symbols: Sequence[str], imports: Mapping[str, int]) -> Library:
        """Load code, compiled or from the cache."""
        ...


_runtimes: Final[Living[Runtime]] = Living()  # whose threads and code run


def started(runtime: Runtime) -> None:
    """Have kernels timed whenever a profile is taken, and now if one is."""
    _runtimes.add(runtime)
    if trace.recorder is not None:
        _switch(True)


def _switch(on: bool) -> None:
    if not on:
        kernel_times.end()
    elif len(_runtimes) and trace.recorder is not None:
        times = kernel_times.begin(_load)
        trace.recorder.sources.setdefault("cpu", _Source(times))


trace.switches.append(_switch)


def _load(imports: Mapping[str, int]) -> Library:
    code = kernel_times.module(threads.flavour() != "serial")
    return next(iter(_runtimes)).support(code.text, kernel_times.SYMBOLS, imports)


class _Source:
    """The work of native plans since a profile began."""

    def __init__(self, times: KernelTimes) -> None:
        self._times, self._first = times, times.position()

    def __call__(self) -> tuple[list[Span], int]:
        """Return what ran, and how much of it is missing."""
        last = self._times.position()
        rows = self._times.rows(self._first, last)
        pool = [handle for runtime in _runtimes for handle in runtime.threads.handles]
        return spans_of(rows, pool), self._times.lost(self._first, last)


class _Call(NamedTuple):
    """A call of a plan, as far as it is known."""

    row: str
    start: int
    end: int
    kernels: int
    failed: bool


def spans_of(rows: Sequence[Row], pool: Sequence[int] = ()) -> list[Span]:
    """Return kernels, and the calls of plans that ran several of them, as pieces of work.

    The steps of a plan run in order on the thread that calls it, so a call is over where the next
    step is not a later one. Steps that threads of the pool ran belong to the call that began last.

    Parameters
    ----------
    rows
        The kernels that ran.
    pool
        The threads of the pool.
    """
    names = _Names(pool)
    found: list[Span] = []
    calls: list[_Call] = []
    under_way: dict[tuple[int, int], tuple[int, int]] = {}  # call and step, by plan and thread
    latest: dict[int, int] = {}  # by plan
    for row in sorted(rows, key=lambda r: r.start):
        where = names[row.thread]
        found.append(Span("kernel", row.name, "cpu", where, row.start, row.end,
                          failed=row.failed))  # fmt: skip
        number, step = under_way.get((row.plan, row.thread), (None, -1))
        if row.thread in pool:
            number = latest.get(row.plan)
        elif row.step <= step:
            number = None
        if number is None:
            number = latest[row.plan] = len(calls)
            calls.append(_Call(where, row.start, row.end, 0, False))
        under_way[row.plan, row.thread] = number, row.step
        call = calls[number]
        calls[number] = call._replace(end=max(call.end, row.end), kernels=call.kernels + 1,
                                      failed=call.failed or row.failed)
    found += [Span("plan", f"plan of {c.kernels} kernels", HOST_ROW, c.row, c.start, c.end,
                   failed=c.failed) for c in calls if c.kernels > 1]  # fmt: skip
    return found


class _Names(dict[int, str]):
    """What threads are called: Python's by their names, others, and ended ones, by numbers."""

    def __init__(self, pool: Sequence[int]) -> None:
        super().__init__({ident: f"pool thread {1 + k}" for k, ident in enumerate(pool)})
        self.update({t.ident: t.name for t in threading.enumerate() if t.ident is not None})
        self._others = 0

    def __missing__(self, ident: int) -> str:
        self._others += 1
        name = self[ident] = f"thread {self._others}" if ident else "thread"
        return name
