"""Report exhausted process memory as AllocationError, whichever library notices it first.

Under a small limit (``ulimit -v``, `resource.RLIMIT_AS`) the system refuses to map a library, an
import fails half-way, or LLVM ends the process because it has no way to report it. All of these
are an `AllocationError` that says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
from types import TracebackType
from typing import Final

from weft import imports
from weft.errors import AllocationError, WeftError
from weft.imports import importing

__all__ = ["LLVM_BYTES", "is_shortage", "reporting_shortage", "require", "shortage"]

LLVM_BYTES: Final = 64 << 20  # what LLVM maps while it compiles, roughly
_NEXT_TO_NOTHING: Final = 2 << 20
_RESERVE: Final = 4 << 20  # that nothing ever touches, so it is no memory before it is let go of
_reserve: Final = [bytearray(_RESERVE)]
_SIGNS: Final = ("failed to map segment", "cannot allocate memory", "cannot create shared object",
                 "out of memory")  # fmt: skip


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means that there is no memory."""
    if isinstance(error, WeftError):
        return False
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    if isinstance(error, SystemError):  # of Python, where memory did not suffice for its own error
        return "without exception set" in text or "without setting an exception" in text
    return isinstance(error, OSError | ImportError) and any(sign in text for sign in _SIGNS)


def shortage(operation: str, found: object = "no memory left") -> AllocationError:
    """Return the error that says that memory is short.

    Making it takes memory, too, which `_reserve` gives first.
    """
    _reserve.clear()
    try:
        limit = _limit()
    except MemoryError:
        limit = None
    said = str(found) or "no memory left"
    if limit is not None:
        said += f" under a limit of {limit >> 20} MB for the process"
    return AllocationError(operation, found=said, expected="more memory",
                           hint="raise the limit (ulimit -v), or release memory")


def require(operation: str, nbytes: int) -> None:
    """Raise an AllocationError if the limit of the process leaves less than `nbytes`.

    For what would end the process: LLVM has no other way to report it.
    """
    limit = _limit()
    used = None if limit is None else _used()
    if limit is None or used is None or limit - used >= nbytes:
        return
    raise shortage(operation, f"{max(limit - used, 0) >> 20} MB left, and {nbytes >> 20} needed,")


class reporting_shortage(contextlib.AbstractContextManager[None]):
    """Raise AllocationError where the process runs out of memory inside the block."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        if not _reserve:
            with contextlib.suppress(MemoryError):
                _reserve.append(bytearray(_RESERVE))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if error is not None and is_shortage(error):
            raise shortage(self._operation, error) from error


def _limit() -> int | None:
    """Return how many bytes the process may map, None for no limit."""
    try:
        with importing:
            import resource
    except ImportError:  # a system without
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _used() -> int | None:
    """Return how many bytes the process has mapped, None if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _of_import(error: BaseException) -> BaseException | None:
    if is_shortage(error):
        return shortage("import", error)
    # Python's own parser raises others where it finds no memory for a part of a syntax tree.
    odd = not isinstance(error, WeftError) and isinstance(
        error, ValueError | SystemError | SyntaxError)
    return shortage("import") if odd and _is_full() else None


def _is_full() -> bool:
    """Whether a limit of the process leaves next to nothing."""
    limit = _limit()
    used = None if limit is None else _used()
    return limit is not None and used is not None and limit - used < _NEXT_TO_NOTHING


imports.explained.append(_of_import)
