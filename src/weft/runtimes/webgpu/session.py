"""A device of WebGPU that this process has opened: queue, status records, waiting; and forks."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import InitializationError, SyncError
from weft.locks import in_child, mutex
from weft.runtimes.webgpu.driver import POOR, adapter_of, describe, limits, translated, wgpu

__all__ = ["Block", "Session"]

_TURNS: Final = 100_000  # ns that a wait polls without a pause
_SHARE: Final = 32  # later it pauses for this part of the time that it has waited
_LONGEST: Final = 0.002  # seconds of a pause, after which Ctrl-C is seen
_WORD: Final = 4
_FMA: Final = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(1) fn tried() {
  x[3] = fma(x[0], x[1], x[2]);
}
"""
_opened: Final[list[Session]] = []
_yield: Final = getattr(os, "sched_yield", lambda: time.sleep(0))
_serials: Final = itertools.count()


class Block:
    """Memory of the device; `serial` is no other block's."""

    __slots__ = ("buffer", "serial", "size")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer, self.size, self.serial = buffer, size, next(_serials)


class Session:
    """One device, opened by this process.

    Attributes
    ----------
    name : str
        The device.
    wgpu : module
        The binding.
    device, queue
        Of wgpu.
    facts : Mapping
        What is known of the device, see `weft.runtimes.webgpu.driver.describe`.
    texts : deque of (str, str)
        What launches have printed, and complaints about it, until a wait shows them.
    blocks : dict of int to Block
        Blocks of the pool, by number: what a collection finds with a buffer that goes back to the
        pool must not be finalized.
    records : deque of Record
        Status records that no launch uses.
    pending : deque
        Work that may not have happened yet, oldest first.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name = name
        self.wgpu = module = wgpu()
        self.errors: tuple[type[Exception], ...] = (module.GPUError, RuntimeError, ValueError,
                                                    TypeError)  # fmt: skip
        self._lost = False
        adapter = adapter_of(called)
        self.facts: Mapping[str, Any] = describe(called, adapter)
        try:
            self.device = adapter.request_device_sync(
                label="weft", required_limits=limits(adapter, called == POOR))
        except Exception as error:
            raise InitializationError(name, found=error, expected="a driver that opens it"
                                      ) from error  # fmt: skip
        self.queue = self.device.queue
        from wgpu.backends.wgpu_native import ffi, lib

        self._lib, self._null = lib, ffi.NULL
        usage = module.BufferUsage
        self._usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._staged = usage.MAP_READ | usage.COPY_DST
        self._uniform = usage.UNIFORM | usage.COPY_DST
        self.settling = mutex()
        self._polling = mutex()
        self.texts: deque[tuple[str, str]] = deque()
        self.pending: deque[Any] = deque()
        self.blocks: dict[int, Block] = {}
        self._fuses: bool | None = None
        self.records: deque[Any] = deque()  # status records that no launch uses
        self.submitted = self.finished = 0
        _opened.append(self)

    def check(self) -> None:
        """Refuse work in a forked child, which has none of the driver's threads.

        Raises
        ------
        SyncError
            In a forked child.
        """
        if self._lost:
            raise SyncError(self.name, found="a process that was forked after the device was used",
                            expected="the process that opened it",
                            hint="start processes with the method spawn, or fork before the first "
                            "use of the device")

    # memory

    def block(self, nbytes: int) -> Block:
        """Return new memory of the device, a whole number of words and one at least."""
        size = max(-(-nbytes // _WORD) * _WORD, _WORD)
        return Block(self.device.create_buffer(size=size, usage=self._usage), size)

    def stage(self, nbytes: int) -> Any:
        """Return memory that the host reads."""
        return self.device.create_buffer(size=nbytes, usage=self._staged)

    def uniform(self, nbytes: int) -> Any:
        """Return memory for the uniform buffer."""
        return self.device.create_buffer(size=nbytes, usage=self._uniform)

    def mapped(self, stage: Any, nbytes: int) -> bytes:
        """Return what is in memory that the host reads, once that has been written."""
        stage.map_async("READ_NOSYNC", 0, nbytes).sync_wait()
        try:
            return bytes(stage.read_mapped(0, nbytes))
        finally:
            stage.unmap()

    @property
    def fused(self) -> bool:
        """Whether multiply-adds of the device round once; it is tried."""
        if self._fuses is None:
            self._fuses = self._tried()
        return self._fuses

    def _tried(self) -> bool:
        """Return whether ``x * x - 1 - 2**-22`` with x = 1 + 2**-23 is 2**-46."""
        device, stage = self.device, self.wgpu.ShaderStage.COMPUTE
        block, staged = self.block(16), self.stage(16)
        layout = device.create_bind_group_layout(entries=[
            {"binding": 0, "visibility": stage, "buffer": {"type": "storage"}}])
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": device.create_shader_module(code=_FMA), "entry_point": "tried"})
        group = device.create_bind_group(layout=layout, entries=[
            {"binding": 0, "resource": {"buffer": block.buffer, "offset": 0, "size": 16}}])
        self.queue.write_buffer(block.buffer, 0, struct.pack(
            "<3f4x", 1 + 2**-23, 1 + 2**-23, -1 - 2**-22))
        encoder = device.create_command_encoder()
        run = encoder.begin_compute_pass()
        run.set_bind_group(0, group)
        run.set_pipeline(pipeline)
        run.dispatch_workgroups(1)
        run.end()
        encoder.copy_buffer_to_buffer(block.buffer, 0, staged, 0, 16)
        self.wait(self.submit(encoder))
        found: float = struct.unpack_from("<f", self.mapped(staged, 16), 12)[0]
        return found == 2.0**-46

    # work

    def submit(self, encoder: Any) -> int:
        """Hand over commands; return their number, by which they are waited for."""
        self.queue.submit([encoder.finish()])
        self.submitted += 1
        return self.submitted

    def is_over(self, number: int) -> bool:
        """Return whether commands have happened; never waits."""
        if number <= self.finished:
            return True
        with self._polling:
            before = self.submitted
            if self._lib.wgpuDevicePoll(self.device._internal, False, self._null):
                self.finished = max(self.finished, before)
        return number <= self.finished

    def wait(self, number: int) -> None:
        """Block until commands have happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver fails, or in a forked child.
        """
        self.check()
        begun = time.monotonic_ns()
        try:
            while not self.is_over(number):
                waited = time.monotonic_ns() - begun
                if waited >= _TURNS:
                    time.sleep(min(waited / (_SHARE * 1e9), _LONGEST))
                else:
                    _yield()
        except self.errors as error:
            raise translated(self.name, f"wait for {self.name}", error, SyncError) from error

    def sweep(self) -> None:
        """Forget what is over by now."""
        pending = self.pending
        while pending:
            try:
                work = pending[0]
                if not work.is_over():
                    return
                pending.remove(work)
            except (IndexError, ValueError):  # another thread has removed it
                continue

    def lose(self) -> None:
        """Make the device unusable in a forked child, and keep its objects from being destroyed."""
        self._lost = True
        keep = ctypes.pythonapi.Py_IncRef
        for kept in (self, self.queue, self.device):
            keep(ctypes.py_object(kept))


def _forget() -> None:
    for session in _opened:
        session.lose()


in_child(_forget)
