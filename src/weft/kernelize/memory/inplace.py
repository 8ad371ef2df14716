"""Let kernels write results over arrays whose values are needed no more.

An optimiser's step reads a parameter and writes the next one: into other memory that would be twice
the memory, and three times the traffic to it that a cache line fetched for writing costs. Where a
kernel reads the old array only at the element that it writes in the same iteration, both are one
parameter of the kernel. No kernel after it may read the old array, and none may fail: a plan that
fails half way leaves every array as it was.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Load, Memory, Stmt, Store
from weft.ir.traverse import Rewriter, walk
from weft.kernelize.build import Step
from weft.kernelize.common.indexing import flatten
from weft.kernelize.common.sizes import elements
from weft.kernelize.common.tidy import Env, loop_ranges
from weft.rules.index import simplify

_KINDS: Final = ("elementwise", "rowwise", "contraction")  # store each element exactly once


def scatter_in_place(steps: Sequence[Step], results: Container[Node]) -> list[Step]:
    """Return the launches with scatters that update what an earlier launch stored.

    Where nothing else reads the base of a scatter, its elements stay where they are, and only
    those that have updates are touched: the earlier launch stores them as the scatter's result.

    Parameters
    ----------
    steps : sequence of Step
        Launches in order.
    results : container of Node
        What has to be there afterwards.
    """
    readers: dict[Node, int] = {}
    for step in steps:
        for node in step.inputs:
            readers[node] = readers.get(node, 0) + 1
    made = {n for step in steps for n in step.outputs}
    renamed: dict[Node, Node] = {}
    merged: dict[tuple[int, int], Kernel | None] = {}
    found: list[tuple[Step, int]] = []  # launches, and which input is the base, or -1
    for step in steps:
        position = -1
        if step.kernel.meta.kind == "scatter" and len(step.outputs) == 1:
            base = nd.base(step.outputs[0].args[0])
            if base in made and readers.get(base) == 1 and base not in results and (
                    base in step.inputs):
                position = step.inputs.index(base)
                key = id(step.kernel), position
                if key not in merged:
                    merged[key] = _without_copy(step, position)
                if merged[key] is None:
                    position = -1
                else:
                    renamed[base] = step.outputs[0]
        found.append((step, position))
    for node in reversed(renamed):  # a scatter may be the base of another one
        renamed[node] = renamed.get(renamed[node], renamed[node])
    out: list[Step] = []
    for step, position in found:
        kernel = merged.get((id(step.kernel), position))
        if kernel is not None:
            inputs = tuple([renamed.get(n, n) for n in step.inputs])
            step = step.replace(kernel=kernel, inputs=inputs, outputs=())
        out.append(step.replace(outputs=tuple([renamed.get(n, n) for n in step.outputs])))
    return out


def _without_copy(step: Step, source: int) -> Kernel | None:
    """Return the kernel of a scatter without the copy of its base, None if it is no plain copy."""
    kernel = step.kernel
    old, new = kernel.params[source], kernel.params[len(step.inputs)]
    loads = [s for s, _ in _accesses(kernel.body) if isinstance(s, Load) and s.memory == old]
    if len(loads) != 1 or _size(old) != _size(new):
        return None
    (load,), env = loads, loop_ranges(kernel.body)
    copies = [s for s, _ in _accesses(kernel.body)
              if isinstance(s, Store) and s.memory == new and s.value is load.var]
    if len(copies) != 1 or _position(load, env) is not _position(copies[0], env):
        return None
    if any(s is not copies[0] and load.var in ex.free_vars(s.exprs()) for s in walk(kernel.body)):
        return None  # an update adds the old value of an element, too

    class Merge(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            if stmt is load or stmt is copies[0] or (isinstance(stmt, For) and not stmt.body):
                return ()
            return stmt

    params = tuple([new if p is old else p for p in kernel.params if p is not new])
    meta = kernel.meta.replace(traffic=max(kernel.meta.traffic - 2 * _size(new) *
                                           new.dtype.itemsize, 0))
    return Merge(kernel).run().replace(params=params, meta=meta)


def write_in_place(
    steps: list[Step], wanted: Mapping[Node, Node]
) -> tuple[list[Step], dict[Node, Node]]:
    """Return the launches with results written over arrays, and which result took which array.

    Parameters
    ----------
    steps : list of Step
        Launches in order. Those that write over an array go behind all that may fail.
    wanted : mapping of Node to Node
        Results, each with the leaf (a BUFFER) whose memory it may take.
    """
    found = {n: leaf for n, leaf in wanted.items() if _fits(n, leaf)}
    steps = _updates_last(steps, found)
    failing = max((i for i, s in enumerate(steps) if s.checks), default=-1)
    last_read = {leaf: i for i, s in enumerate(steps) for leaf in s.inputs}
    done: dict[Node, Node] = {}
    merged: dict[tuple[int, tuple[tuple[int, int], ...]], Kernel] = {}
    out: list[Step] = []
    for number, step in enumerate(steps):
        pairs: list[tuple[int, int]] = []  # positions of the array and of the result
        for position, node in enumerate(step.outputs):
            leaf = found.get(node)
            if leaf is None or number <= failing or last_read.get(leaf, -1) > number:
                continue
            if leaf not in step.inputs:
                done[node] = leaf
            elif _is_elementwise(step, step.inputs.index(leaf), position):
                pairs.append((step.inputs.index(leaf), position))
                done[node] = leaf
        if pairs:
            key = id(step.kernel), tuple(pairs)
            if key not in merged:
                merged[key] = _merge(step, pairs)
            gone = {position for _, position in pairs}
            kept = tuple(n for i, n in enumerate(step.outputs) if i not in gone)
            step = step.replace(kernel=merged[key], outputs=kept)
        out.append(step)
    return out, done


def _fits(node: Node, leaf: Node) -> bool:
    """Whether a result has the type and the fixed size of the array."""
    fixed = not any(isinstance(d, Expr) for d in (*node.shape, *leaf.shape))
    return fixed and node.dtype is leaf.dtype and elements(node.shape) == elements(leaf.shape)


def _updates_last(steps: list[Step], found: Mapping[Node, Node]) -> list[Step]:
    """Move what writes over arrays behind the last launch that may fail or that reads them."""
    failing = max((i for i, s in enumerate(steps) if s.checks), default=-1)
    last_read: dict[Node, int] = {}
    for i, step in enumerate(steps):
        for node in step.inputs:
            last_read[node] = i
    waiting: dict[int, list[Step]] = {}
    moved: set[Node] = set()
    out: list[Step] = []
    for i, step in enumerate(steps):
        leaves = [found[n] for n in step.outputs if n in found]
        until = max([failing, *(last_read.get(leaf, -1) for leaf in leaves)]) if leaves else -1
        free = not step.checks and all(last_read.get(n, -1) < i for n in step.outputs)
        if until > i and free and moved.isdisjoint(step.inputs):
            waiting.setdefault(until, []).append(step)
            moved.update(step.outputs)
        else:
            out.append(step)
        out.extend(waiting.pop(i, ()))
    return out


def _is_elementwise(step: Step, source: int, position: int) -> bool:
    """Whether the kernel reads an array only at the element of the result that it then writes."""
    kernel = step.kernel
    if kernel.meta.kind not in _KINDS:
        return False
    old, new = kernel.params[source], kernel.params[len(step.inputs) + position]
    env = loop_ranges(kernel.body)
    accesses = [(s, chain) for s, chain in _accesses(kernel.body)
                if getattr(s, "memory", None) in (old, new)]
    if len(accesses) != 2:
        return False
    (load, around), (store, loops) = accesses
    if not isinstance(load, Load) or not isinstance(store, Store):
        return False
    if load.memory != old or load.mask is not None or store.mask is not None:
        return False
    points = 1
    for loop in loops:
        extent = loop.extent if isinstance(loop, For) else None
        if extent is None or extent.op is not Op.CONST:
            return False
        points *= extent.attr
    return (around == loops and points == _size(new)
            and _position(load, env) is _position(store, env))


def _accesses(body: Body) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Yield every statement with those around it, in program order."""
    stack: list[tuple[Stmt, tuple[Stmt, ...]]] = [(s, ()) for s in reversed(body)]
    while stack:
        stmt, around = stack.pop()
        yield stmt, around
        for inner in reversed(stmt.bodies()):
            stack.extend((s, (*around, stmt)) for s in reversed(inner))


def _size(memory: Memory) -> int:
    total = 1
    for dim in memory.shape:
        total *= dim.attr if dim.op is Op.CONST else 0
    return total


def _position(stmt: Load | Store, env: Env) -> Expr:
    return simplify(flatten(stmt.index, stmt.memory.shape), env)


def _merge(step: Step, pairs: Sequence[tuple[int, int]]) -> Kernel:
    """Return the kernel with each of some results stored where its array was read."""
    kernel = step.kernel
    arrays = {kernel.params[len(step.inputs) + p]: kernel.params[s] for s, p in pairs}
    index = {s.memory: s.index for s, _ in _accesses(kernel.body) if isinstance(s, Load)}

    class Merge(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            if isinstance(stmt, Store) and stmt.memory in arrays:
                array = arrays[stmt.memory]
                return stmt.replace(memory=array, index=index[array])
            return stmt

    params = tuple(p for p in kernel.params if p not in arrays)
    return Merge(kernel).run().replace(params=params)
