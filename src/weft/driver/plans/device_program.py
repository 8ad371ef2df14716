"""Make the host program of a graph on devices without native calls, or on several devices.

The graph is split into graphs of one device. Each becomes launches as on any device; copies between
devices are steps of the same plan, and every device has an arena of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weft.config import Debug, config, debug
from weft.driver import kernels, pipeline
from weft.driver.context import Context, context
from weft.driver.graph_key import Structure
from weft.driver.kernels import Code
from weft.driver.plans.device_plan import DevicePlan
from weft.driver.plans.host_program import bytes_of, mark_checks, own, program_of, symbols_of
from weft.driver.plans.plan import largest
from weft.driver.plans.spec import Spec
from weft.driver.progress import Progress
from weft.driver.source_lines import note_lines
from weft.graph.launches import join_launches
from weft.graph.simplify import simplify
from weft.graph.stages import Stages, split_by_device
from weft.graph.stored_reads import part_of_leaf
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import HOST, Node
from weft.ir.op import Op
from weft.ir.plan.plan import Alloc, Copy, Free, Launch, ProgramRef, Ref
from weft.ir.plan.plan import Plan as HostPlan
from weft.ir.plan.plan_verify import verify_plan
from weft.ir.verify.verify_graph import verify_graph
from weft.kernelize.build import Step, kernelize, kernelize_alone
from weft.kernelize.memory.launch_schedule import schedule_launches
from weft.kernelize.memory.memory_planner import Lifetime, plan_arena
from weft.kernelize.special import attempt

__all__ = ["make"]


class _Moved(NamedTuple):
    """A copy of an array, from an element on, to another device, and where it is; as flat nodes."""

    source: Node
    origin: int
    target: Node
    first: int = 0


class _Piece(NamedTuple):
    """A launch with its device, or a copy between two."""

    device: int
    work: Step | _Moved


def make(structure: Structure, outputs: Sequence[Node]) -> DevicePlan:
    """Return the plan of a graph, compiling the kernels that no cache has.

    Where that fails from inside, there is a kernel for each operation.
    """
    return attempt(lambda: _make(structure, outputs, _best),
                   lambda _: _make(structure, outputs, _plain), pipeline.verifying)


def _best(outputs: Sequence[Node], target: Any) -> tuple[list[Node], list[Step]]:
    """Return a simplified graph of one device as launches with the fewest passes over memory."""
    made = [own(o, s) for o, s in zip(outputs, join_launches(simplify(outputs)), strict=True)]
    steps = kernelize(made, target, pipeline.verifying)
    return made, schedule_launches(steps, {nd.base(o) for o in made}, {})


def _plain(outputs: Sequence[Node], target: Any) -> tuple[list[Node], list[Step]]:
    """Return a graph of one device as launches, one for each operation."""
    made = [own(o, o) for o in outputs]
    return made, kernelize_alone(made, target)


def _make(structure: Structure, outputs: Sequence[Node],
          cut: Callable[[Sequence[Node], Any], tuple[list[Node], list[Step]]]
          ) -> DevicePlan:  # fmt: skip
    marks = mark_checks(structure)
    split = split_by_device(outputs, structure.context.name)
    contexts = _contexts(structure, split)
    number = {c.name: i for i, c in enumerate(contexts)}
    pieces: list[_Piece] = []
    same: dict[Node, Node] = {leaf: nd.base(value) for value, leaf in split.handed.items()}
    stored: dict[Node, tuple[Node, int]] = {}  # values: the flat nodes that have them, and where

    def found(value: Node) -> tuple[Node, int]:
        """Return what has a value of the whole graph, and on which device."""
        leaf = split.arrived.get(nd.base(value), nd.base(value))
        return stored.get(value) or (leaf, number[leaf.device or HOST])

    for stage in split.stages:
        device = number[stage.device]
        for value, leaf in stage.copies:
            part = part_of_leaf(value)
            array, first = part or (value, 0)
            pieces.append(_Piece(device, _Moved(*found(array), leaf, first)))
        made, steps = cut(stage.outputs, contexts[device].target)
        for value, node in zip(stage.values, made, strict=True):
            stored[value] = nd.base(node), device
            if value in split.handed:
                same[split.handed[value]] = nd.base(node)
        pieces.extend(_Piece(device, step.verify()) for step in steps)
        if pipeline.verifying or config().memory_mode:
            verify_graph(made)
    if debug(Debug.GRAPH):
        print(f"weft: {len(structure.nodes)} nodes in {len(pieces)} kernels and copies on "
              f"{', '.join(c.name for c in contexts)}", file=sys.stderr)
    builder = _Builder(structure, contexts, same, [found(o) for o in outputs])
    codes = _compiled(pieces, contexts)
    launched = [(p.work, codes[id(p.work.kernel), p.device]) for p in pieces
                if isinstance(p.work, Step)]
    note_lines([step for step, _ in launched], [code for _, code in launched])
    host = builder.build(pieces, codes)
    if pipeline.verifying or config().memory_mode:
        verify_plan(host)
    steps = [p.work for p in pieces if isinstance(p.work, Step)]
    checks = tuple(tuple(marks.get(id(nd.locations.get(c)), -1) for c in s.checks) for s in steps)
    nanoseconds = sum(kernels.nanoseconds(s.kernel) for s in steps)
    spec = Spec(host, checks, tuple(builder.results), nanoseconds)
    return DevicePlan(spec, {c.key: c for c in codes.values()}, steps, contexts)


def _contexts(structure: Structure, split: Stages) -> list[Context]:
    """Return the devices of a graph: those of its stages and leaves, each once."""
    names = [s.device for s in split.stages] + [leaf.device or HOST for leaf in structure.leaves]
    names += [c.device for c in split.arrived.values()]
    return [context(name) for name in dict.fromkeys(names or [structure.context.name])]


def _compiled(pieces: Iterable[_Piece], contexts: Sequence[Context]
              ) -> dict[tuple[int, int], Code]:  # fmt: skip
    """Return the code of each nest on each device, by the nest's identity and the device."""
    found: dict[tuple[int, int], Code] = {}
    for device, place in enumerate(contexts):
        nests = {id(p.work.kernel): p.work.kernel for p in pieces
                 if p.device == device and isinstance(p.work, Step)}
        with Progress("compiling kernels", len(nests)) as progress:
            made = kernels.compiled_all([(nest, ()) for nest in nests.values()], place,
                                        progress.tick)
        found.update({(key, device): code for key, code in zip(nests, made, strict=True)})
    return found


