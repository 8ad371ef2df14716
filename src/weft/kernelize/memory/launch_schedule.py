"""An order of launches in which arrays die early.

A graph is ordered by what results need, one result after the other. Gradients of weights then come
at the end, and all activations wait for them. Here a launch runs as soon as it frees more memory
than it takes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from weft.ir.node import Node
from weft.kernelize.build import Step
from weft.kernelize.common.sizes import elements

__all__ = ["schedule_launches"]

_FREED: Final = 64 << 10  # bytes, at least, for which a launch comes forward
_SAVED: Final = 1 << 20  # bytes that another order saves, at least, of the most alive at once,
_SHARE: Final = 16  # and the part of them


def schedule_launches(steps: list[Step], results: Container[Node],
                  updates: Container[Node] = ()) -> list[Step]:  # fmt: skip
    """Return the launches in an order that needs clearly less memory, or else as they are.

    Launches that may fail or that update arrays never come forward, and those of kernels that
    users wrote keep the places of all.

    Parameters
    ----------
    steps : list of Step
        Launches in order, each array stored by one of them.
    results : container of Node
        Arrays that stay, and have their memory from the beginning.
    updates : container of Node
        Results that may take the memory of older arrays.
    """
    sizes = {n: elements(n.shape) * n.dtype.itemsize
             for step in steps for n in step.outputs if n not in results}
    before = _most_alive(steps, sizes)
    if before < _SAVED or any(s.kernel.meta.kind == "launch" for s in steps):
        return steps
    found = _arranged(steps, sizes, updates)
    saved = before - _most_alive(found, sizes)
    return found if saved >= max(_SAVED, before // _SHARE) else steps


def _most_alive(steps: Sequence[Step], sizes: Mapping[Node, int]) -> int:
    """Return the most bytes of arrays between launches that are alive at once."""
    last = {n: i for i, step in enumerate(steps) for n in (*step.outputs, *step.inputs)}
    alive = most = 0
    for i, step in enumerate(steps):
        alive += sum([sizes.get(n, 0) for n in step.outputs])
        most = max(most, alive)
        alive -= sum([sizes.get(n, 0) for n in {*step.inputs, *step.outputs} if last[n] == i])
    return most


def _arranged(steps: Sequence[Step], sizes: Mapping[Node, int],
              updates: Container[Node]) -> list[Step]:  # fmt: skip
    """Return the launches, each followed by those that free more than they take from now on."""
    readers: dict[Node, set[int]] = {n: set() for step in steps for n in step.outputs}
    for i, step in enumerate(steps):
        for node in step.inputs:
            if node in readers:
                readers[node].add(i)
    waits = [sum([n in readers for n in {*step.inputs}]) for step in steps]
    done: dict[int, None] = {}

    def comes(i: int) -> bool:
        step = steps[i]
        if i in done or waits[i] or step.checks or any(n in updates for n in step.outputs):
            return False
        freed = sum([sizes.get(n, 0) for n in {*step.inputs} if readers.get(n) == {i}])
        return freed - sum([sizes.get(n, 0) for n in step.outputs]) >= _FREED

    for first in range(len(steps)):
        stack = [first]
        while stack:
            i = stack.pop()
            if i not in done:
                done[i] = None
                stack.extend(sorted(filter(comes, _run(i, steps[i], readers, waits)), reverse=True))
    return [steps[i] for i in done]


def _run(i: int, step: Step, readers: Mapping[Node, set[int]],
         waits: list[int]) -> Iterable[int]:  # fmt: skip
    """Note that a launch has run; return the launches for which that may matter."""
    near: set[int] = set()
    for node in step.outputs:
        for reader in readers[node]:
            waits[reader] -= 1
        near |= readers[node]
    for node in {*step.inputs} & readers.keys():
        readers[node].discard(i)
        near |= readers[node]
    return near
