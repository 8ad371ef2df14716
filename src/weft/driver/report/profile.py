"""Profile kernels one by one against the machine's peak rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from weft.driver import kernels
from weft.driver.context import Context, host_context
from weft.driver.pipeline import Built
from weft.errors import WeftError
from weft.ir.bounds import bounds
from weft.ir.dtype import DType, uint32
from weft.ir.op import Op
from weft.ir.stmt import Kernel, Memory
from weft.ir.traverse import loads, stores
from weft.renderers.base import encode_float

if TYPE_CHECKING:
    from weft.runtimes.memory.buffer import Buffer

_BUDGET_SECONDS = 0.1
_TURNS = 20  # calls of one plan before those of the other: threads that sleep are woken once
_PEAK_BYTES = 64 << 20


class Peaks(NamedTuple):
    """What this machine reaches: bytes and float32 operations per nanosecond, all threads.

    ``cache_bytes`` is the size of the caches in front of memory: the last one's, or those of the
    second level of all threads.
    """

    bandwidth: float
    flops: float
    cache_bytes: int


class Together(NamedTuple):
    """Median seconds of kernels that do not depend on each other, in turn and at the same time."""

    apart: float
    together: float


class Timing(NamedTuple):
    """Median and least seconds of a kernel, alone and warm, and its work."""

    seconds: float
    least: float
    traffic: int
    flops: int


def time_kernel(built: Built) -> Timing | None:
    """Return the median time of a kernel on scratch arrays, or None if it refuses them.

    Floats are 1, integers 0: in range as indices of anything that is not empty.
    """
    runtime = built.context.native
    kernel = built.nest
    params = built.scheduled.params  # with panels, which the nest has not
    program = runtime.program(built.image, built.program.name, len(params), len(built.variables))
    buffers = [_scratch(p, built.context) for p in params]
    limits = {v.attr.name: v.attr.max for v in built.linear.variables}
    values = [limits[v] for v in built.variables]
    times: list[float] = []
    end = time.perf_counter() + _BUDGET_SECONDS
    try:
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            if runtime.queue.launch(program, buffers, values).failure is not None:
                return None
            times.append(time.perf_counter() - start)
    except WeftError:
        return None
    return Timing(statistics.median(times), min(times), kernel.meta.traffic, kernel.meta.flops)


def time_together(group: Sequence[Built]) -> Together | None:
    """Return how long kernels take one after the other and in one group, or None if one refuses."""
    from weft.runtimes.native.executor.native import BufferRef, KernelStep, VariableRef

    runtime = group[0].context.native
    steps: list[KernelStep] = []
    libraries: list[object] = []
    buffers: list[Buffer] = []
    for built in group:
        name = built.program.name
        library = runtime.link(built.image, (name,))
        refs = []
        for param in built.scheduled.params:
            refs.append(BufferRef.input(len(buffers)))
            buffers.append(_scratch(param, built.context))
        limits = {v.attr.name: v.attr.max for v in built.linear.variables}
        values = [VariableRef.constant(limits[v]) for v in built.variables]
        steps.append(KernelStep(library[name], refs, values, name))
        libraries.append(library)
    plans = [runtime.plan(steps, len(buffers), 0, release_gil=True, keep=libraries, groups=groups)
             for groups in ((), [(0, len(steps), True)])]  # fmt: skip
    addresses = [b.address for b in buffers]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + _BUDGET_SECONDS
    while len(times[1]) < 9 or time.perf_counter() < end:
        for plan, found in zip(plans, times, strict=True):
            start = time.perf_counter()
            for _ in range(_TURNS):
                if plan.call(*addresses, 0) is not None:
                    return None
            found.append((time.perf_counter() - start) / _TURNS)
    return Together(*map(statistics.median, times))


def _scratch(memory: Memory, context: Context) -> Buffer:
    count = bounds(memory.size, {})[1]
    buffer: Buffer = context.native.pool.allocate(count * memory.dtype.itemsize)
    view = buffer.view()
    one = _one(memory.dtype)
    if count:
        view[: count * memory.dtype.itemsize] = one * count
    return buffer


def _one(d: DType) -> bytes:
    if d.is_float:
        return encode_float(1.0, d).to_bytes(d.itemsize, "little")
    return bytes(d.itemsize)


@lru_cache(maxsize=1)
def peaks() -> Peaks:
    """Return the measured read bandwidth and float32 rate of this machine."""
    from weft.driver.report import peak_kernels

    read = peak_kernels.read_kernel(_PEAK_BYTES)
    fma, work = peak_kernels.fma_kernel(host_context().threads)
    bandwidth = _PEAK_BYTES / (_best(read) * 1e9)
    target, threads = host_context().target, host_context().threads
    caches = min(max(target.l3_bytes, target.l2_bytes * threads), _PEAK_BYTES // 2)
    return Peaks(bandwidth, work / (_best(fma) * 1e9), caches)


@lru_cache(maxsize=1)
def memory_rates() -> dict[str, float]:
    """Return the bytes a nanosecond of each way to move memory, all threads.

    A copy counts what it reads and what it writes; ``past`` is with non-temporal stores, ``ahead``
    with requests for the next block, of 32 KiB.
    """
    from weft.driver.report import peak_kernels

    found = {"read": peaks().bandwidth}
    ways = [(copies, streams, asks) for copies in (False, True) for streams in (False, True)
            for asks in ((False, True) if copies else (False,))]
    for copies, streams, asks in ways:
        kernel = peak_kernels.move_kernel(_PEAK_BYTES, copies, streams, asks)
        name = kernel.name.removeprefix("peak_").replace("_", " ")
        found[name] = (1 + copies) * _PEAK_BYTES / (_best(kernel) * 1e9)
    return found


@lru_cache(maxsize=1)
def tile_rate() -> float:
    """Return bfloat16 operations a nanosecond of tile registers, all threads; 0 without them."""
    from weft.driver.report import peak_kernels

    if not host_context().target.supports(Op.MATRIX2, uint32):
        return 0.0
    kernel, work = peak_kernels.tile_kernel(host_context().threads)
    return work / (_best(kernel) * 1e9)


def _best(kernel: Kernel) -> float:
    from weft.driver.pipeline import build

    built = build(kernel, kernels.symbol(kernels.key_of(kernel, host_context())), host_context())
    timing = time_kernel(built)
    return timing.least if timing is not None else float("inf")


def arrays(kernel: Kernel) -> tuple[list[str], list[str]]:
    """Return the names of the arrays a kernel reads and those it writes."""
    return ([m.name for m in loads(kernel.body) if m.scope == "global"],
            [m.name for m in stores(kernel.body)])


__all__ = ["Peaks", "Timing", "Together", "arrays", "memory_rates", "peaks", "time_kernel",
           "time_together"]  # fmt: skip
