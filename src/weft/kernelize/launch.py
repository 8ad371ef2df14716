"""Loop nests of launches: the kernel of the user, behind what its arrays need."""

from __future__ import annotations

from typing import Any, Final

from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.stmt import SERIAL, Assert, For, If, Kernel, Memory, Stmt, Store
from weft.ir.text.text_parse import parse_kernel
from weft.ir.traverse import map_exprs, walk
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import flatten, unflatten
from weft.kernelize.common.sizes import elements
from weft.schedule.launch_fusion.rename import renamed

_THREADS: Final = 256  # of a block that copies
BOUNDS: Final = "index out of bounds"  # how checks of indices are worded in kernels


def lower_launch(node: Node, sources: dict[Node, Memory],
                 stored: dict[Node, Memory]) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nests that put old values in their places and then run the kernel.

    What it writes to is a result, or scratch memory if nobody wants it.
    """
    em = Emitter(sources, hoist=False)
    attr = node.attr
    kernel = parse_kernel(attr.code)
    results = {out.attr: memory for out, memory in stored.items()}
    scratch: list[Memory] = []
    memories: dict[Memory, Memory] = {}
    for position, (param, arg) in enumerate(zip(kernel.params, node.args, strict=True)):
        held = next((sources[n] for n in (arg, nd.base(arg)) if n in sources), None)
        number = attr.writes.index(position) if position in attr.writes else None
        if number is None and held is not None:
            memories[param] = held
            continue
        target = results.get(number) if number is not None else None
        if target is None:
            target = Memory(f"kept{len(scratch)}", arg.dtype, tuple(map(as_expr, arg.shape)))
            scratch.append(target)
        memories[param] = target
        if position not in attr.fresh:
            (_copy_in_loops if _hints(kernel) else _copy)(em, position, arg, target)

    def told(s: Stmt) -> Stmt:
        """Return a check as the reports of plans word it; it keeps its mark."""
        if not isinstance(s, Assert):
            return s
        what = s.message
        if what.startswith(BOUNDS):
            what = f"index out of range{what.removeprefix(BOUNDS)}"
        return s.replace(message=f"launch of {attr.name}: {what}")

    em.hints = _hints(kernel)
    made = renamed(_shaped(kernel, memories), 0, {}, memories)
    for s in map_exprs(made, lambda e: e, told).body:
        em.emit(s)
        for inner in walk((s,)):
            if isinstance(inner, Assert):
                em.check(inner, node)
    return em, tuple(scratch)


def _copy(em: Emitter, number: int, arg: Node, target: Memory) -> None:
    """Emit blocks of threads that write the elements of an array."""
    count = elements(arg.shape)
    em.open()
    block = em.loop_var(f"block.x.{number}", -(-count // _THREADS))
    em.open()
    thread = em.loop_var(f"thread.x.{number}", _THREADS)
    place = block * _THREADS + thread
    em.open()
    flat = infer.reshape(arg, (count,))
    value = em.value(flat, (place,))
    em.emit(Store(target, _place(target, place), value))
    body: tuple[Stmt, ...] = (If(place.lt(count), em.close()),)
    em.close()
    body = (For(thread, ex.index(_THREADS), "thread.x", body),)
    em.close()
    em.emit(For(block, ex.index(-(-count // _THREADS)), "block.x", body))


def _copy_in_loops(em: Emitter, number: int, arg: Node, target: Memory) -> None:
    """Emit loops, for strategies to schedule, that write the elements of an array."""
    shape = [n if isinstance(n, int) else int(n.attr) for n in arg.shape]
    index: list[Expr] = []
    for k, n in enumerate(shape):
        em.open()
        index.append(em.loop_var(f"copy.{number}.{k}", n))
    em.emit(Store(target, tuple(index), em.value(arg, tuple(index))))
    for var, n in reversed(list(zip(index, shape, strict=True))):
        em.emit(For(var, ex.index(n), SERIAL, em.close()))


def _hints(kernel: Kernel) -> tuple[tuple[str, Any], ...]:
    """Return the hints of loops that strategies schedule; none of what is written for threads."""
    if "compute" not in dict(kernel.meta.hints):
        return ()
    return kernel.meta.hints


def _place(memory: Memory, position: Expr) -> tuple[Expr, ...]:
    return unflatten(position, memory.shape)


def _shaped(kernel: Kernel, memories: dict[Memory, Memory]) -> Kernel:
    """Return the kernel with subscripts for memories of other shapes and as many elements."""
    other = {p for p, m in memories.items()
             if tuple(p.shape) != tuple(m.shape)}
    if not other:
        return kernel

    def turned(s: Stmt) -> Stmt:
        memory = getattr(s, "memory", None)
        if memory not in other:
            return s
        assert hasattr(s, "index")
        index = _place(memories[memory], flatten(s.index, memory.shape))
        return s.replace(index=index)

    return map_exprs(kernel, lambda e: e, turned)