class _Builder:
    """Lays out memory and writes the steps of a plan.

    Attributes
    ----------
    results : list of (str, int)
        For each result of the graph ``("leaf", input slot)`` or ``("new", output slot)``.
    """

    def __init__(self, structure: Structure, contexts: Sequence[Context],
                 same: Mapping[Node, Node], results: Sequence[tuple[Node, int]]
                 ) -> None:  # fmt: skip
        self.structure, self.contexts, self.same = structure, contexts, same
        self.number = {c.name: i for i, c in enumerate(contexts)}
        self.inputs = {nd.buffer(s): i for i, s in enumerate(structure.leaves)}
        self.results: list[tuple[str, int]] = []
        self.outputs: dict[tuple[Node, int], int] = {}
        self.numbers: dict[tuple[Node, int], Node] = {}
        self.variables = {v.attr.name: v for n in structure.nodes for v in symbols_of(n)}
        for given, device in results:
            node = self._array(given)
            if node in self.inputs:
                self.results.append(("leaf", self.inputs[node]))
            else:
                slot = self.outputs.setdefault((node, device), len(self.outputs))
                self.results.append(("new", slot))

    def _array(self, node: Node) -> Node:
        """Return the node that stands for an array, of those that are the same one."""
        while node in self.same:
            node = self.same[node]
        return node

    def build(self, pieces: Sequence[_Piece], codes: Mapping[tuple[int, int], Code]) -> HostPlan:
        """Return the plan that does all of it in order."""
        pieces = self._with_numbers(pieces)
        homes = [self.number[s.device or HOST] for s in self.structure.leaves]
        self.slots = {(n, homes[i]): Ref("input", i) for n, i in self.inputs.items()}
        self.slots |= {key: Ref("output", i) for key, i in self.outputs.items()}
        lives: dict[Any, list[Any]] = {}  # size at most, first, last, size, device
        for i, piece in enumerate(pieces):
            for key, size, device in self._touched(i, piece):
                life = lives.setdefault(key, [largest(size), i, i, size, device])
                life[2] = i
        index = {key: n for n, key in enumerate(lives)}
        offsets, arenas = self._arenas(lives)
        begins: list[list[Any]] = [[] for _ in pieces]
        ends: list[list[Any]] = [[] for _ in pieces]
        for key, life in lives.items():
            begins[life[1]].append(key)
            ends[life[2]].append(key)
        self.places = {key: Ref("arena", n) for key, n in index.items()}
        steps: list[Any] = []
        programs: dict[str, ProgramRef] = {}
        for i, piece in enumerate(pieces):
            steps += [Alloc(index[k], offsets[k], lives[k][3], lives[k][4]) for k in begins[i]]
            if isinstance(piece.work, Step):
                code = codes[id(piece.work.kernel), piece.device]
                key = f"{code.key}:{piece.device}" if piece.device else code.key
                steps.append(self._launch(i, piece.work, piece.device, code, key))
                if key not in programs:
                    programs[key] = self._program(piece.work, code, piece.device, key)
            else:
                source, origin, target, first = piece.work
                begin = self._ref(source, origin)
                begin = begin.replace(offset=begin.offset + first * source.dtype.itemsize)
                steps.append(Copy(self._ref(target, piece.device), begin,
                                  bytes_of(target.shape, target.dtype.itemsize)))
            steps += [Free(index[k]) for k in ends[i]]
        leaves = self.structure.leaves
        return HostPlan(
            "graph", tuple(self.variables[v] for v in sorted(self.variables)),
            tuple(bytes_of((s.size,), s.dtype.itemsize) for s in leaves),
            tuple(bytes_of(n.shape, n.dtype.itemsize) for n, _ in self.outputs),
            arena=arenas[0], programs=tuple(programs.values()), steps=tuple(steps),
            devices=tuple(c.name for c in self.contexts),
            arenas=tuple(arenas[1:]) if any(arenas[1:]) else (),
            input_devices=_unless_first(homes),
            output_devices=_unless_first([device for _, device in self.outputs]),
        )

    def _with_numbers(self, pieces: Sequence[_Piece]) -> list[_Piece]:
        """Return the pieces with copies of numbers that are read from memory of the host."""
        found: list[_Piece] = []
        for piece in pieces:
            if isinstance(piece.work, Step) and self.contexts[piece.device].name != HOST:
                for node in piece.work.inputs:
                    key = node, piece.device
                    if node.op is Op.BUFFER and not node.attr.device and key not in self.numbers:
                        there = nd.Storage(node.dtype, node.attr.size, None,
                                           self.contexts[piece.device].name)
                        self.numbers[key] = nd.buffer(there)
                        moved = _Moved(node, self.number[HOST], self.numbers[key])
                        found.append(_Piece(piece.device, moved))
            found.append(piece)
        return found

    def _at(self, node: Node, device: int) -> tuple[Node, int]:
        """Return what stands for an array on a device: each computes its own of constants."""
        array = self.numbers.get((node, device))
        return array or self._array(node), device

    def _touched(self, i: int, piece: _Piece) -> list[tuple[Any, Expr | int, int]]:
        """Return the allocations that a piece uses: what stands for them, bytes, device."""
        if isinstance(piece.work, _Moved):
            source, origin, target, _ = piece.work
            arrays = [self._at(source, origin), self._at(target, piece.device)]
        else:
            step = piece.work
            arrays = [self._at(n, piece.device) for n in (*step.inputs, *step.outputs)]
        found: list[tuple[Any, Expr | int, int]] = [
            (key, bytes_of(key[0].shape, key[0].dtype.itemsize), key[1])
            for key in arrays if key not in self.slots]
        if isinstance(piece.work, Step):
            found += [((i, k), bytes_of((m.size,), m.dtype.itemsize), piece.device)
                      for k, m in enumerate(piece.work.scratch)]
        return found

    def _arenas(self, lives: Mapping[Any, list[Any]]) -> tuple[dict[Any, int], list[int]]:
        """Return the offset of each allocation, and the bytes of each device's arena."""
        offsets: dict[Any, int] = {}
        arenas: list[int] = []
        for device in range(len(self.contexts)):
            keys = [k for k, life in lives.items() if life[4] == device]
            found, nbytes = plan_arena([Lifetime(*lives[k][:3]) for k in keys])
            offsets.update(zip(keys, found, strict=True))
            arenas.append(nbytes)
        return offsets, arenas

    def _ref(self, node: Node, device: int) -> Ref:
        key = self._at(node, device)
        found = self.slots.get(key)
        return self.places[key] if found is None else found

    def _launch(self, i: int, step: Step, device: int, code: Code, key: str) -> Launch:
        refs = [self._ref(n, device) for n in (*step.inputs, *step.outputs)]
        refs += [self.places[i, k] for k in range(len(step.scratch))]
        return Launch(key, tuple(refs), tuple(self.variables[v] for v in code.variables))

    def _program(self, step: Step, code: Code, device: int, key: str) -> ProgramRef:
        scratch = [bytes_of((m.size,), m.dtype.itemsize) for m in step.scratch]
        made = program_of(step, code, self.variables, scratch)
        return made.replace(key=key, device=device)


def _unless_first(devices: Sequence[int]) -> tuple[int, ...]:
    """Return where slots are; nothing if all are on the first device."""
    return tuple(devices) if any(devices) else ()
