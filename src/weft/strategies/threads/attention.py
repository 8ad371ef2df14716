"""Attention on devices of threads: an iteration of its blocks of queries for each group.

The nest (`weft.kernelize.attention.attention_groups`) has a tile of each product for every thread.
A group copies keys and values to its memory in steps, as in
`weft.strategies.threads.contraction`, and keeps queries, scores and what it knows of each row
there; the results are in registers of the threads until the last block of keys::

    for block parallel:
      for t thread.x: x[e, q] = Q
      for blocks of keys:
        for e.o: { for t thread.x: copy K;  for t thread.x: tile of s += x * K.w }
        for t thread.x: the softmax of a share of the keys of a query
        for j.o: { for t thread.x: copy V;  for t thread.x: tile of result += s * V.w }
        for t thread.x: acc = acc * scale + result
      for t thread.x: O = acc / l

Rows of arrays in memory of the group are moved against each other, so that neither neighbouring
terms nor neighbouring keys meet in a bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.errors import ScheduleError
from weft.ir import traverse
from weft.ir.stmt import Alloc, Load, Reduce
from weft.strategies.common.nest import Plan, chain_of, find, loop_of, size_of
from weft.strategies.threads.sharing import copy_block, deal_out, fuse_all
from weft.target import BANKS, COPY_STEPS, FLAG_BYTES

__all__ = ["schedule_attention"]

_WHY: Final = "attention: blocks of {0} queries and {1} keys by groups of {2} threads"
_SUMS: Final = "acc0"  # of which each thread has a row of its own


def schedule_attention(plan: Plan, root: str) -> bool:
    """Schedule an attention, named by its outermost loop; whether it is one in tiles of threads."""
    loop = find(plan.kernel, root)
    if loop is None or find(plan.kernel, "a3") is None:
        return False
    chain = [c.var.attr for c in chain_of(loop)]
    side = size_of(loop_of(plan, "a3").extent)
    rows, keys = (side * size_of(loop_of(plan, name).extent) for name in ("u3", "k3"))
    items = side * side
    _spread(plan, "x0", rows, 1)
    for memory in ("s0", "part", "share"):
        _spread(plan, memory, rows, BANKS // side)
    deal_out(plan, fuse_all(plan, ["q1_0", "e1_0"]), items)
    step = _step(plan, chain[-1], keys)
    _product(plan, "score", ("a3", "b3"), "e3", ("k3", "u3"), step, items)
    _product(plan, "result", ("a5", "b5"), "j5", ("c5", "u5"), step, items)
    for name in ("2", "8"):
        plan.schedule.bind(f"a{name}", f"b{name}")
        for tile in (f"c{name}", f"u{name}"):
            plan.schedule.unroll(tile)
    for name in ("l", "a", "c"):
        share = (f"p{name}", f"q{name}")
        if rows % BANKS:
            share = share[::-1]
            plan.schedule.reorder(*share)
        plan.schedule.bind(*share)
    if find(plan.kernel, "p7") is not None:
        deal_out(plan, fuse_all(plan, ["p7", "d7"]), items)
    for name in ("q2m", "qb", "qd", "d9", "q9"):
        if find(plan.kernel, name) is not None:
            deal_out(plan, name, items)
    plan.schedule.parallel(*chain)
    plan.why.append(_WHY.format(rows, keys, items))
    return True


def _spread(plan: Plan, memory: str, rows: int, skew: int) -> None:
    """Put unused elements behind each row of a memory of the group."""
    plan.schedule.pad(memory, 1, rows + skew)


def _step(plan: Plan, block: str, keys: int) -> int:
    """Return how many terms of keys, and keys of values, are copied at once."""
    body = loop_of(plan, block).body
    kept = sum(size_of(s.memory.size) * s.memory.dtype.itemsize for s in traverse.walk(body)
               if isinstance(s, Alloc) and s.memory.name != _SUMS)  # fmt: skip
    room = plan.target.shared_bytes - FLAG_BYTES - kept
    wide = size_of(loop_of(plan, "b5").extent) * size_of(loop_of(plan, "c5").extent)
    size = max(s.memory.dtype.itemsize for s in traverse.walk(body) if isinstance(s, Load))
    fitting = [n for n in COPY_STEPS if n * (keys + max(BANKS // n, 1) + wide) * size <= room]
    if not fitting:
        raise ScheduleError("attention", found=f"{max(room, 0)} bytes of a group for copies",
                            expected="room for keys and values")
    return fitting[0]


def _product(plan: Plan, name: str, threads: Sequence[str], term: str, tile: Sequence[str],
             step: int, items: int) -> None:  # fmt: skip
    """Have each thread make a tile of a product, by copies of its factors if that is legal."""
    saved = plan.schedule.mark()
    try:
        _copied(plan, name, threads, term, tile, step, items)
    except ScheduleError as error:  # such as checks of indices between the loops
        plan.schedule.reset(saved)
        plan.schedule.bind(*threads)
        plan.why.append(f"not {error.operation}: {error.found}")


def _copied(plan: Plan, name: str, threads: Sequence[str], term: str, tile: Sequence[str],
            step: int, items: int) -> None:  # fmt: skip
    """Have each thread keep a tile of sums in registers, of factors that the group copies."""
    schedule = plan.schedule
    total = next(s for s in traverse.walk(plan.kernel.body)
                 if isinstance(s, Reduce) and s.accumulators[0].var.attr == name)
    memories = dict.fromkeys(s.memory for s in total.body
                             if isinstance(s, Load) and s.memory.scope == "global")
    step = min(step, size_of(total.axes[0].extent))
    plan.attempt("contract", name)
    schedule.split(term, step)
    schedule.decompose_reduction(name, threads[0], scope="local")
    schedule.reorder(*threads, f"{term}.i", *tile)
    for memory in memories:
        saved = plan.schedule.mark()
        try:
            copy_block(plan, memory, f"{term}.o", step, items)
        except ScheduleError as error:
            plan.schedule.reset(saved)
            plan.why.append(f"not {error.operation}: {error.found}")
    for suffix in (".z", "", ".f"):
        schedule.bind(*[f"{t}{suffix}" for t in threads])
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
