"""How often captures are called at some sizes, which decides what gets a plan of its own."""

from __future__ import annotations

from typing import Final

__all__ = ["Usage"]

OFTEN: Final = 16  # calls with some sizes after which they get a plan of their own
LONG: Final = 0.02  # seconds that two such calls or more may have taken, before they get it sooner


class Usage:
    """How often some sizes were called, and how many seconds that took."""

    __slots__ = ("calls", "seconds")

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def add(self, seconds: float) -> None:
        """Note a call."""
        self.calls += 1
        self.seconds += seconds

    @property
    def is_due(self) -> bool:
        """Whether the sizes are to get a plan of their own."""
        return self.calls >= OFTEN or (self.calls >= 2 and self.seconds >= LONG)
