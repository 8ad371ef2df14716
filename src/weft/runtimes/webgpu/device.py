"""A device of WebGPU."""

from __future__ import annotations

from weft.runtimes.launches.device import DriverDevice, Parts
from weft.runtimes.webgpu.memory import Blocks
from weft.runtimes.webgpu.program import Programs
from weft.runtimes.webgpu.queue import WebGPUQueue
from weft.runtimes.webgpu.session import Session

__all__ = ["WebGPUDevice"]


class WebGPUDevice(DriverDevice):
    """The device, one of `weft.runtimes.webgpu.driver.adapters`."""

    def _opened(self) -> Parts:
        session = Session(self.name, self._called)
        queue = WebGPUQueue(session)
        return Parts.of(session, Programs(session), queue, Blocks(session, queue))
