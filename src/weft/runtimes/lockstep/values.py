"""Operations on all threads at once: the meaning of `interpret_scalar` on NumPy arrays.

A value is an array with one element for each thread, or with one element where it is the same for
all of them. Floats of less than 32 bits are held as float32 and are rounded to their own type after
each operation. What NumPy does not compute to the last bit as the scalar interpreter does, that
interpreter computes, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.interpret import interpret_scalar as scalar
from weft.ir.interpret.interpret_code import literal
from weft.ir.interpret.interpret_value import converter
from weft.ir.op import Op, Operation
from weft.ir.stmt import Stmt

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Array", "Formula", "Mark", "constant", "held", "to_stored", "vector"]

Array = np.ndarray[Any, Any]
Vector = Callable[..., Array]
Mark = tuple[Array, Stmt]  # the threads in which a value is marked, and what marked it

_FIRST_BIT: Final = 1 << 24  # integers below it are exact in float32


@cache
def held(d: DType) -> np.dtype[Any]:
    """Return the NumPy dtype in which values of a type are held."""
    if d.is_float and d.bits < 32:
        return np.dtype(np.float32)
    return d.numpy


def constant(value: Any, d: DType) -> Array:
    """Return a value that is the same for all threads."""
    return np.array([literal(value, d)], held(d))


def to_stored(value: Array, d: DType) -> Array:
    """Return held values as the elements of an array of their type."""
    return value.astype(d.numpy, copy=False)


def _rounded(value: Array, d: DType) -> Array:
    """Round float32 values to a narrower type."""
    return value.astype(d.numpy).astype(np.float32)


def _one_by_one(fn: Callable[..., Any], result: DType) -> Vector:
    """Return a function of scalars as a function of arrays."""
    kind = held(result)

    def run(*args: Array) -> Array:
        if len(args) > 1:
            args = tuple(np.broadcast_arrays(*args))
        return np.array(list(map(fn, *(a.tolist() for a in args))), kind)

    return run


# integers


def _shift_left(bits: int) -> Vector:
    def run(x: Array, y: Array) -> Array:
        inside = (y >= 0) & (y < bits)
        return np.where(inside, x << np.where(inside, y, y.dtype.type(0)), x.dtype.type(0))

    return run


def _shift_right(bits: int) -> Vector:
    def run(x: Array, y: Array) -> Array:
        inside = (y >= 0) & (y < bits)
        return np.where(inside, x >> np.where(inside, y, y.dtype.type(0)),
                        np.where(x < 0, ~x.dtype.type(0), x.dtype.type(0)))

    return run


def _quotient(x: Array, y: Array) -> Array:
    zero, one = x.dtype.type(0), x.dtype.type(1)
    if y.dtype.kind == "u":
        return np.where(y == 0, zero, x // np.where(y == 0, one, y))
    plain = (y == 0) | (y == -1)
    return np.where(y == 0, zero, np.where(y == -1, -x, x // np.where(plain, one, y)))


def _rest(ufunc: Any) -> Vector:
    def run(x: Array, y: Array) -> Array:
        zero, one = x.dtype.type(0), x.dtype.type(1)
        plain = y == 0 if y.dtype.kind == "u" else (y == 0) | (y == -1)
        rest: Array = np.where(plain, zero, ufunc(x, np.where(plain, one, y)))
        return rest

    return run


def _integer(op: Operation, d: DType) -> Vector | None:
    table: dict[Operation, Vector] = {
        Op.NEG: np.negative, Op.NOT: np.invert, Op.ABS: np.abs, Op.ADD: np.add,
        Op.SUB: np.subtract, Op.MUL: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum,
        Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
        Op.SHL: _shift_left(d.bits), Op.SHR: _shift_right(d.bits), Op.FLOORDIV: _quotient,
        Op.MOD: _rest(np.remainder), Op.FMOD: _rest(np.fmod),
    }  # fmt: skip
    return table.get(op)


_BOOL: Final[dict[Operation, Vector]] = {
    Op.NOT: np.logical_not, Op.MIN: np.logical_and, Op.MAX: np.logical_or,
    Op.AND: np.logical_and, Op.OR: np.logical_or, Op.XOR: np.logical_xor,
}  # fmt: skip
_COMPARE: Final[dict[Operation, Vector]] = {
    Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal,
}  # fmt: skip


# floats


def _minimum(x: Array, y: Array) -> Array:
    return np.where(x == y, np.where(np.signbit(x), x, y), np.minimum(x, y))


def _maximum(x: Array, y: Array) -> Array:
    return np.where(x == y, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z of float32 values, rounded once: by way of float64, rounded to odd."""
    product = x.astype(np.float64) * y
    total = product + z
    part = total - product
    error = (product - (total - part)) + (z - part)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (total != 0) & (bits & 1 == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + away, bits).view(np.float64).astype(np.float32)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a sum and what rounding took from it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return a product and what rounding took from it, by halves of 26 bits."""

    def halves(v: Array) -> tuple[Array, Array]:
        scaled = v * 134217729.0  # 2**27 + 1
        high = scaled - (scaled - v)
        return high, v - high

    product = x * y
    (a, b), (c, d) = halves(x), halves(y)
    return product, b * d - (((product - a * c) - b * c) - a * d)


def _fused_double(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z of float64 values, rounded once.

    Product and sum are computed with what rounding takes from them, and the rests added with
    rounding to odd (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
    What comes near the ends of the range is computed one by one.
    """
    product, low = _product(x, y)
    first, second = _sum(z, low)
    high, third = _sum(product, first)
    rest, error = _sum(second, third)
    bits = rest.view(np.int64)
    away = np.where((error > 0) == (rest > 0), 1, -1)
    odd = np.where((error != 0) & (rest != 0) & (bits & 1 == 0), bits + away, bits)
    found = high + odd.view(np.float64)
    size = np.abs(product)
    safe = (size > _LEAST) & (size < _MOST) & (np.abs(x) < _HALF) & (np.abs(y) < _HALF) & (
        (z == 0) | ((np.abs(z) > _LEAST) & (np.abs(z) < _MOST)))
    if np.all(safe):
        return np.asarray(found)
    zero = (x == 0) | (y == 0)  # the product is exact
    found = np.where(zero, x * y + z, found)
    rest = ~(safe | zero)
    if np.any(rest):
        x, y, z, rest = np.broadcast_arrays(x, y, z, rest)
        slow = _one_by_one(scalar.function(Op.MAD, dt.float64, dt.float64), dt.float64)
        found = np.array(np.broadcast_to(found, rest.shape))
        found[rest] = slow(x[rest], y[rest], z[rest])
    return found


