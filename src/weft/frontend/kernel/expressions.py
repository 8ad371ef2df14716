"""Expressions of kernels: syntax to values, one method for each kind of node."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontend.kernel import chosen, complexes, operators, scalars, structs
from weft.frontend.kernel.elements import as_dtype, itemsize_of
from weft.frontend.kernel.emitter import Emitter
from weft.frontend.kernel.hints import NO_THREADS, closest, instead, title, unindexed
from weft.frontend.kernel.intrinsics import DEVICE, Everyone, Special
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Problems, Source, Stop
from weft.frontend.kernel.values import (
    FIXED,
    Fields,
    Fragment,
    Group,
    Known,
    Value,
    View,
    ViewAxis,
    Wrong,
    axes_of,
    describe,
    described,
)
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import If, Load, Memory, Store

if TYPE_CHECKING:
    from weft.frontend.kernel import addresses, choices, constants, fields, moving, seen
else:
    addresses = Late("weft.frontend.kernel.addresses")
    choices = Late("weft.frontend.kernel.choices")
    constants = Late("weft.frontend.kernel.constants")
    fields = Late("weft.frontend.kernel.fields")
    moving = Late("weft.frontend.kernel.moving")
    seen = Late("weft.frontend.kernel.seen")

__all__ = ["VISIT", "Expressions", "as_dtype"]

_NUMBERS: Final = (bool, int, float)


class Expressions(Emitter):
    """Reads expressions in an environment of names.

    Attributes
    ----------
    env : dict of str to (Value or Memory)
        What the names of the function hold here; a register cell is read when its name is used.
    wraps : bool
        Whether a negative index counts from the end, as in NumPy.
    flat : bool
        Whether every memory has one axis, so that arrays can be given another shape.
    checked : bool
        Whether accesses are checked against the bounds.
    fma : bool or None
        Whether a product and the sum it goes into are rounded once; None: where a name or an
        element is added to, as ``total += a * b`` does.
    sanitised : bool
        Whether the kernel is written for the sanitiser, which finds wrong indices when it runs.
    """

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.env: dict[str, Value | Memory] = {}
        self.wraps = False
        self.flat = False
        self.checked = True
        self.fma: bool | None = False
        self.kept: list[Any] = []
        self.unlike: dict[str, str] = {}  # names that hold one kind of thing here, another there
        self.constants: dict[int, constants.Constant] = {}  # by the identity of the array

    # --- values

    def visit(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises
        ------
        Stop
            After noting a problem.
        """
        method = VISIT.get(type(node))
        if method is None:
            raise self.wrong(node, f"{title(node)} is not supported in kernels", instead(node))
        return method(self, node)

    def visit_all(self, nodes: Iterable[ast.expr]) -> list[Value]:
        """Return the values of expressions; what is wrong in any of them is noted."""
        values: list[Value] = []
        for node in nodes:
            try:
                values.append(self.visit(node))
            except Stop:
                values.append(Wrong())
        if any(isinstance(v, Wrong) for v in values):
            raise Stop
        return values

    def scalar(self, value: Value, node: ast.AST, what: str = "a number") -> Expr:
        """Return a value as a scalar."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Wrong):
            raise Stop
        if isinstance(value, Known):
            found = self.known_scalar(value.value)
            if found is not None:
                return found
        hint = ""
        if isinstance(value, View):
            hint = "index it to get a number: kernels compute on scalars"
        elif isinstance(value, Known) and type(value.value) is int:
            hint = "the largest integers have 64 bits"
        raise self.wrong(node, f"expected {what}, found {describe(value)}", hint)

    def known_scalar(self, value: Any) -> Expr | None:
        """Return a Python or NumPy number as a constant."""
        if isinstance(value, _NUMBERS) and type(value) in _NUMBERS:
            return scalars.literal(value)
        if isinstance(value, enum.IntEnum | Everyone):
            return scalars.literal(int(value))
        d = as_dtype(getattr(value, "dtype", None)) if hasattr(value, "item") else None
        if d is not None and getattr(value, "ndim", 1) == 0:
            return ex.const(value.item(), d)
        return None

    def alike(self, values: list[Any], kept: bool = False) -> list[Any]:
        """Give a type to values that meet; if ``kept``, the result has the sign of one of them."""
        return values

    def set_before(self, name: str) -> Value | None:
        """Return what a name holds that only an earlier turn of a loop can have set, if it may."""
        del name
        return None

    def number(self, node: ast.expr, d: DType | None = None) -> Expr:
        """Return an expression as a scalar, converted to a type if one is given."""
        found = self.scalar(self.visit(node), node)
        return found if d is None else scalars.convert(found, d)

    def condition(self, node: ast.expr) -> Expr | bool:
        """Return whether an expression is true: a bool scalar, or a bool that is known."""
        value = choices.both(self, node, True) if isinstance(node, ast.BoolOp) else self.visit(node)
        return self.truth(value, node)

    def truth(self, value: Value, node: ast.AST) -> Expr | bool:
        """Return whether a value is true."""
        if complexes.is_complex(value):
            value = operators.compare(self, ast.NotEq, value, Known(0), node)
        if isinstance(value, Known | Group):
            said = structs.truth(self, value, node)
            if said is not None:
                return self.truth(said, node)
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

    def opened(self, held: Any, name: str, node: ast.AST) -> Any:
        """Return what a name holds, after reading it if it lives in cells."""
        if isinstance(held, Memory):
            return self.get(held, name, node)
        if isinstance(held, Group):
            items = tuple(self.opened(v, name, node) for v in held.items)
            found = Group(items, held.names, held.kind)
            return moving.placed(found) if moving.is_moving(found) else found
        return held

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
        if isinstance(owner, View):
            return self.view_attribute(owner, node)
        if isinstance(owner, Fields):
            return fields.attribute(self, owner, node)
        if chosen.is_chosen(owner) and isinstance(owner, Group):
            return self._chosen_attribute(owner, node)
        if isinstance(owner, Expr) and node.attr in ("real", "imag"):
            return owner if node.attr == "real" else ex.const(0, owner.dtype)
        if isinstance(owner, Group):
            if node.attr in owner.names:
                return self.field(owner, node.attr, node)
            made = getattr(owner.kind, node.attr, None)
            if isinstance(made, property) and inspect.isfunction(made.fget):
                return self.inline(made.fget, [owner], {}, node)
            hint = f"its fields: {', '.join(owner.names)}" if owner.names else FIXED
            raise self.wrong(node, f"{describe(owner)} has no field {node.attr!r}", hint)
        if isinstance(owner, Known):
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
        has = ("shape", "size", "ndim", "dtype", "itemsize", "T", "ctypes", "view")
        raise self.wrong(node, f"arrays in kernels have no {node.attr!r}",
                         closest(node.attr, has) or f"they have {', '.join(has)}")

    # --- choices

    def select(self, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
               node: ast.AST) -> Value:  # fmt: skip
        """Return one of two values, each of which may need statements of its own."""
        if chosen.is_array(a) and chosen.is_array(b):
            kind = chosen.joined([a, b])
            if kind is not None and all(map(self.is_visible, kind.options)):
                a, b = chosen.as_chosen(a, kind) or a, chosen.as_chosen(b, kind) or b
            else:
                parts = moving.joined([a, b], self.is_visible)
                if parts is not None:
                    a, b = moving.as_moving(a, parts) or a, moving.as_moving(b, parts) or b
        if complexes.is_complex(a) or complexes.is_complex(b):
            with self.extending(then):
                a = complexes.as_complex(self, a, node)
            with self.extending(orelse):
                b = complexes.as_complex(self, b, node)
        pairs = [(a, b)]
        grouped = isinstance(a, Group) and isinstance(b, Group) and len(a.items) == len(b.items)
        if isinstance(a, Group) and isinstance(b, Group) and grouped:
            pairs = list(zip(a.items, b.items, strict=True))
        found: list[Any] = []
        for p, q in pairs:
            p, q = self.alike([p, q], True)
            x, y = self.scalar(p, node), self.scalar(q, node)
            d = unify(x.dtype, y.dtype)
            found.append((scalars.convert(x, d), scalars.convert(y, d)))
        if not then and not orelse:
            found = [ex.where(test, x, y) for x, y in found]
        else:
            cells = [self.cell("choice", x.dtype, node) for x, _ in found]
            sides = [[Store(cell, (), values[k]) for cell, values in zip(cells, found, strict=True)]
                     for k in range(2)]
            for stored in (*sides[0], *sides[1]):
                self.locations[stored] = self.source.place(node)
            self.emit(If(test, (*then, *sides[0]), (*orelse, *sides[1])), node)
            found = [self.get(cell, "choice", node) for cell in cells]
        if grouped and isinstance(a, Group):
            group = Group(tuple(found), a.names, a.kind)
            return moving.placed(group) if moving.is_moving(group) else group
        only: Value = found[0]
        return only

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
        owner = self.visit(node.value)
        if chosen.is_chosen(owner):
            return self.read(self.element(owner, node), node)
        if isinstance(owner, Group):
            return self._item(owner, node)
        if isinstance(owner, Known):
            key = self.visit(node.slice)
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

    def _item(self, owner: Group, node: ast.Subscript) -> Value:
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
        items = [self.scalar(item, node) for item in owner.items]
        d = items[0].dtype
        for item in items[1:]:
            d = unify(d, item.dtype)
        found = scalars.convert(items[-1], d)
        for position in reversed(range(len(items) - 1)):
            found = ex.where(key.eq(position), scalars.convert(items[position], d), found)
        return found

    def element(self, view: Any, node: ast.Subscript) -> Any:
        """Return the part of a view that a subscript names: an element has no axes."""
        if isinstance(view, Fields) and not isinstance(node.slice, ast.Tuple | ast.Slice):
            only = self.visit(node.slice)
            if isinstance(only, Known) and isinstance(only.value, str):
                return fields.named(self, view, only.value, node)
            if isinstance(only, Known) and not view.ndim and view.kind is None and (
                type(only.value) is int and 0 <= only.value < len(view.parts)
            ):
                return view.parts[only.value]  # the field at this place of a record
            indices = only.items if isinstance(only, Group) else (only,)
            return fields.part(self, view, [(node.slice, item) for item in indices], node)
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts: list[tuple[ast.expr, Value | None]] = []
        for key in keys:
            if isinstance(key, ast.Slice):
                parts.append((key, None))
                continue
            value = self.visit(key)
            items = value.items if isinstance(value, Group) else (value,)
            parts.extend((key, item) for item in items)
        if chosen.is_chosen(view):
            return chosen.part(self, view, lambda option: self._part(option, parts, node), node)
        return self._part(view, parts, node)

    def _part(self, view: View | Fields, parts: list[tuple[ast.expr, Value | None]],
              node: ast.AST) -> View | Fields:  # fmt: skip
        if isinstance(view, Fields):
            return fields.part(self, view, list(parts), node)
        return self.part(view, list(parts), node)

    def part(self, view: View, parts: list[tuple[ast.expr, Value | None]],
             node: ast.AST) -> View:  # fmt: skip
        """Return the part of a view at some indices and slices (None)."""
        dots = [k for k, (_, v) in enumerate(parts)
                if isinstance(v, Known) and v.value is Ellipsis]
        if dots:
            missing = len(view.axes) - len(parts) + 1
            fill = ast.copy_location(ast.Slice(), parts[dots[0]][0])
            parts[dots[0]:dots[0] + 1] = [(fill, None)] * missing
        if len(parts) > len(view.axes):
            raise self.wrong(node, f"{len(parts)} indices into an array of "
                             f"{axes_of(len(view.axes))}")
        starts, axes = list(view.starts), []
        for (key, value), axis in zip(parts, view.axes, strict=False):
            if value is None:
                assert isinstance(key, ast.Slice)
                first, made = self._sliced(axis, key)
                starts[axis.axis] = starts[axis.axis] + first * axis.step
                axes.append(made)
                continue
            place = self.index(value, axis.extent, key)
            starts[axis.axis] = starts[axis.axis] + place * axis.step
        axes.extend(view.axes[len(parts):])
        return View(view.memory, tuple(starts), tuple(axes), view.readonly, view.seen)

    def index(self, value: Value, extent: Expr, node: ast.AST) -> Expr:
        """Return an index, checked against its axis."""
        i = self.scalar(value, node, "an integer index")
        if i.dtype.is_float:
            raise self.wrong(node, f"an index of {i.dtype.name}", "convert it with int()")
        i = scalars.convert(i, dt.int64)
        if self.wraps:
            i = i + extent if i.op is Op.CONST and i.attr < 0 else i
            if i.op is not Op.CONST and self.ranges.of(i).lo < 0:
                i = ex.where(i.lt(0), i + extent, i)
        elif i.op is Op.CONST and i.attr < 0 and not self.sanitised:
            raise self.wrong(node, f"index {i.attr} is out of bounds",
                             "kernels do not count from the end: use a.shape[0] - 1")
        if i.op is Op.CONST and extent.op is Op.CONST and not 0 <= i.attr < extent.attr and (
            not self.sanitised
        ):
            raise self.wrong(node, f"index {i.attr} is out of bounds for an axis of {extent.attr}")
        if self.checked:
            inside = ex.binary(Op.AND, ex.index(0).le(i), i.lt(extent))
            self.require(inside, "index out of bounds", node, i, extent)
        return i

    def _sliced(self, axis: ViewAxis, key: ast.Slice) -> tuple[Expr, ViewAxis]:
        """Return where a slice of an axis begins, and the axis that it makes."""
        step = ex.index(1) if key.step is None else self.number(key.step, dt.int64)
        if step.op is not Op.CONST or step.attr == 0:
            raise self.wrong(key, "a slice in a kernel needs a step that is known, and not 0")
        down = step.attr < 0
        last = axis.extent - 1 if down else axis.extent
        before = -1 if down else 0  # what lies in front of the axis ends a walk down
        defaults = (last, ex.index(-1)) if down else (ex.index(0), last)
        ends = []
        cut = None
        for end, default in zip((key.lower, key.upper), defaults, strict=True):
            e = None if end is None else self.visit(end)
            if e is None or (isinstance(e, Known) and e.value is None):
                ends.append(default)
                continue
            place = scalars.convert(self.scalar(e, key, "an integer"), dt.int64)
            if self.ranges.of(place).lo < 0:
                place = ex.where(place.lt(0), ex.maximum(place + axis.extent, before), place)
            ends.append(ex.minimum(place, last))
            if key.upper is None and ex.is_const(step, 1):
                cut = ends[0], place, axis.extent
        gap = ends[0] - ends[1] if down else ends[1] - ends[0]
        size = abs(int(step.attr))
        count = ex.maximum((gap + (size - 1)) // size, 0)
        return ends[0], ViewAxis(count, axis.axis, axis.step * step, cut)

    def window(self, view: View, position: int, count: int, node: ast.AST) -> View:
        """Return a view of which the first `count` elements along an axis are there.

        A slice such as ``x[i:]`` begins at the end of the axis at the latest. Where so many
        elements follow, it begins at `i`, which is what index rules see through.
        """
        axis = view.axes[position]
        if axis.cut is None:
            if self.checked:
                self.require(ex.index(count).le(axis.extent), "index out of bounds", node,
                             ex.index(count - 1), axis.extent)
            return view
        start, place, whole_ = axis.cut
        if self.checked:
            # not place + count <= whole, which may wrap around
            self.require(place.le(whole_ - count), "index out of bounds", node,
                         place + (count - 1), whole_)
        starts = tuple(ex.substitute(view.starts, {start: place}))
        axes = (*view.axes[:position], axis.replace(extent=whole_ - place, cut=None),
                *view.axes[position + 1:])
        return view.replace(starts=starts, axes=axes)

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

    def known_int(self, value: Value, node: ast.AST, what: str) -> int:
        """Return an integer that must be known when the kernel is compiled."""
        if isinstance(value, Known) and isinstance(value.value, int) and type(
            value.value
        ) is not bool:
            return int(value.value)
        if isinstance(value, Known) and getattr(value.value, "dtype", None) is not None:
            value = self.scalar(value, node)  # of NumPy
        if isinstance(value, Expr) and value.op is Op.CONST and value.dtype.is_integer:
            return int(value.attr)
        raise self.wrong(node, f"{what} must be an integer that is known when the kernel is "
                         f"compiled, found {describe(value)}",
                         "a number, or a name from outside of the kernel")

    assigned: frozenset[str] = frozenset()  # all names that the function assigns

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.visit(node.value)
        self.env[node.target.id] = value
        return value


def _name_of(view: View | Fields) -> str:
    """Return how an error message calls an array."""
    while isinstance(view, Fields):
        view = view.parts[0]
    return view.memory.name


VISIT: Final[dict[type[ast.AST], Callable[[Expressions, Any], Value]]] = {
    ast.Constant: Expressions._constant, ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute, ast.BinOp: operators.binary,
    ast.UnaryOp: operators.unary, ast.Compare: operators.comparison,
    ast.BoolOp: lambda c, node: choices.both(c, node),
    ast.IfExp: lambda c, node: choices.either(c, node),
    ast.Tuple: Expressions._tuple, ast.List: Expressions._tuple,
    ast.Subscript: Expressions._subscript, ast.NamedExpr: Expressions._walrus,
}  # fmt: skip
