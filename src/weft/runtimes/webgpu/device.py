"""A device of WebGPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weft.runtimes import load
from weft.runtimes.base import Loadable
from weft.runtimes.memory.device_pool import DevicePool
from weft.runtimes.webgpu.memory import Blocks, limit_of
from weft.runtimes.webgpu.program import Programs, WebGPUProgram
from weft.runtimes.webgpu.queue import WebGPUQueue
from weft.runtimes.webgpu.session import Session

__all__ = ["WebGPUDevice"]


class WebGPUDevice:
    """The device.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        Which of `weft.runtimes.webgpu.driver.adapters`.

    Attributes
    ----------
    pool : DevicePool
        Its memory.
    queue : WebGPUQueue
        Its work, in order.

    Raises
    ------
    LibraryNotFoundError
        If wgpu is not there.
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name = name
        self._session = Session(name, called)
        self._programs = Programs(self._session)
        self.queue = WebGPUQueue(self._session)
        self.pool = DevicePool(name, Blocks(self._session, self.queue), limit_of(self._session))

    @property
    def info(self) -> Mapping[str, object]:
        """What is known of it; see `weft.runtimes.webgpu.driver.describe`."""
        return MappingProxyType({**self._session.facts, "memory": self.pool.limit})

    @property
    def thread_count(self) -> int:
        """How many work-groups run at a time, as far as anybody tells."""
        return int(self._session.facts["units"])

    def free_compute(self) -> float:
        """Return the share of its compute that one more launch would get, from 0 to 1."""
        share = 1.0 / (1 + self.queue.in_flight)
        if not self._session.facts["is_cpu"]:
            return share
        return min(load.idle_share(self.thread_count), share)

    def load(self, code: Loadable) -> WebGPUProgram:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the driver refuses its text; the message has what its compiler says.
        """
        return self._programs.load(code)
