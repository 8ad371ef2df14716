"""Sizes of a capture that know their numbers: symbolic where they compute, ints everywhere else.

A `RuntimeSize` is an expression like any other while the captured function computes with it. Where
the function needs the number (a loop, text, a hash, another library) it gets the one of this
capture, and a comparison that not every size decides is answered for it; `Sizes` notes both, so
that the capture serves no more sizes than it is right for. The function therefore runs once, to
its end. After the capture a size is its number, wherever it was kept.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from weft.errors import UnsupportedError, is_foreign, is_ours, made, user_line
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.intern import keeping
from weft.ir.op import Op, Operation
from weft.ir.size import decide

__all__ = ["RuntimeSize", "Sizes"]


class Sizes:
    """The symbolic sizes of one capture: a ``with`` block in which they are symbolic.

    Parameters
    ----------
    values : mapping of str to int
        The number that each variable is.

    Attributes
    ----------
    reason : str
        Why the capture serves these numbers alone; empty if it serves others as well.
    is_misled : bool
        Whether the function may have taken another way than with the numbers.
    splits : list of (str, int)
        Variables, each with the last value before the answer to a comparison changes.
    spellings : dict of Expr to Expr or int
        The one spelling of each size (`weft.ir.size.canonical`).
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values
        self.is_live = False
        self.is_misled = False
        self.reason = ""
        self.splits: list[tuple[str, int]] = []
        self.spellings: dict[Expr, Any] = {}
        self.made: list[weakref.ref[Expr]] = []

    def __enter__(self) -> Sizes:
        self._ended = ExitStack()
        self._ended.enter_context(keeping())
        self.is_live = True
        ex.derived.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        ex.derived.remove(self)
        self.is_live = False
        self.spellings.clear()
        self._ended.close()

    def variable(self, plain: Expr) -> Expr:
        """Return the size that stands for a variable in this capture."""
        made = RuntimeSize.__new__(RuntimeSize)
        made.op, made.dtype, made.lanes = plain.op, plain.dtype, plain.lanes
        made.args, made.attr = (), plain.attr
        self.adopt(made)
        return made

    def adopt(self, size: Any) -> None:
        """Make a new expression one of this capture's sizes."""
        size.sizes, size.value = self, 0
        if size.op is Op.VARIABLE:
            size.value = self.values[size.attr.name]
        elif size.op in _INDEXING:
            size.value = ex.index_value(size.op, [_value_of(a) for a in size.args])
        self.made.append(weakref.ref(size))

    def note(self, what: str) -> None:
        """Note that the capture serves these numbers alone, and the user's line that needs them."""
        if self.is_live and not self.reason:
            line = user_line()
            self.reason = what if line is None else f"{line} ({what})"

    @property
    def kept(self) -> list[RuntimeSize]:
        """The sizes that somebody refers to."""
        return [s for s in (r() for r in self.made) if type(s) is RuntimeSize]


def _by_user() -> bool:
    """Whether the caller of a method was called by the user, perhaps through Python's library."""
    frame = sys._getframe(2)
    while frame.f_back is not None and is_foreign(frame.f_code.co_filename) and (
            not is_ours(frame.f_code.co_filename)):
        frame = frame.f_back
    return not is_ours(frame.f_code.co_filename)


def _class(self: object) -> type:
    return int if _by_user() else RuntimeSize


