"""Rows beside others that may be in order already.

They are looked at and copied row by row, until one is not in order: then all are sorted in lanes.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.node import Node
from weft.ir.stmt import Memory
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.rows import close_rows, open_rows
from weft.kernelize.sorting.sort_row import Row
from weft.target import Target

LEAST_BYTES: Final = 1024  # of a row that is worth a look before it is sorted
_NONE, _TRUE = ex.index(0), ex.const(True, dt.bool_)


def suits(node: Node, target: Target) -> bool:
    """Whether rows that a network can sort are to be looked at first."""
    axis, shape = node.attr.axis, node.args[0].shape
    return axis == len(shape) - 1 and int(shape[axis]) * node.dtype.itemsize > LEAST_BYTES


class Beside(Row):
    """The lowering of a sort of rows of which most, if one is, are in order."""

    def __init__(self, em: Emitter, node: Node, out: Memory, flags: Memory, lanes: int) -> None:
        super().__init__(em, node, out, flags)
        self.dtype: DType = node.dtype
        self.lanes = lanes

    def emit(self) -> None:
        """Emit the nest that looks and copies, then those that sort."""
        rising = self._register("rising", _TRUE)
        loops, self.index = open_rows(self.em, self.shape, self.axis, "w")
        self.em.open()
        self._look(rising)
        body = self.em.close()
        self._if(self._get(rising), body)
        close_rows(self.em, loops, self.shape, self.axis)
        falls = self._let(~self._get(rising))
        for nest in (self._sort_rows, self._restore) if self.dtype.is_float else (self._sort_rows,):
            self.em.open()
            nest()
            self._if(falls, self.em.close())

    def _look(self, rising: Memory) -> None:
        """Copy a row, and note whether no element of it is out of order; a NaN is."""
        last = self.n - 1 - self.lanes
        kept = Memory(f"kept{self._number()}", dt.bool_, (ex.index(self.lanes),), "local")
        self.em.alloc(kept)
        self._put_vector(kept, _NONE, self._every(_TRUE))
        b = self._loop("b", -(-(self.n - 1) // self.lanes))
        place = self._let(ex.minimum(b * self.lanes, ex.index(last)))
        x, after = self._line(place), self._line(place + 1)
        self._put_vector(self.out, place, x)
        kept_here = after.le(x) if self.node.attr.descending else x.le(after)
        self._put_vector(kept, _NONE, self._vector(kept, _NONE) & kept_here)
        self._end(b, ex.index(-(-(self.n - 1) // self.lanes)))
        end = ex.index(self.n - self.lanes)
        self._put_vector(self.out, end, self._line(end))
        fallen = self._let(ex.bits(~self._vector(kept, _NONE)))
        self._set(rising, fallen.eq(0))
