"""Profiles: what ran in a block, as a table and as a trace for https://ui.perfetto.dev."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

from weft.driver import kernels
from weft.errors import LaunchError
from weft.imports import importing
from weft.runtimes import trace
from weft.runtimes.trace import Recorder, Span

__all__ = ["CopySum", "KernelSum", "Profile"]

_COMPILING: Final = ("lower", "compile")


class KernelSum(NamedTuple):
    """All launches of a kernel on a device.

    Attributes
    ----------
    name : str
        What it does, or the user's name, and the beginning of its symbol.
    device : str
        Where it ran.
    calls : int
        How often.
    seconds, mean, share : float
        In all, of a launch, and of all kernels' time.
    line : (str, int) or None
        The user's file and line, if it is known.
    """

    name: str
    device: str
    calls: int
    seconds: float
    mean: float
    share: float
    line: tuple[str, int] | None


class CopySum(NamedTuple):
    """All copies from one device to another.

    Attributes
    ----------
    origin, device : str
        From where to where.
    calls : int
        How many.
    nbytes : int
        Bytes in all.
    seconds, rate : float
        In all, and gigabytes a second.
    """

    origin: str
    device: str
    calls: int
    nbytes: int
    seconds: float
    rate: float


class Profile:
    """What runs in a block; see `weft.profile`.

    Parameters
    ----------
    path
        Where to write the trace, if anywhere.

    Attributes
    ----------
    dropped : int
        How much is missing because there was too much.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._recorder: Recorder | None = None
        self._begin = 0
        self._spans: tuple[Span, ...] = ()
        self._names: dict[str, tuple[str, tuple[str, int] | None]] = {}
        self.dropped = 0

    def __enter__(self) -> Self:
        if self._recorder is not None or self._begin:
            raise LaunchError("profile", found="a profile that was begun before",
                              expected="a new one for each block")
        if self._path is not None:  # who cannot write hears of it before anything runs
            self._file = open(self._path, "w", encoding="utf-8")
        try:
            self._recorder = trace.start()
        except BaseException:
            self._close()
            raise
        self._begin = trace.clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        try:
            self._collect()
            self._recorder = None
        finally:
            trace.stop()
            try:
                if self._file is not None:
                    with importing:
                        from weft.driver.report.trace_file import write

                    write(self._file, self._spans, self._begin, self._names)
            finally:
                self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _collect(self) -> None:
        """Take what began inside the block so far."""
        recorder = self._recorder
        if recorder is None:
            return
        spans, self.dropped = recorder.spans()  # which waits: nothing begins later that counts
        self._spans = tuple(s for s in spans if s.start >= self._begin)
        known = kernels.by_symbol()
        for symbol in {s.name for s in self._spans if s.kind in ("kernel", *_COMPILING)}:
            code = known.get(symbol)
            short = symbol.removeprefix("weft_")[:6]
            label = code.label if code is not None else ""
            line = code.line if code is not None else None
            self._names[symbol] = f"{label} {short}" if label else symbol, line

    @property
    def spans(self) -> tuple[Span, ...]:
        """What ran, in the order of its beginning; complete once the block has ended."""
        self._collect()
        return self._spans

    def kernels(self) -> list[KernelSum]:
        """Return the kernels, those that took longest first."""
        found: dict[tuple[str, str], list[int]] = {}
        for span in self.spans:
            if span.kind == "kernel":
                found.setdefault((span.name, span.device), []).append(span.end - span.start)
        total = sum(map(sum, found.values())) or 1
        sums = [KernelSum(self._names[name][0], device, len(times), sum(times) / 1e9,
                          sum(times) / len(times) / 1e9, sum(times) / total,
                          self._names[name][1]) for (name, device), times in found.items()]
        return sorted(sums, key=lambda k: -k.seconds)

    def copies(self) -> list[CopySum]:
        """Return the copies between devices, those that took longest first."""
        found: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            if span.kind == "copy":
                found.setdefault((span.origin, span.device), []).append(span)
        sums = []
        for (origin, device), spans in found.items():
            nbytes, time = sum(s.nbytes for s in spans), sum(s.end - s.start for s in spans)
            rate = nbytes / max(time, 1)
            sums.append(CopySum(origin, device, len(spans), nbytes, time / 1e9, rate))
        return sorted(sums, key=lambda c: -c.seconds)

    def table(self) -> str:
        """Return a summary: kernels, copies, compilations and calls of plans."""
        rows = [("kernel", "device", "calls", "total ms", "mean µs", "share", "line")]
        rows += [(k.name, k.device, f"{k.calls:,}", f"{k.seconds * 1e3:.3f}",
                  f"{k.mean * 1e6:.1f}", f"{k.share:.1%}",
                  f"{os.path.basename(k.line[0])}:{k.line[1]}" if k.line else "")
                 for k in self.kernels()]  # fmt: skip
        text = _aligned(rows, left=(0, 1, 6))
        copies = self.copies()
        if copies:
            rows2 = [("copy", "", "calls", "MB", "total ms", "GB/s")]
            rows2 += [(c.origin, f"to {c.device}", f"{c.calls:,}", f"{c.nbytes / 1e6:.3f}",
                       f"{c.seconds * 1e3:.3f}", f"{c.rate:.2f}") for c in copies]  # fmt: skip
            text += "\n\n" + _aligned(rows2, left=(0, 1))
        made = [s for s in self._spans if s.kind in _COMPILING]
        plans = [s for s in self._spans if s.kind == "plan"]
        lines = []
        if made:
            time = sum(s.end - s.start for s in made)
            lines.append(f"compiled: {len({s.name for s in made})} kernels, {time / 1e6:.1f} ms")
        if plans:
            time = sum(s.end - s.start for s in plans)
            lines.append(f"plans of several kernels: {len(plans):,} calls, {time / 1e6:.3f} ms")
        if self.dropped:
            lines.append(f"missing: {self.dropped:,} launches beyond what a profile keeps")
        return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])

    def __str__(self) -> str:
        return self.table()


def _aligned(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> str:
    """Return rows as text in columns; those that are not words stand at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(
        cell.ljust(width) if k in left else cell.rjust(width)
        for k, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows)
