"""What a kernel needs of a block and of a thread: shared memory and registers."""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, For, Kernel, Let, Memory, Stmt, While
from weft.ir.traverse import walk

__all__ = ["registers", "shared_bytes"]

_PRIVATE: Final = ("local", "register")


def shared_bytes(kernel: Kernel) -> int:
    """Return the bytes of shared memory of a block."""
    total = 0
    for s in walk(kernel.body):
        if isinstance(s, Alloc) and s.memory.scope == "shared" and s.base is None:
            count = 1
            for n in s.memory.shape:
                count *= int(n.attr) if n.op is Op.CONST else 0
            total += count * s.memory.dtype.itemsize
    return total


def registers(body: Body) -> int:
    """Return about how many 32-bit registers a thread needs that runs a body.

    Counted are the names and private scalars that are alive at once; a device that needs some for
    subscripts needs more, and a clever one less.
    """
    first: dict[object, int] = {}
    last: dict[object, int] = {}
    width: dict[object, int] = {}
    same: dict[Expr, Expr] = {}
    loops: list[tuple[int, int]] = []
    position = 0
    stack: list[tuple[Stmt, int]] = [(s, -1) for s in reversed(body)]
    while stack:
        s, start = stack.pop()
        position += 1
        if start >= 0:
            loops.append((start, position))
            continue
        if isinstance(s, Let) and s.value.op is Op.VAR:
            same[s.var] = same.get(s.value, s.value)
            continue
        for v in s.binds():
            first.setdefault(v, position)
            width[v] = max(1, v.dtype.itemsize // 4)
        for v in ex.free_vars(s.exprs()):
            last[same.get(v, v)] = position
        memory = getattr(s, "memory", None)
        if isinstance(memory, Memory) and memory.scope in _PRIVATE and not memory.shape:
            first.setdefault(memory, position)
            last[memory] = position
            width[memory] = max(1, memory.dtype.itemsize // 4)
        if isinstance(s, For | While):
            stack.append((s, position))
        stack.extend((inner, -1) for part in reversed(s.bodies()) for inner in reversed(part))
    for start, end in loops:  # innermost first: what a loop uses of what stands before it stays
        for key, at in last.items():
            if start <= at < end and first.get(key, 0) < start:
                last[key] = end
    changes: dict[int, int] = {}
    for key, at in first.items():
        if key in last:
            changes[at] = changes.get(at, 0) + width[key]
            changes[last[key] + 1] = changes.get(last[key] + 1, 0) - width[key]
    alive = most = 0
    for at in sorted(changes):
        alive += changes[at]
        most = max(most, alive)
    return most
