"""Statements about tiles: matrix fragments of a warp, and copies that take place on the side.

A fragment is a matrix that the threads of a warp hold together: each has some of its elements in a
private memory (scope ``local``) of its own. Element ``e`` of thread ``l`` of the warp is element
``e * 32 + l`` of the matrix in row-major order; programs see no more of that than that each thread
has ``rows * columns / 32`` elements.

A copy on the side is asked for by ``AsyncCopy``, belongs to the group of copies that the next
``CopyCommit`` of its thread closes, and has taken place once a ``CopyWait`` of the same thread has
left its group behind. A device may carry it out at any time from asking to waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Memory, Stmt

__all__ = ["ALIGNED", "CACHES", "COPY_BYTES", "LANES", "MISALIGNED", "ODD_MATRIX", "USES",
           "AsyncCopy", "CopyCommit", "CopyWait", "MatrixAccess", "MatrixLoad", "MatrixMultiply",
           "MatrixStore", "Place", "Tile", "extent", "shapes"]  # fmt: skip

LANES: Final = 32  # threads that hold a fragment
USES: Final = ("a", "b", "accumulator")
CACHES: Final = ("default", "L1", "L2", "streaming")
COPY_BYTES: Final = (4, 8, 16)  # of one copy on the side
ALIGNED: Final = 16  # bytes: what a matrix, and each of its rows, begins at a multiple of
ODD_MATRIX: Final = f"an access of a matrix whose rows do not begin at multiples of {ALIGNED} bytes"
MISALIGNED: Final = "an access of several elements that does not begin at a multiple of its bytes"

Shape = tuple[int, int, int]  # m, n, k of a product of an (m, k) and a (k, n) matrix

_LARGE: Final = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_SHAPES: Final[dict[DType, tuple[tuple[Shape, ...], tuple[DType, ...]]]] = {
    dt.float16: (_LARGE, (dt.float32, dt.float16)),
    dt.bfloat16: (_LARGE, (dt.float32,)),
    dt.int8: (_LARGE, (dt.int32,)),
    dt.uint8: (_LARGE, (dt.int32,)),
    dt.float32: (((16, 16, 8),), (dt.float32,)),  # its operands have the precision of tf32
    dt.float64: (((8, 8, 4),), (dt.float64,)),
}


def shapes(operand: DType) -> tuple[tuple[Shape, ...], tuple[DType, ...]]:
    """Return the shapes of products of operands of a type, and the types of their sums."""
    return _SHAPES.get(operand, ((), ()))


def extent(use: str, shape: Shape) -> tuple[int, int]:
    """Return rows and columns of a fragment."""
    m, n, k = shape
    return {"a": (m, k), "b": (k, n), "accumulator": (m, n)}[use]


Index = tuple[Expr, ...]
Place = tuple[Memory, Index]


def _mapped(fn: Callable[[Expr], Expr], *parts: Index) -> list[Index]:
    return [tuple(map(fn, part)) for part in parts]


class MatrixAccess(Stmt):
    """A fragment and a matrix in memory.

    ``fragment`` with the leading indices ``at`` holds the elements of each thread. Element (r, c)
    of the matrix is ``memory[index + r * row + c * column]``, axis by axis. All threads of a warp
    give the same index and steps.
    """

    fragment: Memory
    at: Index
    use: str
    shape: Shape
    memory: Memory
    index: Index
    row: Index
    column: Index

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.at, *self.index, *self.row, *self.column)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        at, index, row, column = _mapped(fn, self.at, self.index, self.row, self.column)
        return self.replace(at=at, index=index, row=row, column=column)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return extent(self.use, self.shape)


class MatrixLoad(MatrixAccess):
    """Fill a fragment with a matrix."""

    def reads(self) -> tuple[Memory, ...]:
        return (self.memory,)

    def writes(self) -> tuple[Memory, ...]:
        return (self.fragment,)


class MatrixStore(MatrixAccess):
    """Write the elements of a fragment to a matrix."""

    def reads(self) -> tuple[Memory, ...]:
        return (self.fragment,)

    def writes(self) -> tuple[Memory, ...]:
        return (self.memory,)


class MatrixMultiply(Stmt):
    """``result = left @ right + addend``, all of them fragments of one warp.

    Each element is the sum of `addend` and k products, fused, in the order of k, in the type of
    the sums; those of float16 are rounded once, at the end. With the precision ``tf32`` the
    operands are rounded to 11 significant bits first.
    """

    result: Memory
    result_at: Index
    left: Memory
    left_at: Index
    right: Memory
    right_at: Index
    addend: Memory
    addend_at: Index
    shape: Shape
    precision: str = ""

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.result_at, *self.left_at, *self.right_at, *self.addend_at)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        result, left, right, addend = _mapped(fn, self.result_at, self.left_at, self.right_at,
                                              self.addend_at)
        return self.replace(result_at=result, left_at=left, right_at=right, addend_at=addend)

    def moved(self, result: Place, left: Place, right: Place, addend: Place) -> MatrixMultiply:
        """Return the same product of fragments in other places."""
        return MatrixMultiply(*result, *left, *right, *addend, self.shape, self.precision)

    def reads(self) -> tuple[Memory, ...]:
        return (self.left, self.right, self.addend)

    def writes(self) -> tuple[Memory, ...]:
        return (self.result,)


class AsyncCopy(Stmt):
    """Copy `count` elements from `source` to `memory` on the side.

    Together they have one of `COPY_BYTES`, and both sides are aligned to as many. `cache` says
    where to keep what was read: it changes speed, never the result.
    """

    memory: Memory
    index: Index
    source: Memory
    source_index: Index
    count: int
    cache: str = "default"

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.index, *self.source_index)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        index, source_index = _mapped(fn, self.index, self.source_index)
        return self.replace(index=index, source_index=source_index)

    def reads(self) -> tuple[Memory, ...]:
        return (self.source,)

    def writes(self) -> tuple[Memory, ...]:
        return (self.memory,)


class CopyCommit(Stmt):
    """Close the group of copies that this thread has asked for."""


class CopyWait(Stmt):
    """Wait until at most `pending` of this thread's groups of copies have not taken place."""

    pending: int = 0


class Tile(Record):
    """What a front end knows of a fragment beside its memory."""

    use: str
    shape: Shape
    layout: str = ""
    precision: str = ""
