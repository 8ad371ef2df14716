"""Launches of work-items: where each is in its launch, and what it does, written out.

The iterations of a launch's parallel loop are dealt out to all work-items of all groups, one after
the other, so that neighbours read neighbouring elements::

    for i in n parallel: A      ->      for i in n begin group*size + item step groups*size: A

Any number of groups is right. What a kernel does outside of parallel loops is done by one item.
Where items of a group have work to share inside of an iteration, each iteration is one group's
(`weft.renderers.launches.work_groups`).

Private arrays that are larger than a few registers live in the scratch buffer, where each work-item
has a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.launches.code import ALIGN, PRIVATE_BYTES, Code, is_parallel
from weft.renderers.launches.launch_split import Phase, phases
from weft.renderers.launches.repeated_loads import without_repeated_loads
from weft.renderers.launches.work_groups import Need, WorkGroup, works_together
from weft.target import Target

__all__ = ["Launch", "Launches", "launches"]


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
    outside = {*cut.shared, *(m.name for m in kernel.params)}
    plans: list[WorkGroup | _Items] = []
    parts = [p._replace(code=without_repeated_loads(p.code, outside)) for p in cut.phases]
    for phase in parts:
        if works_together(phase):
            plans.append(WorkGroup(phase, outside, target.group_items, target.max_items,
                                   target.shared_bytes))  # fmt: skip
        else:
            plans.append(_Items(phase, outside, target.group_items))
    per_item = 0
    for plan in plans:
        need = -(-plan.need.group // plan.items) + plan.need.item
        per_item = max(per_item, -(-need // ALIGN) * ALIGN)
    out = Code(kernel, [i for phase in cut.phases for i in phase.code])
    made, scratch = [], dict(cut.shared)
    for phase, plan in zip(parts, plans, strict=True):
        out.begin()
        scratch |= plan.code(out, cut.nbytes, per_item)
        groups = phase.groups
        if isinstance(plan, _Items):
            groups = -(-groups // plan.items)
        made.append(Launch(tuple(out.insts), groups, plan.items))
    return Launches(tuple(made), scratch, cut.nbytes, per_item)


class _Items:
    """A phase whose work-items have nothing to share: each takes single iterations."""

    def __init__(self, phase: Phase, outside: set[str], items: int) -> None:
        self.phase = phase
        self.shared = next((i for i in phase.code if is_parallel(i)), None)
        self.items = items if self.shared is not None else 1
        self.own: dict[str, int] = {}  # of large arrays: the byte in a work-item's part
        end = kept = 0
        for inst in phase.code:
            if not isinstance(inst, li.StorageInst) or inst.memory.name in outside:
                continue
            if inst.base is not None:
                if inst.base.name in self.own:
                    self.own[inst.memory.name] = self.own[inst.base.name]
                continue
            nbytes = inst.size * inst.memory.dtype.itemsize
            if nbytes > PRIVATE_BYTES or kept + nbytes > 4 * PRIVATE_BYTES:
                self.own[inst.memory.name] = end
                end += -(-nbytes // ALIGN) * ALIGN
            else:
                kept += nbytes
        self.need = Need(0, end)

    def code(self, out: Code, nbytes: int, per_item: int) -> dict[str, tuple[Memory, int]]:
        """Write the code; return its arrays in scratch memory, and the byte of each."""
        group, size, local, groups = (
            out.special(r) for r in (li.GROUP_ID, li.LOCAL_SIZE, li.LOCAL_ID, li.NUM_GROUPS)
        )
        item = out.compute(Op.ADD, dt.int64, out.compute(Op.MUL, dt.int64, group, size), local)
        step = out.compute(Op.MUL, dt.int64, groups, size)
        moved: dict[str, tuple[Memory, int]] = {}
        starts: dict[str, Value] = {}
        for inst in self.phase.code:
            name = getattr(getattr(inst, "memory", None), "name", "")
            if isinstance(inst, li.StorageInst) and name in self.own:
                elements = out.const(per_item // inst.memory.dtype.itemsize)
                moved[name] = inst.memory, nbytes + self.own[name]
                starts[name] = out.compute(Op.MUL, dt.int64, item, elements)
                continue
            for one in self._written(inst, item, step):
                if name in starts and isinstance(one, li.LoadInst | li.StoreInst | li.AtomicInst):
                    offset = out.compute(Op.ADD, dt.int64, starts[name], one.offset)
                    one = one.replace(offset=offset)
                out.emit(one)
        return moved

    def _written(self, inst: Inst, item: Value, step: Value) -> Iterator[Inst]:
        """Yield what an instruction becomes."""
        if isinstance(inst, li.PrefetchInst | li.BarrierInst):
            return
        if isinstance(inst, li.Loop) and inst.kind != li.SERIAL:
            mine = {"begin": item, "step": step} if inst is self.shared else {}
            yield inst.replace(kind=li.SERIAL, **mine)
        else:
            yield inst
