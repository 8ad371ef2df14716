"""Run-time scalars: numbers among the arguments of a captured function, read at each call.

A capture that keeps a number open hands the function a `RuntimeFloat` or a `RuntimeInt` in its
place. Arithmetic on it is recorded, and repeated at each call in Python's own types; where it meets
a tensor, the graph reads it from memory, in the type that the constant would have had. Everything
that needs the value itself (a branch, a shape, an exponent, text, a function of another library)
gets the one of this capture, and the number is noted as one that captures have to bake in.

These classes are no subclasses of ``float`` and ``int``, whose value C code reads without asking
the object. ``isinstance`` takes them for what they stand for. Only ``type(x)`` tells the
difference, so functions that look up ``type`` keep their numbers baked in (`Scalars.__enter__`).
"""

from __future__ import annotations

import math
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from weft import driver
from weft.errors import is_foreign, is_ours, user_line
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.record import Record

__all__ = ["Plan", "RuntimeFloat", "RuntimeInt", "Scalars", "Step", "comparable", "constant",
           "fits", "is_given", "is_open", "is_stand_in", "number_of",
           "roots_of", "yield_to"]  # fmt: skip

Number = int | float


class Step(Record):
    """One derived number: an operation on earlier ones (their indices) or on constants."""

    function: Callable[..., Any]
    operands: tuple[tuple[bool, Any], ...]  # (is it an index, the index or the constant)
    kind: type


class Plan(Record):
    """What a capture reads of numbers.

    Attributes
    ----------
    positions : tuple of int
        The open numbers, as positions among all numbers of the arguments.
    kinds : tuple of type
        Their types.
    steps : list of Step
        Derived numbers, counted on from the open ones.
    slots : dict of (int, DType) to Storage
        What the graph reads: the index of a number, and the type it is read in.
    """

    positions: tuple[int, ...]
    kinds: tuple[type, ...]
    steps: list[Step]
    slots: dict[tuple[int, DType], Storage]

    def buffers(self, numbers: Sequence[Number]) -> list[Any] | None:
        """Return memory with the values of all slots; None if they are of other types or errors."""
        known: list[Any] = [numbers[p] for p in self.positions]
        try:
            for step in self.steps:
                made = step.function(
                    *[known[v] if is_index else v for is_index, v in step.operands])
                if type(made) is not step.kind:
                    return None
                known.append(made)
            return [driver.scalar(dt.check_value(known[i], dtype, "jit"), dtype)
                    for i, dtype in self.slots]
        except (ArithmeticError, ValueError):  # which the function raises itself, at its line
            return None


class _Watching(threading.local):
    scalars: Scalars | None = None


_watching: Final = _Watching()


