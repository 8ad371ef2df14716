"""Python's builtins in kernels: `range`, `len`, `max`, `print` and their like."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Print
from weft.lang.core import indexing, operators, scalar_math, scalars
from weft.lang.core.element_types import is_text, is_time
from weft.lang.core.intrinsics import Triple
from weft.lang.core.kind import kind_of
from weft.lang.core.promotion import unify
from weft.lang.core.values import (
    Fields,
    Group,
    Known,
    Range,
    Value,
    View,
    Walk,
    describe,
    is_flat,
    is_tuple,
)
from weft.lang.source.matching import ITEM_COUNT
from weft.lang.values import complex_numbers, structs
from weft.lang.values.ranges import iterations_of, range_of

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.library import pymath, reductions, sequence_functions
    from weft.lang.values import arrays, constants, iterators, strings, times
else:
    arrays = Late("weft.lang.values.arrays")
    constants = Late("weft.lang.values.constants")
    sequence_functions = Late("weft.lang.library.sequence_functions")
    iterators = Late("weft.lang.values.iterators")
    pymath = Late("weft.lang.library.pymath")
    reductions = Late("weft.lang.library.reductions")
    strings = Late("weft.lang.values.strings")
    times = Late("weft.lang.values.times")

__all__ = ["BUILTINS", "REDUCING_METHODS"]


def _slice(c: Context, node: ast.Call, first: Value, second: Value | None = None,
           third: Value | None = None) -> Value:  # fmt: skip
    """Return ``slice(stop)``, ``slice(start, stop)`` or ``slice(start, stop, step)``."""
    if second is None:
        first, second = Known(None), first
    return indexing.slice_of(first, second, Known(None) if third is None else third)


def _len(c: Context, node: ast.Call, value: Value) -> Value:
    """Return the number of items, or of rows."""
    return kind_of(value).length(c, value, node)


def _extreme(c: Context, node: ast.Call, *values: Value, largest: bool) -> Value:
    items = list(values)
    if len(items) == 1:
        only = constants.listed(c, items[0], node)
        if isinstance(only, View) and len(only.axes) == 1:
            return arrays.extreme(c, node, only, largest)
        row = kind_of(only).items(only)
        if row is not None:
            items = list(row)
        elif isinstance(only, Known) and isinstance(only.value, Range):
            return _extreme_of(c, node, only.value, largest)
        elif isinstance(only, Group) or c.number_of(only) is None:
            name = "max" if largest else "min"
            if isinstance(only, Known) and isinstance(only.value, Walk):
                raise c.wrong(node, f"{name} of enumerate or zip", "compare their items in a loop")
            largest_of = getattr(sequence_functions, name + "imum")
            return c.inline(largest_of, [_iterable(c, only, name, node)], {}, node)
    if not items:
        raise c.wrong(node, f"{'max' if largest else 'min'} of nothing")
    if all(isinstance(v, Known) for v in items):
        known = [v.value for v in items if isinstance(v, Known)]
        return Known(max(known) if largest else min(known))
    if any(map(is_time, items)):
        return times.extreme(c, items, "max" if largest else "min", node)
    if any(map(is_text, items)):
        return _extreme_text(c, node, items, largest)
    items = c.alike(items, True)
    found = c.scalar(items[0], node)
    for item in items[1:]:
        other = c.scalar(item, node)
        d = unify(found.dtype, other.dtype)
        if c.wraps and d.is_float:  # as on numba's GPUs, where a NaN gives way
            found = scalars.extreme(found, other, d, largest)
            continue
        found = (scalars.maximum if largest else scalars.minimum)(found, other, d)
    return found


def _extreme_text(c: Context, node: ast.Call, items: list[Value], largest: bool) -> Value:
    found = items[0]
    for item in items[1:]:
        test = operators.compare(c, ast.Gt if largest else ast.Lt, item, found, node)
        found = c.select(c.scalar(test, node), item, [], found, [], node)
    return found


def _max(c: Context, node: ast.Call, *values: Value) -> Value:
    return _extreme(c, node, *values, largest=True)


def _min(c: Context, node: ast.Call, *values: Value) -> Value:
    return _extreme(c, node, *values, largest=False)


def _extreme_of(c: Context, node: ast.Call, r: Range, largest: bool) -> Expr:
    """Return the largest or the smallest number of a range, which is the first or the last one."""
    turns = c.bind(iterations_of(c, r, node), "turns", node)
    c.require(turns.gt(0), f"ValueError: {'max' if largest else 'min'} of an empty range", node)
    last = r.start + (turns - 1) * r.step
    found = ex.maximum(r.start, last) if largest else ex.minimum(r.start, last)
    return scalars.convert(found, dt.uint64) if r.unsigned else found


def _abs(c: Context, node: ast.Call, value: Value) -> Value:
    if isinstance(value, Known):
        return Known(abs(value.value))
    if complex_numbers.is_complex(value):
        size = complex_numbers.function(c, "abs", value, node)
        assert size is not None
        return size
    if is_time(value):
        return times.size_of(c, value, node)
    x = c.scalar(value, node)
    if x.dtype.kind in "bu":
        return scalars.convert(x, dt.int8) if x.dtype.is_bool else x
    return ex.unary(Op.ABS, x)


def _dtype(c: Context, node: ast.Call, name: Value) -> Value:
    """Return ``np.dtype(name)`` of a text or a type."""
    if not isinstance(name, Known) or not isinstance(name.value, str | type | np.dtype):
        return Known(c.element_of(name, node))
    return Known(np.dtype(name.value))


def _is_nat(c: Context, node: ast.Call, value: Value) -> Value:
    if not is_time(value):
        raise c.wrong(node, f"numpy.isnat of {describe(value)}", "it is for times")
    found = times.function(c, "isnat", [value], node)
    assert found is not None
    return found


def _round(c: Context, node: ast.Call, value: Value, digits: Value | None = None) -> Value:
    x = c.scalar(value, node)
    if digits is None or (isinstance(digits, Known) and digits.value is None):
        return scalars.round_(x)
    if not x.dtype.is_float:
        raise c.wrong(node, "round of an integer to digits")
    if isinstance(digits, Known):
        return scalar_math.rounded(x, c.known_int(digits, node, "the number of digits"))
    places = scalars.convert(c.scalar(digits, node, "an integer"), dt.int64)
    found = c.inline(pymath.rounded, [scalars.convert(x, dt.float64), places], {}, node)
    return scalars.convert(c.scalar(found, node), x.dtype)


def _pow(c: Context, node: ast.Call, base: Value, exponent: Value) -> Value:
    return operators.operate(c, ast.Pow, base, exponent, node)


def _divmod(c: Context, node: ast.Call, a: Value, b: Value) -> Value:
    if not (isinstance(a, Known) and isinstance(b, Known)) and not is_time(a):
        x, y = c.alike([a, b])
        a, b = scalars.as_in_divmod(c.scalar(x, node), c.scalar(y, node))
    return Group((operators.operate(c, ast.FloorDiv, a, b, node),
                  operators.operate(c, ast.Mod, a, b, node)))


def _sum(c: Context, node: ast.Call, values: Value, start: Value | None = None) -> Value:
    total: Value = Known(0) if start is None else start
    values = constants.listed(c, values, node)
    if isinstance(values, View) and len(values.axes) == 1:
        found = arrays.total(c, node, values)
        return found if start is None else operators.operate(c, ast.Add, start, found, node)
    row = kind_of(values).items(values)
    if row is None:
        walked = _iterable(c, values, "sum", node)
        return c.inline(sequence_functions.total, [walked, total], {}, node)
    for item in row:
        total = operators.operate(c, ast.Add, total, item, node)
    return total


def _any(c: Context, node: ast.Call, values: Value) -> Value:
    return c.inline(sequence_functions.some, [_iterable(c, values, "any", node)], {}, node)


def _all(c: Context, node: ast.Call, values: Value) -> Value:
    return c.inline(sequence_functions.every, [_iterable(c, values, "all", node)], {}, node)


def _iterable(c: Context, value: Value, name: str, node: ast.AST) -> Value:
    """Return what a loop can go over, for a function of that name that has one."""
    value = constants.listed(c, value, node)
    walked = isinstance(value, Known) and isinstance(value.value, Range | Walk)
    if walked or iterators.is_iterator(value) or isinstance(value, Group) or (
        isinstance(value, View | Fields) and len(value.shape) == 1
    ):
        return value
    raise c.wrong(node, f"{name} of {describe(value)}",
                  "it is for arrays of one axis, tuples, range, enumerate and zip")


def _ord(c: Context, node: ast.Call, value: Value) -> Value:
    if isinstance(value, Known) and isinstance(value.value, str) and len(value.value) == 1:
        return Known(ord(value.value))
    if is_text(value) and isinstance(value, Group):
        return strings.ordinal(c, value, node)
    raise c.wrong(node, f"ord of {describe(value)}", "it is for a character")


def _tuple_of(c: Context, node: ast.Call, value: Value) -> Value:
    row = kind_of(value).items(value)
    if row is not None:
        return Group(row)
    raise c.wrong(node, f"a tuple of {describe(value)}")


def _enumerate(c: Context, node: ast.Call, iterable: Value, start: Value | None = None) -> Value:
    first = ex.index(0)
    if start is not None:
        first = scalars.convert(c.scalar(start, node, "an integer"), dt.int64)
    count = Known(Range(first, ex.index(1 << 62), ex.index(1)))
    return _walk(c, node, count, iterable)


def _truth(c: Context, node: ast.Call, value: Value) -> Value:
    found = c.truth(value, node)
    return Known(found) if isinstance(found, bool) else found


def _zip(c: Context, node: ast.Call, *values: Value, strict: Value | None = None) -> Value:
    del strict  # lengths that are unlike end the loop with the shortest
    return _walk(c, node, *values)


def _walk(c: Context, node: ast.Call, *parts: Value) -> Value:
    """Return things to walk through side by side, an iterator where ``next`` may ask for them."""
    walk = Known(Walk(parts))
    if not iterators.is_kept(c.source, node, parts):
        return walk
    return iterators.iterator_of(cast("Any", c), walk, node)


def _iter(c: Context, node: ast.Call, value: Value) -> Value:
    if is_flat(value):
        value = Known(arrays.elements(c, value))
    return iterators.iterator_of(cast("Any", c), constants.listed(c, value, node), node)


def _next(c: Context, node: ast.Call, value: Value) -> Value:
    return iterators.next_of(cast("Any", c), value, node)


def _print(c: Context, node: ast.Call, *values: Value) -> Value:
    parts: list[str] = []
    args: list[Expr] = []
    for value in values:
        parts.append(_shown(c, value, args, node, str))
    c.emit(Print(" ".join(parts) + "\n", tuple(args)), node)
    return Known(None)


def _shown(c: Context, value: Value, args: list[Expr], node: ast.AST,
           known: Callable[[Any], str]) -> str:  # fmt: skip
    """Return how a value is printed, with {} for each number, which goes to `args`."""
    if isinstance(value, Known) and isinstance(value.value, Triple):
        triple = value.value
        value = Group(tuple(c.outside(s, node) for s in (triple.x, triple.y, triple.z)))
    if isinstance(value, Group) and value.kind is None:
        inner = [_shown(c, v, args, node, repr) for v in value.items]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if isinstance(value, Known) and c.known_scalar(value.value) is None:
        return known(value.value).replace("{", "{{").replace("}", "}}")
    args.append(c.scalar(value, node))
    return "{}"


def _reduction(name: str) -> Callable[..., Value]:
    return lambda c, node, array: reductions.reduced(c, node, name, array)


REDUCING_METHODS: Final = frozenset(("sum", "prod", "mean", "var", "std", "min", "max", "argmin",
                                     "argmax", "any", "all", "ptp"))  # fmt: skip
_REDUCTIONS: Final = (*sorted(REDUCING_METHODS), "nansum", "nanprod", "nanmean", "nanvar", "nanstd",
                      "nanmin", "nanmax", "count_nonzero")  # fmt: skip

BUILTINS: Final[dict[Any, Callable[..., Value]]] = {
    range: range_of, slice: _slice, len: _len, max: _max, min: _min, abs: _abs,
    round: _round, pow: _pow, divmod: _divmod, sum: _sum, any: _any, all: _all,
    ord: _ord, iter: _iter, next: _next,
    tuple: _tuple_of, enumerate: _enumerate, zip: _zip, print: _print,
    isinstance: structs.is_instance, hasattr: structs.has_attribute,
    getattr: structs.get_attribute, breakpoint: lambda _, __: Known(None),
    operator.index: lambda c, node, value: c.scalar(value, node),
    **{getattr(np, name): _reduction(name) for name in _REDUCTIONS},
    np.ndindex: lambda c, node, *sizes: arrays.indices_of(c, node, *sizes),
    np.ndenumerate: lambda c, node, array: arrays.enumerated(c, node, array),
    np.nditer: lambda c, node, array: arrays.walked_together(c, node, array),
    np.transpose: lambda c, node, array: arrays.transposed(c, node, array),
    np.dtype: lambda c, node, name: _dtype(c, node, name),
    np.isnat: lambda c, node, value: _is_nat(c, node, value),
    np.datetime64: lambda c, node, *args: times.called(c, np.datetime64, list(args), node),
    np.timedelta64: lambda c, node, *args: times.called(c, np.timedelta64, list(args), node),
    type: lambda c, node, value: arrays.type_of(c, node, value),
    ITEM_COUNT: lambda _, __, value: Known(len(value.items) if is_tuple(value) else -1),
}  # fmt: skip


def _operators() -> None:
    """Let the functions of `operator` mean their operators."""
    binary = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "truediv": ast.Div,
              "floordiv": ast.FloorDiv, "mod": ast.Mod, "pow": ast.Pow, "and_": ast.BitAnd,
              "or_": ast.BitOr, "xor": ast.BitXor, "lshift": ast.LShift,
              "rshift": ast.RShift}  # fmt: skip
    unary = {"neg": ast.USub, "pos": ast.UAdd, "invert": ast.Invert, "inv": ast.Invert,
             "not_": ast.Not}  # fmt: skip
    compare = {"is_": ast.Is, "is_not": ast.IsNot, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt,
               "ge": ast.GtE, "eq": ast.Eq, "ne": ast.NotEq}  # fmt: skip
    for name, kind in binary.items():
        BUILTINS[getattr(operator, name)] = (
            lambda c, node, a, b, kind=kind: operators.operate(c, kind, a, b, node))
        in_place = getattr(operator, "i" + name.rstrip("_"), None)
        if in_place is not None:
            BUILTINS[in_place] = BUILTINS[getattr(operator, name)]
    for name, sign in unary.items():
        BUILTINS[getattr(operator, name)] = (
            lambda c, node, a, sign=sign: operators.negated(c, sign, a, node))
    BUILTINS.update({operator.abs: _abs, operator.truth: _truth, bool: _truth})
    BUILTINS[operator.contains] = (
        lambda c, node, a, b: operators.compare(c, ast.In, b, a, node))
    for name, test in compare.items():
        BUILTINS[getattr(operator, name)] = (
            lambda c, node, a, b, test=test: operators.compare(c, test, a, b, node))


_operators()
