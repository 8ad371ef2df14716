"""Which ranges of which buffers the arrays of a launch are bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import LaunchError
from weft.runtimes.base import View

if TYPE_CHECKING:
    from weft.runtimes.webgpu.program import WebGPUProgram

__all__ = ["Bound", "Staged", "bound_by"]

_WORD: Final = 4


class Staged(NamedTuple):
    """A part of a buffer that is copied for a launch, and back if it is written.

    Attributes
    ----------
    buffer : object
        The buffer.
    offset, size : int
        Which bytes of it.
    place : int
        The byte of the copies at which it begins.
    is_written : bool
        Whether the launch may change it.
    """

    buffer: Any
    offset: int
    size: int
    place: int
    is_written: bool


class Bound(NamedTuple):
    """Bindings of one launch.

    Attributes
    ----------
    groups : tuple of int
        For each array, the number of its binding less 1.
    places : list of int
        The element of its binding at which each array begins.
    ranges : list of (buffer, offset, size)
        What is bound, in bytes; None stands for the buffer of copies.
    staged : list of Staged
        What is copied, where there are more buffers than bindings.
    """

    groups: tuple[int, ...]
    places: list[int]
    ranges: list[tuple[Any, int, int]]
    staged: list[Staged]


def bound_by(program: WebGPUProgram, views: Sequence[View]) -> Bound:
    """Return the bindings of a launch: arrays of one buffer share one, if it can hold them.

    Where there are more buffers than a device binds, the smallest are copied into one.

    Raises
    ------
    LaunchError
        If what lies in one buffer, or what has to be copied, is more than a binding holds.
    """
    session, header = program.session, program.wgsl
    align, most = int(session.facts["alignment"]), int(session.facts["max_binding"])
    members: dict[int, list[int]] = {}
    for k, view in enumerate(views):
        members.setdefault(view.buffer.handle.serial, []).append(k)
    clusters: list[list[int]] = []
    for ks in members.values():
        clusters += _clusters(program, views, ks, align, most)
    spans = {id(ks): _span(program, views, ks, align) for ks in clusters}
    room = int(session.facts["max_storage_buffers"]) - header.reports - header.has_scratch
    clusters.sort(key=lambda ks: spans[id(ks)][0] - spans[id(ks)][1])
    direct = clusters if len(clusters) <= room else clusters[: room - 1]
    starts: dict[int, int] = {}  # byte of the binding at which byte 0 of the buffer would be
    staged: list[Staged] = []
    total = 0
    for ks in clusters[len(direct) :]:
        begin, end = spans[id(ks)]
        written = any(use != "load" for k in ks for use in header.memories[k].uses)
        staged.append(Staged(views[ks[0]].buffer.handle.buffer, begin, end - begin, total, written))
        starts.update(dict.fromkeys(ks, total - begin))
        total += -(-(end - begin) // align) * align
    if total > most:
        raise _too_large(program, total, most)
    for ks in direct:
        starts.update(dict.fromkeys(ks, -spans[id(ks)][0]))
    parts: list[tuple[list[int], tuple[Any, int, int]]] = []
    for ks in direct:
        begin, end = spans[id(ks)]
        parts.append((ks, (views[ks[0]].buffer.handle.buffer, begin, end - begin)))
    if staged:
        copied = [k for ks in clusters[len(direct) :] for k in ks]
        parts.append((copied, (None, 0, total)))
    parts.sort(key=lambda part: min(part[0]))
    groups, places = [0] * len(views), [0] * len(views)
    for number, (ks, _) in enumerate(parts):
        for k in ks:
            size, distance = header.memories[k].nbytes, views[k].offset + starts[k]
            if distance % size:
                raise LaunchError(program.name, found=f"an array at byte {views[k].offset}",
                                  expected=f"a multiple of the {size} bytes of an element")
            groups[k], places[k] = number, distance // size
    return Bound(tuple(groups), places, [held for _, held in parts], staged)


def _too_large(program: WebGPUProgram, nbytes: int, most: int) -> LaunchError:
    return LaunchError(
        program.name, found=f"arrays of {nbytes:,} bytes on {program.session.name}",
        expected=f"at most {most:,} bytes, which is what a binding holds",
        hint="use smaller arrays or batches")  # fmt: skip


def _span(program: WebGPUProgram, views: Sequence[View], ks: Sequence[int],
          align: int) -> tuple[int, int]:  # fmt: skip
    """Return the bytes that some arrays of a buffer take up, from an aligned byte on."""
    whole = views[ks[0]].buffer.handle.size
    begin = min(views[k].offset for k in ks) // align * align
    ends = []
    for k in ks:
        memory = program.wgsl.memories[k]
        count = memory.elements
        ends.append(views[k].offset + count * memory.nbytes if count else whole)
    return begin, min(max(-(-max(ends) // _WORD) * _WORD, begin + _WORD), whole)


def _clusters(program: WebGPUProgram, views: Sequence[View], ks: list[int], align: int,
              most: int) -> list[list[int]]:  # fmt: skip
    """Return arrays of one buffer in parts that bindings hold and that do not overlap."""
    begin, end = _span(program, views, ks, align)
    if end - begin <= most:
        return [ks]
    found: list[list[int]] = []
    reached = 0
    for k in sorted(ks, key=lambda k: views[k].offset):
        first, last = _span(program, views, [k], align)
        if found and first < reached:
            found[-1].append(k)
        else:
            found.append([k])
        reached = max(reached, last)
    for part in found:
        begin, end = _span(program, views, part, align)
        if end - begin > most:
            raise _too_large(program, end - begin, most)
    return found
