"""Plans: the host program of a realized or jitted graph, made once and called natively."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from weft.config import Debug, debug
from weft.driver import device, kernels, report
from weft.driver.kernels import Code
from weft.driver.structure import Structure
from weft.errors import AllocationError, BoundsError, LaunchError, VariableError
from weft.ir import node as nd
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.build import Step, base, kernelize
from weft.kernelize.memory import Lifetime, plan_arena
from weft.store import fingerprint

_KIND: Final = "plan"
_FORMAT: Final = 1
_GIL_NANOSECONDS: Final = 2000  # a plan estimated above this lets other threads run
_BYTES_PER_NANOSECOND: Final = 20
_FLOPS_PER_NANOSECOND: Final = 20

Ref = tuple[str, int, int]  # space (input output arena), slot, byte offset


class Launch(NamedTuple):
    """One kernel call: its number in the plan's kernels, buffers, and checked nodes."""

    kernel: int
    refs: tuple[Ref, ...]
    checks: tuple[int, ...]  # positions in the graph's operands-first order


class Spec(NamedTuple):
    """A plan as data, as it lies on disk.

    ``outputs`` gives for each result ``("leaf", input)`` or ``("new", output slot)``;
    ``sizes`` the bytes of each output slot.
    """

    kernels: tuple[str, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[tuple[str, int], ...]
    sizes: tuple[int, ...]
    arena: int
    nanoseconds: int
    variables: tuple[str, ...]

    def pack(self) -> bytes:
        """Return the cache entry."""
        return json.dumps([_FORMAT, *self], separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Spec | None:
        """Return the plan of a cache entry, or None if it is not one."""
        try:
            version, keys, launches, outputs, sizes, arena, nanoseconds, variables = (
                json.loads(data)
            )
            if version != _FORMAT:
                return None
            return cls(
                tuple(keys),
                tuple(
                    Launch(k, tuple((str(s), int(i), int(o)) for s, i, o in refs), tuple(checks))
                    for k, refs, checks in launches
                ),
                tuple((str(kind), int(slot)) for kind, slot in outputs),
                tuple(sizes), int(arena), int(nanoseconds), tuple(variables),
            )
        except (ValueError, TypeError):
            return None


class Plan:
    """A callable plan.

    Attributes
    ----------
    spec : Spec
        The plan as data.
    codes : list of Code
        Its kernels.
    call : builtin function
        ``call(input addresses..., output addresses..., arena address, variables...)``; None, or
        the first failure.
    steps : list of Step or None
        The loop nests, where the plan was made in this process (for explain).
    """

    __slots__ = ("call", "codes", "native", "spec", "steps")

    def __init__(self, spec: Spec, codes: list[Code], ninputs: int,
                 steps: list[Step] | None) -> None:  # fmt: skip
        from weft.runtimes.native import BufferRef, KernelStep, VariableRef

        self.spec, self.codes, self.steps = spec, codes, steps
        kernels.load(codes)
        number = {name: i for i, name in enumerate(spec.variables)}
        table = [
            KernelStep(
                codes[launch.kernel].address,
                [BufferRef(space, slot, offset) for space, slot, offset in launch.refs],
                [VariableRef(number[v]) for v in codes[launch.kernel].variables],
                codes[launch.kernel].name,
            )
            for launch in spec.launches
        ]
        self.native = device.runtime().plan(
            table, ninputs, len(spec.sizes), spec.arena, len(spec.variables),
            spec.nanoseconds > _GIL_NANOSECONDS, [c.library for c in codes],
        )
        self.call = self.native.call

    def raise_failure(self, failure: tuple[int, int, int, int, int], nodes: Sequence[Node]) -> None:
        """Raise the typed error of a status.

        Raises
        ------
        BoundsError
            For an index out of range, with the user's line.
        LaunchError
            For any other check.
        """
        code, step, _, value, bound = failure
        launch = self.spec.launches[step]
        messages = self.codes[launch.kernel].messages
        text, check = messages[code - 1] if 0 < code <= len(messages) else (f"failure {code}", -1)
        where = None
        if 0 <= check < len(launch.checks):
            place = nd.locations.get(nodes[launch.checks[check]])
            where = (place.file, place.line) if place is not None else None
        operation, _, reason = text.partition(": ")
        if reason.startswith("index out of range"):
            raise BoundsError(operation, found=f"index {value}",
                              expected=f"0 to {bound - 1}" if bound else "no index: the axis is "
                              "empty", where=where)
        raise LaunchError(operation, found=reason or text, where=where)


_plans: Final[dict[Any, Plan]] = {}


def plan_for(structure: Structure, outputs: Sequence[Node]) -> Plan:
    """Return the plan of a graph from memory, from disk, or newly made."""
    recording = report.active()
    if recording is None:
        found = _plans.get(structure.key)
        if found is not None:
            report.count("plan memory hits")
            return found
    with device.lock:
        found = _plans.get(structure.key) if recording is None else None
        if found is None:
            found = _from_disk(structure) if recording is None else None
            if found is None:
                found = _make(structure, outputs)
            _plans[structure.key] = found
        if recording is not None:
            recording.plans.append(found)
        return found


def forget() -> None:
    """Drop all plans of this process."""
    _plans.clear()


def _disk_key(structure: Structure) -> str:
    runtime = device.runtime()
    return fingerprint("plan", structure.text(), device.target().fingerprint(),
                       runtime.compiler.cache_key, runtime.threads.threads)


def _from_disk(structure: Structure) -> Plan | None:
    data = device.disk().get(_KIND, _disk_key(structure))
    spec = Spec.unpack(data) if data is not None else None
    if spec is None:
        return None
    codes: list[Code] = []
    for key in spec.kernels:
        code = kernels.from_disk(key)
        if code is None:
            return None
        codes.append(code)
    report.count("plan disk hits")
    return Plan(spec, codes, len(structure.leaves), None)


def _make(structure: Structure, outputs: Sequence[Node]) -> Plan:
    steps = kernelize(outputs)
    if debug(Debug.GRAPH):
        print(f"weft: {len(structure.nodes)} nodes in {len(steps)} kernels", file=sys.stderr)
    codes: list[Code] = []
    numbers: dict[int, int] = {}  # identity of a shared loop nest -> its number
    for step in steps:
        if id(step.kernel) not in numbers:
            numbers[id(step.kernel)] = len(codes)
            codes.append(kernels.compiled(step.kernel))
    spec = _spec(structure, outputs, steps, numbers, codes)
    plan = Plan(spec, codes, len(structure.leaves), steps)
    device.disk().put(_KIND, _disk_key(structure), spec.pack())
    return plan


def _spec(structure: Structure, outputs: Sequence[Node], steps: list[Step],
          numbers: dict[int, int], codes: list[Code]) -> Spec:  # fmt: skip
    slots = {storage: i for i, storage in enumerate(structure.leaves)}
    position = {n: i for i, n in enumerate(structure.nodes)}
    results: list[tuple[str, int]] = []
    output_slots: dict[Node, int] = {}
    sizes: list[int] = []
    for node in map(base, outputs):
        if node.op is Op.BUFFER:
            results.append(("leaf", slots[node.attr]))
            continue
        if node not in output_slots:
            output_slots[node] = len(sizes)
            sizes.append(nbytes(node.shape, node.dtype.itemsize))
        results.append(("new", output_slots[node]))
    place, arena = _arena(steps, output_slots)
    launches = []
    nanoseconds = 0
    for number, step in enumerate(steps):
        refs: list[Ref] = []
        for node in (*step.inputs, *step.outputs):
            if node.op is Op.BUFFER:
                refs.append(("input", slots[node.attr], 0))
            elif node in output_slots:
                refs.append(("output", output_slots[node], 0))
            else:
                refs.append(("arena", 0, place[node]))
        refs.extend(("arena", 0, place[number, i]) for i in range(len(step.scratch)))
        meta = step.kernel.meta
        nanoseconds += max(meta.traffic // _BYTES_PER_NANOSECOND,
                           meta.flops // _FLOPS_PER_NANOSECOND)
        launches.append(Launch(numbers[id(step.kernel)], tuple(refs),
                               tuple(position[c] for c in step.checks)))
    names = sorted({v for code in codes for v in code.variables})
    return Spec(tuple(c.key for c in codes), tuple(launches), tuple(results), tuple(sizes), arena,
                nanoseconds, tuple(names))


def _arena(steps: list[Step], results: dict[Node, int]) -> tuple[dict[Any, int], int]:
    """Return the arena offset of each intermediate node and (step, scratch) pair, and its size."""
    lives: dict[Any, list[int]] = {}
    for number, step in enumerate(steps):
        for node in step.outputs:
            if node not in results:
                lives[node] = [nbytes(node.shape, node.dtype.itemsize), number, number]
        for node in step.inputs:
            if node in lives:
                lives[node][2] = number
        for i, memory in enumerate(step.scratch):
            size = bounds(memory.size, {})[1] * memory.dtype.itemsize
            lives[number, i] = [size, number, number]
    offsets, arena = plan_arena([Lifetime(*life) for life in lives.values()])
    return dict(zip(lives, offsets, strict=True)), arena


def nbytes(shape: nd.Shape, itemsize: int) -> int:
    """Return the bytes of an array, at its largest if a size is symbolic.

    Raises
    ------
    AllocationError
        If they are more than an address can tell.
    """
    total = itemsize
    for dim in shape:
        total *= bounds(dim, {})[1] if isinstance(dim, Expr) else dim
    if total >= 1 << 63:
        raise AllocationError("realize", found=f"{total} bytes for {shape}",
                              expected="fewer than 2**63 bytes")
    return total


def check_variables(names: Sequence[str], limits: dict[str, tuple[int, int]],
                    values: dict[str, int]) -> list[int]:  # fmt: skip
    """Return the variables' values in ABI order.

    Raises
    ------
    VariableError
        If one is missing or out of its bounds.
    """
    out = []
    for name in names:
        low, high = limits[name]
        if name not in values or not low <= values[name] <= high:
            found = f"{name} = {values[name]}" if name in values else f"no value for {name}"
            raise VariableError("launch", found=found, expected=f"a value from {low} to {high}")
        out.append(values[name])
    return out


__all__ = ["Launch", "Plan", "Spec", "check_variables", "forget", "nbytes", "plan_for"]
