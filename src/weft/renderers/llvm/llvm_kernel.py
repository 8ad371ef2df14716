"""State of a kernel while it is rendered: what its functions share, open regions, captures."""

from __future__ import annotations

import re

from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.renderers.base import Style
from weft.renderers.llvm.llvm_memory import Memories
from weft.renderers.llvm.llvm_types import Module
from weft.target import Target

__all__ = ["Captured", "KernelText", "Region", "symbol"]


def symbol(name: str) -> str:
    """Return a global name, quoted where it needs to be."""
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][\w.]*", name) else f'@"{name}"'


class KernelText:
    """What the functions of one kernel share.

    Attributes
    ----------
    functions : list of str
        Finished bodies of parallel loops.
    asserts : bool
        Whether there are assertions that may fail.
    stops : bool
        Whether there are loops that an interrupt may stop.
    """

    def __init__(self, target: Target, kernel: LinearKernel, name: str, style: Style) -> None:
        self.target, self.kernel, self.name = target, kernel, name
        self.module = Module(target, kernel.meta.fastmath, kernel.meta.kind != "custom", style)
        self.memories = Memories(self.module, kernel)
        self.functions: list[str] = []
        self.asserts = self.stops = False
        self.regions = li.regions(kernel.code)


class Region:
    """An open loop, while or if of the function being written."""

    __slots__ = ("after", "head", "inst", "other", "phi")

    def __init__(self, inst: Inst) -> None:
        self.inst = inst
        self.head = self.after = self.other = ""
        self.phi = -1


class Captured(Record):
    """One entry of the block that a parallel region gets: where, what, and its name inside."""

    offset: int
    kind: str
    name: str
    source: Value | Memory | str
