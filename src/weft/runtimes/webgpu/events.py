"""Commands of a WebGPU device that were handed over, and the events that stand for them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from weft.runtimes.base import Event, Failure
from weft.runtimes.launches.printing import HEAD, Lines, room_of, show, text_of

if TYPE_CHECKING:
    from weft.runtimes.webgpu.session import Session

__all__ = ["RECORD", "Record", "WebGPUEvent", "Work"]

RECORD: Final = struct.Struct("<iiiiqq")  # code, kernel, statement, pad, index, bound


class Record:
    """A status record of launches: memory of the device, and where the host reads it.

    One with room for words belongs to one launch of a kernel that prints `lines`.
    """

    __slots__ = ("block", "lines", "size", "stage")

    def __init__(self, session: Session, lines: Lines = (), words: int = 0) -> None:
        self.size = RECORD.size + (room_of(words) if lines else HEAD)
        self.block = session.block(self.size)
        self.stage = session.stage(self.size)
        self.lines = lines

    @property
    def cleared(self) -> int:
        """Bytes that are zero before a launch."""
        return RECORD.size + HEAD


class Work:
    """Commands that were handed over together.

    Parameters
    ----------
    session : Session
        The device.
    number : int
        Of what was handed over.
    record : Record, optional
        Which tells a failure of a launch.
    keep : object
        What has to live until then.
    """

    __slots__ = ("_keep", "_record", "failure", "number", "over", "session")

    def __init__(self, session: Session, number: int, record: Record | None = None,
                 keep: Any = None) -> None:  # fmt: skip
        self.session, self.number, self._record, self._keep = session, number, record, keep
        self.over = False
        self.failure: Failure | None = None

    def is_over(self) -> bool:
        """Return whether all of it has happened; never waits."""
        if self.over:
            return True
        self.session.check()
        if not self.session.is_over(self.number):
            return False
        self._end_noted()
        return True

    def wait(self) -> None:
        """Block until all of it has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver says that it failed.
        """
        if not self.over:
            self.session.wait(self.number)
            self._end_noted()
        show(self.session.texts)

    def _end_noted(self) -> None:
        """Take note of how it ended, once."""
        with self.session.settling:
            if self.over:
                return
            record = self._record
            if record is not None:
                held = self.session.mapped(record.stage, record.size)
                code, _, _, _, index, bound = RECORD.unpack_from(held)
                if code:
                    self.failure = Failure(code, index, bound)
                if record.lines:
                    self.session.texts.append(text_of(record.lines,
                                                      memoryview(held)[RECORD.size :]))
            self.over, self._record, self._keep = True, None, None
        if record is not None and not record.lines:
            self.session.records.append(record)


class WebGPUEvent(Event):
    """An event of commands of one device."""

    __slots__ = ("work",)

    def __init__(self, device: str, work: Work) -> None:
        super().__init__(device)
        self.work = work

    @property
    def done(self) -> bool:
        """Whether it has happened, or failed; never waits."""
        return self.work.over or self.work.is_over()

    def wait(self) -> None:
        """Block until it has happened.

        Raises
        ------
        SyncError
            If the driver says that it failed, or if the process is a fork of the one that
            opened the device.
        """
        self.work.wait()

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch, once that has happened."""
        return self.work.failure

    def share(self) -> Event:
        """Return another event of the same commands."""
        return WebGPUEvent(self.device, self.work)
