"""What a program became: every kernel at every level, why it is one kernel, and how fast it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from weft.driver import device, kernels
from weft.driver.pipeline import Built, Effort
from weft.driver.profile import Timing, Together, time_kernel, time_together
from weft.driver.report import Recording
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.plan import Launch, Parallel
from weft.ir.record import Record
from weft.ir.text import print_kernel, print_linear
from weft.kernelize.build import Step


class Explained(Record):
    """One kernel of a program.

    Attributes
    ----------
    name, kind : str
        Its symbol and its strategy's kind.
    launches : int
        How often one run of the program's plans calls it.
    why : tuple of str
        Why its values are computed together.
    graph : str
        The nodes it computes.
    nest, schedule, kernel, source : str
        Loop nest, schedule trace, kernel-level IR, LLVM IR.
    timing : Timing or None
        Alone, on scratch arrays.
    tier : str
        ``full``; a program that is explained is compiled once and for good.
    effort : Effort
        Passes and milliseconds from the group of nodes to machine code.
    """

    name: str
    kind: str
    launches: int
    why: tuple[str, ...]
    graph: str
    nest: str
    schedule: str
    kernel: str
    source: str
    built: Built
    timing: Timing | None
    tier: str
    effort: Effort

    def assembly(self) -> str:
        """Return the machine code as text."""
        compiler: Any = device.runtime().compiler
        text: str = compiler.assembly(self.source, self.built.pipeline)
        return text


class Overlap(Record):
    """Launches of a plan that run at the same time.

    Attributes
    ----------
    plan : int
        Number of the plan.
    kernels : tuple of str
        Their symbols, the longest first.
    times : int
        How many such groups the plan has.
    timing : Together or None
        In turn and together, on scratch arrays.
    """

    plan: int
    kernels: tuple[str, ...]
    times: int
    timing: Together | None


def overlaps(recording: Recording) -> list[Overlap]:
    """Return what runs at the same time in the plans of a recording."""
    built = {kernels.key_of(b.nest): b for b in recording.built}
    found: dict[tuple[int, tuple[str, ...]], int] = {}
    for number, plan in enumerate(recording.plans):
        for step in plan.spec.host.steps:
            if isinstance(step, Parallel):
                keys = tuple(s.key for s in step.steps if isinstance(s, Launch))
                found[number, keys] = found.get((number, keys), 0) + 1
    return [
        Overlap(number, tuple(map(kernels.symbol, keys)), times,
                time_together([built[k] for k in keys]))
        for (number, keys), times in found.items() if all(k in built for k in keys)
    ]


def explain(recording: Recording) -> list[Explained]:
    """Return the kernels of a recording in order of their first launch.

    Those that users launch themselves come last; their times are those of their launches.
    """
    built = {kernels.key_of(b.nest): b for b in recording.built}
    steps: dict[str, list[Step]] = {}
    for plan in recording.plans:
        for step in plan.steps or ():
            steps.setdefault(kernels.key_of(step.kernel), []).append(step)
    explained = [
        _explain(key, built[key], found) for key, found in steps.items() if key in built
    ]
    for key, one in built.items():
        seconds = recording.launches.get(kernels.symbol(key))
        if seconds is not None and key not in steps:
            explained.append(_launched(key, one, seconds))
    return explained


def _launched(key: str, built: Built, seconds: Sequence[float]) -> Explained:
    """Return what became of a kernel that users launch: it has no graph."""
    meta = built.nest.meta
    timing = Timing(statistics.median(seconds), min(seconds), meta.traffic, meta.flops)
    return Explained(
        kernels.symbol(key), f"kernel {built.nest.name}", len(seconds), _hints(built), "",
        print_kernel(built.nest), "\n".join(built.scheduled.meta.schedule),
        print_linear(built.linear), built.source, built, timing, built.tier, built.effort)


def _hints(built: Built) -> tuple[str, ...]:
    return tuple(
        str(value) if name == "why" else f"{name}: {value}"
        for name, value in built.scheduled.meta.hints
    )


def _explain(key: str, built: Built, steps: Sequence[Step]) -> Explained:
    first = steps[0]
    hints = _hints(built)
    return Explained(
        kernels.symbol(key), built.nest.meta.kind, len(steps), (*first.why, *hints),
        _graph(first), print_kernel(built.nest), "\n".join(built.scheduled.meta.schedule),
        print_linear(built.linear), built.source, built, time_kernel(built), built.tier,
        built.effort._replace(passes=built.effort.passes + first.lowering.passes,
                              python=built.effort.python + first.lowering.milliseconds),
    )


def _graph(step: Step) -> str:
    """Return the nodes of a step, numbered, inputs first."""
    number: dict[Node, str] = {}
    lines: list[str] = []
    for i, node in enumerate(step.inputs):
        number[node] = f"in{i}"
        lines.append(f"in{i}: {node.dtype.text}{list(node.shape)}")
    stack = list(reversed(step.outputs))
    while stack:
        node = stack[-1]
        if node in number:
            stack.pop()
            continue
        missing = [a for a in node.args if a not in number]
        if missing:
            stack.extend(reversed(missing))
            continue
        number[node] = f"n{len(number)}"
        args = ", ".join(number[a] for a in node.args)
        attr = "" if node.attr is None or node.op is Op.BUFFER else f" {node.attr!r}"
        stored = f" -> out{step.outputs.index(node)}" if node in step.outputs else ""
        lines.append(
            f"{number[node]}: {node.dtype.text}{list(node.shape)} = {node.op.name}({args})"
            f"{attr}{stored}"
        )
        stack.pop()
    return "\n".join(lines)
