"""Launches whose work-items work together: a group for each iteration of the parallel loop.

Inside of the parallel loop stand loops over threads (kind ``thread.x``), which the items of a group
deal out among themselves; what stands between them all items do alike::

    for b in n parallel:              for b in n begin group step groups:
      for t in 256 thread.x: A   ->     for t in 256 begin item step size: A
      x[b] = s                          barrier
                                        if item == 0: x[b] = s

* An array that is written inside of a loop over threads, and declared outside, is the group's:
  memory of the work-group while there is room, then a part of the scratch buffer. Only one item
  writes to it, or to memory of the device, between two loops over threads. Small arrays that are
  only written between such loops every item has for itself.
* There is a barrier behind each loop over threads, and before one where items may still read what
  it writes. Control flow around barriers is the same for all items: what it depends on is computed
  by all alike, or read from memory behind a barrier.
* An item that fails in a loop over threads notes that and goes on without touching memory. Behind
  the barrier the whole group leaves.

A phase without a parallel loop of its own is one group; parallel loops inside of its serial ones
are dealt out like threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.launches.code import ALIGN, PRIVATE_BYTES, Code, is_parallel
from weft.renderers.launches.launch_split import Phase
from weft.renderers.launches.thread_rows import Offset, Row, thread_rows

__all__ = ["Need", "WorkGroup", "works_together"]

_CELL: Final = 16  # bytes: of arrays in work-group memory
_CELLS: Final = 256  # bytes of work-group memory that flags and results may take


class Need(NamedTuple):
    """Scratch memory: bytes of each group, and of each of its items."""

    group: int
    item: int


def is_threads(inst: Inst) -> bool:
    """Whether it begins a loop over the threads of a group."""
    return isinstance(inst, li.Loop) and inst.kind.startswith("thread.")


def works_together(phase: Phase) -> bool:
    """Whether the work-items of a group have work to share inside of an iteration."""
    if any(is_threads(inst) for inst in phase.code):
        return True
    return any(map(is_parallel, phase.code)) and not any(
        is_parallel(inst) for inst in _outermost(phase.code))


def _outermost(code: Sequence[Inst]) -> Iterator[Inst]:
    """Yield the instructions outside of all regions, openers included."""
    depth = 0
    for inst in code:
        depth -= isinstance(inst, li.CLOSERS)
        if not depth:
            yield inst
        depth += isinstance(inst, li.OPENERS)


class WorkGroup:
    """A phase as what the work-items of a group do.

    Parameters
    ----------
    phase : Phase
        Its code.
    outside : set of str
        Arrays that are memory of the device: parameters and what phases share.
    items, most : int
        Work-items of a group where loops do not say how many, and the most that there may be.
    room : int
        Bytes of work-group memory.

    Attributes
    ----------
    items : int
        Work-items of a group.
    need : Need
        What it takes of the scratch buffer.
    """

    def __init__(self, phase: Phase, outside: set[str], items: int, most: int, room: int) -> None:
        self.phase, self.outside = phase, outside
        self.regions = li.regions(phase.code)
        self.shared = next((i for i in _outermost(phase.code) if is_parallel(i)), None)
        self.threads = {
            p: r.end
            for p, r in self.regions.items()
            if is_threads(phase.code[p])
            or (is_parallel(phase.code[p]) and phase.code[p] is not self.shared)
        }
        self.threads = {p: end for p, end in self.threads.items()
                        if not any(a < p < b for a, b in self.threads.items())}  # fmt: skip
        self.items = min(max(self._counts(items), default=items), most)
        self.inside = [False] * len(phase.code)
        for begin, end in self.threads.items():
            self.inside[begin : end + 1] = [True] * (end + 1 - begin)
        self.local: dict[str, Memory] = {}  # work-group memory, by name
        self.groups: dict[str, tuple[Memory, int]] = {}  # arrays of the group in scratch memory
        self.own: dict[str, tuple[Memory, int]] = {}  # those of an item there
        self.private: set[str] = set()
        self.rows: dict[str, Row] = {}  # arrays of which each item has a row of its own
        self.need = self._placed(room - _CELLS)

    def _counts(self, items: int) -> Iterator[int]:
        """Yield how many threads the loops over them have."""
        numbers = {i.result.id: int(i.attr) for i in self.phase.code
                   if isinstance(i, li.Compute) and i.op is Op.CONST
                   and i.result.dtype.is_integer}  # fmt: skip
        for begin in self.threads:
            loop = self.phase.code[begin]
            assert isinstance(loop, li.Loop)
            yield max(numbers.get(loop.extent.id, items), 1)

    def _placed(self, room: int) -> Need:
        """Find out where arrays are; return the scratch memory that they take."""
        code = self.phase.code
        together = {n for k, i in enumerate(code) if self.inside[k] and isinstance(
            i, li.StoreInst | li.AtomicInst) for n in _names(i)}  # fmt: skip
        roots: dict[str, str] = {}
        for inst in code:
            if isinstance(inst, li.StorageInst) and inst.base is not None:
                root = roots[inst.memory.name] = roots.get(inst.base.name, inst.base.name)
                if inst.memory.name in together:
                    together.add(root)
        self.rows = thread_rows(code, self.threads, self.items, {
            i.memory.name for k, i in enumerate(code)
            if isinstance(i, li.StorageInst) and not self.inside[k] and i.memory.name in together
            and i.memory.name not in {*self.outside, *roots, *roots.values()}})
        group = item = kept = 0
        for k, inst in enumerate(code):
            if not isinstance(inst, li.StorageInst) or inst.memory.name in self.outside:
                continue
            name, memory = inst.memory.name, inst.memory
            root, row = roots.get(name, name), self.rows.get(name)
            if root != name:  # it is where its root is
                if root in self.local:
                    self.local[name] = memory.replace(scope="shared")
                for places in (self.groups, self.own):
                    if root in places:
                        places[name] = memory, places[root][1]
                if root in self.private:
                    self.private.add(name)
                continue
            nbytes = (max(inst.size, 1) if row is None else row.size) * memory.dtype.itemsize
            size = -(-nbytes // ALIGN) * ALIGN
            if row is None and not self.inside[k] and (name in together or nbytes > PRIVATE_BYTES):
                small = -(-nbytes // _CELL) * _CELL
                if small <= room:
                    room -= small
                    self.local[name] = memory.replace(scope="shared")
                else:
                    self.groups[name] = memory, group
                    group += size
            elif nbytes > PRIVATE_BYTES or kept + nbytes > 4 * PRIVATE_BYTES:
                self.own[name] = memory, item
                item += size
            else:
                kept += nbytes
                self.private.add(name)
        return Need(group, item)

    def code(self, out: Code, nbytes: int, per_item: int) -> dict[str, tuple[Memory, int]]:
        """Write the code; return its arrays in scratch memory, and the byte of each.

        Parameters
        ----------
        out : Code
            Where to write it.
        nbytes : int
            Where the memory of groups begins in the scratch buffer.
        per_item : int
            Bytes that each work-item of the launch has of it.
        """
        return _Writer(self, out, nbytes, per_item).run()


def _names(inst: Inst) -> Iterator[str]:
    memory = getattr(inst, "memory", None)
    if memory is not None:
        yield memory.name


class _Writer:
    """Writes a phase as code of a work-item."""

    def __init__(self, work: WorkGroup, out: Code, nbytes: int, per_item: int) -> None:
        self.work, self.out, self.nbytes, self.per_item = work, out, nbytes, per_item
        self.asks = False  # whether items may have read what is written next
        self.starts: dict[str, Value] = {}
        self.numbers: dict[int, Value] = {}
        self.fails = any(isinstance(i, li.AssertInst) and work.inside[k]
                         for k, i in enumerate(work.phase.code))
        self.used = {v.id for i in work.phase.code for v in i.operands()}
        self.failed = Memory(out.name("failed"), dt.int32, (ex.index(1),), "shared")
        self.alive: Memory | None = None  # of the loop over threads: whether the item goes on
        self.predicated = False

    def run(self) -> dict[str, tuple[Memory, int]]:
        """Write the code."""
        work, out, code = self.work, self.out, self.work.phase.code
        self.item, self.size = out.special(li.LOCAL_ID), out.special(li.LOCAL_SIZE)
        self.group, self.groups = out.special(li.GROUP_ID), out.special(li.NUM_GROUPS)
        self.zero = out.const(0)
        self.first = out.compute(Op.EQ, dt.bool_, self.item, self.zero)
        for inst in code:  # work-group memory stands at the top, as languages want it
            if isinstance(inst, li.StorageInst) and inst.memory.name in work.local:
                base = None if inst.base is None else work.local[inst.base.name]
                out.emit(inst.replace(memory=work.local[inst.memory.name], base=base))
        if self.fails:
            out.emit(li.StorageInst(self.failed, 1))
            self.only_first(li.StoreInst(self.failed, self.zero, out.const(0, dt.int32)))
        moved = {}
        block = out.compute(Op.MUL, dt.int64, self.group, out.const(work.items * self.per_item))
        for name, (memory, at) in work.groups.items():
            moved[name] = memory, self.nbytes + at
            self.starts[name] = self.elements(block, memory)
        for name, (memory, at) in work.own.items():
            moved[name] = memory, self.nbytes + work.need.group + at
            own = out.compute(Op.MUL, dt.int64, self.item, out.const(work.need.item))
            self.starts[name] = self.elements(
                out.compute(Op.ADD, dt.int64, block, own), memory)  # fmt: skip
        position = 0
        while position < len(code):
            if position in work.threads:
                self.thread_loop(position, work.threads[position])
                position = work.threads[position] + 1
            else:
                self.together(code[position])
                position += 1
        return moved

    def elements(self, nbytes: Value, memory: Memory) -> Value:
        """Return a number of bytes as one of elements."""
        size = self.out.const(memory.dtype.itemsize)
        return self.out.compute(Op.FLOORDIV, dt.int64, nbytes, size)

    # what all items do alike

    def together(self, inst: Inst) -> None:
        """Write an instruction that stands between loops over threads."""
        out, work = self.out, self.work
        if isinstance(inst, li.PrefetchInst | li.BarrierInst):
            return
        if isinstance(inst, li.StorageInst):
            if inst.memory.name in work.private:
                row = work.rows.get(inst.memory.name)
                out.emit(inst if row is None else inst.replace(size=row.size))
            return
        if inst is work.shared:
            assert isinstance(inst, li.Loop)
            out.emit(inst.replace(kind=li.SERIAL, begin=self.group, step=self.groups))
            self.asks = True
            return
        if isinstance(inst, (*li.OPENERS, *li.MIDDLES, *li.CLOSERS)):
            self.asks = True  # paths meet
            out.emit(inst)
            return
        inst = self.placed(inst)
        name = next(_names(inst), "")
        private = name in work.private or name in work.own
        if isinstance(inst, li.LoadInst):
            self.asks = self.asks or not private
            out.emit(inst)
        elif (isinstance(inst, li.StoreInst) and not private) or isinstance(inst, li.PrintInst):
            self.only_first(inst)
        elif isinstance(inst, li.AtomicInst | li.CallInst | li.ClockInst):
            self.broadcast_from_first(inst)
        else:
            out.emit(inst)

    def only_first(self, inst: Inst) -> None:
        """Write what one item does for all; they see it behind a barrier."""
        out = self.out
        if self.asks:
            out.emit(li.BarrierInst())
        out.emit(li.IfBegin(self.first))
        out.emit(inst)
        out.emit(li.EndIf())
        out.emit(li.BarrierInst())
        self.asks = False

    def broadcast_from_first(self, inst: Inst) -> None:
        """Write what one item does for all, and broadcast its result."""
        out = self.out
        (result,) = inst.results()
        if result.id not in self.used and not isinstance(inst, li.CallInst):
            self.only_first(inst)
            return
        cell = Memory(out.name("broadcast"), result.dtype, (ex.index(1),), "shared")
        out.front(li.StorageInst(cell, 1))
        own = out.value(result.dtype)
        several = isinstance(inst, li.CallInst)
        renamed = inst.replace(**{inst._defines[0]: (own,) if several else own})
        if self.asks:
            out.emit(li.BarrierInst())
        out.emit(li.IfBegin(self.first))
        out.emit(renamed)
        out.emit(li.StoreInst(cell, self.zero, own))
        out.emit(li.EndIf())
        out.emit(li.BarrierInst())
        out.emit(li.LoadInst(result, cell, self.zero))
        self.asks = True

    # what items deal out

    def thread_loop(self, begin: int, end: int) -> None:
        """Write a loop over threads, and the barrier behind it."""
        out, code = self.out, self.work.phase.code
        loop = code[begin]
        assert isinstance(loop, li.Loop)
        if self.asks:
            out.emit(li.BarrierInst())
        own = code[begin + 1 : end]
        checks = [i for i in own if isinstance(i, li.AssertInst)]
        if checks:
            self.alive = Memory(out.name("goes_on"), dt.bool_, (ex.index(1),), "register")
            out.emit(li.StorageInst(self.alive, 1))
            out.emit(li.StoreInst(self.alive, self.zero, out.const(True, dt.bool_)))
        self.predicated = False
        out.emit(loop.replace(kind=li.SERIAL, begin=self.item, step=self.size))
        repeats = self.work.items < max(self.work._counts(self.work.items + 1), default=0)
        for inst in own:
            self.predicated = self.predicated or (bool(checks) and (
                repeats or isinstance(inst, li.Loop | li.WhileBegin)))
            self.alone(inst)
        out.emit(code[end])
        out.emit(li.BarrierInst())
        self.asks = False
        if checks:
            self.alive = None
            count = out.value(dt.int32)
            out.emit(li.LoadInst(count, self.failed, self.zero))
            none = out.compute(Op.EQ, dt.bool_, count, out.const(0, dt.int32))
            out.emit(li.AssertInst(none, checks[0].message))
            self.asks = True

    def alone(self, inst: Inst) -> None:
        """Write an instruction of a loop over threads."""
        out = self.out
        if isinstance(inst, li.PrefetchInst | li.BarrierInst):
            return
        if isinstance(inst, li.StorageInst):
            if inst.memory.name in self.work.private:
                out.emit(inst)
            return
        if isinstance(inst, li.Loop):
            out.emit(inst.replace(kind=li.SERIAL))
            return
        inst = self.placed(inst)
        if isinstance(inst, li.AssertInst):
            self.check(inst)
        elif not self.predicated:
            out.emit(inst)
        elif isinstance(inst, li.WhileTest):
            out.emit(inst.replace(condition=self.and_alive(inst.condition)))
        elif isinstance(inst, li.LoadInst | li.StoreInst):
            out.emit(inst.replace(mask=self.and_alive(inst.mask)))
        elif isinstance(inst, li.AtomicInst | li.CallInst | li.PrintInst):
            self.if_alive(inst)
        else:
            out.emit(inst)

    def check(self, inst: li.AssertInst) -> None:
        """Write an assertion after which a failing item touches no memory."""
        out, alive = self.out, self.alive
        assert alive is not None
        held = inst.condition
        if self.predicated:  # one that has failed says nothing more
            gone = out.compute(Op.NOT, dt.bool_, self.and_alive(None))
            held = out.compute(Op.OR, dt.bool_, inst.condition, gone)
        out.emit(inst.replace(condition=held, stops=False))
        out.emit(li.IfBegin(out.compute(Op.NOT, dt.bool_, inst.condition)))
        out.emit(li.StoreInst(self.failed, self.zero, out.const(1, dt.int32)))
        out.emit(li.StoreInst(alive, self.zero, out.const(False, dt.bool_)))
        out.emit(li.EndIf())
        self.predicated = True

    def and_alive(self, mask: Value | None) -> Value:
        """Return a mask that is false for an item that has failed."""
        assert self.alive is not None
        alive = self.out.value(dt.bool_)
        self.out.emit(li.LoadInst(alive, self.alive, self.zero))
        return alive if mask is None else self.out.compute(Op.AND, dt.bool_, mask, alive)

    def if_alive(self, inst: Inst) -> None:
        """Write what an item skips after it has failed; its result is zero then."""
        out = self.out
        results = tuple([v for v in inst.results() if v.id in self.used])
        cells = [Memory(out.name("result"), v.dtype, (ex.index(1),), "register") for v in results]
        for cell in cells:
            zero = False if cell.dtype.is_bool else 0.0 if cell.dtype.is_float else 0
            out.emit(li.StorageInst(cell, 1))
            out.emit(li.StoreInst(cell, self.zero, out.const(zero, cell.dtype)))
        out.emit(li.IfBegin(self.and_alive(None)))
        renamed = {v.id: out.value(v.dtype) for v in inst.results()}
        own = [renamed[v.id] for v in results]
        if isinstance(inst, li.AtomicInst):
            inst = inst.replace(result=renamed[inst.result.id])
        elif isinstance(inst, li.CallInst):
            inst = inst.replace(vars=tuple([renamed[v.id] for v in inst.vars]))
        out.emit(inst)
        for cell, v in zip(cells, own, strict=True):
            out.emit(li.StoreInst(cell, self.zero, v))
        out.emit(li.EndIf())
        for cell, v in zip(cells, results, strict=True):
            out.emit(li.LoadInst(v, cell, self.zero))

    def placed(self, inst: Inst) -> Inst:
        """Return an access with its memory and its place there."""
        if not isinstance(inst, li.LoadInst | li.StoreInst | li.AtomicInst):
            return inst
        name = inst.memory.name
        if name in self.work.local:
            return inst.replace(memory=self.work.local[name])
        if name in self.work.rows:
            inst = inst.replace(offset=self.in_row(self.work.rows[name].offsets[inst.offset.id]))
        start = self.starts.get(name)
        if start is None:
            return inst
        return inst.replace(offset=self.out.compute(Op.ADD, dt.int64, start, inst.offset))

    def in_row(self, offset: Offset) -> Value:
        """Return a place in the row of an item."""
        out, total = self.out, self.number(offset.constant)
        for value, factor in offset.terms:
            term = value
            if factor != 1:
                term = out.compute(Op.MUL, dt.int64, value, self.number(factor))
            total = out.compute(Op.ADD, dt.int64, total, term)
        return total

    def number(self, constant: int) -> Value:
        """Return a constant, which stands before all else."""
        found = self.numbers.get(constant)
        if found is None:
            found = self.numbers[constant] = self.out.value()
            self.out.front(li.Compute(found, Op.CONST, (), constant))
        return found
