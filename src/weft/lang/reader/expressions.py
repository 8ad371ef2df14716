"""Expressions of kernels: syntax to values, one method for each kind of node."""

from __future__ import annotations

import ast
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Memory
from weft.lang.core import array_union, operators, optional, scalars, sliding_view
from weft.lang.core.context import VISIT
from weft.lang.core.element_types import TextOf, TimeOf
from weft.lang.core.hints import NO_THREADS, closest
from weft.lang.core.indexing import Indexing, slice_of
from weft.lang.core.intrinsics import DEVICE, Special
from weft.lang.core.kind import GROUPS, THINGS, VALUES, kind_of
from weft.lang.core.promotion import unify
from weft.lang.core.values import (
    FLAT,
    Fields,
    Group,
    Indices,
    Known,
    Value,
    View,
    Walk,
    Wrong,
    describe,
)
from weft.lang.source.source import Stop
from weft.lang.values import array_kinds, enums, overload_hooks
from weft.lang.values.unify import agreed

if TYPE_CHECKING:
    from weft.lang.values import (
        arrays,
        constants,
        iterators,
        short_circuit,
        strings,
        times,
    )
else:
    arrays = Late("weft.lang.values.arrays")
    short_circuit = Late("weft.lang.values.short_circuit")
    constants = Late("weft.lang.values.constants")
    iterators = Late("weft.lang.values.iterators")
    strings = Late("weft.lang.values.strings")
    times = Late("weft.lang.values.times")

__all__ = ["Expressions"]

# Kinds that few kernels need are imported where they are met.
VALUES.update({View: array_kinds.ArrayKind(), Fields: array_kinds.FieldsKind()})
GROUPS.update({array_union.Chosen: array_kinds.UnionKind(), type(FLAT): array_kinds.FlatKind(),
               sliding_view.SlidingView: array_kinds.SlidingKind(), TextOf: strings, TimeOf: times})
THINGS.update({Walk: iterators, Indices: arrays})


class Expressions(Indexing):
    """Reads expressions."""

    # --- values

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
        if optional.is_optional(value):
            return self.scalar(optional.number(self, value, node), node, what)
        hint = ""
        if isinstance(value, View):
            hint = "index it to get a number: kernels compute on scalars"
        elif isinstance(value, Known) and type(value.value) is int:
            hint = "the largest integers have 64 bits"
        raise self.wrong(node, f"expected {what}, found {describe(value)}", hint)

    def opened(self, held: Any, name: str, node: ast.AST) -> Any:
        """Return what a name holds, after reading it if it lives in cells."""
        if isinstance(held, Memory):
            return self.get(held, name, node)
        if isinstance(held, Group):
            items = tuple(self.opened(v, name, node) for v in held.items)
            return sliding_view.as_view(held.replace(items=items))
        return held

    # --- truth

    def condition(self, node: ast.expr) -> Expr | bool:
        """Return whether an expression is true: a bool scalar, or a bool that is known."""
        value = (
            short_circuit.both(self, node, True)
            if isinstance(node, ast.BoolOp)
            else self.visit(node)
        )
        return self.truth(value, node)

    def truth(self, value: Value, node: ast.AST) -> Expr | bool:
        """Return whether a value is true."""
        return kind_of(value).truth(self, value, node)

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
                raise self.wrong(node, f"{node.id} is {unlike}, on different paths",
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
        if overload_hooks.ATTRIBUTES:
            extra = overload_hooks.attribute(self, owner, node)
            if extra is not None:
                return extra
        return kind_of(owner).attribute(self, owner, node)

    # --- operators

    def _binary(self, node: ast.BinOp) -> Value:
        """Evaluate an operator between two operands; a long sum is read without recursion."""
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        found = self.visit_or_wrong(chain[-1].left)
        for inner in reversed(chain):
            right = self.visit_or_wrong(inner.right)
            if isinstance(found, Wrong) or isinstance(right, Wrong):
                found = Wrong()
                continue
            try:
                found = operators.operate(self, type(inner.op), found, right, inner)
            except Stop:
                if inner is node:
                    raise
                found = Wrong()
        if isinstance(found, Wrong):
            raise Stop
        return found

    # --- choices

    def select(self, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
               node: ast.AST) -> Value:  # fmt: skip
        """Return one of two values, each of which may need statements of its own."""
        return short_circuit.select(self, test, a, then, b, orelse, node)

    # --- groups and arrays

    def _tuple(self, node: ast.Tuple | ast.List) -> Value:
        return Group(tuple(self.unpacked(node.elts)))

    def unpacked(self, nodes: list[ast.expr]) -> list[Value]:
        """Return the values of expressions, of which starred ones give several."""
        items: list[Value] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                inner = self.visit(item.value)
                if not isinstance(inner, Group):
                    raise self.wrong(item, f"cannot unpack {describe(inner)}")
                items.extend(inner.items)
            else:
                items.append(self.visit(item))
        return items

    def _subscript(self, node: ast.Subscript) -> Value:
        owner = optional.present(self, self.visit(node.value), node)
        return kind_of(owner).index(self, owner, node)

    def among(self, values: list[Any], key: Expr, node: ast.AST) -> Value:
        """Return the value at a place among several: numbers, arrays, or tuples of them."""
        values = agreed(self, values, node)
        first = values[0]
        if isinstance(first, Group) and all(
            isinstance(v, Group) and len(v.items) == len(first.items) and v.kind is first.kind
            for v in values
        ):
            parts = zip(*(v.items for v in values), strict=True)
            items = tuple(self.among(list(p), key, node) for p in parts)
            found: Value = sliding_view.as_view(first.replace(items=items))
            return found
        numbers = [self.scalar(item, node) for item in values]
        d = reduce(unify, (number.dtype for number in numbers))
        return enums.at(key, [scalars.convert(number, d) for number in numbers])

    def read(self, view: Any, node: ast.AST) -> Value:
        """Return a part of an array: a scalar once no axis is left."""
        return kind_of(view).read(self, view, node)

    def write(self, view: Any, value: Value, node: ast.AST) -> None:
        """Store a scalar in an element, or in every element of a part of an array."""
        kind_of(view).write(self, view, value, node)

    def inline(self, function: Any, args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return what a device function gives: its body is read in place of the call."""
        raise self.wrong(node, "device functions are not supported here")

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.visit(node.value)
        self.env[node.target.id] = value
        return value


VISIT.update({
    ast.Constant: Expressions._constant, ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute, ast.BinOp: Expressions._binary,
    ast.UnaryOp: lambda c, node: short_circuit.unary(c, node),
    ast.Compare: lambda c, node: short_circuit.comparison(c, node),
    ast.BoolOp: lambda c, node: short_circuit.both(c, node),
    ast.IfExp: lambda c, node: short_circuit.either(c, node),
    ast.Tuple: Expressions._tuple, ast.List: Expressions._tuple,
    ast.Subscript: Expressions._subscript, ast.NamedExpr: Expressions._walrus,
})  # fmt: skip
