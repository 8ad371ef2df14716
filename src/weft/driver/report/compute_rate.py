"""How many float32 operations a second a device does, measured by a kernel of multiply-adds."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any, Final

from weft.driver.launch import load_kernel, load_on_device
from weft.driver.report.peak_kernels import fma_kernel
from weft.errors import LaunchError
from weft.runtimes.base import View
from weft.target import SIMT

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.ir.stmt import Kernel

__all__ = ["compute_rate"]

_SECONDS: Final = 0.02  # of a launch that is long enough to tell
_TIMES: Final = 3  # of which the best counts
_FIRST_ROUNDS: Final = 16  # of each chain: a device may do them in Python
_MOST_ROUNDS: Final = 1 << 15  # some drivers end loops of twice as many turns
_GROWTH: Final = 256.0  # from one launch to the next at most
_THREADS: Final = 1024  # of a unit of a device of threads


def compute_rate(place: Context) -> float:
    """Return the float32 operations a second that a device does at best.

    0 where launches compute nothing. It takes some tenths of a second, and is not kept.
    """
    simt = place.target.style == SIMT
    threads, lanes = (place.threads * _THREADS, 1) if simt else (place.threads, 16)
    forms = (True, False) if simt else (True,)
    return max(_rate(place, threads, lanes, fused) for fused in forms)


def _rate(place: Context, threads: int, lanes: int, fused: bool) -> float:
    rounds = _FIRST_ROUNDS
    while True:
        kernel, work = fma_kernel(threads, rounds, lanes, fused)
        seconds = _seconds(place, kernel)
        if seconds is None:
            return 0.0
        if seconds >= _SECONDS / 2 or rounds >= _MOST_ROUNDS:
            return work / seconds
        growth = min(max(_SECONDS / max(seconds, 1e-9), 2.0), _GROWTH)
        rounds = min(int(rounds * growth), _MOST_ROUNDS)


def _seconds(place: Context, kernel: Kernel) -> float | None:
    """Return the time of the shortest launch; None where it computes nothing."""
    (out,) = kernel.params
    pool = place.runtime.pool
    count = out.dtype.itemsize * int(out.shape[0].attr) * int(out.shape[1].attr)
    held, first = pool.allocate(count, zero=True), bytearray(count)
    loaded: Any = (load_kernel if place.is_native else load_on_device)(kernel, place)
    memory = [held.address] if place.is_native else [View(held)]
    found = []
    for _ in range(1 + _TIMES):  # of which the first may have to load
        begin = time.perf_counter()
        failed = loaded.run(memory, [])
        found.append(time.perf_counter() - begin)
        if failed is not None:
            raise LaunchError("compute rate", found=failed.message, expected="a launch that ends")
    pool.pool_to_host(held, first)
    return min(found[1:]) if struct.unpack_from("<f", first)[0] > 0 else None
