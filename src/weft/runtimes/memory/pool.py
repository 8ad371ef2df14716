"""Pooled host memory.

Blocks come in size classes, eight to each doubling, so that at most an eighth is lost to
rounding; a freed block waits in the list of its class. Taking from a list and appending to it are
atomic, so neither the hot path nor a finaliser takes a lock, and nothing is counted there: what is
in use is what was taken from the system less what waits in the lists.
"""

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from weft.config import Debug, debug
from weft.errors import AllocationError, CopyError, DeallocationError, HandleError
from weft.imports import through_forks
from weft.locks import mutex
from weft.runtimes.base import Event, View, consume, inside
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.buffer import Buffer, FreeList
from weft.runtimes.memory.host_memory import as_bytes

__all__ = ["Apart", "Pool", "block_size", "own", "use"]

_blank = Buffer.__new__
_kind: type[Buffer] = Buffer

# Requests repeat, so their class is looked up. The table is emptied when a program asks for
# ever new sizes.
_MOST_REQUESTS: Final = 8192


def use(kind: type[Buffer]) -> None:
    """Make all buffers from now on of this class, which gives its memory back in native code."""
    global _kind
    _kind = kind


def block_size(nbytes: int) -> int:
    """Return the size of the block that serves ``nbytes``: at most an eighth more, or 64 bytes."""
    if nbytes <= 512:
        return max(nbytes + 63 & -64, 64)
    unit = 1 << max((nbytes - 1).bit_length() - 4, 6)
    if nbytes >= host_memory.MAP_THRESHOLD:
        unit = max(unit, 4096)
    return -(-nbytes // unit) * unit


class Apart(NamedTuple):
    """Places of the values of a plan in an arena in which no two of them share memory.

    Attributes
    ----------
    offsets : list of int
        Where each value begins.
    nbytes : int
        Size of the arena.
    ranges : list of (int, int)
        Begin and bytes of each value that has any.
    """

    offsets: list[int]
    nbytes: int
    ranges: list[tuple[int, int]]


class Pool:
    """Host memory, 64-byte aligned and reused.

    Parameters
    ----------
    limit
        Most bytes that the pool may hold; by default what `host_memory.usable_memory` says.
    device
        The device that allocates from it.
    """

    checks = False  # whether memory is filled or guarded, so that nothing may bypass `allocate`

    def __init__(self, limit: int | None = None, device: str = "cpu") -> None:
        self.device = device
        self._requests: dict[int, FreeList] = {}
        self._classes: dict[int, FreeList] = {}
        self._reserved = 0
        self._closed = False
        self._lock = mutex()
        self.limit = host_memory.usable_memory() if limit is None else limit
        with _adding:
            _pools.add(self)

    def allocate(self, nbytes: int, *, zero: bool = False) -> Buffer:
        """Return a new buffer, filled with zeros if ``zero``.

        Raises
        ------
        AllocationError
            If ``nbytes`` is negative, past what can be addressed, or more than is left after
            all cached blocks were returned to the system. All other memory stays as it was.
        """
        blocks = self._requests.get(nbytes)
        if blocks is None:
            blocks = self._classify(nbytes)
        try:
            address = blocks.pop()
        except IndexError:
            address = self._grow(blocks.size)
            # The system hands out big blocks zeroed; touching them would fault every page in.
            zero = zero and blocks.size < host_memory.MAP_THRESHOLD
        if zero:
            ctypes.memset(address, 0, nbytes)
        buffer = _blank(_kind)
        buffer.address = address
        buffer.nbytes = nbytes
        buffer.version = 0
        buffer._home = blocks
        return buffer

    def blocks(self, nbytes: int) -> FreeList:
        """Return the list with the free blocks that serve requests of this size.

        Raises
        ------
        AllocationError
            If the size is negative or past the limit.
        """
        found = self._requests.get(nbytes)
        return self._classify(nbytes) if found is None else found

    def apart(self, sizes: Sequence[int]) -> Apart:
        """Return places in an arena for values of some sizes, in bytes, none over another."""
        offsets, end = [], 0
        for nbytes in sizes:
            offsets.append(end)
            end += -(-nbytes // host_memory.ALIGNMENT) * host_memory.ALIGNMENT
        return Apart(offsets, end, [r for r in zip(offsets, sizes, strict=True) if r[1]])

    def arena(self, places: Apart) -> Buffer:
        """Return the memory for one run of a plan with such places."""
        return self.allocate(places.nbytes)

    def free(self, buffer: Buffer, wait: Iterable[Event] = ()) -> None:
        """Give a buffer back now, once the events of ``wait`` have happened; consumes them.

        Raises
        ------
        HandleError
            If the buffer belongs to another pool or to none.
        DeallocationError
            If it was given back before.
        """
        if own(buffer).buffer.pool is not self and not buffer.released:
            raise HandleError("free", found="a buffer of another pool", expected="one of this pool")
        consume(wait, "cpu")
        buffer.release()

    @property
    def requests(self) -> dict[int, FreeList]:
        """The lists with free blocks by the sizes of requests, as far as there were such."""
        return self._requests

    @property
    def bytes_reserved(self) -> int:
        """Bytes taken from the system: those in use and those cached."""
        return self._reserved

    @property
    def bytes_cached(self) -> int:
        """Bytes that wait for their next use."""
        return sum(size * len(blocks) for size, blocks in list(self._classes.items()))

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all living buffers, each at the size of its block."""
        with self._lock:
            return self._reserved - self.bytes_cached

    @property
    def bytes_free(self) -> int:
        """Bytes that may still be allocated before the limit."""
        return max(self.limit - self.bytes_in_use, 0)

    def flush(self) -> int:
        """Return all cached blocks to the system; return how many bytes that were."""
        total = 0
        with self._lock:
            for size, blocks in list(self._classes.items()):
                while True:
                    try:
                        address = blocks.pop()
                    except IndexError:
                        break
                    host_memory.give_back(address, size)
                    self._reserved -= size
                    total += size
        if total and debug(Debug.ALLOCATION):
            print(f"weft: pool flushed {total} bytes", file=sys.stderr)
        return total

    def host_to_pool(self, source: object, buffer: Buffer | View,
                     wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy an object with the buffer protocol into the start of ``buffer``."""
        held, offset = own(buffer)
        data = as_bytes(source)
        room = held.nbytes - offset
        if held.readonly or data.nbytes > room:
            raise CopyError(
                "copy to pool",
                found=f"{data.nbytes} bytes for {'a read-only buffer' if held.readonly else ''}"
                f" {room} bytes",
                expected="a writable buffer at least as large as the source",
            )
        consume(wait, "cpu")
        held.view()[offset : offset + data.nbytes] = data
        held.version += 1
        if debug(Debug.COPY):
            print(f"weft: copy of {data.nbytes} bytes to the pool", file=sys.stderr)
        return Event("cpu")

    def pool_to_host(self, buffer: Buffer | View, target: object,
                     wait: Iterable[Event] = ()) -> None:  # fmt: skip
        """Copy the start of ``buffer`` into an object with the buffer protocol, and block."""
        held, offset = own(buffer)
        data = as_bytes(target)
        room = held.nbytes - offset
        if data.readonly or data.nbytes > room:
            raise CopyError(
                "copy from pool",
                found=f"{data.nbytes} bytes wanted of {room}"
                + (", into read-only memory" if data.readonly else ""),
                expected="a writable target no larger than the buffer",
            )
        consume(wait, "cpu")
        data[:] = held.view()[offset : offset + data.nbytes]
        if debug(Debug.COPY):
            print(f"weft: copy of {data.nbytes} bytes from the pool", file=sys.stderr)

    def sync_events(self, events: Iterable[Event]) -> None:
        """Block until all events have happened; consumes them."""
        consume(events, "cpu")

    def release_events(self, events: Iterable[Event]) -> None:
        """Consume events without waiting for them."""
        for event in events:
            event.consume("cpu")

    def deinitialize(self) -> None:
        """Return all memory to the system for good.

        Raises
        ------
        DeallocationError
            If a buffer is still in use; the pool then stays usable.
        """
        in_use = self.bytes_in_use
        if in_use:
            raise DeallocationError("deinitialize", found=f"{in_use} bytes in use", expected="none")
        self._closed = True
        self._requests.clear()
        self.flush()

    def _classify(self, nbytes: int) -> FreeList:
        if self._closed:
            raise HandleError("allocate", found="a pool that was deinitialized")
        counts = hasattr(nbytes, "__index__")
        if not counts or not 0 <= nbytes <= self.limit:
            raise AllocationError(
                "allocate",
                found=f"{nbytes:,} bytes" if counts else f"{nbytes!r} for a number of bytes",
                expected=f"0 to {self.limit:,}, the limit of this pool",
            )
        size = block_size(nbytes)
        with self._lock:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            blocks = self._classes.get(size)
            if blocks is None:
                blocks = self._classes[size] = FreeList(self, size)
            self._requests[nbytes] = blocks
        return blocks

    def _grow(self, size: int) -> int:
        """Take a block from the system, freeing what is cached or unreachable if it has none."""
        with self._lock:
            for free_more in (None, self.flush, self._collect):
                if free_more is not None:
                    free_more()
                if self._reserved + size > self.limit:
                    continue
                address = host_memory.acquire(size)
                if address:
                    self._reserved += size
                    if debug(Debug.ALLOCATION):
                        print(f"weft: pool took {size} bytes", file=sys.stderr)
                    return address
            in_use = self._reserved
        raise AllocationError(
            "allocate",
            found=f"{size:,} bytes with {in_use:,} in use",
            expected=f"at most {self.limit:,} in all",
            hint="release tensors that are no longer needed, or use smaller batches",
        )

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # A buffer refers to its pool, so none is left. At exit the system takes all there is, and
        # the names of this module may be gone, which is why the function is an argument.
        if not is_finalizing():
            self.flush()

    def _collect(self) -> None:
        gc.collect()  # tensors in reference cycles hold memory that nothing can reach
        self.flush()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()
_adding: Final = mutex()


def own(buffer: Buffer | View) -> View:
    """Return memory of this process, or a part of it, as a part.

    Raises
    ------
    HandleError
        If it is something else, or begins outside of the buffer.
    """
    view = buffer if isinstance(buffer, View) else View(buffer)
    if not getattr(view.buffer, "in_process", False):
        found = getattr(view.buffer, "device", type(view.buffer).__name__)
        raise HandleError("pool", found=f"memory of {found}", expected="memory of this process")
    return inside(view)


def _hold() -> Callable[[], None]:
    """Hold all pools for a fork: the child would have the lock of one that grows, locked."""
    _adding.acquire()
    held = list(_pools)
    for pool in held:
        pool._lock.acquire()

    def release() -> None:
        for pool in held:
            pool._lock.release()
        _adding.release()

    return release


through_forks(_hold)
