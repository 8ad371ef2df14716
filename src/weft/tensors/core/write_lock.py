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

A Ctrl-C may come wherever Python code is called, also into ``__enter__`` and ``__exit__`` if they
are written in Python: then the lock would stay with a thread that has left the block. So blocks are
those of the lock itself, in native code; only the word is Python's, which says no more than that
native calls have to go the other way, and the next block brings it in order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
_nothing: Final = nullcontext()


def _leave() -> None:
    """Forget the block of a thread that a forked child does not have."""
    _word[0] = 0


_lock: Final = mutex(_leave)
_is_mine: Final[Callable[[], bool]] = _lock._is_owned  # type: ignore[attr-defined]


class _Writing:
    """Blocks in which one thread alone changes tensors; in a capture nothing is changed.

    Attributes
    ----------
    word : int
        The address of what is 1 while a thread is in such a block.
    native : tuple
        What takes and gives the lock, and that address, for native code.
    """

    __slots__ = ("native", "word")

    def __init__(self) -> None:
        self.word: int = _word.buffer_info()[0]
        self.native = _lock.acquire, _lock.release, self.word

    @property
    def is_mine(self) -> bool:
        """Whether this thread is in such a block."""
        return _is_mine()

    def turn(self) -> AbstractContextManager[bool | None]:
        """Return a block, which gives True if the thread was in none: it is to `mark` it then."""
        return _nothing if _is_mine() or state.capture is not None else _lock

    def mark(self, inside: bool) -> None:
        """Note for native calls that a block has begun, or is about to end."""
        _word[0] = inside


writing: Final = _Writing()


def changing(method: Callable[P, R]) -> Callable[P, R]:
    """Return a method that reads and changes tensors in one step: it is a block of `writing`."""

    def changed(*args: P.args, **kwargs: P.kwargs) -> R:
        if _is_mine() or state.capture is not None:
            return method(*args, **kwargs)
        with _lock:
            _word[0] = 1
            try:
                return method(*args, **kwargs)
            finally:
                _word[0] = 0

    return wrapping(changed, method)


def every_write(kind: C) -> C:
    """Make all methods of a class that work in place `changing`, such as ``add_``."""
    for name, method in list(vars(kind).items()):
        ends = name.endswith("_") and not name.endswith("__")
        if callable(method) and (ends or name.startswith("__i")):
            setattr(kind, name, changing(method))
    return kind
