"""Special forms, and the general form that is taken where one of them fails.

What is recognised in a graph or in a loop nest (attention, a window that can be cut, values that
share a kernel) is lowered in a form of its own. A recogniser decides completely before anything is
changed, so that the general form is there whenever a special one fails: no failure of a recogniser
reaches a user. Under tests (`strict`) it is raised, with the reason otherwise in ``weft explain``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft.errors import ScheduleError, VerifyError, WeftError

T = TypeVar("T")


def attempt(special: Callable[[], T], general: Callable[[str], T], strict: bool) -> T:
    """Return what a special form gives, or what the general one gives if that fails.

    Parameters
    ----------
    special : callable
        Makes the special form and changes nothing else.
    general : callable
        Makes the general form; it is given the reason as a text.
    strict : bool
        Raise what the special form raises: for tests.
    """
    try:
        return special()
    except Exception as error:
        told = isinstance(error, WeftError) and not isinstance(error, VerifyError | ScheduleError)
        if strict or told or isinstance(error, MemoryError):  # what a user is told stays as it is
            raise
        return general(f"{type(error).__name__}: {error}".partition("\n")[0])


__all__ = ["attempt"]
