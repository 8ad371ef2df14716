"""Uses of a kernel's values: which are dead, and which may be written where they are used."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import linear as li
from weft.ir.linear import Inst
from weft.ir.op import Op

__all__ = ["Uses"]

_PURE = (li.Compute, li.LoadInst, li.VariableInst, li.AddressInst)  # dropped if nobody uses them


class Uses:
    """Uses of the values of a kernel.

    Attributes
    ----------
    count : dict
        By value id, how many operands of live instructions a value is.
    near : set of int
        Values with one use, in the very region that defines them: written there, they are computed
        no more often and see no other iteration. Not those that become vectors, which are written
        wherever lanes are needed.
    dead : set of int
        Positions of instructions without effects whose results nobody uses.
    """

    def __init__(self, code: Sequence[Inst]) -> None:
        self.count: dict[int, int] = {}
        self.dead: set[int] = set()
        self.near: set[int] = set()
        for position in range(len(code) - 1, -1, -1):
            inst = code[position]
            if isinstance(inst, _PURE) and not any(v.id in self.count for v in inst.results()):
                self.dead.add(position)
                continue
            for v in inst.operands():
                self.count[v.id] = self.count.get(v.id, 0) + 1
        self._find_near(code)

    def _find_near(self, code: Sequence[Inst]) -> None:
        regions, opened = [0], 0
        home: dict[int, int] = {}
        for position, inst in enumerate(code):
            if position in self.dead:
                continue
            if isinstance(inst, li.CLOSERS):
                regions.pop()
            spreads = isinstance(inst, li.Compute) and inst.op in (Op.BROADCAST, Op.RAMP)
            for v in inst.operands() if not spreads else ():
                if self.count[v.id] == 1 and home.get(v.id) == regions[-1]:
                    self.near.add(v.id)
            if isinstance(inst, (*li.OPENERS, li.Else)):
                opened += 1
                if isinstance(inst, li.Else):
                    regions.pop()
                regions.append(opened)
            for v in inst.results():
                home[v.id] = regions[-1]
