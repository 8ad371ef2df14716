"""Arrays whose bits are read as numbers of another type: ``array.view(dtype)``.

An element is one element of the memory, several that lie side by side, the first of which has the
lowest bits, or a part of one. It is put together where it is read and taken apart where it is
written, so that no memory has two types. Where elements are parts, places along the last axis of
the memory count parts.

Threads may write parts of one element at the same time, and change it atomically, whatever type it
is seen as: both are loops of compare-and-exchange on the element that is there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Atomic, Load, Store, While
from weft.lang.core.element_types import (
    ComplexOf,
    Element,
    RecordOf,
    TextOf,
    TimeOf,
    pair,
)
from weft.lang.core.values import Fields, View, ViewAxis, describe
from weft.lang.values.records import FlatNeeded
from weft.passes.vector import atomics

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["as_elements", "as_type", "atomic", "read", "write"]


def as_type(c: Context, array: View, d: DType, node: ast.AST) -> View:
    """Return an array with its elements seen as others."""
    old, stored = array.dtype, array.memory.dtype
    if d is old:
        return array
    if d.is_bool or stored.is_bool:
        raise c.wrong(node, f"a view of {old.name} elements as {d.name}",
                      "compare with 0, or store the bools in an array of their own")
    if d.itemsize == old.itemsize:
        return array.replace(seen=None if d is stored else d)
    array = _in_units(c, array, min(d.itemsize, stored.itemsize), node)
    unit = min(d.itemsize, stored.itemsize)
    last = array.axes[-1] if array.axes else None
    if last is None or last.axis != len(array.starts) - 1 or not ex.is_const(
        last.step, old.itemsize // unit
    ):
        raise c.wrong(node, f"a view of {old.name} elements that do not lie side by side as "
                      f"{d.name}", "the last axis of the array must be contiguous")
    bytes_ = last.extent * old.itemsize
    if c.checked and d.itemsize > old.itemsize:
        c.require((bytes_ % d.itemsize).eq(0), "a view of elements that are not filled", node)
    axis = last.replace(extent=bytes_ // d.itemsize, step=ex.index(d.itemsize // unit), cut=None)
    return array.replace(axes=(*array.axes[:-1], axis), seen=None if d is stored else d)


def as_elements(c: Context, array: View | Fields, element: Element,
                node: ast.AST) -> View | Fields:  # fmt: skip
    """Return an array with its elements seen as others, which may be complex numbers, too."""
    if isinstance(array, Fields) and array.kind is complex:
        if isinstance(element, ComplexOf) and element.dtype is array.parts[0].dtype:
            return array
        array = _floats(c, array, node)
    if isinstance(array, Fields) and isinstance(array.kind, TimeOf):
        array = array.parts[0]
    if isinstance(element, RecordOf | TextOf) or isinstance(array, Fields):
        raise c.wrong(node, f"a view of {describe(array)}", "views are of numbers, as numbers")
    if isinstance(element, DType):
        return as_type(c, array, element, node)
    if isinstance(element, TimeOf):
        return element.over(as_type(c, array, dt.int64, node))
    halves = as_type(c, array, element.dtype, node)
    last = _last(c, halves, ex.index(element.dtype.itemsize // _unit(halves)), node)
    c.require((last.extent % 2).eq(0), "a view of elements that are not filled", node)
    whole = last.replace(extent=last.extent // 2, step=last.step * 2, cut=None)
    two = ViewAxis(ex.index(2), last.axis, last.step)
    return pair(halves.replace(axes=(*halves.axes[:-1], whole, two)))


def _floats(c: Context, array: Fields, node: ast.AST) -> View:
    """Return an array of complex numbers as one of twice as many floats."""
    real, imag = array.parts
    if len(real.memory.shape) > 1:
        raise FlatNeeded
    apart = imag.starts[0] - real.starts[0]
    last = _last(c, real, apart * 2, node)
    axis = last.replace(extent=last.extent * 2, step=apart, cut=None)
    found: View = real.replace(axes=(*real.axes[:-1], axis))
    return found


def _last(c: Context, array: View, step: Expr, node: ast.AST) -> ViewAxis:
    """Return the last axis of an array, along which its elements must lie side by side."""
    if not array.axes:
        raise c.wrong(node, f"a view of {describe(array)}", "it is for arrays with an axis")
    last = array.axes[-1]
    same = ex.binary(Op.OR, last.step.eq(step), last.extent.le(1))
    c.require(same, "a view of elements that do not lie side by side", node)
    return last


def _unit(array: View) -> int:
    """Return the bytes of a step along the last axis of the memory."""
    return min(array.dtype.itemsize, array.memory.dtype.itemsize)


def _in_units(c: Context, array: View, unit: int, node: ast.AST) -> View:
    """Return an array whose places along the last axis of its memory count other units."""
    held, last = _unit(array), len(array.starts) - 1
    if unit == held or not array.starts:
        return array
    if unit > held:
        start = array.starts[last]
        parts = unit // held
        c.require((start % parts).eq(0), "a view that begins within an element", node)

    def moved(e: Expr) -> Expr:
        return e * (held // unit) if unit < held else e // (unit // held)

    starts = (*array.starts[:last], moved(array.starts[last]))
    # the axis that is seen anew gets its step afterwards
    axes = tuple(a.replace(step=moved(a.step), cut=None) if a.axis == last else a
                 for a in array.axes)
    return array.replace(starts=starts, axes=axes)


def read(c: Context, array: View, node: ast.AST) -> Expr:
    """Return an element, which may be several of the memory, or a part of one."""
    stored, wanted = array.memory.dtype, array.dtype
    bits, whole = _unsigned(stored), _unsigned(wanted)
    if not _count(array):
        var = c.fresh(array.memory.name, stored)
        c.emit(Load(var, array.memory, _around(array)), node)
        return _part(array, ex.bitcast(var, bits))
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


def write(c: Context, array: View, value: Expr, node: ast.AST) -> None:
    """Store an element, whose type the value has."""
    stored = array.memory.dtype
    bits, whole = _unsigned(stored), _unsigned(array.dtype)
    if not _count(array):
        held = c.bind(value, "part", node)
        _changed(c, array, lambda old: _with_part(array, old, held), node)
        return
    held = c.bind(ex.bitcast(value, whole), "bits", node)
    for k in range(_count(array)):
        part = held
        if k:
            part = ex.binary(Op.SHR, held, ex.const(8 * stored.itemsize * k, whole))
        part = ex.bitcast(ex.cast(part, bits), stored)
        c.emit(Store(array.memory, _place(array, k), part), node)


def atomic(c: Context, array: View, kind: str, value: Expr, compare: Expr | None, node: ast.AST,
           scope: str, order: str) -> Expr:  # fmt: skip
    """Change an element in one indivisible step; return what it was."""
    if _count(array) > 1:
        raise c.wrong(node, f"gpu.atomic.{kind} of {array.seen} elements that are several of "
                      f"{array.memory.dtype.name}", "make an array of the wider type, and view it "
                      "as the narrower one")
    given = c.bind(value, "given", node)
    expected = None if compare is None else c.bind(compare, "expected", node)
    bits = _unsigned(array.memory.dtype)

    def change(old: Expr) -> Expr:
        held = _part(array, old) if not _count(array) else ex.bitcast(old, array.dtype)
        new = atomics.changed(kind, held, given, expected)
        return _with_part(array, old, new) if not _count(array) else ex.bitcast(new, bits)

    old = _changed(c, array, change, node, scope, order)
    return _part(array, old) if not _count(array) else ex.bitcast(old, array.dtype)


def _changed(c: Context, array: View, change: Callable[[Expr], Expr], node: ast.AST,
             scope: str = "device", order: str = "relaxed") -> Expr:  # fmt: skip
    """Change the bits of the element of the memory that an element is in; return what they were."""
    memory, bits = array.memory, _unsigned(array.memory.dtype)
    if memory.dtype.is_float and memory.dtype.bits < 32:  # some of whose NaNs lose bits on the way
        raise c.wrong(node, f"a change of {array.dtype.name} elements in memory of "
                      f"{memory.dtype.name}", "make an array of integers, and view it as floats")
    if not _count(array):
        c.partly.add(memory.name)  # whose other parts may have no value yet
    place = tuple(c.bind(e, "place", node) for e in _around(array))
    first = c.fresh(memory.name, memory.dtype)
    c.emit(Load(first, memory, place), node)
    if memory.scope not in ("global", "shared"):  # of one thread
        old = c.bind(ex.bitcast(first, bits), "old", node)
        c.emit(Store(memory, place, ex.bitcast(change(old), memory.dtype)), node)
        return old
    cell = c.cell("seen", memory.dtype, node)
    going = c.cell("again", dt.bool_, node)
    c.put(cell, first, node)
    c.put(going, ex.const(True, dt.bool_), node)
    with c.into() as head:
        again = c.get(going, "again", node)
        with c.into() as body:
            held = c.get(cell, "held", node)
            new = ex.bitcast(change(ex.bitcast(held, bits)), memory.dtype)
            var = c.fresh("old", memory.dtype)
            c.emit(Atomic(var, "cas", memory, place, new, held, scope, order), node)
            c.put(cell, var, node)
            c.put(going, ex.bitcast(var, bits).ne(ex.bitcast(held, bits)), node)
    c.emit(While(tuple(head), again, tuple(body)), node)
    return ex.bitcast(c.get(cell, "old", node), bits)


def _shift(array: View) -> Expr:
    """Return by how many bits an element is above the lowest one of that which it is in."""
    parts = array.memory.dtype.itemsize // array.dtype.itemsize
    bits = _unsigned(array.memory.dtype)
    return ex.cast(array.starts[-1] % parts * (8 * array.dtype.itemsize), bits)


def _part(array: View, old: Expr) -> Expr:
    """Return the element that is a part of the bits of one of the memory."""
    part = ex.binary(Op.SHR, old, _shift(array))
    return ex.bitcast(ex.cast(part, _unsigned(array.dtype)), array.dtype)


def _with_part(array: View, old: Expr, value: Expr) -> Expr:
    """Return the bits of an element of the memory with one part of another value."""
    bits, own = old.dtype, _unsigned(array.dtype)
    shift = _shift(array)
    mask = ex.binary(Op.SHL, ex.const((1 << own.bits) - 1, bits), shift)
    part = ex.binary(Op.SHL, ex.cast(ex.bitcast(value, own), bits), shift)
    return ex.binary(Op.OR, ex.binary(Op.AND, old, ex.unary(Op.NOT, mask)), part)


def _around(array: View) -> tuple[Expr, ...]:
    """Return the place of the element of the memory that an element is, or is a part of."""
    if _count(array):
        return array.starts
    parts = array.memory.dtype.itemsize // array.dtype.itemsize
    return (*array.starts[:-1], array.starts[-1] // parts)


def _count(array: View) -> int:
    """Return of how many elements of the memory an element is made, 0 where it is a part of one."""
    return array.dtype.itemsize // array.memory.dtype.itemsize


def _place(array: View, k: int) -> tuple[Expr, ...]:
    if not k:
        return array.starts
    return (*array.starts[:-1], array.starts[-1] + k)


def _unsigned(d: DType) -> DType:
    return {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}[d.itemsize]
