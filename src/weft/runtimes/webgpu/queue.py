"""The queue of a WebGPU device: copies, fills and launches in the order of their calls.

The language of the standard moves whole words. Where a copy or a fill begins or ends within one, it
goes by way of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.locks import mutex
from weft.runtimes.base import Event, View
from weft.runtimes.launches.printing import Lines
from weft.runtimes.launches.queue import LaunchQueue, pieces
from weft.runtimes.webgpu.arguments import Bound, bound_by
from weft.runtimes.webgpu.bindings import uniforms
from weft.runtimes.webgpu.events import Record, WebGPUWork
from weft.runtimes.webgpu.program import MOST_SCRATCH, WebGPUProgram
from weft.runtimes.webgpu.session import Block, Session

__all__ = ["WebGPUQueue"]

_WORD: Final = 4
_STAGE: Final = 64 << 20  # bytes that a copy within a buffer moves at a time
_UNIFORM: Final = 4096  # bytes of the uniform buffer to begin with


class WebGPUQueue(LaunchQueue):
    """Work of a device, in order; calls return before it is done.

    Nothing waits on the host but for events of other devices, and copies of parts of words.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session, mutex())
        self._session = session
        self._uniform: Any = None
        self._uniform_size = 0
        self._uploaded = 0  # bytes since the last wait

    # ---- copies --------------------------------------------------------------------------------

    def moved(self, to: View, of: View, count: int) -> Event:
        """Copy bytes between blocks, or within one."""
        target, origin = to.buffer.handle, of.buffer.handle
        with self._session.driving("copy"):
            if not count:
                return self.last()
            whole = -(-count // _WORD) * _WORD
            if to.offset % _WORD or of.offset % _WORD or (
                count % _WORD and to.offset + count != to.buffer.nbytes
            ) or of.offset + whole > origin.size:
                self.write(target, to.offset, self.read(origin, of.offset, count))
                return self.last()
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
                staged, parts = pieces(to, of, count)
                stage = session.block(staged)
                for start, size in parts:
                    encoder.copy_buffer_to_buffer(origin.buffer, of + start, stage.buffer, 0, size)
                    encoder.copy_buffer_to_buffer(stage.buffer, 0, target.buffer, to + start, size)
            return self._handed(encoder, keep=stage)

    def set_bytes(self, handle: Block, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
        session = self._session
        with self._session.driving("fill"):
            if not nbytes:
                return self.last()
            end = offset + nbytes
            if byte == 0 and offset % _WORD == 0 and end % _WORD == 0:
                with self._lock:
                    session.check()
                    encoder = session.device.create_command_encoder()
                    encoder.clear_buffer(handle.buffer, offset, nbytes)
                    return self._handed(encoder)
            pattern = bytes((byte,)) * min(nbytes, _STAGE)
            for start in range(0, nbytes, _STAGE):
                self.write(handle, offset + start, pattern[: nbytes - start])
            return self.last()

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
                self.last().wait()

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
            work = WebGPUWork(session, session.submit(encoder))
        work.wait()
        found = session.mapped(stage, end - begin)
        stage.destroy()
        return found[offset - begin : offset - begin + nbytes]

    # ---- launches ------------------------------------------------------------------------------

    def arguments(self, program: WebGPUProgram, views: Sequence[View], variables: Sequence[int]
                  ) -> tuple[Bound, bytes]:  # fmt: skip
        """Return the bindings of a launch, and the bytes of its uniform buffer.

        Raises
        ------
        struct.error
            If a variable is no integer of 64 bits.
        """
        bound = bound_by(program, views)
        return bound, uniforms(bound.places, variables)

    def launched(self, program: WebGPUProgram, given: tuple[Bound, bytes]) -> Event:
        """Hand a launch over, under the lock."""
        session, header = self._session, program.wgsl
        bound, data = given
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
            scratch = self._room(program.scratch, MOST_SCRATCH)
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
        return self._handed(encoder, record, program.header.lines, copies)

    def _record(self, program: WebGPUProgram) -> Record:
        session = self._session
        if program.header.lines:
            return Record(session, program.header.room)
        try:
            held: Record = session.records.pop()
            return held
        except IndexError:
            return Record(session)

    # ---- parts of it ---------------------------------------------------------------------------

    def scratch(self, nbytes: int) -> Block:
        """Return new memory for launches to share."""
        return self._session.block(nbytes)

    def last(self) -> Event:
        """Return an event that has happened once all is over that was handed over so far."""
        with self._lock:
            self._session.check()
            return self._handed(self._session.device.create_command_encoder())

    def _handed(self, encoder: Any, record: Record | None = None, lines: Lines = (),
                keep: Any = None) -> Event:  # fmt: skip
        """Hand commands over, and note the work; under the lock."""
        session = self._session
        return self._begun(WebGPUWork(session, session.submit(encoder), record, lines, keep))
