"""Importing many modules at once: without the collector's visits, and never during a fork."""

import gc
import os
import threading
from types import TracebackType
from typing import Final

__all__ = ["importing"]


class _Importing:
    """A block that imports many modules; others wait at its beginning, and forks for its end.

    A fork meanwhile would leave the child modules that nobody there goes on to import, and that it
    would wait for. Nothing else is waited for inside.

    What modules consist of stays, and the collector would look through all of it, and all there was
    before, several times: a sixth of the time. So it rests meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._collects = False

    def __enter__(self) -> bool:
        self._lock.acquire()
        if not self._depth:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._depth -= 1
        if self._collects and not self._depth:
            gc.enable()
        self._lock.release()

    def hold(self) -> None:
        """Wait for the end of the block in another thread, and let none begin."""
        self._lock.acquire()

    def release(self) -> None:
        """End what `hold` began."""
        self._lock.release()


importing: Final = _Importing()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.hold, after_in_parent=importing.release,
                        after_in_child=importing.release)  # fmt: skip
