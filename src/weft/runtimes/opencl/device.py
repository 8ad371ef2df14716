"""A device of an OpenCL driver."""

from __future__ import annotations

from weft.runtimes.launches.device import DriverDevice, Parts
from weft.runtimes.opencl.memory import Blocks
from weft.runtimes.opencl.program import Programs
from weft.runtimes.opencl.queue import OpenCLQueue
from weft.runtimes.opencl.session import Session

__all__ = ["OpenCLDevice"]


class OpenCLDevice(DriverDevice):
    """The device, one of `weft.runtimes.opencl.driver.devices`."""

    def _opened(self) -> Parts:
        session = Session(self.name, self._called)
        queue = OpenCLQueue(session)
        parts = Parts.of(session, Programs(session), queue, Blocks(session, queue))
        session.owners += parts[1:]
        return parts
