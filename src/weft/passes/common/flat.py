"""Flat memories: row-major offsets of elements, and the ranges under which offsets get simpler."""

from __future__ import annotations

from collections.abc import Mapping

from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir.bounds import Limit, loop_range
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Memory, Reduce, Stmt
from weft.ir.traverse import walk


def flat_index(memory: Memory, index: tuple[Expr, ...]) -> Expr:
    """Return the row-major offset of an element."""
    if len(index) != len(memory.shape):
        raise VerifyError(f"access to {memory.name}", found=f"{len(index)} indices",
                          expected=f"{len(memory.shape)}")
    if len(index) == 1:
        return index[0]
    lanes = max((i.lanes for i in index), default=1)
    flat = ex.broadcast(ex.index(0), lanes)
    for i, n in zip(index, memory.shape, strict=True):
        scaled = ex.binary(Op.MUL, flat, ex.broadcast(n, lanes))
        flat = ex.binary(Op.ADD, scaled, ex.broadcast(i, lanes))
    return flat


def flat_memory(memory: Memory, name: str | None = None, copies: int = 1) -> Memory:
    """Return the one-dimensional form of a memory, `copies` times as large."""
    if len(memory.shape) == 1 and name in (None, memory.name) and copies == 1:
        return memory
    return Memory(name or memory.name, memory.dtype, (memory.size * copies,), memory.scope)


def ranges_at(body: Body) -> dict[Stmt, Mapping[Expr, tuple[Limit, Limit]]]:
    """Return for each statement the ranges of loop variables that hold where it stands.

    That a loop runs at all says something of its extent, ``0 < n - i``, which is true inside of the
    loop only. Extents that are numbers say nothing, so all statements share their ranges.
    """
    numbers: dict[Expr, tuple[Limit, Limit]] = {}
    for s in walk(body):
        for var, extent in _loops_of(s):
            if extent.op is Op.CONST:
                low, high = loop_range(extent)
                known = numbers.get(var, (low, high))[1]
                assert isinstance(known, int)
                assert isinstance(high, int)
                numbers[var] = low, max(known, high)  # of two loops of one name
    found: dict[Stmt, Mapping[Expr, tuple[Limit, Limit]]] = {}
    stack = [(body, numbers)]
    while stack:
        part, here = stack.pop()
        for s in part:
            known_at = found.setdefault(s, here)
            if known_at is not here:  # it stands in two places
                found[s] = {v: r for v, r in known_at.items() if here.get(v) == r}
            around = here
            symbolic = {v: loop_range(n) for v, n in _loops_of(s) if n.op is not Op.CONST}
            if symbolic:
                around = {**here, **symbolic}
            stack.extend((inner, around) for inner in s.bodies())
    return found


def _loops_of(s: Stmt) -> tuple[tuple[Expr, Expr], ...]:
    """Return the loop variables that a statement binds in its bodies, with their extents."""
    if isinstance(s, For):
        return ((s.var, s.extent),)
    if isinstance(s, Reduce):
        return tuple((a.var, a.extent) for a in s.axes)
    return ()
