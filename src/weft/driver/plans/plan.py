"""Plans: host programs of realized or captured graphs, called natively."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.driver import kernels
from weft.driver.context import Context
from weft.driver.kernels import Code
from weft.driver.plans.layouts import Layouts
from weft.errors import AllocationError, BoundsError, VariableError, WeftError, raised, strayed
from weft.imports import importing
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.plan.plan import Alloc, Free, Launch, Parallel, parse_plan, print_plan, steps_of
from weft.ir.plan.plan import Plan as HostPlan
from weft.ir.position import in_thread
from weft.ir.size import evaluate
from weft.ir.stmt import Location
from weft.renderers.base import NO_MEMORY, STOPPED

if TYPE_CHECKING:
    from weft.ir.bounds import Env
    from weft.kernelize.build import Step
    from weft.runtimes.cpu.executor.native import NativePlan
    from weft.runtimes.memory.pool import Apart

_FORMAT: Final = 3
_WAKE_NANOSECONDS: Final = 40_000  # what a group saves if threads are woken for it
_GIL_NANOSECONDS: Final = 2000  # a plan estimated above this lets other threads run


class Panels(NamedTuple):
    """Copies of an input that a plan reads from an input of its own, behind those of the graph.

    Attributes
    ----------
    key : str
        What fills them.
    nbytes : int
        Their size.
    source : int
        The input that they are copies of.
    """

    key: str
    nbytes: int
    source: int


class Spec(NamedTuple):
    """A plan as data, as it lies on disk.

    Attributes
    ----------
    host : weft.ir.plan.plan.Plan
        The host program.
    checks : tuple of tuple of int
        For each launch the checked nodes, by position in the graph's operands-first order.
    outputs : tuple of (str, int)
        For each result ``("leaf", input slot)`` or ``("new", output slot)``.
    nanoseconds : int
        Estimated time of one call.
    panels : tuple of Panels
        The inputs behind those of the graph.
    """

    host: HostPlan
    checks: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[str, int], ...]
    nanoseconds: int
    panels: tuple[Panels, ...] = ()

    def pack(self) -> bytes:
        """Return the cache entry."""
        parts = [_FORMAT, print_plan(self.host), self.checks, self.outputs, self.nanoseconds,
                 self.panels]
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Spec | None:
        """Return the plan of a cache entry, or None if it is not one."""
        try:
            version, text, checks, outputs, nanoseconds, panels = json.loads(data)
            if version != _FORMAT:
                return None
            host = parse_plan(text)
            regions = [s.steps for s in host.steps if isinstance(s, Parallel)]
            if not all(r and all(isinstance(s, Launch) for s in r) for r in regions):
                return None  # which no plan of ours has, and `groups` does not number
            return cls(
                host, tuple(tuple(map(int, c)) for c in checks),
                tuple((str(kind), int(slot)) for kind, slot in outputs), int(nanoseconds),
                tuple(Panels(str(key), int(n), int(source)) for key, n, source in panels),
            )
        except (ValueError, TypeError, RecursionError, WeftError):
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
        Bytes of each output, at its largest (`at` tells them for values of the variables).
    arena : int
        Bytes of the arena, at its largest.
    apart : Apart or None
        Where memory is checked: places of all values in an arena in which none shares memory.
    steps : list of Step or None
        The loop nests, where the plan was made in this process (for explain).
    context : Context
        The device that it runs on.
    """

    __slots__ = ("__weakref__", "_fillings", "_layouts", "_natives", "apart", "arena", "call",
                 "codes", "context", "launches", "native", "sizes", "spec", "steps",
                 "variables")  # fmt: skip

    def __init__(self, spec: Spec, codes: dict[str, Code], steps: list[Step] | None,
                 context: Context) -> None:  # fmt: skip
        host = spec.host
        self.spec, self.codes, self.steps, self.context = spec, codes, steps, context
        kernels.load(codes.values(), context)
        self.variables = tuple(v.attr.name for v in host.variables)
        self.sizes = tuple(map(largest, host.outputs))
        self.arena = largest(host.arena)
        self.launches = [s for s in steps_of(host) if isinstance(s, Launch)]
        offsets = {s.index: largest(s.offset) for s in host.steps if isinstance(s, Alloc)}
        self.apart: Apart | None = None
        if context.native.pool.checks:
            offsets, self.apart = self._apart({})
            self.arena = self.apart.nbytes
        self.native = self._native(offsets, self.arena, spec.nanoseconds)
        self.call = self.native.call
        self._natives: dict[tuple[int, ...], tuple[Any, int, Apart | None]] = {}
        self._layouts: Layouts | None = None
        self._fillings: dict[str, NativePlan] = {}

    def fill(self, panels: Panels, source: int, target: int) -> None:
        """Copy an input into panels; addresses of both."""
        from weft.runtimes.cpu.executor.native import BufferRef, KernelStep

        plan = self._fillings.get(panels.key)
        if plan is None:
            code = self.codes[panels.key]
            step = KernelStep(code.address, [BufferRef.input(0), BufferRef.input(1)], [], code.name)
            plan = self._fillings[panels.key] = self.context.native.plan(
                [step], 2, 0, release_gil=True, keep=[code.library])
        plan.call(source, target, 0)

    def places(self, nodes: Sequence[Node]) -> dict[int, Location]:
        """Return where in the user's source the checked nodes are, for `raise_failure`.

        Of launches all: those that were joined have one number.
        """
        checked = {i for checks in self.spec.checks for i in checks}
        checked.update(i for i, n in enumerate(nodes) if n.op is Op.LAUNCH)
        return {i: nd.locations[nodes[i]] for i in checked if nodes[i] in nd.locations}

    def at(self, values: Sequence[int]
           ) -> tuple[NativePlan, tuple[int, ...], int, Apart | None]:  # fmt: skip
        """Return the plan, bytes of outputs and arena, and `apart`, for variables' values."""
        host = self.spec.host
        known = dict(zip(self.variables, values, strict=True))
        sizes = tuple(evaluate(size, known) for size in host.outputs)
        if not self.is_sized:
            return self.native, sizes, self.arena, self.apart
        # One layout of the arena serves all values up to the next power of two.
        limits = tuple(values) if self.apart is not None else tuple(
            min(1 << max(value - 1, 0).bit_length(), v.attr.max)
            for value, v in zip(values, host.variables, strict=True)
        )
        found = self._natives.get(limits)
        if found is None:
            env = {v: (v.attr.min, most) for v, most in zip(host.variables, limits, strict=True)}
            nanoseconds = self.spec.nanoseconds
            for v, most in zip(host.variables, limits, strict=True):
                nanoseconds = nanoseconds * most // v.attr.max
            if self.apart is not None:
                offsets, apart = self._apart(env)
                found = self._native(offsets, apart.nbytes, nanoseconds), apart.nbytes, apart
            else:
                offsets, arena = self._layout(env)
                found = self._native(offsets, arena, nanoseconds), arena, None
            self._natives[limits] = found
            if self._layouts is not None:
                self._layouts.add(limits, *found[:2])
        native, arena, places = found
        return native, sizes, arena, places

    @property
    def is_arena_sized(self) -> bool:
        """Whether the layout of the arena depends on variables."""
        return any(isinstance(s, Alloc) and isinstance(s.size, Expr) for s in self.spec.host.steps)

    @property
    def is_sized(self) -> bool:
        """Whether there are native plans for sizes: of other layouts, or that hold the GIL."""
        return bool(self.variables) and (
            self.is_arena_sized or self.spec.nanoseconds > _GIL_NANOSECONDS)

    def layouts(self) -> Layouts | None:
        """Return the table of native plans that `at` fills; None if it would be too large."""
        if self._layouts is None:
            made = Layouts([v.attr.max for v in self.spec.host.variables])
            if not made.fits:
                return None
            for limits, (native, arena, _) in list(self._natives.items()):
                made.add(limits, native, arena)
            self._layouts = made
        return self._layouts

    @property
    def calls(self) -> int:
        """How often the plan was run, roughly."""
        return sum(native.calls for native in self._all_natives())

    def switch(self, code: Code) -> None:
        """Let every step of a kernel run other code from now on, calls under way included."""
        self.codes[code.key] = code
        for native in self._all_natives():
            for number, launch in enumerate(self.launches):
                if launch.key == code.key:
                    native.switch(number, code.address, code.library)

    def _all_natives(self) -> list[NativePlan]:
        return [self.native, *(found[0] for found in list(self._natives.values()))]

    def _apart(self, env: Env) -> tuple[dict[int, int], Apart]:
        """Return the offset of each allocation, and their places where none shares memory."""
        from weft.ir.bounds import bounds

        sizes = {s.index: bounds(s.size, env).hi if isinstance(s.size, Expr) else s.size
                 for s in self.spec.host.steps if isinstance(s, Alloc)}
        places: Apart = self.context.native.pool.apart(list(sizes.values()))
        return dict(zip(sizes, places.offsets, strict=True)), places

    def _layout(self, env: Env) -> tuple[dict[int, int], int]:
        """Return the offset of each allocation and the bytes of the arena in an environment."""
        from weft.ir.bounds import bounds
        with importing:
            from weft.kernelize.memory.memory_planner import Lifetime, plan_arena

        lives: dict[int, list[int]] = {}
        launches = 0
        for step in self.spec.host.steps:
            if isinstance(step, Alloc):
                size = step.size
                nbytes = bounds(size, env).hi if isinstance(size, Expr) else size
                lives[step.index] = [nbytes, launches, launches]
            elif isinstance(step, Free):
                lives[step.index][2] = launches - 1
            elif isinstance(step, Launch | Parallel):  # what runs together lives together
                launches += 1
        offsets, arena = plan_arena([Lifetime(*life) for life in lives.values()])
        return dict(zip(lives, offsets, strict=True)), arena

    def _native(self, offsets: dict[int, int], arena: int, nanoseconds: int) -> NativePlan:
        host = self.spec.host
        return self.context.native.plan(
            self._table(offsets), len(host.inputs), len(host.outputs), arena, len(host.variables),
            nanoseconds > _GIL_NANOSECONDS, [c.library for c in self.codes.values()],
            self._first_update(), self.groups(),
        )

    def groups(self) -> list[tuple[int, int, bool]]:
        """Return the launches that run at the same time.

        Of each group that is the number of the first, how many there are, and whether what they
        save is worth waking threads for.
        """
        found, number = [], 0
        for step in self.spec.host.steps:
            if isinstance(step, Parallel):
                found.append((number, len(step.steps), step.saves >= _WAKE_NANOSECONDS))
                number += len(step.steps)
            elif isinstance(step, Launch):
                number += 1
        return found

    def _first_update(self) -> int | None:
        """Return the first launch that writes over an input: from it on nothing may stop a call."""
        updated = self.spec.host.updated
        if not updated:
            return None
        writes = {p.key: [a.kind != "reads" for a in p.buffers] for p in self.spec.host.programs}
        return next(i for i, launch in enumerate(self.launches) if any(
            ref.space == "input" and ref.index in updated and does
            for ref, does in zip(launch.buffers, writes[launch.key], strict=True)))

    def _table(self, offsets: dict[int, int]) -> list[Any]:
        """Return the native steps."""
        from weft.runtimes.cpu.executor.native import BufferRef, KernelStep, VariableRef

        number = {name: i for i, name in enumerate(self.variables)}
        table = []
        for step in self.launches:
            code = self.codes[step.key]
            refs = [
                BufferRef("arena", 0, offsets[r.index] + r.offset) if r.space == "arena"
                else BufferRef(r.space, r.index, r.offset) for r in step.buffers
            ]
            values = [VariableRef(number[v]) for v in code.variables]
            table.append(KernelStep(code.address, refs, values, code.name))
        return table

    def raise_failure(self, failure: tuple[int, int, int, int, int],
                      places: Mapping[int, Location]) -> None:  # fmt: skip
        """Raise the typed error of a status.

        Raises
        ------
        BoundsError
            For an index out of range, with the user's line.
        LaunchError
            For any other check.
        AllocationError
            If there was no memory for private arrays of a kernel.
        VerifyError
            If an access was outside of its array, under ``WEFT_GUARD``.
        """
        code, step, _, value, bound = failure
        if code == STOPPED:  # and the program's own handler of interrupts raised nothing
            raise KeyboardInterrupt("a kernel was stopped in a loop")
        if code == NO_MEMORY:
            raise AllocationError("a launch", found=f"no memory for {value} bytes of local arrays")
        checks = self.spec.checks[step]
        messages = self.codes[self.launches[step].key].messages
        text, check = messages[code - 1] if 0 < code <= len(messages) else (f"failure {code}", -1)
        where = None
        if 0 <= check < len(checks):
            place = places.get(checks[check])
            where = (place.file, place.line) if place is not None and place.file else None
        stray = strayed(text, value, bound, where)
        if stray is not None:
            raise stray
        operation, _, reason = text.partition(": ")
        reason, _, mark = reason.rpartition(" #") if " #" in reason else (reason, "", "")
        told = next((p.checks[mark] for p in places.values()
                     if isinstance(p, nd.LaunchPlace) and mark in p.checks), None)
        if told is None:
            reason = text.partition(": ")[2]
        else:
            where, reason = (told.place.file, told.place.line), told.message
            if value > 0 and told.blocks and told.threads and not told.bounds:
                reason += in_thread(value - 1, told.blocks, told.threads)
        if reason.startswith("index out of range") or (told is not None and told.bounds):
            wraps = operation in nd.FROM_THE_END
            found = value - bound if wraps and value < 0 else value
            raise BoundsError(operation, found=f"index {found}",
                              expected=f"{-bound if wraps else 0} to {bound - 1}" if bound else
                              "no index: the axis is empty", where=where)
        reason = reason or text
        kind = raised(reason) if told is None else told.error
        raise kind(operation, found=reason, where=where)


def largest(size: Expr | int) -> int:
    """Return a size at its largest."""
    if not isinstance(size, Expr):
        return size
    from weft.ir.bounds import bounds

    return bounds(size, {})[1]


def check_variables(names: Sequence[str], limits: dict[str, tuple[int, int]],
                    values: Mapping[str, int]) -> list[int]:  # fmt: skip
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


