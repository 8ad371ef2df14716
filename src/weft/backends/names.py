"""Names of devices: ``family[:ordinal or name][/pair]``, as in ``cpu``, ``cpu/c``, ``cuda:1``.

A backend may call its devices by names, as in ``opencl:pocl``: its probe tells them.
"""

from __future__ import annotations

import re
from typing import Final

from weft.errors import DeviceError
from weft.ir.record import Record

__all__ = ["GIVEN", "DeviceName", "parse"]

GIVEN: Final = "[a-z][a-z0-9_]*"  # what a backend may call a device
_NAME: Final = re.compile(rf"({GIVEN})(?::(?:(\d{{1,6}})|({GIVEN})))?(?:/({GIVEN}))?")


class DeviceName(Record):
    """A parsed device name.

    Attributes
    ----------
    family : str
        Its backend.
    ordinal : int
        Which of the devices of the backend; 0 where `called` tells it and nobody has looked.
    pair : str
        Empty for the default of the family.
    called : str
        What the backend calls the device, empty where it is known by its ordinal.
    """

    family: str
    ordinal: int = 0
    pair: str = ""
    called: str = ""

    def __str__(self) -> str:
        """Return the shortest name of the device."""
        which = self.called or (str(self.ordinal) if self.ordinal else "")
        return f"{self.family}{':' if which else ''}{which}{'/' if self.pair else ''}{self.pair}"


def parse(text: str) -> DeviceName:
    """Return the parts of a device name.

    Raises
    ------
    DeviceError
        If it is not ``family[:ordinal or name][/pair]``.
    """
    match = _NAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise DeviceError("device", found=repr(text), expected="family[:ordinal or name][/pair]",
                          hint="for example cpu, cpu/c, cuda:1 or opencl:pocl")
    family, ordinal, called, pair = match.groups()
    return DeviceName(family, int(ordinal or 0), pair or "", called or "")
