"""Copies on the side as plain loads and stores: for devices that have no such copies.

A copy may take place when it is asked for, so commits and waits have nothing left to do.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.stmt import Body, Kernel, Load, Stmt, Store
from weft.ir.tile import AsyncCopy, CopyCommit, CopyWait
from weft.ir.traverse import Rewriter, walk

__all__ = ["copy_at_once"]


def copy_at_once(kernel: Kernel) -> Kernel:
    """Return the kernel with a load and a store for each element of a copy."""
    if not any(isinstance(s, AsyncCopy | CopyCommit | CopyWait) for s in walk(kernel.body)):
        return kernel
    return _Copies(kernel).run()


class _Copies(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._names = {v.attr for s in walk(kernel.body) for v in s.binds()}
        self._count = 0

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if isinstance(stmt, CopyCommit | CopyWait):
            return ()
        if not isinstance(stmt, AsyncCopy):
            return stmt
        loads: list[Stmt] = []
        stores: list[Stmt] = []
        for k in range(stmt.count):
            var = ex.var(self._fresh(), stmt.source.dtype)
            loads.append(Load(var, stmt.source, (*stmt.source_index[:-1],
                                                 stmt.source_index[-1] + k)))
            stores.append(Store(stmt.memory, (*stmt.index[:-1], stmt.index[-1] + k), var))
        return (*loads, *stores)

    def _fresh(self) -> str:
        while True:
            self._count += 1
            name = f"copied.{self._count}"
            if name not in self._names:
                return name
