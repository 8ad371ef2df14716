"""A device of WebGPU that this process has opened: queue, status records."""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from weft.errors import InitializationError
from weft.locks import mutex
from weft.runtimes.launches.session import DriverSession
from weft.runtimes.webgpu.driver import POOR, adapter_of, describe, limits, tried, wgpu

__all__ = ["Block", "Session"]

_WORD: Final = 4
_FMA: Final = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(1) fn tried() {
  x[3] = fma(x[0], x[1], x[2]);
}
"""
_serials: Final = itertools.count()


class Block:
    """Memory of the device; `serial` is no other block's."""

    __slots__ = ("buffer", "serial", "size")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer, self.size, self.serial = buffer, size, next(_serials)


class Session(DriverSession):
    """One device, opened by this process.

    Attributes
    ----------
    wgpu : module
        The binding.
    device, queue
        Of wgpu.
    records : deque of Record
        Status records that no launch uses.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.wgpu = module = wgpu()
        super().__init__(name, (module.GPUError, RuntimeError, ValueError, TypeError))
        adapter = adapter_of(called)
        self.facts = describe(called, adapter)
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
        self._polling = mutex()
        self._fuses: bool | None = None
        self.records: deque[Any] = deque()  # status records that no launch uses
        self.submitted = self.finished = 0
        self.opened()

    def is_short(self, error: Exception) -> bool:
        """Return whether the driver says that memory is short."""
        return type(error).__name__ == "GPUOutOfMemoryError"

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
        given = struct.pack("<3f4x", 1 + 2**-23, 1 + 2**-23, -1 - 2**-22)
        found: float = struct.unpack_from("<f", tried(self.device, _FMA, "tried", given), 12)[0]
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

    def undestroyed(self) -> Iterable[Any]:
        """Return objects whose destructors would wait for threads that a child does not have."""
        return self.queue, self.device
