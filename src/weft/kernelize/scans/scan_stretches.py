"""Scans for devices of threads whose rows are cut into stretches, in three launches.

::

    for each stretch, in parallel:  its summary (`weft.kernelize.scans.summaries`)
    for each row:                   the value before each stretch, from the summaries
    for each stretch, in parallel:  its walk, from that value on

Here a stretch is a thread's, which suits rows that lie beside each other in memory, and devices
whose first cache keeps the lines of all threads until they come back to them. In
`weft.kernelize.scans.scan_groups` it is a group's. What is known of the stretches of a row is
brought together by a group in two levels, or by one thread where they are few. Of products of
floats and of recurrences one thread takes the running value from stretch to stretch, and walks
those that it may not pass as a whole. Orders are fixed, so that two runs give the same bits.

Names of loops say what they are to `weft.strategies.threads.scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.stmt import SERIAL, For, If, Load, Memory, Store
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.scans.running_value import Scan
from weft.kernelize.scans.summaries import Values, summary_of
from weft.target import BANKS, Target

__all__ = ["CUT", "ORDERED_STRETCHES", "STRETCHES", "Cut", "Levels", "Stretches", "cut_of"]

CUT: Final = 4  # stretches that are worth reading a row twice
STRETCHES: Final = 1 << 10  # of a row at most
ORDERED_STRETCHES: Final = 1 << 8  # ... where one thread goes from one to the next
_LEAST: Final = 64  # elements of a stretch
_FEW: Final = BANKS  # stretches of a row that one thread takes one by one
_SEGMENT: Final = BANKS  # totals that one thread brings together
_SHORT_SEGMENT: Final = 8  # the same where there are no more than as many totals


class Cut(NamedTuple):
    """Elements of a stretch, and stretches of a row."""

    size: int
    stretches: int


def cut_of(scan: Scan, target: Target) -> Cut | None:
    """Return how rows are cut for threads, None if there are as many rows as threads."""
    shape, axis = scan.node.shape, scan.axis
    if not all(isinstance(d, int) for d in shape):
        return None
    n = upper_bound(shape[axis])
    rows = max(elements(shape) // max(n, 1), 1)
    most = ORDERED_STRETCHES if summary_of(scan).is_ordered else STRETCHES
    cores = max(target.cores, 1)
    count = min(cores * target.group_items // rows, n // _LEAST, most)
    if count < 2 or (count < CUT and rows >= cores):
        return None
    size = -(-n // count)
    return Cut(size, -(-n // size))


class Stretches:
    """The lowering of a scan.

    Parameters
    ----------
    scan : Scan
        What is computed.
    size, count : int
        Elements of a stretch, and stretches of a row.
    """

    def __init__(self, scan: Scan, size: int, count: int) -> None:
        self.scan, self.em, self.size, self.count = scan, scan.em, size, count
        self.summary = summary_of(scan)
        self.launch = 0

    def emit(self) -> None:
        """Emit the launches."""
        shape, axis = self.scan.node.shape, self.scan.axis
        sizes = (*(as_expr(d) for a, d in enumerate(shape) if a != axis), ex.index(self.count))
        totals, starts = (
            [self.memory(f"{kind}_{name}", d, *sizes) for name, d in parts] for kind, parts in (
                ("stretch", self.summary.parts), ("before", self.summary.carried)))
        self.run(lambda index, rows, c: self.summarise(index, (*rows, c), totals), cut=True)
        between = self._between if not self.summary.is_ordered else self._between_in_order
        if self.count <= _FEW:
            between = self._between_alone
        self.run(lambda index, rows, _: between(index, rows, totals, starts))
        self.run(lambda index, rows, c: self.walk(index, (*rows, c), starts), cut=True)

    def run(self, body: Callable[[Index, Index, Expr], None], cut: bool = False) -> None:
        """Emit one launch: its body for each row, or for each stretch of one, by places in memory.

        The body is given the index of a row, the variables of its axes, and the stretch.
        """
        em, axis, none = self.em, self.scan.axis, ex.index(0)
        self.launch += 1
        loops: list[tuple[Expr, Expr]] = []
        index: list[Expr] = []
        for a, d in enumerate(self.scan.node.shape):
            if a == axis:
                index.append(none)
            if a != axis or cut:
                extent = ex.index(self.count) if a == axis else as_expr(d)
                name = "stretch" if a == axis else "row"
                em.open()
                v = em.loop_var(f"{name}_{self.launch}_{a}", upper_bound(extent))
                loops.append((v, extent))
            if a != axis:
                index.append(loops[-1][0])
        rows = tuple(v for a, v in enumerate(index) if a != axis)
        body(tuple(index), rows, loops[axis][0] if cut else none)
        for v, extent in reversed(loops):
            em.emit(For(v, extent, SERIAL, em.close()))

    # ---- stretches of threads

    def summarise(self, index: Index, place: Index, totals: list[Memory]) -> None:
        """Emit the summary of a stretch."""
        c = place[-1]
        known = self.summary.of(self.name("e"), self.length(c), self.reader(index, c))
        self.summary.store(totals, known, *place)

    def walk(self, index: Index, place: Index, starts: list[Memory]) -> None:
        """Emit the results of a stretch, from the value before it on."""
        summary, scan, c = self.summary, self.scan, place[-1]
        registers = summary.registers(summary.carried, summary.load(starts, *place))

        def out(k: Expr, running: Values) -> None:
            value = ex.cast(summary.value(running), scan.node.dtype)
            self.em.emit(Store(scan.stored, scan.place(index, c * self.size + k), value))

        summary.walk(self.name("w"), self.length(c), self.reader(index, c), registers,
                     summary.step, out)  # fmt: skip

    def length(self, c: Expr) -> Expr:
        """Return how many elements a stretch has."""
        rest = self.scan.extent - c * self.size
        return self.em.simplify(ex.minimum(ex.index(self.size), rest))

    def reader(self, index: Index, c: Expr) -> Callable[[Expr], Values]:
        """Return what reads the elements of a stretch."""
        return lambda k: tuple(ex.cast(v, self.scan.wide) for v in self.operands(
            index, c * self.size + k, None))

    def operands(self, index: Index, position: Expr, inside: Expr | None) -> list[Expr]:
        """Return the operands at a position."""
        scan = self.scan
        found = [scan.operand(index, position, which, inside)
                 for which in range(-len(scan.node.args), 0)]
        if scan.is_linear:  # the first factor is no part of it; a sum with -0 * 0 stays what it is
            first = self.em.simplify(position.eq(0))
            found[0] = ex.where(first, ex.const(-0.0, found[0].dtype), found[0])
        return found

    # ---- between the stretches of a row

    def _between(self, index: Index, rows: Index, totals: list[Memory],
                 starts: list[Memory]) -> None:  # fmt: skip
        """Emit the values before the stretches of a row, from their summaries."""
        em, summary, count = self.em, self.summary, self.count
        carry = [self.memory(f"carry_{name}", d, 1) for name, d in summary.carried]
        o = self.open("one", 1)
        summary.store(carry, summary.start(), ex.index(0))
        self.close((o, 1))
        levels = Levels(self, -(-count // BANKS) * BANKS, carry)

        def known(c: Expr) -> Values:
            inside = c.lt(count) if count % BANKS else None
            names = [em.fresh(m.name, m.dtype) for m in totals]
            for name, memory in zip(names, totals, strict=True):
                em.emit(Load(name, memory, (*rows, c), inside))
            if inside is None:
                return tuple(names)
            return tuple(ex.where(inside, name, other) for name, other in zip(
                names, summary.nothing(), strict=True))

        def store(c: Expr, values: Values) -> None:
            inside = c.lt(count) if count % BANKS else None
            for memory, value in zip(starts, values, strict=True):
                em.emit(Store(memory, (*rows, c), value, inside))

        levels.summarise(known)
        levels.join()
        levels.use(store)

    def _between_in_order(self, index: Index, rows: Index, totals: list[Memory],
                          starts: list[Memory]) -> None:  # fmt: skip
        """Emit the same where one thread takes the running value from stretch to stretch."""
        summary, count = self.summary, self.count
        near = [self.memory(f"near_{name}", d, count) for name, d in summary.parts]
        c = self.open("deal", count)
        summary.store(near, summary.load(totals, *rows, c), c)
        self.close((c, count))
        o = self.open("one", 1)
        registers = summary.registers(summary.carried, summary.start())
        self.hand_over(count, (near, ()), (starts, rows), registers,
                       lambda c: self.reader(index, c), self.length)  # fmt: skip
        self.close((o, 1))

    def _between_alone(self, index: Index, rows: Index, totals: list[Memory],
                       starts: list[Memory]) -> None:  # fmt: skip
        """Emit the same where one thread has a row."""
        em, summary = self.em, self.summary
        registers = summary.registers(summary.carried, summary.start())
        if summary.is_ordered:
            self.hand_over(self.count, (totals, rows), (starts, rows), registers,
                           lambda c: self.reader(index, c), self.length)  # fmt: skip
            return
        em.open()
        c = em.loop_var(self.name("h"), self.count)
        running = summary.load(registers)
        summary.store(starts, running, *rows, c)
        summary.store(registers, summary.join(running, summary.load(totals, *rows, c)))
        em.emit(For(c, ex.index(self.count), SERIAL, em.close()))

    def hand_over(self, count: int, totals: tuple[list[Memory], Index],
                  starts: tuple[list[Memory], Index], registers: list[Memory],
                  read: Callable[[Expr], Callable[[Expr], Values]],
                  length: Callable[[Expr], Expr]) -> None:  # fmt: skip
        """Emit what one thread does: take the running value, in registers, from part to part.

        Where summaries are, and values before parts go, are arrays and the first places there.
        """
        em, summary = self.em, self.summary
        em.open()
        b = em.loop_var(self.name("h"), count)
        running = summary.load(registers)
        summary.store(starts[0], running, *starts[1], b)
        safe, after = summary.past(running, summary.load(totals[0], *totals[1], b))
        em.open()
        summary.store(registers, after)
        passed = em.close()
        em.open()
        summary.walk(self.name("g"), length(b), read(b), registers, summary.step)
        em.emit(If(safe, passed, em.close()))
        em.emit(For(b, ex.index(count), SERIAL, em.close()))

    # ---- parts

    def memory(self, name: str, dtype: DType, *sizes: int | Expr) -> Memory:
        """Emit an array of a launch, or of all of them."""
        shape = tuple(ex.index(s) if isinstance(s, int) else s for s in sizes)
        made = Memory(f"{name}_{self.launch}" if self.launch else name, dtype, shape, "local")
        self.em.alloc(made)
        return made

    def name(self, prefix: str) -> str:
        """Return a name of a loop that no other one has."""
        return str(self.em.fresh(f"{prefix}_{self.launch}_", dt.int64).attr)

    def open(self, what: str, extent: int) -> Expr:
        """Open a loop that does what its name tells."""
        self.em.open()
        return self.em.loop_var(self.name(what), extent)

    def close(self, *loops: tuple[Expr, int]) -> None:
        """Close loops, the innermost first."""
        for v, extent in loops:
            self.em.emit(For(v, ex.index(extent), SERIAL, self.em.close()))


class Levels:
    """Values before parts from their totals, which threads join in segments: a scan of two levels.

    Parameters
    ----------
    nest : Stretches
        Of which it is a part.
    count : int
        Parts: a multiple of the banks of a memory.
    carry : list of Memory
        The value before the first part; afterwards, that behind the last one.
    """

    def __init__(self, nest: Stretches, count: int, carry: list[Memory]) -> None:
        self.nest, self.summary, self.carry = nest, nest.summary, carry
        wide = max(d.itemsize for _, d in self.summary.parts) > dt.int32.itemsize
        short = 2 * _SHORT_SEGMENT if wide else _SHORT_SEGMENT
        self.each = _SEGMENT if count > BANKS else short
        self.segments = count // self.each
        pitch = self.each if self.each == _SHORT_SEGMENT else self.each + 1
        self.totals, self.ends = (
            [nest.memory(f"{kind}_{name}", d, *sizes) for name, d in self.summary.parts]
            for kind, sizes in (("total", (self.segments, pitch)), ("end", (self.segments,))))

    def summarise(self, of: Callable[[Expr], Values]) -> None:
        """Emit the total of each part."""
        s, i = self._open()
        self.summary.store(self.totals, of(s * self.each + i), s, i)
        self.nest.close((i, self.each), (s, self.segments))

    def join(self) -> None:
        """Emit what stands before each part in its segment, and what before each segment."""
        nest, summary, zero = self.nest, self.summary, ex.index(0)
        s = nest.open("each", self.segments)
        self._scan(self.each, summary.nothing(), self.totals, (s,), self.ends, s)
        nest.close((s, self.segments))
        o = nest.open("one", 1)
        self._scan(self.segments, summary.load(self.carry, zero), self.ends, (), self.carry, zero)
        nest.close((o, 1))

    def _scan(self, count: int, first: Values, memories: list[Memory], place: Index,
              ends: list[Memory], end: Expr) -> None:  # fmt: skip
        """Emit an exclusive scan of some values in their place; what comes last goes to `ends`."""
        nest, summary, em = self.nest, self.summary, self.nest.em
        registers = summary.registers(summary.parts, first)
        em.open()
        i = em.loop_var(nest.name("i"), count)
        value, running = summary.load(memories, *place, i), summary.load(registers)
        summary.store(memories, running, *place, i)
        summary.store(registers, summary.join(running, value))
        em.emit(For(i, ex.index(count), SERIAL, em.close()))
        summary.store(ends, summary.load(registers), end)

    def use(self, do: Callable[[Expr, Values], None]) -> None:
        """Emit something for each part, given the value before it."""
        s, i = self._open()
        summary = self.summary
        before = summary.join(summary.load(self.ends, s), summary.load(self.totals, s, i))
        do(s * self.each + i, summary.let(before))
        self.nest.close((i, self.each), (s, self.segments))

    def _open(self) -> tuple[Expr, Expr]:
        return self.nest.open("each", self.segments), self.nest.open("lane", self.each)
