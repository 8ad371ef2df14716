"""What named tuples and dataclasses say of themselves: their methods, and operators among them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import array_union, scalars
from weft.lang.core.element_types import ComplexOf, TimeOf, is_text
from weft.lang.core.emitter import negation
from weft.lang.core.hints import closest, unindexed
from weft.lang.core.indexing import Held, written_out
from weft.lang.core.kind import GROUPS, THINGS, Kind, kind_of
from weft.lang.core.operators import compare
from weft.lang.core.values import (
    FIXED,
    Fields,
    Fragment,
    Group,
    Known,
    Value,
    View,
    describe,
    described,
    is_tuple,
)
from weft.lang.values import overload_hooks

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import constants
else:
    constants = Late("weft.lang.values.constants")

__all__ = ["GroupKind", "KnownKind", "called", "get_attribute", "has_attribute", "is_instance",
           "is_refusal", "method"]  # fmt: skip

_NAMES: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.MatMult: "matmul",
}  # fmt: skip
_TESTS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {  # what is asked of the left, of the right
    ast.Lt: ("__lt__", "__gt__"), ast.LtE: ("__le__", "__ge__"), ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"), ast.Eq: ("__eq__", "__eq__"), ast.NotEq: ("__ne__", "__ne__"),
}  # fmt: skip
_OF_ARRAYS: Final = frozenset((
    "T", "all", "any", "argmax", "argmin", "astype", "clip", "conj", "conjugate", "copy", "ctypes",
    "cumprod", "cumsum", "dot", "dtype", "fill", "flags", "flat", "flatten", "item", "itemsize",
    "max", "mean", "min", "nbytes", "ndim", "nonzero", "prod", "ravel", "repeat", "reshape",
    "shape", "size", "sort", "std", "strides", "sum", "take", "transpose", "var", "view",
))  # fmt: skip
_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__",
}  # fmt: skip
_STRICT: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Lt, ast.LtE: ast.Lt, ast.Gt: ast.Gt, ast.GtE: ast.Gt,
}  # fmt: skip
_MOST_ITEMS: Final = 1 << 12  # of a tuple
_OF_TUPLES: Final = frozenset({"_make"})  # which collections.namedtuple writes, not the user
_CALLED: Final[dict[Any, str]] = {
    abs: "__abs__", bool: "__bool__", float: "__float__", int: "__int__", len: "__len__",
    round: "__round__",
}  # fmt: skip


def method(value: Value, name: str) -> Callable[..., Any] | None:
    """Return the method of a struct that its class writes in Python, None without one."""
    kind = _kind(value)
    found = None if kind is None else getattr(kind, name, None)
    if inspect.ismethod(found) and inspect.isfunction(found.__func__):  # of the class
        return found if not hasattr(tuple, name) and name not in _OF_TUPLES else None
    return found if inspect.isfunction(found) else None


def of_class(c: Context, function: Any, args: list[Value], named: dict[str, Value],
             node: ast.AST) -> Value:  # fmt: skip
    """Return what a method of a class gives."""
    found: Value = c.inline(function.__func__, [Known(function.__self__), *args], named, node)
    return found


def replaced(c: Context, owner: Group, args: list[Value], named: dict[str, Value],
             node: ast.AST) -> Value:  # fmt: skip
    """Return ``owner._replace(name=value)`` of a named tuple."""
    unknown = sorted(set(named) - set(owner.names))
    if args or unknown:
        raise c.wrong(node, f"_replace of {', '.join(unknown) or 'values without names'}",
                      f"its fields: {', '.join(owner.names)}")
    items = tuple(named.get(n, v) for n, v in zip(owner.names, owner.items, strict=True))
    return owner.replace(items=items)


def is_refusal(value: Value | None) -> bool:
    """Whether a method has left an operator to the other side."""
    return isinstance(value, Known) and value.value is NotImplemented


class GroupKind(Kind):
    """A tuple, a named tuple or a dataclass, whose class may say what operators mean.

    Other groups of numbers are kinds of their own, and in what they leave out like these.
    """

    rank = 1

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return what a struct says that is true, else whether a tuple has items."""
        said = _said(c, value, node)
        if said is not None:
            return c.truth(said, node)
        return bool(value.items) if is_tuple(value) else True

    def binary(self, c: Context, op: type[ast.operator], left: Any, right: Any,
               node: ast.AST) -> Value | None:  # fmt: skip
        """Return ``left op right`` by a method of one of the two, or of tuples."""
        name = _NAMES[op]
        asked = [(left, right, f"__i{name}__")] if isinstance(node, ast.AugAssign) else []
        asked.append((left, right, f"__{name}__"))
        if _kind(left) is not _kind(right):  # Python asks two of a class but once
            asked.insert(len(asked) - _is_derived(right, left), (right, left, f"__r{name}__"))
        found = _asked(c, asked, node)
        if found is not None:
            return found
        if op is ast.Add and is_tuple(left) and is_tuple(right):
            return Group(left.items + right.items)
        if op is ast.Mult and (is_tuple(left) or is_tuple(right)):
            return _repeated(c, left, right, node)
        return None

    def compare(self, c: Context, op: type[ast.cmpop], left: Any, right: Any,
                node: ast.AST) -> Value | None:  # fmt: skip
        """Return a comparison by a method of one of the two, or of tuples item by item."""
        if op not in _TESTS:
            return None
        first, second = _TESTS[op]
        before = _is_derived(right, left)
        if is_tuple(left) and is_tuple(right) and method(left, first) is None:
            found = _asked(c, [(right, left, second)], node) if before else None
            return _compare_tuples(c, op, left, right, node) if found is None else found
        made = [_is_made(left, first), _is_made(right, second)]
        if all(made) and _kind(left) is _kind(right):
            a, b = _compared(c, left, right, node)
            return compare(c, op, a, b, node)
        sides = [(left, right, first), (right, left, second)]
        written = [side for side, known in zip(sides, made, strict=True) if not known]
        if before:
            written.reverse()
        found = _asked(c, written, node)
        if found is None and op is ast.NotEq:
            found = _asked(c, [(owner, other, "__eq__") for owner, other, _ in written], node)
            found = None if found is None else compare(c, ast.Eq, found, Known(False), node)
        if found is None and any(made) and op in (ast.Eq, ast.NotEq):
            return Known(op is ast.NotEq)  # things of two classes
        return _compare_tuples(c, op, left, right, node) if found is None and (
            is_tuple(left) and is_tuple(right)) else found

    def contains(self, c: Context, owner: Any, item: Value, node: ast.AST) -> Value | None:
        """Return ``item in owner`` by a method of the owner, else whether it equals an item."""
        function = method(owner, "__contains__")
        if function is not None:
            held = c.truth(c.inline(function, [owner, item], {}, node), node)
            return Known(held) if isinstance(held, bool) else held
        found: Value = Known(False)
        for other in owner.items:
            same = compare(c, ast.Eq, item, other, node)
            if isinstance(same, Known) and isinstance(found, Known):
                found = Known(found.value or same.value)
            else:
                found = ex.binary(Op.OR, c.scalar(found, node), c.scalar(same, node))
        return found

    def unary(self, c: Context, op: type[ast.unaryop], value: Any, node: ast.AST) -> Value | None:
        """Return ``op value`` by a method of the value, None where it has none."""
        function = method(value, _SIGNS[op]) if op in _SIGNS else None
        return None if function is None else c.inline(function, [value], {}, node)


    def call(self, c: Context, callee: Any, node: ast.Call) -> Value:
        """Return what a struct gives that is called."""
        found = _called_itself(c, callee, node)
        return super().call(c, callee, node) if found is None else found

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return a field, or what a property computes."""
        if node.attr in owner.names:
            return c.field(owner, node.attr, node)
        made = getattr(owner.kind, node.attr, None)
        if isinstance(made, property) and inspect.isfunction(made.fget):
            return c.inline(made.fget, [owner], {}, node)
        hint = f"its fields: {', '.join(owner.names)}" if owner.names else FIXED
        raise c.wrong(node, f"{describe(owner)} has no field {node.attr!r}", hint)

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return the number of items."""
        return Known(len(value.items))

    def items(self, value: Any) -> tuple[Any, ...] | None:
        """Return the items."""
        found: tuple[Any, ...] = value.items
        return found

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return an item, or what a struct gives for an index."""
        function = method(owner, "__getitem__")
        if function is not None:
            return c.inline(function, [owner, c.visit(node.slice)], {}, node)
        if isinstance(node.slice, ast.Slice):
            ends = [None if e is None else c.visit(e)
                    for e in (node.slice.lower, node.slice.upper, node.slice.step)]
            if all(e is None or isinstance(e, Known) for e in ends):
                bounds = slice(*(e.value if isinstance(e, Known) else None for e in ends))
                return Group(owner.items[bounds])
            raise c.wrong(node, "a slice of a tuple must be known when the kernel is compiled")
        key = c.visit(node.slice)
        cut = written_out(key, node.slice)
        if cut is not None:
            given = ast.Subscript(node.value, cut, ast.Load())
            return self.index(c, owner, ast.copy_location(given, node))
        if isinstance(key, Known) and isinstance(key.value, int):
            if not -len(owner.items) <= key.value < len(owner.items):
                raise c.wrong(node, f"index {key.value} of a tuple of {len(owner.items)}")
            item: Value = owner.items[key.value]
            return item
        which = c.scalar(key, node, "an integer")
        if not owner.items or not which.dtype.is_integer:
            raise c.wrong(node, f"{describe(owner)} cannot be indexed by {describe(which)}")
        return c.among(list(owner.items), _place(c, which, len(owner.items), node), node)


class KnownKind(Kind):
    """What is known when the kernel is compiled."""

    def call(self, c: Context, callee: Any, node: ast.Call) -> Value:
        """Return what a call of a Python object means in a kernel."""
        found = _called_itself(c, callee, node)
        return c.call_object(callee.value, node) if found is None else found

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return the attribute of a Python object."""
        if node.attr == "type" and isinstance(owner.value, DType | ComplexOf | TimeOf):
            dtype: Value = owner  # called like the dtype
            return dtype
        try:
            value = getattr(owner.value, node.attr)
        except AttributeError:
            raise c.wrong(node, f"{described(owner.value)} has no {node.attr!r}",
                          closest(node.attr, dir(owner.value))) from None
        return c.outside(value, node)

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return the number of items of a text or a list."""
        if isinstance(value.value, str | list):
            return Known(len(value.value))
        return super().length(c, value, node)

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return what a Python object holds under a key; of a list also what is told later."""
        if isinstance(owner.value, list) and isinstance(node.slice, ast.Slice):
            listed = constants.listed(c, owner, node)
            return kind_of(listed).index(c, listed, node)
        key = c.visit(node.slice)
        if isinstance(key, Known):
            try:
                return c.outside(owner.value[key.value], node)
            except KeyError:
                raise c.wrong(node, f"{describe(owner)} has no key {key.value!r}") from None
            except Exception as error:
                raise c.wrong(node, f"{describe(owner)}: {error}", unindexed(owner)) from None
        if not isinstance(owner.value, list):
            return super().index(c, owner, node)
        if isinstance(key, Expr) and key.dtype.is_integer:
            key = _place(c, key, len(owner.value), node)
        given = ast.Subscript(node.value, Held(key, node.slice), ast.Load())
        listed = constants.listed(c, owner, node)
        return kind_of(listed).index(c, listed, ast.copy_location(given, node))

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return what a dataclass says that is true, else what Python says of it."""
        said = _said(c, value, node)
        return bool(value.value) if said is None else c.truth(said, node)


GROUPS[object] = GroupKind()
THINGS[object] = KnownKind()


def _called_itself(c: Context, callee: Value, node: ast.Call) -> Value | None:
    """Return what a struct gives that is called, None if it cannot be called."""
    function = method(callee, "__call__")
    if function is None:
        return None
    args, named = c.arguments(node)
    return c.inline(function, [callee, *args], named, node)


def _place(c: Context, key: Expr, size: int, node: ast.AST) -> Expr:
    """Return the place that an index names, which counts from the end below 0."""
    key, count = scalars.convert(key, dt.int64), ex.index(size)
    signed = c.ranges.of(key).lo < 0
    first = ex.index(-size if signed else 0)
    c.require(ex.binary(Op.AND, first.le(key), key.lt(count)), "index out of bounds",
              node, key, count)
    if not signed:
        return key
    return c.bind(ex.where(key.lt(0), key + count, key), "place", node)


def _said(c: Context, value: Value, node: ast.AST) -> Value | None:
    """Return what a struct says that is true where it is, None where it says nothing."""
    for name in ("__bool__", "__len__"):
        function = method(value, name)
        if function is not None:
            return c.inline(function, [value], {}, node)
    return None


def _repeated(c: Context, left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return a tuple times a number that is known, None for other operands."""
    group, count = (left, right) if isinstance(left, Group) else (right, left)
    times = count.value if isinstance(count, Known) else None
    if not isinstance(group, Group) or not isinstance(times, int | np.integer):
        return None
    if len(group.items) * int(times) > _MOST_ITEMS:
        raise c.wrong(node, f"a tuple of {len(group.items) * int(times)} items",
                      "gpu.local.array holds many numbers")
    return Group(group.items * int(times))


