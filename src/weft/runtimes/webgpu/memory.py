"""Memory of a WebGPU device as blocks of a pool: a whole number of words each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.runtimes.launches.memory import DriverBlocks
from weft.runtimes.webgpu.session import Block

if TYPE_CHECKING:
    from weft.runtimes.webgpu.queue import WebGPUQueue
    from weft.runtimes.webgpu.session import Session

__all__ = ["Blocks"]

_CHUNK: Final = 64 << 20  # bytes that are copied at a time between host and device


class Blocks(DriverBlocks):
    """Raw memory; handles are `Block`."""

    def __init__(self, session: Session, queue: WebGPUQueue) -> None:
        super().__init__(session, queue, int(session.facts["max_buffer"]))
        self._session, self._queue = session, queue

    def made(self, nbytes: int) -> Block | None:
        """Return a new block, or None if the device has no memory left."""
        try:
            return self._session.block(nbytes)
        except self._session.errors as error:
            if self._session.is_short(error):
                return None
            raise

    def free(self, handle: Block) -> None:
        """Free a block; the driver does so once no command uses it."""
        handle.buffer.destroy()

    def write(self, handle: Block, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        self._session.check()
        with self._session.driving("copy"):
            for start in range(0, source.nbytes, _CHUNK):
                self._queue.write(handle, offset + start, source[start : start + _CHUNK])

    def read(self, handle: Block, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        self._session.check()
        with self._session.driving("copy"):
            for start in range(0, target.nbytes, _CHUNK):
                end = min(start + _CHUNK, target.nbytes)
                target[start:end] = self._queue.read(handle, offset + start, end - start)
