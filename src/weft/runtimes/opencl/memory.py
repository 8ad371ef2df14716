"""Memory of an OpenCL device as blocks of a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.runtimes.launches.memory import DriverBlocks

if TYPE_CHECKING:
    from weft.runtimes.opencl.queue import OpenCLQueue
    from weft.runtimes.opencl.session import Session

__all__ = ["Blocks"]


class Blocks(DriverBlocks):
    """Raw memory; handles are buffers of pyopencl.

    Copies go by the queue of the device, so they are ordered with all that was handed to it.
    """

    def __init__(self, session: Session, queue: OpenCLQueue) -> None:
        super().__init__(session, queue, int(session.facts["max_alloc"]))
        self._session, self._queue, self.order = session, queue, queue.order

    def made(self, nbytes: int) -> Any:
        """Return a new block, or None if the device has no memory left."""
        try:
            return self._session.buffer(nbytes)
        except self._session.cl.MemoryError:
            return None

    def free(self, handle: Any) -> None:
        """Free a block; the driver does so once no command uses it."""
        handle.release()

    def write(self, handle: Any, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        if source.nbytes:
            self._copied(self._session.core._enqueue_write_buffer, handle, source, offset)

    def read(self, handle: Any, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        if target.nbytes:
            self._copied(self._session.core._enqueue_read_buffer, handle, target, offset)

    def _copied(self, enqueue: Any, handle: Any, host: memoryview, offset: int) -> None:
        with self._session.driving("copy"):
            event = self._queue.submit(enqueue, handle, host, offset, None, False)
        event.wait()
        self._session.sweep()  # which would keep the host's memory
