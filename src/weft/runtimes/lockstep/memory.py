"""Memories of a kernel while it runs: what they hold, and what of it was written."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from weft.runtimes.lockstep.values import held

if TYPE_CHECKING:
    from weft.ir.stmt import Memory
    from weft.runtimes.lockstep.shadow import Shadow
    from weft.runtimes.lockstep.values import Array, Mark

__all__ = ["Storage"]


class Storage:
    """One memory: of all threads (global), of each block (shared), or of each thread.

    Attributes
    ----------
    data : array
        The elements, flat, one copy of the memory after the other.
    written : array of bool or None
        Which elements hold a value; None where all do.
    shape : tuple of int
        Sizes of one copy.
    first : array or None
        Where the copy of each thread begins; None where there is one copy only.
    shadow, offset : Shadow or None, and int
        Who accessed the elements, and where they begin in it.
    undefined : Mark or None
        Of a register, the threads in which it holds what a shuffle took from nobody.
    """

    __slots__ = ("data", "first", "memory", "offset", "shadow", "shape", "size", "undefined",
                 "written")

    def __init__(self, memory: Memory, data: Array, shape: tuple[int, ...], first: Array | None,
                 written: Array | None = None) -> None:  # fmt: skip
        self.memory, self.data, self.shape, self.first = memory, data, shape, first
        self.written = written
        self.size = int(np.prod(shape, dtype=np.int64))
        self.shadow: Shadow | None = None
        self.offset = 0
        self.undefined: Mark | None = None

    @classmethod
    def at(cls, memory: Memory, address: int, shape: tuple[int, ...]) -> Storage:
        """Return the storage of an argument, which lies at an address of the host."""
        kind = memory.dtype.numpy
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if not nbytes:
            return cls(memory, np.zeros(0, kind), shape, None)
        raw = (ctypes.c_uint8 * nbytes).from_address(address)
        return cls(memory, np.ctypeslib.as_array(raw).view(kind), shape, None)

    @classmethod
    def fresh(cls, memory: Memory, shape: tuple[int, ...], owner: Array, copies: int) -> Storage:
        """Return storage that nobody has written: a copy for each owner (block or thread)."""
        size = int(np.prod(shape, dtype=np.int64))
        data = np.zeros(size * copies, held(memory.dtype))
        first = None if copies == 1 else owner * size
        return cls(memory, data, shape, first, np.zeros(size * copies, np.bool_))
