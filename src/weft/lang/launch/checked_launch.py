"""Launches of compiled code that the sanitiser's cheap checks are written into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.driver.context import host_context
from weft.errors import BoundsError, LaunchError, said
from weft.imports import importing
from weft.ir.position import thread_at
from weft.ir.tile import MISALIGNED, ODD_MATRIX
from weft.locks import mutex

if TYPE_CHECKING:
    from weft.driver.launch import Loaded
    from weft.lang.launch.protocol import Launched
    from weft.lang.launch.sanitizer_report import Report
    from weft.passes.spmd.native_sanitizer import Check
    from weft.runtimes.lockstep.findings import Finding

__all__ = ["checked_launch", "raise_first"]

_BOUNDS: Final = "index out of bounds"


class Watched:
    """The code of a kernel with its checks, and where they note what fails."""

    __slots__ = ("checks", "loaded", "lock", "notes")

    def __init__(self, loaded: Loaded, checks: list[Check], notes: Any) -> None:
        self.loaded, self.checks, self.notes = loaded, checks, notes
        self.lock = mutex()  # one launch at a time: all note in one place


def _watched(launch: Launched, types: dict[str, Any]) -> Watched:
    with importing:
        from weft.driver.launch import load_kernel
    from weft.lang.launch.variants import translated
    with importing:
        from weft.passes.spmd.native_sanitizer import ROW, watch

    kernel = launch.kernel
    key = ("watched", tuple(types.values()), launch.block, launch.ndim, launch.shared,
           launch.grid if kernel.waits else None)
    codes = kernel.__dict__.setdefault("_watched", {})
    found = codes.get(key)
    if found is None:
        nest, constants = translated(kernel, types, launch, sanitised=True)
        nest, checks = watch(nest)
        notes = np.zeros((max(len(checks), 1), ROW), np.int64)
        loaded = load_kernel(nest, host_context(), [*constants, notes])
        found = codes[key] = Watched(loaded, checks, notes)
    assert isinstance(found, Watched)
    return found


def checked_launch(launch: Launched, args: tuple[Any, ...]) -> Report:
    """Run a launch; return what its checks found."""
    from weft.lang.launch.sanitizer_report import Report

    host = launch.take(args)
    watched = _watched(launch, host.types)
    values = [host.variables[v] for v in watched.loaded.variables]
    written = watched.loaded.written
    with host.turn(written) as host.alone, host:
        host.resolve(written)
        with watched.lock:
            watched.notes[...] = 0
            failed = watched.loaded.run(host.addresses, values)
            notes = watched.notes.tolist()
        host.finish()
    findings = [_finding(launch, check, row)
                for check, row in zip(watched.checks, notes, strict=False) if row[0]]
    if failed is not None and not any(f.kind != "uninitialised" for f in findings):
        findings.append(_made(_kind(failed.message), failed.place, (), said(failed.message), 1))
    return Report(tuple(sorted(findings, key=lambda f: (f.file, f.line))))


def _kind(message: str) -> str:
    with importing:
        from weft.passes.spmd.native_sanitizer import UNSET, UNWRITTEN

    if message == _BOUNDS:
        return "out-of-bounds"
    if message.startswith("a barrier that some threads") or message.startswith("a barrier of a k"):
        return "barrier-divergence"
    return {MISALIGNED: "misaligned", ODD_MATRIX: "misaligned", UNWRITTEN: "uninitialised",
            UNSET: "uninitialised"}.get(message, "assertion")


def _finding(launch: Launched, check: Check, row: list[int]) -> Finding:
    count, number, value, bound = row
    thread = thread_at(number, launch.grid, launch.block)
    with importing:
        from weft.passes.spmd.native_sanitizer import UNSET

    kind = _kind(check.message)
    told = {"out-of-bounds": f"uses index {value}, which is not from 0 to {bound - 1}",
            "uninitialised": f"reads element {value} of memory {check.memory}, which nothing has "
                             "written",
            "misaligned": f"makes {check.message}"}.get(kind, f"fails: {said(check.message)}")
    if check.message == UNSET:
        told = f"reads {check.memory} before it has a value"
    return _made(kind, check.place, (thread,),
                 f"thread {thread[1]} of block {thread[0]} {told}", count)


def _made(kind: str, place: Any, threads: tuple[Any, ...], message: str, count: int) -> Finding:
    with importing:
        from weft.runtimes.lockstep.findings import Finding

    file, line = ("", 0) if place is None else (place.file, place.line)
    return Finding(kind, file, line, threads, message, (line,), count)


def raise_first(launch: Launched, report: Report) -> None:
    """Raise the first finding of a report, if there is one."""
    if not report.findings:
        return
    first = report.findings[0]
    kind = BoundsError if first.kind == "out-of-bounds" else LaunchError
    more = len(report.findings) - 1
    raise kind(launch.kernel.__name__, found=f"{first.kind}: {first.message}",
               expected="a kernel without findings", where=(first.file, first.line),
               hint=f"and {more} more" if more else None)
