"""Tile registers (AMX): Linux gives their state to a process only when it asks."""

from __future__ import annotations

import platform
import sys
from typing import Final

__all__ = ["request"]

_ARCH_PRCTL: Final = 158  # system call of x86-64
_REQUEST: Final = 0x1023  # ARCH_REQ_XCOMP_PERM
_GET: Final = 0x1022  # ARCH_GET_XCOMP_PERM
_TILE_DATA: Final = 18  # XFEATURE_XTILEDATA


def request() -> str:
    """Ask for the tile registers, once for the whole process; return why there are none, or "".

    Threads that exist and child processes that are forked have them, too. Without the request the
    first tile instruction ends the process with SIGILL.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"not asked for on {sys.platform} {platform.machine()}"
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    code, feature = ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)
    if libc.syscall(ctypes.c_long(_ARCH_PRCTL), code, feature):
        return f"refused by the kernel (errno {ctypes.get_errno()})"
    granted = ctypes.c_uint64(0)
    code = ctypes.c_long(_GET)
    if libc.syscall(ctypes.c_long(_ARCH_PRCTL), code, ctypes.byref(granted)):
        return f"not confirmed by the kernel (errno {ctypes.get_errno()})"
    return "" if granted.value >> _TILE_DATA & 1 else "not granted by the kernel"
