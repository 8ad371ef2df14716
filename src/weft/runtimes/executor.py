"""Run any plan on any devices, by what every device offers: copies, fills and launches on queues.

Work is handed to one queue for computing and one for copying of each device, where it has two. What
a step has to wait for follows from the memory it touches: a read waits for the write before it, a
write for all that was done with the memory before. Queues keep the order of their own work, so only
what other queues do is waited for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from weft.config import Debug, debug
from weft.errors import VerifyError
from weft.ir.plan.plan import Alloc, Copy, Fill, Free, Launch, Parallel, Plan, Ref, Size, Wait
from weft.ir.program import evaluate_launch
from weft.runtimes.base import Event, Failure, View, driving

__all__ = ["STAGE_BYTES", "Execution", "execute"]

Place = tuple[str, int]
STAGE_BYTES: Final = 8 << 20  # of host memory, between two devices that know none of each other's


class Stopped(NamedTuple):
    """The first launch of a plan that failed.

    Attributes
    ----------
    number : int
        Which of the launches, in the order of the plan.
    failure : Failure
        What stopped it.
    """

    number: int
    failure: Failure


class _Done(NamedTuple):
    """Something that was handed to a queue."""

    queue: Any
    event: Event


class _Uses:
    """What was begun with one piece of memory: the last write, and the reads since."""

    __slots__ = ("reads", "write")

    def __init__(self) -> None:
        self.write: _Done | None = None
        self.reads: list[_Done] = []

    def before(self, writes: bool) -> list[_Done]:
        """Return what has to be over before the next use."""
        written = [] if self.write is None else [self.write]
        return [*written, *self.reads] if writes else written

    def note(self, done: _Done, writes: bool) -> None:
        """Note the next use."""
        if writes:
            self.write, self.reads = done, []
        else:
            self.reads = [r for r in self.reads if not r.event.precedes(done.event.order)]
            self.reads.append(done)


class _Range(NamedTuple):
    """Bytes of an arena that an allocation has or had."""

    device: int
    start: int
    end: int
    uses: _Uses


class Execution:
    """One run of a plan.

    Parameters
    ----------
    plan
        The plan.
    devices
        Its devices (`weft.runtimes.base.Device`), in the order of its header.
    programs
        Its programs by key, loaded on their devices.
    inputs, outputs
        Buffers of its slots, each on the device that the plan says.
    variables
        Values of its variables.
    """

    def __init__(self, plan: Plan, devices: Sequence[Any], programs: Mapping[str, Any],
                 inputs: Sequence[Any], outputs: Sequence[Any],
                 variables: Mapping[str, int]) -> None:  # fmt: skip
        self.plan, self.devices, self.programs = plan, devices, programs
        self.variables = variables
        self._homes = {p.key: p.device for p in plan.programs}
        self._writes = {p.key: [a.kind != "reads" for a in p.buffers] for p in plan.programs}
        self._memory: dict[Place, View] = {}
        for space, buffers in (("input", inputs), ("output", outputs)):
            self._memory.update({(space, i): View(b) for i, b in enumerate(buffers)})
        self._earlier: dict[Place, list[Event]] = {
            place: [e for e in getattr(view.buffer, "uses", ()) if not e.done]
            for place, view in self._memory.items()}
        self._uses: dict[Place, _Uses] = {place: _Uses() for place in self._memory}
        self._arenas: dict[int, Any] = {}
        self._ranges: list[_Range] = []
        self._live: dict[int, _Range] = {}
        self._launched: list[Event] = []
        self._begun: list[_Done] = []

    def run(self) -> Stopped | None:
        """Hand all steps to their queues; return the first failure that is known by then.

        Raises
        ------
        VerifyError
            At a step that this executor does not know.
        """
        for step in self._flat(self.plan.steps):
            if isinstance(step, Launch):
                stopped = self._launch(step)
                if stopped is not None:
                    return stopped
            elif isinstance(step, Copy):
                self._copy(step)
            elif isinstance(step, Fill):
                self._fill(step)
            elif isinstance(step, Alloc):
                self._alloc(step)
            elif isinstance(step, Free):
                self._live.pop(step.index)
                self._memory.pop(("arena", step.index))
            elif isinstance(step, Wait):
                self.wait()
            else:
                raise VerifyError(f"plan {self.plan.name}", found=f"a {type(step).__name__} step",
                                  expected="a step that every device runs")
        return self._first_failure(wait=False)

    def wait(self) -> Stopped | None:
        """Block until all that was begun is over; return the first failure."""
        for _, event in self._begun:
            event.wait()
        self._begun.clear()
        return self._first_failure(wait=True)

    def _first_failure(self, wait: bool) -> Stopped | None:
        for number, event in enumerate(self._launched):
            if (wait or event.done) and event.failure is not None:
                return Stopped(number, event.failure)
        return None

    @staticmethod
    def _flat(steps: Iterable[Any]) -> Iterator[Any]:
        """Yield steps in order; those of a parallel region may run in any."""
        for step in steps:
            if isinstance(step, Parallel):
                yield from step.steps
            else:
                yield step

    # ---- steps ---------------------------------------------------------------------------------

    def _alloc(self, step: Alloc) -> None:
        arena = self._arena(step.device)
        start, size = self._amount(step.offset), self._amount(step.size)
        uses = _Uses()
        for other in self._ranges:  # whose bytes these were before
            if other.device == step.device and other.start < start + size and start < other.end:
                uses.reads.extend(other.uses.before(writes=True))
        found = _Range(step.device, start, start + size, uses)
        self._ranges = [r for r in self._ranges if r.device != step.device
                        or not (start <= r.start and r.end <= start + size)]  # fmt: skip
        self._ranges.append(found)
        self._live[step.index] = found
        self._memory["arena", step.index] = View(arena, start)
        self._uses["arena", step.index] = uses

    def _launch(self, step: Launch) -> Stopped | None:
        device = self.devices[self._homes[step.key]]
        writes = self._writes[step.key]
        touched = list(zip(map(_place, step.buffers), writes, strict=True))
        queue = device.queue
        values = [self._amount(v) for v in step.variables]
        event = queue.launch(self.programs[step.key], [self._view(r) for r in step.buffers], values,
                             self._waits(queue, touched), [self._amount(n) for n in step.groups],
                             [self._amount(n) for n in step.threads])
        self._note(queue, event, touched)
        self._launched.append(event)
        if event.done and event.failure is not None:
            return Stopped(len(self._launched) - 1, event.failure)
        return None

    def _copy(self, step: Copy) -> None:
        nbytes = self._amount(step.size)
        target, source = self._view(step.target), self._view(step.source)
        to, origin = self._device(step.target), self._device(step.source)
        touched = [(_place(step.source), False), (_place(step.target), True)]
        if to is origin:
            queue = _copies(to)
            event = queue.copy(target, source, nbytes, self._waits(queue, touched))
        else:
            queue, event = self._across(to, target, origin, source, nbytes, touched)
        if debug(Debug.COPY):
            print(f"weft: copy of {nbytes} bytes from {origin.name} to {to.name}", file=sys.stderr)
        self._note(queue, event, touched)

    def _across(self, to: Any, target: View, origin: Any, source: View, nbytes: int,
                touched: Sequence[tuple[Place, bool]]) -> tuple[Any, Event]:  # fmt: skip
        """Copy from one device to another: directly where one can, else through host memory."""
        for queue in (_copies(to), _copies(origin)):
            direct = getattr(queue, "copy_across", None)
            if direct is not None:
                event = direct(target, source, nbytes, self._waits(queue, touched))
                if event is not None:
                    return queue, event
        self._await(touched)
        into = _of_host(to, target, nbytes)
        if into is not None:
            origin.pool.pool_to_host(source, into)
            return to.queue, Event(to.name)
        data = _of_host(origin, source, nbytes)
        if data is not None:
            return _copies(to), to.pool.host_to_pool(data, target)
        return _copies(to), self._staged(to, target, origin, source, nbytes)

    @staticmethod
    def _staged(to: Any, target: View, origin: Any, source: View, nbytes: int) -> Event:
        """Copy by way of host memory that holds a piece at a time."""
        event = Event(to.name)
        stage = memoryview(bytearray(min(nbytes, STAGE_BYTES)))
        for at in range(0, nbytes, STAGE_BYTES):
            piece = stage[: min(STAGE_BYTES, nbytes - at)]
            event.wait()  # whatever reads the stage
            origin.pool.pool_to_host(View(source.buffer, source.offset + at), piece)
            event = to.pool.host_to_pool(piece, View(target.buffer, target.offset + at))
        return event

    def _await(self, touched: Sequence[tuple[Place, bool]]) -> None:
        """Block until memory may be used."""
        for done in self._before(touched):
            done.event.wait()
        for place, _ in touched:
            for event in self._earlier.get(place, ()):
                event.wait()

    def _fill(self, step: Fill) -> None:
        touched = [(_place(step.target), True)]
        queue = self._device(step.target).queue
        event = queue.fill(self._view(step.target), self._amount(step.size), step.byte,
                           self._waits(queue, touched))
        self._note(queue, event, touched)

    # ---- memory --------------------------------------------------------------------------------

    def _amount(self, size: Size) -> int:
        return size if isinstance(size, int) else evaluate_launch(size, self.variables)

    def _arena(self, device: int) -> Any:
        """Return the arena of a device, taken when it is first needed."""
        if device not in self._arenas:
            size = self._amount((self.plan.arena, *self.plan.arenas)[device])
            self._arenas[device] = self.devices[device].pool.allocate(size)
        return self._arenas[device]

    def _view(self, ref: Ref) -> View:
        buffer, offset = self._memory[_place(ref)]
        return View(buffer, offset + ref.offset)

    def _device(self, ref: Ref) -> Any:
        number = self.plan.device_of(ref, {i: r.device for i, r in self._live.items()})
        return self.devices[number]

    def _before(self, touched: Sequence[tuple[Place, bool]]) -> list[_Done]:
        """Return what has to be over before memory is used."""
        return [done for place, writes in touched for done in self._uses[place].before(writes)]

    def _waits(self, queue: Any, touched: Sequence[tuple[Place, bool]]) -> list[Event]:
        """Return events that a queue has to wait for: those of other queues."""
        found = {id(d.event): d.event for d in self._before(touched)
                 if d.queue is not queue and not d.event.done}
        events = [e.share() for e in found.values()]
        order = getattr(queue, "order", None)
        for place, _ in touched:  # what earlier plans have begun
            events += [e.share() for e in self._earlier.get(place, ()) if not e.precedes(order)]
        return events

    def _note(self, queue: Any, event: Event, touched: Sequence[tuple[Place, bool]]) -> None:
        """Note that memory is used by something that was begun."""
        done = _Done(queue, event)
        for place, writes in touched:
            self._uses[place].note(done, writes)
            buffer = self._memory[place].buffer
            if writes:
                buffer.version += 1
            used = getattr(buffer, "used", None)
            if used is not None:
                used(event)
        if not event.done:
            self._begun.append(done)


def execute(plan: Plan, devices: Sequence[Any], programs: Mapping[str, Any],
            inputs: Sequence[Any], outputs: Sequence[Any], variables: Mapping[str, int],
            wait: bool, kind: type[Execution] = Execution) -> Stopped | None:  # fmt: skip
    """Run a plan; return its first failure, as far as it is known.

    Parameters
    ----------
    plan, devices, programs, inputs, outputs, variables
        As for `Execution`.
    wait
        Whether to return when all is over, with all failures known.
    kind
        What runs it.
    """
    run = kind(plan, devices, programs, inputs, outputs, variables)
    with driving(", ".join(d.name for d in devices)):
        try:
            stopped = run.run()
        except BaseException:
            with suppress(Exception):  # a device that is gone may fail at this, too
                run.wait()  # what was begun uses the memory that is about to be given back
            raise
        return run.wait() if stopped is not None or wait else None


def _of_host(device: Any, view: View, nbytes: int) -> memoryview | None:
    """Return device memory as bytes that this process may copy from and to, if there is a way."""
    buffer, offset = view
    if buffer.in_process:
        found: memoryview = buffer.view()
        return found[offset : offset + nbytes]
    window = getattr(device.pool, "host_view", None)
    return None if window is None else window(view, nbytes)


def _place(ref: Ref) -> Place:
    return ref.space, ref.index


def _copies(device: Any) -> Any:
    """Return the queue that a device copies on beside what it computes, if it has one."""
    return getattr(device, "copy_queue", None) or device.queue
