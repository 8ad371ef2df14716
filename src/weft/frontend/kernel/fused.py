"""Whether launches run at once, or are noted for `weft.fuse`."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

from weft.runtimes.callables import watched

__all__ = ["active", "attend", "watch"]


class Notes(Protocol):
    """Takes launches; `weft.frontend.kernel.fusion` implements it."""

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
_lock: Final = threading.Lock()


def watch(count: int) -> None:
    """Let native launches look who takes launches (1), or no longer (-1)."""
    with _lock:
        watched[0] += count


def attend(notes: Notes | None) -> None:
    """Let a thread's launches be noted from now on, or run again; native launches know of it."""
    watch((notes is not None) - (active.fusion is not None))
    active.fusion = notes
