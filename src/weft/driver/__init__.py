"""The driver: compile a graph through every stage, cache the plan, run it."""

from collections.abc import Callable, Mapping, Sequence

from weft.driver import kernels
from weft.driver.context import Context
from weft.driver.context import context as _context
from weft.driver.counters import compile_count, count
from weft.driver.graph_key import MOST_COMPUTED, count_computed
from weft.driver.host_memory import (
    allocate,
    dispatcher,
    first_bytes,
    from_host,
    memory_limit,
    to_host,
)
from weft.driver.plans.compiled_graph import Compiled, Panel
from weft.driver.plans.realize import compile, compute, realize
from weft.driver.plans.runtime_constants import scalar
from weft.imports import importing
from weft.ir.node import Node
from weft.ir.stmt import Kernel

__all__ = ["MOST_COMPUTED", "Compiled", "Panel", "allocate", "compile", "compile_count",
           "compute", "count", "count_computed", "default_device", "dispatcher", "first_bytes",
           "from_host", "gradients", "memory_limit", "realize", "scalar", "to_host"]  # fmt: skip


def default_device() -> str:
    """Return where values are computed that are bound to no device."""
    return _context().name


def _tune_first(kernel: Kernel, context: Context) -> None:
    with importing:
        from weft.driver.tuning.tune_kernels import tune_first

    tune_first(kernel, context)


kernels.tuners.append(_tune_first)


def gradients(outputs: Sequence[Node], seeds: Sequence[Node],
              wrt: Sequence[Node], hooks: Mapping[Node, Callable[[Node], Node]] | None = None,
              recorded: bool = False) -> list[Node | None]:  # fmt: skip
    """Return the gradient of ``sum(seed * output)`` for each node of `wrt`.

    See `weft.graph.autodiff.gradients`, which is loaded by the first call.
    """
    with importing:
        from weft.graph import autodiff

    return autodiff.gradients(outputs, seeds, wrt, hooks, recorded)
