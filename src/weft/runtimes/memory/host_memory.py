"""Memory of the host, straight from the system: aligned, and with huge pages where it pays."""

import ctypes
import os
import sys
from typing import Any, Final

from weft.errors import AllocationError, CopyError

__all__ = ["ALIGNMENT", "MAP_THRESHOLD", "NO_ACCESS", "READ_WRITE", "acquire", "as_bytes",
           "give_back", "map_pages", "protect", "unmap_pages", "usable_memory"]  # fmt: skip

ALIGNMENT: Final = 64

# From this size on a block is a mapping of its own. The kernel hands it over zeroed, and takes
# it back at once when it is given back. At 2 MiB it is worth a huge page: faulting in a fresh
# block of 64 MB one small page at a time takes longer than most kernels that fill it.
MAP_THRESHOLD: Final = 1 << 20
_HUGE_PAGE: Final = 2 << 20
_PAGE: Final = 4096

# From this size on blocks begin with a page. Arrays of other libraries that are mappings begin a
# few bytes into one, behind the allocator's header. Results that began further in would lie right
# ahead of such an input as far as the lowest 12 bits of addresses tell, and a processor that
# compares only those holds each load back until the store before it is done.
_PAGED: Final = 1 << 16

READ_WRITE: Final = 3  # what may be done with pages
NO_ACCESS: Final = 0
_MAP_PRIVATE_ANONYMOUS: Final = 0x22
_MADV_DONTNEED: Final = 4
_MADV_HUGEPAGE: Final = 14

_library: Any = None
_fallback_memory: Final = 4 << 30


def _libc() -> Any:
    global _library
    if _library is None:
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        if sys.platform == "win32":
            library = ctypes.CDLL("msvcrt")
            library.aligned_alloc = lambda align, n: library._aligned_malloc(n, align)
            library.free = library._aligned_free
            library._aligned_malloc.restype, library._aligned_malloc.argtypes = (
                pointer,
                (size, size),
            )
            library._aligned_free.restype, library._aligned_free.argtypes = None, (pointer,)
        else:
            library = ctypes.CDLL(None, use_errno=True)
            library.aligned_alloc.restype, library.aligned_alloc.argtypes = pointer, (size, size)
            library.free.restype, library.free.argtypes = None, (pointer,)
        if sys.platform == "linux":
            number, offset = ctypes.c_int, ctypes.c_int64
            library.mmap.restype = pointer
            library.mmap.argtypes = (pointer, size, number, number, number, offset)
            library.munmap.restype, library.munmap.argtypes = number, (pointer, size)
            library.mprotect.restype, library.mprotect.argtypes = number, (pointer, size, number)
            library.madvise.restype, library.madvise.argtypes = number, (pointer, size, number)
        _library = library
    return _library


def acquire(nbytes: int) -> int:
    """Return the address of a new block, or 0 if the system has none.

    ``nbytes`` is a multiple of `ALIGNMENT`, and of the page size from 64 KiB on. From
    `MAP_THRESHOLD` on the block is filled with zeros.
    """
    libc = _libc()
    if nbytes < MAP_THRESHOLD or sys.platform != "linux":
        address = int(libc.aligned_alloc(_PAGE if nbytes >= _PAGED else ALIGNMENT, nbytes) or 0)
        if address and nbytes >= MAP_THRESHOLD:
            ctypes.memset(address, 0, nbytes)
        return address
    if nbytes < _HUGE_PAGE:
        return _map(nbytes)
    # Mapping a huge page more than needed and cutting both ends off is how to get one aligned.
    start = _map(nbytes + _HUGE_PAGE)
    if start == 0:
        return 0
    address = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    before, after = address - start, start + _HUGE_PAGE - address
    if before:
        libc.munmap(start, before)
    if after:
        libc.munmap(address + nbytes, after)
    libc.madvise(address, nbytes, _MADV_HUGEPAGE)  # refused: small pages, slower but right
    return address


def _map(nbytes: int) -> int:
    found = _libc().mmap(None, nbytes, READ_WRITE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    return 0 if found in (None, ctypes.c_void_p(-1).value) else int(found)


def map_pages(nbytes: int) -> int:
    """Return the address of pages of Linux that nothing may access yet, or 0."""
    found = _libc().mmap(None, nbytes, NO_ACCESS, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    return 0 if found in (None, ctypes.c_void_p(-1).value) else int(found)


def protect(address: int, nbytes: int, allowed: int) -> None:
    """Set what may be done with pages: `READ_WRITE` or `NO_ACCESS`, which also frees them.

    Raises
    ------
    AllocationError
        If the system has no more mappings.
    """
    if allowed == NO_ACCESS:
        _libc().madvise(address, nbytes, _MADV_DONTNEED)
    if nbytes and _libc().mprotect(address, nbytes, allowed):
        raise AllocationError("protect", found=f"error {ctypes.get_errno()} for {nbytes:,} bytes",
                              expected="a mapping", hint="raise vm.max_map_count")


def unmap_pages(address: int, nbytes: int) -> None:
    """Return pages of `map_pages` to the system."""
    _libc().munmap(address, nbytes)


def give_back(address: int, nbytes: int) -> None:
    """Return a block of `acquire` to the system."""
    if nbytes >= MAP_THRESHOLD and sys.platform == "linux":
        _libc().munmap(address, nbytes)
    else:
        _libc().free(address)


def usable_memory() -> int:
    """Return how many bytes this process may reasonably use.

    Physical memory or the container's limit, less a margin for everything else: a twentieth but
    at least 256 MiB, and never more than a quarter.
    """
    total = min(_physical_memory(), _cgroup_memory() or sys.maxsize)
    return total - min(max(total // 20, 256 << 20), total // 4)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _fallback_memory


def _cgroup_memory() -> int | None:
    """Return the memory limit of this container, or None if there is none."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None


def as_bytes(source: object) -> memoryview:
    """Return an object of contiguous memory as bytes.

    Raises
    ------
    CopyError
        If it has no such memory.
    """
    try:
        view = memoryview(source)  # type: ignore[arg-type]  # checked right here
        return view if view.format == "B" and view.ndim == 1 else view.cast("B")
    except (TypeError, ValueError) as error:
        raise CopyError(
            "copy", found=type(source).__name__, expected="an object of contiguous memory"
        ) from error
