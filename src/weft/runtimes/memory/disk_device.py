"""The device whose memory is files: places in them are read when they are copied elsewhere.

Its buffers are parts of opened files, which nothing writes to. There is no compute: queues refuse
all work, and what is not a copy to another device never gets here (`weft.ir.op.storage_only`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from weft.errors import CompileError, CopyError, DeviceError, HandleError, ParseError
from weft.runtimes.base import Event, Loadable
from weft.runtimes.memory.device_pool import DeviceBuffer, DevicePool
from weft.runtimes.memory.stored_file import StoredFile

__all__ = ["DiskBuffer", "DiskDevice", "DiskPool", "Place"]

_PIECE: Final = 1 << 20  # bytes that are checked at once
# Lines that are read one by one: more of them only where each is long, for each costs a call.
_MOST_LINES: Final = 1 << 10
_LONG_LINE: Final = 512  # bytes
_LIMIT: Final = 1 << 62  # bytes of all places together, some of them several times
_MOVE: Final = "copy what is to be computed with to another device, as in x.to('cpu')"
_SAVE: Final = "weft.save(tensors, path) writes files"


class Place(NamedTuple):
    """A part of a file, or lines of it that are read as if they lay one behind the other.

    Attributes
    ----------
    file : StoredFile
        The file, which stays open as long as a buffer lies in it.
    offset : int
        Where the part, or its first line, begins, in bytes.
    is_bool : bool
        Whether its bytes are truth values, of which there are 0 and 1 alone.
    axes : tuple of (int, int)
        Of lines: how many there are along each axis, and how many bytes from one to the next.
    line : int
        Bytes of each line.
    skipped : int
        Bytes of the lines before those of this part.
    """

    file: StoredFile
    offset: int
    is_bool: bool = False
    axes: tuple[tuple[int, int], ...] = ()
    line: int = 0
    skipped: int = 0

    @property
    def path(self) -> str:
        """Name of the file when it was opened."""
        return self.file.path

    def at(self, offset: int) -> Place:
        """Return the place that begins some bytes further on."""
        if self.axes:
            return self._replace(skipped=self.skipped + offset)
        return self._replace(offset=self.offset + offset)

    def bounds(self, nbytes: int) -> tuple[int, int]:
        """Return the first byte of the file that a part of some bytes may read, and the end."""
        if not self.axes:
            return self.offset, self.offset + nbytes
        ends = [(count - 1) * step for count, step in self.axes]
        return (self.offset + sum(min(0, e) for e in ends),
                self.offset + sum(max(0, e) for e in ends) + self.line)

    def read(self, target: memoryview) -> None:
        """Fill memory with the bytes from here on."""
        if self.axes:
            self.file.read_all(self._lines(target))
        else:
            self.file.read(self.offset, target)

    def _lines(self, target: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield where each line begins in the file, and the memory for it."""
        number, skipped = divmod(self.skipped, self.line)
        done = 0
        while done < target.nbytes:
            piece = target[done : done + self.line - skipped]
            yield self._line(number) + skipped, piece
            done, number, skipped = done + piece.nbytes, number + 1, 0

    def _line(self, number: int) -> int:
        """Return where a line begins in the file."""
        start = self.offset
        for count, step in reversed(self.axes):
            number, index = divmod(number, count)
            start += index * step
        return start


class DiskBuffer(DeviceBuffer):
    """A part of a file as a buffer; its ``handle`` is a `Place`."""

    __slots__ = ()

    readonly = True
    pool: DiskPool

    def part(self, offset: int, nbytes: int) -> DiskBuffer:
        """Return a part of this part, from ``offset`` on, as a buffer of its own.

        Raises
        ------
        HandleError
            If it was released, or has not as many bytes.
        """
        place: Place = self.handle
        if not 0 <= offset <= offset + nbytes <= self.nbytes:
            raise HandleError("part", found=f"bytes {offset} to {offset + nbytes}",
                              expected=f"a part of {self.nbytes}")
        return self.pool.hold(place.at(offset), nbytes)

    def lines(self, offset: int, shape: Sequence[int], steps: Sequence[int], nbytes: int
              ) -> DiskBuffer | None:  # fmt: skip
        """Return elements that do not lie one behind the other as a buffer of their own.

        None if there are too many runs of neighbours among them to be read one by one.

        Parameters
        ----------
        offset
            Where the first element begins, in bytes.
        shape, steps
            Elements along each axis, and bytes from each to the next.
        nbytes
            Of one element.
        """
        place: Place = self.handle
        if place.axes:
            return None
        axes = [(n, step) for n, step in zip(shape, steps, strict=True) if n != 1]
        line = nbytes
        while axes and axes[-1][1] == line:
            line *= axes.pop()[0]
        count = math.prod(n for n, _ in axes)
        if count > _MOST_LINES and line < _LONG_LINE:
            return None
        whole = place._replace(offset=place.offset + offset, axes=tuple(axes), line=line)
        return self.pool.hold(whole, count * line)


