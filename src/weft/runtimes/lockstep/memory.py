"""Memories of a kernel while it runs: what they hold, and what of it was written."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.runtimes.lockstep.values import held

if TYPE_CHECKING:
    from weft.ir.stmt import Memory
    from weft.ir.tile import AsyncCopy
    from weft.runtimes.lockstep.shadow import Shadow
    from weft.runtimes.lockstep.values import Array, Mark

__all__ = ["Pending", "Storage"]

_ALIGN: Final = 16  # bytes


class Storage:
    """One memory: of all threads (global), of each block (shared), or of each thread.

    Attributes
    ----------
    data : array
        The elements, flat, one copy of the memory after the other.
    written : array of bool or None
        Which elements hold a value; None where all do.
    shape, size : tuple of int, and int
        Sizes of one copy, and elements from one copy to the next.
    first : array or None
        Where the copy of each thread begins; None where there is one copy only.
    shadow, offset : Shadow or None, and int
        Who accessed the elements, and where they begin in it.
    unit : int
        Elements of what was written and of the shadow for each element: its bytes, of memory
        over other memory, else 1.
    stored : bool
        Whether the elements have the dtype of arrays, and not the one in which values are held.
    pending : array of bool or None
        Elements that a copy on the side will write.
    undefined : Mark or None
        Which elements hold what a shuffle took from nobody; of a register, in which threads.
    """

    __slots__ = ("data", "first", "memory", "offset", "pending", "shadow", "shape", "size",
                 "stored", "undefined", "unit", "written")

    def __init__(self, memory: Memory, data: Array, shape: tuple[int, ...], first: Array | None,
                 written: Array | None = None) -> None:  # fmt: skip
        self.memory, self.data, self.shape, self.first = memory, data, shape, first
        self.written = written
        self.size = int(np.prod(shape, dtype=np.int64))
        self.shadow: Shadow | None = None
        self.offset, self.unit = 0, 1
        self.stored = memory.scope == "global"
        self.pending: Array | None = None
        self.undefined: Mark | None = None

    @classmethod
    def at(cls, memory: Memory, address: int, shape: tuple[int, ...]) -> Storage:
        """Return the storage of an argument, which lies at an address of the host."""
        kind = memory.dtype.numpy
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if not nbytes:
            return cls(memory, np.zeros(0, kind), shape, None)
        raw = (ctypes.c_uint8 * nbytes).from_address(address)
        return cls(memory, np.frombuffer(memoryview(raw), np.uint8).view(kind), shape, None)

    @classmethod
    def fresh(cls, memory: Memory, shape: tuple[int, ...], owner: Array, copies: int) -> Storage:
        """Return storage that nobody has written: a copy for each owner (block or thread)."""
        size = int(np.prod(shape, dtype=np.int64))
        if memory.scope == "shared" and memory.dtype.itemsize == 1:
            size += -size % _ALIGN  # so that memory over it begins alike in each copy
        data = np.zeros(size * copies, held(memory.dtype))
        first = None if copies == 1 else owner * size
        made = cls(memory, data, shape, first, np.zeros(size * copies, np.bool_))
        made.size = size
        return made

    @classmethod
    def over(cls, memory: Memory, base: Storage, shape: tuple[int, ...]) -> Storage:
        """Return the bytes of another storage as elements of another type."""
        kind = memory.dtype.numpy
        first = None if base.first is None else base.first // kind.itemsize
        made = cls(memory, base.data.view(kind), shape, first, base.written)
        made.shadow, made.unit, made.stored = base.shadow, kind.itemsize, True
        made.size = base.size // kind.itemsize
        return made

    def parts(self, at: Array) -> Array:
        """Return what stands for some elements in `written` and in the shadow."""
        if self.unit == 1:
            return at
        return (at[:, None] * self.unit + np.arange(self.unit)).ravel()

    def is_written(self, at: Array) -> Array:
        """Whether some elements hold a value."""
        assert self.written is not None
        found: Array = self.written[self.parts(at)].reshape(-1, self.unit)
        return np.asarray(found.all(1))

    def note_written(self, at: Array) -> None:
        """Note that some elements hold a value."""
        if self.written is not None:
            self.written[self.parts(at)] = True


class Pending(NamedTuple):
    """Copies that one statement has asked for and that have not taken place."""

    stmt: AsyncCopy
    storage: Storage
    at: Array
    lanes: Array
    values: Array
    groups: Array  # which group of its thread each belongs to
