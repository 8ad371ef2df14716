"""Loop nests of users, brought to the form in which strategies know them.

`normalise` carries checks out of the loops, turns registers into values and loops into reductions,
sums in memory into sums in registers, and gives sums of products loops of their own. What it makes
computes what the nest as written computes, but for the order of the terms of reductions.
"""

from __future__ import annotations

from weft.ir.stmt import Kernel
from weft.passes.nests.accumulate import accumulate
from weft.passes.nests.checks import FALLBACK, hoist_checks
from weft.passes.nests.distribute import distribute
from weft.passes.nests.values import follow_registers

__all__ = ["FALLBACK", "normalise"]


def normalise(kernel: Kernel, checked: bool = True) -> Kernel:
    """Return a kernel of serial loops in the form in which strategies know it.

    `checked` says that indices are checked wherever they are not known to be right.
    """
    return distribute(accumulate(follow_registers(hoist_checks(kernel), checked)))
