"""A device of a Vulkan driver."""

from __future__ import annotations

from weft.errors import InitializationError
from weft.locks import mutex
from weft.runtimes.launches.device import DriverDevice, Parts
from weft.runtimes.vulkan.blocks import Blocks
from weft.runtimes.vulkan.memory import Memory
from weft.runtimes.vulkan.program import Programs
from weft.runtimes.vulkan.queue import VulkanQueue
from weft.runtimes.vulkan.session import Session

__all__ = ["VulkanDevice"]


class VulkanDevice(DriverDevice):
    """The device. One that was lost is opened again when it is used next; its memory is gone.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        Which of `weft.runtimes.vulkan.driver.devices`.
    staged : bool
        Whether the device makes copies of the host's memory even where the host could.
    """

    def __init__(self, name: str, called: str, staged: bool = False) -> None:
        self._staged, self._lock = staged, mutex()
        super().__init__(name, called)

    def _opened(self) -> Parts:
        session = Session(self.name, self._called)
        with session.driving(self.name, InitializationError):
            memory, programs = Memory(session), Programs(session)
            queue = VulkanQueue(session, memory, programs)
            return Parts.of(session, programs, queue, Blocks(session, memory, queue, self._staged))

    def _now(self) -> Parts:
        """Return the parts of the device as it is now, opened again if it was lost."""
        if self._parts.session.lost:
            with self._lock:
                if self._parts.session.lost:
                    self._parts = self._opened()
        return self._parts
