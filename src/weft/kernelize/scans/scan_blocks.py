"""Scans of few long rows, in blocks that threads and lanes scan side by side.

A round is a stretch of a row that stays in the second cache, cut into blocks::

    for each block, in parallel: what the block does to a value that is carried into it
    for each block, in order:    start[block] = carry; carry = what the block makes of it
    for each block, in parallel: the scan of its elements, from start[block] on

The second pass over a round comes from the cache. Blocks have fixed sizes, whatever the number of
threads is, so results do not depend on it.

A sum, an extreme or a product of integers of a block may be joined in any order. Products of floats
and recurrences keep, within a block, the order of a loop over the row. The value that is carried
past a block is ``carry * total`` (``carry * factor + offset`` of a recurrence) only where no
intermediate value of that loop can leave the range of the type, which the largest and smallest
running products of the block tell: otherwise the block is walked once more, element by element.
That happens where a product overflows or dies away, and from then on the carry is zero, infinite or
not a number, which joins to any block.

Ref: Blelloch, Prefix sums and their applications, CMU-CS-90-190.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    Accumulator,
    Axis,
    For,
    If,
    Let,
    Load,
    Memory,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.scans.running_value import JOINS, Scan
from weft.kernelize.scans.summaries import past_product, past_recurrence

LANES: Final = 16  # blocks beside each other in vectors
UNIT: Final = 16  # elements of which a block is a multiple: a cache line of float32
LARGEST: Final = 1040  # elements of a block: 128 of them fill half of a second cache
# Blocks of a round, by length of the row.
COUNTS: Final = ((1 << 17, 128), (1 << 15, 64), (1 << 12, 32), (0, 16))
CONFLICT: Final = 256  # elements between lanes at which many of them fall into one set of a cache


class Blocks:
    """The lowering of one row.

    Parameters
    ----------
    scan : Scan
        What is computed.
    index : Index
        Place of the row.
    carry : Memory
        The register with the value before the row; on return, with the one behind the last block.
    """

    def __init__(self, scan: Scan, index: Index, carry: Memory) -> None:
        self.scan, self.em, self.index, self.carry = scan, scan.em, index, carry
        self.wide = scan.wide
        single = scan.is_linear and self.wide is dt.float32
        self.exact = dt.float64 if single and scan.has_double else self.wide
        # What blocks leave of a row goes step by step: nothing should, where a step takes long.
        self.blocks, self.size = _cut(upper_bound(scan.extent), 1 if scan.is_logarithm else UNIT)
        self.tables = [self._table(name, self.exact) for name in self._names()]
        self.starts = self._table("starts", self.wide)

    def _names(self) -> list[str]:
        """Return what is known of a block: its total first, or factor and offset."""
        if self.scan.is_product:
            return ["totals", "least", "most"]
        if self.scan.is_linear:
            return ["factors", "offsets", "steepest", "farthest"]
        return ["totals"]

    def _table(self, name: str, dtype: DType) -> Memory:
        made = Memory(name, dtype, (ex.index(self.blocks),), "local")
        self.em.alloc(made)
        return made

    def emit(self) -> Expr:
        """Emit rounds of blocks; return how many elements they are."""
        em, count = self.em, self.blocks * self.size
        rounds = upper_bound(self.scan.extent) // count
        em.open()
        q = em.loop_var("round", rounds)
        start = q * count
        scan = self.scan
        self._blocks("b", start, scan.is_product or scan.is_linear, self._summarise)
        self._carry(start)
        self._blocks("c", start, not scan.is_joined_in_any_order, self._scan)
        em.emit(For(q, ex.index(rounds), SERIAL, em.close()))
        return ex.index(rounds * count)

    def _blocks(self, name: str, start: Expr, in_order: bool,
                emit: Callable[[Expr, Expr], None]) -> None:  # fmt: skip
        """Emit a parallel loop over blocks: if each keeps its order, over groups that are lanes."""
        em = self.em
        if not in_order:
            em.open()
            block = em.loop_var(name, self.blocks)
            emit(block, start + block * self.size)
            em.emit(For(block, ex.index(self.blocks), PARALLEL, em.close()))
            return
        groups = self.blocks // LANES
        em.open()
        group = em.loop_var(name, groups)
        em.open()
        lane = em.loop_var(f"{name}_lane", LANES)
        # From the end of a row the last block of a group is the first one in memory.
        turned = LANES - 1 - lane if self.scan.node.attr.reverse else lane
        block = group * LANES + turned
        emit(block, start + block * self.size)
        em.emit(For(lane, ex.index(LANES), SERIAL, em.close()))
        em.emit(For(group, ex.index(groups), PARALLEL, em.close()))

    # ---- first pass

    def _summarise(self, block: Expr, start: Expr) -> None:
        """Emit what one block does to a value that is carried into it."""
        if self.scan.is_joined_in_any_order:
            self._reduce(block, start)
        elif self.scan.is_product:
            self._product(block, start)
        elif self.scan.is_linear:
            self._recurrence(block, start)
        else:
            self._logarithm(block, start)

    def _reduce(self, block: Expr, start: Expr) -> None:
        total = self._reduction("i", start, self.scan.neutral(), JOINS[self.scan.kind])
        self.em.emit(Store(self.tables[0], (block,), total))

    def _logarithm(self, block: Expr, start: Expr) -> None:
        """Emit the logarithm of a sum of exponentials, relative to the largest element."""
        zero = ex.const(0, self.wide)
        top = self._reduction("i", start, self.scan.neutral(), Op.MAX)
        endless = ex.unary(Op.ABS, top).eq(float("inf"))
        base = self.em.fresh("base", self.wide)
        self.em.emit(Let(base, ex.where(endless, zero, top)))
        total = self._reduction("e", start, zero, Op.ADD,
                                lambda value: ex.unary(Op.EXP, value - base))
        total = ex.where(endless, top, base + ex.unary(Op.LOG, total))
        self.em.emit(Store(self.tables[0], (block,), total))

    def _reduction(self, name: str, start: Expr, first: Expr, op: Operation,
                   of: Callable[[Expr], Expr] = lambda value: value) -> Expr:  # fmt: skip
        """Emit a reduction over the elements of a block; return its result."""
        em = self.em
        em.open()
        i = em.loop_var(name, self.size)
        value = of(self.scan.element(self.index, start + i))
        body = em.close()
        total = em.fresh("total", self.wide)
        em.emit(Reduce((Axis(i, ex.index(self.size)),), (Accumulator(
            total, first, ex.binary(op, total, value), ex.binary(op, lhs(total), rhs(total))),),
            body))  # fmt: skip
        return total

    def _product(self, block: Expr, start: Expr) -> None:
        """Emit the product of a block, and its smallest and largest running product."""
        em, scan, wide = self.em, self.scan, self.wide
        total = scan.start(self.index, "total")
        least, most = self._register("low", 1, wide), self._register("high", 1, wide)
        em.open()
        i = em.loop_var("i", self.size)
        value = scan.step(self.index, start + i, self._load(total))
        size = self._put(total, value)
        low, high = self._load(least), self._load(most)
        em.emit(Store(least, (), ex.where(size.lt(low), size, low)))
        em.emit(Store(most, (), ex.where(high.lt(size), size, high)))
        em.emit(For(i, ex.index(self.size), SERIAL, em.close()))
        for table, register in zip(self.tables, (total, least, most), strict=True):
            em.emit(Store(table, (block,), self._load(register)))

    def _recurrence(self, block: Expr, start: Expr) -> None:
        """Emit factor and offset of a block, and the largest of each on the way."""
        em, scan, exact = self.em, self.scan, self.exact
        registers = [self._register(name, int(name == "factor"), exact)
                     for name in ("factor", "offset", "steep", "far")]
        factor, offset, steepest, farthest = registers
        em.open()
        i = em.loop_var("i", self.size)
        position = start + i
        a, b = (ex.cast(scan.element(self.index, position, which), exact) for which in (0, 1))
        first = em.simplify(position.eq(0))
        grown = ex.where(first, b, ex.mad(a, self._load(offset), b))
        for memory, value, largest in (
                (factor, a * self._load(factor), steepest), (offset, grown, farthest)):
            size = self._put(memory, value)
            most = self._load(largest)
            em.emit(Store(largest, (), ex.where(most.lt(size), size, most)))
        em.emit(For(i, ex.index(self.size), SERIAL, em.close()))
        for table, register in zip(self.tables, registers, strict=True):
            em.emit(Store(table, (block,), self._load(register)))

    # ---- between the passes

    def _carry(self, start: Expr) -> None:
        """Emit the loop that hands the carry from block to block."""
        em, scan = self.em, self.scan
        em.open()
        b = em.loop_var("block", self.blocks)
        carry = self._load(self.carry)
        em.emit(Store(self.starts, (b,), carry))
        known = []
        for table in self.tables:
            known.append(em.fresh("known", table.dtype))
            em.emit(Load(known[-1], table, (b,)))
        if scan.is_product:
            safe, after = past_product(carry, *known)
        elif scan.is_linear:
            safe, after = past_recurrence(carry, *known)
        else:
            safe, after = None, scan.join(carry, known[0])
        if safe is None:
            em.emit(Store(self.carry, (), after))
        else:
            em.open()
            em.emit(Store(self.carry, (), after))
            joined = em.close()
            em.open()
            scan.walk(self.index, "again", start + b * self.size, ex.index(self.size), self.carry,
                      out=False)  # fmt: skip
            em.emit(If(safe, joined, em.close()))
        em.emit(For(b, ex.index(self.blocks), SERIAL, em.close()))

    # ---- second pass

    def _scan(self, block: Expr, start: Expr) -> None:
        """Emit the scan of one block from its start on."""
        em, scan = self.em, self.scan
        carry = Memory("running", self.wide, (), "register")
        em.alloc(carry)
        before = em.fresh("start", self.wide)
        em.emit(Load(before, self.starts, (block,)))
        em.emit(Store(carry, (), before))
        scan.walk(self.index, "j", start, ex.index(self.size), carry)

    # ---- parts

    def _register(self, name: str, value: int, dtype: DType) -> Memory:
        made = Memory(name, dtype, (), "register")
        self.em.alloc(made)
        self.em.emit(Store(made, (), ex.const(value, dtype)))
        return made

    def _load(self, memory: Memory) -> Expr:
        value = self.em.fresh(memory.name, memory.dtype)
        self.em.emit(Load(value, memory, ()))
        return value

    def _put(self, memory: Memory, value: Expr) -> Expr:
        """Emit a new value of a register; return its magnitude."""
        name = self.em.fresh(memory.name, memory.dtype)
        self.em.emit(Let(name, value))
        self.em.emit(Store(memory, (), name))
        return ex.unary(Op.ABS, name)


def _cut(n: int, unit: int) -> tuple[int, int]:
    """Return how many blocks of how many elements make a round: little of a row is left over."""
    blocks = next(count for least, count in COUNTS if n >= least)
    most = min(LARGEST, n // blocks) // unit * unit
    least = max(most // 2 // unit * unit, unit)
    sizes = [s for s in range(least, most + 1, unit) if s % CONFLICT] or [most]
    return blocks, min(sizes, key=lambda s: (n % (blocks * s), -s))
