"""The verifier's part for fragments of matrices and copies on the side (`weft.ir.tile`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from weft.ir import dtype as dt
from weft.ir import tile as ti
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Memory, Stmt

__all__ = ["CHECKS"]


class Verifier(Protocol):
    """What the verifier of kernels gives to its parts: see `weft.ir.verify.verify`."""

    def fail(self, found: str, expected: str) -> NoReturn:
        """Raise what was found and what was expected."""

    def visible_memory(self, memory: Memory) -> None:
        """Check that a memory is known here."""

    def access(self, memory: Memory, index: tuple[Expr, ...], lanes: int) -> None:
        """Check the subscripts of an access."""

    def expr(self, e: Expr, role: str, dtype: DType, lanes: int) -> None:
        """Check an expression and its type."""


def _fragment(v: Verifier, memory: Memory, at: tuple[Expr, ...], use: str, s: Any) -> None:
    """Check one fragment: a private memory that holds as many elements as it must."""
    v.visible_memory(memory)
    if memory.scope != "local":
        v.fail(f"a fragment in {memory.scope} memory", "local memory")
    rows, columns = ti.extent(use, s.shape)
    inner = [int(e.attr) for e in memory.shape[len(at):] if e.op is Op.CONST]
    if inner not in ([rows * columns // ti.LANES], [rows * columns // ti.LANES, ti.LANES]):
        v.fail(f"a fragment of {inner} elements", f"{rows * columns // ti.LANES} a thread")
    for e in at:
        v.expr(e, f"an index into {memory.name}", dt.int64, 1)


def _matrix(v: Verifier, s: ti.MatrixAccess) -> None:
    if s.use not in ti.USES:
        v.fail(f"the use {s.use!r}", "one of " + ", ".join(ti.USES))
    _fragment(v, s.fragment, s.at, s.use, s)
    if s.fragment.dtype is not s.memory.dtype:
        v.fail(f"a fragment of {s.fragment.dtype.text} and {s.memory.dtype.text} in memory",
               "one type")
    for index in (s.index, s.row, s.column):
        v.access(s.memory, index, 1)


def _matrix_multiply(v: Verifier, s: ti.MatrixMultiply) -> None:
    for memory, at, use in ((s.result, s.result_at, "accumulator"), (s.left, s.left_at, "a"),
                            (s.right, s.right_at, "b"),
                            (s.addend, s.addend_at, "accumulator")):
        _fragment(v, memory, at, use, s)
    known, sums = ti.shapes(s.left.dtype)
    if s.shape not in known or s.right.dtype is not s.left.dtype:
        v.fail(f"a product of {s.left.dtype.text} and {s.right.dtype.text} of shape "
               f"{s.shape}", "one type, in a shape that it has")
    if s.result.dtype not in sums or s.addend.dtype not in sums:
        v.fail(f"sums of {s.result.dtype.text}", "one of " + ", ".join(d.text for d in sums))


def _async_copy(v: Verifier, s: ti.AsyncCopy) -> None:
    v.access(s.memory, s.index, 1)
    v.access(s.source, s.source_index, 1)
    if s.memory.dtype is not s.source.dtype or s.memory.scope != "shared":
        v.fail(f"a copy of {s.source.dtype.text} to {s.memory.scope} memory of "
               f"{s.memory.dtype.text}", "one type, to shared memory")
    if s.count * s.memory.dtype.itemsize not in ti.COPY_BYTES or s.cache not in ti.CACHES:
        v.fail(f"a copy of {s.count} elements, {s.cache}", "4, 8 or 16 bytes")


CHECKS: Final[dict[type[Stmt], Callable[[Verifier, Any], None]]] = {
    ti.MatrixLoad: _matrix, ti.MatrixStore: _matrix, ti.MatrixMultiply: _matrix_multiply,
    ti.AsyncCopy: _async_copy, ti.CopyCommit: lambda v, s: None, ti.CopyWait: lambda v, s: None,
}  # fmt: skip
