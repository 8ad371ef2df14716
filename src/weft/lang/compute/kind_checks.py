"""What a compute function must be to be of a kind: each check returns what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import For, Kernel, Reduce
from weft.ir.traverse import walk

if TYPE_CHECKING:
    from weft.lang.compute.report import Report

__all__ = ["CHECKS"]

Check = Callable[[Kernel, Kernel, "Report"], str]


def _products(kernel: Kernel) -> Iterator[Reduce]:
    """Yield the reductions that are sums of products."""
    for stmt in walk(kernel.body):
        if not isinstance(stmt, Reduce):
            continue
        lets = {s.var: s.value for s in stmt.body if isinstance(s, st.Let)}
        values = ex.toposort([*(a.update for a in stmt.accumulators), *lets.values()])
        if any(e.op is Op.MUL and e.dtype is stmt.accumulators[0].var.dtype for e in values):
            yield stmt


def _ops(kernel: Kernel) -> set[object]:
    return {e.op for s in walk(kernel.body) for e in ex.toposort(s.exprs())}


def elementwise(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Say what is not done for every point by itself."""
    for loop in report.loops:
        if loop.reduction:
            return f"the loop over {loop.name} in line {loop.line} reduces"
        if loop.carried:
            return f"the loop over {loop.name} in line {loop.line} keeps its order: {loop.carried}"
    return ""


def reduces(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for a loop that is a sum, a product, a minimum, a maximum or the like."""
    if any(loop.reduction for loop in report.loops):
        return ""
    return "no loop is a reduction: " + ("; ".join(
        f"line {r.line}: {r.carried}" for r in report.loops if r.carried) or "none adds up")


def matmul(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for a nest that was scheduled as a contraction."""
    if "contraction" in report.why:
        return ""
    return "no nest is a sum of products of two arrays over an axis that the result does not have"


def conv2d(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for a sum of products that reads one array through a window of two axes."""
    rows = {s.var for s in walk(kernel.body) if isinstance(s, For)}
    for reduce in _products(kernel):
        own = {a.var for a in reduce.axes}
        for stmt in walk(reduce.body):
            if not isinstance(stmt, st.Load):
                continue
            seen = [ex.free_vars([i]) for i in stmt.index]
            if sum(bool(own & s) and bool(rows & s) for s in seen) >= 2:
                return ""
    return "no sum of products reads an array through a window of two axes"


def attention(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for two sums of products, with an exponential between them."""
    updates = sum(1 for _ in _products(kernel)) + _updates(kernel)
    if updates < 2:
        return "there are no two sums of products"
    return "" if Op.EXP in _ops(kernel) else "there is no exponential"


def flash_attention(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for attention in one pass, whose loop carries the running maximum and sum."""
    missing = attention(kernel, scheduled, report)
    if missing or any(loop.carried for loop in report.loops):
        return missing
    return "no loop carries a running maximum"


def scan(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for a loop that carries a value from one iteration to the next."""
    return "" if any(loop.carried for loop in report.loops) else "no loop carries a value"


def sort(kernel: Kernel, scheduled: Kernel, report: Report) -> str:
    """Ask for elements of one array that are compared, and moved within it."""
    stored = {s.memory for s in walk(kernel.body) if isinstance(s, st.Store)}
    loaded: dict[Expr, st.Memory] = {s.var: s.memory for s in walk(kernel.body)
                                     if isinstance(s, st.Load)}
    for stmt in walk(kernel.body):
        for e in ex.toposort(stmt.exprs()):
            if e.op in (Op.LT, Op.LE) and any(
                    loaded.get(v) in stored for v in ex.free_vars([e])):
                return ""
    return "no elements of an array that is written are compared"


def _updates(kernel: Kernel) -> int:
    """Return how many statements add a product to an element or a register."""
    return sum(isinstance(s, st.Store) and s.value.op is Op.ADD and any(
        a.op is Op.MUL for a in s.value.args) for s in walk(kernel.body))


CHECKS: Final[dict[str, Check]] = {
    "elementwise": elementwise, "reduce": reduces, "matmul": matmul, "conv2d": conv2d,
    "attention": attention, "flash_attention": flash_attention, "scan": scan, "sort": sort,
}  # fmt: skip
