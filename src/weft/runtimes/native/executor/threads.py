"""The thread pool of the CPU, written as LLVM IR so that it needs no compiler and no OpenMP.

``weft_parallel_for(fn, env, n)`` cuts [0, n) into one contiguous chunk for each thread, posts all
but the first to the workers, runs the first itself and waits. Chunk c of p gets
``n // p + (c < n % p)`` iterations whoever runs it: a region that finds the pool busy (another
host thread, or a region inside a region) runs the same chunks one after the other, so results
never depend on what else the process does.

* A worker owns a cache line with its epoch, its function and its bounds. Posting writes the line
  and raises the epoch; a worker spins on the epoch for a moment, then sleeps on it (futex on
  Linux, a condition variable elsewhere). Each post wakes only the workers that it uses.
* The caller, done with its own chunk, runs those that no worker has begun. So a short region
  after a long pause does not wait for anybody to wake up, and a machine with more threads than
  processors does not wait for a worker that has none.
* A worker that wakes up on its caller's CPU moves to another one that it may run on: kernels of
  virtual machines leave it there for many milliseconds, and threads would take turns.
* All shared state lies in one mapping that the kernel zeroes in a forked child
  (``MADV_WIPEONFORK``); where it cannot, the process id is compared at each region. Either way
  a child begins without workers and starts its own at the first region.
* Workers block every signal that is not their own fault, so that Ctrl-C reaches the main thread.
"""

import os
import platform
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from weft.config import config
from weft.runtimes.native.common.emitter import Code, Module
from weft.runtimes.native.executor import thread_lifecycle, thread_region, thread_sleep
from weft.runtimes.native.executor.thread_region import MAX_THREADS

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["MAX_THREADS", "SYMBOLS", "Flavour", "ThreadPool", "flavour", "source", "usable_cpus"]

SYMBOLS: Final = (
    "weft_parallel_for",
    "weft_pool_init",
    "weft_pool_threads",
    "weft_pool_workers",
    "weft_pool_awake",
    "weft_pool_busy",
    "weft_pool_handle",
    "weft_pool_shutdown",
)

Flavour = Literal["futex", "condition", "serial"]

_FUTEX_CALL: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
# What a thread does that looks again and again: an intrinsic, and its operands.
_PAUSE: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,)),
}  # fmt: skip
_MACHINE_NAMES: Final = {"AMD64": "x86_64", "arm64": "aarch64"}


def flavour() -> Flavour:
    """Return how workers sleep on this platform; ``serial`` where there are no POSIX threads."""
    if sys.platform == "linux" and _machine() in _FUTEX_CALL:
        return "futex"
    return "condition" if os.name == "posix" else "serial"


def _machine() -> str:
    name = platform.machine()
    return _MACHINE_NAMES.get(name, name)


def usable_cpus() -> int:
    """Return how many CPUs this process may keep busy: its affinity and its cgroup's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, _cgroup_cpus() or count))


def _cgroup_cpus() -> int | None:
    """Return the CPU quota of this container, rounded up, or None if there is none."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="utf-8") as file:
            quota, period = file.read().split()
        return None if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError):
        return None


def source(kind: Flavour | None = None) -> str:
    """Return the LLVM IR of the pool.

    Parameters
    ----------
    kind
        How workers sleep; by default what `flavour` says of this platform.
    """
    kind, machine, m = kind or flavour(), _machine(), Module()
    if kind == "serial":
        thread_region.serial(m)
        return m.text

    def pause(c: Code) -> None:
        if machine in _PAUSE:
            name, operands = _PAUSE[machine]
            c.call(name, *(c.constant(n, "i32") for n in operands), returns="void")

    thread_region.functions(m, pause)
    thread_lifecycle.functions(m, pause)
    if kind == "futex":
        thread_sleep.futex(m, _FUTEX_CALL.get(machine, 0))
    else:
        thread_sleep.condition(m)
    return m.text


def allowed(threads: int | None) -> int:
    """Return how many threads a pool will have that is asked for so many, or for the usual."""
    if flavour() == "serial":
        return 1
    return max(1, min(threads or config().num_threads or usable_cpus(), MAX_THREADS))


class ThreadPool:
    """The process's threads, the calling thread included.

    Parameters
    ----------
    library
        The loaded object of `source`, with `SYMBOLS` exported and pinned for the life of the
        process: workers may still sleep in its code while the interpreter shuts down.
    threads
        Number of threads; by default ``WEFT_NUM_THREADS``, or one for each usable CPU.
    """

    __slots__ = ("_busy", "_handle", "_init", "_shutdown", "_threads", "_workers", "address",
                 "library")  # fmt: skip

    def __init__(self, library: "Library", threads: int | None = None) -> None:
        import ctypes

        integer = ctypes.c_int32
        self.library = library
        self.address = library["weft_parallel_for"]
        self._init = ctypes.CFUNCTYPE(integer, integer, integer)(library["weft_pool_init"])
        self._threads = ctypes.CFUNCTYPE(integer)(library["weft_pool_threads"])
        self._workers = ctypes.CFUNCTYPE(integer)(library["weft_pool_workers"])
        self._shutdown = ctypes.CFUNCTYPE(None)(library["weft_pool_shutdown"])
        self._busy = ctypes.CFUNCTYPE(integer)(library["weft_pool_busy"])
        self._handle = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library["weft_pool_handle"])
        self.resize(allowed(threads))

    @property
    def threads(self) -> int:
        """How many threads a region uses at most."""
        return int(self._threads())

    @property
    def workers(self) -> int:
        """How many worker threads run at this moment; none before the first region."""
        return int(self._workers())

    @property
    def busy(self) -> bool:
        """Whether a region runs at this moment, on threads of the pool."""
        return bool(self._busy())

    @property
    def handles(self) -> list[int]:
        """The worker threads, as the system numbers them (``pthread_self``)."""
        return [int(self._handle(k + 1)) for k in range(self.workers)]

    def resize(self, threads: int) -> int:
        """Use ``threads`` threads from the next region on; return how many there will be."""
        # A spinning worker that shares its CPU only delays the thread that it waits for.
        return int(self._init(threads, int(threads <= usable_cpus())))

    def shutdown(self) -> None:
        """End all workers; the next region starts them again. Not from inside a region."""
        self._shutdown()
