"""Launches of work-items: where each is in its launch, and what it does, written out.

The iterations of a launch's parallel loop are dealt out to all work-items of all groups, one after
the other, so that neighbours read neighbouring elements::

    for i in n parallel: A      ->      for i in n begin group*size + item step groups*size: A

Any number of groups is right. What a kernel does outside of parallel loops is done by one item.

Private arrays that are larger than a few registers live in the scratch buffer, where each work-item
has a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.renderers.launches.launch_split import Phase, phases
from weft.target import Target

__all__ = ["Launch", "Launches", "launches"]

_PRIVATE: Final = 1 << 10  # bytes of an array that a work-item keeps for itself
_ALL: Final = 4 << 10  # bytes of all of them
_ALIGN: Final = 128  # bytes: of arrays in the scratch buffer


class Launch(NamedTuple):
    """One launch.

    Attributes
    ----------
    code : tuple of Inst
        What a work-item does. Its loops are serial.
    groups : int
        How many work-groups can share it: 1, as many as its iterations need, or 0: any number.
    items : int
        Work-items of a group.
    """

    code: tuple[Inst, ...]
    groups: int
    items: int


class Launches(NamedTuple):
    """All launches of a kernel, which run one after another.

    Attributes
    ----------
    launches : tuple of Launch
        In their order.
    scratch : dict of str to (Memory, int)
        Arrays in the scratch buffer, by name, and the byte at which each begins.
    nbytes : int
        Bytes of the scratch buffer that all groups share.
    per_item : int
        Bytes behind them for each work-item of a launch.
    """

    launches: tuple[Launch, ...]
    scratch: dict[str, tuple[Memory, int]]
    nbytes: int
    per_item: int


def launches(kernel: LinearKernel, target: Target) -> Launches:
    """Return a kernel as launches of work-items, whose code is written out."""
    cut = phases(kernel)
    own = _own_arrays(kernel, frozenset(cut.shared))
    per_item = sum(size for _, size in own.values())
    writer = _Writer(kernel, target, cut.nbytes, {name: at for name, (at, _) in own.items()},
                     per_item)  # fmt: skip
    made = tuple([writer.launch(phase) for phase in cut.phases])
    return Launches(made, {**cut.shared, **writer.moved}, cut.nbytes, per_item)


def _own_arrays(kernel: LinearKernel, shared: frozenset[str]) -> dict[str, tuple[int, int]]:
    """Return the large private arrays: byte in a work-item's part of the scratch buffer, size.

    An array that is the bytes of another one has no size of its own.
    """
    found: dict[str, tuple[int, int]] = {}
    end = kept = 0
    for inst in kernel.code:
        if not isinstance(inst, li.StorageInst) or inst.memory.name in shared:
            continue
        if inst.base is not None:
            if inst.base.name in found:
                found[inst.memory.name] = found[inst.base.name][0], 0
            continue
        nbytes = inst.size * inst.memory.dtype.itemsize
        if inst.memory.scope == "shared":
            continue
        kept += nbytes
        if nbytes > _PRIVATE or kept > _ALL:
            kept -= nbytes
            size = -(-nbytes // _ALIGN) * _ALIGN
            found[inst.memory.name] = end, size
            end += size
    return found


class _Place(Record):
    """Values of a launch: the number of a work-item in all of it, and of how many."""

    item: Value
    items: Value


class _Writer:
    """Writes the code of launches; numbers of values go on from those of the kernel."""

    def __init__(self, kernel: LinearKernel, target: Target, nbytes: int, own: dict[str, int],
                 per_item: int) -> None:  # fmt: skip
        self.target, self.nbytes, self.own, self.per_item = target, nbytes, own, per_item
        self.ids = 1 + max((v.id for i in kernel.code for v in i.results()), default=0)
        self.moved: dict[str, tuple[Memory, int]] = {}
        self.code: list[Inst] = []
        self.starts: dict[str, Value] = {}  # of own arrays: the element at which each begins

    def launch(self, phase: Phase) -> Launch:
        """Return a phase as a launch."""
        self.code, self.starts = [], {}
        shared = next((i for i in phase.code if _is_parallel(i)), None)
        items = self.target.group_items if shared is not None else 1
        place = self._place()
        for inst in phase.code:
            self.code += self._written(inst, place, shared)
        groups = -(-phase.groups // items) if shared is not None else 1
        return Launch(tuple(self.code), groups, items)

    def _place(self) -> _Place:
        group, size, local, groups = (
            self._special(r) for r in (li.GROUP_ID, li.LOCAL_SIZE, li.LOCAL_ID, li.NUM_GROUPS)
        )
        item = self._compute(Op.ADD, self._compute(Op.MUL, group, size), local)
        return _Place(item, self._compute(Op.MUL, groups, size))

    def _written(self, inst: Inst, place: _Place, shared: Inst | None) -> Iterator[Inst]:
        """Yield what an instruction becomes."""
        if isinstance(inst, li.PrefetchInst):
            return
        if isinstance(inst, li.Loop) and inst.kind != li.SERIAL:
            mine = {"begin": place.item, "step": place.items} if inst is shared else {}
            yield inst.replace(kind=li.SERIAL, **mine)
        elif isinstance(inst, li.StorageInst) and inst.memory.name in self.own:
            size = inst.memory.dtype.itemsize
            at = self.nbytes + self.own[inst.memory.name]
            stride = self._const(self.per_item // size)
            self.moved[inst.memory.name] = inst.memory, at
            self.starts[inst.memory.name] = self._compute(Op.MUL, place.item, stride)
        elif isinstance(inst, li.LoadInst | li.StoreInst | li.AtomicInst) and (
            inst.memory.name in self.starts
        ):
            start = self.starts[inst.memory.name]
            yield inst.replace(offset=self._compute(Op.ADD, start, inst.offset))
        else:
            yield inst

    def _value(self) -> Value:
        self.ids += 1
        return Value("", self.ids - 1, dt.int64)

    def _compute(self, op: Operation, a: Value, b: Value) -> Value:
        made = self._value()
        self.code.append(li.Compute(made, op, (a, b)))
        return made

    def _const(self, number: int) -> Value:
        made = self._value()
        self.code.append(li.Compute(made, Op.CONST, (), number))
        return made

    def _special(self, register: str) -> Value:
        made = self._value()
        self.code.append(li.SpecialInst(made, register))
        return made


def _is_parallel(inst: Inst) -> bool:
    return isinstance(inst, li.Loop) and inst.kind == li.PARALLEL
