"""Graphs compiled for repeated calls on devices whose memory is not that of this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any, Final

from weft.driver.graph_key import Structure
from weft.driver.host_memory import first_bytes
from weft.driver.plans.plan import check_variables
from weft.driver.plans.plan_cache import device_plan_for
from weft.errors import HandleError
from weft.ir.node import Node, Storage

__all__ = ["CompiledOnDevices"]


class CompiledOnDevices:
    """A graph compiled for repeated calls, run by the queues of its devices.

    It has the interface of `weft.driver.plans.compiled_graph.Compiled`; there are no native calls
    of it, no weights that are kept packed, and results never take the memory of what is read.

    Parameters
    ----------
    outputs, inputs, structure, updates, resident, counter
        As those of `Compiled`.
    """

    __slots__ = ("_homes", "_limits", "_order", "_places", "captured", "native", "nodes", "panels",
                 "plan", "values")  # fmt: skip

    takes_over: Final = False
    is_simple: Final = False
    is_direct: Final = False

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage],
                 structure: Structure | None = None,
                 updates: Mapping[int, Storage] | None = None,
                 resident: Collection[Storage] = (),
                 counter: str = "captured plans") -> None:  # fmt: skip
        structure = structure or Structure(outputs)
        plan = self.plan = device_plan_for(structure, outputs, counter)
        self.nodes = structure.nodes
        self.panels: tuple[Any, ...] = ()
        self.native = None
        self._places = plan.places(self.nodes)
        given = dict.fromkeys(inputs)
        self.captured = [s for s in structure.leaves if s not in given]
        slots = {storage: i for i, storage in enumerate((*inputs, *self.captured))}
        self._order = tuple(slots[s] for s in structure.leaves)
        self._limits = {v.attr.name: (v.attr.min, v.attr.max) for v in plan.spec.host.variables}
        homes = plan.spec.host.input_devices or (0,) * len(self._order)
        self._homes = [plan.spec.host.devices[home] for home in homes]
        self.values: Mapping[str, int] = {}

    def at(self, variables: Mapping[str, int]) -> CompiledOnDevices:
        """Return the graph for values of its variables.

        Raises
        ------
        VariableError
            If a variable is missing or out of bounds.
        """
        if not self._limits:
            return self
        found = copy(self)
        found.values = dict(zip(self.plan.variables, check_variables(
            self.plan.variables, self._limits, variables), strict=True))  # fmt: skip
        found._limits = {}
        return found

    def call(self, inputs: Sequence[Any], captured: Sequence[Any],
             variables: Mapping[str, int] | None = None,
             panels: Sequence[Any] = ()) -> list[Any]:  # fmt: skip
        """Run the plan; return a buffer for each output (an input's own if it is passed through).

        Raises
        ------
        BoundsError, LaunchError
            If a check in a kernel failed.
        VariableError
            If a variable is missing or out of bounds.
        AllocationError
            If memory does not suffice.
        HandleError
            If an array is on another device than its tensor says.
        """
        if self._limits:
            return self.at(variables or {}).call(inputs, captured)
        given = [*inputs, *captured]
        given = [given[i] for i in self._order]
        for buffer, home in zip(given, self._homes, strict=True):
            if buffer.device != home:
                raise HandleError("realize", found=f"an array of {buffer.device}",
                                  expected=f"one of {home}")
        made = self.plan.run(given, self.values)
        if isinstance(made, tuple):
            self.plan.raise_failure(made, self._places)
            return []
        out: list[Any] = []
        for kind, slot in self.plan.spec.outputs:
            buffer = given[slot] if kind == "leaf" else made[slot]
            if kind == "new" and any(buffer is other for other in out):
                buffer = first_bytes(buffer, buffer.nbytes)  # another result has the same value
            out.append(buffer)
        return out

    def bind(self) -> None:
        """Refuse native calls: there are none."""

    def fail(self, failure: tuple[int, int, int, int, int]) -> None:
        """Raise the error of a kernel that failed."""
        self.plan.raise_failure(failure, self._places)

    def forget(self) -> None:
        """Let go of the arrays that the graph was captured with."""
        self.nodes, self.captured = [], []
