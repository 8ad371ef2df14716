"""The operations of kernels, with the names of CUDA and numba.cuda: ``from weft import gpu``.

Inside a function under ``@weft.kernel`` these are operations of the device; Python itself cannot
call them.
"""

from __future__ import annotations

from typing import Any, Final

from weft.frontend.kernel.intrinsics import Special, Triple, intrinsic

__all__ = ["atomic", "blockDim", "blockIdx", "grid", "gridDim", "gridsize", "local", "shared",
           "syncthreads", "threadIdx", "warpsize"]

threadIdx: Final = Triple("thread")  # index of the thread in its block; int32
blockIdx: Final = Triple("block")  # index of the block in the grid; int32
blockDim: Final = Triple("blockDim")  # threads of a block; int32
gridDim: Final = Triple("gridDim")  # blocks of the grid; int32
warpsize: Final = Special("warpsize", 32)  # threads of a warp; int32


@intrinsic
def grid(ndim: int) -> Any:
    """Return the index of the thread in the whole grid: an int64, or a tuple of `ndim` of them."""


@intrinsic
def gridsize(ndim: int) -> Any:
    """Return the number of threads of the whole grid, along each of `ndim` axes."""


@intrinsic
def syncthreads() -> None:
    """Wait for all threads of the block; what they wrote is visible after it."""


class _Memory:
    """Arrays of one kind of memory."""

    def __init__(self, kind: str, doc: str) -> None:
        def array(shape: Any, dtype: Any) -> Any: ...

        array.__doc__ = doc
        self.array = intrinsic(array, f"{kind}.")


shared: Final = _Memory("shared", """Return an array that all threads of a block share.

    `shape` is an int or a tuple, known when the kernel is compiled. It is not initialised.""")
local: Final = _Memory("local", """Return an array that belongs to one thread.

    `shape` is an int or a tuple, known when the kernel is compiled. It is not initialised.""")


class _Atomic:
    """Operations on one element that no other thread can come between.

    Each takes an array, an index (an int, or a tuple for several axes) and a value, and returns
    what the element held before.
    """

    def __init__(self) -> None:
        def add(array: Any, index: Any, value: Any) -> Any:
            """Add `value`."""

        def sub(array: Any, index: Any, value: Any) -> Any:
            """Subtract `value`."""

        def min(array: Any, index: Any, value: Any) -> Any:
            """Keep the smaller of the element and `value`; a NaN in either stays."""

        def max(array: Any, index: Any, value: Any) -> Any:
            """Keep the larger of the element and `value`; a NaN in either stays."""

        def and_(array: Any, index: Any, value: Any) -> Any:
            """Keep the bits that both have."""

        def or_(array: Any, index: Any, value: Any) -> Any:
            """Keep the bits that either has."""

        def xor(array: Any, index: Any, value: Any) -> Any:
            """Keep the bits that one of both has."""

        def exch(array: Any, index: Any, value: Any) -> Any:
            """Set the element to `value`."""

        def inc(array: Any, index: Any, value: Any) -> Any:
            """Add one; from `value` on, begin again at 0."""

        def dec(array: Any, index: Any, value: Any) -> Any:
            """Subtract one; from 0, or from more than `value`, begin again at `value`."""

        def cas(array: Any, index: Any, old: Any, value: Any) -> Any:
            """Set the element to `value` if it equals `old`."""

        for function in (add, sub, min, max, and_, or_, xor, exch, inc, dec, cas):
            setattr(self, function.__name__, intrinsic(function, "atomic."))


atomic: Final = _Atomic()
