"""What devices of drivers are called, and how a device is found again by that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from weft.errors import InitializationError, LibraryNotFoundError

__all__ = ["absence", "device_called", "distinct", "first_word"]

_GIVEN_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


def first_word(text: str) -> str:
    """Return the first word of a text that may be a name, in lower case, "other" if none may.

    Examples
    --------
    >>> first_word("Intel(R) OpenCL"), first_word("3D-Labs"), first_word("3D")
    ('intel', 'labs', 'other')
    """
    words = re.split(r"[^a-z0-9_]+", re.sub(r"\((r|tm|c)\)", "", text.lower()))
    return next((word for word in words if _GIVEN_NAME.fullmatch(word)), "other")


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return names in which a second one of the same has a number.

    Examples
    --------
    >>> distinct(["pocl", "intel", "pocl"])
    ['pocl', 'intel', 'pocl_1']
    """
    found: list[str] = []
    used = set(taken)
    for base in names:
        name, number = base, 0
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        found.append(name)
    return found


def device_called(family: str, called: str, devices: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return what stands behind a name in a list of devices.

    Raises
    ------
    InitializationError
        If there is none of the name in this process.
    """
    for name, *device in devices:
        if name == called:
            return tuple(device)
    raise InitializationError(family, found=f"{[name for name, *_ in devices]} in this process",
                              expected=f"{called}, as the probe has found")


def absence(error: LibraryNotFoundError, package: str, install: str) -> str:
    """Return why there is no device, where the package of a driver's binding does not load."""
    cause = error.__cause__
    if isinstance(cause, ModuleNotFoundError):
        return f"the package {package} is not installed ({install})"
    return f"the package {package} does not load: {cause} ({install})"
