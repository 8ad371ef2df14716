"""Expressions of builders, and what they do with arrays and variables."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any, Final

from weft.errors import outermost_methods
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.lang.builder.base import Base, Device
from weft.lang.builder.places import At, Place
from weft.lang.builder.values import Array, Scalar, Variable
from weft.lang.core import operators, scalars
from weft.lang.core.intrinsics import Intrinsic
from weft.lang.core.values import Group, Known, Value, View
from weft.lang.device import gpu
from weft.lang.device.shared_memory import array_in

__all__ = ["Operations"]

_BINARY: Final[dict[str, type[ast.AST]]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod,
    "**": ast.Pow, "<<": ast.LShift, ">>": ast.RShift, "&": ast.BitAnd, "|": ast.BitOr,
    "^": ast.BitXor, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq,
    "!=": ast.NotEq,
}  # fmt: skip
_UNARY: Final[dict[str, type[ast.AST]]] = {
    "-": ast.USub, "+": ast.UAdd, "~": ast.Invert, "not": ast.Not}
_BUILTINS: Final[dict[str, Any]] = {"min": min, "max": max, "abs": abs, "round": round}
_MATH: Final = frozenset(n for n in dir(math) if callable(getattr(math, n)))
# Intrinsics that mean something without threads beside this one.
_ALONE: Final = frozenset({"brev", "clz", "ffs", "fma", "popc", "rsqrt", "cbrt", "selp"})


@outermost_methods
class Operations(Base):
    """Writes expressions, accesses and variables."""

    # --- expressions

    def constant(self, value: bool | int | float, dtype: Any, *, at: At | None = None) -> Scalar:
        """Return a number of a type."""
        with self._reading(at) as place:
            d = self._dtype(dtype, place)
            held = self._value(value, place)
            if not isinstance(held, Known) or isinstance(held.value, str | DType | None):
                raise self._low.wrong(place, f"{value!r} is not a number")
            number = held.value
            if not d.is_float and not d.is_bool and (
                isinstance(number, float) or not d.min <= number <= d.max
            ):
                raise self._low.wrong(place, f"{number} does not fit {d.name}")
            return Scalar(self, ex.const(float(number) if d.is_float else number, d))

    def op(self, symbol: str, *operands: Any, at: At | None = None) -> Scalar:
        """Return what an operator gives: ``f.op("+", a, b)``, ``f.op("-", a)``.

        Symbols are Python's: ``+ - * / // % ** << >> & | ^ < <= > >= == != ~ not``. Numbers of
        Python take the type of the other operand if that holds them; else types are those of
        `@weft.kernel`: integers compute in 64 bits, ``/`` of integers gives float64.
        """
        table = _UNARY if len(operands) == 1 else _BINARY
        if symbol not in table or len(operands) not in (1, 2):
            raise self._misuse(f"no operator {symbol!r} of {len(operands)} operands", at,
                               "one of " + " ".join(table))
        if len(operands) == 1:
            return self._operate_unary(table[symbol], operands[0], at)
        return self._operate(table[symbol], operands[0], operands[1], at)

    def _operate(self, kind: Any, a: Any, b: Any, at: Any) -> Scalar:
        with self._reading(at) as place:
            left, right = self._value(a, place), self._value(b, place)
            left, right = _adapted(left, right), _adapted(right, left)
            if isinstance(left, Known) and isinstance(right, Known):
                left = self._low.scalar(left, place)  # so that it is computed as everywhere
            compares = issubclass(kind, ast.cmpop)
            if isinstance(left, Group) or isinstance(right, Group):
                raise self._low.wrong(place, "an operator on a tuple")
            apply: Any = operators.compare if compares else operators.operate
            found = apply(self._low, kind, left, right, place)
            return Scalar(self, self._low.scalar(found, place))

    def _operate_unary(self, kind: Any, x: Any, at: Any) -> Scalar:
        with self._reading(at) as place:
            e = self._scalar(x, place)
            try:
                return Scalar(self, scalars.apply_unary(kind, e))
            except scalars.NoOperator:
                raise self._low.wrong(place, f"no such operator for {e.dtype.name}") from None

    def cast(self, value: Any, dtype: Any, *, at: At | None = None) -> Scalar:
        """Return a number in another type; a float is cut off, an integer wraps."""
        with self._reading(at) as place:
            return Scalar(self, scalars.convert(self._scalar(value, place),
                                                self._dtype(dtype, place)))

    def select(self, condition: Any, a: Any, b: Any, *, at: At | None = None) -> Scalar:
        """Return `a` where a condition holds, else `b`; both are evaluated."""
        with self._reading(at) as place:
            test = self._condition(condition, place)
            left, right = self._value(a, place), self._value(b, place)
            x, y = _adapted(left, right), _adapted(right, left)
            found = self._low.select(test, x, [], y, [], place)
            return Scalar(self, self._low.scalar(found, place))

    def _condition(self, value: Any, place: Place) -> Expr:
        return scalars.truth(self._scalar(value, place, "a condition"))

    def call(self, callee: Any, *args: Any, at: At | None = None, **named: Any) -> Any:
        """Return what a function gives.

        Parameters
        ----------
        callee
            ``min``, ``max``, ``abs``, ``round`` or a function of Python's `math` by name, a
            device function, or, in a kernel, an operation of `weft.gpu` by name
            (``"syncthreads"``, ``"atomic.add"``, ``"shfl_down_sync"``).
        args, named
            Its arguments.
        at
            Place of the call.
        """
        with self._reading(at) as place:
            if isinstance(callee, Device):
                if named:
                    raise self._low.wrong(place, f"{callee.name} takes arguments by position")
                return self._call_device(callee, args, place)
            found = self._callee(callee, place)
            place = Place(place.file, place.lineno, place.col_offset, place.end_col_offset)
            given = [self._value(a, place) for a in args]
            if not isinstance(found, Intrinsic):
                given = _alike(given)
                if named:
                    raise self._low.wrong(place, f"{callee} takes arguments by position")
            place.given = given
            place.named = {k: self._value(v, place) for k, v in named.items()}
            return self._give(self._low.call_object(found, place), place)  # type: ignore[arg-type]

    def _callee(self, callee: Any, place: Place) -> Any:
        if isinstance(callee, Intrinsic) and self.threads:
            return callee
        if isinstance(callee, str):
            if callee in _BUILTINS:
                return _BUILTINS[callee]
            if callee in _MATH:
                return getattr(math, callee)
            found: Any = gpu
            for part in callee.split("."):
                found = getattr(found, part, None)
            if isinstance(found, Intrinsic):
                return self._allowed(found, place)
        raise self._low.wrong(place, f"no function {callee!r}",
                              "min, max, abs, round, those of math, device functions"
                              + (", those of weft.gpu" if self.threads else ""))

    def _allowed(self, found: Intrinsic, place: Place) -> Intrinsic:
        family = found.name.partition(".")[0]
        if not self.threads and family not in _ALONE:
            raise self._low.wrong(place, f"{found.name} in a function", "only kernels have threads")
        return found

    # --- arrays and variables

    def let(self, name: str, value: Any, *, at: At | None = None) -> Scalar:
        """Give a value a name, so that it is computed once."""
        with self._reading(at) as place:
            x = self._scalar(value, place)
            found = self._low.bind(x, self._name(name, place), place)
            if found is not x and found.dtype.is_integer:
                limits = self._low.ranges.of(x)
                self._low.limits[found] = (limits.lo, limits.hi)
            return Scalar(self, found)

    def load(self, array: Array, *index: Any, at: At | None = None) -> Scalar:
        """Read an element."""
        with self._reading(at) as place:
            found = self._low.read(self._element(array, index, place), place)
            return Scalar(self, self._low.scalar(found, place))

    def store(self, array: Array, index: Any, value: Any, *, at: At | None = None) -> None:
        """Write an element; the value is converted to the type of the array."""
        with self._reading(at) as place:
            parts = index if isinstance(index, tuple | list) else (index,)
            element = self._element(array, parts, place)
            self._own(element.memory, array.name, place)
            self._low.write(element, self._value(value, place), place)

    def _element(self, array: Any, index: Sequence[Any], place: Place) -> View:
        view = self._value(array, place)
        if not isinstance(view, View):
            raise self._low.wrong(place, "an index into what is no array")
        if len(index) != len(view.axes):
            raise self._low.wrong(place, f"{len(index)} indices into {array.name}, an array of "
                                  f"{len(view.axes)} axes")
        keys: list[tuple[Any, Value | None]] = [(place, self._value(i, place)) for i in index]
        return self._low.part(view, keys, place)

    def variable(self, name: str, dtype: Any, value: Any = None, *,
                 at: At | None = None) -> Variable:  # fmt: skip
        """Declare a number that can change; without a value it must be set before it is read."""
        with self._reading(at) as place:
            d = self._dtype(dtype, place)
            x = None if value is None else self._typed(value, d, place, "a value")
            memory = self._low.cell(self._name(name, place), d, place)
            self._homes[memory] = len(self._blocks.stack)
            made = Variable(self, name, memory)
            if x is not None:
                self._low.put(memory, x, place)
            return made

    def _get(self, variable: Variable, at: Any) -> Scalar:
        with self._reading(at) as place:
            return Scalar(self, self._read(variable, place))

    def _set(self, variable: Variable, value: Any, at: Any) -> None:
        with self._reading(at) as place:
            memory = self._usable(variable, place)
            self._own(memory, variable.name, place)
            self._low.put(memory, self._typed(value, variable.dtype, place, "a value"), place)

    def local(self, name: str, dtype: Any, shape: Any, *, at: At | None = None) -> Array:
        """Declare an array of the body that is open, without values."""
        return self._memory("local", name, dtype, shape, at)

    def _memory(self, scope: str, name: str, dtype: Any, shape: Any, at: Any) -> Array:
        with self._reading(at) as place:
            d = self._dtype(dtype, place)
            sizes = self._value(tuple(shape) if isinstance(shape, tuple | list) else shape, place)
            if isinstance(sizes, Expr):
                raise self._low.wrong(place, f"{name} has a size that is known only when it runs",
                                      f"{scope} memory has a fixed size: a number of Python")
            made = array_in(scope, self._low, place, sizes, Known(d))  # type: ignore[arg-type]
            assert isinstance(made, View)
            if scope == "local":
                self._homes[made.memory] = len(self._blocks.stack)
            return Array(self, self._name(name, place), made)

    def atomic(self, kind: str, array: Array, index: Any, *values: Any,
               at: At | None = None) -> Scalar:  # fmt: skip
        """Change an element in one indivisible step; return what it held.

        Kinds: add, sub, min, max, and, or, xor, exch, cas (expected and new value), inc, dec.
        """
        name = f"{kind}_" if kind in ("and", "or") else kind
        intrinsic = getattr(gpu.atomic, str(name), None)
        if not isinstance(intrinsic, Intrinsic):
            raise self._misuse(f"no atomic operation {kind!r}", at)
        parts = tuple(index) if isinstance(index, tuple | list) else (index,)
        with self._reading(at) as place:
            self._element(array, parts, place)  # checks the number of indices
            given = [self._value(v, place) for v in (array, parts, *values)]
            call = Place(place.file, place.lineno, place.col_offset, place.end_col_offset)
            call.given = given
            found = self._low.call_object(intrinsic, call)  # type: ignore[arg-type]
            return Scalar(self, self._low.scalar(found, place))

    def _call_device(self, callee: Device, args: tuple[Any, ...], place: Place) -> Any:
        raise AssertionError("a builder says how it calls device functions")


def _adapted(value: Value, other: Value) -> Value:
    """Return a number of Python in the type of the other operand, if that holds it."""
    if not isinstance(value, Known) or not isinstance(other, Expr):
        return value
    number = value.value
    if type(number) not in (int, float):
        return value
    if other.dtype.is_float and not (type(number) is int and abs(number) > 1 << 24):
        return ex.const(float(number), other.dtype)
    return value


def _alike(values: list[Value]) -> list[Value]:
    """Adapt numbers of Python to the first argument that has a type."""
    typed = next((v for v in values if isinstance(v, Expr)), None)
    return values if typed is None else [_adapted(v, typed) for v in values]
