"""Arrays of blocks and threads, and atomic operations on arrays: intrinsics of `weft.gpu`."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import ORDERS, SERIAL, THREAD_SCOPES, Alloc, Atomic, For, Memory, Stmt, Store
from weft.lang.core import array_union, scalars
from weft.lang.core.element_types import (
    array_of,
    made,
    records_over,
)
from weft.lang.core.intrinsics import MOST_SHARED
from weft.lang.core.values import Fields, Group, Known, Value, View, axes_of, describe

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import bitcast_view
else:
    bitcast_view = Late("weft.lang.values.bitcast_view")

__all__ = ["LOWERED", "array_in"]

_MOST_LOCAL: Final = 512 << 10  # bytes, as much as a thread of CUDA may have
_MOST_ALIGNED: Final = 1024  # bytes


def array_in(scope: str, c: Context, node: ast.Call, shape: Value, dtype: Value,
             alignment: Value | None = None) -> Value:  # fmt: skip
    """Return an array of the block or of the thread."""
    align = 16
    if alignment is not None and alignment != Known(None):
        align = c.known_int(alignment, node, "the alignment")
        if not 1 <= align <= _MOST_ALIGNED or align & (align - 1):
            raise c.wrong(node, f"an alignment of {align} bytes",
                             f"a power of two up to {_MOST_ALIGNED}")
    sizes = shape.items if isinstance(shape, Group) else (shape,)
    extents = tuple(c.known_int(s, node, "a size") for s in sizes)
    if scope == "shared" and extents == (0,):
        return _dynamic(c, node, dtype)
    if any(n < 1 for n in extents):
        raise c.wrong(node, f"an array of shape {extents}", "each size must be at least 1")
    element = c.element_of(dtype, node)
    _fits(c, scope, math.prod(extents) * element.itemsize, node)

    def array(name: str, d: DType, shape: tuple[Expr, ...]) -> View:
        title = c.titles.get(node)
        stays = scope == "local" and title is not None and (
            c.is_read_later(title))
        key = (node, tuple(c.calls), name, d, shape)
        if stays and key in c.private:
            view = c.private[key][0]
        else:
            view = array_of(c.name(name), d, shape, scope, c.flat)
            alloc = Alloc(view.memory, max(align, 16))
            c.locate(alloc, node)
            if stays:
                c.private[key] = view, alloc
            elif scope == "shared":
                c.shared.append(alloc)
            else:
                c.out.append(alloc)
        if scope == "local" and c.wraps and not c.sanitised and _is_summed_in(c, title):
            _fill(c, view.memory, node)
        return view

    return made(c.titles.get(node, scope), element, tuple(map(ex.index, extents)), array)


def _is_summed_in(c: Context, name: str | None) -> bool:
    """Whether a function adds to elements of an array of the thread of that name.

    By ``name[i] += x`` or ``name[i] = name[i] + x``; parts of elements count, too, as in
    ``name[i].x += y`` and ``name[i][j] += y``.
    """
    return any(_adds(n, name) for n in ast.walk(c.source.tree))


def _adds(n: ast.AST, name: str | None) -> bool:
    """Whether a statement sets an element of an array of that name from what it reads there."""
    if isinstance(n, ast.AugAssign):
        return _element(n.target, name) is not None
    if not isinstance(n, ast.Assign):
        return False
    read = {_element(v, name) for v in ast.walk(n.value)} - {None}
    return any(_element(target, name) in read for target in n.targets)


def _element(n: ast.AST, name: str | None) -> str | None:
    """Give an element of an array of that name, or a part of one, as text; None for others."""
    base = n
    while isinstance(base, ast.Subscript | ast.Attribute):
        base = base.value
    of = base is not n and isinstance(base, ast.Name) and base.id == name
    return ast.unparse(n) if of else None


def _fill(c: Context, memory: Memory, node: ast.AST) -> None:
    """Set all elements to 0, as numba's kernels find their sums: they may not set them first."""
    index = tuple(ex.var(c.name("k"), dt.int64) for _ in memory.shape)
    stmt: Stmt = Store(memory, index, ex.const(0, memory.dtype))
    for var, extent in zip(reversed(index), reversed(memory.shape), strict=True):
        c.locations[stmt] = c.source.place(node)
        stmt = For(var, extent, SERIAL, (stmt,))
    c.emit(stmt, node)


def _fits(c: Context, scope: str, size: int, node: ast.AST) -> None:
    """Refuse an array that no device has room for."""
    if scope != "shared":
        if size > _MOST_LOCAL:
            raise c.wrong(node, f"{size} bytes of local memory for each thread",
                             f"at most {_MOST_LOCAL}; an argument can be of any size")
        return
    for alloc in c.shared:
        if all(alloc.memory is not m for m, _ in c.dynamic.values()):
            count = math.prod(int(n.attr) for n in alloc.memory.shape)
            size += count * alloc.memory.dtype.itemsize
    size += c.dynamic_bytes
    if size > MOST_SHARED:
        raise c.wrong(node, f"{size} bytes of shared memory in all",
                         f"a block has at most {MOST_SHARED}")


