"""Progress display of work that takes longer than a second, on terminals only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

_watchers: Final[list[Callable[[str, int, int], None]]] = []
PATIENCE: Final = 1.0  # seconds before anything is shown


class Progress:
    """A bar on standard error that appears after `PATIENCE` if that is a terminal.

    Parameters
    ----------
    what : str
        What is going on.
    total : int
        Number of `tick` calls until it is done.
    """

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._start = time.perf_counter()
        self._shown: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._shown is not None:
            self._shown.stop()

    def tick(self) -> None:
        """Note one more thing done."""
        self.done += 1
        if _watchers:
            _watchers[-1](self.what, self.done, self.total)
        elif self._shown is not None:
            self._shown.update(self._task, completed=self.done)
        elif time.perf_counter() - self._start > PATIENCE and sys.stderr.isatty():
            self._show()

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        self._shown = progress.Progress(console=Console(stderr=True), transient=True)
        self._shown.start()
        self._task = self._shown.add_task(self.what, total=self.total, completed=self.done)


@contextmanager
def watch(heard: Callable[[str, int, int], None]) -> Iterator[None]:
    """Have `heard` called with (what, done, total) of all work in the block, and show no bars."""
    _watchers.append(heard)
    try:
        yield
    finally:
        _watchers.remove(heard)
