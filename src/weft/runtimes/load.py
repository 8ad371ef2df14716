"""How much of a device is free: calls under way, and what the processors run."""

from __future__ import annotations

import os
from types import TracebackType

__all__ = ["InFlight", "idle_share", "running_tasks"]


class InFlight:
    """Calls of a device that are under way, on any threads: each enters it as a context.

    Examples
    --------
    >>> calls = InFlight()
    >>> with calls:
    ...     calls.free_share()
    0.5
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[None] = []  # whose changes need no lock

    def __enter__(self) -> None:
        self._calls.append(None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self._calls.pop()

    def __len__(self) -> int:
        return len(self._calls)

    def free_share(self) -> float:
        """Return the share of the device that one more call would get: 1 if there is no other."""
        return 1.0 / (1 + len(self._calls))


def running_tasks() -> float:
    """Return how many threads of all programs run or want to, without the one that asks.

    Linux tells the number of this moment; elsewhere it is the mean of the last minute, and 0 if
    nobody says.
    """
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return max(int(file.read().split()[3].partition("/")[0]) - 1, 0)
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def idle_share(usable: int) -> float:
    """Return the share of so many processors that nothing runs on, from 0 to 1."""
    idle = max((os.cpu_count() or usable) - running_tasks(), 0.0)
    return min(idle / max(usable, 1), 1.0)
