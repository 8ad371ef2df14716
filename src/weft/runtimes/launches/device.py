"""A device of a driver: its memory, its queue and its programs, and how much of it is free."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from weft.runtimes import load
from weft.runtimes.base import Loadable
from weft.runtimes.launches.memory import DriverBlocks
from weft.runtimes.launches.programs import DriverPrograms
from weft.runtimes.launches.queue import LaunchQueue
from weft.runtimes.launches.session import DriverSession
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DevicePool

__all__ = ["DriverDevice", "Parts"]

_ASSUMED: Final = 4 << 30  # bytes of a GPU whose driver does not tell


class Parts(NamedTuple):
    """What belongs to one session."""

    session: Any
    programs: DriverPrograms
    queue: LaunchQueue
    pool: DevicePool

    @classmethod
    def of(cls, session: DriverSession, programs: DriverPrograms, queue: LaunchQueue,
           blocks: DriverBlocks) -> Parts:  # fmt: skip
        """Return the parts, with a pool for the blocks: a CPU's memory is that of the process."""
        memory, limit = int(session.facts["memory"]), host_memory.usable_memory()
        if not session.facts["is_cpu"]:
            limit = memory or _ASSUMED
        elif memory:
            limit = min(memory, limit)
        return cls(session, programs, queue, DevicePool(session.name, blocks, limit))


class DriverDevice(ABC):
    """The device.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        What its driver's probe calls it.

    Raises
    ------
    LibraryNotFoundError
        If the package of the driver's binding is not there.
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name, self._called = name, called
        self._parts = self._opened()

    @abstractmethod
    def _opened(self) -> Parts:
        """Open the device."""
        ...

    def _now(self) -> Parts:
        """Return the parts of the device as it is now."""
        return self._parts

    @property
    def pool(self) -> DevicePool:
        """Its memory."""
        return self._now().pool

    @property
    def queue(self) -> LaunchQueue:
        """Its work, in order."""
        return self._now().queue

    @property
    def info(self) -> Mapping[str, object]:
        """What its driver says of it, and its memory in bytes."""
        parts = self._parts
        return MappingProxyType({**parts.session.facts, "memory": parts.pool.limit})

    @property
    def thread_count(self) -> int:
        """How many work-groups run at a time, as far as the driver tells."""
        return int(self._parts.session.facts["units"])

    def free_compute(self) -> float:
        """Return the share of its compute that one more launch would get, from 0 to 1."""
        parts = self._now()
        share = 1.0 / (1 + parts.queue.in_flight)
        if not parts.session.facts["is_cpu"]:
            return share
        return min(load.idle_share(self.thread_count), share)

    def load(self, code: Loadable) -> Any:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the driver does not take it; the message has what its compiler says.
        LaunchError
            If its groups are too large for the device.
        """
        return self._now().programs.load(code)