def _compare_tuples(c: Context, op: type[ast.cmpop], left: Group, right: Group,
                    node: ast.AST) -> Value | None:  # fmt: skip
    """Return a comparison of two tuples item by item."""
    if op in _STRICT:
        return _order(c, op, left, right, node)
    if len(left.items) != len(right.items):
        return Known(op is ast.NotEq)
    equal: Expr = ex.const(True, dt.bool_)
    for a, b in zip(left.items, right.items, strict=True):
        one = compare(c, ast.Eq, a, b, node)
        equal = ex.binary(Op.AND, equal, c.scalar(one, node))
    return equal if op is ast.Eq else negation(equal)


def _order(c: Context, kind: type[ast.cmpop], left: Group, right: Group,
           node: ast.AST) -> Value:  # fmt: skip
    """Return which of two tuples comes first: the first items that differ decide."""
    count = min(len(left.items), len(right.items))
    found: Value = compare(c, kind, Known(len(left.items)), Known(len(right.items)), node)
    for a, b in zip(left.items[:count][::-1], right.items[:count][::-1], strict=True):
        same = c.scalar(compare(c, ast.Eq, a, b, node), node)
        here = c.scalar(compare(c, _STRICT[kind], a, b, node), node)
        found = ex.binary(Op.OR, ex.binary(Op.AND, negation(same), here),
                          ex.binary(Op.AND, same, c.scalar(found, node)))
    return found


