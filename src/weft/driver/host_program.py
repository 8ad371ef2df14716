"""Make the host program of a graph: kernels in order, their arrays in one arena."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from weft.config import Debug, debug
from weft.driver import kernels, pipeline
from weft.driver.kernels import Code
from weft.driver.plan import Plan, Spec, largest
from weft.driver.progress import Progress
from weft.driver.structure import Structure
from weft.errors import AllocationError
from weft.graph.simplify import simplify
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.plan import Access, Alloc, Free, Launch, ProgramRef, Ref
from weft.ir.plan import Plan as HostPlan
from weft.ir.plan_verify import verify_plan
from weft.ir.stmt import Location
from weft.ir.traverse import stores
from weft.ir.verify_graph import verify_graph
from weft.kernelize.build import Step, kernelize
from weft.kernelize.inplace import write_in_place
from weft.kernelize.memory import Lifetime, plan_arena


def make(structure: Structure, outputs: Sequence[Node]) -> Plan:
    """Return the plan of a graph, compiling the kernels that no cache has."""
    marks = _mark_checks(structure)
    outputs = [_own(o, s) for o, s in zip(outputs, simplify(outputs), strict=True)]
    steps, taken = write_in_place(kernelize(outputs), _updates(structure, outputs))
    if debug(Debug.GRAPH):
        print(f"weft: {len(structure.nodes)} nodes in {len(steps)} kernels", file=sys.stderr)
    compiled: dict[int, Code] = {}  # by identity of the loop nest, which equal groups share
    nests = {id(step.kernel): step.kernel for step in steps}
    with Progress("compiling kernels", len(nests)) as progress:
        for number, nest in nests.items():
            compiled[number] = kernels.compiled(nest)
            progress.tick()
    spec = _spec(structure, outputs, steps, [compiled[id(s.kernel)] for s in steps], marks,
                 taken)
    if pipeline.verifying:
        verify_graph(outputs)
        verify_plan(spec.host)
    return Plan(spec, {c.key: c for c in compiled.values()}, steps)


def _updates(structure: Structure, outputs: Sequence[Node]) -> dict[Node, Node]:
    """Return results with the leaves whose memory they may take; each result is wanted once."""
    bases = [nd.base(o) for o in outputs]
    return {
        bases[o]: nd.buffer(structure.leaves[slot]) for o, slot in structure.updates
        if bases[o].op is not Op.BUFFER and bases.count(bases[o]) == 1
    }


def _own(output: Node, simplified: Node) -> Node:
    """Return what to compute for an output; one that turned out to be an input is a copy of it.

    Two arrays never share memory unless the graph says so: either may be written later.
    """
    if nd.base(simplified).op is Op.BUFFER and nd.base(output).op is not Op.BUFFER:
        return infer.contiguous(simplified)
    return simplified


def _spec(structure: Structure, outputs: Sequence[Node], steps: list[Step],
          codes: list[Code], marks: dict[int, int], taken: dict[Node, Node]) -> Spec:  # fmt: skip
    slots = {storage: i for i, storage in enumerate(structure.leaves)}
    results: list[tuple[str, int]] = []
    fresh: dict[Node, int] = {}  # stored results: their output slot
    for node in map(nd.base, outputs):
        if node.op is Op.BUFFER or node in taken:
            results.append(("leaf", slots[taken.get(node, node).attr]))
        else:
            results.append(("new", fresh.setdefault(node, len(fresh))))
    places = {n: Ref("output", i) for n, i in fresh.items()}
    places.update({nd.buffer(s): Ref("input", i) for s, i in slots.items()})
    places.update({n: places[leaf] for n, leaf in taken.items()})
    variables = {v.attr.name: v for n in structure.nodes for v in _symbols(n)}
    host_steps, programs, arena = _host_steps(steps, codes, places, variables)
    host = HostPlan(
        "graph", tuple(variables[v] for v in sorted(variables)),
        tuple(_bytes((s.size,), s.dtype.itemsize) for s in structure.leaves),
        tuple(_bytes(n.shape, n.dtype.itemsize) for n in fresh),
        tuple(sorted(slots[leaf.attr] for leaf in taken.values())),
        arena=arena, programs=tuple(programs.values()), steps=tuple(host_steps),
    )
    nanoseconds = sum(kernels.nanoseconds(s.kernel) for s in steps)
    checks = tuple(
        tuple(marks.get(id(nd.locations.get(c)), -1) for c in s.checks) for s in steps
    )
    return Spec(host, checks, tuple(results), nanoseconds)


def _mark_checks(structure: Structure) -> dict[int, int]:
    """Return the position of each checked node by the identity of its location record.

    Simplification makes other nodes of them but hands the record on.
    """
    marks: dict[int, int] = {}
    for i, node in enumerate(structure.nodes):
        if node.op.group == "gather":
            marks[id(nd.locations.setdefault(node, Location("", 0)))] = i
    return marks


def _symbols(node: Node) -> list[Expr]:
    """Return the symbolic variables that a node names."""
    found = [v for d in node.shape if isinstance(d, Expr) for v in ex.variables([d])]
    if node.op is Op.VARIABLE:
        found.append(ex.make(Op.VARIABLE, node.dtype, (), node.attr))
    return found


def _host_steps(
    steps: list[Step], codes: list[Code], places: dict[Node, Ref], variables: dict[str, Expr]
) -> tuple[list[Any], dict[str, ProgramRef], int]:
    """Return allocations, launches and frees in order, the programs, and the arena's bytes."""
    first: list[list[int]] = [[] for _ in steps]
    last: list[list[int]] = [[] for _ in steps]
    lives: list[list[int]] = []  # bytes at most, first step, last step of each allocation
    sizes: list[Expr | int] = []  # bytes of each allocation
    ids: dict[Node, int] = {}
    scratch: list[list[Ref]] = []

    def allocate(size: Expr | int, number: int) -> int:
        lives.append([largest(size), number, number])
        sizes.append(size)
        first[number].append(len(lives) - 1)
        return len(lives) - 1

    for number, step in enumerate(steps):
        for node in step.outputs:
            if node not in places:
                ids[node] = allocate(_bytes(node.shape, node.dtype.itemsize), number)
                places[node] = Ref("arena", ids[node])
        for node in step.inputs:
            if node in ids:
                lives[ids[node]][2] = number
        scratch.append([
            Ref("arena", allocate(_bytes((m.size,), m.dtype.itemsize), number))
            for m in step.scratch
        ])
    offsets, arena = plan_arena([Lifetime(*life) for life in lives])
    for i, life in enumerate(lives):
        last[life[2]].append(i)
    out: list[Any] = []
    programs: dict[str, ProgramRef] = {}
    for number, (step, code) in enumerate(zip(steps, codes, strict=True)):
        out.extend(Alloc(i, offsets[i], sizes[i]) for i in first[number])
        refs = [places[n] for n in (*step.inputs, *step.outputs)] + scratch[number]
        values = tuple(variables[v] for v in code.variables)
        out.append(Launch(code.key, tuple(refs), values))
        out.extend(Free(i) for i in last[number])
        if code.key not in programs:
            written = stores(step.kernel.body)
            kinds = [
                Access("updates" if p in written else "reads", _bytes(n.shape, n.dtype.itemsize))
                for n, p in zip(step.inputs, step.kernel.params, strict=False)
            ] + [Access("writes", _bytes(n.shape, n.dtype.itemsize)) for n in step.outputs]
            kinds += [Access("writes", sizes[r.index]) for r in scratch[number]]
            programs[code.key] = ProgramRef(code.key, values, tuple(kinds))
    return out, programs, arena


def _bytes(shape: nd.Shape, itemsize: int) -> Expr | int:
    """Return the bytes of an array, as an expression if a size is symbolic."""
    nbytes(shape, itemsize)  # refuses what no address can tell
    total = nd.size(shape)
    return total * itemsize


def nbytes(shape: nd.Shape, itemsize: int) -> int:
    """Return the bytes of an array, at its largest if a size is symbolic.

    Raises
    ------
    AllocationError
        If they are more than an address can tell.
    """
    total = itemsize
    for dim in shape:
        total *= largest(dim)
    if total >= 1 << 63:
        raise AllocationError("realize", found=f"{total} bytes for {shape}",
                              expected="fewer than 2**63 bytes")
    return total
