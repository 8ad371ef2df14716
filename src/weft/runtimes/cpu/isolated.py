"""The processor as a device like any other: memory by handles, queues, programs that are loaded.

Kernels are functions of the C ABI, ``i32 NAME(void *const *buffers, const i64 *vars, void
*status)``, that some loader puts into the process: the host's, which links objects, or
`weft.compilers.c_library`, which loads shared libraries. Work is done when a call returns.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft.config import Debug, debug
from weft.errors import CopyError, HandleError, LaunchError
from weft.runtimes.base import Event, Failure, Library, Loadable, View, consume
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool, part

__all__ = ["Block", "IsolatedCpu", "Loader"]

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


class Block:
    """A block of the device's memory, which only its own queue and pool look into."""

    __slots__ = ("address", "device")

    def __init__(self, device: str, address: int) -> None:
        self.device, self.address = device, address

    def __repr__(self) -> str:
        return f"<block of {self.device}>"


class _Memory:
    """Raw memory of the device, see `weft.runtimes.memory.device_pool.Driver`."""

    def __init__(self, device: str) -> None:
        self.device = device

    def take(self, nbytes: int) -> Block | None:
        address = host_memory.acquire(nbytes)
        return Block(self.device, address) if address else None

    def give_back(self, handle: Block, nbytes: int) -> None:
        host_memory.give_back(handle.address, nbytes)

    def write(self, handle: Block, offset: int, source: memoryview) -> None:
        if source.nbytes:
            self._view(handle.address + offset, source.nbytes)[:] = source

    def read(self, handle: Block, offset: int, target: memoryview) -> None:
        if target.nbytes:
            target[:] = self._view(handle.address + offset, target.nbytes)

    @staticmethod
    def _view(address: int, nbytes: int) -> memoryview:
        return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


class _Program:
    """A kernel that was loaded: stateless, launched by any number of threads at once."""

    __slots__ = ("call", "device", "library", "name", "nbuffers", "nvariables")

    def __init__(self, device: str, code: Loadable, library: Library) -> None:
        self.device, self.name, self.library = device, code.name, library
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)
        self.call = _FUNCTION(library[code.name])


class _Launched(Event):
    """A launch that is over, and what stopped it."""

    __slots__ = ("_failure",)

    def __init__(self, device: str, failure: Failure) -> None:
        super().__init__(device)
        self._failure = failure

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch."""
        return self._failure

    def share(self) -> Event:
        """Return another event of the same launch."""
        return _Launched(self.device, self._failure)


class _Queue:
    """Work of the device, done by the time that a call returns."""

    def __init__(self, device: str) -> None:
        self.device = device

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        to, of = part(destination), part(source)
        room = min(to.buffer.nbytes - to.offset, of.buffer.nbytes - of.offset)
        count = of.buffer.nbytes - of.offset if nbytes is None else nbytes
        if not 0 <= count <= room:
            raise CopyError("copy", found=f"{count} bytes where {room} are",
                            expected="no more bytes than both have")
        into, out = self._address(to), self._address(of)
        consume(wait, self.device)
        ctypes.memmove(into, out, count)
        if debug(Debug.COPY):
            print(f"weft: copy of {count} bytes on {self.device}", file=sys.stderr)
        return Event(self.device)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer.
        """
        to = part(target)
        if not 0 <= nbytes <= to.buffer.nbytes - to.offset:
            raise CopyError("fill", found=f"{nbytes} bytes of {to.buffer.nbytes - to.offset}",
                            expected="memory with as many bytes")
        address = self._address(to)
        consume(wait, self.device)
        ctypes.memset(address, byte, nbytes)
        return Event(self.device)

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
        for what, given, wanted in (("buffers", len(buffers), program.nbuffers),
                                    ("variables", len(variables), program.nvariables)):
            if given != wanted:
                raise LaunchError(program.name, found=f"{given} {what}", expected=f"{wanted}")
        for number, value in enumerate(variables):
            if not isinstance(value, int) or not _LEAST <= value < _ABOVE:
                raise LaunchError(program.name, found=f"{value!r} for variable {number}",
                                  expected="an integer of 64 bits")
        addresses = [self._address(part(b)) for b in buffers]
        consume(wait, self.device)
        status = _Status()
        program.call((ctypes.c_void_p * max(len(addresses), 1))(*addresses),
                     (ctypes.c_int64 * max(len(variables), 1))(*variables), ctypes.byref(status))
        if not status.code:
            return Event(self.device)
        return _Launched(self.device, Failure(status.code, status.index, status.bound))

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""

    def _address(self, view: View) -> int:
        handle = getattr(view.buffer, "handle", None)
        if not isinstance(handle, Block) or handle.device != self.device:
            found = getattr(view.buffer, "device", type(view.buffer).__name__)
            raise HandleError("launch", found=f"memory of {found}",
                              expected=f"memory of {self.device}")
        return handle.address + view.offset


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
        self.pool = DevicePool(name, _Memory(name), most)
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
        """Return the share of the CPUs that nothing ran on in the last minute, from 0 to 1."""
        try:
            load = os.getloadavg()[0]
        except (AttributeError, OSError):
            return 1.0
        return max(0.0, 1.0 - load / (os.cpu_count() or 1))

    def load(self, code: Loadable) -> _Program:
        """Return a compiled kernel ready to be launched.

        Raises
        ------
        CompileError
            If the loader does not take it.
        """
        return _Program(self.name, code, self._loader(code.image, (code.name,)))
