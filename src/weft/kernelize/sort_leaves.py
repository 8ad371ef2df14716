"""Loop nests that sort short parts of rows in vector registers.

A part is sorted in one or two blocks that fit into registers. The first elements of the one are
then compared with the last ones of the other, register against register, which leaves the smaller
half in the first; each half is merged in registers. So one network of either kind serves parts of
every size. Blocks lie in an array of their own, filled up with the largest value.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import If, Load, Memory, Stmt, Store
from weft.kernelize.rows import at
from weft.kernelize.sort_network import Network, as_float
from weft.kernelize.sort_registers import COUNT, Registers

BLOCKS: Final = 2  # of a part
_NONE: Final = ex.index(0)
_FIRST: Final = (_NONE,)


class Leaves(Network):
    """Vectors of rows of `out`, and the lowering of the sort of a part from `first` on."""

    dtype: dt.DType
    lanes: int  # of a vector
    first: Expr  # element of the row at which the part starts
    held: Memory  # of the blocks of a part

    # vectors and registers

    def _vector(self, memory: Memory, place: Expr, mask: Expr | None = None,
                fill: Expr | None = None) -> Expr:  # fmt: skip
        """Read a vector of the row from an array."""
        var = ex.var(f"x{self._number()}", memory.dtype, self.lanes)
        self.em.emit(Load(var, memory, self._at(memory, place), mask, fill))
        return var

    def _put_vector(self, memory: Memory, place: Expr, value: Expr,
                    mask: Expr | None = None) -> None:  # fmt: skip
        self.em.emit(Store(memory, self._at(memory, place), value, mask))

    def _at(self, memory: Memory, place: Expr) -> tuple[Expr, ...]:
        return at(self.index, self.axis, place) if memory.scope == "global" else (place,)

    def _number(self) -> int:
        self.names += 1
        return self.names

    def _register(self, name: str, start: Expr) -> Memory:
        made = Memory(f"{name}{self._number()}", start.dtype, (ex.index(1),), "register")
        self.em.alloc(made)
        self._set(made, start)
        return made

    def _set(self, register: Memory, value: Expr) -> None:
        self.em.emit(Store(register, _FIRST, value))

    def _get(self, register: Memory) -> Expr:
        var = ex.var(f"g{self._number()}", register.dtype)
        self.em.emit(Load(var, register, _FIRST))
        return var

    def _element(self, memory: Memory, *place: Expr) -> Expr:
        var = ex.var(f"e{self._number()}", memory.dtype)
        self.em.emit(Load(var, memory, place))
        return var

    def _every(self, value: Expr) -> Expr:
        return ex.broadcast(value, self.lanes)

    def _first_lanes(self, count: Expr) -> Expr:
        """Return a mask of so many lanes."""
        lane = ex.ramp(ex.const(0, dt.int32), self.lanes)
        return lane.lt(ex.broadcast(ex.cast(count, dt.int32), self.lanes))

    def _if(self, condition: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...] = ()) -> None:
        self.em.emit(If(condition, then, orelse))

    def _counted(self, flags: Expr) -> Expr:
        return self._let(ex.cast(ex.unary(Op.POPCOUNT, ex.bits(flags)), dt.int64))

    def _value_of(self, key: Expr) -> Expr:
        return as_float(key, self.dtype) if self.dtype.is_float else key

    @property
    def _limits(self) -> tuple[Expr, Expr]:
        """The keys of the least and of the largest value."""
        k = self.key_type
        if not self.dtype.is_float:
            return ex.const(int(k.min), k), ex.const(int(k.max), k)
        infinity = {4: 0x7F800000, 8: 0x7FF0000000000000}[self.dtype.itemsize]
        return ex.const(-infinity - 1, k), ex.const(infinity, k)

    @property
    def _largest(self) -> Expr:
        d = self.dtype
        return ex.const(float("inf") if d.is_float else int(d.max), d)

    # short parts

    def _sort_leaf(self, size: Expr) -> None:
        """Sort a part of at most two blocks."""
        lanes, block = self.lanes, COUNT * self.lanes
        blocks = self._let(ex.where(ex.index(block).lt(size), ex.index(BLOCKS), ex.index(1)))
        b = self._loop("b", BLOCKS)
        self._sort_block(size, b)
        self._end(b, blocks)
        self.em.open()
        self._merge_blocks()
        self._if(ex.index(1).lt(blocks), self.em.close())
        q = self._loop("q", BLOCKS * COUNT)
        mask = self._let(self._first_lanes(size - q * lanes))
        self._put_vector(self.out, self.first + q * lanes, self._vector(self.held, q * lanes), mask)
        self._end(q, (size + (lanes - 1)) // lanes)

    def _sort_block(self, size: Expr, block: Expr) -> None:
        lanes, largest = self.lanes, self._every(self._largest)
        start = self._let(block * (COUNT * lanes))
        line = []
        for q in range(COUNT):
            place = start + q * lanes
            mask = self._let(self._first_lanes(size - place))
            line.append(self._vector(self.out, self.first + place, mask, largest))
        self._put_block(start, Registers(lanes, self._let).sort(line))

    def _put_block(self, start: Expr, line: list[Expr]) -> None:
        for q, x in enumerate(line):
            self._put_vector(self.held, start + q * self.lanes, x)

    def _merge_blocks(self) -> None:
        """Merge two blocks, which rise each."""
        lanes, count = self.lanes, COUNT * self.lanes
        i = self._loop("i", COUNT)
        places = i * lanes, self._let((BLOCKS * COUNT - 1) * lanes - i * lanes)
        line = [self._vector(self.held, place) for place in places]
        line[1] = self._let(ex.reverse(line[1]))
        Registers(lanes, self._let).compare(line, 0, 1)
        for place, x in zip(places, (line[0], ex.reverse(line[1])), strict=True):
            self._put_vector(self.held, place, x)
        self._end(i, ex.index(COUNT))
        b = self._loop("b", BLOCKS)
        start = self._let(b * count)
        line = [self._vector(self.held, start + q * lanes) for q in range(COUNT)]
        self._put_block(start, Registers(lanes, self._let).merge(line))
        self._end(b, ex.index(BLOCKS))
