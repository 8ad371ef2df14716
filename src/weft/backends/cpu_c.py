"""The device ``cpu/c``: kernels in C, compiled by the system's gcc or clang.

Its target is that of the processor without what C has no exact form for. Objects are linked into
the process by the loader of the host, so that parallel loops run on its threads. Memory is the
device's own: what runs native code of the pair ``llvm`` never meets it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from weft.compilers import c
from weft.compilers.c import CCompiler
from weft.locks import mutex
from weft.renderers.cstyle.c.renderer import CRenderer
from weft.renderers.cstyle.c.target import c_target
from weft.runtimes.cpu.isolated import IsolatedCpu
from weft.store import cache
from weft.target import Target

if TYPE_CHECKING:
    from weft.runtimes.cpu.runtime import CpuRuntime

__all__ = ["NAME", "compiler", "description", "missing", "renderer", "runtime", "target"]

NAME = "cpu/c"

_lock = mutex()
_runtime: IsolatedCpu | None = None


@lru_cache(maxsize=1)
def target(host: Target) -> Target:
    """Return what a processor, as the pair ``llvm`` knows it, can do through a C compiler."""
    return c_target(host)


def renderer(described: Target) -> CRenderer:
    """Return the renderer of C for a target."""
    return CRenderer(described)


def compiler(described: Target) -> CCompiler:
    """Return the first C compiler that serves.

    Raises
    ------
    LibraryNotFoundError
        If none does; it tells the reason of each.
    """
    return c.find_compiler(described, cache=cache())


def missing(described: Target) -> str:
    """Return why there is no C compiler, an empty string if there is one."""
    return c.missing(described, cache=cache())


def description(described: Target) -> str:
    """Return which compiler makes its kernels, for people."""
    found = compiler(described)
    version = ".".join(map(str, found.version))
    return f"kernels in C, by {found.family} {version} ({found.path})"


def runtime(host: CpuRuntime) -> IsolatedCpu:
    """Return the one runtime of the device, which loads and runs kernels as the host does."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = IsolatedCpu(NAME, host.link, lambda: host.thread_count)
        return _runtime
