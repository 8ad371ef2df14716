"""Tile registers (AMX): Linux gives their state to a process only when it asks.

A processor may have them and a hypervisor get them wrong. So before their first use on a machine a
child process computes products of two tiles (`tiles_trial`), and what came of it stays in the disk
cache.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from weft.imports import importing
from weft.locks import in_child

if TYPE_CHECKING:
    from weft.runtimes.cpu.amx_probe import Trial

__all__ = ["begin", "request", "verdict"]

_trial: Trial | None = None  # under way

_ARCH_PRCTL: Final = 158  # system call of x86-64
_REQUEST: Final = 0x1023  # ARCH_REQ_XCOMP_PERM
_GET: Final = 0x1022  # ARCH_GET_XCOMP_PERM
_TILE_DATA: Final = 18  # XFEATURE_XTILEDATA
_RIGHT: Final = "right in a trial of two tiles"  # what the cache keeps of a good one


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


def begin() -> None:
    """Start the trial if this machine needs one: it runs while the caller goes on."""
    global _trial
    if _trial is None and _described() and _known() is None:
        with contextlib.suppress(OSError):  # `verdict` tells of it
            _trial = _started()


def _forget() -> None:
    global _trial
    if _trial is not None:
        _trial.close()
    _trial = None  # a forked child cannot wait for it


in_child(_forget)


def verdict() -> str:
    """Return what is wrong with products in tile registers, "" if nothing, once a machine."""
    global _trial
    known = _known()
    if known is not None:
        return known
    trial, _trial = _trial, None
    try:
        said = (trial or _started()).verdict(60)
    except OSError as error:
        return f"not checked: {type(error).__name__}"
    from weft.store import cache

    cache().put("verdict", _key(), (said or _RIGHT).encode())
    return said


def _started() -> Trial:
    with importing:
        from weft.runtimes.cpu.amx_probe import Trial

    return Trial()


def _known() -> str | None:
    from weft.store import cache

    said = cache().get("verdict", _key())
    return None if said is None else said.decode().removeprefix(_RIGHT)


def _key() -> str:
    from weft.store import fingerprint

    return fingerprint("tiles", _described(), platform.release())


@lru_cache(maxsize=1)
def _described() -> str:
    """Return the first processor as Linux tells of it, "" if that has no tile registers."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(1 << 16).partition("\n\n")[0]
    except OSError:
        return ""
    kept = ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags")
    lines = [line for line in first.splitlines() if line.startswith(kept)]
    return "\n".join(lines) if "amx_tile" in first else ""
