"""Barriers that some threads of a block never reach, where the indices of threads alone say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.record import Record

__all__ = ["BRANCH", "GONE", "TURNS", "Fork", "diverges"]

BRANCH: Final = "branch"  # threads for which the test does not hold go another way,
GONE: Final = "left"  # have left the kernel,
TURNS: Final = "turns"  # go round a loop so many times


class Fork(Record):
    """What lies on the way to a statement: a test that holds there, or how often a loop turns."""

    kind: str
    value: Expr


def diverges(way: Sequence[Fork], specials: Mapping[str, Expr]) -> bool:
    """Return whether some threads of a block certainly reach a statement and others do not.

    Threads that have left the kernel are not waited for. Tests that ask for indices of blocks, too,
    are asked of the first block, which every launch has. A test of anything but indices and numbers
    is not known here, and behind it nothing is certain.
    """
    with importing:
        from weft.ir.interpret.interpret import (
            evaluate,  # few kernels have barriers under a condition
        )

    if not way:
        return False
    axes = [specials[f"thread.{axis}"] for axis in "xyz"]
    indices = {v for a in axes for v in ex.free_vars([a])}
    blocks = {v for axis in "xyz" for v in ex.free_vars([specials[f"block.{axis}"]])}
    first = dict.fromkeys(blocks, 0)
    comes = True  # whether the first block comes so far
    threads: list[dict[Expr, int]] | None = None
    for fork in way:
        used = ex.free_vars([fork.value])
        unknown = not used <= indices | blocks or bool(ex.variables([fork.value]))
        if used <= blocks and not used & indices:  # all threads of a block agree
            comes = comes and not unknown and bool(evaluate(fork.value, first))
            continue
        if unknown or (used & blocks and not comes):
            return False
        if threads is None:
            threads = [{**first, **t} for t in _threads(axes, specials)]
        values = [evaluate(fork.value, t) for t in threads]
        if len(set(values)) > 1 and fork.kind != GONE:
            return True
        if fork.kind != TURNS:
            threads = [t for t, holds in zip(threads, values, strict=True) if holds]
        if not threads:
            return False
    return False


def _threads(axes: Sequence[Expr], specials: Mapping[str, Expr]) -> Iterator[dict[Expr, Any]]:
    """Yield the indices of each thread of a block."""
    sizes = [int(specials[f"blockDim.{axis}"].attr) for axis in "xyz"]
    for place in product(*map(range, sizes)):
        yield {a: k for a, k in zip(axes, place, strict=True) if ex.free_vars([a])}
