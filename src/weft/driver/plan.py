"""Plans: the host program of a realized or jitted graph, made once and called natively."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.driver import device, kernels
from weft.driver.kernels import Code
from weft.errors import BoundsError, LaunchError, VariableError, WeftError
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.plan import Alloc, Launch, parse_plan, print_plan
from weft.ir.plan import Plan as HostPlan

if TYPE_CHECKING:
    from weft.kernelize.build import Step

_FORMAT: Final = 2
_GIL_NANOSECONDS: Final = 2000  # a plan estimated above this lets other threads run


class Spec(NamedTuple):
    """A plan as data, as it lies on disk.

    Attributes
    ----------
    host : weft.ir.plan.Plan
        The host program.
    checks : tuple of tuple of int
        For each launch the checked nodes, by position in the graph's operands-first order.
    outputs : tuple of (str, int)
        For each result ``("leaf", input slot)`` or ``("new", output slot)``.
    nanoseconds : int
        Estimated time of one call.
    """

    host: HostPlan
    checks: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[str, int], ...]
    nanoseconds: int

    def pack(self) -> bytes:
        """Return the cache entry."""
        parts = [_FORMAT, print_plan(self.host), self.checks, self.outputs, self.nanoseconds]
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Spec | None:
        """Return the plan of a cache entry, or None if it is not one."""
        try:
            version, text, checks, outputs, nanoseconds = json.loads(data)
            if version != _FORMAT:
                return None
            return cls(
                parse_plan(text), tuple(tuple(map(int, c)) for c in checks),
                tuple((str(kind), int(slot)) for kind, slot in outputs), int(nanoseconds),
            )
        except (ValueError, TypeError, WeftError):
            return None


class Plan:
    """A callable plan.

    Attributes
    ----------
    spec : Spec
        The plan as data.
    codes : dict of str to Code
        Its kernels by key.
    launches : list of Launch
        Its kernel calls, in the order of the native steps.
    call : builtin function
        ``call(input addresses..., output addresses..., arena address, variables...)``; None, or
        the first failure.
    sizes : tuple of int
        Bytes of each output, at its largest.
    arena : int
        Bytes of the arena.
    steps : list of Step or None
        The loop nests, where the plan was made in this process (for explain).
    """

    __slots__ = ("arena", "call", "codes", "launches", "native", "sizes", "spec", "steps",
                 "variables")  # fmt: skip

    def __init__(self, spec: Spec, codes: dict[str, Code], steps: list[Step] | None) -> None:
        host = spec.host
        self.spec, self.codes, self.steps = spec, codes, steps
        kernels.load(codes.values())
        self.variables = tuple(v.attr.name for v in host.variables)
        self.sizes = tuple(map(largest, host.outputs))
        self.arena = largest(host.arena)
        self.launches = [s for s in host.steps if isinstance(s, Launch)]
        self.native = device.runtime().plan(
            self._table(), len(host.inputs), len(host.outputs), self.arena, len(host.variables),
            spec.nanoseconds > _GIL_NANOSECONDS, [c.library for c in codes.values()],
        )
        self.call = self.native.call

    def _table(self) -> list[Any]:
        """Return the native steps."""
        from weft.runtimes.native import BufferRef, KernelStep, VariableRef

        number = {name: i for i, name in enumerate(self.variables)}
        offsets: dict[int, int] = {}
        table = []
        for step in self.spec.host.steps:
            if isinstance(step, Alloc):
                offsets[step.index] = largest(step.offset)
            elif isinstance(step, Launch):
                code = self.codes[step.key]
                refs = [
                    BufferRef("arena", 0, offsets[r.index] + r.offset) if r.space == "arena"
                    else BufferRef(r.space, r.index, r.offset) for r in step.buffers
                ]
                values = [VariableRef(number[v]) for v in code.variables]
                table.append(KernelStep(code.address, refs, values, code.name))
        return table

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
        checks = self.spec.checks[step]
        messages = self.codes[self.launches[step].key].messages
        text, check = messages[code - 1] if 0 < code <= len(messages) else (f"failure {code}", -1)
        where = None
        if 0 <= check < len(checks):
            place = nd.locations.get(nodes[checks[check]])
            where = (place.file, place.line) if place is not None and place.file else None
        operation, _, reason = text.partition(": ")
        if reason.startswith("index out of range"):
            raise BoundsError(operation, found=f"index {value}",
                              expected=f"0 to {bound - 1}" if bound else "no index: the axis is "
                              "empty", where=where)
        raise LaunchError(operation, found=reason or text, where=where)


def largest(size: Expr | int) -> int:
    """Return a size at its largest."""
    if not isinstance(size, Expr):
        return size
    from weft.ir.bounds import bounds

    return bounds(size, {})[1]


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


