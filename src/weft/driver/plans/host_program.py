"""Make the host program of a graph: kernels in order, their arrays in one arena."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from weft.config import Debug, config, debug
from weft.driver import kernels, pipeline
from weft.driver.context import Context
from weft.driver.graph_key import Structure
from weft.driver.kernels import Code, Packing
from weft.driver.plans.plan import Plan, largest
from weft.driver.plans.spec import Panels, Spec
from weft.driver.progress import Progress
from weft.driver.source_lines import note_lines
from weft.errors import AllocationError
from weft.graph.launches import join_launches
from weft.graph.simplify import simplify
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.plan.plan import Access, Alloc, Free, Launch, Parallel, ProgramRef, Ref
from weft.ir.plan.plan import Plan as HostPlan
from weft.ir.plan.plan_verify import verify_plan
from weft.ir.stmt import Location, Memory
from weft.ir.traverse import stores
from weft.ir.verify.verify_graph import verify_graph
from weft.kernelize.build import Step, kernelize, kernelize_alone
from weft.kernelize.memory.concurrency import ANYWHERE, Group, Work, arrange
from weft.kernelize.memory.inplace import scatter_in_place, write_in_place
from weft.kernelize.memory.launch_schedule import schedule_launches
from weft.kernelize.memory.memory_planner import Lifetime, plan_arena
from weft.kernelize.special import attempt

# How far launches may come forward to run beside others, and what the arena may grow by for that:
# a part of all memory that the plan touches, or so many bytes.
_REACHES: Final = (32, 8, 2)
_GROWTH: Final = 32
_LEAST_GROWTH: Final = 256 << 10
_LEAST_KEPT: Final = 4 << 10  # bytes of arrays that copies are kept of, between calls


def make(structure: Structure, outputs: Sequence[Node]) -> Plan:
    """Return the plan of a graph, compiling the kernels that no cache has.

    Where that fails from inside, the graph is taken as it was written: a kernel for each operation,
    in its order, and no array over another.
    """
    return attempt(lambda: _make(structure, outputs, _best), lambda _: _make(
        structure, outputs, _plain), pipeline.verifying)


class _Cut(NamedTuple):
    """A graph as launches: its results, the launches, which result takes which array."""

    outputs: list[Node]
    steps: list[Step]
    taken: dict[Node, Node]


def _best(structure: Structure, outputs: Sequence[Node]) -> _Cut:
    """Return a simplified graph as launches with the least memory and the fewest passes over it."""
    outputs = [own(o, s) for o, s in zip(outputs, join_launches(simplify(outputs)), strict=True)]
    results, updates = {nd.base(o) for o in outputs}, _updates(structure, outputs)
    target = structure.context.target
    steps = schedule_launches(kernelize(outputs, target, pipeline.verifying), results, updates)
    steps = scatter_in_place(steps, results)
    return _Cut(outputs, *write_in_place(steps, updates))


def _plain(structure: Structure, outputs: Sequence[Node]) -> _Cut:
    """Return a graph as launches, one for each operation."""
    outputs = [own(o, o) for o in outputs]
    return _Cut(outputs, kernelize_alone(outputs, structure.context.target), {})


def _make(structure: Structure, outputs: Sequence[Node],
          cut: Callable[[Structure, Sequence[Node]], _Cut]) -> Plan:  # fmt: skip
    marks = mark_checks(structure)
    outputs, steps, taken = cut(structure, outputs)
    steps = [step.verify() for step in steps]
    if debug(Debug.GRAPH):
        print(f"weft: {len(structure.nodes)} nodes in {len(steps)} kernels", file=sys.stderr)
    # By identity of the loop nest, which equal groups share, and what it may keep copies of.
    compiled: dict[tuple[int, tuple[int, ...]], Code] = {}
    kept = {nd.buffer(structure.leaves[i]) for i in structure.resident}
    wanted = [(id(s.kernel), _resident(s, kept)) for s in steps]
    nests = {key: step.kernel for key, step in zip(wanted, steps, strict=True)}
    with Progress("compiling kernels", len(nests)) as progress:
        made = kernels.compiled_all([(nest, key[1]) for key, nest in nests.items()],
                                    structure.context, progress.tick)
        compiled.update(zip(nests, made, strict=True))
    note_lines(steps, [compiled[key] for key in wanted])
    spec, steps = _spec(structure, outputs, steps, [compiled[key] for key in wanted], marks, taken)
    if pipeline.verifying or config().memory_mode:
        verify_graph(outputs)
        verify_plan(spec.host)
    codes = {c.key: c for c in compiled.values()}
    for panels in spec.panels:
        fills = kernels.from_disk(panels.key)
        assert fills is not None
        codes[panels.key] = fills
    return Plan(spec, codes, steps, structure.context)


def _resident(step: Step, kept: Container[Node]) -> tuple[int, ...]:
    """Return the parameters of which a kernel may keep copies: operands of products."""
    if step.kernel.meta.kind != "contraction":
        return ()
    return tuple([i for i, n in enumerate(step.inputs)
                  if n in kept and nd.size(n.shape) * n.dtype.itemsize >= _LEAST_KEPT])


def _updates(structure: Structure, outputs: Sequence[Node]) -> dict[Node, Node]:
    """Return results with the leaves whose memory they may take; each result is wanted once."""
    bases = [nd.base(o) for o in outputs]
    return {
        bases[o]: nd.buffer(structure.leaves[slot]) for o, slot in structure.updates
        if bases[o].op is not Op.BUFFER and bases.count(bases[o]) == 1
    }


def own(output: Node, simplified: Node) -> Node:
    """Return what to compute for an output; one that turned out to be an input is a copy of it.

    Two arrays never share memory unless the graph says so: either may be written later.
    """
    if nd.base(simplified).op is Op.BUFFER and nd.base(output).op is not Op.BUFFER:
        return infer.contiguous(simplified)
    return simplified


def _spec(structure: Structure, outputs: Sequence[Node], steps: list[Step],
          codes: list[Code], marks: dict[int, int],
          taken: dict[Node, Node]) -> tuple[Spec, list[Step]]:  # fmt: skip
    """Return the plan as data, and the launches in its order."""
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
    variables = {v.attr.name: v for n in structure.nodes for v in symbols_of(n)}
    steps, codes, groups = _in_order(steps, codes, places, structure.context)
    panels = _panels(steps, codes, places, len(slots))
    host_steps, programs, arena = _host_steps(steps, codes, groups, places, variables, panels)
    host = HostPlan(
        "graph", tuple(variables[v] for v in sorted(variables)),
        (*(bytes_of((s.size,), s.dtype.itemsize) for s in structure.leaves),
         *(p.nbytes for p in panels)),
        tuple(bytes_of(n.shape, n.dtype.itemsize) for n in fresh),
        tuple(sorted(slots[leaf.attr] for leaf in taken.values())),
        arena=arena, programs=tuple(programs.values()), steps=tuple(host_steps),
    )
    nanoseconds = sum(kernels.nanoseconds(s.kernel) for s in steps)
    checks = tuple(
        tuple(marks.get(id(nd.locations.get(c)), -1) for c in s.checks) for s in steps
    )
    return Spec(host, checks, tuple(results), nanoseconds, tuple(panels)), steps


def _panels(steps: list[Step], codes: list[Code], places: Mapping[Node, Ref],
            leaves: int) -> dict[Panels, Ref]:  # fmt: skip
    """Return the panels of all launches, each once, with the inputs that they are."""
    found: dict[Panels, Ref] = {}
    for step, code in zip(steps, codes, strict=True):
        for packing in code.packings:
            panels = _panels_of(step, packing, places)
            found.setdefault(panels, Ref("input", leaves + len(found)))
    return found


def _panels_of(step: Step, packing: Packing, places: Mapping[Node, Ref]) -> Panels:
    return Panels(packing.key, packing.nbytes, places[step.inputs[packing.source]].index)


def mark_checks(structure: Structure) -> dict[int, int]:
    """Return the position of each checked node by the identity of its location record.

    Simplification makes other nodes of them but hands the record on.
    """
    marks: dict[int, int] = {}
    for i, node in enumerate(structure.nodes):
        if node.op.group in ("gather", "launch"):
            marks[id(nd.locations.setdefault(node, Location("", 0)))] = i
    return marks


def symbols_of(node: Node) -> list[Expr]:
    """Return the symbolic variables that a node names, of which no array need have the size."""
    dims = [*node.shape]
    if node.op is Op.SLICE:
        dims += node.attr.starts
    elif node.op is Op.PAD:
        dims += node.attr.before
    found = [v for d in dims if isinstance(d, Expr) for v in ex.variables([d])]
    if node.op is Op.VARIABLE:
        found.append(ex.make(Op.VARIABLE, node.dtype, (), node.attr))
    return found


def _in_order(
    steps: list[Step], codes: list[Code], places: dict[Node, Ref], context: Context
) -> tuple[list[Step], list[Code], list[Group]]:
    """Return the launches in the order of the plan, and its groups, numbered in that order.

    What runs together may not share memory, and what comes earlier lives longer: launches come from
    as far as the arena grows by no more than it may.
    """
    threads = context.threads
    apart = [Group((i,)) for i in range(len(steps))]
    if threads < 2 or len(steps) < 2:
        return steps, codes, apart
    nests = {id(s.kernel): s.kernel for s in steps}  # equal steps share them
    known = {n: (stores(k.body), kernels.alone(k)) for n, k in nests.items()}
    works = [_work(step, code, places, *known[id(step.kernel)])
             for step, code in zip(steps, codes, strict=True)]  # fmt: skip
    limit = 0
    for reach in (ANYWHERE, *_REACHES):
        groups = arrange(works, threads, reach, context.target.costs)
        if len(groups) == len(steps):
            break
        order = [i for group in groups for i in group.launches]
        found, place = [steps[i] for i in order], {i: n for n, i in enumerate(order)}
        groups = [Group(tuple(place[i] for i in g.launches), g.saves) for g in groups]
        if not limit:
            arena = _Arena(steps, apart, places).nbytes
            arrays = {n: nbytes(n.shape, n.dtype.itemsize)
                      for step in steps for n in (*step.inputs, *step.outputs) if n in places}
            limit = arena + max((arena + sum(arrays.values())) // _GROWTH, _LEAST_GROWTH)
        if _Arena(found, groups, places).nbytes <= limit:
            return found, [codes[i] for i in order], groups
    return steps, codes, apart


def _work(step: Step, code: Code, places: dict[Node, Ref], written: Container[Memory],
          nanoseconds: int) -> Work:  # fmt: skip
    """Return what a launch touches, by its place in memory."""
    def place(node: Node) -> Hashable:
        found = places.get(node)
        return node if found is None else (found.space, found.index)

    over = [n for n, p in zip(step.inputs, step.kernel.params, strict=False) if p in written]
    writes = frozenset(map(place, (*over, *step.outputs)))
    updates = any(isinstance(w, tuple) and w[0] == "input" for w in writes)
    return Work(frozenset(map(place, step.inputs)), writes, nanoseconds, code.width, updates)


class _Arena:
    """Memory of the arrays between launches, and of their scratch, by groups of launches.

    Attributes
    ----------
    lives : list of list of int
        Bytes at most, first group, last group of each allocation.
    sizes : list of Expr or int
        Bytes of each allocation.
    ids : dict of Node to int
        The allocation of each array.
    scratch : list of tuple of int
        The allocations of each launch.
    offsets : list of int
        Where each allocation lies.
    nbytes : int
        Size of the arena.
    """

    def __init__(self, steps: Sequence[Step], groups: Sequence[Group],
                 places: Mapping[Node, Ref]) -> None:  # fmt: skip
        self.lives: list[list[int]] = []
        self.sizes: list[Expr | int] = []
        self.ids: dict[Node, int] = {}
        self.scratch: list[tuple[int, ...]] = []
        numbers = (number for number, group in enumerate(groups) for _ in group.launches)
        for number, step in zip(numbers, steps, strict=True):
            for node in step.outputs:
                if node not in places:
                    self.ids[node] = self._add(bytes_of(node.shape, node.dtype.itemsize), number)
            for node in step.inputs:
                if node in self.ids:
                    self.lives[self.ids[node]][2] = number
            self.scratch.append(tuple(
                self._add(bytes_of((m.size,), m.dtype.itemsize), number) for m in step.scratch
            ))
        self.offsets, self.nbytes = plan_arena([Lifetime(*life) for life in self.lives])

    def _add(self, size: Expr | int, number: int) -> int:
        self.lives.append([largest(size), number, number])
        self.sizes.append(size)
        return len(self.lives) - 1


def _host_steps(
    steps: list[Step], codes: list[Code], groups: list[Group], places: dict[Node, Ref],
    variables: dict[str, Expr], panels: Mapping[Panels, Ref],
) -> tuple[list[Any], dict[str, ProgramRef], int]:  # fmt: skip
    """Return allocations, launches and frees in order, the programs, and the arena's bytes."""
    arena = _Arena(steps, groups, places)
    places.update({n: Ref("arena", i) for n, i in arena.ids.items()})
    first: list[list[int]] = [[] for _ in groups]
    last: list[list[int]] = [[] for _ in groups]
    for i, (_, begin, end) in enumerate(arena.lives):
        first[begin].append(i)
        last[end].append(i)
    out: list[Any] = []
    programs: dict[str, ProgramRef] = {}
    for number, group in enumerate(groups):
        out.extend(Alloc(i, arena.offsets[i], arena.sizes[i]) for i in first[number])
        launches = []
        for i in group.launches:
            step, code, scratch = steps[i], codes[i], arena.scratch[i]
            refs = [*(places[n] for n in (*step.inputs, *step.outputs)),
                    *(Ref("arena", index) for index in scratch),
                    *(panels[_panels_of(step, p, places)] for p in code.packings)]  # fmt: skip
            launches.append(Launch(code.key, tuple(refs),
                                   tuple(variables[v] for v in code.variables)))
            if code.key not in programs:
                programs[code.key] = program_of(step, code, variables,
                                              [arena.sizes[index] for index in scratch])
        together = len(launches) > 1
        out.append(Parallel(tuple(launches), group.saves) if together else launches[0])
        out.extend(Free(i) for i in last[number])
    return out, programs, arena.nbytes


def program_of(step: Step, code: Code, variables: Mapping[str, Expr],
             scratch: Sequence[Expr | int]) -> ProgramRef:  # fmt: skip
    """Return the program that a launch runs, with what it does to each of its buffers."""
    written = stores(step.kernel.body)
    kinds = [
        Access("updates" if p in written else "reads", bytes_of(n.shape, n.dtype.itemsize))
        for n, p in zip(step.inputs, step.kernel.params, strict=False)
    ] + [Access("writes", bytes_of(n.shape, n.dtype.itemsize)) for n in step.outputs]
    kinds += [Access("writes", size) for size in scratch]
    kinds += [Access("reads", p.nbytes) for p in code.packings]
    return ProgramRef(code.key, tuple(variables[v] for v in code.variables), tuple(kinds))


def bytes_of(shape: nd.Shape, itemsize: int) -> Expr | int:
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
