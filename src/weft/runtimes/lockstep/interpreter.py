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

from weft.errors import HandleError, WeftError
from weft.ir.interpret.interpret import run_linear
from weft.ir.linear import LinearKernel
from weft.ir.size import evaluate
from weft.ir.text.text_parse_linear import parse_linear
from weft.runtimes.base import Event, Failure, Loadable, View, consume
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool
from weft.runtimes.memory.immediate_queue import HostBlocks, ImmediateQueue, Stopped, bytes_at

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


class _Program:
    """A kernel at kernel level, whose messages are their own numbers."""

    __slots__ = ("kernel", "name")

    def __init__(self, kernel: LinearKernel) -> None:
        self.kernel, self.name = kernel, kernel.name


class _Queue(ImmediateQueue):
    """Work of the device."""

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
        views = self._given(program.name, buffers, variables, len(kernel.params),
                            len(kernel.variables))
        with self.in_flight:
            consume(wait, self.device)
            values = {v.attr.name: n for v, n in zip(kernel.variables, variables, strict=True)}
            arrays = []
            for memory, view in zip(kernel.params, views, strict=True):
                count = evaluate(memory.size, values)
                raw = bytes_at(self._address(view), max(count * memory.dtype.itemsize, 1))
                arrays.append(np.frombuffer(raw, memory.dtype.numpy, count))
            try:
                run_linear(kernel, arrays, values)
            except WeftError as error:
                if not error.operation.isdecimal():
                    raise
                bound = str(error.expected or "").removeprefix("within ")
                return Stopped(self.device, Failure(
                    int(error.operation), int(error.found or 0), int(bound or 0)))
        return Event(self.device)


class InterpreterDevice:
    """The device."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool = DevicePool(name, HostBlocks(), host_memory.usable_memory(), _Buffer)
        self.queue = _Queue(name)

    @property
    def info(self) -> Mapping[str, object]:
        """Name and usable memory in bytes."""
        return {"name": "kernels one instruction after another", "memory": self.pool.limit}

    def free_compute(self) -> float:
        """Return the share that one more call would get."""
        return self.queue.in_flight.free_share()

    def load(self, code: Loadable) -> _Program:
        """Return a kernel from its text.

        Raises
        ------
        ParseError
            If the text is broken.
        """
        return _Program(parse_linear(code.image.decode()))
