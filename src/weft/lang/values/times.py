"""Times in kernels: elements of ``datetime64`` and ``timedelta64``.

A time is a count of a unit since 1970, or between two times: a group of one int64, whose kind is
the unit. So times live in cells, meet and return as tuples do, and an array of them is one of
int64. The least int64 stands for no time (NaT); it compares with nothing, and what is computed of
it is no time either. Units meet in the finer one, as in NumPy; years and months, which have no
fixed length, become days only as parts of a date.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import scalars
from weft.lang.core.element_types import TimeOf, is_time, time_of
from weft.lang.core.emitter import negation
from weft.lang.core.kind import SYMBOLS, unsupported
from weft.lang.core.values import Fields, Group, Known, Value, describe
from weft.lang.values.structs import GroupKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["KIND", "as_integer", "both", "called", "extreme", "function", "in_kind",
           "known", "read", "size_of", "stored"]  # fmt: skip

_NAT: Final = -(1 << 63)
_END: Final = 2.0**63  # counts are smaller
_UNITS: Final = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_FINER: Final = {"Y": ("M", 12), "W": ("D", 7), "D": ("h", 24), "h": ("m", 60), "m": ("s", 60),
                 **dict(zip(_UNITS[6:12], ((unit, 1000) for unit in _UNITS[7:]), strict=True))}
_ANY: Final = "generic"  # the unit of what was made without one
_LEAPS: Final = 1969 // 4 - 1969 // 100 + 1969 // 400  # years with a day more before 1970


def known(value: np.datetime64 | np.timedelta64) -> Group | None:
    """Return a time of NumPy's, None if its unit is several of one."""
    unit, count = np.datetime_data(value.dtype)
    if count != 1:
        return None
    return _group(ex.index(int(value.astype(np.int64))), time_of(value.dtype.kind, unit))


def _group(count: Expr, kind: TimeOf) -> Group:
    return Group((count,), (), kind)


def _parts(value: Any) -> tuple[Expr, TimeOf]:
    return value.items[0], value.kind


def _is_not(x: Expr) -> Expr:
    """Return whether a count stands for no time."""
    return x.eq(_NAT)


def _or_not(found: Expr, *given: Expr) -> Expr:
    """Return what was found, or no time where one of the counts is none."""
    for x in given:
        found = ex.where(_is_not(x), ex.index(_NAT), found)
    return found


# --- units


def _factor(unit: str, finer: str) -> int | None:
    """Return how many of a unit another one is, None where that is no number."""
    if unit == _ANY:
        return 1
    factor = 1
    while unit != finer:
        if unit not in _FINER:
            return None
        unit, count = _FINER[unit]
        factor *= count
    return factor


def _finest(a: str, b: str) -> str:
    """Return the finer of two units."""
    if _ANY in (a, b):
        return b if a == _ANY else a
    return max(a, b, key=_UNITS.index)


def _unit_of_both(a: TimeOf, b: TimeOf) -> str | None:
    """Return the unit in which two times meet, None if there is none."""
    unit = _finest(a.unit, b.unit)
    fits = all(k.letter == "M" or _factor(k.unit, unit) is not None for k in (a, b))
    return unit if fits else None


def _in_unit(x: Expr, kind: TimeOf, unit: str) -> Expr:
    """Return the count of a time in a finer unit; that of no time is no number then."""
    factor = _factor(kind.unit, unit)
    if factor is None:  # a date of years or months
        days = _days(x, kind.unit)
        if unit == "W":
            return days // 7
        factor = _factor("D", unit)
        assert factor is not None
        return days * factor
    return x * factor if factor > 1 else x


