"""Progress of tuning on a terminal: the kernel, the candidates tried, the best so far."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from weft.driver.tuning import Progress


class Display:
    """One line on standard error, there only if that is a terminal."""

    def __init__(self) -> None:
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


def line(progress: Progress) -> str:
    """Return the line that says how far tuning is."""
    text = (f"tuning kernel {progress.kernel + 1} of {progress.kernels} ({progress.kind}): "
            f"{progress.trials} candidates, best {1 / progress.ratio:.2f}× the default")
    return text + (f", {progress.left:.0f} s left" if progress.left else "")


__all__ = ["Display", "line"]
