"""A device of a driver that this process has opened: its work under way, its errors; and forks."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from weft.errors import AllocationError, CopyError, SyncError, WeftError
from weft.locks import in_child, mutex

__all__ = ["DriverSession", "Driving"]

_opened: Final[list[DriverSession]] = []


class DriverSession(ABC):
    """One device of a driver, opened by this process.

    Parameters
    ----------
    name : str
        The device.
    errors : tuple of type
        What the driver's binding throws.

    Attributes
    ----------
    facts : Mapping
        What is known of the device.
    pending : deque of Work
        What may not have happened yet, oldest first.
    texts : deque of (str, str)
        What launches have printed, and complaints about it, until a wait shows them.
    settling : lock
        Held while the end of something is noted.
    blocks : dict
        Blocks of the pool, by identity.
    """

    facts: Mapping[str, Any]

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self.name, self.errors = name, errors
        self.settling = mutex()
        self.pending: deque[Any] = deque()
        self.texts: deque[tuple[str, str]] = deque()
        self.blocks: dict[int, Any] = {}
        self._forked = False

    def opened(self) -> None:
        """Note that the device is open, for children that are forked from now on."""
        _opened.append(self)

    def check(self) -> None:
        """Refuse work in a forked child, which has none of the driver's threads.

        Raises
        ------
        SyncError
            In a forked child.
        """
        if self._forked:
            raise SyncError(self.name, found="a process that was forked after the device was used",
                            expected="the process that opened it",
                            hint="start processes with the method spawn, or fork before the first "
                            "use of the device")

    @abstractmethod
    def is_short(self, error: Exception) -> bool:
        """Return whether the driver says that memory is short."""
        ...

    def translated(self, what: str, error: Exception, otherwise: type[WeftError]) -> WeftError:
        """Return the error of Weft for what the driver has thrown.

        Parameters
        ----------
        what : str
            What was being done.
        error : Exception
            What was thrown.
        otherwise : type
            The error to make of it unless memory is short.
        """
        if isinstance(error, WeftError):
            return error
        if self.is_short(error):
            return AllocationError(what, found=f"{self.name} has no memory left: {error}",
                                   expected="memory for what is handed over",
                                   hint="release tensors that are no longer needed")
        return otherwise(what, found=f"{type(error).__name__}: {error} on {self.name}",
                         expected="a driver that works",
                         hint="tensors of other devices are as they were")

    def driving(self, what: str, otherwise: type[WeftError] = CopyError) -> Driving:
        """Make what the driver throws in a block an error of Weft."""
        return Driving(self, what, otherwise)

    def sweep(self) -> None:
        """Forget what is over by now."""
        pending = self.pending
        while pending:
            try:
                work = pending[0]
                if not work.is_over():
                    return
                pending.remove(work)
            except (IndexError, ValueError):  # another thread has removed it
                continue

    def undestroyed(self) -> Iterable[Any]:
        """Return objects whose destructors would wait for threads that a child does not have."""
        return ()

    def lose(self) -> None:
        """Make the device unusable in a forked child, and keep its objects from being destroyed."""
        self._forked = True
        for kept in (self, *self.undestroyed()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


class Driving:
    """Makes what a driver throws an error of Weft."""

    __slots__ = ("_otherwise", "_session", "_what")

    def __init__(self, session: DriverSession, what: str, otherwise: type[WeftError]) -> None:
        self._session, self._what, self._otherwise = session, what, otherwise

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: object) -> None:  # fmt: skip
        if isinstance(error, self._session.errors) and not isinstance(error, WeftError):
            raise self._session.translated(self._what, error, self._otherwise) from error


def _forget() -> None:
    for session in _opened:
        session.lose()


in_child(_forget)
