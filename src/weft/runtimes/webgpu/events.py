"""Commands of a WebGPU device that were handed over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from weft.runtimes.launches.events import RECORD, Work
from weft.runtimes.launches.printing import HEAD, Lines, room_of

if TYPE_CHECKING:
    from weft.runtimes.webgpu.session import Session

__all__ = ["Record", "WebGPUWork"]


class Record:
    """A status record of launches: memory of the device, and where the host reads it.

    One with room for words belongs to one launch of a kernel that prints.
    """

    __slots__ = ("block", "size", "stage")

    def __init__(self, session: Session, words: int | None = None) -> None:
        self.size = RECORD.size + (HEAD if words is None else room_of(words))
        self.block = session.block(self.size)
        self.stage = session.stage(self.size)

    @property
    def cleared(self) -> int:
        """Bytes that are zero before a launch."""
        return RECORD.size + HEAD


class WebGPUWork(Work):
    """Commands of a WebGPU device.

    Parameters
    ----------
    session : Session
        The device.
    number : int
        Of what was handed over.
    record : Record, optional
        Which tells a failure of a launch.
    lines : Lines
        What the launch prints.
    keep : object
        What has to live until then.
    """

    __slots__ = ("_keep", "_record", "number")

    session: Session

    def __init__(self, session: Session, number: int, record: Record | None = None,
                 lines: Lines = (), keep: Any = None) -> None:  # fmt: skip
        super().__init__(session, time.monotonic_ns(), lines)
        self.number, self._record, self._keep = number, record, keep

    def has_ended(self) -> bool:
        """Return whether it is over, or the driver has failed."""
        try:
            return self.session.is_over(self.number)
        except self.session.errors as error:
            self.error = error
            return True

    def record(self) -> bytes | None:
        """Return the status record and the words behind it."""
        record = self._record
        return None if record is None else self.session.mapped(record.stage, record.size)

    def released(self) -> None:
        """Give the status record back."""
        record, self._record, self._keep = self._record, None, None
        if record is not None and self.error is None and not self.lines:
            self.session.records.append(record)
