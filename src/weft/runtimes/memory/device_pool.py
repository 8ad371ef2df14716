"""Pooled memory that this process cannot address: blocks that a driver names by handles.

A device gives `DevicePool` a `Driver`, four functions on raw memory. The pool adds size classes,
exact accounting, a limit, and flush and retry when memory runs out. A buffer notes the events of
what was last done with it, so that a block is used again only when that is over.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from weft.config import Debug, debug
from weft.errors import AllocationError, CopyError, DeallocationError, DeviceError, HandleError
from weft.ir.node import HOST
from weft.locks import mutex
from weft.runtimes import trace
from weft.runtimes.base import Event, View, consume, driving, inside
from weft.runtimes.memory.host_memory import as_bytes
from weft.runtimes.memory.pool import block_size

__all__ = ["AllOf", "DeviceBuffer", "DevicePool", "Driver", "part"]


class Driver(Protocol):
    """Raw memory of one device."""

    def take(self, nbytes: int) -> Any:
        """Return the handle of a new block, or None if the device has no memory left."""
        ...

    def give_back(self, handle: Any, nbytes: int) -> None:
        """Free a block."""
        ...

    def write(self, handle: Any, offset: int, source: memoryview) -> None:
        """Copy host memory into a block, and return when that is done."""
        ...

    def read(self, handle: Any, offset: int, target: memoryview) -> None:
        """Copy a block into host memory, and return when that is done."""
        ...


class DeviceBuffer:
    """A block of device memory; it goes back to its pool when nothing refers to it.

    Attributes
    ----------
    pool : DevicePool
        Where it comes from.
    handle : object
        What the driver calls it. Reading it after `release` is a `HandleError`.
    nbytes : int
        Size that was asked for, in bytes.
    version : int
        Counts the writes.
    uses : list of Event
        What was done with it and may not have happened yet.
    in_process, exposed : bool
        Never: no address of this process leads to the memory, and nobody else has it.
    readonly : bool
        Whether nothing may write to it.
    """

    __slots__ = ("__weakref__", "_block", "nbytes", "pool", "uses", "version")

    in_process: Final = False
    on_host: Final = False
    readonly: bool = False
    exposed: Final = False
    owner: Final = None

    def __init__(self, pool: DevicePool, block: tuple[Any, int], nbytes: int) -> None:
        self.pool, self.nbytes, self.version = pool, nbytes, 0
        self.uses: list[Event] = []
        self._block: tuple[Any, int] | None = block

    @property
    def device(self) -> str:
        """The device whose memory it is."""
        return self.pool.device

    @property
    def handle(self) -> Any:
        """What the driver calls the block."""
        if self._block is None:
            raise HandleError("buffer", found="a buffer whose memory was given back")
        return self._block[0]

    @property
    def address(self) -> int:
        """Refuse to tell an address.

        Raises
        ------
        DeviceError
            Always: the memory is not in this process.
        """
        raise DeviceError("address", found=f"memory of {self.device}",
                          expected="memory of this process", hint="copy it, as in x.to('cpu')")

    @property
    def released(self) -> bool:
        """Whether the memory was given back."""
        return self._block is None

    @property
    def ready(self) -> Event:
        """An event that has happened once all that was begun with the buffer is over."""
        return AllOf(self.device, [e.share() for e in self.pending()])

    def pending(self) -> list[Event]:
        """Return the events of what may not have happened yet."""
        self.uses = [e for e in self.uses if not e.done]
        return self.uses

    def used(self, event: Event) -> None:
        """Note an event of something that was begun with the buffer."""
        if not event.done:
            earlier = [e for e in self.uses if not e.precedes(event.order)]
            self.uses = [*earlier, event.share()]

    def release(self) -> None:
        """Give the memory back now; using the buffer afterwards is a `HandleError`."""
        block, self._block = self._block, None
        if block is None:
            raise DeallocationError("release", found="a buffer that was released before")
        self.pool.put_back(block, self.uses)

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        block = getattr(self, "_block", None)
        if block is not None and not is_finalizing():
            self._block = None
            self.pool.put_back(block, self.uses)

    def __repr__(self) -> str:
        state = "released" if self.released else f"on {self.device}"
        return f"<{type(self).__name__} of {self.nbytes} bytes, {state}>"


class AllOf(Event):
    """Several events as one."""

    __slots__ = ("_events",)

    def __init__(self, device: str, events: list[Event]) -> None:
        super().__init__(device)
        self._events = events

    @property
    def parts(self) -> list[Event]:
        """The events that it stands for."""
        return self._events

    @property
    def done(self) -> bool:
        """Whether all have happened."""
        return all(e.done for e in self._events)

    def precedes(self, order: object) -> bool:
        """Whether what a queue of such an order is given from now on happens after all."""
        return all(e.precedes(order) for e in self._events)

    def wait(self) -> None:
        """Block until all have happened."""
        for event in self._events:
            event.wait()

    def share(self) -> Event:
        """Return another event of the same things."""
        return AllOf(self.device, [e.share() for e in self._events])


class DevicePool:
    """The memory of one device.

    Parameters
    ----------
    device
        Its name.
    driver
        Raw memory.
    limit
        Most bytes that the pool may hold.
    kind
        The class of its buffers.
    """

    checks = False

    def __init__(self, device: str, driver: Driver, limit: int,
                 kind: type[DeviceBuffer] = DeviceBuffer) -> None:  # fmt: skip
        self.device, self.limit, self._kind = device, limit, kind
        self._driver = driver
        self._order = getattr(driver, "order", None)  # of a device with one queue, in order
        self._lock = mutex()
        self._free: dict[int, list[tuple[Any, list[Event]]]] = {}
        self._returned: deque[tuple[tuple[Any, int], list[Event]]] = deque()  # by finalizers
        self._reserved = self._cached = 0
        self._closed = False

    def allocate(self, nbytes: int, *, zero: bool = False) -> DeviceBuffer:
        """Return a new buffer, filled with zeros if ``zero``.

        Raises
        ------
        AllocationError
            If ``nbytes`` is negative, or more than is left after all cached blocks were returned
            to the device. All other memory stays as it was.
        """
        if self._closed:
            raise HandleError("allocate", found="a pool that was deinitialized")
        counts = isinstance(nbytes, int)
        if not counts or not 0 <= nbytes <= self.limit:
            raise AllocationError("allocate", found=f"{nbytes:,} bytes" if counts else
                                  f"{nbytes!r} for a number of bytes",
                                  expected=f"0 to {self.limit:,}, the limit of {self.device}")
        size = block_size(nbytes)
        handle = self._reuse(size)
        if handle is None:
            handle = self._grow(size)
        buffer = self._kind(self, (handle, size), nbytes)
        if zero:
            clear = getattr(self._driver, "clear", None)  # of drivers that need no host memory
            with driving(self.device, CopyError):
                if clear is not None:
                    clear(handle, nbytes)
                else:
                    self._driver.write(handle, 0, memoryview(bytes(nbytes)))
        return buffer

    def free(self, buffer: DeviceBuffer, wait: Iterable[Event] = ()) -> None:
        """Give a buffer back; its memory is used again once the events of ``wait`` have happened.

        Raises
        ------
        HandleError
            If the buffer belongs to another pool, or an event was used before.
        DeallocationError
            If it was given back before.
        """
        if getattr(buffer, "pool", None) is not self:
            raise HandleError("free", found="a buffer of another pool", expected="one of this pool")
        for event in wait:
            event.consume(self.device)
            buffer.used(event)
        buffer.release()

    def put_back(self, block: tuple[Any, int], uses: list[Event]) -> None:
        """Take a block back that is free once some events have happened.

        Finalizers call this at any moment, so it takes no lock.
        """
        self._returned.append((block, uses))

    def _sort(self) -> None:
        """Put the blocks that came back into the lists of their sizes, under the lock."""
        while self._returned:
            (handle, size), uses = self._returned.popleft()
            self._free.setdefault(size, []).append((handle, uses))
            self._cached += size

    @property
    def bytes_reserved(self) -> int:
        """Bytes taken from the device: those in use and those cached."""
        return self._reserved

    @property
    def bytes_cached(self) -> int:
        """Bytes that wait for their next use."""
        with self._lock:
            self._sort()
            return self._cached

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all living buffers, each at the size of its block."""
        with self._lock:
            self._sort()
            return self._reserved - self._cached

    @property
    def bytes_free(self) -> int:
        """Bytes that may still be allocated before the limit."""
        return max(self.limit - self.bytes_in_use, 0)

    def flush(self) -> int:
        """Return all cached blocks to the device; return how many bytes that were."""
        with self._lock:
            self._sort()
            blocks = [(size, *entry) for size, entries in self._free.items() for entry in entries]
            self._free.clear()
            self._cached = 0
        total = sum(size for size, *_ in blocks)
        try:
            while blocks:
                size, handle, uses = blocks[-1]
                for event in uses:
                    event.wait()
                blocks.pop()
                with self._lock:
                    self._reserved -= size
                self._driver.give_back(handle, size)
        finally:  # what an interrupt or an error has left is cached as before
            for size, handle, uses in blocks:
                self.put_back((handle, size), uses)
        if total and debug(Debug.ALLOCATION):
            print(f"weft: pool of {self.device} flushed {total} bytes", file=sys.stderr)
        return total

    def host_to_pool(self, source: object, buffer: Any, wait: Iterable[Event] = ()) -> Event:
        """Copy an object with the buffer protocol into the start of a buffer (or `View`).

        Raises
        ------
        CopyError
            If it does not fit.
        HandleError
            If the buffer belongs to another pool, or was given back.
        """
        target = self._own(buffer)
        data = as_bytes(source)
        if data.nbytes > target.buffer.nbytes - target.offset:
            raise CopyError("copy to pool", found=f"{data.nbytes} bytes for a buffer of "
                            f"{target.buffer.nbytes - target.offset}", expected="bytes that fit")
        consume(wait, self.device)
        self._await_uses(target.buffer)
        begun = trace.clock()
        with driving(self.device, CopyError):
            self._driver.write(target.buffer.handle, target.offset, data)
        trace.copied(begun, HOST, self.device, data.nbytes)
        target.buffer.version += 1
        if debug(Debug.COPY):
            print(f"weft: copy of {data.nbytes} bytes to {self.device}", file=sys.stderr)
        return Event(self.device)

    def pool_to_host(self, buffer: Any, target: object, wait: Iterable[Event] = ()) -> None:
        """Copy the start of a buffer (or `View`) into an object with the buffer protocol.

        Raises
        ------
        CopyError
            If the target is read-only, or larger than the buffer.
        HandleError
            If the buffer belongs to another pool, or was given back.
        """
        source = self._own(buffer)
        data = as_bytes(target)
        if data.readonly or data.nbytes > source.buffer.nbytes - source.offset:
            raise CopyError("copy from pool", found=f"{data.nbytes} bytes wanted of "
                            f"{source.buffer.nbytes - source.offset}",
                            expected="a writable target no larger than the buffer")
        consume(wait, self.device)
        self._await_uses(source.buffer)
        begun = trace.clock()
        with driving(self.device, CopyError):
            self._driver.read(source.buffer.handle, source.offset, data)
        trace.copied(begun, self.device, HOST, data.nbytes)
        if debug(Debug.COPY):
            print(f"weft: copy of {data.nbytes} bytes from {self.device}", file=sys.stderr)

    def host_view(self, buffer: Any, nbytes: int) -> memoryview | None:
        """Return the first bytes of a buffer (or `View`) as memory of this process, to copy.

        None where no address leads to it. All that was begun with the buffer is over then. What is
        returned is valid as long as the buffer is, and must not be kept.
        """
        find = getattr(self._driver, "host_view", None)
        if find is None:
            return None
        place = part(buffer)
        self._await_uses(place.buffer)
        found: memoryview = find(place.buffer.handle, place.offset, nbytes)
        return found

    def sync_events(self, events: Iterable[Event]) -> None:
        """Block until all events have happened; consumes them."""
        consume(events, self.device)

    def release_events(self, events: Iterable[Event]) -> None:
        """Consume events without waiting for them."""
        for event in events:
            event.consume(self.device)

    def deinitialize(self) -> None:
        """Return all memory to the device for good.

        Raises
        ------
        DeallocationError
            If a buffer is still in use; the pool then stays usable.
        """
        if in_use := self.bytes_in_use:
            raise DeallocationError("deinitialize", found=f"{in_use} bytes in use", expected="none")
        self._closed = True
        self.flush()

    def _own(self, buffer: Any) -> View:
        """Return a buffer of this pool, or a part of one, as a part."""
        view = part(buffer)
        if getattr(view.buffer, "pool", None) is not self:
            found = getattr(view.buffer, "device", type(view.buffer).__name__)
            raise HandleError("pool", found=f"memory of {found}",
                              expected=f"a buffer of the pool of {self.device}")
        return inside(view)

    def _await_uses(self, buffer: DeviceBuffer) -> None:
        """Wait for all that was begun with a buffer."""
        if buffer.pool is not self:
            raise HandleError("copy", found=f"a buffer of {buffer.device}",
                              expected=f"one of {self.device}")
        for event in buffer.pending():
            event.wait()

    def _reuse(self, size: int) -> Any:
        """Return a cached block of a size, one whose work is over if there is one."""
        with self._lock:
            self._sort()
            blocks = self._free.get(size)
            if not blocks:
                return None
            number = next((i for i, (_, uses) in enumerate(blocks)
                           if all(e.precedes(self._order) for e in uses)), 0)  # fmt: skip
            handle, uses = blocks.pop(number)
            self._cached -= size
        try:
            for event in uses:
                if not event.precedes(self._order):
                    event.wait()
        except BaseException:
            self.put_back((handle, size), uses)
            raise
        return handle

    def _grow(self, size: int) -> Any:
        """Take a block from the device, freeing what is cached or unreachable if it has none."""
        for free_more in (None, self.flush, self._collect):
            if free_more is not None:
                free_more()
            with self._lock:
                if self._reserved + size > self.limit:
                    continue
                self._reserved += size
            try:
                with driving(self.device):
                    handle = self._driver.take(size)
            except BaseException:
                with self._lock:
                    self._reserved -= size
                raise
            if handle is not None:
                if debug(Debug.ALLOCATION):
                    print(f"weft: pool of {self.device} took {size} bytes", file=sys.stderr)
                return handle
            with self._lock:
                self._reserved -= size
        raise AllocationError(
            "allocate", found=f"{size:,} bytes with {self._reserved:,} in use on {self.device}",
            expected=f"at most {self.limit:,} in all",
            hint="release tensors that are no longer needed, or use smaller batches")

    def _collect(self) -> None:
        gc.collect()  # tensors in reference cycles hold memory that nothing can reach
        self.flush()


def part(buffer: Any) -> View:
    """Return a buffer, or a part of one, as a part."""
    return buffer if isinstance(buffer, View) else View(buffer)
