"""Blocks whose number of threads is known at the launch alone: each thread as a block of its own.

Code of a block keeps values of all its threads over a barrier, so that their number has to be known
when it is compiled. Threads that never meet can do without: their axes become axes of the grid.
"""

from __future__ import annotations

from weft.errors import VerifyError
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Barrier, Body, Collective, For, Kernel, Stmt
from weft.ir.tile import MatrixAccess, MatrixMultiply
from weft.ir.traverse import Rewriter, walk

__all__ = ["threads_to_blocks"]


def threads_to_blocks(kernel: Kernel) -> Kernel:
    """Return a kernel in which threads are blocks where their number is not a constant.

    for b in blocks: for t in n threads: s  ->  for b in blocks: for t in n blocks: s

    Raises
    ------
    VerifyError
        If such threads wait for each other, or share memory.
    """
    if not any(_is_symbolic(s) for s in walk(kernel.body)):
        return kernel
    return _Threads(kernel).run()


def _is_symbolic(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind.startswith("thread.") and s.extent.op is not Op.CONST


class _Threads(Rewriter):
    """Renames the axes of threads of each nest that has a symbolic one."""

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, For) or not stmt.kind.startswith("block."):
            return stmt
        inner = stmt.body
        while len(inner) == 1 and isinstance(inner[0], For) and inner[0].kind.startswith("block."):
            inner = inner[0].body
        threads = [s for s in walk(inner) if isinstance(s, For) and s.kind.startswith("thread.")]
        if not any(map(_is_symbolic, threads)):
            return stmt
        wrong = _meeting(inner)
        if wrong:
            extent = next(s.extent for s in threads if _is_symbolic(s))
            raise VerifyError("block", found=f"{extent!r} threads and {wrong}",
                              expected="a number that is known when the kernel is compiled")
        return stmt.replace(body=self._renamed(stmt.body))

    def _renamed(self, body: Body) -> Body:
        """Return the body of a loop over blocks with its axes of threads as axes of blocks."""
        found: list[Stmt] = []
        for s in body:
            made = s
            if isinstance(s, For) and s.kind.startswith(("thread.", "block.")):
                made = s.replace(kind="block." + s.kind[-1], body=self._renamed(s.body))
                self.carry(s, made)
            found.append(made)
        return tuple(found)


def _meeting(body: Body) -> str:
    """Return by what threads of a block meet; empty where they do not."""
    for s in walk(body):
        if isinstance(s, Barrier | Collective):
            return "a barrier"
        if isinstance(s, MatrixAccess | MatrixMultiply):
            return "a fragment of a matrix"
        if isinstance(s, Alloc) and s.memory.scope == "shared":
            return "shared memory"
    if len(body) > 1:
        return "statements beside them"
    return ""
