"""Plans of launches on one device whose queue keeps their order: no launch waits for another one.

`weft.runtimes.executor` runs every plan, and works out in each run what has to wait for what. What
is here runs those of which nothing has to: their rows are made once, and a run hands them over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from weft.ir.plan.plan import Alloc, Free, Launch, Parallel, Plan, Ref, Size
from weft.ir.program import evaluate_launch
from weft.runtimes.base import View, driving

__all__ = ["Rows", "rows_of", "run_rows"]

_INPUT, _OUTPUT, _ARENA = "input", "output", "arena"


class _Row(NamedTuple):
    """A launch: its program, its memory by number and offset, its variables and threads."""

    program: Any
    memory: tuple[tuple[int, int], ...]
    variables: tuple[int, ...]
    groups: tuple[int, ...]
    threads: tuple[int, ...]


class Rows(NamedTuple):
    """The launches of a plan for some values of its variables.

    Attributes
    ----------
    rows : tuple
        The launches, in order. Memory is numbered: inputs, outputs, the arena.
    written : frozenset of int
        Which memory the launches write.
    outputs : tuple of int
        Bytes of the outputs.
    arena : int
        Bytes of the arena, 0 if the plan has none.
    """

    rows: tuple[_Row, ...]
    written: frozenset[int]
    outputs: tuple[int, ...]
    arena: int


def rows_of(plan: Plan, values: Mapping[str, int], programs: Mapping[str, Any]) -> Rows | None:
    """Return a plan as launches in order, or None if it is not made of launches on one device.

    Parameters
    ----------
    plan
        The plan.
    values
        Values of its variables.
    programs
        Its programs by key, loaded on the device.
    """
    if len(plan.devices) > 1:
        return None
    writes = {p.key: [a.kind != "reads" for a in p.buffers] for p in plan.programs}
    first = {_INPUT: 0, _OUTPUT: len(plan.inputs)}
    arena: Final = len(plan.inputs) + len(plan.outputs)
    starts: dict[int, int] = {}

    def amount(size: Size) -> int:
        return size if isinstance(size, int) else evaluate_launch(size, values)

    def place(ref: Ref) -> tuple[int, int]:
        if ref.space == _ARENA:
            return arena, starts[ref.index] + ref.offset
        return first[ref.space] + ref.index, ref.offset

    rows: list[_Row] = []
    written: set[int] = set()
    steps = [s for step in plan.steps
             for s in (step.steps if isinstance(step, Parallel) else (step,))]  # fmt: skip
    for step in steps:
        if isinstance(step, Launch) and all(r.space in (*first, _ARENA) for r in step.buffers):
            memory = tuple([place(ref) for ref in step.buffers])
            sizes = [tuple(map(amount, s)) for s in (step.variables, step.groups, step.threads)]
            rows.append(_Row(programs[step.key], memory, *sizes))
            written |= {number for (number, _), writing in zip(memory, writes[step.key],
                                                               strict=True) if writing}  # fmt: skip
        elif isinstance(step, Alloc):
            starts[step.index] = amount(step.offset)
        elif not isinstance(step, Free):
            return None
    size = amount(plan.arena) if starts else 0
    return Rows(tuple(rows), frozenset(written), tuple(map(amount, plan.outputs)), size)


def run_rows(plan: Rows, device: Any, inputs: Sequence[Any]) -> list[Any]:
    """Hand all launches to the queue of a device; return the buffers of the outputs.

    Parameters
    ----------
    plan
        The launches, none of which may fail.
    device
        Its queue keeps the order of what it is given (``queue.order``).
    inputs
        Buffers of the inputs, on the device.
    """
    queue, allocate = device.queue, device.pool.allocate
    outputs = [allocate(size) for size in plan.outputs]
    memory = [*inputs, *outputs]
    if plan.arena:
        memory.append(allocate(plan.arena))
    event = None
    with driving(device.name):
        waits = [e.share() for b in inputs for e in b.uses if not e.precedes(queue.order)]
        try:
            for program, places, variables, groups, threads in plan.rows:
                event = queue.launch(program, [View(memory[n], at) for n, at in places],
                                     variables, waits, groups, threads)  # fmt: skip
                waits = []
        except BaseException:
            with suppress(Exception):  # what was begun uses memory that is about to be given back
                queue.synchronize()
            raise
        if event is not None:
            for number, buffer in enumerate(memory):
                buffer.used(event)
                if number in plan.written:
                    buffer.version += 1
    return outputs
