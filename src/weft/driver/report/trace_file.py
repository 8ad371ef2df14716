"""Profiles in the trace event format that https://ui.perfetto.dev and Chrome read.

Format: "Trace Event Format", Google, 2016: complete events (``X``) with a start and a duration in
microseconds, and metadata (``M``) that names processes and threads. Here each device is a process
and each of its queues a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from weft.runtimes.trace import HOST_ROW, Span

__all__ = ["events", "write"]

Names = Mapping[str, tuple[str, tuple[str, int] | None]]


def write(file: IO[str], spans: Sequence[Span], begin: int, names: Names) -> None:
    """Write a trace.

    Parameters
    ----------
    file
        Where to.
    spans
        What ran, in the order of its beginning.
    begin
        Nanoseconds that count as 0.
    names
        For symbols of kernels a name for people, and the user's line if it is known.
    """
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    for number, event in enumerate(events(spans, begin, names)):
        file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
    file.write("\n]}\n")


def events(spans: Sequence[Span], begin: int, names: Names) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace; parameters as those of `write`."""
    rows = _Rows()
    placed = [(span, *rows.place(span)) for span in spans]
    yield from rows.metadata()
    for span, process, row in placed:
        name, line = names.get(span.name, (span.name, None))
        args: dict[str, Any] = {}
        if span.kind == "kernel":
            args = {"symbol": span.name, **({"line": f"{line[0]}:{line[1]}"} if line else {})}
        elif span.nbytes:
            args = {"bytes": span.nbytes}
        if span.kind == "copy":
            args |= {"from": span.origin, "to": span.device,
                     "GB/s": round(span.nbytes / max(span.end - span.start, 1), 3)}  # fmt: skip
        if span.failed:
            args["failed"] = True
        if span.kind in ("lower", "compile"):
            name = f"{span.kind} {name}"
        yield {"ph": "X", "name": name, "cat": span.kind, "pid": process, "tid": row,
               "ts": (span.start - begin) / 1e3, "dur": (span.end - span.start) / 1e3,
               "args": args}  # fmt: skip


class _Rows:
    """Numbers of devices and of their queues, in which events lie beside or inside each other.

    Work of one queue that overlaps, as that of several threads may, takes several rows.
    """

    def __init__(self) -> None:
        self._processes: dict[str, int] = {HOST_ROW: 1}
        self._rows: dict[tuple[str, str, int], int] = {}
        self._open: dict[tuple[str, str, int], list[int]] = {}  # ends of what is not over

    def place(self, span: Span) -> tuple[int, int]:
        """Return the numbers of the process and of the row for the next span."""
        process = self._processes.setdefault(span.device, len(self._processes) + 1)
        lane = 0
        while True:
            key = span.device, span.queue, lane
            ends = self._open.setdefault(key, [])
            while ends and ends[-1] <= span.start:
                ends.pop()
            if not ends or (span.end <= ends[-1] and _nests(span)):
                ends.append(span.end)
                return process, self._rows.setdefault(key, len(self._rows) + 1)
            lane += 1

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yield the events that name processes and rows."""
        for device, number in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": device}}
            yield {"ph": "M", "name": "process_sort_index", "pid": number,
                   "args": {"sort_index": number}}  # fmt: skip
        for (device, queue, lane), number in self._rows.items():
            name = f"{queue} ({lane + 1})" if lane else queue
            yield {"ph": "M", "name": "thread_name", "pid": self._processes[device],
                   "tid": number, "args": {"name": name}}  # fmt: skip


def _nests(span: Span) -> bool:
    """Whether it may lie inside other work of its row, as what a thread of the host does may."""
    return span.device == HOST_ROW
