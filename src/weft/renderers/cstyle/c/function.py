"""One function of a C kernel while it is written: its lines, its memory, what it captures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from weft.errors import UnsupportedError
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel
from weft.target import LARGE_BYTES, STACK_BYTES

__all__ = ["Captured", "Function", "Private"]

_LINE: Final = 64  # bytes of a cache line


class Captured(NamedTuple):
    """What a parallel body takes from the function around it: a member, and a parameter."""

    member: str
    parameter: str


class Private(NamedTuple):
    """Private arrays of one function.

    Attributes
    ----------
    heap : dict
        Offsets of those that no stack has room for, by name.
    heap_bytes : int
        Bytes of these.
    """

    heap: dict[str, int]
    heap_bytes: int


class Function:
    """The function of a whole kernel, or the body of one parallel loop.

    Attributes
    ----------
    parallel : Loop or None
        The loop whose body it is.
    lines : list of str
        What is written of it.
    captured : dict
        What it takes from the function around it, by name.
    private : Private
        Where its arrays are.
    streams, stops : bool
        Whether it has stores past the caches, and loops that an interrupt may stop.
    cleans : bool
        Whether something is to be done before it returns: then all returns go through one place.
    """

    def __init__(self, kernel: LinearKernel, begin: int, end: int, regions: dict[int, li.Region],
                 parallel: li.Loop | None, launches: bool,
                 promoted: Collection[str]) -> None:  # fmt: skip
        self.parallel = parallel
        self.lines: list[str] = []
        self.captured: dict[str, Captured] = {}
        own = list(_own(kernel.code, begin, end, regions, parallel is not None))
        self.private = _private(kernel, own, promoted)
        self.streams = any(isinstance(i, li.StoreInst) and i.streaming and i.value.lanes > 1
                           for i in own)
        self.stops = any(isinstance(i, li.WhileBegin) and i.endless for i in own)
        self.launches = launches
        self.cleans = bool(self.private.heap) or self.streams or launches


def _own(code: Sequence[Inst], begin: int, end: int, regions: dict[int, li.Region],
         inside: bool) -> Iterator[Inst]:  # fmt: skip
    """Yield the instructions of a function, without bodies of parallel loops that others are."""
    position = begin
    while position < end:
        inst = code[position]
        if not inside and isinstance(inst, li.Loop) and inst.kind == li.PARALLEL:
            position = regions[position].end
        else:
            yield inst
        position += 1


def _private(kernel: LinearKernel, own: Sequence[Inst],
             promoted: Collection[str]) -> Private:  # fmt: skip
    """Find room for private arrays: on the stack while there is some, small ones a little longer.

    Raises
    ------
    UnsupportedError
        If they take so much that the kernel should have been tiled.
    """
    heap: dict[str, int] = {}
    stack_bytes = heap_bytes = 0
    for inst in own:
        if not isinstance(inst, li.StorageInst) or inst.base is not None:
            continue
        if inst.memory.name in promoted or inst.memory.scope == "shared":
            continue  # in registers, or memory of a work-group
        size = max(-(-inst.size * inst.memory.dtype.itemsize // _LINE) * _LINE, _LINE)
        if kernel.meta.kind != "custom" and size + heap_bytes > LARGE_BYTES:
            found = f"{size} bytes of {inst.memory.name}, {size + heap_bytes} in all"
            raise UnsupportedError("render", found=found, hint="tile the loop so that less is kept",
                                   expected=f"private arrays of {LARGE_BYTES} bytes in all")
        room = STACK_BYTES + (STACK_BYTES // 2 if size <= STACK_BYTES // 8 else 0)
        if stack_bytes + size <= room:
            stack_bytes += size
        else:
            heap[inst.memory.name] = heap_bytes
            heap_bytes += size
    return Private(heap, heap_bytes)
