"""The scope of `weft.fuse`: launches inside it are recorded and not run at once."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

from weft.locks import in_child, mutex
from weft.runtimes.native.calls.callables import watched

__all__ = ["active", "attend", "watch"]


class Notes(Protocol):
    """Takes launches; `weft.lang.launch_fusion.fuse_launches` implements it."""

    def note(self, launch: Any, args: tuple[Any, ...]) -> None:
        """Take a launch that is to run later."""
        ...

    def flush(self) -> None:
        """Run the launches that were taken."""
        ...


class _Active(threading.local):
    """The block that a thread is in."""

    fusion: Notes | None = None


active: Final = _Active()
_lock: Final = mutex()
_watching: Final[dict[int, int]] = {}  # how many such blocks each thread is in


def watch(count: int) -> None:
    """Let native launches look who takes launches (1), or no longer (-1)."""
    thread = threading.get_ident()
    with _lock:
        _watching[thread] = _watching.get(thread, 0) + count
        if not _watching[thread]:
            del _watching[thread]
        watched[0] = len(_watching)


def attend(notes: Notes | None) -> None:
    """Let a thread's launches be noted from now on, or run again; native launches know of it."""
    watch((notes is not None) - (active.fusion is not None))
    active.fusion = notes


def _leave_others() -> None:
    """Forget the blocks of threads that are not in this process."""
    thread = threading.get_ident()
    mine = _watching.get(thread)
    _watching.clear()
    if mine:
        _watching[thread] = mine
    watched[0] = len(_watching)


in_child(_leave_others)
