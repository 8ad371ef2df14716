"""Expressions of kernels: syntax to values, one method for each kind of node."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontend.kernel import (
    chosen,
    complexes,
    extended,
    members,
    operators,
    optional,
    scalars,
    structs,
)
from weft.frontend.kernel.elements import ComplexOf, TimeOf, is_text, itemsize_of
from weft.frontend.kernel.hints import NO_THREADS, closest, unindexed
from weft.frontend.kernel.intrinsics import DEVICE, Special
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Stop
from weft.frontend.kernel.values import (
    FIXED,
    FLAT,
    Fields,
    Fragment,
    Group,
    Known,
    Range,
    Value,
    View,
    Wrong,
    describe,
    described,
    is_flat,
)
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Load, Store

if TYPE_CHECKING:
    from weft.frontend.kernel import (
        addresses,
        arrays,
        choices,
        constants,
        fields,
        moving,
        seen,
        strings,
        times,
    )
else:
    addresses = Late("weft.frontend.kernel.addresses")
    arrays = Late("weft.frontend.kernel.arrays")
    choices = Late("weft.frontend.kernel.choices")
    constants = Late("weft.frontend.kernel.constants")
    fields = Late("weft.frontend.kernel.fields")
    moving = Late("weft.frontend.kernel.moving")
    seen = Late("weft.frontend.kernel.seen")
    strings = Late("weft.frontend.kernel.strings")
    times = Late("weft.frontend.kernel.times")

from weft.frontend.kernel.indexing import Held, Indexing, slice_of, written_out
from weft.frontend.kernel.reading import VISIT

__all__ = ["Expressions"]


class Expressions(Indexing):
    """Reads expressions."""

    assigned: frozenset[str] = frozenset()  # all names that the function assigns

    # --- truth

    def condition(self, node: ast.expr) -> Expr | bool:
        """Return whether an expression is true: a bool scalar, or a bool that is known."""
        value = choices.both(self, node, True) if isinstance(node, ast.BoolOp) else self.visit(node)
        return self.truth(value, node)

    def truth(self, value: Value, node: ast.AST) -> Expr | bool:
        """Return whether a value is true."""
        if complexes.is_complex(value):
            value = operators.compare(self, ast.NotEq, value, Known(0), node)
        if optional.is_optional(value):
            return optional.truth(value)
        if isinstance(value, Group) and isinstance(value.kind, TimeOf):
            return scalars.truth(self.scalar(value.items[0], node))
        if is_text(value) and isinstance(value, Group):
            return strings.truth(value)
        if isinstance(value, Known | Group):
            said = structs.truth(self, value, node)
            if said is not None:
                return self.truth(said, node)
            if members.is_member(value) and isinstance(value, Group):
                told = members.apply(self, value, bool)
                return True if told is None else self.scalar(told, node)
            if isinstance(value, Group) and not structs.is_tuple(value):
                return True
            return bool(value.value if isinstance(value, Known) else value.items)
        return scalars.truth(self.scalar(value, node, "a condition"))

    # --- leaves

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bytes):
            return self.outside(node.value, node)
        if isinstance(node.value, int) and scalars.literal(node.value) is None:
            raise self.wrong(node, f"{scalars.shown(node.value)} does not fit 64 bits")
        return Known(node.value)

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.env:
            held: Value = self.opened(self.env[node.id], node.id, node)
            if isinstance(held, Wrong):
                raise Stop
            return held
        if node.id in self.source.assigned:  # a name of the function, whatever is outside
            unlike = self.unlike.get(node.id)
            if unlike is not None:
                raise self.wrong(node, f"{node.id} is {unlike}, by the way to this line",
                                 "numbers change their type; tuples keep their length, and arrays "
                                 "and other things their kind")
            stop = self.wrong(node, f"name {node.id!r} has no value here",
                              "it is set further down, or on other ways than those to this line")
            early = self.set_before(node.id)
            if early is None:
                raise stop
            return early
        known, value = self.source.lookup(node.id)
        if not known:
            hint = closest(node.id, (*self.env, *self.source.names())) or (
                closest(node.id, DEVICE).replace("mean '", "mean 'gpu."))
            raise self.wrong(node, f"name {node.id!r} is not defined", hint)
        return self.outside(value, node)

    def outside(self, value: Any, node: ast.AST) -> Value:
        """Return an object from outside of the kernel, frozen as it is now."""
        if isinstance(value, Special):
            return self.special(value, node)
        if isinstance(value, bytes):
            return constants.view_of(self, constants.bytes_of(value), node)
        if isinstance(value, np.ndarray) or (
            not isinstance(value, type) and hasattr(value, "__array_interface__") and value.shape
        ):
            return constants.view_of(self, value, node)
        if not isinstance(value, type) and hasattr(value, "__cuda_array_interface__") and (
            value.__cuda_array_interface__["shape"]
        ):
            return constants.view_of(self, value, node)
        if isinstance(value, np.datetime64 | np.timedelta64):
            time = times.known(value)
            if time is None:
                raise self.wrong(node, f"a time of {value.dtype}", "a unit of one: datetime64[s]")
            return time
        if isinstance(value, slice):
            return slice_of(*map(Known, (value.start, value.stop, value.step)))
        if isinstance(value, tuple):
            names = getattr(type(value), "_fields", ())
            kind = type(value) if names else None
            return Group(tuple(self.outside(v, node) for v in value), tuple(names), kind)
        return Known(value)

    def special(self, value: Special, node: ast.AST) -> Value:
        """Return an index or a size of the launch."""
        if value.constant is not None:
            return ex.const(value.constant, dt.int32)
        found = self.specials.get(value.name)
        if found is None:
            raise self.wrong(node, f"{value.name} has no value in this kind of kernel", NO_THREADS)
        return scalars.coordinate(found)

    def _attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.visit(node.value), node)

    def field(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return what a struct holds under a name."""
        if isinstance(owner, Known):
            return self.outside(getattr(owner.value, name), node)
        assert isinstance(owner, Group)
        item: Value = owner.items[owner.names.index(name)]
        return item

    def attribute(self, owner: Value, node: ast.Attribute) -> Value:
        """Return what the attribute of a value is."""
        owner = optional.present(self, owner, node)
        if extended.ATTRIBUTES:
            extra = extended.attribute(self, owner, node)
            if extra is not None:
                return extra
        if isinstance(owner, View):
            return self.view_attribute(owner, node)
        if isinstance(owner, Fields):
            told = None if node.attr in owner.names else arrays.attribute(self, owner, node)
            return fields.attribute(self, owner, node) if told is None else told
        if chosen.is_chosen(owner) and isinstance(owner, Group):
            return self._chosen_attribute(owner, node)
        if members.is_member(owner) and isinstance(owner, Group):
            told = members.apply(self, owner, lambda option: getattr(option, node.attr))
            if told is not None:
                return told
        if isinstance(owner, Expr) and node.attr == "value" and owner.dtype.is_integer:
            return owner  # a member of an IntEnum, once it is not known which
        if isinstance(owner, Expr) and node.attr in ("real", "imag"):
            return owner if node.attr == "real" else ex.const(0, owner.dtype)
        if is_flat(owner) and node.attr == "size":
            return arrays.size(self, owner)
        if isinstance(owner, Group):
            if node.attr in owner.names:
                return self.field(owner, node.attr, node)
            made = getattr(owner.kind, node.attr, None)
            if isinstance(made, property) and inspect.isfunction(made.fget):
                return self.inline(made.fget, [owner], {}, node)
            hint = f"its fields: {', '.join(owner.names)}" if owner.names else FIXED
            raise self.wrong(node, f"{describe(owner)} has no field {node.attr!r}", hint)
        if isinstance(owner, Known):
            if node.attr == "type" and isinstance(owner.value, DType | ComplexOf | TimeOf):
                return owner  # called like the dtype
            if isinstance(owner.value, Range) and node.attr in ("start", "stop", "step"):
                end: Expr = getattr(owner.value, node.attr)
                return end
            try:
                value = getattr(owner.value, node.attr)
            except AttributeError:
                raise self.wrong(node, f"{described(owner.value)} has no {node.attr!r}",
                                 closest(node.attr, dir(owner.value))) from None
            return self.outside(value, node)
        raise self.wrong(node, f"{describe(owner)} has no {node.attr!r}")

    def _chosen_attribute(self, owner: Group, node: ast.Attribute) -> Value:
        """Return what the attribute of one of several arrays is."""
        sizes = chosen.shape(self, owner)
        if node.attr == "shape":
            return Group(sizes)
        if node.attr == "size":
            total = ex.index(1)
            for extent in sizes:
                total = total * extent
            return total
        if node.attr == "flat":
            return Group((owner,), (), FLAT)
        options = chosen.options_of(owner)
        if node.attr in ("dtype", "ndim", "itemsize"):
            return self.attribute(options[0], node)
        if isinstance(options[0], Fields):
            field = chosen.part(self, owner, lambda o: fields.named(self, o, node.attr, node), node)
            return self.read(field, node)
        turned = chosen.part(self, owner, lambda o: self.attribute(o, node), node)
        return turned

    def view_attribute(self, view: View, node: ast.Attribute) -> Value:
        """Return shape, size and what else an array tells of itself."""
        if node.attr == "shape":
            return Group(view.shape)
        if node.attr == "ndim":
            return Known(len(view.axes))
        if node.attr == "size":
            total = ex.index(1)
            for extent in view.shape:
                total = total * extent
            return total
        if node.attr == "dtype":
            return Known(view.dtype)
        if node.attr == "itemsize":
            return Known(itemsize_of(view.dtype))
        if isinstance(view, Fragment) and node.attr == "num_elements":
            return Known(int(view.shape[0].attr))
        if isinstance(view, Fragment) and node.attr == "x":
            return view
        if node.attr == "ctypes":
            return addresses.as_ctypes(self, view, node)
        if node.attr == "T":
            axes = tuple(reversed(view.axes))
            return View(view.memory, view.starts, axes, view.readonly, view.seen)
        found = arrays.attribute(self, view, node)
        if found is not None:
            return found
        has = ("shape", "size", "ndim", "dtype", "itemsize", "T", "ctypes", "view", "sum",
               "transpose", "reshape")
        raise self.wrong(node, f"arrays in kernels have no {node.attr!r}",
                         closest(node.attr, has) or f"they have {', '.join(has)}")

    # --- choices

    def select(self, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
               node: ast.AST) -> Value:  # fmt: skip
        """Return one of two values, each of which may need statements of its own."""
        return choices.select(self, test, a, then, b, orelse, node)

    # --- groups and arrays

    def _tuple(self, node: ast.Tuple | ast.List) -> Value:
        items: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.visit(item.value)
                if not isinstance(inner, Group):
                    raise self.wrong(item, f"cannot unpack {describe(inner)}")
                items.extend(inner.items)
            else:
                items.append(self.visit(item))
        return Group(tuple(items))

    def _subscript(self, node: ast.Subscript) -> Value:
        owner = optional.present(self, self.visit(node.value), node)
        if chosen.is_chosen(owner) or is_flat(owner):
            return self.read(self.element(owner, node), node)
        if isinstance(owner, Group):
            return self._item(owner, node)
        if isinstance(owner, Known):
            if isinstance(owner.value, list) and isinstance(node.slice, ast.Slice):
                return self._of_listed(owner, node)
            key = self.visit(node.slice)
            if isinstance(owner.value, list) and not isinstance(key, Known):
                held = ast.Subscript(node.value, Held(key, node.slice), ast.Load())
                return self._of_listed(owner, ast.copy_location(held, node))
            if isinstance(key, Known):
                try:
                    return self.outside(owner.value[key.value], node)
                except KeyError:
                    raise self.wrong(node, f"{describe(owner)} has no key {key.value!r}") from None
                except Exception as error:
                    raise self.wrong(node, f"{describe(owner)}: {error}",
                                     unindexed(owner)) from None
        if not isinstance(owner, View | Fields):
            raise self.wrong(node, f"{describe(owner)} cannot be indexed", unindexed(owner))
        return self.read(self.element(owner, node), node)

    def _of_listed(self, owner: Known, node: ast.Subscript) -> Value:
        """Return items of a list from outside, by what is known only when the kernel runs."""
        held = constants.listed(self, owner, node)
        if isinstance(held, Group):
            return self._item(held, node)
        return self.read(self.element(held, node), node)

    def _item(self, owner: Group, node: ast.Subscript) -> Value:
        if is_text(owner):
            return strings.item(self, owner, node)
        own = structs.item(self, owner, node.slice, node)
        if own is not None:
            return own
        if isinstance(node.slice, ast.Slice):
            ends = [None if e is None else self.visit(e)
                    for e in (node.slice.lower, node.slice.upper, node.slice.step)]
            if all(e is None or isinstance(e, Known) for e in ends):
                bounds = slice(*(e.value if isinstance(e, Known) else None for e in ends))
                return Group(owner.items[bounds])
            raise self.wrong(node, "a slice of a tuple must be known when the kernel is compiled")
        key = self.visit(node.slice)
        cut = written_out(key, node.slice)
        if cut is not None:
            given = ast.Subscript(node.value, cut, ast.Load())
            return self._item(owner, ast.copy_location(given, node))
        if isinstance(key, Known) and isinstance(key.value, int):
            if not -len(owner.items) <= key.value < len(owner.items):
                raise self.wrong(node, f"index {key.value} of a tuple of {len(owner.items)}")
            item: Value = owner.items[key.value]
            return item
        return self._chosen_item(owner, self.scalar(key, node, "an integer"), node)

    def _chosen_item(self, owner: Group, key: Expr, node: ast.Subscript) -> Value:
        """Return an item of a tuple by an index that is known only when the kernel runs."""
        if not owner.items or not key.dtype.is_integer:
            raise self.wrong(node, f"{describe(owner)} cannot be indexed by {describe(key)}")
        key = scalars.convert(key, dt.int64)
        count = ex.index(len(owner.items))
        self.require(ex.binary(Op.AND, ex.index(0).le(key), key.lt(count)), "index out of bounds",
                     node, key, count)
        return self.among(list(owner.items), key, node)

    def among(self, values: list[Any], key: Expr, node: ast.AST) -> Value:
        """Return the value at a place among several: numbers, arrays, or tuples of them."""
        values = members.agreed(self, values)
        if all(map(chosen.is_array, values)):
            kind = chosen.joined(values)
            values = [v if kind is None else chosen.as_chosen(v, kind) or v for v in values]
        first = values[0]
        if isinstance(first, Group) and all(
            isinstance(v, Group) and len(v.items) == len(first.items) and v.kind is first.kind
            for v in values
        ):
            parts = zip(*(v.items for v in values), strict=True)
            return first.replace(items=tuple(self.among(list(p), key, node) for p in parts))
        items = [self.scalar(item, node) for item in values]
        d = items[0].dtype
        for item in items[1:]:
            d = unify(d, item.dtype)
        found = scalars.convert(items[-1], d)
        for position in reversed(range(len(items) - 1)):
            found = ex.where(key.eq(position), scalars.convert(items[position], d), found)
        return found

    def element(self, view: Any, node: ast.Subscript) -> Any:
        """Return the part of a view that a subscript names: an element has no axes."""
        if is_flat(view):
            return arrays.at(self, view, node)
        if isinstance(view, Fields) and not isinstance(node.slice, ast.Tuple | ast.Slice):
            only = optional.present(self, self.visit(node.slice), node)
            if isinstance(only, Known) and isinstance(only.value, str):
                return fields.named(self, view, only.value, node)
            if isinstance(only, Known) and not view.ndim and view.kind is None and (
                type(only.value) is int and -len(view.parts) <= only.value < len(view.parts)
            ):
                return view.parts[only.value]  # the field at this place of a record
            cut = written_out(only, node.slice)
            if cut is not None:
                return fields.part(self, view, [(cut, None)], node)
            indices = only.items if isinstance(only, Group) else (only,)
            return fields.part(self, view, [(node.slice, item) for item in indices], node)
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts: list[tuple[ast.expr, Value | None]] = []
        for key in keys:
            if isinstance(key, ast.Slice):
                parts.append((key, None))
                continue
            value = optional.present(self, self.visit(key), key)
            for item in value.items if isinstance(value, Group) and value.kind is not slice else (
                value,
            ):
                cut = written_out(item, key)
                parts.append((key, item) if cut is None else (cut, None))
        if chosen.is_chosen(view):
            return chosen.part(self, view, lambda option: self._part(option, parts, node), node)
        return self._part(view, parts, node)

    def _part(self, view: View | Fields, parts: list[tuple[ast.expr, Value | None]],
              node: ast.AST) -> View | Fields:  # fmt: skip
        if isinstance(view, Fields):
            return fields.part(self, view, list(parts), node)
        return self.part(view, list(parts), node)

    def read(self, view: Any, node: ast.AST) -> Value:
        """Return a part of an array: a scalar once no axis is left."""
        if chosen.is_chosen(view):
            if chosen.shape(self, view):
                held: Value = view
                return held
            return chosen.apply(self, view, lambda option: self.read(option, node), node)
        if isinstance(view, Fields):
            return fields.read(self, view, node)
        array: View = view
        if array.axes:
            return array
        if array.seen is not None:
            return seen.read(self, array, node)
        var = self.fresh(view.memory.name, view.memory.dtype)
        self.emit(Load(var, view.memory, view.starts), node)
        return var

    def write(self, view: Any, value: Value, node: ast.AST) -> None:
        """Store a scalar in an element, or in every element of a part of an array."""
        if chosen.is_chosen(view):
            def store(option: Any) -> Value:
                self.write(option, value, node)
                return Known(None)

            chosen.apply(self, view, store, node)
            return
        if view.readonly:
            raise self.wrong(node, f"{_name_of(view)} is read-only")
        if isinstance(view, Fields):
            fields.write(self, view, value, node)
            return
        if view.axes:
            fields.assign(self, view, value, node)
            return
        x = scalars.convert(self.scalar(value, node), view.dtype)
        if view.seen is not None:
            seen.write(self, view, x, node)
            return
        self.emit(Store(view.memory, view.starts, x), node)

    def inline(self, function: Any, args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return what a device function gives: its body is read in place of the call."""
        raise self.wrong(node, "device functions are not supported here")

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.visit(node.value)
        self.env[node.target.id] = value
        return value


def _name_of(view: View | Fields) -> str:
    """Return how an error message calls an array."""
    while isinstance(view, Fields):
        view = view.parts[0]
    return view.memory.name


VISIT.update({
    ast.Constant: Expressions._constant, ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute, ast.BinOp: operators.binary,
    ast.UnaryOp: operators.unary, ast.Compare: operators.comparison,
    ast.BoolOp: lambda c, node: choices.both(c, node),
    ast.IfExp: lambda c, node: choices.either(c, node),
    ast.Tuple: Expressions._tuple, ast.List: Expressions._tuple,
    ast.Subscript: Expressions._subscript, ast.NamedExpr: Expressions._walrus,
})  # fmt: skip
