"""``cuda.reduce``: reductions of arrays by a function of two values.

As in numba the function must be associative and commutative. Each block goes through a piece of the
array that only the length decides, so a result has the same bits with any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError, outermost_methods
from weft.lang.device import gpu as _gpu
from weft.lang.launch.device_function import DeviceFunction
from weft.lang.launch.launch import KernelFunction
from weft.lang.launch.options import Options, cdiv

__all__ = ["Reduce", "reduce"]

_THREADS: Final = 256  # of a block
_EACH: Final = 32  # elements of a thread
_PIECE: Final = _THREADS * _EACH
gpu: Any = _gpu  # what kernels compute with: to Python these are no numbers


@outermost_methods
class Reduce:
    """A reduction of arrays by a function of two values, made by ``@cuda.reduce``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        combine = DeviceFunction(getattr(function, "__weft_function__", function))

        def pieces(x: Any, found: Any) -> None:
            """Put what each block finds in its piece, none of which is empty, into `found`."""
            held = gpu.shared.array(_THREADS, x.dtype)
            t = gpu.threadIdx.x
            begin = gpu.blockIdx.x * _PIECE
            if begin + _PIECE <= x.size:
                total = x[begin + t]
                for k in range(1, _EACH):
                    total = combine(total, x[begin + t + k * _THREADS])
                held[t] = total
            elif begin + t < x.size:
                total = x[begin + t]
                for i in range(begin + t + _THREADS, x.size, _THREADS):
                    total = combine(total, x[i])
                held[t] = total
            step = _THREADS // 2
            while step > 0:
                gpu.syncthreads()
                if t < step and begin + t + step < x.size:
                    held[t] = combine(held[t], held[t + step])
                step //= 2
            if t == 0:
                found[gpu.blockIdx.x] = held[0]

        def fold(x: Any, out: Any, start: Any) -> None:
            total = start
            for i in range(x.size):
                total = combine(total, x[i])
            out[0] = total

        self._pieces = KernelFunction(pieces, Options())
        self._fold = KernelFunction(fold, Options())

    def __call__(self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0,
                 stream: Any = 0) -> Any:  # fmt: skip
        """Return the reduction of the first `size` elements, or put it into ``res[0]``."""
        del stream
        array = np.asarray(arr)
        if array.ndim != 1:
            raise DTypeError("cuda.reduce", found=f"{array.ndim} axes", expected="one")
        array = array[: array.size if size is None else size]
        while array.size > _THREADS:
            found = np.empty(cdiv(array.size, _PIECE), array.dtype)
            self._pieces[found.size, _THREADS](array, found)
            array = found
        out = np.empty(1, array.dtype)
        self._fold[1, 1](array, out, array.dtype.type(init))
        if res is not None:
            res[0] = out[0]
            return None
        return out[0]


def reduce(function: Callable[..., Any]) -> Reduce:
    """Make a reduction of a function of two values."""
    return Reduce(function)
