"""The CPU device of the driver: target, renderer, compiler, runtime and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.backends import cpu
from weft.config import config
from weft.imports import importing
from weft.locks import mutex
from weft.store import DiskCache, cache
from weft.target import Target

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.runtimes.cpu.calls.dispatch import Dispatcher
    from weft.runtimes.cpu.runtime import CpuRuntime
    from weft.runtimes.memory.buffer import Buffer

lock: Final = mutex()  # compiling and loading; realized plans run without it


def runtime() -> CpuRuntime:
    """Return the runtime of the host, starting neither threads nor LLVM yet."""
    return cpu.runtime()


def prepare() -> None:
    """Have LLVM and the pool's code loaded on the side, for what will be launched."""
    cpu.prepare()


def preparing() -> AbstractContextManager[bool]:
    """Have the pool's code made on the side; inside, import what compiles: no fork interrupts."""
    runtime().prepare()
    return importing


def target() -> Target:
    """Return what the host can do."""
    return cpu.host_target()


_fingerprint: tuple[Target, str, str] | None = None


def fingerprint() -> str:
    """Return the fingerprint of target and memory mode, computed once: every key holds it."""
    global _fingerprint
    now, mode = target(), config().memory_mode
    if _fingerprint is None or _fingerprint[0] is not now or _fingerprint[1] != mode:
        _fingerprint = now, mode, f"{now.fingerprint()} {mode}".rstrip()
    return _fingerprint[2]


def disk() -> DiskCache:
    """Return the cache directory."""
    return cache()


def allocate(nbytes: int) -> Buffer:
    """Return a pooled buffer of at least `nbytes`.

    Raises
    ------
    AllocationError
        If the memory is not to be had; what was there before is intact.
    """
    return runtime().pool.allocate(nbytes)


def memory_limit() -> int:
    """Return how many bytes the pool may take from the system."""
    return runtime().pool.limit


def from_host(address: int, nbytes: int, owner: Any, readonly: bool = False) -> Buffer:
    """Return foreign memory as a buffer that keeps its owner alive."""
    from weft.runtimes.memory.buffer import Buffer

    return Buffer.foreign(address, nbytes, owner, readonly)


def dispatcher(tensor: type, function: type, state: object) -> Dispatcher | None:
    """Return the native calls of captured functions; None where the interpreter allows none.

    Parameters
    ----------
    tensor, function
        The classes of results and of captured functions.
    state
        The thread-local object that says whether gradients are recorded.
    """
    with importing:
        from weft.runtimes.cpu.calls.dispatch import Host

    return runtime().dispatcher(Host(tensor, function, state))
