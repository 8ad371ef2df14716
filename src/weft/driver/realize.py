"""Realize nodes, and compile graphs for repeated calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.driver import device, report
from weft.driver.plan import Plan, check_variables, plan_for
from weft.driver.structure import Structure, base
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage

if TYPE_CHECKING:
    from weft.runtimes.buffer import Buffer


def realize(nodes: Sequence[Node], variables: Mapping[str, int] | None = None) -> list[Node]:
    """Compute nodes and return them as leaves (a BUFFER, reshaped).

    A node that already is a leaf is returned as it is. Equal nodes share one buffer.

    Raises
    ------
    BoundsError
        If an index that is data is out of range; nothing is changed then.
    AllocationError
        If memory does not suffice.
    """
    run = Compiled(nodes, ())
    buffers = run.call((), [s.buffer for s in run.captured], variables or {})
    made: dict[int, Node] = {}
    out: list[Node] = []
    for node, (kind, slot), buffer in zip(nodes, run.plan.spec.outputs, buffers, strict=True):
        if kind == "leaf":
            out.append(node)
            continue
        if slot not in made:
            whole = base(node)
            made[slot] = nd.buffer(Storage(whole.dtype, nd.size(whole.shape), buffer))
        out.append(infer.reshape(made[slot], node.shape))
    return out


class Compiled:
    """A graph compiled for repeated calls.

    Parameters
    ----------
    outputs : sequence of Node
        What to compute.
    inputs : sequence of Storage
        Placeholders; other leaves are `captured` and read at each call.
    """

    __slots__ = ("_call", "_fast", "_limits", "_order", "captured", "nodes", "plan", "sizes")

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage]) -> None:
        structure = Structure(outputs)
        self.plan: Plan = plan_for(structure, outputs)
        self.nodes = structure.nodes
        slots = {storage: i for i, storage in enumerate(inputs)}
        self.captured = [s for s in structure.leaves if s not in slots]
        late = {storage: len(inputs) + i for i, storage in enumerate(self.captured)}
        # which of inputs + captured each slot of the plan reads; unread inputs have none
        self._order = tuple(slots[s] if s in slots else late[s] for s in structure.leaves)
        self._fast = self._order == tuple(range(len(inputs) + len(self.captured)))
        self._limits = {
            v.attr.name: (v.attr.min, v.attr.max) for v in self.plan.spec.host.variables
        }
        self._call = self.plan.call
        self.sizes = self.plan.sizes

    def call(self, inputs: Sequence[Buffer], captured: Sequence[Buffer],
             variables: Mapping[str, int] | None = None) -> list[Buffer]:  # fmt: skip
        """Run the plan; return a buffer for each output (an input's own if it is passed through).

        Raises
        ------
        BoundsError, LaunchError
            If a check in a kernel failed.
        VariableError
            If a variable is missing or out of bounds.
        AllocationError
            If memory does not suffice.
        """
        spec = self.plan.spec
        given = (*inputs, *captured)
        slots = given if self._fast else [given[i] for i in self._order]
        allocate = device.allocate
        made = [allocate(size) for size in self.sizes]
        plan = self.plan
        if plan.launches:
            arena = allocate(plan.arena) if plan.arena else None
            values = (
                check_variables(plan.variables, self._limits, dict(variables or {}))
                if plan.variables else ()
            )
            failure = self._call(
                *[b.address for b in slots], *[b.address for b in made],
                0 if arena is None else arena.address, *values,
            )
            report.count("launches", len(plan.launches))
            if failure is not None:
                plan.raise_failure(failure, self.nodes)
        return [slots[i] if kind == "leaf" else made[i] for kind, i in spec.outputs]


def compile(outputs: Sequence[Node], inputs: Sequence[Storage]) -> Compiled:
    """Return a graph compiled for repeated calls with other inputs."""
    return Compiled(outputs, inputs)
