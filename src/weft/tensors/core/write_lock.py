"""The lock of tensor writes: reading the old value and assigning the new one is atomic.

Two threads that call functions which write the same state would each read the old value, and the
later one's would replace the earlier one's. So calls of captured functions that change something,
writes in place and gradients that are added up take their turns, whichever tensors they change.
What changes nothing runs in parallel to them.

Native calls (`weft.capture.native_dispatch`) that keep Python's lock from the first read to the
last write are one step by that; they only look at a word that says whether somebody else is in the
middle of one. The others take the lock.

Captures are made inside, never the other way round: during a capture nothing is changed, so nothing
waits for this lock there.
"""

from __future__ import annotations

from _thread import get_ident
from array import array
from collections.abc import Callable
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

from weft.locks import mutex
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import wrapping

__all__ = ["OutOfTurn", "changing", "every_write", "writing"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class OutOfTurn(Exception):
    """A call that changes tensors has begun without the lock; it begins again with it."""


_word: Final = array("q", [0])


class _Writing:
    """A block in which this thread alone changes tensors; in a capture nothing is changed."""

    __slots__ = ("_depth", "_lock", "_owner", "native", "word")

    def __init__(self) -> None:
        self._lock = mutex(self._leave)
        self._depth = self._owner = 0
        self.word: int = _word.buffer_info()[0]  # its address; it is 1 while somebody has the lock
        self.native = self._lock.acquire, self._lock.release, self.word  # for native code

    def _leave(self) -> None:
        """Forget the block of a thread that a forked child does not have."""
        self._depth = self._owner = _word[0] = 0

    @property
    def is_mine(self) -> bool:
        """Whether this thread is in such a block."""
        return self._owner == get_ident()

    def __enter__(self) -> None:
        if state.capture is None:
            self._lock.acquire()
            self._depth += 1
            self._owner, _word[0] = get_ident(), 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if state.capture is None:
            self._depth -= 1
            if not self._depth:
                self._owner = _word[0] = 0
            self._lock.release()


writing: Final = _Writing()


def changing(method: Callable[P, R]) -> Callable[P, R]:
    """Return a method that reads and changes a tensor in one step."""

    def changed(*args: P.args, **kwargs: P.kwargs) -> R:
        with writing:
            return method(*args, **kwargs)

    return wrapping(changed, method)


def every_write(kind: C) -> C:
    """Make all methods of a class that work in place `changing`, such as ``add_``."""
    for name, method in list(vars(kind).items()):
        ends = name.endswith("_") and not name.endswith("__")
        if callable(method) and (ends or name.startswith("__i")):
            setattr(kind, name, changing(method))
    return kind
