"""The device ``interpreter``: kernels of tensors run one instruction after another, in Python.

What is loaded is the text of a kernel at kernel level, and what runs is its meaning
(`weft.ir.interpret`): each access is checked, and so is each read of private memory. Memory is that
of this process, so kernels of threads run on it in lockstep (`weft.runtimes.lockstep`), with the
sanitiser too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft.errors import CopyError, HandleError, LaunchError, WeftError
from weft.ir.interpret.interpret import run_linear
from weft.ir.linear import LinearKernel
from weft.ir.size import evaluate
from weft.ir.text.text_parse_linear import parse_linear
from weft.runtimes.base import Event, Failure, Loadable, View, consume
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool, part

__all__ = ["InterpreterDevice"]


class _Buffer(DeviceBuffer):
    """A block of memory that addresses of this process lead to."""

    __slots__ = ("exposed",)

    in_process: Final = True  # type: ignore[misc]

    def __init__(self, pool: DevicePool, block: tuple[Any, int], nbytes: int) -> None:
        super().__init__(pool, block, nbytes)
        self.exposed = False  # type: ignore[misc]

    @property
    def address(self) -> int:
        """Where it begins."""
        found: int = self.handle
        return found

    def view(self) -> memoryview:
        """Return the bytes as a memoryview, which keeps the buffer alive."""
        array = (ctypes.c_char * self.nbytes).from_address(self.address)
        array.buffer = self  # type: ignore[attr-defined]
        return memoryview(array).cast("B")


class _Memory:
    """Memory of the host."""

    def take(self, nbytes: int) -> int | None:
        return host_memory.acquire(nbytes) or None

    def give_back(self, handle: int, nbytes: int) -> None:
        host_memory.give_back(handle, nbytes)

    def write(self, handle: int, offset: int, source: memoryview) -> None:
        if source.nbytes:
            _bytes_at(handle + offset, source.nbytes)[:] = source

    def read(self, handle: int, offset: int, target: memoryview) -> None:
        if target.nbytes:
            target[:] = _bytes_at(handle + offset, target.nbytes)


def _bytes_at(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


class _Program:
    """A kernel at kernel level, whose messages are their own numbers."""

    __slots__ = ("kernel", "name")

    def __init__(self, kernel: LinearKernel) -> None:
        self.kernel, self.name = kernel, kernel.name


class _Stopped(Event):
    """A launch that failed."""

    __slots__ = ("_failure",)

    def __init__(self, device: str, failure: Failure) -> None:
        super().__init__(device)
        self._failure = failure

    @property
    def failure(self) -> Failure | None:
        """What stopped it."""
        return self._failure

    def share(self) -> Event:
        """Return another event of the same launch."""
        return _Stopped(self.device, self._failure)


class _Queue:
    """Work that is done when a call returns."""

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
        """Run a kernel on buffers, in its parameter order.

        Raises
        ------
        LaunchError
            If the counts of arguments are wrong.
        HandleError
            If a buffer or the program is another device's.
        BoundsError
            If code that was generated leaves its memory, which is a fault of Weft.
        """
        if not isinstance(program, _Program):
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        kernel = program.kernel
        if (len(buffers), len(variables)) != (len(kernel.params), len(kernel.variables)):
            raise LaunchError(program.name, found=f"{len(buffers)} buffers and {len(variables)} "
                              "variables", expected=f"{len(kernel.params)} and "
                              f"{len(kernel.variables)}")
        consume(wait, self.device)
        values = {v.attr.name: n for v, n in zip(kernel.variables, variables, strict=True)}
        arrays = []
        for memory, buffer in zip(kernel.params, buffers, strict=True):
            count = evaluate(memory.size, values)
            raw = _bytes_at(self._address(part(buffer)), max(count * memory.dtype.itemsize, 1))
            arrays.append(np.frombuffer(raw, memory.dtype.numpy, count))
        try:
            run_linear(kernel, arrays, values)
        except WeftError as error:
            if not error.operation.isdecimal():
                raise
            bound = str(error.expected or "").removeprefix("within ")
            return _Stopped(self.device, Failure(
                int(error.operation), int(error.found or 0), int(bound or 0)))
        return Event(self.device)

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""

    def _address(self, view: View) -> int:
        if getattr(view.buffer, "device", "") != self.device:
            raise HandleError("launch", found=f"memory of {getattr(view.buffer, 'device', '?')}",
                              expected=f"memory of {self.device}")
        found: int = view.buffer.address
        return found + view.offset


class InterpreterDevice:
    """The device."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool = DevicePool(name, _Memory(), host_memory.usable_memory(), _Buffer)
        self.queue = _Queue(name)

    @property
    def info(self) -> Mapping[str, object]:
        """Name and usable memory in bytes."""
        return {"name": "kernels one instruction after another", "memory": self.pool.limit}

    def free_compute(self) -> float:
        """Return 1: it is never busy with what nobody asked for."""
        return 1.0

    def load(self, code: Loadable) -> _Program:
        """Return a kernel from its text.

        Raises
        ------
        ParseError
            If the text is broken.
        """
        return _Program(parse_linear(code.image.decode()))
