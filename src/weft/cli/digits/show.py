"""What the demo shows while it works: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from weft.driver import progress


class Show:
    """A ``with`` block in which steps of the demo are shown on standard error.

    Standard output stays free for the summary. The compiler's own bar is part of this display:
    two live displays on one terminal would overwrite each other.
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(),
                   TextColumn("{task.fields[detail]}"), TimeElapsedColumn())  # fmt: skip
        self.bars = Progress(*columns, console=self.console, disable=not self.live)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.bars.stop()

    def note(self, line: str) -> None:
        """Print a line where no bar tells the same."""
        if not self.live:
            self.console.print(line, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show something that takes a while, and whose end nobody knows."""
        task = self.bars.add_task(what, total=None, detail="")
        yield
        self.bars.remove_task(task)

    @contextmanager
    def training(self, what: str, steps: int) -> Iterator[Callable[[float], None]]:
        """Show a training run; yields what hears the loss of each step."""
        task = self.bars.add_task(what, total=steps, detail="starting")
        done = 0

        def tick(loss: float) -> None:
            nonlocal done
            done += 1
            self.bars.update(task, completed=done, detail=f"{done}/{steps} steps, loss {loss:.3f}")

        with progress.watch(lambda name, i, n: self.bars.update(task, detail=f"{name} {i}/{n}")):
            yield tick
