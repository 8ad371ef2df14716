"""Check every result of a compiled graph against the unoptimised interpretation.

With ``WEFT_CHECK=1`` each call of a plan is followed by the same graph in NumPy, operation by
operation (`weft.driver.check.graph`), and each element may be off by no more than its error bound
(`weft.driver.check.errors`). At its first call the loop nest of each kernel is interpreted before
its schedule, too. Where something differs, `weft.driver.check.blame` finds the first kernel and the
stage that went wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.driver.check import blame
from weft.driver.check.compare import differing
from weft.driver.check.errors import Reference
from weft.driver.check.graph import Environment, array_of
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.size import evaluate as evaluate_size

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.runtimes.memory.buffer import Buffer

__all__ = ["Checker"]

_MOST_ELEMENTS: Final = 1 << 24  # of one array on the way: NumPy keeps all of them in memory


class Checker:
    """Compares the results of one compiled graph with its meaning.

    Parameters
    ----------
    outputs, inputs
        The graph, and the placeholders among its leaves.
    context
        The device that it is computed on.
    """

    __slots__ = ("_context", "_inputs", "_outputs", "_seen")

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage],
                 context: Context) -> None:  # fmt: skip
        self._context = context
        self._outputs, self._inputs = tuple(outputs), tuple(inputs)
        self._seen: set[tuple[int, ...]] = set()  # values of variables whose nests have been run

    def before(self, captured: Sequence[Storage], buffers: Sequence[Buffer],
               variables: Mapping[str, int]) -> Environment | None:  # fmt: skip
        """Return copies of what a call reads, made before it may write over them.

        None, and a line on the standard error, if the graph is too large to be interpreted.
        """
        largest = max((math.prod(evaluate_size(d, variables) for d in n.shape)
                       for n in nd.toposort(self._outputs)), default=0)
        if largest > _MOST_ELEMENTS:
            print(f"weft: not checked: an array of {largest} elements stands in the graph, "
                  f"{_MOST_ELEMENTS} at most are interpreted", file=sys.stderr)
            return None
        storages = [*self._inputs, *captured]
        return Environment(
            {s: array_of(b, s.dtype, (evaluate_size(s.size, variables),)).copy()
             for s, b in zip(storages, buffers, strict=True)}, variables)

    def compare(self, buffers: Sequence[Buffer], env: Environment) -> None:
        """Compare the results of a call with those of the interpretation.

        Raises
        ------
        CheckError
            If they differ.
        """
        known = Reference(env)
        known.add(self._outputs)
        wrong = None
        for node, buffer in zip(self._outputs, buffers, strict=True):
            got = array_of(buffer, node.dtype, env.shape(node))
            wanted = np.ascontiguousarray(known.values[node]).reshape(got.shape)
            off = differing(got, wanted, np.broadcast_to(known.errors[node], got.shape))
            if off.any():
                wrong = blame.Difference.first(node, got, wanted, known.errors[node], off)
                break
        sizes = tuple(env.variables.values())
        if wrong is not None or sizes not in self._seen:
            blame.examine(self._outputs, env, wrong, self._context)
        self._seen.add(sizes)
