"""While loops of built programs that are known to end.

A number that the condition bounds goes towards the bound in every turn, by a step that is known:
``while_(lambda: i < n)`` with ``i += 2`` in it. Of any other loop an interrupt has to be able to
stop it; see `weft.lang.source.termination` for loops in Python's syntax.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Load, Memory, Stmt, Store
from weft.ir.traverse import walk
from weft.lang.core.emitter import conjuncts

__all__ = ["ends"]


def ends(head: Sequence[Stmt], test: Expr, body: Sequence[Stmt]) -> bool:
    """Whether a loop ends after some turns, whatever the values are.

    Parameters
    ----------
    head
        What is computed before each test.
    test
        Whether the loop goes on.
    body
        A turn.
    """
    loads = {s.var: s.memory for s in head if isinstance(s, Load) and s.memory.scope == "register"}
    computed = {v for s in walk(tuple(head)) for v in s.binds()}
    for part in conjuncts(test):
        if part.op in (Op.LT, Op.LE):
            low, high = part.args
            for number, bound, sign in ((low, high, 1), (high, low, -1)):
                memory = loads.get(number)
                if memory is not None and not ex.free_vars((bound,)) & computed and (
                        _step(memory, body) * sign > 0):
                    return True
    return False


def _step(memory: Memory, body: Sequence[Stmt]) -> int:
    """Return what each turn adds to a number, 0 where that is not known."""
    stores = [s for s in walk(tuple(body)) if isinstance(s, Store) and s.memory == memory]
    if len(stores) != 1 or stores[0] not in body or not memory.dtype.is_integer:
        return 0
    value = stores[0].value
    held = {s.var for s in body if isinstance(s, Load) and s.memory == memory}
    if value.op not in (Op.ADD, Op.SUB) or value.args[0] not in held:
        return 0
    by = value.args[1]
    if by.op is not Op.CONST:
        return 0
    return int(by.attr) if value.op is Op.ADD else -int(by.attr)
