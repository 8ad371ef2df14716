"""What every device, pool, queue, program and event offers, and what a runtime is given.

A runtime never imports a compiler: the backend that joins the two hands it an `ObjectCompiler`
and an `ObjectLoader`, of which these protocols are all that it may use.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from weft.errors import HandleError

__all__ = [
    "Device",
    "Event",
    "Library",
    "Memory",
    "ObjectCompiler",
    "ObjectLoader",
    "Pool",
    "Program",
    "Queue",
    "consume",
]


class Event:
    """Something that will have happened on a device: a copy, a launch, an allocation.

    An event may stand in one wait list, which consumes it; using it again is a `HandleError`.
    The base class is the event of a device that finishes its work before it returns.
    """

    __slots__ = ("_consumed", "device")

    def __init__(self, device: str) -> None:
        self.device = device
        self._consumed = False

    @property
    def done(self) -> bool:
        """Whether it has happened; never waits."""
        return True

    def wait(self) -> None:
        """Block until it has happened."""

    def consume(self, device: str) -> None:
        """Take the event into a wait list of ``device``."""
        if self._consumed:
            raise HandleError(
                "wait list",
                found=f"an event of {self.device} that was used before",
                expected="an event that no wait list has had",
            )
        self._consumed = True


def consume(events: Iterable[Event], device: str) -> None:
    """Wait for all ``events`` on the host and consume them."""
    for event in events:
        event.consume(device)
        event.wait()


class Memory(Protocol):
    """A block of device memory."""

    @property
    def nbytes(self) -> int:
        """Size that was asked for, in bytes."""
        ...


class Pool(Protocol):
    """The memory of one device."""

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all blocks that are in use, each at the size it takes up."""
        ...

    @property
    def bytes_free(self) -> int:
        """Bytes that may still be allocated."""
        ...

    def allocate(self, nbytes: int, *, zero: bool = False) -> Any:
        """Return a new buffer of ``nbytes`` bytes; its ``ready`` is the event of its being there.

        Raises
        ------
        AllocationError
            If it does not fit, with all other memory as it was.
        """
        ...

    def free(self, buffer: Any, wait: Iterable[Event] = ()) -> None:
        """Give a buffer back once the events of ``wait`` have happened."""
        ...

    def flush(self) -> int:
        """Return cached memory to the system; return how many bytes that were."""
        ...


class Program(Protocol):
    """A compiled kernel on a device: stateless, used by any number of threads at once."""

    @property
    def name(self) -> str:
        """Name of the kernel."""
        ...


class Queue(Protocol):
    """An order of work on one device."""

    def copy(
        self, destination: Any, source: Any, nbytes: int | None = None, wait: Iterable[Event] = ()
    ) -> Event:
        """Copy bytes after the events of ``wait``."""
        ...

    def launch(
        self,
        program: Any,
        buffers: Sequence[Any],
        variables: Sequence[int] = (),
        wait: Iterable[Event] = (),
    ) -> Event:
        """Run a program on buffers, in its parameter order, after the events of ``wait``."""
        ...

    def synchronize(self) -> None:
        """Block until all work has happened."""
        ...


class Device(Protocol):
    """One device: its name, memory and queues."""

    @property
    def name(self) -> str:
        """Its name as the user writes it, e.g. ``cpu`` or ``cuda:1``."""
        ...

    @property
    def pool(self) -> Pool:
        """Its memory."""
        ...

    @property
    def queue(self) -> Queue:
        """Its default queue."""
        ...

    @property
    def info(self) -> Mapping[str, object]:
        """What the driver says of it: name, memory bytes, units."""
        ...

    def free_compute(self) -> float:
        """Share of its compute that is idle, from 0 to 1, an estimate."""
        ...


class Library(Protocol):
    """Loaded machine code; its addresses are valid as long as it lives."""

    def __getitem__(self, symbol: str) -> int:
        """Return the address of a symbol."""
        ...

    def pin(self) -> None:
        """Keep the code until the process ends."""
        ...


class ObjectCompiler(Protocol):
    """Compiles LLVM IR text to an object."""

    @property
    def cache_key(self) -> str:
        """Identity, version and flags."""
        ...

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the object of ``source``."""
        ...


class ObjectLoader(Protocol):
    """Links objects into this process."""

    def load(
        self,
        objects: bytes | Sequence[bytes],
        symbols: Iterable[str],
        imports: Mapping[str, int] | None = None,
        keep: tuple[object, ...] = (),
    ) -> Library:
        """Return one library of all ``objects``."""
        ...
