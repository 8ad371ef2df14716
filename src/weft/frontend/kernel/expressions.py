"""Expressions of kernels: syntax to values, one method for each kind of node."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from weft.errors import DTypeError
from weft.frontend.kernel import scalars
from weft.frontend.kernel.emitter import Emitter, conjuncts, negation
from weft.frontend.kernel.intrinsics import Special
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Problems, Source, Stop
from weft.frontend.kernel.values import (
    Group,
    Known,
    Value,
    View,
    ViewAxis,
    Wrong,
    describe,
    whole,
)
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import If, Load, Memory, Store

__all__ = ["VISIT", "Expressions", "as_dtype"]

_NUMBERS: Final = (bool, int, float)
_SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip


def as_dtype(value: Any) -> DType | None:
    """Return the dtype that a Python object names: ours, NumPy's, or bool, int and float."""
    value = getattr(value, "__weft_dtype__", value)
    if isinstance(value, DType):
        return value
    if value in (bool, int, float):
        return dt.bool_ if value is bool else dt.int64 if value is int else dt.float64
    module = type(value).__module__ if not isinstance(value, type) else value.__module__
    if module in ("numpy", "numpy.dtypes", "ml_dtypes"):
        try:
            return dt.as_dtype(value)
        except DTypeError:
            return None
    return None


class Constant(NamedTuple):
    """A NumPy array from outside, as it was when the kernel was compiled."""

    memory: Memory
    array: Any
    node: ast.AST


