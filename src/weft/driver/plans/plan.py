"""Plans: host programs of realized or captured graphs, called natively."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.driver import kernels
from weft.driver.context import Context
from weft.driver.kernels import Code
from weft.driver.plans.failures import Reported
from weft.driver.plans.layouts import Layouts
from weft.driver.plans.spec import Panels, Spec
from weft.errors import VariableError
from weft.imports import importing
from weft.ir.expr import Expr
from weft.ir.plan.plan import Alloc, Free, Launch, Parallel, steps_of
from weft.ir.size import evaluate

if TYPE_CHECKING:
    from weft.ir.bounds import Env
    from weft.kernelize.build import Step
    from weft.runtimes.memory.pool import Apart
    from weft.runtimes.native.executor.native import NativePlan

_WAKE_NANOSECONDS: Final = 40_000  # what a group saves if threads are woken for it
_GIL_NANOSECONDS: Final = 2000  # a plan estimated above this lets other threads run


class Plan(Reported):
    """A plan that one native call runs.

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
        from weft.runtimes.native.executor.native import BufferRef, KernelStep

        plan = self._fillings.get(panels.key)
        if plan is None:
            code = self.codes[panels.key]
            step = KernelStep(code.address, [BufferRef.input(0), BufferRef.input(1)], [], code.name)
            plan = self._fillings[panels.key] = self.context.native.plan(
                [step], 2, 0, release_gil=True, keep=[code.library])
        plan.call(source, target, 0)

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
        from weft.runtimes.native.executor.native import BufferRef, KernelStep, VariableRef

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


