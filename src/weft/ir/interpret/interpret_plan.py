"""The meaning of plan level: runs the steps of a plan with the interpreter, over bytes.

Steps of a parallel region run one after the other, in whatever order the caller likes: a plan that
is right gives the same bytes in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.interpret.interpret import run
from weft.ir.plan import plan as pl
from weft.ir.plan.plan import Plan, Ref, Size, Step
from weft.ir.program import evaluate_launch
from weft.ir.stmt import Kernel

if TYPE_CHECKING:
    import numpy as np

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Order = Callable[[Sequence[Step]], Sequence[Step]]

__all__ = ["run_plan"]


def run_plan(
    plan: Plan, kernels: Mapping[str, Kernel], inputs: Sequence[Bytes],
    constants: Sequence[Bytes] = (), variables: Mapping[str, int] | None = None,
    order: Order | None = None,
) -> list[Bytes]:  # fmt: skip
    """Return the outputs of a plan; inputs that it updates are changed in place.

    Parameters
    ----------
    plan : Plan
        A plan that `weft.ir.plan.plan_verify.verify_plan` accepts.
    kernels : mapping of str to Kernel
        Its programs as loop nests.
    inputs, constants : sequence of array of uint8
        The memory of each slot.
    variables : mapping of str to int
        Values of its variables.
    order : callable, optional
        Puts the steps of a parallel region into the order in which they run.
    """
    import numpy as np

    given = dict(variables or {})

    def amount(size: Size) -> int:
        return size if isinstance(size, int) else evaluate_launch(size, given)

    outputs = [np.zeros(amount(size), np.uint8) for size in plan.outputs]
    arenas = [np.zeros(amount(size), np.uint8) for size in (plan.arena, *plan.arenas)]
    memory: dict[tuple[str, int], Bytes] = {
        (space, i): block
        for space, blocks in (("input", inputs), ("output", outputs), ("constant", constants))
        for i, block in enumerate(blocks)
    }

    def at(ref: Ref) -> Bytes:
        return memory[ref.space, ref.index][ref.offset :]

    def launch(step: pl.Launch) -> None:
        kernel = kernels[step.key]
        program = next(p for p in plan.programs if p.key == step.key)
        values = {v.attr.name: amount(size)
                  for v, size in zip(program.variables, step.variables, strict=True)}
        views = []
        for param, ref, access in zip(kernel.params, step.buffers, program.buffers, strict=True):
            nbytes = access.size if isinstance(access.size, int) else (
                evaluate_launch(access.size, values))
            views.append(at(ref)[:nbytes].view(param.dtype.numpy))
        run(kernel, views, values)

    stack = list(reversed(plan.steps))
    while stack:
        step = stack.pop()
        if isinstance(step, pl.Parallel):
            stack.extend(reversed(step.steps if order is None else order(step.steps)))
        elif isinstance(step, pl.Alloc):
            first = amount(step.offset)
            block = arenas[step.device][first : first + amount(step.size)]
            block[:] = 0xA5  # whatever was there
            memory["arena", step.index] = block
        elif isinstance(step, pl.Free):
            del memory["arena", step.index]
        elif isinstance(step, pl.Launch):
            launch(step)
        elif isinstance(step, pl.Copy):
            nbytes = amount(step.size)
            at(step.target)[:nbytes] = at(step.source)[:nbytes]
        elif isinstance(step, pl.Fill):
            at(step.target)[: amount(step.size)] = step.byte
    return outputs
