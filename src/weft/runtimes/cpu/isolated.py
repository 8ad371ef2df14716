"""The processor as a device like any other: memory by handles, queues, programs that are loaded.

Kernels are functions of the C ABI, ``i32 NAME(void *const *buffers, const i64 *vars, void
*status)``, that some loader puts into the process: the host's, which links objects, or
`weft.compilers.c_library`, which loads shared libraries. Work is done when a call returns.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft.errors import HandleError, LaunchError
from weft.runtimes import load
from weft.runtimes.base import Event, Failure, Library, Loadable, View, consume
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool
from weft.runtimes.memory.immediate_queue import HostBlocks, ImmediateQueue, Stopped
from weft.runtimes.native.executor.threads import usable_cpus

__all__ = ["IsolatedCpu", "Loader"]

Loader = Callable[[bytes, Sequence[str]], Library]

_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
_LEAST: Final = -(1 << 63)
_ABOVE: Final = 1 << 63


class _Status(ctypes.Structure):
    """The first failure of a launch, as kernels write it."""

    _fields_ = (
        ("code", ctypes.c_int32), ("kernel", ctypes.c_int32), ("statement", ctypes.c_int32),
        ("pad", ctypes.c_int32), ("index", ctypes.c_int64), ("bound", ctypes.c_int64),
    )  # fmt: skip


class _Program:
    """A kernel that was loaded: stateless, launched by any number of threads at once."""

    __slots__ = ("call", "device", "library", "name", "nbuffers", "nvariables")

    def __init__(self, device: str, code: Loadable, library: Library) -> None:
        self.device, self.name, self.library = device, code.name, library
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)
        self.call = _FUNCTION(library[code.name])


class _Queue(ImmediateQueue):
    """Work of the device."""

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Run a kernel on buffers, in its parameter order; blocks of threads are its own loops.

        Raises
        ------
        LaunchError
            If counts or types are wrong.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        if not isinstance(program, _Program) or program.device != self.device:
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        views = self._given(program.name, buffers, variables, program.nbuffers,
                            program.nvariables)
        for number, value in enumerate(variables):
            if not isinstance(value, int) or not _LEAST <= value < _ABOVE:
                raise LaunchError(program.name, found=f"{value!r} for variable {number}",
                                  expected="an integer of 64 bits")
        addresses = [self._address(view) for view in views]
        status = _Status()
        with self.in_flight:
            consume(wait, self.device)
            program.call(
                (ctypes.c_void_p * max(len(addresses), 1))(*addresses),
                (ctypes.c_int64 * max(len(variables), 1))(*variables), ctypes.byref(status))
        if not status.code:
            return Event(self.device)
        return Stopped(self.device, Failure(status.code, status.index, status.bound))


class IsolatedCpu:
    """The processor as a device with memory of its own.

    Parameters
    ----------
    name : str
        The device.
    loader : callable
        ``(image, symbols) -> library``: puts a compiled kernel into the process.
    threads : callable
        Returns how many threads parallel loops run on.
    limit : int, optional
        Most bytes of memory; by default what the process may use.
    """

    def __init__(self, name: str, loader: Loader, threads: Callable[[], int],
                 limit: int | None = None) -> None:  # fmt: skip
        self.name, self._loader, self._threads = name, loader, threads
        most = host_memory.usable_memory() if limit is None else limit
        self.pool = DevicePool(name, HostBlocks(), most)
        self.queue = _Queue(name)

    @property
    def thread_count(self) -> int:
        """Threads that parallel loops run on at most."""
        return self._threads()

    @property
    def info(self) -> Mapping[str, object]:
        """Processor, threads in use and usable memory in bytes."""
        return {"name": platform.processor() or platform.machine(), "threads": self._threads(),
                "memory": self.pool.limit}  # fmt: skip

    def free_compute(self) -> float:
        """Return the share of the processors that one more call would get, from 0 to 1."""
        return min(load.idle_share(usable_cpus()), self.queue.in_flight.free_share())

    def load(self, code: Loadable) -> _Program:
        """Return a compiled kernel ready to be launched.

        Raises
        ------
        CompileError
            If the loader does not take it.
        """
        return _Program(self.name, code, self._loader(code.image, (code.name,)))
