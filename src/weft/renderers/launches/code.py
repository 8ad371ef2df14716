"""Code of a launch while it is written: its numbers of values go on from those of the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op, Operation

__all__ = ["ALIGN", "PRIVATE_BYTES", "Code", "is_parallel"]

PRIVATE_BYTES: Final = 1 << 10  # of an array that a work-item keeps for itself
ALIGN: Final = 128  # bytes: of arrays in the scratch buffer


def is_parallel(inst: Inst) -> bool:
    """Whether it begins a parallel loop."""
    return isinstance(inst, li.Loop) and inst.kind == li.PARALLEL


class Code:
    """Appends instructions of one kernel's launches, which take those of its phases over."""

    def __init__(self, kernel: LinearKernel, code: Iterable[Inst]) -> None:
        self._ids = 1 + max((v.id for i in code for v in i.results()), default=0)
        self._taken = {m.name for m in li.memories(kernel)}
        self._top = 0
        self.insts: list[Inst] = []

    def begin(self) -> None:
        """Begin the code of another launch."""
        self.insts, self._top = [], 0

    def emit(self, inst: Inst) -> None:
        """Append an instruction."""
        self.insts.append(inst)

    def front(self, inst: Inst) -> None:
        """Put an instruction before all others."""
        self.insts.insert(self._top, inst)
        self._top += 1

    def name(self, base: str) -> str:
        """Return a name that no memory has."""
        found, count = base, 0
        while found in self._taken:
            count += 1
            found = f"{base}_{count}"
        self._taken.add(found)
        return found

    def value(self, dtype: DType = dt.int64) -> Value:
        """Return a new value."""
        self._ids += 1
        return Value("", self._ids - 1, dtype)

    def compute(self, op: Operation, dtype: DType, *args: Value) -> Value:
        """Append an operation and return its result."""
        made = self.value(dtype)
        self.insts.append(li.Compute(made, op, args))
        return made

    def const(self, number: Any, dtype: DType = dt.int64) -> Value:
        """Append a constant."""
        made = self.value(dtype)
        self.insts.append(li.Compute(made, Op.CONST, (), number))
        return made

    def special(self, register: str) -> Value:
        """Append a read of a special register."""
        made = self.value()
        self.insts.append(li.SpecialInst(made, register))
        return made