class Scalars:
    """The run-time scalars of one capture: a ``with`` block in which they are live.

    Parameters
    ----------
    numbers : sequence of int or float
        All numbers of the arguments.
    positions : collection of int
        Which of them are open.
    """

    def __init__(self, numbers: Sequence[Number], positions: Sequence[int]) -> None:
        self.plan = Plan(tuple(positions), tuple(type(numbers[p]) for p in positions), [], {})
        self._whole = self.plan  # with all that was open in the capture
        self.reasons: dict[int, str] = {}  # why a number (by its position) has to be baked in
        self._made: list[weakref.ref[Any]] = []
        self.given: list[Any] = list(numbers)  # what the function gets
        for i, p in enumerate(positions):
            self.given[p] = _stand_in(self, numbers[p], i, frozenset((p,)))
        self._values: list[Number] = [numbers[p] for p in positions]  # and the derived ones
        self._nodes: dict[Node, tuple[int, DType]] = {}
        self._is_live = False
        self.is_misled = False  # whether the function may have taken another way than with numbers

    def __enter__(self) -> Scalars:
        self._is_live = True
        _watching.scalars = self
        self._profiler = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._profiler)
        _watching.scalars = None
        self._is_live = False

    def _called(self, frame: FrameType, event: Any, about: object) -> None:
        """Note a function that asks for types, which is all that tells a stand-in from a number."""
        if self._profiler is not None and callable(self._profiler):
            self._profiler(frame, event, about)
        code = frame.f_code
        if event != "call" or "type" not in code.co_names or is_ours(code.co_filename):
            return
        if is_foreign(code.co_filename) and not any(
                type(v) in _KINDS for v in frame.f_locals.values()):  # a library has other reasons
            return
        self.is_misled = True
        self.note(f"{code.co_filename}:{code.co_firstlineno} ({code.co_name} looks up type)")

    def note(self, reason: str, positions: Iterable[int] | None = None) -> None:
        """Note why numbers have to be baked in: those at some positions, or all."""
        for position in self.plan.positions if positions is None else positions:
            self.reasons.setdefault(position, reason)

    def observe(self, positions: Iterable[int], what: str) -> None:
        """Note that the function needs the value of numbers, and the user's line that does."""
        if self._is_live:
            line = user_line()
            self.note(what if line is None else f"{line} ({what})", positions)

    def derive(self, name: str, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """Return the result of an operation on numbers, which is made again at each call."""
        values = [v._value if type(v) in _KINDS else v for v in operands]
        if not self._is_live:
            return function(*values)
        roots: frozenset[int] = frozenset().union(
            *[v._roots for v in operands if type(v) in _KINDS])
        try:
            made = function(*values)
        except Exception:
            self.observe(roots, name)
            raise
        if type(made) not in (int, float) or any(
                type(v) in _KINDS and v._scalars is not self for v in operands):
            self.observe(roots, name)
            return made
        plan = self.plan
        places = [(True, v._index) if type(v) in _KINDS else (False, v) for v in operands]
        plan.steps.append(Step(function, tuple(places), type(made)))
        self._values.append(made)
        return _stand_in(self, made, len(plan.positions) + len(plan.steps) - 1, roots)

    def node(self, scalar: Any, dtype: DType, operation: str) -> Node:
        """Return the 0-d node that reads a number in a type."""
        dt.check_value(scalar._value, dtype, operation)
        storage = self.plan.slots.setdefault((scalar._index, dtype), Storage(dtype, 1, None, ""))
        made = infer.reshape(nd.buffer(storage), ())
        self._nodes[made] = scalar._index, dtype
        return made

    def bake(self) -> Callable[[Node], Node | None] | None:
        """Make constants of the numbers that have a reason to be.

        Returns
        -------
        function or None
            Tells what stands for a node of the graph that read a number; None: all as it was.
        """
        plan = self._whole
        if not any(p in self.reasons for p in plan.positions):
            return None
        opened = [(p, kind) for p, kind in zip(plan.positions, plan.kinds, strict=True)
                  if p not in self.reasons]
        known: list[tuple[bool, Any]] = []  # as operands of steps are
        for i, p in enumerate(plan.positions):
            is_open = p not in self.reasons
            known.append((True, sum(ok for ok, _ in known)) if is_open else
                         (False, self._values[i]))
        steps: list[Step] = []
        for step in plan.steps:
            operands = tuple([known[v] if is_index else (False, v)
                              for is_index, v in step.operands])
            if any(is_index for is_index, _ in operands):
                known.append((True, len(opened) + len(steps)))
                steps.append(step.replace(operands=operands))
            else:
                known.append((False, self._values[len(known)]))
        slots = {(known[i][1], dtype): storage for (i, dtype), storage in plan.slots.items()
                 if known[i][0]}
        self.plan = Plan(tuple([p for p, _ in opened]), tuple([k for _, k in opened]), steps, slots)
        baked = {node: nd.const(known[i][1], dtype) for node, (i, dtype) in self._nodes.items()
                 if not known[i][0]}
        return baked.get

    @property
    def kept(self) -> list[Any]:
        """The stand-ins that somebody refers to."""
        self.given.clear()
        return [s for s in (r() for r in self._made) if s is not None]


class _Kind(type):
    """The class of the stand-ins' classes, which tells when one is compared with another class."""

    stands_for: type

    def __eq__(cls, other: object) -> bool:
        if cls is other:
            return True
        scalars = _watching.scalars
        if scalars is not None:
            scalars.observe(scalars.plan.positions, "its type")
        return other is cls.stands_for

    def __hash__(cls) -> int:
        return hash(cls.stands_for)


_yielding: Final[list[type]] = []


def yield_to(kind: type) -> None:
    """Leave comparisons with objects of a class to it: tensors, of which this knows nothing."""
    _yielding.append(kind)


class _Scalar:
    """What both kinds of stand-ins do."""

    __slots__ = ("__weakref__", "_index", "_roots", "_scalars", "_value")

    _index: int
    _roots: frozenset[int]
    _scalars: Scalars
    _value: Any

    def _seen(self, what: str) -> Any:
        self._scalars.observe(self._roots, what)
        return self._value

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._value, name):
            raise AttributeError(f"{type(self._value).__name__!r} object has no attribute {name!r}")
        return getattr(self._seen(name), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.array(self._seen("NumPy"), dtype)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        return type(self._value), (self._seen("pickle"),)


def _traced(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the methods of a binary operator whose results are numbers again."""

    def forward(self: Any, other: Any) -> Any:
        if type(other) not in _OPERANDS:
            return NotImplemented
        return self._scalars.derive(name, function, (self, other))

    def backward(self: Any, other: Any) -> Any:
        if type(other) not in _OPERANDS:
            return NotImplemented
        return self._scalars.derive(name, function, (other, self))

    return {f"__{name}__": forward, f"__r{name}__": backward}


def _traced_unary(name: str, function: Callable[[Any], Any]) -> dict[str, Any]:
    return {f"__{name}__": lambda self: self._scalars.derive(name, function, (self,))}


def _observed(name: str) -> Callable[..., Any]:
    """Return a method that gives the value away."""
    function = getattr(operator, name, None) if name in _COMPARISONS else None

    def method(self: Any, *others: Any) -> Any:
        if function is not None and isinstance(others[0], tuple(_yielding)):
            return NotImplemented
        value = self._seen(name)
        others = tuple([o._seen(name) if type(o) in _KINDS else o for o in others])
        return getattr(value, name)(*others) if function is None else function(value, *others)

    return method


_ARITHMETIC: Final[Mapping[str, Callable[..., Any]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
}  # fmt: skip
_UNARY: Final[Mapping[str, Callable[..., Any]]] = {
    "neg": operator.neg, "pos": operator.pos, "abs": operator.abs}
_COMPARISONS: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_COMMON: Final = (*[name.strip("_") for name in _COMPARISONS], "bool", "int", "float", "hash",
                  "format", "repr", "str", "round", "trunc", "floor", "ceil", "divmod", "rdivmod")
_WHOLE: Final = ("index", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift",
                 "rrshift", "invert")  # fmt: skip


def _common() -> dict[str, Any]:
    """Return the methods of both classes of stand-ins."""
    members = {f"__{name}__": _observed(f"__{name}__") for name in _COMMON}
    for operation, function in _ARITHMETIC.items():
        members |= _traced(operation, function)
    for operation, function in _UNARY.items():
        members |= _traced_unary(operation, function)
    return members


def _kind(name: str, stands_for: type, members: Mapping[str, Any]) -> Any:
    """Return the class of what stands for numbers of a type."""
    made = _Kind(name, (_Scalar,), {
        "__slots__": (), "__module__": __name__, "__class__": property(lambda self: stands_for),
        **members})
    made.stands_for = stands_for
    return made


_BOTH: Final = _common()
RuntimeFloat: Final = _kind("RuntimeFloat", float, _BOTH)
RuntimeInt: Final = _kind("RuntimeInt", int, _BOTH | {
    f"__{name}__": _observed(f"__{name}__") for name in _WHOLE})  # fmt: skip


class _Types:
    """A set of types by identity: types of stand-ins note who compares them."""

    def __init__(self, *kinds: type) -> None:
        self._ids = frozenset(map(id, kinds))

    def __contains__(self, kind: type) -> bool:
        return id(kind) in self._ids


_KINDS: Final = _Types(RuntimeFloat, RuntimeInt)
_OPERANDS: Final = _Types(RuntimeFloat, RuntimeInt, int, float, bool)


def _stand_in(scalars: Scalars, value: Number, index: int, roots: frozenset[int]) -> Any:
    kind = RuntimeFloat if type(value) is float else RuntimeInt
    made = object.__new__(kind)
    made._scalars, made._value, made._index, made._roots = scalars, value, index, roots
    scalars._made.append(weakref.ref(made))
    return made


def number_of(value: Any) -> Any:
    """Return the number that a stand-in stands for; other values as they are."""
    return value._value if type(value) in _KINDS else value


def is_given(value: Any) -> bool:
    """Whether a stand-in is of a number as it was given, not of one computed from it."""
    return bool(value._index < len(value._scalars._whole.positions))


def roots_of(value: Any) -> frozenset[int]:
    """Return the positions of the numbers that a stand-in was computed from."""
    found: frozenset[int] = value._roots
    return found


def is_stand_in(value: object) -> bool:
    """Whether a value stands for a number in some capture."""
    return type(value) in _KINDS


def is_open(value: object) -> bool:
    """Whether a number is one that the capture going on reads at each call."""
    kind = type(value)
    if kind is not RuntimeFloat and kind is not RuntimeInt:
        return False
    live: bool = value._scalars._is_live  # type: ignore[attr-defined]
    return live


def comparable(value: Any) -> Any:
    """Return a number as one that is a NaN in no call of a capture; None if it is one now."""
    number = value._value if is_open(value) else value
    if type(number) is not float:
        return value
    if math.isnan(number):
        return None
    return value._scalars.derive("limit", _no_nan, (value,)) if is_open(value) else value


def _no_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError
    return value


def fits(value: Any, dtype: DType) -> bool:
    """Whether an integer type holds a number; one that is open is looked at again at each call."""
    if is_open(value):
        if not dtype.min <= value._value <= dtype.max:
            value._scalars.observe(value._roots, f"beyond {dtype.name}")
        return True
    return bool(dtype.min <= value <= dtype.max)


def constant(value: Any, dtype: DType, operation: str) -> Node:
    """Return a number as a 0-d node of a type: a constant, or what reads a run-time scalar.

    Raises
    ------
    RangeError
        If an integer type cannot hold the value.
    """
    kind = type(value)
    if (kind is RuntimeFloat or kind is RuntimeInt) and value._scalars._is_live:
        found: Node = value._scalars.node(value, dtype, operation)
        return found
    return nd.const(value, dtype, operation)
