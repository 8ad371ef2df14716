"""Tensors whose memory a running call overwrites, and readers that wait for it.

An optimiser's step writes the new parameters over the old ones. That is only right where nobody
else knows the old ones, which the count of references to their memory tells; and nobody may come to
know them before they are complete. So the tensors give their memory away for the time of the run:
another thread finds none, and waits here for the end. Forks wait, too: the child would have
tensors without values.

Inside, nothing is waited for but memory; so who waits here may hold any other lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from weft.imports import through_forks
from weft.locks import mutex

__all__ = ["Replacing", "each", "replacing"]


class Replacing:
    """The block in which the memory of some tensors is written over."""

    def __init__(self) -> None:
        self._lock = mutex()
        self._held: dict[int, Any] = {}
        through_forks(self._hold, outer=True)

    def _hold(self) -> Callable[[], None]:
        self._lock.acquire()
        return self._lock.release

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._lock.release()

    def begin(self, tensors: Sequence[Any]) -> dict[int, Any]:
        """Note what the memory of tensors is, and return it."""
        self._held = {id(t): t._buffer for t in tensors}
        return self._held

    def end(self) -> None:
        """Forget it."""
        self._held = {}

    def memory_of(self, tensor: Any) -> Any:
        """Return what a tensor gave away: for a handler of a signal that interrupts the run."""
        return self._held.get(id(tensor))


def each(setter: Callable[[Any, Any], object], tensors: Iterable[Any],
         values: Iterable[Any]) -> None:  # fmt: skip
    """Set something of each tensor, in one step that no signal comes into."""
    deque(map(setter, tensors, values), 0)


replacing: Final = Replacing()
