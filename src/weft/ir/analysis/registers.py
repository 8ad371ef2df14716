"""Registers of kernels in which front ends keep names, and which of their reads are uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.expr import Expr, free_vars
from weft.ir.op import Op
from weft.ir.stmt import Load, Memory, Store
from weft.ir.traverse import walk

if TYPE_CHECKING:
    from weft.ir.stmt import Kernel

__all__ = ["copied", "copies", "is_register"]


def is_register(memory: Memory) -> bool:
    """Whether a memory holds one value of each thread."""
    return memory.scope == "register" and not memory.shape


def copied(value: Expr) -> Expr:
    """Return what a value is a copy of, apart from its type."""
    while value.op is Op.CAST:
        value = value.args[0]
    return value


def copies(kernel: Kernel) -> set[Load]:
    """Return the reads of registers whose values are only copied to other registers.

    The front end copies names that may not have a value where two ways meet and where a loop turns;
    only a use of the value is a read in the sense of the program.
    """
    used: set[Expr] = set()
    for s in walk(kernel.body):
        if isinstance(s, Store) and is_register(s.memory) and copied(s.value).op is Op.VAR:
            continue
        used.update(free_vars(s.exprs()))
    return {s for s in walk(kernel.body)
            if isinstance(s, Load) and is_register(s.memory) and s.var not in used}
