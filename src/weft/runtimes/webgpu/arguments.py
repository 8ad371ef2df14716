"""Which ranges of which buffers the arrays of a launch are bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import LaunchError
from weft.runtimes.base import View

if TYPE_CHECKING:
    from weft.runtimes.webgpu.program import WebGPUProgram

__all__ = ["Bound", "bound_by"]

_WORD: Final = 4


class Bound(NamedTuple):
    """Bindings of one launch.

    Attributes
    ----------
    groups : tuple of int
        For each array, the number of its binding less 1.
    places : list of int
        The element of its binding at which each array begins.
    ranges : list of (buffer, offset, size)
        What is bound, in bytes.
    """

    groups: tuple[int, ...]
    places: list[int]
    ranges: list[tuple[Any, int, int]]


def bound_by(program: WebGPUProgram, views: Sequence[View]) -> Bound:
    """Return the bindings of a launch: arrays of one buffer share one, if it can hold them.

    Raises
    ------
    LaunchError
        If what lies in one buffer is more than a binding holds.
    """
    session = program.session
    align, most = int(session.facts["alignment"]), int(session.facts["max_binding"])
    members: dict[int, list[int]] = {}
    for k, view in enumerate(views):
        members.setdefault(view.buffer.handle.serial, []).append(k)
    clusters: list[list[int]] = []
    for ks in members.values():
        clusters += _clusters(program, views, ks, align, most)
    clusters.sort(key=min)
    groups, places = [0] * len(views), [0] * len(views)
    ranges: list[tuple[Any, int, int]] = []
    for number, ks in enumerate(clusters):
        block = views[ks[0]].buffer.handle
        begin, end = _span(program, views, ks, align)
        ranges.append((block.buffer, begin, end - begin))
        for k in ks:
            size = program.header.memories[k].nbytes
            distance = views[k].offset - begin
            if distance % size:
                raise LaunchError(program.name, found=f"an array at byte {views[k].offset}",
                                  expected=f"a multiple of the {size} bytes of an element")
            groups[k], places[k] = number, distance // size
    return Bound(tuple(groups), places, ranges)


def _span(program: WebGPUProgram, views: Sequence[View], ks: Sequence[int],
          align: int) -> tuple[int, int]:  # fmt: skip
    """Return the bytes that some arrays of a buffer take up, from an aligned byte on."""
    whole = views[ks[0]].buffer.handle.size
    begin = min(views[k].offset for k in ks) // align * align
    ends = []
    for k in ks:
        memory = program.header.memories[k]
        count = memory.count
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
            raise LaunchError(
                program.name, found=f"an array of {end - begin:,} bytes on {program.session.name}",
                expected=f"at most {most:,} bytes, which is what a binding holds",
                hint="use smaller arrays or batches")
    return found
