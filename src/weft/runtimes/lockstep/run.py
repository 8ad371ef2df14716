"""Runs a kernel on the interpreter device, with or without the sanitiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from weft.ir.record import Record
from weft.runtimes.lockstep.collectives import TOGETHER
from weft.runtimes.lockstep.elementwise import PLAIN
from weft.runtimes.lockstep.findings import ENDLESS, Finding
from weft.runtimes.lockstep.machine import CONTROL, Endless, Handlers, Machine
from weft.runtimes.lockstep.threads import Grid
from weft.runtimes.lockstep.tiles import TILES

if TYPE_CHECKING:
    from weft.ir.stmt import Kernel

__all__ = ["STEPS", "Grid", "Outcome", "run"]

_HANDLERS: Final[Handlers] = {**CONTROL, **PLAIN, **TOGETHER, **TILES}
STEPS: Final = 10_000_000  # statements that a run may carry out, each for many threads


class Outcome(Record):
    """What a run found and did.

    Attributes
    ----------
    findings : tuple of Finding
        What the sanitiser found; empty without it.
    dropped : int
        Findings that were not kept because there were too many.
    instructions : int
        Statements and operations that were carried out, counted by thread.
    """

    findings: tuple[Finding, ...]
    dropped: int
    instructions: int


def run(kernel: Kernel, addresses: Sequence[int], variables: Mapping[str, int], grid: Grid, *,
        sanitise: bool = False, seed: int | None = None, steps: int = STEPS,
        known: Mapping[str, object] = MappingProxyType({})) -> Outcome:  # fmt: skip
    """Run a kernel of threads on memory of the host, which it changes in place.

    Parameters
    ----------
    kernel
        A kernel whose loops over blocks and threads are still there.
    addresses
        Where the arrays of its parameters begin, in order.
    variables
        Values of its variables.
    grid
        The shape of the launch.
    sanitise
        Whether to look for what the kernel does wrong, and to go on where it would fail.
    seed
        Runs the blocks in an order that this number chooses; None for the natural order.
    steps
        How many statements may be carried out.
    known
        Names under which the kernel may find what it raises.

    Raises
    ------
    BoundsError, LaunchError
        If the kernel fails, without the sanitiser; and if it does not end, unless the sanitiser
        has found something else.
    """
    machine = Machine(kernel, addresses, variables, grid, _HANDLERS, sanitise=sanitise, seed=seed,
                      limit=steps, known=known)
    try:
        machine.run()
    except Endless as error:
        if machine.checks is None or not machine.checks.found.findings():
            raise
        # What else is wrong is likely to be why it does not end.
        machine.checks.report(ENDLESS, error.stmt, machine.chosen, "does not come to an end")
    if machine.checks is None:
        return Outcome((), 0, machine.instructions)
    found = machine.checks.found
    return Outcome(found.findings(), found.dropped, machine.instructions)
