"""The report of a program: each kernel at each level, why it was fused, how fast it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from weft.driver import kernels
from weft.driver.counters import Recording
from weft.driver.pipeline import Built, Effort
from weft.driver.report.profile import Timing, Together, time_kernel, time_together
from weft.driver.source_lines import lines_of, nodes_of
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.plan.plan import Launch, Parallel
from weft.ir.record import Record
from weft.ir.stmt import CHECK
from weft.ir.text.text import print_kernel
from weft.ir.text.text_linear import print_linear
from weft.kernelize.build import Step


class Explained(Record):
    """One kernel of a program.

    Attributes
    ----------
    name, kind : str
        Its symbol and its strategy's kind.
    launches : int
        How often one run of the program's plans calls it.
    lines : tuple of (str, int)
        The user's lines that its values come from, as file and number: those of its results first.
    is_random : bool
        Whether it does nothing but make random numbers.
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
    lines: tuple[tuple[str, int], ...]
    is_random: bool
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
        compiler: Any = self.built.context.compiler
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
    built = {kernels.key_of(b.nest, b.context): b for b in recording.built}
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
    built = {kernels.key_of(b.nest, b.context): b for b in recording.built}
    steps: dict[str, list[Step]] = {}
    for plan in recording.plans:
        for step in plan.steps or ():
            steps.setdefault(kernels.key_of(step.kernel, plan.context), []).append(step)
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
        kernels.symbol(key), f"kernel {built.nest.name}", len(seconds), _own_lines(built), False,
        _hints(built), "",
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
        kernels.symbol(key), built.nest.meta.kind, len(steps), lines_of(steps),
        all(isinstance(nd.locations.get(n), nd.RandomPlace) for n in first.outputs),
        (*first.why, *hints),
        _graph(first), print_kernel(built.nest), "\n".join(built.scheduled.meta.schedule),
        print_linear(built.linear), built.source, built, time_kernel(built), built.tier,
        built.effort._replace(passes=built.effort.passes + first.lowering.passes,
                              python=built.effort.python + first.lowering.milliseconds),
    )


def _own_lines(built: Built) -> tuple[tuple[str, int], ...]:
    """Return the lines of a kernel that users wrote, by its statements' places."""
    found = dict.fromkeys((p.file, p.line) for p in built.nest.locations.values()
                          if p.file not in ("", CHECK))
    return tuple(sorted(found)[:1])


def _random_bits(step: Step) -> frozenset[Node]:
    """Return the integer nodes of a step that only make random bits: rounds of a generator."""
    nodes = nodes_of(step)
    rounds = [n for n in nodes if n.op is Op.MULHI]
    found = set(nd.toposort(rounds, known=frozenset(step.inputs)))
    for node in nodes:  # and what integers are made of them, before they become floats
        if node.dtype.is_integer and any(a in found for a in node.args):
            found.add(node)
    return frozenset(found.difference(step.outputs)) if rounds else frozenset()


def _graph(step: Step) -> str:
    """Return the nodes of a step, numbered, inputs first; random bits are one line."""
    number: dict[Node, str] = {}
    lines: list[str] = []
    bits = _random_bits(step)
    if bits:
        lines.append(f"bits: {len(bits)} integer operations make random bits")
        number.update(dict.fromkeys(bits, "bits"))
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
