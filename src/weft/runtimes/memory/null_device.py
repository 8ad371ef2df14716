"""A device without memory and without work: it counts what a program would take.

Its pool lends out blocks of no memory, up to a limit far above that of any machine, with the same
accounting as every other. Launches and copies do nothing; what is read from it is zeros. So a model
that no machine here could hold is planned and "run", and its plans, bytes and launches are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from weft.errors import HandleError
from weft.runtimes.base import Event, Loadable, View, consume
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool
from weft.runtimes.memory.immediate_queue import ImmediateQueue

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


class _Queue(ImmediateQueue):
    """Checks what it is given, and counts it."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.launches = self.bytes_copied = 0

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
        self._given(program.name, buffers, variables, program.nbuffers, program.nvariables)
        with self.in_flight:
            consume(wait, self.device)
            self.launches += 1
        return Event(self.device)

    def _move(self, to: View, of: View, nbytes: int) -> None:
        self.bytes_copied += nbytes

    def _set(self, to: View, nbytes: int, byte: int) -> None:
        """Do nothing."""


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
        """Return the share that one more call would get: its calls may wait for other devices."""
        return self.queue.in_flight.free_share()

    def load(self, code: Loadable) -> _Program:
        """Return a kernel by its name."""
        return _Program(self.name, code)
