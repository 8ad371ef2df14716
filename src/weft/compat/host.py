"""numba's functions for the CPU: they stay Python, and kernels can call them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compat import config
from weft.compat.numba_types import NumbaType, Signature
from weft.errors import LaunchError
from weft.lang.launch.device_function import DeviceFunction

__all__ = ["get_num_threads", "jit", "literal_unroll", "literally", "njit", "prange",
           "set_num_threads", "stencil", "version_info"]  # fmt: skip

version_info = (0, 61, 0)  # of the numba whose names these are

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


def literally(value: Any) -> Any:
    """Return a value itself: what a kernel is compiled for is not asked for by its functions."""
    return value


def set_num_threads(count: int) -> None:
    """Keep a number of threads, for `get_num_threads`: functions under ``@jit`` stay Python."""
    config.NUMBA_NUM_THREADS = count


def get_num_threads() -> int:
    """Return the number of threads that was set last, at first 1."""
    return int(config.NUMBA_NUM_THREADS)


class Stencil:
    """A function under ``@stencil``: called with arrays it goes over all elements, in Python.

    In its body ``a[i, j]`` is the element so far away from the one that is computed. Elements whose
    neighbours are not all there are 0, or `cval`.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.function, self.options = function, options

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Return an array of what the function gives for each element of the first array."""
        arrays = [np.asarray(a) for a in args if np.ndim(a)]
        if not arrays:
            raise LaunchError("stencil", found="no array", expected="an array to go over")
        shape = arrays[0].shape
        reach = self._reach(args, len(shape))
        inside = [range(-low, size - high)
                  for (low, high), size in zip(reach, shape, strict=True)]
        found: dict[tuple[int, ...], Any] = {
            at: self.function(*(_Around(a, at) if np.ndim(a) else a for a in args))
            for at in itertools.product(*inside)}
        values = np.array(list(found.values()))
        made = np.full(shape, self.options.get("cval", 0), values.dtype) if out is None else out
        for at, value in found.items():
            made[at] = value
        return made

    def _reach(self, args: tuple[Any, ...], ndim: int) -> list[tuple[int, int]]:
        """Return the least and the largest distance along each axis."""
        given = self.options.get("neighborhood")
        if given is not None:
            return [(int(low), int(high)) for low, high in given]
        seen = [_Around(a, None) if np.ndim(a) else a for a in args]
        self.function(*seen)
        far = [at for s in seen if isinstance(s, _Around) for at in s.seen] or [(0,) * ndim]
        return [(min(0, *axis), max(0, *axis)) for axis in zip(*far, strict=True)]


class _Around:
    """An array as a stencil sees it from one element; from None it notes what is looked at."""

    def __init__(self, array: Any, at: tuple[int, ...] | None) -> None:
        self.array, self.at = np.asarray(array), at
        self.seen: list[tuple[int, ...]] = []

    def __getitem__(self, distance: Any) -> Any:
        far = tuple(distance) if isinstance(distance, tuple) else (distance,)
        if self.at is None:
            self.seen.append(far)
            return self.array.dtype.type(1)
        return self.array[tuple(a + d for a, d in zip(self.at, far, strict=True))]


def stencil(function: Any = None, **options: Any) -> Any:
    """Return a function that goes over the elements of arrays by their neighbours."""
    if callable(function):
        return Stencil(function, options)
    return lambda given: Stencil(given, options)
