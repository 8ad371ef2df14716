"""Turns of a loop over a grid that all threads of a block make.

Nearly all turns are such: no thread needs to be asked whether it is still there, no access a mask.
What all threads need is found from one of them, the one that is nearest to the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Assert, Body, For, Load, Prefetch, Stmt
from weft.ir.traverse import walk
from weft.passes.common.lanes import linear

__all__ = ["few_statements", "holds_for_all", "opened", "with_prefetches",
           "without_checks"]

_MOST: Final = 64  # statements of a body that is worth writing twice
_AHEAD: Final = 512  # elements by which reading is ahead: what memory takes to answer
_NEAR: Final = 4  # turns that are ahead at most


def few_statements(body: Body) -> bool:
    """Whether a body is so short that a second form of it costs little to compile."""
    return sum(1 for _ in walk(body)) <= _MOST


def holds_for_all(condition: Expr, lets: dict[Expr, Expr], axes: Sequence[For],
                  varies: Callable[[Expr], bool]) -> Expr | None:  # fmt: skip
    """Return a condition on one thread that holds if one holds for all threads, None if unknown.

    A comparison of sums of indices is hardest to meet at one end of each axis of threads.
    """
    while condition in lets:
        condition = lets[condition]
    if condition.op not in (Op.LT, Op.LE) or any(a.dtype is not dt.int64 for a in condition.args):
        return None
    left, right = condition.args
    symbols, constant = linear(right - left, lets)
    room = ex.index(constant)  # what the smaller side may still grow
    extents = {a.var: int(a.extent.attr) for a in axes}
    for symbol, times in symbols.items():
        if symbol in extents:
            room = room + min(times, 0) * (extents[symbol] - 1)
        elif any(map(varies, ex.free_vars([symbol]))):
            return None
        else:
            room = room + symbol * times
    zero = ex.index(0)
    return zero.lt(room) if condition.op is Op.LT else zero.le(room)


def without_checks(body: Body, test: Callable[[Expr], Expr | None],
                   placed: Callable[[Stmt, Stmt], Stmt]) -> tuple[Body, list[Expr]]:  # fmt: skip
    """Return a body without the checks that are made for all threads at once, and those.

    A check that fails for any thread is then left to the turns in which each thread has its own.
    """
    out: list[Stmt] = []
    tests: list[Expr] = []
    for s in body:
        if isinstance(s, Assert):
            parts = _parts(s.condition)
            left = []
            for part in parts:
                found = test(part)
                if found is None:
                    left.append(part)
                else:
                    tests.append(found)
            if not left:
                continue
            if len(left) < len(parts):
                condition = left[0]
                for part in left[1:]:
                    condition = ex.binary(Op.AND, condition, part)
                s = placed(s.replace(condition=condition), s)
        out.append(s)
    return tuple(out), list(dict.fromkeys(tests))


def _parts(condition: Expr) -> list[Expr]:
    """Return conditions that hold together if one does."""
    if condition.op is not Op.AND or not condition.dtype.is_bool:
        return [condition]
    return [part for a in condition.args for part in _parts(a)]


def with_prefetches(body: Body, lets: dict[Expr, Expr], turn: Expr, threads: int,
                    known: Callable[[Iterable[Expr]], bool]) -> Body:  # fmt: skip
    """Return a body that asks for what turns ahead will read of global memory.

    What a block reads in one turn lies as far from what it reads in the next as the grid is wide,
    which is too far for a processor to see what comes.
    """
    ahead = turn + max(1, min(-(-_AHEAD // threads), _NEAR))
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Load) and s.memory.scope == "global" and s.index:
            index = opened(s.index, lets)
            free = ex.free_vars(index)
            if turn in free and known(v for v in free if v is not turn):
                out.append(Prefetch(s.memory, tuple(ex.substitute(index, {turn: ahead}))))
        out.append(s)
    return tuple(out)


def opened(exprs: Sequence[Expr], lets: dict[Expr, Expr]) -> tuple[Expr, ...]:
    """Return expressions with what their names stand for."""
    found = tuple(exprs)
    for _ in range(8):
        before, found = found, tuple(ex.substitute(found, lets))
        if all(map(operator.is_, before, found)):
            break
    return found