def _dynamic(c: Context, node: ast.Call, dtype: Value) -> Value:
    """Return the shared memory whose size the launch gives; all such arrays share it."""
    element = c.element_of(dtype, node)
    if c.dynamic_bytes < element.itemsize:
        raise c.wrong(node, f"{c.dynamic_bytes} bytes of shared memory in this launch",
                         "give them: kernel[grid, block, stream, bytes]")

    def memory(d: DType) -> Memory:
        if d not in c.dynamic:
            count = ex.index(c.dynamic_bytes // d.itemsize)
            c.dynamic[d] = (Memory(c.name("dynamic"), d, (count,), "shared"),
                            c.source.place(node))
        return c.dynamic[d][0]

    return records_over(element, c.dynamic_bytes // element.itemsize, memory)


def _constant_like(c: Context, node: ast.Call, kind: str, array: Value) -> Value:
    known = any(c.view is array for c in c.constants.values())
    if not isinstance(array, View | Fields) or not (known or c.wraps):
        raise c.wrong(node, f"gpu.const.array_like of {describe(array)}",
                         "give it a NumPy array from outside of the kernel")
    return array


def _shared(c: Context, node: ast.Call, kind: str, *given: Value) -> Value:
    return array_in("shared", c, node, *given)


def _local(c: Context, node: ast.Call, kind: str, *given: Value) -> Value:
    return array_in("local", c, node, *given)


def _is_real(c: Context, value: Value) -> bool:
    """Whether a value is a float."""
    number = c.known_scalar(value.value) if isinstance(value, Known) else value
    return isinstance(number, Expr) and number.dtype.is_float


def _atomic(c: Context, node: ast.Call, kind: str, array: Value, index: Value,
            *values: Value) -> Value:  # fmt: skip
    if array_union.is_array_union(array) and isinstance(array, Group):
        return array_union.apply(c, array, lambda option: _atomic(
            c, node, kind, option, index, *values), node)
    scope, order = (one_of(c, v, words, node, what) for v, words, what in (
        (values[-2], THREAD_SCOPES, "the scope"), (values[-1], ORDERS, "the order")))
    values = values[:-2]
    if not isinstance(array, View):
        raise c.wrong(node, f"gpu.atomic.{kind} of {describe(array)}", "give it an array")
    kind = kind.strip("_")
    if kind == "compare_and_swap":
        kind, index, values = "cas", Group((Known(0),) * len(array.axes)), (index, *values)
    if kind in ("nanmin", "nanmax") and not array.dtype.is_float:
        kind = kind[3:]
    d = array.dtype
    if kind in (("and", "or", "xor", "inc", "dec") if d.is_float else
                ("add", "sub", "min", "max", "inc", "dec") if d.is_bool else ()):
        raise c.wrong(node, f"gpu.atomic.{kind} of {d.name} elements",
                         "floats have add, sub, min, max, exch and cas; bools and_, or_, xor, "
                         "exch and cas; integers all")
    if array.readonly:
        raise c.wrong(node, f"{array.memory.name} is read-only")
    keys = index.items if isinstance(index, Group) else (index,)
    if c.wraps and len(keys) == len(array.axes) == 1 and _is_real(c, keys[0]):
        keys = (scalars.convert(c.scalar(keys[0], node), dt.int64),)  # as numba's atomics do
    element = c.part(array, [(node.args[1] if len(node.args) > 1 else node, k)
                                for k in keys], node)
    if element.axes:
        raise c.wrong(node, f"{len(keys)} indices into an array of "
                         f"{axes_of(len(array.axes))}")
    given = [scalars.convert(c.scalar(v, node), d) for v in values]
    compare = given[0] if kind == "cas" else None
    if element.seen is not None:
        return bitcast_view.atomic(c, element, kind, given[-1], compare, node, scope, order)
    var = c.fresh("old", d)
    c.emit(Atomic(var, kind, element.memory, element.starts, given[-1], compare, scope,
                     order), node)
    return var


def one_of(c: Context, value: Value, words: tuple[str, ...], node: ast.AST, what: str) -> str:
    """Return a word that must be known when the kernel is compiled."""
    found = value.value if isinstance(value, Known) else None
    if not isinstance(found, str) or found not in words:
        raise c.wrong(node, f"{describe(value)} as {what}", "one of " + ", ".join(words))
    return found


LOWERED: Final[dict[str, Callable[..., Value]]] = {
    "const": _constant_like, "shared": _shared, "local": _local, "atomic": _atomic,
}
