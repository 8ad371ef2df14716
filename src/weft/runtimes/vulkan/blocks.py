"""Memory of a Vulkan device as blocks of a pool.

Where the device's memory is that of the host as well, copies are made by the host; else by the
device, through a stage.
"""

from __future__ import annotations

from typing import Final

from weft.locks import mutex
from weft.runtimes.launches.memory import DriverBlocks
from weft.runtimes.vulkan.binding import VulkanError
from weft.runtimes.vulkan.memory import OWN, STAGE, WINDOW, Block, Memory
from weft.runtimes.vulkan.queue import VulkanQueue
from weft.runtimes.vulkan.session import Session

__all__ = ["Blocks"]

_PIECE: Final = 8 << 20  # bytes that a stage takes at a time


class Blocks(DriverBlocks):
    """Raw memory; handles are `Block` objects.

    Parameters
    ----------
    session : Session
        The device.
    memory : Memory
        Its memory.
    queue : VulkanQueue
        Its queue, which copies where the host cannot.
    staged : bool
        Whether the device copies even where the host could.
    """

    def __init__(self, session: Session, memory: Memory, queue: VulkanQueue,
                 staged: bool = False) -> None:  # fmt: skip
        super().__init__(session, queue, memory.largest)
        self._session, self._memory, self._queue = session, memory, queue
        self.is_direct = not staged and memory.kind(WINDOW) is not None
        self._kinds = WINDOW if self.is_direct else OWN
        self._lock = mutex()  # of the stages
        self._stages: list[Block] = []
        if self.is_direct:
            self.host_view = self._host_view  # which a pool asks for

    def made(self, nbytes: int) -> Block | None:
        """Return a new block, or None if the device has no memory left."""
        try:
            return self._memory.take(nbytes, self._kinds)
        except VulkanError as error:
            if self._session.is_short(error):
                return None
            raise

    def free(self, handle: Block) -> None:
        """Free a block, once what uses it is over."""
        self._session.until(handle.last)
        self._memory.give_back(handle)

    def write(self, handle: Block, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        session = self._session
        session.check()
        count = source.nbytes
        if not count:
            return
        source = source.cast("B") if source.format != "B" else source
        with session.driving("copy"):
            if self.is_direct:
                session.until(handle.last)
                handle.view[offset : offset + count] = source
                handle.written(offset, count)
                return
            with self._lock:
                for number, begin in enumerate(range(0, count, _PIECE)):
                    stage, size = self._stage(number), min(_PIECE, count - begin)
                    stage.view[:size] = source[begin : begin + size]
                    stage.written(0, size)
                    self._queue.move(handle, offset + begin, stage, 0, size)
            session.until(handle.last)

    def read(self, handle: Block, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        session = self._session
        session.check()
        count = target.nbytes
        if not count:
            return
        target = target.cast("B") if target.format != "B" else target
        with session.driving("copy"):
            if self.is_direct:
                target[:] = self._host_view(handle, offset, count)
                return
            with self._lock:
                moved: list[tuple[Block, int, int]] = []
                for number, begin in enumerate(range(0, count, _PIECE)):
                    stage, size = self._stage(number), min(_PIECE, count - begin)
                    self._queue.move(stage, 0, handle, offset + begin, size)
                    self._fetch(moved, target)
                    moved = [(stage, begin, size)]
                self._fetch(moved, target)

    def _fetch(self, moved: list[tuple[Block, int, int]], target: memoryview) -> None:
        """Take what was copied to a stage."""
        for stage, begin, size in moved:
            self._session.until(stage.last)
            stage.read(0, size)
            target[begin : begin + size] = stage.view[:size]

    def _host_view(self, handle: Block, offset: int, nbytes: int) -> memoryview:
        """Return bytes of a block, which the host can read once what has written them is over."""
        self._session.until(handle.last)
        handle.read(offset, nbytes)
        return handle.view[offset : offset + nbytes]

    def _stage(self, number: int) -> Block:
        """Return one of two stages, once it is no longer in use."""
        while len(self._stages) < 2:
            self._stages.append(self._memory.take(_PIECE, STAGE))
        stage = self._stages[number % 2]
        self._session.until(stage.last)
        return stage
