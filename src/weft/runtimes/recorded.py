"""Runs of plans by queues whose launches and copies a profile records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.plan.plan import Copy, Fill, Launch
from weft.runtimes import trace
from weft.runtimes.base import Event
from weft.runtimes.executor import Execution, Place, Stopped
from weft.runtimes.trace import Recorder, Span, Work

__all__ = ["RecordedExecution", "launched", "row_of"]


class RecordedExecution(Execution):
    """One run of a plan, recorded; parameters as those of `Execution`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._recorder = trace.recorder or Recorder()
        self._works: dict[int, Work] = {}  # by event
        self._kept: list[Event] = []
        self._after: list[Work] = []
        self._began = 0
        self._last: tuple[Any, Event] | None = None

    def _launch(self, step: Launch) -> Stopped | None:
        device = self.devices[self._homes[step.key]]
        self._began = trace.clock()
        stopped = super()._launch(step)
        self._note_work("kernel", self.programs[step.key].name, device)
        return stopped

    def _copy(self, step: Copy) -> None:
        to, origin = self._device(step.target), self._device(step.source)
        self._began = trace.clock()
        with trace.whole_copy():
            super()._copy(step)
        self._note_work("copy", f"{origin.name} to {to.name}", to, self._amount(step.size),
                        origin.name)  # fmt: skip

    def _fill(self, step: Fill) -> None:
        self._began = trace.clock()
        super()._fill(step)
        self._note_work("fill", "fill", self._device(step.target), self._amount(step.size))

    def _await(self, touched: Sequence[tuple[Place, bool]]) -> None:
        super()._await(touched)
        self._began = trace.clock()  # a copy that the host makes begins now

    def _waits(self, queue: Any, touched: Sequence[tuple[Place, bool]]) -> list[Event]:
        self._after = [self._works[id(d.event)] for d in self._before(touched)
                       if id(d.event) in self._works]
        return super()._waits(queue, touched)

    def _note(self, queue: Any, event: Event, touched: Sequence[tuple[Place, bool]]) -> None:
        super()._note(queue, event, touched)
        self._last = queue, event

    def _note_work(self, kind: str, name: str, device: Any, nbytes: int = 0,
                   origin: str = "") -> None:  # fmt: skip
        assert self._last is not None
        queue, event = self._last
        row = row_of(device, queue, kind == "copy")
        span = Span(kind, name, device.name, row, self._began, trace.clock(), nbytes, origin)
        work = self._recorder.begun(span, event, queue, self._after)
        self._works[id(event)] = work  # also if it is over by now: who notes the end may be late
        self._kept.append(event)  # so that no other one is taken for it
        self._after = []


def row_of(device: Any, queue: Any, copies: bool = False) -> str:
    """Return what the row of a queue is called; copies that the host makes share that of copies."""
    own = getattr(device, "copy_queue", None)
    return "copies" if copies or (own is not None and queue is own) else "queue"


def launched(device: Any, name: str, event: Event, began: int) -> None:
    """Note a launch that no plan makes, as soon as it was handed over."""
    if trace.recorder is not None:
        row = row_of(device, device.queue)
        span = Span("kernel", name, device.name, row, began, trace.clock())
        trace.recorder.begun(span, event, device.queue)
