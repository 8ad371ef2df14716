"""Memory of an OpenCL device as blocks of a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import AllocationError, CopyError, DeallocationError
from weft.runtimes.memory import host_memory
from weft.runtimes.opencl.driver import translated

if TYPE_CHECKING:
    from weft.runtimes.opencl.queue import OpenCLQueue
    from weft.runtimes.opencl.session import Session

__all__ = ["Blocks", "limit_of"]


def limit_of(session: Session) -> int:
    """Return the bytes that a pool may hold: a CPU's memory is that of the process."""
    memory = int(str(session.facts["memory"]))
    return min(memory, host_memory.usable_memory()) if session.facts["is_cpu"] else memory


class Blocks:
    """Raw memory, see `weft.runtimes.memory.device_pool.Driver`; handles are buffers of pyopencl.

    Copies go by the queue of the device, so they are ordered with all that was handed to it.
    """

    def __init__(self, session: Session, queue: OpenCLQueue) -> None:
        self._session, self._queue, self.order = session, queue, queue.order
        self._largest = int(str(session.facts["max_alloc"]))

    def take(self, nbytes: int) -> Any:
        """Return a new block, or None if the device has no memory left.

        Raises
        ------
        AllocationError
            If the driver makes no block of this size.
        """
        self._session.check()
        if nbytes > self._largest:
            raise AllocationError("allocate", found=f"{nbytes:,} bytes",
                                  expected=f"at most {self._largest:,} in one block of "
                                  f"{self._session.name}", hint="use smaller arrays or batches")
        try:
            block = self._session.buffer(nbytes)
        except self._session.cl.MemoryError:
            return None
        self._session.blocks[id(block)] = block
        return block

    def give_back(self, handle: Any, nbytes: int) -> None:
        """Free a block; the driver does so once no command uses it.

        Raises
        ------
        DeallocationError
            If the driver refuses.
        """
        self._session.check()
        try:
            handle.release()
            self._session.blocks.pop(id(handle), None)
        except self._session.errors as error:
            raise translated(self._session.name, "free", error, DeallocationError) from error

    def clear(self, handle: Any, nbytes: int) -> None:
        """Have the first bytes of a block set to zero before what is handed over later."""
        self._queue.set_bytes(handle, 0, nbytes, 0)

    def write(self, handle: Any, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        if source.nbytes:
            self._copied(self._session.core._enqueue_write_buffer, handle, source, offset)

    def read(self, handle: Any, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        if target.nbytes:
            self._copied(self._session.core._enqueue_read_buffer, handle, target, offset)

    def _copied(self, enqueue: Any, handle: Any, host: memoryview, offset: int) -> None:
        try:
            work = self._queue.submit(lambda queue: enqueue(queue, handle, host, offset, None,
                                                            False))  # fmt: skip
        except self._session.errors as error:
            raise translated(self._session.name, "copy", error, CopyError) from error
        work.wait()
        self._session.sweep()  # which would keep the host's memory
