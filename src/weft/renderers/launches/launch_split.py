"""A kernel as phases, each of which is one launch of a grid: what a grid cannot wait for is split.

Work-groups of one launch cannot wait for each other, and iterations of a parallel loop may run on
any of them. So a kernel is cut at its outermost parallel loops: each is a phase, shared out over
groups; what stands between two of them is a phase of one group. Phases run one after another.

Arrays and values that are used in several phases, or by all groups of one, live in a scratch buffer
of the launch. What can be computed again from parameters that no phase writes is computed again;
that rests on parameters of which one is written being no memory of another one, as everywhere below
the language of kernels. A parallel loop inside of a serial one is not cut out: one group runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory

__all__ = ["Phase", "Phases", "arrays_of", "phases"]

_ALIGN: Final = 128  # bytes: of arrays in the scratch buffer, so that no two share a line
_AGAIN: Final = (li.Compute, li.VariableInst, li.AddressInst)  # computed again wherever used


class Phase(NamedTuple):
    """One launch.

    Attributes
    ----------
    code : tuple of Inst
        Its instructions. Its one outermost parallel loop, if there is any, is shared out.
    groups : int
        How many groups can work on it: 1, or the extent of its loop; 0: as many as there are.
    """

    code: tuple[Inst, ...]
    groups: int


class Phases(NamedTuple):
    """All launches of a kernel.

    Attributes
    ----------
    phases : tuple of Phase
        In their order.
    shared : dict of str to (Memory, int)
        Arrays in the scratch buffer, by name, and the byte at which each begins.
    nbytes : int
        Bytes of the scratch buffer that all groups share.
    """

    phases: tuple[Phase, ...]
    shared: dict[str, tuple[Memory, int]]
    nbytes: int


def phases(kernel: LinearKernel) -> Phases:
    """Return a kernel as phases."""
    return _Cut(kernel).made()


class _Item(NamedTuple):
    """A region of the outermost level, or one instruction of it."""

    code: tuple[Inst, ...]
    phase: int  # -1: computed again in each phase that uses it; -2: an array


_ANYWHERE: Final = -1
_ARRAY: Final = -2


class _Cut:
    """The work of `phases` on one kernel."""

    def __init__(self, kernel: LinearKernel) -> None:
        self.kernel = kernel
        self.roots: dict[str, str] = {}  # of arrays that are the bytes of others
        for i in kernel.code:
            if isinstance(i, li.StorageInst) and i.base is not None:
                self.roots[i.memory.name] = self.roots.get(i.base.name, i.base.name)
        self.written = {self.roots.get(i.memory.name, i.memory.name) for i in kernel.code
                        if isinstance(i, li.StoreInst | li.AtomicInst)}
        self.params = {m.name for m in kernel.params}
        self.loops: dict[int, li.Loop] = {}  # of parallel phases
        self.items = list(self._items())
        self.home = {
            v.id: n for n, item in enumerate(self.items) for i in item.code for v in i.results()
        }
        self.shared: dict[str, tuple[Memory, int]] = {}
        self.nbytes = 0
        self.ids = 1 + max((v.id for i in kernel.code for v in i.results()), default=0)
        self.spilled: dict[int, tuple[Memory, Value]] = {}
        self.numbers = {
            i.result.id: int(i.attr)
            for i in kernel.code
            if isinstance(i, li.Compute)
            and i.op is Op.CONST
            and i.result.dtype.is_integer
            and i.result.lanes == 1
        }

    def _items(self) -> Iterator[_Item]:
        """Yield the outermost level, with the phase that each item is in."""
        code, regions = self.kernel.code, li.regions(self.kernel.code)
        position, phase, serial = 0, -1, False
        while position < len(code):
            inst = code[position]
            end = regions[position].end if position in regions else position
            part = tuple(code[position : end + 1])
            position = end + 1
            if isinstance(inst, li.Loop) and inst.kind == li.PARALLEL:
                phase, serial = phase + 1, False
                self.loops[phase] = inst
                yield _Item(part, phase)
            elif isinstance(inst, li.StorageInst):
                yield _Item(part, _ARRAY)
            elif isinstance(inst, _AGAIN) or self._is_constant(inst):
                yield _Item(part, _ANYWHERE)
            elif not isinstance(inst, li.PrefetchInst):
                if not serial:
                    phase, serial = phase + 1, True
                yield _Item(part, phase)

    def _is_constant(self, inst: Inst) -> bool:
        """Whether it reads an array that no phase writes."""
        return (
            isinstance(inst, li.LoadInst)
            and inst.memory.name in self.params
            and inst.memory.name not in self.written
        )

    def made(self) -> Phases:
        """Return the phases."""
        count = max([1, *(item.phase + 1 for item in self.items)])
        wanted = [self._wanted(phase) for phase in range(count)]
        arrays = self._arrays(wanted)
        for phase, items in enumerate(wanted):
            self._spill(phase, items)
        made = []
        for phase, items in enumerate(wanted):
            code: list[Inst] = []
            for number in sorted(items):
                item = self.items[number]
                if item.phase == _ARRAY:
                    storage = item.code[0]
                    assert isinstance(storage, li.StorageInst)
                    if arrays[storage.memory.name] is None:
                        code.append(storage)
                elif item.phase in (_ANYWHERE, phase):
                    code += item.code
                    if item.phase == phase:
                        code += self._saved(item)
                else:
                    code += self._restored(item, items)
            made.append(Phase(tuple(code), self._groups(phase)))
        return Phases(tuple(made), self.shared, self.nbytes)

    def _groups(self, phase: int) -> int:
        loop = self.loops.get(phase)
        return 1 if loop is None else self.numbers.get(loop.extent.id, 0)

    def _wanted(self, phase: int) -> dict[int, set[int]]:
        """Return the items that a phase needs, and the values that it takes of each."""
        wanted: dict[int, set[int]] = {
            n: set() for n, item in enumerate(self.items) if item.phase == phase
        }
        arrays = {
            self.items[n].code[0].memory.name: n  # type: ignore[attr-defined]
            for n, item in enumerate(self.items)
            if item.phase == _ARRAY
        }
        pending = list(wanted)
        while pending:
            item = self.items[pending.pop()]
            if item.phase >= 0 and item.phase != phase:
                continue  # what it made is read from the scratch buffer
            for inst in item.code:
                for v in inst.operands():
                    number = self.home[v.id]
                    if number not in wanted:
                        pending.append(number)
                    wanted.setdefault(number, set()).add(v.id)
                for name in arrays_of(inst):
                    if name in arrays and arrays[name] not in wanted:
                        wanted[arrays[name]] = set()
                        pending.append(arrays[name])
        return wanted

    def _arrays(
        self, wanted: Sequence[dict[int, set[int]]]
    ) -> dict[str, tuple[Memory, int] | None]:
        """Return where arrays of the outermost level are: in the scratch buffer, or None."""
        storages = [i.code[0] for i in self.items if i.phase == _ARRAY]
        users: dict[str, set[int]] = {}
        numbers = {n: i.code[0] for n, i in enumerate(self.items) if i.phase == _ARRAY}
        for phase, items in enumerate(wanted):
            for n in items:
                inst = numbers.get(n)
                if isinstance(inst, li.StorageInst):
                    users.setdefault(inst.memory.name, set()).add(phase)
        found: dict[str, tuple[Memory, int] | None] = {}
        for inst in storages:
            assert isinstance(inst, li.StorageInst)
            memory = inst.memory
            seen = users.get(memory.name, set())
            root = self.roots.get(memory.name, memory.name)
            if root in self.shared or root in self.params:
                start = self.shared.get(root)
                found[memory.name] = None if start is None else (memory, start[1])
            elif len(seen) > 1 or any(phase in self.loops for phase in seen):
                found[memory.name] = self._place(memory, inst.size)
            else:
                found[memory.name] = None
            place = found[memory.name]
            if place is not None:
                self.shared[memory.name] = place
        return found

    def _place(self, memory: Memory, size: int) -> tuple[Memory, int]:
        """Find room in the scratch buffer."""
        start = self.nbytes
        nbytes = max(size, 1) * memory.dtype.itemsize
        self.nbytes += -(-nbytes // _ALIGN) * _ALIGN
        return memory, start

    def _spill(self, phase: int, items: dict[int, set[int]]) -> None:
        """Find room for the values that a phase takes from earlier ones."""
        for number, values in items.items():
            item = self.items[number]
            if item.phase < 0 or item.phase == phase:
                continue
            for inst in item.code:
                for v in inst.results():
                    if v.id in values and v.id not in self.spilled:
                        memory = Memory(f"kept_{v.id}", v.dtype, (ex.index(v.lanes),))
                        self.shared[memory.name] = self._place(memory, v.lanes)
                        self.spilled[v.id] = memory, v

    def _zero(self) -> li.Compute:
        """Return an instruction that makes the offset 0."""
        self.ids += 1
        return li.Compute(Value("", self.ids, dt.int64), Op.CONST, (), 0)

    def _saved(self, item: _Item) -> Iterator[Inst]:
        """Yield what keeps the values that later phases take."""
        for inst in item.code:
            for v in inst.results():
                if v.id in self.spilled:
                    zero = self._zero()
                    yield zero
                    yield li.StoreInst(self.spilled[v.id][0], zero.result, v)

    def _restored(self, item: _Item, items: dict[int, set[int]]) -> Iterator[Inst]:
        """Yield what reads the values of an earlier phase."""
        for inst in item.code:
            for v in inst.results():
                if v.id in self.spilled and any(v.id in taken for taken in items.values()):
                    zero = self._zero()
                    yield zero
                    yield li.LoadInst(v, self.spilled[v.id][0], zero.result)


def arrays_of(inst: Inst) -> Iterator[str]:
    """Yield the names of the arrays that an instruction names."""
    memory = getattr(inst, "memory", None)
    if memory is not None:
        yield memory.name
    if isinstance(inst, li.StorageInst) and inst.base is not None:
        yield inst.base.name
