"""What every queue checks before it hands work to a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import CopyError, HandleError, LaunchError
from weft.runtimes.base import View, inside
from weft.runtimes.memory.device_pool import DeviceBuffer, part

__all__ = ["CheckedQueue"]


class CheckedQueue:
    """The checks of a queue on buffers of a `DevicePool`."""

    order: object = None  # of a queue that keeps it, see `Event.order`

    def __init__(self, device: str) -> None:
        self.device = device

    def _copied(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
                nbytes: int | None) -> tuple[View, View, int]:  # fmt: skip
        """Return the parts that a copy is of, and its bytes: by default all of ``source``.

        Raises
        ------
        CopyError
            If they do not fit.
        HandleError
            If a buffer was released or is another device's.
        """
        to, of = self._own(destination), self._own(source)
        room = min(to.buffer.nbytes - to.offset, of.buffer.nbytes - of.offset)
        count = of.buffer.nbytes - of.offset if nbytes is None else nbytes
        if not 0 <= count <= room:
            raise CopyError("copy", found=f"{count} bytes where {room} are",
                            expected="no more bytes than both have")
        return to, of, count

    def _filled(self, target: DeviceBuffer | View, nbytes: int) -> View:
        """Return the part that is to be filled.

        Raises
        ------
        CopyError
            If it has fewer bytes.
        HandleError
            If the buffer was released or is another device's.
        """
        to = self._own(target)
        if not 0 <= nbytes <= to.buffer.nbytes - to.offset:
            raise CopyError("fill", found=f"{nbytes} bytes of {to.buffer.nbytes - to.offset}",
                            expected="memory with as many bytes")
        return to

    def _given(self, name: str, buffers: Sequence[Any], variables: Sequence[int], nbuffers: int,
               nvariables: int) -> list[View]:  # fmt: skip
        """Return the buffers of a launch, checked.

        Raises
        ------
        LaunchError
            If their count, or that of the variables, is wrong.
        HandleError
            If a buffer was released or is another device's.
        """
        for what, given, wanted in (("buffers", len(buffers), nbuffers),
                                    ("variables", len(variables), nvariables)):
            if given != wanted:
                raise LaunchError(name, found=f"{given} {what}", expected=f"{wanted}")
        return [self._own(b) for b in buffers]

    def _own(self, buffer: DeviceBuffer | View) -> View:
        """Return a part of the device's own memory."""
        view = buffer if type(buffer) is View else part(buffer)
        found = getattr(view.buffer, "device", type(view.buffer).__name__)
        if found != self.device:
            raise HandleError("queue", found=f"memory of {found}",
                              expected=f"memory of {self.device}")
        _ = view.buffer.handle  # which raises if it was released
        return inside(view)
