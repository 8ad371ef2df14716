"""numba's driver: copies between arrays by their names, and the classes that programs mention."""

from typing import Any

import numpy as np

from weft.compat.cuda.device import gpus
from weft.compat.errors import CudaAPIError, CudaDriverError, CudaSupportError
from weft.errors import LaunchError
from weft.frontend.kernel.streams import Event, Stream

__all__ = [
    "CudaAPIError", "CudaDriverError", "CudaSupportError", "Device", "Driver", "Event", "Stream",
    "device_memory_size", "device_memset", "device_pointer", "device_to_device", "device_to_host",
    "driver", "host_memory_size", "host_to_device",
]  # fmt: skip

Device = type(gpus[0])


class Driver:
    """What programs ask of the driver."""

    is_initialized = True
    initialization_error = None

    def get_version(self) -> tuple[int, int]:
        """Return the version of CUDA that kernels are written for."""
        return (12, 0)

    def get_device_count(self) -> int:
        """Return how many devices there are."""
        return len(gpus)

    def get_device(self, devnum: int = 0) -> Any:
        """Return a device by its number."""
        return gpus[devnum]


driver = Driver()


def _bytes(array: Any) -> Any:
    """Return the bytes of an array, which must have no gaps."""
    held = np.asarray(array)
    if not held.flags.c_contiguous:
        raise LaunchError("copy of memory", found="an array with gaps",
                          expected="elements in row-major order")
    return held.reshape(-1).view(np.uint8)


def device_memory_size(array: Any) -> int:
    """Return the bytes of an array."""
    return int(np.asarray(array).nbytes)


host_memory_size = device_memory_size


def device_pointer(array: Any) -> int:
    """Return the address of an array."""
    return int(np.asarray(array).__array_interface__["data"][0])


def device_memset(array: Any, value: int, size: int, stream: Any = 0) -> None:
    """Set the first bytes of an array."""
    del stream
    _bytes(array)[:size] = value


def device_to_host(array: Any, source: Any, size: int, stream: Any = 0) -> None:
    """Copy the first bytes of the second array to the first one."""
    del stream
    _bytes(array)[:size] = _bytes(source)[:size]


host_to_device = device_to_device = device_to_host
