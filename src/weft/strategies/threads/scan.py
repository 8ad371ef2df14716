"""Scans on devices of threads: a group for each row, or a group or thread for each stretch of one.

The nests (`weft.kernelize.scans.scan_groups`, `weft.kernelize.scans.scan_stretches`) name their
loops. ``row`` and ``stretch`` run in parallel. Inside of those of groups, ``each`` is a loop over
threads, alone or around ``lane``; ``one`` is what one thread does; the iterations of ``deal`` are
dealt out to the threads of the group.
"""

from __future__ import annotations

from typing import Final

from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.stmt import Body, For
from weft.strategies.common.nest import Plan, chain_of, product
from weft.strategies.threads.sharing import deal_out, fuse_all

__all__ = ["schedule_scan"]

_WHY: Final = "{0} are scanned by {1}"


def schedule_scan(plan: Plan) -> bool:
    """Schedule a kernel, if it is a scan for devices of threads; whether it is one."""
    loops = _loops(plan.kernel.body)
    cut = any(_is(s, "stretch") for s in loops)
    threads = [s for s in loops if _is(s, "each")]
    if not threads and not cut:
        return False
    items = max((product(c.extent for c in chain_of(s) if _is(c, "each", "lane"))
                 for s in threads), default=1)  # fmt: skip
    items = min(items, plan.target.group_items)
    nests = [s for s in plan.kernel.body if isinstance(s, For) and _is(s, "row", "stretch")]
    chains = [[c.var.attr for c in chain_of(s) if _is(c, "row", "stretch")] for s in nests]
    for loop in loops:
        if _is(loop, "each", "deal", "one"):
            inner = [c.var.attr for c in chain_of(loop)[1:] if _is(c, "lane")]
            deal_out(plan, fuse_all(plan, [loop.var.attr, *inner]), items)
    for chain in chains:
        plan.schedule.parallel(*chain)
    last = _loops(plan.kernel.body[-1:])
    groups = f"groups of {items} threads" if any(s.kind == st.THREADS for s in last) else "threads"
    plan.why.append(_WHY.format("stretches of rows" if cut else "rows", groups))
    return True


def _loops(body: Body) -> list[For]:
    return [s for s in traverse.walk(body) if isinstance(s, For)]


def _is(s: st.Stmt, *kinds: str) -> bool:
    """Whether a statement is a loop of some kinds, which its name tells."""
    return isinstance(s, For) and s.var.attr.partition("_")[0] in kinds
