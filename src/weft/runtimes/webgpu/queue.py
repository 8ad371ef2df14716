"""The queue of a WebGPU device: copies, fills and launches in the order of their calls.

The language of the standard moves whole words. Where a copy or a fill begins or ends within one, it
goes by way of the host.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from weft.errors import CopyError, HandleError, LaunchError, SyncError, WeftError
from weft.locks import mutex
from weft.runtimes.base import Event, View
from weft.runtimes.memory.checked_queue import CheckedQueue
from weft.runtimes.memory.device_pool import AllOf, DeviceBuffer
from weft.runtimes.webgpu.arguments import Bound, bound_by
from weft.runtimes.webgpu.bindings import uniforms
from weft.runtimes.webgpu.driver import translated
from weft.runtimes.webgpu.events import Record, WebGPUEvent, Work
from weft.runtimes.webgpu.program import MOST_SCRATCH, WebGPUProgram
from weft.runtimes.webgpu.session import Block, Session

__all__ = ["WebGPUQueue"]

_WORD: Final = 4
_STAGE: Final = 64 << 20  # bytes that a copy within a buffer moves at a time
_UNIFORM: Final = 4096  # bytes of the uniform buffer to begin with


class WebGPUQueue(CheckedQueue):
    """Work of a device, in order; calls return before it is done.

    Nothing waits on the host but for events of other devices, and copies of parts of words.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session.name)
        self._session = session
        self._lock = mutex()
        self._scratch: Block | None = None
        self._uniform: Any = None
        self._uniform_size = 0
        self._uploaded = 0  # bytes since the last wait

    # ---- copies --------------------------------------------------------------------------------

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit, or the driver refuses.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        to, of, count = self._copied(destination, source, nbytes)
        self._waits(wait)
        target, origin = to.buffer.handle, of.buffer.handle
        with self._driving("copy"):
            if not count:
                return self._nothing()
            whole = -(-count // _WORD) * _WORD
            if to.offset % _WORD or of.offset % _WORD or (
                count % _WORD and to.offset + count != to.buffer.nbytes
            ) or of.offset + whole > origin.size:
                self.write(target, to.offset, self.read(origin, of.offset, count))
                return self._nothing()
            return self._submitted_copy(target, to.offset, origin, of.offset, whole)

    def _submitted_copy(self, target: Block, to: int, origin: Block, of: int, count: int) -> Event:
        """Copy words; within a buffer by way of a stage, from the end that is not overwritten."""
        session = self._session
        with self._lock:
            session.check()
            session.sweep()
            encoder = session.device.create_command_encoder()
            stage = None
            if target is not origin:
                encoder.copy_buffer_to_buffer(origin.buffer, of, target.buffer, to, count)
            else:
                piece = min(count, _STAGE)
                stage = session.block(piece)
                starts = list(range(0, count, piece))
                for start in starts[::-1] if to > of else starts:
                    size = min(piece, count - start)
                    encoder.copy_buffer_to_buffer(origin.buffer, of + start, stage.buffer, 0, size)
                    encoder.copy_buffer_to_buffer(stage.buffer, 0, target.buffer, to + start, size)
            return self._begun(encoder, keep=stage)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer, or the driver refuses.
        HandleError
            If the buffer was released or is another device's, or an event was used before.
        """
        to = self._filled(target, nbytes)
        self._waits(wait)
        return self.set_bytes(to.buffer.handle, to.offset, nbytes, byte)

    def set_bytes(self, handle: Block, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
        session = self._session
        with self._driving("fill"):
            if not nbytes:
                return self._nothing()
            end = offset + nbytes
            if byte == 0 and offset % _WORD == 0 and end % _WORD == 0:
                with self._lock:
                    session.check()
                    encoder = session.device.create_command_encoder()
                    encoder.clear_buffer(handle.buffer, offset, nbytes)
                    return self._begun(encoder)
            pattern = bytes((byte & 0xFF,)) * min(nbytes, _STAGE)
            for start in range(0, nbytes, _STAGE):
                self.write(handle, offset + start, pattern[: nbytes - start])
            return self._nothing()

    def write(self, handle: Block, offset: int, source: bytes | memoryview) -> None:
        """Copy host memory into a block, in the order of what is handed over."""
        nbytes = len(source) if isinstance(source, bytes) else source.nbytes
        if not nbytes:
            return
        begin, end = offset // _WORD * _WORD, -(-(offset + nbytes) // _WORD) * _WORD
        data: Any = source
        with self._lock:
            if (begin, end) != (offset, offset + nbytes):  # words that it has a part of
                held = bytearray(end - begin)
                held[:_WORD] = self.read(handle, begin, _WORD)
                held[-_WORD:] = self.read(handle, end - _WORD, _WORD)
                held[offset - begin : offset - begin + nbytes] = source
                data = held
            self._session.queue.write_buffer(handle.buffer, begin, data)
            self._uploaded += end - begin
            if self._uploaded > _STAGE:  # which wgpu keeps until something is handed over
                self._uploaded = 0
                number = self._session.submit(self._session.device.create_command_encoder())
                self._session.wait(number)

    def read(self, handle: Block, offset: int, nbytes: int) -> bytes:
        """Return bytes of a block, when all that was handed over has happened."""
        if not nbytes:
            return b""
        session = self._session
        begin, end = offset // _WORD * _WORD, -(-(offset + nbytes) // _WORD) * _WORD
        stage = session.stage(end - begin)
        with self._lock:
            session.check()
            encoder = session.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(handle.buffer, begin, stage, 0, end - begin)
            number = session.submit(encoder)
        session.wait(number)
        found = session.mapped(stage, end - begin)
        stage.destroy()
        return found[offset - begin : offset - begin + nbytes]

    # ---- launches ------------------------------------------------------------------------------

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Run a program on buffers, in its parameter order; its entries know their work-groups.

        Raises
        ------
        LaunchError
            If counts or types are wrong, an array is larger than a binding, or there are more
            buffers than the device takes.
        AllocationError
            If the device has no memory for it.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        session = self._session
        if not isinstance(program, WebGPUProgram) or program.session is not session:
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        views = self._given(program.name, buffers, variables, program.nbuffers,
                            program.nvariables)
        bound = bound_by(program, views)
        try:
            data = uniforms(bound.places, variables)
        except struct.error:
            raise LaunchError(program.name, found=f"{list(variables)!r} for its variables",
                              expected="integers of 64 bits") from None
        self._waits(wait)
        try:
            with self._lock:
                return self._launched(program, bound, data)
        except session.errors as error:
            if isinstance(error, WeftError):
                raise
            raise translated(self.device, program.name, error, LaunchError) from error

    def _launched(self, program: WebGPUProgram, bound: Bound, data: bytes) -> Event:
        """Hand a launch over, under the lock."""
        session, header = self._session, program.header
        session.check()
        session.sweep()
        built = program.built(bound.groups)
        record = self._record(program) if header.reports else None
        if len(data) > self._uniform_size:
            self._uniform_size = max(_UNIFORM, 2 * len(data))
            self._uniform = session.uniform(self._uniform_size)
        session.queue.write_buffer(self._uniform, 0, data)
        resources: list[Any] = [(self._uniform, 0, self._uniform_size), *bound.ranges]
        copies = None
        if bound.staged:
            size = next(size for buffer, _, size in bound.ranges if buffer is None)
            copies = session.block(size)
            resources = [(copies.buffer, 0, copies.size) if r[0] is None else r for r in resources]
        if record is not None:
            resources.append((record.block.buffer, 0, record.block.size))
        if header.has_scratch:
            scratch = self._room(program.scratch)
            resources.append((scratch.buffer, 0, scratch.size))
        group = session.device.create_bind_group(layout=built.layout, entries=[
            {"binding": k, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for k, (buffer, offset, size) in enumerate(resources)])
        encoder = session.device.create_command_encoder()
        if record is not None:
            encoder.clear_buffer(record.block.buffer, 0, record.cleared)
        for part in bound.staged:
            assert copies is not None
            encoder.copy_buffer_to_buffer(part.buffer, part.offset, copies.buffer, part.place,
                                          part.size)  # fmt: skip
        run = encoder.begin_compute_pass()
        run.set_bind_group(0, group)
        for pipeline, count in zip(built.pipelines, program.counts, strict=True):
            run.set_pipeline(pipeline)
            run.dispatch_workgroups(count)
        run.end()
        for part in bound.staged:
            if part.is_written:
                assert copies is not None
                encoder.copy_buffer_to_buffer(copies.buffer, part.place, part.buffer, part.offset,
                                              part.size)  # fmt: skip
        if record is not None:
            encoder.copy_buffer_to_buffer(record.block.buffer, 0, record.stage, 0, record.size)
        return self._begun(encoder, record, copies)

    def _record(self, program: WebGPUProgram) -> Record:
        launch, session = program.header.launch, self._session
        if launch.lines:
            return Record(session, launch.lines, launch.room)
        try:
            held: Record = session.records.pop()
            return held
        except IndexError:
            return Record(session)

    def _room(self, nbytes: int) -> Block:
        """Return scratch memory, which launches use one after another."""
        if self._scratch is None or nbytes > self._scratch.size:
            before = 0 if self._scratch is None else self._scratch.size
            size = min(max(nbytes, 2 * before), max(nbytes, MOST_SCRATCH))
            self._scratch = None  # the driver keeps it for launches that use it
            self._scratch = self._session.block(size)
        return self._scratch

    # ---- waiting -------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Block until all work has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver fails.
        """
        session = self._session
        session.check()
        with self._driving(f"wait for {self.device}", SyncError):
            event = self._nothing()
        event.wait()
        session.sweep()

    def flush(self) -> None:
        """Have the driver begin with what it was given: it does so without."""
        self._session.check()

    @property
    def in_flight(self) -> int:
        """How many calls have handed over what may not have happened yet."""
        self._session.sweep()
        return len(self._session.pending)

    # ---- parts of it ---------------------------------------------------------------------------

    def _begun(self, encoder: Any, record: Record | None = None, keep: Any = None) -> Event:
        """Hand commands over, and note the work; under the lock."""
        session = self._session
        work = Work(session, session.submit(encoder), record, keep)
        session.pending.append(work)
        return WebGPUEvent(self.device, work)

    def _nothing(self) -> Event:
        """Return the event of all that was handed over so far."""
        with self._lock:
            self._session.check()
            return self._begun(self._session.device.create_command_encoder())

    def _waits(self, wait: Iterable[Event]) -> None:
        """Consume events: those of this device are in order already, others are waited for."""
        events = list(wait)
        for event in events:
            event.consume(self.device)
        while events:
            event = events.pop()
            if isinstance(event, AllOf):
                events += event.parts
            elif not (isinstance(event, WebGPUEvent) and event.work.session is self._session):
                event.wait()

    def _driving(self, what: str, error: type[Any] = CopyError) -> _Driving:
        return _Driving(self._session, what, error)


class _Driving:
    """Makes what the driver throws an error of Weft."""

    __slots__ = ("_error", "_session", "_what")

    def __init__(self, session: Session, what: str, error: type[Any]) -> None:
        self._session, self._what, self._error = session, what, error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: object) -> None:  # fmt: skip
        if isinstance(error, self._session.errors) and not isinstance(error, WeftError):
            raise translated(self._session.name, self._what, error, self._error) from error