def _days(x: Expr, unit: str) -> Expr:
    """Return the days from 1970 to the first day of a year, or a month."""
    years = x if unit == "Y" else x // 12
    year = years + 1970
    before = year - 1
    days = years * 365 + (before // 4 - before // 100 + before // 400 - _LEAPS)
    if unit == "Y":
        return days
    month = x % 12
    leap = ex.binary(Op.AND, (year % 4).eq(0), ex.binary(
        Op.OR, (year % 100).ne(0), (year % 400).eq(0)))
    later = ((month - 2) * 153 + 2) // 5 + 59 + scalars.convert(leap, dt.int64)
    return days + ex.where(month.lt(2), month * 31, later)


def both(a: TimeOf, b: TimeOf) -> TimeOf | None:
    """Return the kind in which times of two kinds meet, None if there is none."""
    unit = _unit_of_both(a, b) if a.letter == b.letter else None
    return None if unit is None else time_of(a.letter, unit)


def in_kind(time: Any, kind: TimeOf) -> Group:
    """Return a time in the unit of a kind that is not coarser."""
    x, own = _parts(time)
    return time if own is kind else _group(_or_not(_in_unit(x, own, kind.unit), x), kind)


# --- operators


def _operate(c: Context, kind: type[ast.operator], left: Value, right: Value,
             node: ast.AST) -> Value | None:  # fmt: skip
    """Return ``left op right``, of which one is a time; None if times do not have the operator."""
    if is_time(left) and is_time(right):
        return _of_two(c, kind, left, right, node)
    if not is_time(left):
        left, right = right, left
        if kind is not ast.Mult:
            return None
    x, unit = _parts(left)
    number = c.number_of(right)
    if number is None or unit.letter == "M":
        return None
    x = c.bind(x, "count", node)
    if kind is ast.Mult:
        return _group(_or_not(_scaled(x, number, Op.MUL), x), unit)
    if kind in (ast.Div, ast.FloorDiv):
        number = c.bind(number, "number", node)
        there = number.ne(0) if not number.dtype.is_float else ex.binary(
            Op.AND, number.ne(0), number.eq(number))
        one = ex.const(1, number.dtype)
        found = _scaled(x, ex.where(there, number, one), Op.DIV)
        return _group(_or_not(ex.where(there, found, ex.index(_NAT)), x), unit)
    return None


def _scaled(x: Expr, number: Expr, op: Any) -> Expr:
    """Return a count times a number, or by it: in integers cut off at the point, as numba does."""
    if number.dtype.is_float:
        found = ex.binary(op, *(scalars.convert(v, dt.float64) for v in (x, number)))
        fits = ex.unary(Op.ABS, found).lt(_END)  # which a number that is none does not
        return ex.where(fits, scalars.convert(ex.where(fits, found, ex.const(0.0, dt.float64)),
                                              dt.int64), ex.index(_NAT))
    number = scalars.convert(number, dt.int64)
    if op is Op.MUL:
        return x * number
    found = x // number
    apart = ex.binary(Op.XOR, x.lt(0), number.lt(0))
    odd = (x % number).ne(0)
    return ex.where(ex.binary(Op.AND, apart, odd), found + 1, found)


def _of_two(c: Context, kind: type[ast.operator], left: Value, right: Value,
            node: ast.AST) -> Value | None:  # fmt: skip
    (a, first), (b, second) = _parts(left), _parts(right)
    unit = _unit_of_both(first, second)
    letters = first.letter + second.letter
    if unit is None or (letters != "mm" and kind not in (ast.Add, ast.Sub)) or (
        letters == "MM" and kind is ast.Add) or (letters == "mM" and kind is ast.Sub):
        return None
    a, b = c.bind(a, "count", node), c.bind(b, "count", node)
    x, y = _in_unit(a, first, unit), _in_unit(b, second, unit)
    if kind in (ast.Add, ast.Sub):
        found = x + y if kind is ast.Add else x - y
        letter = "M" if letters in ("Mm", "mM") else "m"
        return _group(_or_not(found, a, b), time_of(letter, unit))
    neither = ex.binary(Op.OR, _is_not(a), _is_not(b))
    if kind is ast.Div:
        quotient = ex.binary(Op.DIV, *(scalars.convert(v, dt.float64) for v in (x, y)))
        return ex.where(neither, ex.const(math.nan, dt.float64), quotient)
    none = ex.binary(Op.OR, neither, y.eq(0))
    divisor = ex.where(none, ex.index(1), y)
    if kind is ast.FloorDiv:
        return ex.where(none, ex.index(0), x // divisor)
    if kind is ast.Mod:
        return _group(ex.where(none, ex.index(_NAT), x % divisor), time_of("m", unit))
    return None


def _compare(c: Context, kind: type[ast.cmpop], left: Value, right: Value,
             node: ast.AST) -> Value | None:  # fmt: skip
    """Return a comparison of two times, None of anything else."""
    if not (is_time(left) and is_time(right)):
        return None
    (a, first), (b, second) = _parts(left), _parts(right)
    equality = kind in (ast.Eq, ast.NotEq)
    if first.letter != second.letter or kind in (ast.Is, ast.IsNot, ast.In, ast.NotIn):
        return None
    unit = _unit_of_both(first, second)
    if unit is None:
        return Known(kind is ast.NotEq) if equality else None
    a, b = c.bind(a, "count", node), c.bind(b, "count", node)
    op = ast.Eq if kind is ast.NotEq else kind
    found = scalars.apply_compare(op, _in_unit(a, first, unit), _in_unit(b, second, unit))
    for x in (a, b):
        found = ex.binary(Op.AND, found, x.ne(_NAT))
    return negation(found) if kind is ast.NotEq else found


class TimeKind(GroupKind):
    """A time; what operators mean for it."""

    rank = 4

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return whether a time is not 0."""
        return scalars.truth(c.scalar(value.items[0], node))

    def binary(self, c: Context, op: type[ast.operator], left: Any, right: Any,
               node: ast.AST) -> Value:  # fmt: skip
        """Return ``left op right``."""
        found = _operate(c, op, left, right, node)
        if found is None:
            raise unsupported(c, op, left, right, node)
        return found

    def compare(self, c: Context, op: type[ast.cmpop], left: Any, right: Any,
                node: ast.AST) -> Value:  # fmt: skip
        """Return a comparison."""
        found = _compare(c, op, left, right, node)
        if found is None:
            raise unsupported(c, op, left, right, node)
        return found

    def unary(self, c: Context, op: type[ast.unaryop], value: Any, node: ast.AST) -> Value:
        """Return ``op value`` of a difference."""
        x, unit = _parts(value)
        if unit.letter == "M" or op not in (ast.USub, ast.UAdd):
            raise c.wrong(node, f"unsupported operand for {SYMBOLS[op]}: {describe(value)}")
        return _group(ex.unary(Op.NEG, x), unit) if op is ast.USub else value

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a time in the unit of others, which is not coarser."""
        return in_kind(value, like.kind) if is_time(value) else value


KIND = TimeKind()


# --- functions


def size_of(c: Context, value: Value, node: ast.AST) -> Value:
    """Return ``abs(value)`` of a difference."""
    x, unit = _parts(value)
    if unit.letter == "M":
        raise c.wrong(node, f"abs of {describe(value)}", "differences of times have one")
    return _group(ex.where(x.lt(0), ex.unary(Op.NEG, x), x), unit)


def extreme(c: Context, values: list[Value], name: str, node: ast.AST) -> Value:
    """Return the smaller or the larger of times: ``max``, or what NumPy calls so.

    With ``maximum`` no time wins, with ``fmax`` any time does.
    """
    found = values[0]
    for other in values[1:]:
        test = _compare(c, ast.Gt if "max" in name else ast.Lt, other, found, node)
        if test is None:
            raise c.wrong(node, f"{name} of {describe(found)} and {describe(other)}",
                          "of times of one kind, whose units meet")
        (a, first), (b, second) = _parts(found), _parts(other)
        unit = _finest(first.unit, second.unit)
        x, y = (_or_not(_in_unit(v, kind, unit), v) for v, kind in ((a, first), (b, second)))
        if name in ("maximum", "minimum"):
            held = _or_not(ex.where(c.scalar(test, node), y, x), a, b)
        elif name in ("fmax", "fmin"):
            held = ex.where(ex.binary(Op.OR, _is_not(a), c.scalar(test, node)), y, x)
        else:
            held = ex.where(c.scalar(test, node), y, x)
        found = _group(held, time_of(first.letter, unit))
    return found


def function(c: Context, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """Return what a function of NumPy gives for times, None if it is an operator, or not there."""
    if name in ("maximum", "minimum", "fmax", "fmin") and all(map(is_time, args)):
        return extreme(c, args, name, node)
    if len(args) != 1:
        return None
    x, unit = _parts(args[0])
    if name in ("isnat", "isnan"):
        return _is_not(x)
    if name == "isfinite":
        return x.ne(_NAT)
    if name == "isinf":
        return Known(False)
    if name == "absolute":
        return size_of(c, args[0], node)
    if name == "sign" and unit.letter == "m":
        one = ex.where(x.gt(0), ex.index(1), ex.where(x.lt(0), ex.index(-1), ex.index(0)))
        return _group(_or_not(one, x), unit)
    return None


def called(c: Context, callee: Any, args: list[Value], node: ast.AST) -> Value:
    """Return ``np.datetime64(...)`` or ``np.timedelta64(...)``, or a time of a unit."""
    if isinstance(callee, TimeOf):
        args = [*args, Known(callee.unit)]
        callee = np.datetime64 if callee.letter == "M" else np.timedelta64
    letter = "M" if callee is np.datetime64 else "m"
    if all(isinstance(a, Known) for a in args):
        try:
            made: Any = callee(*(a.value for a in args if isinstance(a, Known)))
        except (TypeError, ValueError) as error:
            raise c.wrong(node, f"numpy.{callee.__name__}: {error}") from None
        return c.outside(made, node)
    unit = args[1].value if len(args) == 2 and isinstance(args[1], Known) else _ANY
    if not 1 <= len(args) <= 2 or unit not in (*_UNITS, _ANY):
        raise c.wrong(node, f"numpy.{callee.__name__} of {', '.join(map(describe, args))}",
                      f"a number and a unit: {', '.join(_UNITS)}")
    if is_time(args[0]):
        kind = _parts(args[0])[1]
        return _group(stored(c, args[0], time_of(
            letter, kind.unit if len(args) == 1 else unit), node), time_of(letter, unit))
    x = c.scalar(args[0], node, "an integer")
    if x.dtype.is_float or (letter == "M" and unit == _ANY):
        raise c.wrong(node, f"numpy.{callee.__name__} of {describe(x)}",
                      "an integer, and a unit: " + ", ".join(_UNITS))
    return _group(scalars.convert(x, dt.int64), time_of(letter, unit))


def as_integer(c: Context, value: Value, d: DType, node: ast.AST) -> Expr:
    """Return the count of a time as an integer of 64 bits."""
    if not d.is_integer or d.bits != 64:
        raise c.wrong(node, f"cannot cast {describe(value)} to {d.name}",
                      "a time is an integer of 64 bits: convert it to int64 first")
    return scalars.convert(_parts(value)[0], d)


# --- arrays


def read(c: Context, array: Fields, node: ast.AST) -> Group:
    """Return an element of an array of times."""
    kind: Any = array.kind
    return _group(c.scalar(c.read(array.parts[0], node), node), kind)


def stored(c: Context, value: Value, kind: TimeOf, node: ast.AST) -> Expr:
    """Return the count of a time in the unit of an array, which must not be coarser."""
    if not is_time(value):
        raise c.wrong(node, f"cannot store {describe(value)} in an array of {kind.__name__}",
                      f"make it one: numpy.{kind.__name__.partition('[')[0]}(x, {kind.unit!r})")
    x, own = _parts(value)
    fits = own.letter == kind.letter and (
        kind.unit in (_ANY, own.unit) or (_unit_of_both(own, kind) == kind.unit))
    if not fits:
        raise c.wrong(node, f"cannot store {describe(value)} in an array of {kind.__name__}",
                      "units become finer, not coarser")
    if own.unit == kind.unit or kind.unit == _ANY:
        return x
    x = c.bind(x, "count", node)
    return _or_not(_in_unit(x, own, kind.unit), x)
