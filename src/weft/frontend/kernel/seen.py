"""Arrays whose bits are read as numbers of another type: ``array.view(dtype)``.

An element is one element of the memory, or several that lie side by side, the first of which has
the lowest bits. It is put together where it is read and taken apart where it is written, so that no
memory has two types.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from weft.frontend.kernel.values import View
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Load, Store

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["as_type", "read", "write"]


def as_type(c: Expressions, array: View, d: DType, node: ast.AST) -> View:
    """Return an array with its elements seen as others, of as many bytes or of more."""
    old, stored = array.dtype, array.memory.dtype
    if d is old:
        return array
    if d.is_bool or stored.is_bool or d.itemsize % stored.itemsize:
        raise c.wrong(node, f"a view of {old.name} elements as {d.name}",
                      "kernels view numbers as others of as many bytes, or of more")
    if d.itemsize == old.itemsize:
        return array.replace(seen=None if d is stored else d)
    last = array.axes[-1] if array.axes else None
    width = old.itemsize // stored.itemsize
    if last is None or last.axis != len(array.starts) - 1 or not ex.is_const(last.step, width):
        raise c.wrong(node, f"a view of {old.name} elements that do not lie side by side as "
                      f"{d.name}", "the last axis of the array must be contiguous")
    bytes_ = last.extent * old.itemsize
    if c.checked:
        c.require((bytes_ % d.itemsize).eq(0), "a view of elements that are not filled", node)
    axis = last.replace(extent=bytes_ // d.itemsize,
                        step=ex.index(d.itemsize // stored.itemsize), cut=None)
    return array.replace(axes=(*array.axes[:-1], axis), seen=None if d is stored else d)


def read(c: Expressions, array: View, node: ast.AST) -> Expr:
    """Return an element, which may be several of the memory."""
    stored, wanted = array.memory.dtype, array.dtype
    bits, whole = _unsigned(stored), _unsigned(wanted)
    found: Expr | None = None
    for k in range(_count(array)):
        var = c.fresh(array.memory.name, stored)
        c.emit(Load(var, array.memory, _place(array, k)), node)
        part = ex.cast(ex.bitcast(var, bits), whole)
        if k:
            part = ex.binary(Op.SHL, part, ex.const(8 * stored.itemsize * k, whole))
        found = part if found is None else ex.binary(Op.OR, found, part)
    assert found is not None
    return ex.bitcast(found, wanted)


def write(c: Expressions, array: View, value: Expr, node: ast.AST) -> None:
    """Store an element, whose type the value has."""
    stored = array.memory.dtype
    bits, whole = _unsigned(stored), _unsigned(array.dtype)
    held = c.bind(ex.bitcast(value, whole), "bits", node)
    for k in range(_count(array)):
        part = held
        if k:
            part = ex.binary(Op.SHR, held, ex.const(8 * stored.itemsize * k, whole))
        part = ex.bitcast(ex.cast(part, bits), stored)
        c.emit(Store(array.memory, _place(array, k), part), node)


def _count(array: View) -> int:
    return array.dtype.itemsize // array.memory.dtype.itemsize


def _place(array: View, k: int) -> tuple[Expr, ...]:
    if not k:
        return array.starts
    return (*array.starts[:-1], array.starts[-1] + k)


def _unsigned(d: DType) -> DType:
    return {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}[d.itemsize]