class RuntimeSize(Expr):
    """A size of a capture, with its number.

    Attributes
    ----------
    sizes : Sizes
        The capture's.
    value : int
        The number that it is in this capture.
    """

    __slots__ = ("sizes", "value")

    sizes: Sizes
    value: int
    __class__ = property(_class)  # what isinstance asks

    def seen(self, what: str) -> int:
        """Return the number where the function needs it."""
        self.sizes.note(f"needs the size: {what}")
        return self.value

    def decided(self, op: Operation, other: Any) -> bool:
        """Return whether ``self < other`` (or ``<=``, ``!=``), and note for which sizes it is."""
        if self.sizes.is_live:
            try:
                return decide(op, self, other)
            except UnsupportedError as error:
                made.count -= 1  # the function does not see it
                if error.split is None:
                    self.sizes.note(str(error.found))
                else:
                    self.sizes.splits.append(error.split)
        return bool(_COMPARED[op](self.value, _number(other)))

    def __bool__(self) -> bool:
        return self.decided(Op.NE, 0)

    def __eq__(self, other: object) -> bool:
        return self._equals(other) if _by_user() else self is other

    def __ne__(self, other: object) -> bool:
        found: Any = self._equals(other) if _by_user() else self is other
        return found if found is NotImplemented else not found

    def _equals(self, other: object) -> bool:
        kind = type(other)
        if self is other:
            return True
        if kind is int or kind is bool or kind is Expr or kind is RuntimeSize:
            return not self.decided(Op.NE, other)
        return bool(self.seen("==") == other) if _is_number(other) else NotImplemented

    def __hash__(self) -> int:
        """Return the hash of the number to a user, in our own tables that of the object.

        Interned values ask for it when they die, in whatever code runs then: none does in a capture
        (`weft.ir.intern.keeping`), and afterwards it is the object's always.
        """
        if self.sizes.is_live and _by_user():
            self.sizes.note("hash of the size")
            return hash(self.value)
        return object.__hash__(self)

    def __repr__(self) -> str:
        return repr(self.seen("text")) if _by_user() else ex.show(self)

    def __str__(self) -> str:
        return str(self.seen("text")) if _by_user() else ex.show(self)

    def __format__(self, spec: str) -> str:
        return format(self.seen("text"), spec) if _by_user() else ex.show(self)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(0, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self.seen(name), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.array(self.seen("NumPy"), dtype)

    def __copy__(self) -> RuntimeSize:
        return self

    def __deepcopy__(self, memo: object) -> RuntimeSize:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return int, (self.seen("pickle"),)

    def __iter__(self) -> Any:
        raise TypeError("'int' object is not iterable")

    def __pos__(self) -> RuntimeSize:
        return self

    def __neg__(self) -> Any:
        return _plain(ex.unary(Op.NEG, self)) if self.sizes.is_live else -self.value

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


def _value_of(size: Any) -> int:
    return int(size.value if type(size) is RuntimeSize else size.attr)


def _number(value: Any) -> Any:
    return value.value if type(value) is RuntimeSize else value


def _plain(found: Expr) -> Any:
    """Return a size, and what no size is left in as the int that it is."""
    return found.attr if found.op is Op.CONST else found


_INDEXING: Final = (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX)
_COMPARED: Final[Mapping[Operation, Callable[[Any, Any], Any]]] = {
    Op.LT: operator.lt, Op.LE: operator.le, Op.NE: operator.ne}
_SYMBOLIC: Final = {"add": Op.ADD, "sub": Op.SUB, "mul": Op.MUL, "floordiv": Op.FLOORDIV,
                    "mod": Op.MOD}  # fmt: skip
_DIVIDING: Final = (Op.FLOORDIV, Op.MOD)
_OTHERS: Final = {
    "truediv": operator.truediv, "pow": operator.pow, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift}  # fmt: skip
_SEEN: Final[Mapping[str, Callable[..., Any]]] = {
    "index": operator.index, "int": int, "float": float, "invert": operator.invert,
    "round": round, "trunc": int, "floor": int, "ceil": int}
_NUMBERS: Final = (int, float, complex, bool)


def _is_number(value: object) -> bool:
    """Whether a value is a number of Python, or stands for one."""
    return type(value) in _NUMBERS or (isinstance(value, int | float) and not _has_elements(value))


def _has_elements(value: object) -> bool:
    """Whether a value has elements, and so knows itself what to do with sizes."""
    return hasattr(type(value), "__array_interface__") or hasattr(type(value), "__dlpack__")


def _computed(name: str, op: Operation | None, function: Callable[[Any, Any], Any],
              is_reflected: bool) -> Callable[[Any, Any], Any]:  # fmt: skip
    """Return the method of an operator: symbolic with whole numbers, else of the number."""

    def method(self: RuntimeSize, other: Any) -> Any:
        kind = type(other)
        if op is not None and self.sizes.is_live and (
                kind is int or kind is bool or kind is Expr or kind is RuntimeSize):
            a, b = (other, self) if is_reflected else (self, other)
            if op not in _DIVIDING or bool(b):
                first = a if isinstance(a, Expr) else ex.index(int(a))
                return _plain(ex.binary(op, first, b if isinstance(b, Expr) else int(b)))
        if kind is not RuntimeSize and kind is not Expr and not _is_number(other):
            return NotImplemented
        value = self.seen(name)
        return function(_number(other), value) if is_reflected else function(value, _number(other))

    return method


def _compared(op: Operation, function: Callable[[Any, Any], Any], is_opposite: bool
              ) -> Callable[[Any, Any], Any]:  # fmt: skip
    """Return the method of a comparison, or of the opposite one."""

    def method(self: RuntimeSize, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool or kind is Expr or kind is RuntimeSize:
            return self.decided(op, other) is not is_opposite
        return function(self.seen("a comparison"), other) if _is_number(other) else NotImplemented

    return method


def _needed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: function(self.seen(name), *given)


def _add_methods() -> None:
    made: dict[str, Any] = {}
    for name, op in _SYMBOLIC.items():
        made[f"__{name}__"] = _computed(name, op, getattr(operator, name), False)
        made[f"__r{name}__"] = _computed(name, op, getattr(operator, name), True)
    for name, function in _OTHERS.items():
        made[f"__{name}__"] = _computed(name, None, function, False)
        made[f"__r{name}__"] = _computed(name, None, function, True)
    for name, function in _SEEN.items():
        made[f"__{name}__"] = _needed(name, function)
    for name, op, function, is_opposite in (
            ("lt", Op.LT, operator.lt, False), ("le", Op.LE, operator.le, False),
            ("gt", Op.LE, operator.gt, True), ("ge", Op.LT, operator.ge, True)):
        made[f"__{name}__"] = _compared(op, function, is_opposite)
    for name, method in made.items():
        setattr(RuntimeSize, name, method)


_add_methods()
