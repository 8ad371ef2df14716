"""Plans that run on devices by their queues, and are not native code of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.driver.kernels import Code
from weft.driver.plans.failures import Reported
from weft.driver.plans.spec import Spec
from weft.imports import importing
from weft.ir.plan.plan import Launch, steps_of
from weft.ir.size import evaluate
from weft.locks import mutex
from weft.runtimes import trace
from weft.runtimes.base import Image
from weft.runtimes.executor import Execution, execute
from weft.runtimes.in_order import Rows, rows_of, run_rows

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.kernelize.build import Step

__all__ = ["DevicePlan", "code_key"]


_MOST_KEPT: Final = 64  # values of variables whose launches are kept


class DevicePlan(Reported):
    """A plan on one or several devices.

    Attributes
    ----------
    spec : Spec
        The plan as data.
    codes : dict of str to Code
        Its kernels by the key of their programs.
    launches : list of Launch
        Its kernel calls in order.
    variables : tuple of str
        Names of its variables.
    steps : list of Step or None
        The loop nests, where the plan was made in this process (for explain).
    context : Context
        The first of its devices.
    contexts : list of Context
        Its devices.
    calls : int
        How often it was run.
    """

    __slots__ = ("__weakref__", "_kept", "_lock", "_programs", "_waits", "calls", "codes",
                 "context", "contexts", "launches", "spec", "steps", "variables")  # fmt: skip

    def __init__(self, spec: Spec, codes: Mapping[str, Code], steps: list[Step] | None,
                 contexts: Sequence[Context]) -> None:  # fmt: skip
        host = spec.host
        self.spec, self.steps, self.contexts = spec, steps, list(contexts)
        self.context = self.contexts[0]
        self.codes = {p.key: codes[code_key(p.key)] for p in host.programs}
        self.launches = [s for s in steps_of(host) if isinstance(s, Launch)]
        self.variables = tuple(v.attr.name for v in host.variables)
        self.calls = 0
        self._waits = any(code.messages for code in self.codes.values())  # for what may fail
        self._lock = mutex()
        self._programs: dict[str, Any] | None = None
        self._kept: dict[tuple[int, ...], Rows | None] = {}  # by values of the variables

    @property
    def programs(self) -> dict[str, Any]:
        """Its kernels as their devices have loaded them."""
        if self._programs is None:
            with self._lock:
                if self._programs is None:
                    made = {p.key: self._load(p.key, p.device, len(p.buffers))
                            for p in self.spec.host.programs}  # fmt: skip
                    # Drivers may end kernels that check nothing.
                    self._waits |= any(getattr(p, "may_fail", False) for p in made.values())
                    self._programs = made
        return self._programs

    def _load(self, key: str, device: int, nbuffers: int) -> Any:
        code = self.codes[key]
        loaded = Image(code.name, code.image, tuple(code.variables), nbuffers)
        return self.contexts[device].runtime.load(loaded)

    def run(self, inputs: Sequence[Any], values: Mapping[str, int]
            ) -> list[Any] | tuple[int, int, int, int, int]:  # fmt: skip
        """Run the plan on buffers of its devices; return the outputs, or what stopped a kernel."""
        if trace.recorder is None:
            rows = self._rows(values)
            if rows is not None:
                self.calls += 1
                return run_rows(rows, self.context.runtime, inputs)
        host = self.spec.host
        devices = [c.runtime for c in self.contexts]
        homes = host.output_devices or (0,) * len(host.outputs)
        outputs = [devices[home].pool.allocate(evaluate(size, values))
                   for home, size in zip(homes, host.outputs, strict=True)]
        kind: type[Execution] = Execution
        if trace.recorder is not None:
            with importing:
                from weft.runtimes.recorded import RecordedExecution

            kind = RecordedExecution
        programs = self.programs
        stopped = execute(host, devices, programs, inputs, outputs, values, self._waits, kind)
        self.calls += 1
        if stopped is None:
            return outputs
        number, failure = stopped
        return failure.code, number, 0, failure.value, failure.bound

    def _rows(self, values: Mapping[str, int]) -> Rows | None:
        """Return the plan as launches that nothing waits for, if it is that."""
        key = tuple(values.values())
        if key in self._kept:
            return self._kept[key]
        programs, queue, rows = self.programs, self.context.runtime.queue, None
        if not self._waits and len(self.contexts) == 1 and getattr(queue, "order", None):
            rows = rows_of(self.spec.host, values, programs)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[key] = rows
        return rows

    def switch(self, code: Code) -> None:
        """Do nothing: kernels of devices have one tier."""


def code_key(key: str) -> str:
    """Return the key of the code of a program; several devices may have a program of the same."""
    return key.partition(":")[0]
