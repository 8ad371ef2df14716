"""A device without memory and without work: it counts what a program would take.

Its pool lends out blocks of no memory, up to a limit far above that of any machine, with the same
accounting as every other. Launches and copies do nothing; what is read from it is zeros. So a model
that no machine here could hold is planned and "run", and its plans, bytes and launches are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from weft.errors import CopyError, HandleError, LaunchError
from weft.runtimes.base import Event, Loadable, View, consume
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool, part

__all__ = ["LIMIT", "NullDevice"]

LIMIT: Final = 1 << 40  # bytes


class _Nothing:
    """Blocks that have a size alone."""

    def take(self, nbytes: int) -> int:
        return nbytes

    def give_back(self, handle: int, nbytes: int) -> None:
        pass

    def write(self, handle: int, offset: int, source: memoryview) -> None:
        pass

    def read(self, handle: int, offset: int, target: memoryview) -> None:
        target[:] = bytes(target.nbytes)


class _Program:
    """A kernel by its name and the counts of its arguments."""

    __slots__ = ("device", "name", "nbuffers", "nvariables")

    def __init__(self, device: str, code: Loadable) -> None:
        self.device, self.name = device, code.name
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)


class _Queue:
    """Checks what it is given, and counts it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.launches = self.bytes_copied = 0

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Count a copy.

        Raises
        ------
        CopyError
            If the bytes do not fit.
        HandleError
            If a buffer is another device's or was released.
        """
        to, of = self._own(destination), self._own(source)
        room = min(to.buffer.nbytes - to.offset, of.buffer.nbytes - of.offset)
        count = of.buffer.nbytes - of.offset if nbytes is None else nbytes
        if not 0 <= count <= room:
            raise CopyError("copy", found=f"{count} bytes where {room} are",
                            expected="no more bytes than both have")
        consume(wait, self.device)
        self.bytes_copied += count
        return Event(self.device)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Do nothing.

        Raises
        ------
        CopyError
            If there are fewer bytes.
        """
        to = self._own(target)
        if not 0 <= nbytes <= to.buffer.nbytes - to.offset:
            raise CopyError("fill", found=f"{nbytes} bytes of {to.buffer.nbytes - to.offset}",
                            expected="memory with as many bytes")
        consume(wait, self.device)
        return Event(self.device)

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Count a launch.

        Raises
        ------
        LaunchError
            If the counts of arguments are wrong.
        HandleError
            If a buffer or the program is another device's.
        """
        if not isinstance(program, _Program):
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        if (len(buffers), len(variables)) != (program.nbuffers, program.nvariables):
            raise LaunchError(program.name, found=f"{len(buffers)} buffers and {len(variables)} "
                              "variables", expected=f"{program.nbuffers} and {program.nvariables}")
        for buffer in buffers:
            self._own(buffer)
        consume(wait, self.device)
        self.launches += 1
        return Event(self.device)

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""

    def _own(self, buffer: Any) -> View:
        view = part(buffer)
        if getattr(view.buffer, "device", "") != self.device:
            raise HandleError("queue", found=f"memory of {getattr(view.buffer, 'device', '?')}",
                              expected=f"memory of {self.device}")
        _ = view.buffer.handle  # which raises if it was released
        return view


class NullDevice:
    """The device.

    Attributes
    ----------
    pool : DevicePool
        Accounts for memory that is not there.
    queue : Queue
        ``launches`` and ``bytes_copied`` count what it was given.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool = DevicePool(name, _Nothing(), LIMIT)
        self.queue = _Queue(name)

    @property
    def info(self) -> Mapping[str, object]:
        """Name and limit of memory in bytes."""
        return {"name": "a device without memory and work", "memory": self.pool.limit}

    def free_compute(self) -> float:
        """Return 1: it is never busy."""
        return 1.0

    def load(self, code: Loadable) -> _Program:
        """Return a kernel by its name."""
        return _Program(self.name, code)
