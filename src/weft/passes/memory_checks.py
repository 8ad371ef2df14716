"""Checks of memory as code of a kernel: bounds of each access, private arrays that are filled.

Both run on flat kernels, behind `weft.passes.vector.vectorize`, so that they see every access as it
is made: whole vectors, gathers, and the lanes that a mask leaves out. An access that the ranges of
loops prove to be inside its array is left alone.
"""

from __future__ import annotations

import struct
from typing import Final

from weft.errors import OUTSIDE
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Ranges
from weft.ir.dtype import DType
from weft.ir.stmt import (
    SERIAL,
    Alloc,
    Assert,
    Atomic,
    Body,
    For,
    If,
    Kernel,
    Load,
    Stmt,
    Store,
)
from weft.ir.traverse import Rewriter, walk
from weft.passes.common.flat import ranges_at
from weft.passes.common.lanes import any_of, first_lane
from weft.passes.linearize import MATRIX_LANES
from weft.schedule.analysis.space import Names

__all__ = ["assert_bounds", "fill_private", "pattern"]

Access = Load | Store | Atomic
_VERBS: Final = {Load: "load from", Store: "store to", Atomic: "atomic on"}
_FORMATS: Final = {"f16": "<e", "f32": "<f", "f64": "<d"}
_OTHER_FLOAT: Final = -0.34375  # 0xAB in a format of 8 bits, and a number of all others


def assert_bounds(kernel: Kernel) -> Kernel:
    """Return a flat kernel that stops before the first access outside of its array.

        x[i] = v  ->  assert 0 <= i < n; x[i] = v

    The message names the kernel, the access and the array; the value is the index, in elements.
    """
    return _Bounds(kernel).run()


class _Bounds(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._ranges = ranges_at(kernel.body)
        self._known: dict[int, Ranges] = {}
        self._where = f"{kernel.meta.kind} kernel {kernel.name}"

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Load | Store | Atomic):
            return stmt
        env = self._ranges[stmt]
        made = _check(stmt, self._known.setdefault(id(env), Ranges(env)), self._where)
        if made is None:
            return stmt
        for part in walk((made,)):
            self.carry(stmt, part)
        return made, stmt


def _check(stmt: Access, within: Ranges, where: str) -> Stmt | None:
    """Return what asserts the bounds of an access, or None if they are proven."""
    (at,), size = stmt.index, stmt.memory.size
    value = stmt.value if isinstance(stmt, Store) else stmt.var
    mask = None if isinstance(stmt, Atomic) else stmt.mask
    lanes = value.lanes
    bounds, least = within.of(at), within.of(size).lo
    last = bounds.hi + (lanes - 1 if at.lanes == 1 else 0)
    if bounds.lo >= 0 and last < least:
        return None
    message = f"{where}, {_VERBS[type(stmt)]} {stmt.memory.name}: {OUTSIDE}"
    whole = mask is None or mask.lanes == 1
    if at.lanes == 1 and whole:
        inside = ex.index(0).le(at) & (at + (lanes - 1)).lt(size)
        if mask is not None:
            inside = inside | ~mask
        return Assert(inside, message, at, size)
    each = ex.ramp(at, lanes) if at.lanes == 1 else at
    outside = each.lt(ex.broadcast(ex.index(0), lanes)) | ex.broadcast(size, lanes).le(each)
    if mask is not None:
        outside = outside & ex.broadcast(mask, lanes)
    stop = Assert(ex.const(False, dt.bool_), message, first_lane(outside, each), size)
    return If(any_of(outside), (stop,))


def fill_private(kernel: Kernel, byte: int) -> Kernel:
    """Return a flat kernel that fills each private array where it is allocated.

    Integers get the byte repeated, floats the number that has these bits, a NaN for 0xFF. Arrays of
    tile registers are left alone: no single element of them can be stored.
    """
    return _Fill(kernel, byte).run()


class _Fill(Rewriter):
    def __init__(self, kernel: Kernel, byte: int) -> None:
        super().__init__(kernel)
        self._names, self._byte = Names(kernel), byte
        self._matrices = {
            s.memory for s in walk(kernel.body) if isinstance(s, Load | Store)
            and (s.value if isinstance(s, Store) else s.var).lanes >= MATRIX_LANES}

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Alloc) or stmt.base is not None or stmt.memory in self._matrices:
            return stmt
        k, dtype = self._names.index("poison"), stmt.memory.dtype
        store = Store(stmt.memory, (k,), ex.const(pattern(dtype, self._byte), dtype))
        return stmt, For(k, stmt.memory.size, SERIAL, (store,))


def pattern(dtype: DType, byte: int) -> bool | int | float:
    """Return the value of an element all of whose bytes are `byte`."""
    if dtype.kind == "b":
        return True
    if not dtype.is_float:
        return int.from_bytes(bytes([byte]) * dtype.itemsize, "little", signed=dtype.kind == "i")
    if byte == 0xFF:
        return float("nan")
    form = _FORMATS.get(dtype.text)
    return _OTHER_FLOAT if form is None else float(
        struct.unpack(form, bytes([byte]) * dtype.itemsize)[0])
