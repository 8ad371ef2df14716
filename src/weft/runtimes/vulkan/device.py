"""A device of a Vulkan driver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from weft.errors import InitializationError
from weft.locks import mutex
from weft.runtimes import load
from weft.runtimes.base import Loadable
from weft.runtimes.memory.device_pool import DevicePool
from weft.runtimes.vulkan.memory import Blocks, Memory, limit_of
from weft.runtimes.vulkan.program import Programs, VulkanProgram
from weft.runtimes.vulkan.queue import VulkanQueue
from weft.runtimes.vulkan.session import Session

__all__ = ["VulkanDevice"]


class _Parts(NamedTuple):
    """What belongs to one session."""

    session: Session
    programs: Programs
    queue: VulkanQueue
    pool: DevicePool


class VulkanDevice:
    """The device. One that was lost is opened again when it is used next; its memory is gone.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        Which of `weft.runtimes.vulkan.driver.devices`.
    staged : bool
        Whether the device makes copies of the host's memory even where the host could.

    Raises
    ------
    LibraryNotFoundError
        If the package vulkan is not there.
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str, staged: bool = False) -> None:
        self.name = name
        self._called, self._staged = called, staged
        self._lock = mutex()
        self._parts = self._opened()

    def _opened(self) -> _Parts:
        session = Session(self.name, self._called)
        with session.driving(self.name, InitializationError):
            memory, programs = Memory(session), Programs(session)
            queue = VulkanQueue(session, memory, programs)
            blocks = Blocks(session, memory, queue, self._staged)
            pool = DevicePool(self.name, blocks, limit_of(session))
        return _Parts(session, programs, queue, pool)

    def _now(self) -> _Parts:
        """Return the parts of the device as it is now, opened again if it was lost."""
        if self._parts.session.lost:
            with self._lock:
                if self._parts.session.lost:
                    self._parts = self._opened()
        return self._parts

    @property
    def pool(self) -> DevicePool:
        """Its memory."""
        return self._now().pool

    @property
    def queue(self) -> VulkanQueue:
        """Its work, in order."""
        return self._now().queue

    @property
    def info(self) -> Mapping[str, object]:
        """What the driver says of it; see `weft.runtimes.vulkan.driver.describe`."""
        parts = self._parts
        return MappingProxyType({**parts.session.facts, "memory": parts.pool.limit})

    @property
    def thread_count(self) -> int:
        """Compute units: so many work-groups run at a time."""
        return int(self._parts.session.facts["units"])

    def free_compute(self) -> float:
        """Return the share of its compute that one more launch would get, from 0 to 1."""
        parts = self._now()
        share = 1.0 / (1 + parts.queue.in_flight)
        if not parts.session.facts["is_cpu"]:
            return share
        return min(load.idle_share(self.thread_count), share)

    def load(self, code: Loadable) -> VulkanProgram:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the driver does not take it.
        LaunchError
            If its groups are too large for the device.
        """
        return self._now().programs.load(code)
