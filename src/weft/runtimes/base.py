"""What every device, pool, queue, program and event offers, and what a runtime is given.

A runtime never imports a compiler: the backend that joins the two hands it an `ObjectCompiler`
and an `ObjectLoader`, of which these protocols are all that it may use. A device that is no CPU
implements `Device`, `Pool`, `Queue` and `Event`; `weft.runtimes.memory.device_pool` has a pool for
memory that this process cannot address, and `weft.runtimes.executor` runs plans over the protocols.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from weft.errors import DeviceError, HandleError, WeftError

__all__ = ["Device", "Event", "Failure", "Image", "Library", "Loadable", "Memory",
           "ObjectCompiler", "ObjectLoader", "Pool", "Program", "Queue", "View", "consume",
           "driving", "inside"]  # fmt: skip


class Failure(NamedTuple):
    """The first failure of a kernel: which check, and two numbers about it.

    Attributes
    ----------
    code : int
        Of the messages of the kernel, counted from 1, or a negative one of `weft.renderers.base`.
    value, bound : int
        The index that was out of range and what it had to be below, for checks of bounds.
    """

    code: int
    value: int = 0
    bound: int = 0


class Event:
    """Something that will have happened on a device: a copy, a launch, an allocation.

    An event may stand in one wait list, which consumes it; using it again is a `HandleError`.
    The base class is the event of a device that finishes its work before it returns.

    Attributes
    ----------
    order : object
        What a queue that keeps the order of its work has in common with its events
        (``queue.order``), else None.
    """

    __slots__ = ("_consumed", "device")

    order: Any = None

    def __init__(self, device: str) -> None:
        self.device = device
        self._consumed = False

    @property
    def done(self) -> bool:
        """Whether it has happened; never waits."""
        return True

    def precedes(self, order: object) -> bool:
        """Whether what a queue of such an order is given from now on happens later anyway."""
        return (order is not None and order is self.order) or self.done

    def wait(self) -> None:
        """Block until it has happened."""

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch that it is the event of, once that has happened."""
        return None

    @property
    def interval(self) -> tuple[int, int] | None:
        """When it began and ended, in nanoseconds of `time.monotonic_ns`, if the device tells.

        It is asked once the event has happened, and by profiles alone.
        """
        return None

    def share(self) -> "Event":
        """Return another event of the same thing, for another wait list."""
        return Event(self.device)

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


class driving:
    """Makes what a driver throws an error of its device, in a ``with`` statement.

    Raises
    ------
    DeviceError
        Of the type `error`, for whatever is no error of Weft and no interrupt.
    """

    __slots__ = ("_device", "_error")

    def __init__(self, device: str, error: type[DeviceError] = DeviceError) -> None:
        self._device, self._error = device, error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, wrong: BaseException | None, trace: object) -> None:
        if isinstance(wrong, Exception) and not isinstance(wrong, WeftError):
            raise self._error(self._device, found=f"{type(wrong).__name__}: {wrong}",
                              expected="a driver that works",
                              hint="tensors of other devices are as they were") from wrong


class Memory(Protocol):
    """A block of device memory."""

    @property
    def nbytes(self) -> int:
        """Size that was asked for, in bytes."""
        ...


class View(NamedTuple):
    """A part of a block of device memory.

    Attributes
    ----------
    buffer : Memory
        The block.
    offset : int
        Where the part begins, in bytes.
    """

    buffer: Any
    offset: int = 0


def inside(view: View) -> View:
    """Return a part of a buffer if it begins in it.

    Raises
    ------
    HandleError
        If it begins before or behind it, where other memory is.
    """
    try:
        begins_inside = 0 <= view.offset <= view.buffer.nbytes
    except TypeError:
        begins_inside = False
    if not begins_inside:
        raise HandleError("part of a buffer", found=f"a begin at byte {view.offset!r}",
                          expected=f"one from 0 to {view.buffer.nbytes}, the bytes of the buffer")
    return view


class Loadable(Protocol):
    """A compiled kernel, as a runtime loads it."""

    @property
    def name(self) -> str:
        """Its entry."""
        ...

    @property
    def image(self) -> bytes:
        """What the compiler of the device made."""
        ...

    @property
    def variables(self) -> Sequence[str]:
        """Its variables in ABI order."""
        ...

    @property
    def nbuffers(self) -> int:
        """How many buffers a launch takes."""
        ...


class Image(NamedTuple):
    """A compiled kernel as data; see `Loadable`."""

    name: str
    image: bytes
    variables: Sequence[str]
    nbuffers: int


class Pool(Protocol):
    """The memory of one device."""

    @property
    def device(self) -> str:
        """Name of the device."""
        ...

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

    def host_to_pool(self, source: object, buffer: Any, wait: Iterable[Event] = ()) -> Event:
        """Copy an object of contiguous host memory into a buffer (or `View`)."""
        ...

    def pool_to_host(self, buffer: Any, target: object, wait: Iterable[Event] = ()) -> None:
        """Copy a buffer (or `View`) into an object of contiguous host memory, and block."""
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
        """Copy bytes between buffers (or views) of the device after the events of ``wait``."""
        ...

    def fill(self, target: Any, nbytes: int, byte: int = 0, wait: Iterable[Event] = ()) -> Event:
        """Set bytes of a buffer (or view) after the events of ``wait``."""
        ...

    def launch(
        self,
        program: Any,
        buffers: Sequence[Any],
        variables: Sequence[int] = (),
        wait: Iterable[Event] = (),
        groups: Sequence[int] = (),
        threads: Sequence[int] = (),
    ) -> Event:
        """Run a program on buffers (or views), in its parameter order, after those events.

        ``groups`` and ``threads`` are the blocks of threads and the threads of a block along x, y
        and z, where the device has any. What stops the kernel is the `Event.failure`.
        """
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
        """What the driver says of it: name, memory bytes, units.

        ``flops`` (operations of float32 a second), ``bandwidth`` and ``link`` (bytes a second of
        its memory, and of copies from other devices) are what ``device="auto"`` weighs; without
        them it goes by the target.
        """
        ...

    def free_compute(self) -> float:
        """Share of its compute that one more piece of work would get, from 0 to 1.

        It falls while work is under way (`weft.runtimes.load`), and costs microseconds to ask:
        ``device="auto"`` places work by it.
        """
        ...

    def load(self, code: Loadable) -> Program:
        """Return a compiled kernel ready to be launched.

        Raises
        ------
        CompileError
            If the device does not take it.
        """
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
