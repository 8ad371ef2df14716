"""``numba.core.dispatcher``: classes by which programs tell functions under ``jit`` from others.

In numba a kernel, a device function and a function of the host are dispatchers; here each is of a
class of its own, so these classes only answer `isinstance` and `issubclass`.
"""

from __future__ import annotations

from abc import ABC

from weft.compat.cuda import Kernel
from weft.compat.host import HostFunction
from weft.lang.launch.device_function import DeviceFunction

__all__ = ["CPUDispatcher", "CUDADispatcher", "Dispatcher"]

CPUDispatcher = HostFunction  # under ``jit`` and ``njit``


class Dispatcher(ABC):  # noqa: B024 - only its hook is asked
    """What ``jit`` of any kind makes."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Whether a class is one of Weft's for it."""
        return issubclass(kind, Kernel | DeviceFunction)


class CUDADispatcher(Dispatcher):
    """What ``cuda.jit`` makes: kernels, and functions for kernels."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Whether a class is one of Weft's for it."""
        return super().__subclasshook__(kind) and not issubclass(kind, CPUDispatcher)
