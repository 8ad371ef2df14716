"""Arrays as kinds of values: of numbers, of parts, one of several, all elements row by row."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from weft.imports import Late
from weft.ir.expr import Expr
from weft.ir.stmt import Load, Store
from weft.lang.core import array_union, optional, scalars, sliding_view
from weft.lang.core.element_types import count_of
from weft.lang.core.hints import closest
from weft.lang.core.indexing import Held, written_out
from weft.lang.core.kind import Iterations, Kind, Subscripts, kind_of
from weft.lang.core.values import FLAT, Fields, Fragment, Group, Known, Value, View, describe
from weft.lang.source.source import Stop
from weft.lang.values.structs import GroupKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import addresses, arrays, bitcast_view, records
else:
    addresses = Late("weft.lang.values.addresses")
    arrays = Late("weft.lang.values.arrays")
    bitcast_view = Late("weft.lang.values.bitcast_view")
    records = Late("weft.lang.values.records")

__all__ = ["ArrayKind", "FieldsKind", "FlatKind", "SlidingKind", "UnionKind"]

_HAS: Final = ("shape", "size", "ndim", "dtype", "itemsize", "T", "ctypes", "view", "sum",
               "transpose", "reshape")  # fmt: skip


class ArrayKind(Kind):
    """An array of numbers."""

    def shape(self, c: Context, array: Any) -> tuple[Expr, ...]:
        """Return the sizes of the axes."""
        found: tuple[Expr, ...] = array.shape
        return found

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return the number of rows."""
        sizes = self.shape(c, value)
        return sizes[0] if sizes else super().length(c, value, node)

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of rows, and each row."""
        sizes = self.shape(c, value)
        if not sizes:
            return super().iterate(c, value, node)
        return sizes[0], lambda k: arrays.element(c, value, (k,), node)

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return an element, or a part of an array."""
        return c.read(self.element(c, owner, node), node)

    def element(self, c: Context, owner: Any, node: ast.Subscript) -> Any:
        """Return the part of an array that a subscript names: an element has no axes."""
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts: Subscripts = []
        for key in keys:
            if isinstance(key, ast.Slice):
                parts.append((key, None))
                continue
            value = optional.present(c, c.visit(key), key)
            for item in value.items if isinstance(value, Group) and value.kind is not slice else (
                value,
            ):
                cut = written_out(item, key)
                parts.append((key, item) if cut is None else (cut, None))
        return self.part(c, owner, parts, node)

    def part(self, c: Context, array: Any, parts: Subscripts, node: ast.AST) -> Any:
        """Return the part of an array at some indices and slices (None)."""
        return c.part(array, list(parts), node)

    def read(self, c: Context, array: Any, node: ast.AST) -> Value:
        """Return a part of an array: a scalar once no axis is left."""
        if array.axes:
            held: View = array
            return held
        if array.seen is not None:
            return bitcast_view.read(c, array, node)
        var = c.fresh(array.memory.name, array.memory.dtype)
        c.emit(Load(var, array.memory, array.starts), node)
        return var

    def write(self, c: Context, array: Any, value: Value, node: ast.AST) -> None:
        """Store a scalar in an element, or in every element of a part of an array."""
        if array.readonly:
            raise c.wrong(node, f"{array.memory.name} is read-only")
        if array.axes:
            records.assign(c, array, value, node)
            return
        x = scalars.convert(c.scalar(value, node), array.dtype)
        if array.seen is not None:
            bitcast_view.write(c, array, x, node)
            return
        c.emit(Store(array.memory, array.starts, x), node)

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return shape, size and what else an array tells of itself."""
        if node.attr == "shape":
            return Group(self.shape(c, owner))
        if node.attr == "ndim":
            return Known(len(array_union.options_of(owner)[0].shape))
        if node.attr == "size":
            return count_of(self.shape(c, owner))
        return self.own(c, owner, node)

    def own(self, c: Context, array: Any, node: ast.Attribute) -> Value:
        """Return what arrays of numbers and of parts tell of themselves, but for their sizes."""
        element = records.element_of(array)  # None: records
        if node.attr == "ctypes":
            return addresses.as_ctypes(c, array, node)
        if node.attr == "dtype" and element is not None:
            return Known(element)
        if node.attr == "T" and element is not None:
            return arrays.turned(array)
        if node.attr == "itemsize" and element is not None:
            return Known(element.itemsize)
        if isinstance(array, Fragment):
            if node.attr == "num_elements":
                return Known(int(array.shape[0].attr))
            if node.attr == "x":
                return array
        elif element is not None:
            found = arrays.attribute(c, array, element, node)
            if found is not None:
                return found
        raise self.absent(c, array, node)

    def absent(self, c: Context, array: Any, node: ast.Attribute) -> Stop:
        """Note an attribute that arrays do not have."""
        return c.wrong(node, f"arrays in kernels have no {node.attr!r}",
                       closest(node.attr, _HAS) or f"they have {', '.join(_HAS)}")


class FieldsKind(ArrayKind):
    """An array whose elements have parts, or one such element."""

    def element(self, c: Context, owner: Any, node: ast.Subscript) -> Any:
        """Return the part of an array that a subscript names: an array of a field, too."""
        if isinstance(node.slice, ast.Tuple | ast.Slice):
            return super().element(c, owner, node)
        only = optional.present(c, c.visit(node.slice), node)
        if isinstance(only, Known) and isinstance(only.value, str):
            return records.named(c, owner, only.value, node)
        if isinstance(only, Known) and not owner.ndim and owner.kind is None and (
            type(only.value) is int and -len(owner.parts) <= only.value < len(owner.parts)
        ):
            return owner.parts[only.value]  # the field at this place of a record
        held = ast.Subscript(node.value, Held(only, node.slice), ast.Load())
        return super().element(c, owner, ast.copy_location(held, node))

    def part(self, c: Context, array: Any, parts: Subscripts, node: ast.AST) -> Any:
        """Return the part of an array at some indices and slices (None)."""
        return records.part(c, array, list(parts), node)

    def read(self, c: Context, array: Any, node: ast.AST) -> Value:
        """Return an element that is a number, a time or a text; anything else as it is."""
        return records.read(c, array, node)

    def write(self, c: Context, array: Any, value: Value, node: ast.AST) -> None:
        """Store an element part for part, or in every element of an array."""
        if array.readonly:
            while isinstance(array, Fields):
                array = array.parts[0]
            raise c.wrong(node, f"{array.memory.name} is read-only")
        records.write(c, array, value, node)

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return a field, or what an array tells of itself."""
        if node.attr in owner.names:
            return c.read(records.named(c, owner, node.attr, node), node)
        return super().attribute(c, owner, node)

    def absent(self, c: Context, array: Any, node: ast.Attribute) -> Stop:
        """Note an attribute that arrays of parts do not have."""
        return c.wrong(node, f"{describe(array)} has no {node.attr!r}",
                       f"its fields: {', '.join(array.names)}")