class _Files:
    """Raw memory, see `weft.runtimes.memory.device_pool.Driver`; handles are places."""

    def take(self, nbytes: int) -> None:
        """Return None: a place in a file is opened, and never allocated."""

    def give_back(self, handle: Place, nbytes: int) -> None:
        """Do nothing: the file is closed when its last place is forgotten."""

    def write(self, handle: Place, offset: int, source: memoryview) -> None:
        """Refuse to write.

        Raises
        ------
        CopyError
            Always.
        """
        raise CopyError("copy to disk", found=f"a write to {handle.path}",
                        expected="a read", hint=_SAVE)

    def read(self, handle: Place, offset: int, target: memoryview) -> None:
        """Read a part of a place.

        Raises
        ------
        CopyError
            If the file is not what it was, or cannot be read.
        ParseError
            If a truth value is neither 0 nor 1.
        """
        handle.at(offset).read(target)
        if handle.is_bool:
            for at in range(0, target.nbytes, _PIECE):
                wrong = bytes(target[at : at + _PIECE]).translate(None, b"\x00\x01")
                if wrong:
                    raise ParseError(f"read {handle.path}", found=f"the byte {wrong[0]} for a bool",
                                     expected="0 or 1", hint="the file is damaged")


class DiskPool(DevicePool):
    """Places in files, accounted for as long as somebody holds them.

    Parameters
    ----------
    device
        Name of the device.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device, _Files(), _LIMIT, DiskBuffer)

    @property
    def bytes_free(self) -> int:
        """Bytes that are free on the file system of the working directory."""
        import shutil  # which programs that ask for nothing do not need

        return shutil.disk_usage(os.curdir).free

    def open(self, path: str) -> StoredFile:
        """Open a file to read; see `StoredFile`."""
        return StoredFile(path)

    def hold(self, place: Place, nbytes: int) -> DiskBuffer:
        """Return a part of a file as a buffer. Nothing is read.

        Raises
        ------
        HandleError
            If the pool was deinitialized, or the file has not as many bytes.
        """
        if self._closed:
            raise HandleError("hold", found="a pool that was deinitialized")
        first, end = place.bounds(nbytes)
        if nbytes < 0 or not 0 <= first <= end <= place.file.size:
            raise HandleError("hold", found=f"bytes {first:,} to {end:,}",
                              expected=f"a part of {place.file.size:,} bytes, {place.path}")
        with self._lock:
            self._sort()
            self._reserved += nbytes
        return DiskBuffer(self, (place, nbytes), nbytes)

    def allocate(self, nbytes: int, *, zero: bool = False) -> NoReturn:
        """Refuse to make memory.

        Raises
        ------
        DeviceError
            Always: what is on disk was written by `weft.save`, or another program.
        """
        raise DeviceError(self.device, found=f"{nbytes:,} bytes to be allocated",
                          expected="parts of files that are there", hint=_SAVE)

    def host_to_pool(self, source: object, buffer: Any, wait: Iterable[Event] = ()) -> NoReturn:
        """Refuse to write to a file that others read.

        Raises
        ------
        CopyError
            Always.
        """
        raise CopyError("copy to disk", found="a write", expected="a read", hint=_SAVE)

    def put_back(self, block: tuple[Any, int], uses: list[Event]) -> None:
        """Account for a place that nobody holds; takes no lock, as finalizers call it."""
        self._returned.append(((None, block[1]), []))

    def _sort(self) -> None:
        while self._returned:
            self._reserved -= self._returned.popleft()[0][1]


class _Queue:
    """Refuses all work."""

    def __init__(self, device: str) -> None:
        self.device = device

    def copy(self, destination: Any, source: Any, nbytes: int | None = None,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Refuse to copy within files.

        Raises
        ------
        CopyError
            Always.
        """
        raise CopyError("copy", found=f"a copy on {self.device}",
                        expected="one to another device", hint=_SAVE)

    def fill(self, target: Any, nbytes: int, byte: int = 0, wait: Iterable[Event] = ()) -> Event:
        """Refuse to write.

        Raises
        ------
        CopyError
            Always.
        """
        raise CopyError("fill", found=f"a write on {self.device}", expected="a read", hint=_SAVE)

    def launch(self, program: Any, buffers: Sequence[Any], variables: Sequence[int] = (),
               wait: Iterable[Event] = (), groups: Sequence[int] = (),
               threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Refuse to compute.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError("launch", found=f"a program for {self.device}",
                          expected="a device that computes", hint=_MOVE)

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""


class DiskDevice:
    """The device.

    Attributes
    ----------
    pool : DiskPool
        Its places in files.
    queue : Queue
        Refuses all work: reading is `DiskPool.pool_to_host`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool = DiskPool(name)
        self.queue = _Queue(name)

    @property
    def info(self) -> Mapping[str, object]:
        """Name, and what is free on the file system of the working directory, in bytes."""
        return {"name": "files, read when they are copied elsewhere",
                "memory": self.pool.bytes_free}

    def free_compute(self) -> float:
        """Return 0: it computes nothing."""
        return 0.0

    def load(self, code: Loadable) -> NoReturn:
        """Refuse a kernel.

        Raises
        ------
        CompileError
            Always.
        """
        raise CompileError("load", found=f"the kernel {code.name} for {self.name}",
                           expected="a device that computes", hint=_MOVE)
