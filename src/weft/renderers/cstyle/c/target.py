"""What a CPU can do through a C compiler: the target of the pair ``cpu/c``."""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.op import MATRICES, Op
from weft.target import Target

__all__ = ["LACKING", "c_target"]

# Operations that C has no exact form for: instructions that a compiler would have to be asked for
# by name, one processor at a time.
LACKING: Final = frozenset(op.name for op in (
    Op.SCALB, Op.MAXNUM, Op.MINNUM, Op.NANOF, Op.LOOKUP, Op.COMPRESS, Op.DOT2, Op.DOT4, Op.DOT4S,
    Op.PLACES, *MATRICES,
))  # fmt: skip


def c_target(host: Target) -> Target:
    """Return the target of C code for a processor: its caches, cores and vectors are the same.

    Fused multiply-adds are there where an instruction does them, and not where a function of the
    C library would.

    Parameters
    ----------
    host : Target
        The processor as the pair of LLVM knows it.
    """
    lacking = set(LACKING)
    if host.arch == "x86_64" and not {"+fma", "+avx512f"} & set(host.features):
        lacking.add(Op.MAD.name)
    operations = frozenset((op, d) for op, d in host.operations if op not in lacking)
    halves = host.native_conversions & {dt.float16.text} if host.arch == "x86_64" else frozenset()
    return host.replace(operations=operations, native_conversions=halves, ieee_extremes=False)