class UnionKind(ArrayKind):
    """One of several arrays."""

    def truth(self, c: Context, value: Any, node: ast.AST) -> bool:
        """Return True, as for what says nothing of it."""
        return True

    def shape(self, c: Context, array: Any) -> tuple[Expr, ...]:
        """Return the sizes of the array that is meant."""
        return array_union.shape(array)

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return an array as one of several."""
        if not array_union.is_array(value):
            return value
        return array_union.as_array_union(value, like.kind) or value

    def part(self, c: Context, array: Any, parts: Subscripts, node: ast.AST) -> Any:
        """Return the part of the array that is meant."""
        return array_union.part(
            c, array, lambda option: kind_of(option).part(c, option, parts, node), node)

    def read(self, c: Context, array: Any, node: ast.AST) -> Value:
        """Return the element of the array that is meant."""
        if self.shape(c, array):
            held: Group = array
            return held
        return array_union.apply(c, array, lambda option: c.read(option, node), node)

    def write(self, c: Context, array: Any, value: Value, node: ast.AST) -> None:
        """Store in the array that is meant."""
        def store(option: Any) -> Value:
            c.write(option, value, node)
            return Known(None)

        array_union.apply(c, array, store, node)

    def own(self, c: Context, array: Any, node: ast.Attribute) -> Value:
        """Return what the array that is meant tells of itself."""
        if node.attr == "flat":
            return Group((array,), (), FLAT)
        first = array_union.options_of(array)[0]
        if node.attr in ("dtype", "itemsize"):
            return c.attribute(first, node)
        if isinstance(first, Fields):
            field = array_union.part(c, array, lambda o: records.named(c, o, node.attr, node), node)
            return c.read(field, node)
        return array_union.part(c, array, lambda o: c.attribute(o, node), node)


class SlidingKind(Kind):
    """The numbers of a part of an array that moves."""

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return an array as the numbers of such a part."""
        value = sliding_view.as_view(value)
        if not array_union.is_array(value):
            return value
        return sliding_view.as_sliding_view(value, like.kind) or value


class FlatKind(GroupKind):
    """All elements of an array, row by row."""

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return the number of elements."""
        return arrays.size(c, value)

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return an element."""
        return c.read(self.element(c, owner, node), node)

    def element(self, c: Context, owner: Any, node: ast.Subscript) -> Any:
        """Return the element at a place."""
        return arrays.at(c, owner, node)

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return the size."""
        return arrays.size(c, owner) if node.attr == "size" else super().attribute(c, owner, node)
