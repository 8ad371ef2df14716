"""Realize nodes, and compile graphs for repeated calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final

from weft.config import config
from weft.driver import counters
from weft.driver.context import context
from weft.driver.graph_key import Structure, count_computed, quick_key
from weft.driver.plans.compiled_graph import Checked, Compiled
from weft.driver.plans.plan_cache import is_planned, ready
from weft.driver.plans.resized import resized
from weft.driver.plans.runtime_constants import as_data, is_plain, restless
from weft.driver.slices import Cut, cut_slices
from weft.imports import importing
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op, storage_only

_MOST_READY: Final = 1024  # graphs that `compute` knows

if TYPE_CHECKING:
    from weft.driver.plans.device_graph import CompiledOnDevices
    from weft.graph.stored_reads import Part
    from weft.runtimes.memory.buffer import Buffer


def realize(nodes: Sequence[Node], variables: Mapping[str, int] | None = None,
            also: Callable[[Sequence[Node]], list[Node]] | None = None) -> list[Node]:  # fmt: skip
    """Compute nodes and return them as leaves (a BUFFER, reshaped).

    A node that already is a leaf is returned as it is. No two results share memory. `also` is given
    all nodes of the graph, operands first, and returns those among them that are results as well;
    theirs follow those of `nodes`.

    Raises
    ------
    BoundsError
        If an index that is data is out of range; nothing is changed then.
    DeviceError
        If a node is a view with gaps on a device that only stores values.
    AllocationError
        If memory does not suffice.
    """
    given, nodes = nodes, [as_data([n])[0] if is_plain(n) else n for n in nodes]
    structure = Structure(nodes)
    if not storage_only.isdisjoint(structure.devices):
        nodes = _read_parts(nodes, _part)
        computed = [n for n in nodes if n.device not in storage_only]  # the others stay: leaves
        if len(computed) < len(nodes):
            rest = iter(realize(computed, variables, also) if computed else ())
            return [*[n if n.device in storage_only else next(rest) for n in nodes], *rest]
        structure = Structure(nodes)
    more = [] if also is None else also(structure.nodes)
    if more:
        nodes = [*nodes, *more]
        structure = Structure(nodes)
    run = _eager(nodes, structure)
    if (len(nodes) == 1 and nodes[0] is given[0] and run.nodes is structure.nodes
            and type(run) is Compiled and run.plan.context.name == nd.HOST):
        _make_ready(run, nodes[0])
    buffers = run.call((), [s.buffer for s in run.captured], variables or {})
    out: list[Node] = []
    for node, (kind, _), buffer in zip(nodes, run.plan.spec.outputs, buffers, strict=True):
        if kind == "leaf":
            out.append(node)
            continue
        made = nd.buffer(Storage(node.dtype, nd.size(node.shape), buffer))
        out.append(infer.reshape(made, node.shape))
    return out


def _read_parts(nodes: Sequence[Node], part: Part | None = None) -> list[Node]:
    with importing:
        from weft.graph.stored_reads import read_parts

    return read_parts(nodes, part)


def _part(storage: Storage, first: int, shape: Sequence[int], strides: Sequence[int]
          ) -> Storage | None:  # fmt: skip
    """Return some elements of stored values as an array of their own, if they are read so."""
    item = storage.dtype.itemsize
    if tuple(strides) == (1,):
        found = storage.buffer.part(first * item, shape[0] * item)
    else:
        found = storage.buffer.lines(first * item, shape, [s * item for s in strides], item)
    return None if found is None else Storage(storage.dtype, math.prod(shape), found)


def compute(node: Node, known: Callable[[Node], Node | None] | None) -> Buffer | None:
    """Return the memory with a value that was computed before from other arrays, the short way.

    None means that `realize` has to do it: the graph is large or new, or a kernel has failed.

    Parameters
    ----------
    node
        No leaf.
    known
        Tells the leaf of a node that was realized, if any was.
    """
    if node.device != nd.HOST and (node.device or context().name != nd.HOST):
        return None
    found = quick_key(node, known)
    run: Compiled | None = None if found is None else ready.get(found[0])
    if found is None or run is None or counters.active() is not None:
        return None
    buffers = [s.buffer for s in found[1]]
    if None in buffers:
        return None
    made = run.attempt(buffers)
    if isinstance(made, tuple):  # it will say whose line failed
        return None
    count_computed(found[2])
    return made[0]


def _make_ready(run: Compiled, root: Node) -> None:
    """Keep a graph with one result for `compute`, without the arrays that it was made with."""
    found = quick_key(root, None) if run.is_simple else None
    if found is None or found[0] in ready or found[1] != run.captured:
        return
    if len(ready) >= _MOST_READY:
        ready.clear()
    kept = ready[found[0]] = copy(run)
    kept.nodes, kept.captured = [], []


def _eager(nodes: Sequence[Node], structure: Structure) -> Compiled | CompiledOnDevices:
    """Return the compiled graph of nodes that are computed once."""
    if not structure.is_native:
        return _on_devices(nodes, (), structure, counter="eager plans")
    if structure.has_copies:  # which say where values are, and copy nothing: all are on one device
        nodes = nd.without_copies(nodes)
        structure = Structure(nodes)
    kind = _kind()
    if is_planned(structure):
        return kind(nodes, (), structure, counter="eager plans")
    if kind is Compiled and counters.active() is None:
        cut: Cut | None = None
        if any(n.op is Op.SLICE for n in structure.nodes):
            cut = cut_slices(nodes)
            if cut is not None and is_planned(cut.structure):
                return Compiled(nodes, (), structure, counter="eager plans", cut=cut)
        found = resized(cut or Cut(nodes, {}, structure), _for_sizes)
        if found is not None:
            return found
    changing = restless(structure)
    if changing:
        return kind(as_data(nodes, changing), (), counter="eager plans")
    return kind(nodes, (), structure, counter="eager plans")


def _for_sizes(nodes: Sequence[Node]) -> Compiled:
    return Compiled(nodes, (), counter="eager plans")


def _kind() -> type[Compiled]:
    """Return the class of compiled graphs: with ``WEFT_CHECK=1`` they check what they compute."""
    return Checked if config().check else Compiled


def _on_devices(outputs: Sequence[Node], inputs: Sequence[Storage], structure: Structure,
                counter: str = "captured plans") -> CompiledOnDevices:  # fmt: skip
    with importing:
        from weft.driver.plans.device_graph import CompiledOnDevices

    return CompiledOnDevices(outputs, inputs, structure, counter=counter)


def compile(outputs: Sequence[Node], inputs: Sequence[Storage],
            updates: Mapping[int, Storage] | None = None,
            resident: Collection[Storage] = ()) -> Compiled | CompiledOnDevices:  # fmt: skip
    """Return a graph compiled for repeated calls with other inputs."""
    if storage_only:
        outputs = _read_parts(outputs)
    structure = Structure(outputs, updates, resident)
    if not structure.is_native:
        return _on_devices(outputs, inputs, Structure(outputs))
    if structure.has_copies:
        outputs = nd.without_copies(outputs)
        structure = Structure(outputs, updates, resident)
    return _kind()(outputs, inputs, structure, updates, resident)