# Numbers between these can be split and multiplied with all their bits in float64.
_LEAST: Final = 2.0**-800
_MOST: Final = 2.0**900
_HALF: Final = 2.0**500

_EXACT: Final[dict[Operation, Vector]] = {  # their results need no rounding
    Op.NEG: np.negative, Op.ABS: np.abs, Op.FLOOR: np.floor, Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc, Op.ROUND: np.rint, Op.COPYSIGN: np.copysign, Op.MIN: _minimum,
    Op.MAX: _maximum,
}  # fmt: skip
_ROUNDED: Final[dict[Operation, Vector]] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide,
    Op.SQRT: np.sqrt, Op.RECIPROCAL: np.reciprocal,
}  # fmt: skip


def _float(op: Operation, d: DType) -> Vector | None:
    if op in _EXACT:
        return _EXACT[op]
    found = _ROUNDED.get(op)
    if op is Op.MAD:
        found = _fused if d.bits < 64 else _fused_double
    if found is None or d.bits >= 32:
        return found
    wide = found
    return lambda *args: _rounded(wide(*args), d)


# conversion


def _saturated(target: DType) -> Vector:
    kind = target.numpy
    low, above = float(target.min), float(int(target.max) + 1)

    def run(x: Array) -> Array:
        whole = np.trunc(x.astype(np.float64))
        inside = (whole >= low) & (whole < above)
        out = np.where(inside, whole, 0.0).astype(kind)
        out = np.where(whole >= above, kind.type(int(target.max)), out)
        return np.where(whole < low, kind.type(int(target.min)), out)

    return run


def _cast(source: DType, target: DType) -> Vector:
    kind = held(target)
    if target.is_bool:
        return lambda x: x != 0
    if not target.is_float:
        if source.is_float:
            return _saturated(target)
        return lambda x: x.astype(kind)
    if target.bits >= 32:
        return lambda x: x.astype(kind)
    slow = _one_by_one(converter(source, target), target)
    if source.is_float:
        if source.exponent <= target.exponent and source.mantissa <= target.mantissa:
            return lambda x: x.astype(np.float32)
        return slow if source.bits == 64 else lambda x: _rounded(x, target)

    def run(x: Array) -> Array:
        if source.bits > 16 and np.any((x >= _FIRST_BIT) | (x.astype(np.int64) <= -_FIRST_BIT)):
            return slow(x)
        return _rounded(x.astype(np.float32), target)

    return run


