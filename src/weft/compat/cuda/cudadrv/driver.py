"""numba's driver: copies between arrays by their names, and the classes that programs mention."""

from typing import Any

import numpy as np

from weft.compat.arrays import DeviceArray
from weft.compat.cuda.device import gpus
from weft.compat.cuda.memory import ManagedMemory, MappedMemory, MemoryPointer, PinnedMemory
from weft.compat.cuda.refused import (
    BaseCUDAMemoryManager,
    GetIpcHandleMixin,
    HostOnlyCUDAMemoryManager,
)
from weft.compat.errors import CudaAPIError, CudaDriverError, CudaSupportError, LinkerError
from weft.errors import LaunchError
from weft.lang.launch.streams import Event, Stream

__all__ = [
    "BaseCUDAMemoryManager", "CudaAPIError", "CudaDriverError", "CudaSupportError", "Device",
    "Driver", "Event", "GetIpcHandleMixin", "HostOnlyCUDAMemoryManager", "LinkerError",
    "ManagedMemory", "MappedMemory", "MemoryPointer", "NumbaCUDAMemoryManager", "PinnedMemory",
    "Stream", "device_memory_size", "device_memset", "device_pointer", "device_to_device",
    "device_to_host", "driver", "host_memory_extents", "host_memory_size", "host_to_device",
    "is_device_memory", "require_device_memory",
]  # fmt: skip

Device = type(gpus[0])
NumbaCUDAMemoryManager = HostOnlyCUDAMemoryManager


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


def is_device_memory(obj: Any) -> bool:
    """Whether an object is memory for kernels: an array of `to_device`, or a pointer."""
    return isinstance(obj, DeviceArray | MemoryPointer)


def require_device_memory(obj: Any) -> None:
    """Refuse what is no such memory.

    Raises
    ------
    LaunchError
        If it is none.
    """
    if not is_device_memory(obj):
        raise LaunchError("memory for kernels", found=type(obj).__name__,
                          expected="an array of to_device or device_array")


def host_memory_extents(array: Any) -> tuple[int, int]:
    """Return where the bytes of an array begin and where they end."""
    held = np.asarray(array)
    first = device_pointer(held)
    if not held.size:
        return first, first
    ends = [(n - 1) * s for n, s in zip(held.shape, held.strides, strict=True)]
    return (first + sum(min(0, e) for e in ends),
            first + sum(max(0, e) for e in ends) + held.itemsize)


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
