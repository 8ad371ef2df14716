"""What named tuples and dataclasses say of themselves: their methods, and operators among them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from weft.frontend.kernel import chosen, extended
from weft.frontend.kernel.elements import is_text
from weft.frontend.kernel.values import Fields, Fragment, Group, Known, Value, View, describe
from weft.ir.expr import Expr

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["called", "compare", "contains", "get_attribute", "has_attribute", "is_instance",
           "is_refusal", "is_tuple", "item", "method", "negated", "operate", "truth"]  # fmt: skip

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


def of_class(c: Expressions, function: Any, args: list[Value], named: dict[str, Value],
             node: ast.AST) -> Value:  # fmt: skip
    """Return what a method of a class gives."""
    found: Value = c.inline(function.__func__, [Known(function.__self__), *args], named, node)
    return found


def replaced(c: Expressions, owner: Group, args: list[Value], named: dict[str, Value],
             node: ast.AST) -> Value:  # fmt: skip
    """Return ``owner._replace(name=value)`` of a named tuple."""
    unknown = sorted(set(named) - set(owner.names))
    if args or unknown:
        raise c.wrong(node, f"_replace of {', '.join(unknown) or 'values without names'}",
                      f"its fields: {', '.join(owner.names)}")
    items = tuple(named.get(n, v) for n, v in zip(owner.names, owner.items, strict=True))
    return owner.replace(items=items)


def is_tuple(value: Value) -> TypeGuard[Group]:
    """Whether a value is a tuple for Python, named or not; dataclasses are none."""
    return isinstance(value, Group) and (
        value.kind is None or (isinstance(value.kind, type) and issubclass(value.kind, tuple)))


def is_refusal(value: Value | None) -> bool:
    """Whether a method has left an operator to the other side."""
    return isinstance(value, Known) and value.value is NotImplemented


def operate(c: Expressions, kind: type[ast.AST], left: Value, right: Value,
            node: ast.AST) -> Value | None:  # fmt: skip
    """Return ``left op right`` by a method of one of the two, None where neither has one."""
    name = _NAMES[kind]
    asked = [(left, right, f"__i{name}__")] if isinstance(node, ast.AugAssign) else []
    asked.append((left, right, f"__{name}__"))
    if _kind(left) is not _kind(right):  # Python asks two of a class but once
        asked.insert(len(asked) - _is_derived(right, left), (right, left, f"__r{name}__"))
    return _asked(c, asked, node)


def compare(c: Expressions, kind: type[ast.cmpop], left: Value, right: Value, node: ast.AST,
            plain: Callable[..., Value]) -> Value | None:  # fmt: skip
    """Return a comparison by a method of one of the two, None where neither has one.

    `plain` compares what is no struct.
    """
    if kind not in _TESTS:
        return None
    first, second = _TESTS[kind]
    before = _is_derived(right, left)
    if is_tuple(left) and is_tuple(right) and method(left, first) is None:
        return _asked(c, [(right, left, second)], node) if before else None  # as tuples
    made = [_is_made(left, first), _is_made(right, second)]
    if all(made) and _kind(left) is _kind(right):
        return plain(c, kind, *_compared(c, left, right, node), node)
    sides = [(left, right, first), (right, left, second)]
    written = [side for side, known in zip(sides, made, strict=True) if not known]
    if before:
        written.reverse()
    found = _asked(c, written, node)
    if found is None and kind is ast.NotEq:
        found = _asked(c, [(owner, other, "__eq__") for owner, other, _ in written], node)
        found = None if found is None else plain(c, ast.Eq, found, Known(False), node)
    if found is None and any(made) and kind in (ast.Eq, ast.NotEq):
        return Known(kind is ast.NotEq)  # things of two classes
    return found


def negated(c: Expressions, kind: type[ast.AST], value: Value, node: ast.AST) -> Value | None:
    """Return ``op value`` by a method of the value, None where it has none."""
    function = method(value, _SIGNS[kind]) if kind in _SIGNS else None
    return None if function is None else c.inline(function, [value], {}, node)


def called(c: Expressions, callee: Any, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of Python's finds by a method of a struct, None without one."""
    name = _CALLED.get(callee) if args and _kind(args[0]) is not None else None
    function = None if name is None else method(args[0], name)
    return None if function is None else c.inline(function, args, {}, node)


def is_instance(c: Expressions, node: ast.AST, value: Value, kinds: Value) -> Value:
    """Return ``isinstance(value, kinds)``, which is known when the kernel is compiled."""
    asked = kinds.items if isinstance(kinds, Group) else (kinds,)
    classes = tuple(k.value for k in asked if isinstance(k, Known) and isinstance(k.value, type))
    held = _class(value)
    if held is None or len(classes) < len(asked):
        raise c.wrong(node, f"isinstance of {describe(value)} and {describe(kinds)}",
                      "kernels tell numbers, tuples, structs and arrays apart, by their classes")
    return Known(issubclass(held, classes))


def has_attribute(c: Expressions, node: ast.AST, value: Value, name: Value) -> Value:
    """Return ``hasattr(value, name)``, which is known when the kernel is compiled."""
    if not isinstance(name, Known) or not isinstance(name.value, str):
        raise c.wrong(node, f"an attribute named by {describe(name)}", "a literal text names it")
    if name.value in getattr(value, "names", ()) or extended.has(value, name.value):
        return Known(True)
    if isinstance(value, View) or chosen.is_chosen(value) or (
        isinstance(value, Fields) and value.shape
    ):
        return Known(_array_has(value, name.value))
    return Known(hasattr(value.value if isinstance(value, Known) else _class(value), name.value))


def _array_has(value: Value, name: str) -> bool:
    """Whether arrays have an attribute for numba, which does not know all of NumPy's names."""
    if name in ("real", "imag"):  # of complex numbers they are the names of the parts
        return all(isinstance(array, View) and not array.dtype.is_bool
                   for array in chosen.options_of(value))
    if isinstance(value, Fragment) and name in ("num_elements", "x"):
        return True
    return name in _OF_ARRAYS


def get_attribute(c: Expressions, node: ast.Call, value: Value, name: Value,
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


def truth(c: Expressions, value: Value, node: ast.AST) -> Value | None:
    """Return what a struct says that is true where it is, None where it says nothing."""
    for name in ("__bool__", "__len__"):
        function = method(value, name)
        if function is not None:
            return c.inline(function, [value], {}, node)
    return None


def item(c: Expressions, owner: Value, key: ast.expr, node: ast.AST) -> Value | None:
    """Return ``owner[key]`` by a method of the owner, None without one."""
    function = method(owner, "__getitem__")
    return None if function is None else c.inline(function, [owner, c.visit(key)], {}, node)


def contains(c: Expressions, owner: Value, value: Value, node: ast.AST) -> Value | None:
    """Return ``value in owner`` by a method of the owner, None without one."""
    function = method(owner, "__contains__")
    return None if function is None else c.inline(function, [owner, value], {}, node)


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


def _compared(c: Expressions, left: Value, right: Value, node: ast.AST) -> list[Group]:
    """Return the fields of two dataclasses of one class that count when they are compared."""
    import dataclasses

    of: Any = _kind(left)
    names = [f.name for f in dataclasses.fields(of) if f.compare]
    return [Group(tuple(c.field(v, name, node) for name in names)) for v in (left, right)]


def _asked(c: Expressions, asked: list[tuple[Value, Value, str]], node: ast.AST) -> Value | None:
    for owner, other, name in asked:
        function = method(owner, name)
        if function is not None:
            found: Value = c.inline(function, [owner, other], {}, node)
            if not is_refusal(found):
                return found
    return None
