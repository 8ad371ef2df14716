"""A plan as the JSON that ``weft.js`` runs: launches, sizes, programs and finished WGSL.

A size is a number, the name of a variable, or ``[operation, operands...]``. A place in memory is
``[space, index]`` or ``[space, index, offset in bytes]``, with the spaces of plan level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft.driver.plans.device_plan import DevicePlan
from weft.errors import UnsupportedError
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.plan.plan import Alloc, Free, Launch, Parallel, Ref, Wait, steps_of
from weft.ir.stmt import Location
from weft.runtimes.webgpu.bindings import header_of, module
from weft.web.capture import Array
from weft.web.weights import Weights

__all__ = ["FORMAT", "plan_data", "size_data"]

FORMAT: Final = 1
_HEAP: Final = -1  # the buffer of everything but weights, whose blocks are numbered
_SIZES: Final = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX})


def size_data(size: int | Expr) -> Any:
    """Return a size as JSON.

    Raises
    ------
    UnsupportedError
        If it uses an operation that sizes do not have.
    """
    if isinstance(size, int):
        return size
    if size.op is Op.CONST:
        return int(size.attr)
    if size.op is Op.VARIABLE:
        return size.attr.name
    if size.op not in _SIZES:
        raise UnsupportedError("compile", found=f"a size that {size.op.name} computes",
                               expected="sums, products, quotients, minima and maxima of sizes")
    return [size.op.name, *map(size_data, size.args)]


def plan_data(name: str, description: str, plan: DevicePlan, nodes: Sequence[nd.Node],
              inputs: Sequence[tuple[Array, int | None]], outputs: Sequence[tuple[Array, int]],
              weights: Weights) -> dict[str, Any]:  # fmt: skip
    """Return a plan as JSON.

    Parameters
    ----------
    name, description
        Of the function, for people.
    plan
        What is run.
    nodes
        The graph, as its structure numbers it.
    inputs
        Arguments, and the input slot of each; None where nothing reads it.
    outputs
        Results, and the result of the graph that each is.
    weights
        Where the weights of input slots lie.

    Raises
    ------
    UnsupportedError
        If the plan has steps or sizes that the runtime of pages does not know.
    """
    host = plan.spec.host
    programs = _Programs(plan)
    places = plan.places(nodes)
    allocations: dict[int, Any] = {}
    launches: list[dict[str, Any]] = []
    for step in steps_of(host):
        if isinstance(step, Alloc):
            allocations[step.index] = size_data(step.offset)
        elif isinstance(step, Launch):
            checks = plan.spec.checks[len(launches)]
            launches.append(_launch(step, programs, weights, _messages(plan, step, checks, places)))
        elif not isinstance(step, Free | Parallel | Wait):
            raise UnsupportedError("compile", found=f"a {type(step).__name__} step",
                                   expected="launches: pages have one device")
    slots = []
    for i, nbytes in enumerate(host.inputs):
        place = weights.places.get(i)
        slots.append({"nbytes": size_data(nbytes)} | (
            {} if place is None else {"weight": {"block": place[0], "offset": place[1]}}))
    return {
        "format": FORMAT, "name": name, "description": description,
        "variables": [{"name": v.attr.name, "min": v.attr.min, "max": v.attr.max}
                      for v in host.variables],
        "inputs": [_array(a) | ({} if slot is None else {"slot": slot}) for a, slot in inputs],
        "outputs": [_array(a) | {"place": _result(plan, root)} for a, root in outputs],
        "slots": {"inputs": slots, "outputs": [size_data(n) for n in host.outputs]},
        "weights": weights.data(name),
        "arena": size_data(host.arena),
        "allocations": [allocations.get(i, 0) for i in range(max(allocations, default=-1) + 1)],
        "programs": programs.rows, "launches": launches, "shaders": list(programs.shaders),
    }


def _array(array: Array) -> dict[str, Any]:
    return {"name": array.name, "dtype": array.dtype.name,
            "shape": [size_data(n) for n in array.shape]}


def _result(plan: DevicePlan, root: int) -> list[Any]:
    kind, slot = plan.spec.outputs[root]
    return ["input" if kind == "leaf" else "output", slot]


def _launch(step: Launch, programs: _Programs, weights: Weights,
            messages: list[dict[str, Any]]) -> dict[str, Any]:  # fmt: skip
    homes = [weights.places[r.index][0] if r.space == "input" and r.index in weights.places
             else _HEAP for r in step.buffers]
    order = list(dict.fromkeys(homes))
    return {
        "program": programs.number(step.key, tuple([order.index(h) for h in homes])),
        "buffers": [_ref(r) for r in step.buffers],
        "groups": order,
        "variables": [size_data(v) for v in step.variables],
    } | ({"messages": messages} if messages else {})


def _ref(ref: Ref) -> list[Any]:
    return [ref.space, ref.index, ref.offset]


class _Programs:
    """Programs of a plan: a kernel, and which of its arrays lie in one buffer.

    Attributes
    ----------
    rows : list of dict
    shaders : dict of str to int
        Texts, and their numbers.
    """

    def __init__(self, plan: DevicePlan) -> None:
        self._plan = plan
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.rows: list[dict[str, Any]] = []
        self.shaders: dict[str, int] = {}

    def number(self, key: str, groups: tuple[int, ...]) -> int:
        """Return the number of a program, which is made if it is new."""
        found = self._numbers.get((key, groups))
        if found is None:
            found = self._numbers[key, groups] = len(self.rows)
            self.rows.append(self._row(key, groups))
        return found

    def _row(self, key: str, groups: tuple[int, ...]) -> dict[str, Any]:
        code = self._plan.codes[key]
        text, header = header_of(code.name, code.image)
        launch = header.launch
        if launch.lines:
            raise UnsupportedError("compile", found=f"{code.label}, which prints",
                                   expected="kernels without print: a page has no terminal")
        shader = self.shaders.setdefault(module(text, header, groups), len(self.shaders))
        return {
            "name": code.label or code.name, "shader": shader,
            "entries": [{"name": e.name, "groups": e.groups, "items": e.items}
                        for e in launch.entries],
            "bindings": header.bindings(groups), "shared": launch.shared, "own": launch.own,
            "elements": [m.nbytes for m in header.memories], "fused": header.fused,
        }


def _messages(plan: DevicePlan, step: Launch, checks: Sequence[int],
              places: Mapping[int, Location]) -> list[dict[str, Any]]:  # fmt: skip
    """Return what the failure codes of a launch mean, as `weft.driver.plans.failures` says it."""
    found = []
    for text, check in plan.codes[step.key].messages:
        place = places.get(checks[check]) if 0 <= check < len(checks) else None
        operation, _, reason = text.partition(": ")
        reason, _, mark = reason.rpartition(" #") if " #" in reason else (reason, "", "")
        told = next((p.checks[mark] for p in places.values()
                     if isinstance(p, nd.LaunchPlace) and mark in p.checks), None)
        where = place if told is None else told.place
        bounds = reason.startswith("index out of range") if told is None else told.bounds
        said = reason if told is None else told.message
        message: dict[str, Any] = {"text": f"{operation}: {said}" if said else text}
        if bounds:
            message |= {"bounds": True} | ({"wraps": True} if operation in nd.FROM_THE_END else {})
        if where is not None and where.file:
            message["where"] = f"{Path(where.file).name}:{where.line}"
        found.append(message)
    return found
