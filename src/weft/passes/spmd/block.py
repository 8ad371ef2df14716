"""What all code of a block of threads shares: its axes, its names and its memories."""

from __future__ import annotations

from typing import Final

from weft.ir.expr import Expr
from weft.ir.stmt import SERIAL, Alloc, Body, For, Kernel, Location, Memory, Stmt
from weft.ir.traverse import walk
from weft.passes.spmd.thread_block_coarsening import CoarsenedBlocks

__all__ = ["WARP", "ThreadBlock"]

WARP: Final = 32  # threads whose collective operations are those of lanes


class ThreadBlock:
    """A block of threads that is written as loops.

    Parameters
    ----------
    kernel : Kernel
        The kernel with its loops over threads.
    lanes : int
        Threads side by side in a vector.
    warps : bool
        Whether threads tell their warp something, so that a warp is a vector.
    kind : str
        Of the loops over threads: serial, or ``thread.x`` for devices that have threads.
    short : bool
        Whether threads run loops of few iterations.
    """

    diverged: str  # the message where threads do not agree

    def __init__(self, kernel: Kernel, lanes: int, warps: bool, short: bool,
                 kind: str = SERIAL) -> None:  # fmt: skip
        self.hints = dict(kernel.meta.hints)
        self.warps, self.kind = warps, kind
        self.short_loops = not warps and lanes > 1 and short
        self.lanes = WARP if warps else lanes * 2 if self.short_loops else lanes
        self.locations: dict[Stmt, Location] = dict(kernel.locations)
        self.axes: list[For] = []
        self.count = 1
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}
        self.memory_names = {s.memory.name for s in walk(kernel.body) if isinstance(s, Alloc)}
        self.memory_names |= {m.name for m in kernel.params}
        self.counts: dict[str, int] = {}
        self.bound: set[Expr] = set()
        self.allocated: set[str] = set()
        self.shared: dict[Memory, Memory] = {}
        self.turns: set[Memory] = set()
        self.body: Body = ()  # of a thread
        self.rows: set[Stmt] = set()  # loops over rows of threads
        self.exits_early = False  # whether threads leave where others wait for each other later on
        self.blocks = 0  # axes of blocks that are run as one, before those of threads
        self.neighbours: CoarsenedBlocks | None = None  # such ones, if they are not the whole grid

    def fresh(self, base: str, used: set[str]) -> str:
        """Return a name that nothing has."""
        while base in used:
            self.counts[base] = self.counts.get(base, 0) + 1
            candidate = f"{base}.{self.counts[base]}"
            if candidate not in used:
                base = candidate
        used.add(base)
        return base
