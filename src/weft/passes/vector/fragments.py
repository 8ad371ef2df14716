"""Matrix fragments as vector code: the lanes of a vector are the threads of the warp that hold one.

The private memory of a fragment, as one element after the other with all lanes side by side, is the
matrix in row-major order. So a load is a copy of rows, and a product keeps the rows of the result
in vector registers while it adds one column of the left times one row of the right matrix after the
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Alloc, For, If, Load, Memory, Stmt, Store
from weft.ir.tile import LANES, MatrixAccess, MatrixLoad, MatrixMultiply, extent
from weft.passes.common.flat import flat_index
from weft.passes.common.lanes import Affine, Mapped, Scope

if TYPE_CHECKING:
    from weft.passes.vector.reduce import ReduceLowering

__all__ = ["access", "multiply"]

_LOW_BITS = 0x1FFF  # of a float32, which tf32 does not have


def access(low: ReduceLowering, s: MatrixAccess, scope: Scope, out: list[Stmt]) -> None:
    """Emit the copy of a matrix to or from a fragment."""
    body: list[Stmt] = []
    tile, start = _tile(low, s, s.fragment, s.at, scope)
    memory, _ = scope.memory(s.memory)
    base, row, column = (_uniform(low, flat_index(s.memory, part), scope)
                         for part in (s.index, s.row, s.column))
    rows, columns = s.size
    together = ex.is_const(column, 1)
    steps = ex.ramp(ex.index(0), columns)
    if not together:
        steps = low.name(body, "steps", ex.binary(Op.MUL, steps, ex.broadcast(column, columns)), s)
    for r in range(rows):
        place = base + row * r
        if not together:
            place = ex.binary(Op.ADD, ex.broadcast(place, columns), steps)
        inside = start + r * columns
        source, target = ((memory, place), (tile, inside))
        if not isinstance(s, MatrixLoad):
            source, target = target, source
        var = low.new_var("row", s.memory.dtype, columns)
        low.emit(body, Load(var, source[0], (source[1],)), s)
        low.emit(body, Store(target[0], (target[1],), var), s)
    _where_here(low, s, scope, body, out)


def multiply(low: ReduceLowering, s: MatrixMultiply, scope: Scope, out: list[Stmt]) -> None:
    """Emit ``result = left @ right + addend``."""
    body: list[Stmt] = []
    rows, columns, depth = s.shape
    sums = dt.float32 if s.result.dtype is dt.float16 else s.result.dtype
    left = _operand(low, s, "a", *_tile(low, s, s.left, s.left_at, scope), sums, body)
    right = _operand(low, s, "b", *_tile(low, s, s.right, s.right_at, scope), sums, body)
    addend, first = _tile(low, s, s.addend, s.addend_at, scope)
    zero = ex.index(0)
    totals = []
    for r in range(rows):
        total = Memory(low.fresh("total"), sums, (ex.index(columns),), "register")
        start = low.new_var("start", addend.dtype, columns)
        low.emit(body, Load(start, addend, (first + r * columns,)), s)
        low.emit(body, Alloc(total), s)
        low.emit(body, Store(total, (zero,), low.legal(ex.cast(start, sums))), s)
        totals.append(total)
    k = low.new_var("k", dt.int64)
    turn: list[Stmt] = []
    line = low.new_var("line", sums, columns)
    low.emit(turn, Load(line, right, (k * columns,)), s)
    for r, total in enumerate(totals):
        factor, before = low.new_var("factor", sums), low.new_var("before", sums, columns)
        low.emit(turn, Load(factor, left, (k + r * depth,)), s)
        low.emit(turn, Load(before, total, (zero,)), s)
        more = ex.broadcast(factor, columns)
        value = ex.mad(more, line, before) if sums.is_float else ex.binary(
            Op.ADD, ex.binary(Op.MUL, more, line), before)
        low.emit(turn, Store(total, (zero,), low.legal(value)), s)
    low.emit(body, For(k, ex.index(depth), SERIAL, tuple(turn)), s)
    result, first = _tile(low, s, s.result, s.result_at, scope)
    for r, total in enumerate(totals):
        value = low.new_var("sum", sums, columns)
        low.emit(body, Load(value, total, (zero,)), s)
        low.emit(body, Store(result, (first + r * columns,),
                             low.legal(ex.cast(value, result.dtype))), s)
    _where_here(low, s, scope, body, out)


def _operand(low: ReduceLowering, s: MatrixMultiply, use: str, tile: Memory, start: Expr, d: DType,
             out: list[Stmt]) -> Memory:  # fmt: skip
    """Return a memory with the elements of a fragment in the type of the sums."""
    rows, columns = extent(use, s.shape)
    wide = Memory(low.fresh(f"wide_{use}"), d, (ex.index(rows * columns),), "local")
    low.emit(out, Alloc(wide), s)
    for place in range(0, rows * columns, LANES):
        var = low.new_var("element", tile.dtype, LANES)
        low.emit(out, Load(var, tile, (start + place,)), s)
        value: Expr = var if s.precision != "tf32" else _rounded(var)
        low.emit(out, Store(wide, (ex.index(place),), low.legal(ex.cast(value, d))), s)
    return wide


def _rounded(x: Expr) -> Expr:
    """Round float32 to the 11 significant bits of tf32, ties away from zero; NaN stays."""
    bits = ex.bitcast(x, dt.uint32)
    near = ex.binary(Op.ADD, bits, ex.const((_LOW_BITS + 1) // 2, dt.uint32, x.lanes))
    near = ex.binary(Op.AND, near, ex.const(0xFFFFFFFF ^ _LOW_BITS, dt.uint32, x.lanes))
    return ex.where(ex.binary(Op.EQ, x, x), ex.bitcast(near, dt.float32), x)


def _tile(low: ReduceLowering, s: Stmt, fragment: Memory, at: tuple[Expr, ...],
          scope: Scope) -> tuple[Memory, Expr]:  # fmt: skip
    """Return the flat memory of a fragment and where its matrix begins."""
    tile, _ = scope.memory(fragment)
    start = ex.index(0)
    for place, extent_ in zip(at, fragment.shape, strict=False):
        start = start * extent_ + place
    inner = ex.index(1)
    for extent_ in fragment.shape[len(at):]:
        inner = inner * extent_
    return tile, _uniform(low, start * inner, scope)


def _uniform(low: ReduceLowering, e: Expr, scope: Scope) -> Expr:
    """Return a value that all lanes have alike, of the first lane if that is not proved."""
    found: Mapped = low.map(e, scope)
    if isinstance(found, Affine):
        return found.base
    return found if found.lanes == 1 else ex.extract(found, 0)


def _where_here(low: ReduceLowering, s: Stmt, scope: Scope, body: list[Stmt],
                out: list[Stmt]) -> None:  # fmt: skip
    """Emit what a warp does together, if any of its threads is here."""
    if scope.mask is None or low.proves(scope.mask.any):
        out.extend(body)
    else:
        low.emit(out, If(scope.mask.any, tuple(body)), s)

