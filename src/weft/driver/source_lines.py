"""The user's lines that the values of kernels come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.ir import node as nd
from weft.ir.node import Node
from weft.runtimes import trace

if TYPE_CHECKING:
    from weft.driver.kernels import Code
    from weft.kernelize.build import Step

__all__ = ["lines_of", "nodes_of", "note_lines"]


def lines_of(steps: Iterable[Step]) -> tuple[tuple[str, int], ...]:
    """Return the lines where the values of equal kernels were written, results first."""
    found: dict[tuple[str, int], None] = {}
    for step in steps:
        for node in (*step.outputs, *reversed(nodes_of(step))):
            place = nd.locations.get(node)
            if place is not None and place.file:
                found.setdefault((place.file, place.line))
    return tuple(found)


def nodes_of(step: Step) -> list[Node]:
    """Return the nodes that a step computes, operands first."""
    return nd.toposort(step.outputs, known=frozenset(step.inputs))


def note_lines(steps: Sequence[Step], codes: Iterable[Code]) -> None:
    """Have the kernels of a new plan know their first line, while a profile is taken."""
    if trace.recorder is None:
        return
    for step, code in zip(steps, codes, strict=True):
        for line in lines_of([step])[:1]:
            code.line = line
