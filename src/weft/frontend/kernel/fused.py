"""Whether launches run at once, or are noted for `weft.fuse`."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

__all__ = ["active"]


class Notes(Protocol):
    """Takes launches; `weft.frontend.kernel.fusion` implements it."""

    def note(self, launch: Any, args: tuple[Any, ...]) -> None:
        """Take a launch that is to run later."""
        ...


class _Active(threading.local):
    """The block that a thread is in."""

    fusion: Notes | None = None


active: Final = _Active()