class Expressions(Emitter):
    """Reads expressions in an environment of names.

    Attributes
    ----------
    env : dict of str to (Value or Memory)
        What the names of the function hold here; a register cell is read when its name is used.
    wraps : bool
        Whether a negative index counts from the end, as in NumPy.
    checked : bool
        Whether accesses are checked against the bounds.
    sanitised : bool
        Whether the kernel is written for the sanitiser, which finds wrong indices when it runs.
    """

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.env: dict[str, Value | Memory] = {}
        self.wraps = False
        self.checked = True
        self.sanitised = False
        self.specials: dict[str, Expr] = {}
        self.kept: list[Any] = []
        self.constants: dict[int, Constant] = {}  # by the identity of the array

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
            raise self.wrong(node, f"{_title(node)} is not supported in kernels")
        return method(self, node)

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
        raise self.wrong(node, f"expected {what}, found {describe(value)}")

    def known_scalar(self, value: Any) -> Expr | None:
        """Return a Python or NumPy number as a constant."""
        if isinstance(value, _NUMBERS) and type(value) in _NUMBERS:
            return scalars.literal(value)
        d = as_dtype(getattr(value, "dtype", None)) if hasattr(value, "item") else None
        if d is not None and getattr(value, "ndim", 1) == 0:
            return ex.const(value.item(), d)
        return None

    def number(self, node: ast.expr, d: DType | None = None) -> Expr:
        """Return an expression as a scalar, converted to a type if one is given."""
        found = self.scalar(self.visit(node), node)
        return found if d is None else scalars.convert(found, d)

    def condition(self, node: ast.expr) -> Expr | bool:
        """Return whether an expression is true: a bool scalar, or a bool that is known."""
        value = self.visit(node)
        if isinstance(value, Known) and self.known_scalar(value.value) is None:
            return bool(value.value)
        if isinstance(value, Known):
            return bool(value.value)
        if isinstance(value, Group):
            return bool(value.items)
        return scalars.truth(self.scalar(value, node, "a condition"))

    # --- leaves

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, complex | bytes):
            raise self.wrong(node, f"{type(node.value).__name__} values are not supported")
        if isinstance(node.value, int) and scalars.literal(node.value) is None:
            raise self.wrong(node, f"the integer {node.value} does not fit 64 bits")
        return Known(node.value)

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.env:
            held: Value = self.opened(self.env[node.id], node.id, node)
            if isinstance(held, Wrong):
                raise Stop
            return held
        known, value = self.source.lookup(node.id)
        if not known:
            hint = ""
            if node.id in self.assigned:
                hint = "it is set on some ways to this line only, or by values of unlike types"
            raise self.wrong(node, f"name {node.id!r} is not defined", hint)
        return self.outside(value, node)

    def opened(self, held: Any, name: str, node: ast.AST) -> Any:
        """Return what a name holds, after reading it if it lives in cells."""
        if isinstance(held, Memory):
            return self.get(held, name, node)
        if isinstance(held, Group):
            items = tuple(self.opened(v, name, node) for v in held.items)
            return Group(items, held.names, held.kind)
        return held

    def outside(self, value: Any, node: ast.AST) -> Value:
        """Return an object from outside of the kernel, frozen as it is now."""
        if isinstance(value, Special):
            return self.special(value, node)
        if not isinstance(value, type) and hasattr(value, "__array_interface__") and value.shape:
            return self.constant(value, node)
        if isinstance(value, tuple):
            names = getattr(type(value), "_fields", ())
            kind = type(value) if names else None
            return Group(tuple(self.outside(v, node) for v in value), tuple(names), kind)
        return Known(value)

    def constant(self, array: Any, node: ast.AST) -> Value:
        """Return a copy of a NumPy array that kernels can only read."""
        import numpy as np

        found = self.constants.get(id(array))
        if found is None:
            d = as_dtype(array.dtype)
            if d is None:
                raise self.wrong(node, f"an array of {array.dtype}", "a type that kernels lack")
            copy = np.array(array, dtype=d.numpy, order="C")
            shape = tuple(map(ex.index, copy.shape))
            memory = Memory(self.name("constant"), d, shape)
            self.kept.append(array)  # so that no other array takes its identity
            found = self.constants[id(array)] = Constant(memory, copy, node)
        return whole(found.memory, readonly=True)

    def special(self, value: Special, node: ast.AST) -> Value:
        """Return an index or a size of the launch."""
        if value.constant is not None:
            return ex.const(value.constant, dt.int32)
        found = self.specials.get(value.name)
        if found is None:
            raise self.wrong(node, f"{value.name} has no value in this kind of kernel")
        return scalars.coordinate(found)

    def _attribute(self, node: ast.Attribute) -> Value:
        owner = self.visit(node.value)
        if isinstance(owner, View):
            return self.view_attribute(owner, node)
        if isinstance(owner, Group):
            if node.attr in owner.names:
                item: Value = owner.items[owner.names.index(node.attr)]
                return item
            names = ", ".join(owner.names) or "none"
            raise self.wrong(node, f"{describe(owner)} has no field {node.attr!r}",
                             f"its fields: {names}")
        if isinstance(owner, Known):
            try:
                value = getattr(owner.value, node.attr)
            except AttributeError:
                where = getattr(owner.value, "__name__", None) or describe(owner)
                raise self.wrong(node, f"{where} has no {node.attr!r}") from None
            return self.outside(value, node)
        raise self.wrong(node, f"{describe(owner)} has no {node.attr!r}")

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
            return Known(view.memory.dtype)
        if node.attr == "itemsize":
            return Known(view.memory.dtype.itemsize)
        if node.attr == "T":
            return View(view.memory, view.starts, tuple(reversed(view.axes)), view.readonly)
        raise self.wrong(node, f"arrays in kernels have no {node.attr!r}",
                         "they have shape, size, ndim, dtype, itemsize and T")

    # --- operators

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.visit(node.left), self.visit(node.right)
        return self.operate(type(node.op), left, right, node)

    def operate(self, kind: type[ast.operator], left: Value, right: Value,
                node: ast.AST) -> Value:  # fmt: skip
        """Return ``left op right``."""
        if isinstance(left, Known) and isinstance(right, Known):
            try:
                return Known(scalars.KNOWN_BINARY[kind](left.value, right.value))
            except KeyError:
                pass
            except Exception as error:
                raise self.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
        if isinstance(left, Group) and isinstance(right, Group) and kind is ast.Add:
            return Group(left.items + right.items)
        a = self._operand(left, right, kind, node)
        b = self._operand(right, left, kind, node)
        try:
            return scalars.apply_binary(kind, a, b)
        except scalars.NoOperator:
            raise self.wrong(node, f"unsupported operands for {_SYMBOLS[kind]}: "
                             f"{describe(left)} and {describe(right)}") from None

    def _operand(self, value: Value, other: Value, kind: type[ast.AST], node: ast.AST) -> Expr:
        if isinstance(value, Wrong):
            raise Stop
        found = value if isinstance(value, Expr) else None
        if isinstance(value, Known):
            found = self.known_scalar(value.value)
        if found is None:
            hint = "index it to get a number: kernels compute on scalars" if isinstance(
                value, View) else ""
            raise self.wrong(node, f"unsupported operands for {_SYMBOLS[kind]}: "
                             f"{describe(value)} and {describe(other)}", hint)
        return found

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        kind = type(node.op)
        if isinstance(value, Known):
            try:
                return Known(scalars.KNOWN_UNARY[kind](value.value))
            except Exception as error:
                raise self.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
        if kind is ast.Not and isinstance(value, Group):
            return Known(not value.items)
        try:
            return scalars.apply_unary(kind, self.scalar(value, node))
        except scalars.NoOperator:
            raise self.wrong(node, f"unsupported operand for {_SYMBOLS[kind]}: "
                             f"{describe(value)}") from None

    def _compare(self, node: ast.Compare) -> Value:
        left = self.visit(node.left)
        result: Value | None = None
        for op, following in zip(node.ops, node.comparators, strict=True):
            right = self.visit(following)
            one = self.compare(type(op), left, right, node)
            if isinstance(one, Known) and not one.value:
                return one
            if result is None or (isinstance(result, Known) and result.value):
                result = one
            elif not isinstance(one, Known):
                both = (self.scalar(result, node), self.scalar(one, node))
                result = ex.binary(Op.AND, *both)
            left = right
        assert result is not None
        return result

    def compare(self, kind: type[ast.cmpop], left: Value, right: Value, node: ast.AST) -> Value:
        """Return one comparison."""
        if isinstance(left, Known) and isinstance(right, Known):
            try:
                return Known(bool(scalars.KNOWN_COMPARE[kind](left.value, right.value)))
            except Exception as error:
                raise self.wrong(node, f"{_SYMBOLS[kind]}: {error}") from None
        if kind in (ast.Is, ast.IsNot) and (_is_none(left) or _is_none(right)):
            return Known(kind is ast.IsNot)
        if isinstance(left, Group) and isinstance(right, Group) and kind in (ast.Eq, ast.NotEq):
            return self._compare_groups(kind, left, right, node)
        a, b = self._operand(left, right, kind, node), self._operand(right, left, kind, node)
        try:
            return scalars.apply_compare(kind, a, b)
        except scalars.NoOperator:
            raise self.wrong(node, f"unsupported operands for {_SYMBOLS[kind]}: "
                             f"{describe(left)} and {describe(right)}") from None

    def _compare_groups(self, kind: type[ast.cmpop], left: Group, right: Group,
                        node: ast.AST) -> Value:  # fmt: skip
        if len(left.items) != len(right.items):
            return Known(kind is ast.NotEq)
        equal: Expr = ex.const(True, dt.bool_)
        for a, b in zip(left.items, right.items, strict=True):
            one = self.compare(ast.Eq, a, b, node)
            equal = ex.binary(Op.AND, equal, self.scalar(one, node))
        return equal if kind is ast.Eq else negation(equal)

    def _bool(self, node: ast.BoolOp) -> Value:
        """Evaluate ``and`` and ``or``: what follows is evaluated only where it counts."""
        is_and = isinstance(node.op, ast.And)
        left = self.visit(node.values[0])
        for following in node.values[1:]:
            if isinstance(left, Known):
                if bool(left.value) != is_and:
                    return left
                left = self.visit(following)
                continue
            test = scalars.truth(self.scalar(left, node, "a condition"))
            left = self._second(test, following, is_and, node)
        return left

    def _second(self, test: Expr, following: ast.expr, is_and: bool, node: ast.AST) -> Value:
        holds = test if is_and else negation(test)
        with self.into(conjuncts(holds)) as body:
            right = self.visit(following)
            more = scalars.truth(self.scalar(right, following, "a condition"))
        op = Op.AND if is_and else Op.OR
        if not body:
            return ex.binary(op, test, more)
        cell = self.cell("both", dt.bool_, node)
        self.put(cell, ex.const(not is_and, dt.bool_), node)
        stored = Store(cell, (), more)
        self.locations[stored] = self.source.place(node)
        self.emit(If(holds, (*body, stored)), node)
        return self.get(cell, "both", node)

    def _choice(self, node: ast.IfExp) -> Value:
        test = self.condition(node.test)
        if isinstance(test, bool):
            return self.visit(node.body if test else node.orelse)
        with self.into(conjuncts(test)) as then:
            a = self.visit(node.body)
        with self.into(conjuncts(negation(test))) as orelse:
            b = self.visit(node.orelse)
        return self.select(test, a, then, b, orelse, node)

    def select(self, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
               node: ast.AST) -> Value:  # fmt: skip
        """Return one of two values, each of which may need statements of its own."""
        x, y = self.scalar(a, node), self.scalar(b, node)
        d = unify(x.dtype, y.dtype)
        x, y = scalars.convert(x, d), scalars.convert(y, d)
        if not then and not orelse:
            return ex.where(test, x, y)
        cell = self.cell("choice", d, node)
        stores = Store(cell, (), x), Store(cell, (), y)
        for stored in stores:
            self.locations[stored] = self.source.place(node)
        self.emit(If(test, (*then, stores[0]), (*orelse, stores[1])), node)
        return self.get(cell, "choice", node)

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
        if isinstance(owner, Group):
            return self._item(owner, node)
        if isinstance(owner, Known):
            key = self.visit(node.slice)
            if isinstance(key, Known):
                try:
                    return self.outside(owner.value[key.value], node)
                except Exception as error:
                    raise self.wrong(node, f"{describe(owner)}: {error}") from None
        if not isinstance(owner, View):
            raise self.wrong(node, f"{describe(owner)} cannot be indexed")
        return self.read(self.element(owner, node), node)

    def _item(self, owner: Group, node: ast.Subscript) -> Value:
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

    def element(self, view: View, node: ast.Subscript) -> View:
        """Return the part of a view that a subscript names: an element has no axes."""
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts: list[tuple[ast.expr, Value | None]] = []
        for key in keys:
            if isinstance(key, ast.Slice):
                parts.append((key, None))
                continue
            value = self.visit(key)
            items = value.items if isinstance(value, Group) else (value,)
            parts.extend((key, item) for item in items)
        return self.part(view, parts, node)

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
            raise self.wrong(node, f"{len(parts)} indices into an array of {len(view.axes)} axes")
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
        return View(view.memory, tuple(starts), tuple(axes), view.readonly)

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
        if step.op is not Op.CONST or step.attr < 1:
            raise self.wrong(key, "a slice in a kernel needs a positive step that is known")
        ends = []
        for end, default in ((key.lower, ex.index(0)), (key.upper, axis.extent)):
            e = default if end is None else self.number(end, dt.int64)
            if e is not default:
                known = e.op is Op.CONST
                if not known or e.attr < 0:
                    e = ex.where(e.lt(0), ex.maximum(e + axis.extent, 0), e)
                e = ex.minimum(e, axis.extent)
            ends.append(e)
        count = ex.maximum((ends[1] - ends[0] + (step - 1)) // step, 0)
        return ends[0], ViewAxis(count, axis.axis, axis.step * step)

    def read(self, view: View, node: ast.AST) -> Value:
        """Return a part of an array: a scalar once no axis is left."""
        if view.axes:
            return view
        var = self.fresh(view.memory.name, view.memory.dtype)
        self.emit(Load(var, view.memory, view.starts), node)
        return var

    def write(self, view: View, value: Value, node: ast.AST) -> None:
        """Store a scalar in an element, or in every element of a part of an array."""
        if view.readonly:
            raise self.wrong(node, f"{view.memory.name} is read-only")
        x = scalars.convert(self.scalar(value, node), view.memory.dtype)
        if view.axes:
            raise self.wrong(node, "an assignment to a whole array or slice",
                             "assign its elements in a loop")
        self.emit(Store(view.memory, view.starts, x), node)

    assigned: frozenset[str] = frozenset()  # all names that the function assigns

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.visit(node.value)
        self.env[node.target.id] = value
        return value

    def _joined(self, node: ast.JoinedStr) -> Value:
        raise self.wrong(node, "f-strings are not supported in kernels",
                         "print takes several arguments: print('x =', x)")


def _is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.value is None


def _title(node: ast.AST) -> str:
    names = {
        "Lambda": "lambda", "ListComp": "a list comprehension", "Dict": "a dict", "Set": "a set",
        "DictComp": "a dict comprehension", "SetComp": "a set comprehension", "Await": "await",
        "GeneratorExp": "a generator", "Yield": "yield", "YieldFrom": "yield from",
        "Slice": "a slice here", "Starred": "a starred value here",
    }  # fmt: skip
    return names.get(type(node).__name__, type(node).__name__)


VISIT: Final[dict[type[ast.AST], Callable[[Expressions, Any], Value]]] = {
    ast.Constant: Expressions._constant, ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute, ast.BinOp: Expressions._binary,
    ast.UnaryOp: Expressions._unary, ast.Compare: Expressions._compare,
    ast.BoolOp: Expressions._bool, ast.IfExp: Expressions._choice,
    ast.Tuple: Expressions._tuple, ast.List: Expressions._tuple,
    ast.Subscript: Expressions._subscript, ast.NamedExpr: Expressions._walrus,
    ast.JoinedStr: Expressions._joined,
}  # fmt: skip
