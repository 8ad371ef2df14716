"""Progress of tuning on a terminal: the kernel, the candidates tried, the best so far."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

INTERVAL: Final = 2.0  # seconds between two lines about one kernel, where there is no terminal


class Progress(NamedTuple):
    """How far tuning is: which of how many kernels, candidates tried, best ratio, seconds left."""

    kernel: int
    kernels: int
    kind: str
    trials: int
    ratio: float
    left: float


class Display:
    """One line on standard error that changes, if that is a terminal.

    Parameters
    ----------
    lines : bool
        Whether to write a line now and then where it is none, such as a pipe or a file.
    """

    def __init__(self, lines: bool = False) -> None:
        self._lines, self._kernel, self._next = lines, -1, 0.0
        self._status: Any = None
        self._console: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True)
            self._status = self._console.status("tuning")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._status is not None:
            self._status.stop()

    def heard(self, progress: Progress) -> None:
        """Show how far tuning is."""
        if self._status is not None:
            self._status.update(line(progress))
        elif self._lines and (progress.kernel != self._kernel or time.monotonic() >= self._next):
            self._kernel, self._next = progress.kernel, time.monotonic() + INTERVAL
            print(f"weft: {line(progress)}", file=sys.stderr, flush=True)


def line(progress: Progress) -> str:
    """Return the line that says how far tuning is."""
    text = (f"tuning kernel {progress.kernel + 1} of {progress.kernels} ({progress.kind}): "
            f"{progress.trials} candidates, best {1 / progress.ratio:.2f}× the default")
    return text + (f", {progress.left:.0f} s left" if progress.left else "")


__all__ = ["Display", "line"]
