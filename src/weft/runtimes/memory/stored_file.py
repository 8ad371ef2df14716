"""A file that is read at offsets through a descriptor of its own, and never mapped.

A mapping of a file that is cut short ends the process (SIGBUS). Here every read asks first whether
the file is still the one that was opened: its content may be replaced by name or deleted, which
leaves the descriptor what it was, and a file that was written to is a typed error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Final

from weft.errors import CopyError
from weft.locks import mutex

__all__ = ["StoredFile"]

_MOST: Final = 1 << 30  # bytes of one read; Linux does no more than 2 GiB
_EXPECTED: Final = "the file as it was when it was opened"
_HINT: Final = "open it again; weft.save replaces files as a whole, which is safe"


class StoredFile:
    """One opened file.

    Parameters
    ----------
    path
        Of a regular file.

    Attributes
    ----------
    path : str
        Its name when it was opened.
    size : int
        Its bytes when it was opened.

    Raises
    ------
    OSError
        If it cannot be opened: it is missing, a directory, or not permitted.
    """

    __slots__ = ("__weakref__", "_descriptor", "_identity", "_lock", "path", "size")

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self.path = path
        self._lock = mutex()  # of systems where a read has no offset of its own
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        # Opening a pipe would wait for somebody to write to it.
        self._descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        state = os.fstat(self._descriptor)
        if stat.S_ISDIR(state.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        self.size = state.st_size
        self._identity = state.st_size, state.st_mtime_ns

    def read(self, offset: int, target: memoryview) -> None:
        """Fill writable memory with the bytes from an offset on; see `read_all`."""
        self.read_all(((offset, target),))

    def read_all(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill writable memory with parts of the file, each given by where it begins in that.

        Any number of threads, and of forked children, may do so at once.

        Raises
        ------
        CopyError
            If the file was cut short or written to since it was opened, or cannot be read.
        """
        self._check()
        try:
            for offset, target in parts:
                self._fill(offset, target)
        except OSError as error:
            raise CopyError(f"read {self.path}", found=error.strerror or str(error),
                            expected="a file that can be read") from error
        self._check()  # it may have been written to meanwhile

    def _fill(self, offset: int, target: memoryview) -> None:
        at = 0
        while at < target.nbytes:
            count = self._read_some(offset + at, target[at : at + _MOST])
            if not count:
                raise CopyError(f"read {self.path}", found=f"an end after {offset + at:,} bytes",
                                expected=_EXPECTED, hint=_HINT)
            at += count

    def _read_some(self, offset: int, target: memoryview) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._descriptor, [target], offset)
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            found = os.read(self._descriptor, target.nbytes)
        target[: len(found)] = found
        return len(found)

    def _check(self) -> None:
        """Raise a CopyError if the content is another than when the file was opened."""
        try:
            state = os.fstat(self._descriptor)
        except OSError as error:
            raise CopyError(f"read {self.path}", found=error.strerror or str(error),
                            expected="a file that is open") from error
        found = state.st_size, state.st_mtime_ns
        if found != self._identity:
            what = (f"{found[0]:,} bytes instead of {self.size:,}" if found[0] != self.size
                    else "a file that was written to")
            raise CopyError(f"read {self.path}", found=what, expected=_EXPECTED, hint=_HINT)

    def __del__(self, close: object = os.close) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close(descriptor)  # type: ignore[operator]  # kept for the end of the interpreter

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} of {self.size:,} bytes>"
