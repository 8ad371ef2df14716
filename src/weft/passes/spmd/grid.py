"""Kernels whose blocks wait for each other, as kernels of one block.

A barrier of the grid splits a kernel as a barrier of the block does, and what blocks keep over it
must be kept for all of them at once. So the axes of blocks become axes of threads: one block that
has the threads of the whole grid, whose shared arrays have a copy for each of the blocks there
were. Its barriers wait for all threads. That is more than the barriers of the block ask for, so
those must be reached by all blocks alike. What stands between two barriers becomes a parallel loop
over the blocks there were (`weft.passes.spmd.threads`).
"""

from __future__ import annotations

from typing import Final

from weft.errors import UnsupportedError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    MOST_WAITING,
    Address,
    Alloc,
    Atomic,
    Barrier,
    Body,
    Collective,
    For,
    Kernel,
    Load,
    Memory,
    Stmt,
    Store,
)
from weft.ir.tile import AsyncCopy, MatrixAccess
from weft.ir.traverse import Rewriter, walk

__all__ = ["blocks_of_grid", "grid_to_block", "waits_for_grid"]

_WARP: Final = 32


def waits_for_grid(body: Body) -> bool:
    """Whether a body has a barrier of the whole grid."""
    return any(isinstance(s, Barrier) and s.scope == "grid" for s in walk(body))


def blocks_of_grid(kernel: Kernel) -> int:
    """Return how many axes of blocks a kernel has."""
    count, body = 0, kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("block."):
        count, body = count + 1, body[0].body
    return count


def grid_to_block(kernel: Kernel) -> Kernel:
    """Return a kernel of one block with the threads of all blocks; others as they are.

    Raises
    ------
    UnsupportedError
        If the number of blocks is not known, there are too many threads, or threads of one block
        work together in ways that hold for a block only.
    """
    if not waits_for_grid(kernel.body):
        return kernel
    axes: list[For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind.startswith("block."):
        axes.append(body[0])
        body = body[0].body
    shared = [s for s in body if isinstance(s, Alloc) and s.memory.scope == "shared"]
    inner = tuple(s for s in body if s not in shared)  # local arrays too, of blocks of one thread
    threads = blocks = 1
    for axis in axes:
        if axis.extent.op is not Op.CONST:
            raise _unsupported("a grid whose size is not known", "one that is compiled in")
        blocks *= int(axis.extent.attr)
    nest: Body = inner
    while len(nest) == 1 and isinstance(nest[0], For) and nest[0].kind.startswith("thread."):
        threads *= int(nest[0].extent.attr)
        nest = nest[0].body
    _check(nest, blocks, threads)
    number = ex.index(0)
    for axis in axes:
        number = number * axis.extent + axis.var
    rewriter = _Shared(kernel, shared, number, blocks)
    inner = rewriter.body(inner)
    for axis in reversed(axes):
        made = For(axis.var, axis.extent, "thread.z", inner)
        rewriter.carry(axis, made)
        inner = (made,)
    return kernel.replace(body=(*rewriter.allocs(), *inner), locations=rewriter.locations)


def _check(body: Body, blocks: int, threads: int) -> None:
    if blocks * threads > MOST_WAITING:
        raise _unsupported(f"{blocks} blocks of {threads} threads that wait for each other",
                           f"at most {MOST_WAITING} threads in all")
    together = [s for s in walk(body) if isinstance(s, Collective)]
    if any(s.scope == "block" for s in together):
        raise _unsupported("a barrier that counts the threads of a block beside a barrier of the "
                           "grid", "one of the two")
    in_warps = together or any(
        isinstance(s, MatrixAccess) or (isinstance(s, Barrier) and s.scope == "warp")
        for s in walk(body))
    if blocks > 1 and in_warps and threads % _WARP:
        raise _unsupported(f"warps of blocks of {threads} threads beside a barrier of the grid",
                           f"a multiple of {_WARP} threads")


def _unsupported(found: str, expected: str) -> UnsupportedError:
    return UnsupportedError("grid barrier", found=found, expected=expected)


class _Shared(Rewriter):
    """Gives each block its copy of the shared arrays."""

    def __init__(self, kernel: Kernel, shared: list[Alloc], number: Expr, blocks: int) -> None:
        super().__init__(kernel)
        self._shared, self._number = shared, number
        self._homes: dict[Memory, Memory] = {}
        for s in shared:
            shape = (ex.index(blocks), *s.memory.shape)
            size = 0 if s.base is None else int(s.base.size.attr)
            if size % s.memory.dtype.itemsize:
                raise _unsupported(f"{size} bytes of shared memory of several types "
                                   "beside a barrier of the grid", "a multiple of 8 bytes")
            self._homes[s.memory] = s.memory.replace(shape=shape)

    def allocs(self) -> Body:
        """Return the declarations of the copies."""
        made = []
        for s in self._shared:
            base = None if s.base is None else self._homes[s.base]
            made.append(Alloc(self._homes[s.memory], s.align, base))
            self.carry(s, made[-1])
        return tuple(made)

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if isinstance(stmt, Barrier) and stmt.scope == "grid":
            return Barrier("block")
        if isinstance(stmt, Load | Store | Atomic) and stmt.memory in self._homes:
            return stmt.replace(memory=self._homes[stmt.memory],
                                index=(self._number, *stmt.index))
        if isinstance(stmt, Address) and stmt.memory in self._homes:
            return stmt.replace(memory=self._homes[stmt.memory])
        if isinstance(stmt, AsyncCopy):
            return stmt.replace(memory=self._homes[stmt.memory],
                                index=(self._number, *stmt.index))
        if isinstance(stmt, MatrixAccess) and stmt.memory in self._homes:
            zero = ex.index(0)
            return stmt.replace(memory=self._homes[stmt.memory], row=(zero, *stmt.row),
                                index=(self._number, *stmt.index), column=(zero, *stmt.column))
        return stmt
