"""Compile in a background thread while Python lowers the next kernel."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from weft.background import Task
from weft.locks import mutex

T = TypeVar("T")

class Once(Generic[T]):
    """A function that is called once, by whoever comes first; the others wait for its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = mutex()
        self._result: list[T] = []

    def __call__(self) -> T:
        """Return the result; what the function raises is raised, and the next one tries again."""
        with self._lock:
            if not self._result:
                self._result.append(self._function())
            return self._result[0]


class BackgroundCompile:
    """A thread for the time of a block, that calls functions in the order in which they come.

    What it has not begun at the end of the block is left. An error in a function is for whoever
    asks for its result.

    Parameters
    ----------
    allowed : bool
        Whether there may be such a thread; else nothing happens aside.
    """

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed
        self._waiting: queue.SimpleQueue[Once[object] | None] = queue.SimpleQueue()
        self._task: Task | None = None

    def start(self, function: Once[T]) -> None:
        """Have a function called soon."""
        if not self._allowed:
            return
        if self._task is None:
            task = Task(self._run, daemon=True)
            if not task.start():  # who wants the result calls
                self._allowed = False
                return
            self._task = task
        self._waiting.put(function)  # type: ignore[arg-type]

    def _run(self) -> None:
        while (function := self._waiting.get()) is not None:
            try:
                function()
            except Exception:  # it is raised again where the result is wanted
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._task is None:
            return
        if error is not None:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
        self._waiting.put(None)
        self._task.wait()