def _bitcast(source: DType, target: DType) -> Vector:
    def run(x: Array) -> Array:
        stored = np.ascontiguousarray(to_stored(x, source)).view(target.numpy)
        return stored.astype(held(target), copy=False)

    return run


def _select(c: Array, x: Array, y: Array) -> Array:
    return np.where(c, x, y)


@cache
def vector(op: Operation, operand: DType, result: DType) -> Vector:
    """Return an elementwise op as a function of arrays; see `function`.

    It may be called with NumPy's warnings switched off only.
    """
    if op is Op.WHERE:
        return _select
    if op is Op.CAST:
        return _cast(operand, result)
    if op is Op.BITCAST and not (operand.is_bool or result.is_bool):
        return _bitcast(operand, result)
    if op in _COMPARE:
        return _COMPARE[op]
    found = (_BOOL.get(op) if operand.is_bool else
             _integer(op, operand) if operand.is_integer else _float(op, operand))
    return found or _one_by_one(scalar.function(op, operand, result), result)


class Formula:
    """Some expressions in the order in which they are computed, each part once.

    Attributes
    ----------
    count : int
        Operations that it takes.
    """

    __slots__ = ("_constants", "_names", "_results", "_size", "_steps", "count")

    def __init__(self, roots: Sequence[Expr], variables: Mapping[str, int]) -> None:
        slots: dict[Expr, int] = {}
        self._constants: list[tuple[int, Array]] = []
        self._names: list[tuple[int, Expr]] = []
        self._steps: list[tuple[Vector, tuple[int, ...], int]] = []
        for e in ex.toposort(roots):
            slot = slots[e] = len(slots)
            if e.op is Op.VAR:
                self._names.append((slot, e))
            elif e.op is Op.VARIABLE:
                self._constants.append((slot, constant(variables[e.attr.name], dt.int64)))
            elif e.op is Op.CONST:
                self._constants.append((slot, constant(e.attr, e.dtype)))
            elif e.lanes != 1 or not e.args:
                raise VerifyError("interpret", found=f"{e!r} in a kernel of threads",
                                  expected="operations on scalars")
            else:
                self._steps.append((vector(e.op, e.args[-1].dtype, e.dtype),
                                    tuple(slots[a] for a in e.args), slot))
        self._results = tuple(slots[r] for r in roots)
        self._size, self.count = len(slots), len(self._steps)

    def __call__(self, names: Mapping[Expr, Array]) -> list[Array]:
        """Return the values of the expressions, given those of the names."""
        values = self._all(names)
        return [values[r] for r in self._results]

    def _all(self, names: Mapping[Expr, Array]) -> list[Any]:
        values: list[Any] = [None] * self._size
        for slot, known in self._constants:
            values[slot] = known
        for slot, name in self._names:
            values[slot] = names[name]
        for fn, args, slot in self._steps:
            values[slot] = fn(*[values[a] for a in args])
        return values

    def marks(self, names: Mapping[Expr, Array],
              known: Mapping[Expr, Mark]) -> list[Mark | None]:  # fmt: skip
        """Return in which threads the expressions use something that is marked in names."""
        found: list[Mark | None] = [None] * self._size
        for slot, name in self._names:
            found[slot] = known.get(name)
        values = None
        for fn, args, slot in self._steps:
            given = [m for m in (found[a] for a in args) if m is not None]
            if not given:
                continue
            origin = given[0][1]
            if fn in (np.logical_and, np.logical_or):  # one side may decide, whatever the other is
                values = self._all(names) if values is None else values
                a, b = _masks(found, args)
                x, y = (values[k] != (fn is np.logical_or) for k in args)
                mask = (a & b) | (a & y) | (b & x)
            elif fn is _select:  # only what is chosen counts
                values = self._all(names) if values is None else values
                test, *sides = _masks(found, args)
                mask = test | np.where(values[args[0]], *sides)
            else:
                mask = np.logical_or.reduce([m[0] for m in given])
            found[slot] = mask, origin
        return [found[r] for r in self._results]


def _masks(marks: Sequence[Mark | None], slots: Sequence[int]) -> list[Any]:
    """Return in which threads some values are marked."""
    return [np.False_ if m is None else m[0] for m in (marks[k] for k in slots)]
