"""Memory of a WebGPU device as blocks of a pool: a whole number of words each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.errors import AllocationError, CopyError, DeallocationError
from weft.runtimes.memory import host_memory
from weft.runtimes.webgpu.driver import translated
from weft.runtimes.webgpu.session import Block

if TYPE_CHECKING:
    from weft.runtimes.webgpu.queue import WebGPUQueue
    from weft.runtimes.webgpu.session import Session

__all__ = ["Blocks", "limit_of"]

_ASSUMED: Final = 4 << 30  # bytes of a GPU: WebGPU does not tell
_CHUNK: Final = 64 << 20  # bytes that are copied at a time between host and device


def limit_of(session: Session) -> int:
    """Return the bytes that a pool may hold: a CPU's memory is that of the process."""
    return host_memory.usable_memory() if session.facts["is_cpu"] else _ASSUMED


class Blocks:
    """Raw memory, see `weft.runtimes.memory.device_pool.Driver`; handles are `Block`."""

    def __init__(self, session: Session, queue: WebGPUQueue) -> None:
        self._session, self._queue = session, queue
        self._largest = int(session.facts["max_buffer"])

    def take(self, nbytes: int) -> Block | None:
        """Return a new block, or None if the device has no memory left.

        Raises
        ------
        AllocationError
            If the device makes no block of this size.
        """
        self._session.check()
        if nbytes > self._largest:
            raise AllocationError("allocate", found=f"{nbytes:,} bytes",
                                  expected=f"at most {self._largest:,} in one block of "
                                  f"{self._session.name}", hint="use smaller arrays or batches")
        try:
            made = self._session.block(nbytes)
        except self._session.errors as error:
            if type(error).__name__ == "GPUOutOfMemoryError":
                return None
            raise translated(self._session.name, "allocate", error, AllocationError) from error
        self._session.blocks[made.serial] = made
        return made

    def give_back(self, handle: Block, nbytes: int) -> None:
        """Free a block; the driver does so once no command uses it.

        Raises
        ------
        DeallocationError
            If the driver refuses.
        """
        self._session.check()
        try:
            handle.buffer.destroy()
            self._session.blocks.pop(handle.serial, None)
        except self._session.errors as error:
            raise translated(self._session.name, "free", error, DeallocationError) from error

    def clear(self, handle: Block, nbytes: int) -> None:
        """Have the first bytes of a block set to zero before what is handed over later."""
        self._queue.set_bytes(handle, 0, nbytes, 0)

    def write(self, handle: Block, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        self._session.check()
        try:
            for start in range(0, source.nbytes, _CHUNK):
                self._queue.write(handle, offset + start, source[start : start + _CHUNK])
        except self._session.errors as error:
            raise translated(self._session.name, "copy", error, CopyError) from error

    def read(self, handle: Block, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        self._session.check()
        try:
            for start in range(0, target.nbytes, _CHUNK):
                end = min(start + _CHUNK, target.nbytes)
                target[start:end] = self._queue.read(handle, offset + start, end - start)
        except self._session.errors as error:
            raise translated(self._session.name, "copy", error, CopyError) from error
