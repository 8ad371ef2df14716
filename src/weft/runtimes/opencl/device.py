"""A device of an OpenCL driver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weft.runtimes import load
from weft.runtimes.base import Loadable
from weft.runtimes.memory.device_pool import DevicePool
from weft.runtimes.opencl.memory import Blocks, limit_of
from weft.runtimes.opencl.program import OpenCLProgram, Programs
from weft.runtimes.opencl.queue import OpenCLQueue
from weft.runtimes.opencl.session import Session

__all__ = ["OpenCLDevice"]


class OpenCLDevice:
    """The device.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        Which of `weft.runtimes.opencl.driver.devices`.

    Attributes
    ----------
    pool : DevicePool
        Its memory.
    queue : OpenCLQueue
        Its work, in order.

    Raises
    ------
    LibraryNotFoundError
        If pyopencl is not there.
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name = name
        self._session = Session(name, called)
        self._programs = Programs(self._session)
        self.queue = OpenCLQueue(self._session)
        self.pool = DevicePool(name, Blocks(self._session, self.queue), limit_of(self._session))
        self._session.owners += [self._programs, self.queue, self.pool]

    @property
    def info(self) -> Mapping[str, object]:
        """What the driver says of it; see `weft.runtimes.opencl.driver.describe`."""
        return MappingProxyType({**self._session.facts, "memory": self.pool.limit})

    @property
    def thread_count(self) -> int:
        """Compute units: so many work-groups run at a time."""
        return int(str(self._session.facts["units"]))

    def free_compute(self) -> float:
        """Return the share of its compute that one more launch would get, from 0 to 1."""
        share = 1.0 / (1 + self.queue.in_flight)
        if not self._session.facts["is_cpu"]:
            return share
        return min(load.idle_share(self.thread_count), share)

    def load(self, code: Loadable) -> OpenCLProgram:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the driver refuses its source; the message has what its compiler says.
        """
        return self._programs.load(code)
