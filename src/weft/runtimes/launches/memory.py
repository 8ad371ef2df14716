"""Memory of a driver's device as blocks of a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weft.errors import AllocationError, DeallocationError
from weft.runtimes.launches.queue import LaunchQueue
from weft.runtimes.launches.session import DriverSession

__all__ = ["DriverBlocks"]


class DriverBlocks(ABC):
    """Raw memory, see `weft.runtimes.memory.device_pool.Driver`.

    Parameters
    ----------
    session : DriverSession
        The device. It holds the blocks: what a collection finds with a buffer that goes back to the
        pool must not be finalized.
    queue : LaunchQueue
        Its queue, in whose order blocks are set and copied.
    largest : int
        Bytes of a block at most.
    """

    def __init__(self, session: DriverSession, queue: LaunchQueue, largest: int) -> None:
        self._home, self._order, self._largest = session, queue, largest

    def take(self, nbytes: int) -> Any:
        """Return a new block, or None if the device has no memory left.

        Raises
        ------
        AllocationError
            If the driver makes no block of this size.
        """
        session = self._home
        session.check()
        if nbytes > self._largest:
            raise AllocationError("allocate", found=f"{nbytes:,} bytes",
                                  expected=f"at most {self._largest:,} in one block of "
                                  f"{session.name}", hint="use smaller arrays or batches")
        with session.driving("allocate", AllocationError):
            block = self.made(nbytes)
        if block is not None:
            session.blocks[id(block)] = block
        return block

    def give_back(self, handle: Any, nbytes: int) -> None:
        """Free a block, once no command uses it.

        Raises
        ------
        DeallocationError
            If the driver refuses.
        """
        session = self._home
        session.check()
        with session.driving("free", DeallocationError):
            self.free(handle)
        session.blocks.pop(id(handle), None)

    def clear(self, handle: Any, nbytes: int) -> None:
        """Have the first bytes of a block set to zero before what is handed over later."""
        self._order.set_bytes(handle, 0, nbytes, 0)

    @abstractmethod
    def made(self, nbytes: int) -> Any:
        """Return a new block, or None if the device has no memory left."""
        ...

    @abstractmethod
    def free(self, handle: Any) -> None:
        """Free a block."""
        ...

    @abstractmethod
    def write(self, handle: Any, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        ...

    @abstractmethod
    def read(self, handle: Any, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        ...
