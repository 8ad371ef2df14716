"""Export kernels as C functions that run on the calling thread."""

from __future__ import annotations

from collections.abc import Mapping

from weft.driver import critical
from weft.driver.context import host_context
from weft.ir import dtype as dt
from weft.ir.op import MATRICES
from weft.ir.stmt import PARALLEL, SERIAL, Body, For, Kernel, Stmt, While
from weft.ir.traverse import Rewriter
from weft.passes.spmd.loop_fission import blocks_to_loops, has_threads
from weft.runtimes.native.calls import critical_ir as ir
from weft.strategies import choose

__all__ = ["TARGETS", "c_function"]

TARGETS = ("cpu",)  # what files can be written for


class _OneThread(Rewriter):
    def visit(self, stmt: Stmt) -> Stmt | Body:
        if isinstance(stmt, For) and stmt.kind == PARALLEL:
            return For(stmt.var, stmt.extent, SERIAL, stmt.body)
        if isinstance(stmt, While):  # who calls it from C has no Python to tell of an interrupt
            return stmt.replace(endless=False)
        return stmt


def c_function(kernel: Kernel, name: str, params: Mapping[str, ir.Param]) -> critical.Code:
    """Return a kernel as a C function for the host, scheduled for one thread.

    Parameters
    ----------
    kernel
        Any kernel of loop level; a grid of threads becomes loops.
    name
        The symbol.
    params
        Parameters of the C function; every variable of the kernel is the name of one.
    """
    target = host_context().target.without(MATRICES, dt.uint32)  # no caller in C asked for tiles
    if has_threads(kernel):
        kernel = blocks_to_loops(kernel, target.vector_bytes // 4)
    kernel = _OneThread(choose(kernel, target, 1)).run()
    contract = critical.Contract(False, False, False, True, "O3")
    return critical.build(kernel, name, params, None, contract)
