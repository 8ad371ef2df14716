"""numba's functions for the CPU: they stay Python, and kernels can call them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from weft.compat.numba_types import NumbaType, Signature
from weft.frontend.kernel.launch import DeviceFunction

__all__ = [
    "config", "extending", "get_num_threads", "jit", "literal_unroll", "njit", "prange",
    "set_num_threads", "version_info",
]  # fmt: skip

version_info = (0, 61, 0)  # of the numba whose names these are

config = SimpleNamespace(  # what is set is kept, and changes nothing
    CUDA_DEBUGINFO_DEFAULT=0, CUDA_LOW_OCCUPANCY_WARNINGS=1, CUDA_WARN_ON_IMPLICIT_COPY=1,
    DISABLE_CUDA=False, DISABLE_JIT=False, ENABLE_CUDASIM=False, NUMBA_DEFAULT_NUM_THREADS=1,
    NUMBA_NUM_THREADS=1, THREADING_LAYER="default")
prange = range


class HostFunction(DeviceFunction):
    """A function under ``@jit``: Python on the host, compiled where a kernel calls it."""

    @property
    def py_func(self) -> Callable[..., Any]:
        """The Python function."""
        return self.__weft_function__


def jit(signature: Any = None, **options: Any) -> Any:
    """Return a function that Python runs and that kernels can call.

    Programs for numba.cuda bring functions of the host along, often to compare with; those are
    not what Weft compiles. `options` and signatures change nothing.
    """
    del options
    if callable(signature) and not isinstance(signature, NumbaType | Signature):
        return HostFunction(getattr(signature, "__weft_function__", signature))

    def make(function: Callable[..., Any]) -> HostFunction:
        return HostFunction(getattr(function, "__weft_function__", function))

    return make


njit = jit


def literal_unroll(items: Any) -> Any:
    """Return a tuple itself: loops over tuples are unrolled anyway."""
    return items


def set_num_threads(count: int) -> None:
    """Keep a number of threads, for `get_num_threads`: functions under ``@jit`` stay Python."""
    config.NUMBA_NUM_THREADS = count


def get_num_threads() -> int:
    """Return the number of threads that was set last, at first 1."""
    return int(config.NUMBA_NUM_THREADS)


extending = SimpleNamespace(register_jitable=jit)
