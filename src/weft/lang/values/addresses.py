"""Where the elements of arrays lie: ``array.ctypes.data`` of a kernel, and what is aligned."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Address
from weft.lang.core import scalars
from weft.lang.core.values import Fields, Group, View

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["as_ctypes", "as_stored", "place_of"]


def place_of(view: View) -> Expr:
    """Return how many elements of its memory lie before the first one of an array."""
    place = ex.index(0)
    for i, n in zip(view.starts, view.memory.shape, strict=True):
        place = place * n + i
    return place


def as_stored(c: Context, array: View, node: ast.AST) -> None:
    """Refuse an array whose elements are seen as another type than the memory has."""
    if array.seen is not None:
        raise c.wrong(node, f"a view of {array.memory.dtype.name} elements as {array.seen.name} "
                      "here", "read and write its elements by [], or use the array itself")


def as_ctypes(c: Context, array: View | Fields, node: ast.AST) -> Group:
    """Return what ``array.ctypes`` has: ``data``, where the first element lies, in bytes."""
    while isinstance(array, Fields):
        array = array.parts[0]
    base = c.fresh("address", dt.int64)
    c.emit(Address(base, array.memory), node)
    found = base + place_of(array) * array.memory.dtype.itemsize
    return Group((scalars.convert(found, dt.uint64),), ("data",))
