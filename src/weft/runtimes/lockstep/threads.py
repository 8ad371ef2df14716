"""The threads that run: which of them carry out the current statement, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Kernel, Memory, Stmt
from weft.runtimes.lockstep.memory import Pending, Storage
from weft.runtimes.lockstep.values import Array, Formula

__all__ = ["Grid", "Threads"]

Triple = tuple[int, int, int]


class Grid(Record):
    """The shape of a launch: blocks, and threads of a block, along x, y, z."""

    blocks: Triple
    threads: Triple


class Threads:
    """The threads of the blocks that run at once.

    Attributes
    ----------
    mask : array of bool
        The threads that run the current statement.
    names : dict of Expr to array
        Values that are bound.
    instructions : int
        Statements and operations that were carried out, counted by thread.
    """

    def __init__(self, kernel: Kernel, variables: Mapping[str, int], grid: Grid) -> None:
        self.kernel, self.variables, self.grid = kernel, variables, grid
        self.per_block = grid.threads[0] * grid.threads[1] * grid.threads[2]
        self.names: dict[Expr, Array] = {}
        self.storages: dict[Memory, Storage] = {}
        self._formulas: dict[object, Formula] = {}
        self.instructions = 0

    def begin(self, blocks: Array) -> None:
        """Go on with the threads of other blocks, by the numbers of these."""
        count, size = len(blocks) * self.per_block, self.per_block
        self.count = count
        self.nblocks = len(blocks)
        self.lanes = np.arange(count)
        self.block_of = self.lanes // size  # position among the blocks that run
        self.tids = np.repeat(blocks.astype(np.int64), size) * size + self.lanes % size
        self.gone = np.zeros(count, np.bool_)  # ended by a failure
        self.left = np.zeros(count, np.bool_)  # left the kernel
        self.losses = 0
        self.copies: list[Pending] = []
        self.groups = np.zeros(count, np.int64)  # of copies on the side that each thread has closed
        number, inside = np.repeat(blocks.astype(np.int64), size), self.lanes % size
        self.places: dict[str, Array] = {}
        for level, value, sizes in (("block", number, self.grid.blocks),
                                    ("thread", inside, self.grid.threads)):  # fmt: skip
            for axis, extent in zip("xyz", sizes, strict=True):
                self.places[f"{level}.{axis}"] = value % extent
                value = value // extent
        self.names.clear()

    # --- masks

    def enter(self, mask: Array) -> int:
        """Go on with some threads; return how many they are."""
        self.mask = mask
        self.active = int(np.count_nonzero(mask))
        self.full = self.active == len(mask)
        self._chosen: Array | None = None
        return self.active

    @property
    def chosen(self) -> Array:
        """The numbers of the threads that run."""
        if self._chosen is None:
            self._chosen = self.lanes if self.full else np.flatnonzero(self.mask)
        return self._chosen

    def back(self, mask: Array, losses: int) -> int:
        """Go on behind a nested body with the threads that were there before and are alive."""
        return self.enter(mask if losses == self.losses else mask & ~self.gone)

    def lose(self, threads: Array) -> None:
        """End some threads."""
        self.gone |= threads
        self.losses += 1
        self.enter(self.mask & ~threads)

    def spread(self, value: Array) -> Array:
        """Return a value with one element for each thread."""
        return value if len(value) == self.count else np.broadcast_to(value, self.count)

    def picked(self, value: Array) -> Array:
        """Return a value for each thread that runs."""
        if len(value) != self.count or self.full:
            return np.broadcast_to(value, self.active)
        return value[self.chosen]

    # --- values

    def formula(self, key: object, roots: Sequence[Expr]) -> Formula:
        """Return what computes expressions, made once for a statement."""
        found = self._formulas.get(key)
        if found is None:
            found = self._formulas[key] = Formula(roots, self.variables)
        return found

    def values(self, s: Stmt) -> list[Array]:
        """Return the values of a statement's expressions."""
        formula = self.formula(s, s.exprs())
        self.instructions += (formula.count + 1) * self.active
        return formula(self.names)
