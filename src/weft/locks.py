"""Locks for a process that may fork at any moment.

A forked child has one thread: a lock that another thread of the parent held is never released
there. So every lock of Weft is made here, and what it guards is consistent in the child for one of
three reasons:

* The lock comes from `mutex`. The child finds it free, unless the thread that forks has it. What it
  guards is written so that it may be left at any point, or ``renew`` brings it in order.
* It is held around a fork as well (`weft.imports.through_forks`), because nobody could bring in
  order what it guards: LLVM, the memory pool, modules that are being imported.
* It guards something of one thread's alone, which the child does not have: `in_child` says what
  else to forget.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

__all__ = ["computed_once", "in_child", "mutex"]

T = TypeVar("T")

_known: Final[weakref.WeakKeyDictionary[Any, Callable[[], object] | None]] = (
    weakref.WeakKeyDictionary())


def mutex(renew: Callable[[], object] | None = None) -> threading.RLock:
    """Return a reentrant lock that is free in a forked child if another thread had it.

    Parameters
    ----------
    renew : callable, optional
        Called in a child in which the lock had to be freed, after all locks are free: it brings in
        order what the other thread left half done. It must not refer to the object that has the
        lock, which would live for ever.

    Examples
    --------
    >>> lock = mutex()
    >>> with lock:
    ...     pass
    """
    lock = threading.RLock()
    _known[lock] = renew
    return lock


def in_child(forget: Callable[[], object]) -> None:
    """Have a function called in every forked child, once all locks are free there.

    Parameters
    ----------
    forget : callable
        Drops what belonged to threads that the child does not have.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class computed_once(Generic[T]):
    """A property that is computed at its first use and kept in the object.

    As `functools.cached_property`, which up to Python 3.11 holds a lock meanwhile. Two threads may
    compute it at the same time.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self._name = function, function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value


def _free_all() -> None:
    """Free the locks whose holders are not in this process."""
    left: list[Callable[[], object]] = []
    for lock, renew in list(_known.items()):
        if lock.acquire(blocking=False):  # nobody had it, or this thread has
            lock.release()
            continue
        lock._at_fork_reinit()
        if renew is not None:
            left.append(renew)
    for renew in left:
        renew()


in_child(_free_all)
