"""The driver: takes a graph through every stage, caches the result, runs it."""

from collections.abc import Sequence

from weft.driver.device import allocate, dispatcher, from_host, memory_limit
from weft.driver.realize import Compiled, Panel, compile, compute, realize
from weft.imports import importing
from weft.ir.node import Node

__all__ = ["Compiled", "Panel", "allocate", "compile", "compute", "dispatcher", "from_host",
           "gradients", "memory_limit", "realize"]  # fmt: skip


def gradients(outputs: Sequence[Node], seeds: Sequence[Node],
              wrt: Sequence[Node]) -> list[Node | None]:  # fmt: skip
    """Return the gradient of ``sum(seed * output)`` for each node of `wrt`.

    See `weft.graph.autodiff.gradients`, which is loaded by the first call.
    """
    with importing:
        from weft.graph import autodiff

    return autodiff.gradients(outputs, seeds, wrt)
