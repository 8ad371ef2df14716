"""Matrix fragments, copies on the side and accesses of several elements: parts of `weft.gpu`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Address, Alloc, Memory, Store
from weft.ir.tile import (
    ALIGNED,
    ODD_MATRIX,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Tile,
    extent,
    shapes,
)
from weft.lang.core import scalars
from weft.lang.core.element_types import as_dtype
from weft.lang.core.intrinsics import WARP
from weft.lang.core.values import Fragment, Known, Value, View, describe, whole
from weft.lang.values.addresses import as_stored, place_of

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["LOWERED"]

_BOUNDS: Final = "index out of bounds"
_USES: Final = {"matrix_a": "a", "matrix_b": "b", "accumulator": "accumulator"}
_LAYOUTS: Final = ("row_major", "col_major")


def _word(c: Context, value: Value, node: ast.AST, what: str, words: tuple[str, ...]) -> str:
    found = value.value if isinstance(value, Known) else None
    if not isinstance(found, str) or found not in words:
        raise c.wrong(node, f"{describe(value)} as {what}",
                      "one of " + ", ".join(f"gpu.wmma.{w}" for w in words))
    return found


def _fragment(c: Context, node: ast.Call, _: str, use: Value, m: Value, n: Value, k: Value,
              dtype: Value, layout: Value) -> Value:  # fmt: skip
    """Declare a fragment: a private array of the elements that each thread holds."""
    threads = 1
    for axis in "xyz":
        threads *= c.known_int(c.index_of(f"blockDim.{axis}", node), node, "a block")
    if threads % WARP:
        raise c.wrong(node, f"matrix fragments in a block of {threads} threads",
                      f"whole warps: a multiple of {WARP} threads")
    kind = _USES[_word(c, use, node, "the use of a fragment", tuple(_USES))]
    shape = (c.known_int(m, node, "m"), c.known_int(n, node, "n"), c.known_int(k, node, "k"))
    precision = "tf32" if isinstance(dtype, Known) and dtype.value == "tf32" else ""
    d = dt.float32 if precision else (as_dtype(dtype.value) if isinstance(dtype, Known) else None)
    if d is None:
        raise c.wrong(node, f"{describe(dtype)} is not a dtype")
    _must_exist(c, node, kind, shape, d, precision)
    order = ""
    if not (isinstance(layout, Known) and layout.value is None):
        order = _word(c, layout, node, "a layout", _LAYOUTS)
    if kind == "accumulator" and order:
        raise c.wrong(node, "an accumulator with a layout", "loads and stores give it one")
    if kind != "accumulator" and not order:
        raise c.wrong(node, f"a fragment {kind} without a layout",
                      "give gpu.wmma.row_major or gpu.wmma.col_major")
    rows, columns = extent(kind, shape)
    memory = Memory(c.name("fragment"), d, (ex.index(rows * columns // WARP),), "local")
    c.emit(Alloc(memory), node)
    view = whole(memory)
    return Fragment(view.memory, view.starts, view.axes,
                    tile=Tile(kind, shape, order, precision))


def _must_exist(c: Context, node: ast.Call, kind: str, shape: tuple[int, int, int], d: DType,
                precision: str) -> None:  # fmt: skip
    """Refuse a fragment that is part of no product."""
    if kind == "accumulator":
        known = {s for operand in _OPERANDS for s in shapes(operand)[0] if d in shapes(operand)[1]}
    else:
        known = set(shapes(d)[0] if d is not dt.float32 or precision else ())
    if shape in known:
        return
    hint = "as tf32: gpu.wmma.tf32" if d is dt.float32 and kind != "accumulator" else (
        "shapes m, n, k: " + ", ".join(map(str, sorted(known))) if known else
        "float16, bfloat16, tf32, float64, int8 and uint8 are")
    raise c.wrong(node, f"fragments {kind} of {d.name} with the shape {shape} do not exist", hint)


_OPERANDS: Final = (dt.float16, dt.bfloat16, dt.int8, dt.uint8, dt.float32, dt.float64)


def _as_fragment(c: Context, value: Value, node: ast.Call, use: str = "") -> Fragment:
    if not isinstance(value, Fragment) or (use and value.tile.use != use):
        wanted = next((k for k, v in _USES.items() if v == use), "any use")
        raise c.wrong(node, f"{describe(value)} in place of a fragment",
                      f"a gpu.wmma.fragment of {wanted}")
    return value


def _fill(c: Context, node: ast.Call, _: str, fragment: Value, value: Value) -> Value:
    found = _as_fragment(c, fragment, node)
    x = scalars.convert(c.scalar(value, node), found.memory.dtype)
    for k in range(int(found.shape[0].attr)):
        c.emit(Store(found.memory, (ex.index(k),), x), node)
    return Known(None)


def _move(kind: type[MatrixLoad | MatrixStore]) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str, *given: Value) -> Value:
        fragment, array, pitch, layout = given
        if kind is MatrixStore:
            array, fragment = fragment, array
        found = _as_fragment(c, fragment, node, "accumulator" if kind is MatrixStore else "")
        tile = found.tile
        if not isinstance(array, View) or isinstance(array, Fragment):
            raise c.wrong(node, f"a matrix in {describe(array)}", "an array, from its first element"
                          " on: a[i:, j:]")
        as_stored(c, array, node)
        if array.memory.dtype is not found.memory.dtype:
            raise c.wrong(node, f"{describe(found)} and {describe(array)}", "one type of elements")
        if kind is MatrixStore and array.readonly:
            raise c.wrong(node, f"{array.memory.name} is read-only")
        order = tile.layout
        if not (isinstance(layout, Known) and layout.value is None):
            order = _word(c, layout, node, "a layout", _LAYOUTS)
            if tile.layout and tile.layout != order:
                raise c.wrong(node, f"{order} for a fragment that is {tile.layout}")
        rows, columns = extent(tile.use, tile.shape)
        if order == "col_major":
            rows, columns = columns, rows
        if len(array.axes) == 2:
            array = c.window(c.window(array, 0, rows, node), 1, columns, node)
        row, column = _steps(c, node, array, pitch, rows, columns)
        _must_be_aligned(c, node, array, row, column)
        if order == "col_major":
            row, column = column, row
        c.emit(kind(found.memory, (), tile.use, tile.shape, array.memory, array.starts, row,
                    column), node)
        return Known(None)

    return lower


Steps = tuple[Expr, ...]


def _steps(c: Context, node: ast.Call, array: View, pitch: Value, rows: int,
           columns: int) -> tuple[Steps, Steps]:  # fmt: skip
    """Return how far it is to the next row and element of a matrix, after checking that it fits."""
    none = (ex.index(0),) * len(array.starts)

    def along(axis: int, step: Expr) -> Steps:
        return (*none[:axis], step, *none[axis + 1:])

    given = None
    if not (isinstance(pitch, Known) and pitch.value is None):
        given = scalars.convert(c.scalar(pitch, node, "an integer"), dt.int64)
    if len(array.axes) == 1:
        axis = array.axes[0]
        if given is None:
            raise c.wrong(node, "a matrix in an array of one axis without its pitch",
                          "give the elements from one row to the next")
        last = given * (rows - 1) + (columns - 1)
        # a pitch above the extent could make the last place wrap around
        near = ex.binary(Op.AND, ex.index(0).le(given), given.le(axis.extent))
        _fits(c, node, ex.binary(Op.AND, near, last.lt(axis.extent)), last, axis.extent)
        return along(axis.axis, given * axis.step), along(axis.axis, axis.step)
    if len(array.axes) != 2:
        raise c.wrong(node, f"a matrix in an array of {len(array.axes)} axes", "one or two axes")
    first, second = array.axes
    steps = along(first.axis, first.step), along(second.axis, second.step)
    if given is not None:
        own = ex.index(0)
        for step, size in zip(steps[0], array.memory.shape, strict=True):
            own = own * size + step
        c.require(given.eq(own), "a pitch that is not that of the array", node)
    return steps


def _must_be_aligned(c: Context, node: ast.Call, first: View, row: Steps, column: Steps) -> None:
    """Tell the sanitiser where a matrix, or the next row of it, begins as no GPU takes it.

    A CPU takes it, and so does compiled code.
    """
    if not (c.checked and c.sanitised):
        return
    memory = first.memory
    size = memory.dtype.itemsize
    place = place_of(first)
    start = place * size
    if memory.scope in ("global", "constant"):
        base = c.fresh("address", dt.int64)
        c.emit(Address(base, memory), node)
        start = base + start
    c.require((start % ALIGNED).eq(0), ODD_MATRIX, node, place)
    far = []  # from a row to the next, and from a column: what lies side by side is one of them
    for steps in (row, column):
        distance = ex.index(0)
        for step, n in zip(steps, memory.shape, strict=True):
            distance = distance * n + step
        far.append((distance * size % ALIGNED).eq(0))
    c.require(ex.binary(Op.OR, *far), ODD_MATRIX, node, place)


def _fits(c: Context, node: ast.Call, condition: Expr, last: Expr, bound: Expr) -> None:
    if c.checked:
        c.require(condition, _BOUNDS, node, last, bound)


def _multiply(c: Context, node: ast.Call, _: str, d: Value, a: Value, b: Value,
              addend: Value) -> Value:  # fmt: skip
    result, left = _as_fragment(c, d, node, "accumulator"), _as_fragment(c, a, node, "a")
    right, total = _as_fragment(c, b, node, "b"), _as_fragment(c, addend, node, "accumulator")
    kinds = {f.tile.shape for f in (result, left, right, total)}
    operands, sums = {(f.memory.dtype, f.tile.precision) for f in (left, right)}, {
        f.memory.dtype for f in (result, total)}
    if len(kinds) > 1 or len(operands) > 1 or not sums <= set(shapes(left.memory.dtype)[1]):
        raise c.wrong(node, f"a product of {describe(left)} and {describe(right)} in "
                      f"{describe(result)}", "one shape, one type of operands, and its sums")
    c.emit(MatrixMultiply(result.memory, (), left.memory, (), right.memory, (), total.memory, (),
                          left.tile.shape, left.tile.precision), node)
    return Known(None)


LOWERED: Final[dict[str, Callable[..., Value]]] = {
    "wmma.fragment": _fragment, "wmma.fill_fragment": _fill,
    "wmma.load_matrix_sync": _move(MatrixLoad), "wmma.store_matrix_sync": _move(MatrixStore),
    "wmma.mma_sync": _multiply,
}  # fmt: skip