def called(c: Context, callee: Any, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of Python's finds by a method of a struct, None without one."""
    name = _CALLED.get(callee) if args and _kind(args[0]) is not None else None
    function = None if name is None else method(args[0], name)
    return None if function is None else c.inline(function, args, {}, node)


def is_instance(c: Context, node: ast.AST, value: Value, kinds: Value) -> Value:
    """Return ``isinstance(value, kinds)``, which is known when the kernel is compiled."""
    asked = kinds.items if isinstance(kinds, Group) else (kinds,)
    classes = tuple(k.value for k in asked if isinstance(k, Known) and isinstance(k.value, type))
    held = _class(value)
    if held is None or len(classes) < len(asked):
        raise c.wrong(node, f"isinstance of {describe(value)} and {describe(kinds)}",
                      "kernels tell numbers, tuples, structs and arrays apart, by their classes")
    return Known(issubclass(held, classes))


def has_attribute(c: Context, node: ast.AST, value: Value, name: Value) -> Value:
    """Return ``hasattr(value, name)``, which is known when the kernel is compiled."""
    if not isinstance(name, Known) or not isinstance(name.value, str):
        raise c.wrong(node, f"an attribute named by {describe(name)}", "a literal text names it")
    if name.value in getattr(value, "names", ()) or overload_hooks.has(value, name.value):
        return Known(True)
    if isinstance(value, View) or array_union.is_array_union(value) or (
        isinstance(value, Fields) and value.shape
    ):
        return Known(_array_has(value, name.value))
    return Known(hasattr(value.value if isinstance(value, Known) else _class(value), name.value))


def _array_has(value: Value, name: str) -> bool:
    """Whether arrays have an attribute for numba, which does not know all of NumPy's names."""
    if name in ("real", "imag"):  # of complex numbers they are the names of the parts
        return all(isinstance(array, View) and not array.dtype.is_bool
                   for array in array_union.options_of(value))
    if isinstance(value, Fragment) and name in ("num_elements", "x"):
        return True
    return name in _OF_ARRAYS


def get_attribute(c: Context, node: ast.Call, value: Value, name: Value,
                  *default: Value) -> Value:  # fmt: skip
    """Return ``getattr(value, name)``, or the default of a value that has no such attribute."""
    if len(default) > 1:
        raise c.wrong(node, "getattr takes two or three arguments")
    has: Any = has_attribute(c, node, value, name)
    if default and not has.value:
        return default[0]
    asked: Any = name
    return c.attribute(value, ast.copy_location(
        ast.Attribute(node.args[0], asked.value, ast.Load()), node))


def _class(value: Value) -> type | None:
    """Return the class that a value has in Python, None if it has none there."""
    if isinstance(value, Known):
        return type(value.value)
    if is_text(value) and isinstance(value, Group):
        return str if value.kind.letter == "U" else bytes
    if isinstance(value, Group):
        return value.kind if isinstance(value.kind, type) else None if value.kind else tuple
    if isinstance(value, View | Fields) and value.shape:
        return np.ndarray
    if not isinstance(value, Expr):
        return None
    d = value.dtype
    return bool if d.is_bool else float if d.is_float else int


def _kind(value: Value) -> type | None:
    kind = value.kind if isinstance(value, Group) else None
    if isinstance(value, Known) and _is_dataclass(value.value):
        kind = type(value.value)
    return kind if isinstance(kind, type) and kind is not complex else None


def _is_derived(value: Value, other: Value) -> bool:
    """Whether the class of a value is derived from that of another one: it is asked first."""
    kinds = [_kind(v) or (tuple if is_tuple(v) else None) for v in (value, other)]
    derived, base = kinds
    return derived is not base and derived is not None and base is not None and (
        issubclass(derived, base))


def _is_dataclass(value: object) -> bool:
    """As `dataclasses` has it, whose import takes a millisecond."""
    return hasattr(value if isinstance(value, type) else type(value), "__dataclass_fields__")


def _is_made(value: Value, name: str) -> bool:
    """Whether a comparison of a dataclass is the one that the decorator makes, of its fields."""
    kind = _kind(value)
    given = getattr(kind, "__dataclass_params__", None)
    if given is None or not (given.eq if name in ("__eq__", "__ne__") else given.order):
        return False
    found = method(value, name)
    if found is None and name == "__ne__":  # it is what the other is not
        found = method(value, "__eq__")
    return found is None or found.__code__.co_filename == "<string>"


def _compared(c: Context, left: Value, right: Value, node: ast.AST) -> list[Group]:
    """Return the fields of two dataclasses of one class that count when they are compared."""
    import dataclasses

    of: Any = _kind(left)
    names = [f.name for f in dataclasses.fields(of) if f.compare]
    return [Group(tuple(c.field(v, name, node) for name in names)) for v in (left, right)]


def _asked(c: Context, asked: list[tuple[Value, Value, str]], node: ast.AST) -> Value | None:
    for owner, other, name in asked:
        function = method(owner, name)
        if function is not None:
            found: Value = c.inline(function, [owner, other], {}, node)
            if not is_refusal(found):
                return found
    return None
