"""Pure scalar expressions: immutable, interned, compared with ``is``.

An expression never reads memory; loads are statements whose bound name the expression uses. The
same classes serve loop level (lanes = 1) and kernel level (lanes = vector width).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from weft.errors import (
    DTypeError,
    UnsupportedError,
    VariableError,
    entry_point,
    is_foreign,
    is_ours,
)
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.intern import Table, intern, keeping, key_of
from weft.ir.op import Op, Operation
from weft.ir.record import Record

Scalar = bool | int | float


class Bounds(Record):
    """Identity of a `Variable`: its name and the inclusive range of its values."""

    name: str
    min: int
    max: int


class Expr:
    """One pure expression.

    Attributes
    ----------
    op : Operation
        The row of the op table.
    dtype : DType
        Element type of the value.
    lanes : int
        1 for a scalar, else the number of vector lanes.
    args : tuple of Expr
        Operands.
    attr : object
        Constant value, name, `Bounds`, or lane; None for most.
    """

    __slots__ = ("__weakref__", "args", "attr", "dtype", "lanes", "op")

    op: Operation
    dtype: DType
    lanes: int
    args: tuple[Expr, ...]
    attr: Any

    def __repr__(self) -> str:
        return show(self)

    # where Python wants a value: sizes tell what holds for every value of their variables
    def __bool__(self) -> bool:
        return _decided(Op.NE, self, 0)

    def __lt__(self, other: Expr | int) -> bool:
        return _decided(Op.LT, self, other)

    def __le__(self, other: Expr | int) -> bool:
        return _decided(Op.LE, self, other)

    def __gt__(self, other: Expr | int) -> bool:
        return not self <= other

    def __ge__(self, other: Expr | int) -> bool:
        return not self < other

    def __index__(self) -> int:
        raise needs_size(f"the size {self!r}")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __iter__(self) -> Iterator[Expr]:
        self.__index__()
        return iter(())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if _equality.is_decided and (type(other) is int or type(other) is Expr) and (
                not is_ours(sys._getframe(1).f_code.co_filename)):
            return not _decided(Op.NE, self, other)
        return False

    __hash__ = object.__hash__

    # arithmetic; Python scalars take the type of the other operand
    def __add__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.ADD, self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return binary(Op.ADD, _lift(other, self), self)

    def __sub__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return binary(Op.SUB, _lift(other, self), self)

    def __mul__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return binary(Op.MUL, _lift(other, self), self)

    def __truediv__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.DIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Expr:
        return binary(Op.DIV, const(other, self.dtype, self.lanes), self)

    def __floordiv__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.FLOORDIV, self, other)

    def __mod__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.MOD, self, other)

    def __rfloordiv__(self, other: Scalar) -> Expr:
        return binary(Op.FLOORDIV, const(other, self.dtype, self.lanes), self)

    def __rmod__(self, other: Scalar) -> Expr:
        return binary(Op.MOD, const(other, self.dtype, self.lanes), self)

    def __divmod__(self, other: Expr | Scalar) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __pow__(self, other: Expr | Scalar) -> Expr:
        raise needs_size(f"the size {self!r} to the power {other!r}")

    def __rpow__(self, other: Scalar) -> Expr:
        raise needs_size(f"{other!r} to the power of the size {self!r}")

    def __and__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.AND, self, other)

    def __or__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.OR, self, other)

    def __xor__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.XOR, self, other)

    def __lshift__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.SHL, self, other)

    def __rshift__(self, other: Expr | Scalar) -> Expr:
        return binary(Op.SHR, self, other)

    def __neg__(self) -> Expr:
        return unary(Op.NEG, self)

    def __invert__(self) -> Expr:
        return unary(Op.NOT, self)

    # comparisons build bool expressions; == and != are identity, and of sizes in a capture decided
    def lt(self, other: Expr | Scalar) -> Expr:
        """Return ``self < other``."""
        return binary(Op.LT, self, other)

    def le(self, other: Expr | Scalar) -> Expr:
        """Return ``self <= other``."""
        return binary(Op.LE, self, other)

    def gt(self, other: Expr | Scalar) -> Expr:
        """Return ``self > other``, written as ``other < self``."""
        return binary(Op.LT, _lift(other, self), self)

    def ge(self, other: Expr | Scalar) -> Expr:
        """Return ``self >= other``, written as ``other <= self``."""
        return binary(Op.LE, _lift(other, self), self)

    def eq(self, other: Expr | Scalar) -> Expr:
        """Return ``self == other``."""
        return binary(Op.EQ, self, other)

    def ne(self, other: Expr | Scalar) -> Expr:
        """Return ``self != other``."""
        return binary(Op.NE, self, other)


def needs_size(found: str) -> UnsupportedError:
    """Return the error of an operation that must know a size."""
    return UnsupportedError(
        entry_point() or "size", found=found, expected="a size that is fixed",
        hint="leave this axis out of dynamic=, or narrow its Variable",
    )


class _Equality(threading.local):
    is_decided: bool = False
    key: Expr | None = None  # a size that a user's code has hashed


_equality: Final = _Equality()


@contextmanager
def deciding_equality() -> Iterator[None]:
    """Have users' ``==`` and ``!=`` of sizes tell what holds for every value of the variables.

    Where that is not decided they raise. In our own code, and elsewhere, they tell whether two
    expressions are the same. One thread at a time may be in such a block.

    Raises
    ------
    UnsupportedError
        At the end, if the block looks up a size in a set or a dict: a symbolic one is never there,
        where the number may be.
    """
    before, _equality.is_decided, _equality.key = _equality.is_decided, True, None
    Expr.__hash__ = _noted_hash  # type: ignore[assignment,method-assign]
    try:
        with keeping():
            yield
        key = _equality.key
    finally:
        Expr.__hash__ = object.__hash__  # type: ignore[assignment,method-assign]
        _equality.is_decided, _equality.key = before, None
    if key is not None:
        raise needs_size(f"the hash of the size {key!r}")


def _noted_hash(self: Expr) -> int:
    """Return the hash of an expression, and note it if a user's code asks for it.

    It must not raise: interned values that die ask for it as well, on their way out of a table.
    """
    if _equality.is_decided and _equality.key is None:
        frame = sys._getframe(1)
        while frame.f_back is not None and _is_between(frame.f_code.co_filename):
            frame = frame.f_back
        if not is_ours(frame.f_code.co_filename):
            _equality.key = self
    return object.__hash__(self)


def _is_between(file: str) -> bool:
    """Whether a file is of the standard library, which users and we call."""
    return is_foreign(file) and not is_ours(file)


# How comparisons of sizes are decided: `weft.ir.size` sets it, which builds on this module.
deciding: list[Callable[[Operation, Expr, Expr | int], bool]] = []


def _decided(op: Operation, a: Expr, b: Expr | int) -> bool:
    for decide in deciding:
        return decide(op, a, b)
    raise needs_size(f"the size {a!r}")


_interned: Final[Table[Expr]] = {}
# Captures under way whose sizes are of a class of their own (`weft.ir.runtime_size`), as is what
# is computed from them.
derived: Final[list[Any]] = []


def make(op: Operation, dtype: DType, args: tuple[Expr, ...] = (), attr: Any = None,
         lanes: int = 1) -> Expr:  # fmt: skip
    """Return the one expression with these parts, without checks or folding.

    Floats are told apart by bit pattern, so that 0.0 and -0.0 are two constants.
    """
    key = (op, dtype, lanes, args, attr if attr is None else key_of(attr))
    known = _interned.get(key)
    found = None if known is None else known()
    if found is None:
        kind, sizes = Expr, None
        for arg in args if derived else ():
            if type(arg) is not Expr:
                kind, sizes = type(arg), arg.sizes  # type: ignore[attr-defined]
        made = kind.__new__(kind)
        made.op, made.dtype, made.lanes, made.args, made.attr = op, dtype, lanes, args, attr
        if sizes is not None:
            sizes.adopt(made)
        found = intern(_interned, key, made)
    return found


def const(value: Scalar, dtype: DType, lanes: int = 1) -> Expr:
    """Return a constant; the value is checked against, and normalised to, the type.

    Raises
    ------
    RangeError
        If an integer type cannot hold the value.
    """
    return make(Op.CONST, dtype, (), dt.check_value(value, dtype, "const"), lanes)


def index(value: int) -> Expr:
    """Return an int64 constant, the type of indices and sizes."""
    return make(Op.CONST, dt.int64, (), value)


def var(name: str, dtype: DType = dt.int64, lanes: int = 1) -> Expr:
    """Return the name bound by a LET, LOAD, FOR or REDUCE of the kernel."""
    return make(Op.VAR, dtype, (), name, lanes)


def Variable(name: str, min: int, max: int) -> Expr:
    """Return a symbolic int64 size or offset with an inclusive range (one compile serves it).

    Raises
    ------
    VariableError
        If the range is empty or leaves int64.
    """
    if not -(1 << 63) <= min <= max < 1 << 63:
        raise VariableError("Variable", found=f"{name}: min={min}, max={max}",
                            expected="min <= max, both within int64")
    return make(Op.VARIABLE, dt.int64, (), Bounds(name, min, max))


def _lift(value: Expr | Scalar, like: Expr) -> Expr:
    if isinstance(value, float) and like.dtype is dt.int64:
        raise needs_size(f"the size {like!r} with the number {value!r}")
    return value if isinstance(value, Expr) else const(value, like.dtype, like.lanes)


def is_const(e: Expr, value: Scalar | None = None) -> bool:
    """Whether `e` is a constant (equal to `value`, if given; 0.0 equals -0.0)."""
    return e.op is Op.CONST and (value is None or e.attr == value)


def unary(op: Operation, x: Expr) -> Expr:
    """Return ``op(x)`` after checking the kind."""
    if x.dtype.kind not in op.kinds:
        raise DTypeError(op.name, found=x.dtype.name, expected=f"a type of kind {op.kinds!r}")
    if x.op is Op.CONST and op is Op.NEG and x.dtype.kind == "i":
        return make(Op.CONST, x.dtype, (), dt.wrap(-x.attr, x.dtype), x.lanes)
    return make(op, x.dtype, (x,), None, x.lanes)


def binary(op: Operation, a: Expr, b: Expr | Scalar) -> Expr:
    """Return ``op(a, b)`` after checking types; index arithmetic on constants is folded."""
    b = b if isinstance(b, Expr) else _lift(b, a)
    if a.dtype is not b.dtype or a.lanes != b.lanes or a.dtype.kind not in op.kinds:
        raise DTypeError(op.name, found=f"{_typename(a)} and {_typename(b)}",
                         expected=f"two operands of one type of kind {op.kinds!r}")
    if a.dtype is dt.int64 and (b.op is Op.CONST or a.op is Op.CONST):
        folded = _fold_index(op, a, b)
        if folded is not None:
            return folded
    return make(op, dt.bool_ if op.result == "bool" else a.dtype, (a, b), None, a.lanes)


def _typename(e: Expr) -> str:
    return e.dtype.text + (f"x{e.lanes}" if e.lanes > 1 else "")


def floordiv(x: int, y: int) -> int:
    """Return ``x // y`` with the IR's value for a zero divisor."""
    return x // y if y else 0


def floormod(x: int, y: int) -> int:
    """Return ``x % y`` with the IR's value for a zero divisor."""
    return x % y if y else 0


_INDEX_FOLD: Final[dict[Operation, Callable[[int, int], int]]] = {
    Op.ADD: int.__add__, Op.SUB: int.__sub__, Op.MUL: int.__mul__, Op.FLOORDIV: floordiv,
    Op.MOD: floormod, Op.MIN: lambda x, y: min(x, y), Op.MAX: lambda x, y: max(x, y),
}  # fmt: skip


def index_value(op: Operation, args: list[int]) -> int:
    """Return the value of index arithmetic on numbers."""
    return -args[0] if op is Op.NEG else _INDEX_FOLD[op](*args)


_COMPARE_FOLD: Final[dict[Operation, Callable[[int, int], bool]]] = {
    Op.LT: int.__lt__, Op.LE: int.__le__, Op.EQ: int.__eq__, Op.NE: int.__ne__,
}  # fmt: skip


def _fold_index(op: Operation, a: Expr, b: Expr) -> Expr | None:
    """Fold what every index expression meets: constants, and the neutral elements of int64."""
    if a.op is Op.CONST and b.op is Op.CONST:
        if op in _INDEX_FOLD:
            value = dt.wrap(_INDEX_FOLD[op](a.attr, b.attr), dt.int64)
            return make(Op.CONST, dt.int64, (), value, a.lanes)
        if op in _COMPARE_FOLD:
            return make(Op.CONST, dt.bool_, (), _COMPARE_FOLD[op](a.attr, b.attr), a.lanes)
        return None
    if b.op is not Op.CONST:
        if (op is Op.ADD and a.attr == 0) or (op is Op.MUL and a.attr == 1):
            return b
        return a if op is Op.MUL and a.attr == 0 else None
    if (b.attr == 0 and (op is Op.ADD or op is Op.SUB)) or (b.attr == 1 and (
        op is Op.MUL or op is Op.FLOORDIV
    )):
        return a
    if op is Op.MUL and b.attr == 0:
        return b
    if op is Op.MOD and b.attr == 1:
        return make(Op.CONST, dt.int64, (), 0, a.lanes)
    return None


def minimum(a: Expr, b: Expr | Scalar) -> Expr:
    """Return the smaller value, NaN if either is."""
    return binary(Op.MIN, a, b)


def maximum(a: Expr, b: Expr | Scalar) -> Expr:
    """Return the larger value, NaN if either is."""
    return binary(Op.MAX, a, b)


def where(condition: Expr, a: Expr, b: Expr | Scalar) -> Expr:
    """Return `a` where `condition` holds, else `b`; both are evaluated."""
    b = _lift(b, a)
    alike = a.dtype is b.dtype and condition.lanes == a.lanes == b.lanes
    if condition.dtype is not dt.bool_ or not alike:
        found = ", ".join(map(_typename, (condition, a, b)))
        raise DTypeError("where", found=found, expected="bool, then two operands of one type")
    if condition.op is Op.CONST:
        return a if condition.attr else b
    return a if a is b else make(Op.WHERE, a.dtype, (condition, a, b), None, a.lanes)


def mad(a: Expr, b: Expr | Scalar, c: Expr | Scalar) -> Expr:
    """Return ``a * b + c`` rounded once (fused multiply-add)."""
    b, c = _lift(b, a), _lift(c, a)
    alike = a.dtype is b.dtype is c.dtype and a.lanes == b.lanes == c.lanes
    if not alike or not a.dtype.is_float:
        found = ", ".join(map(_typename, (a, b, c)))
        raise DTypeError("mad", found=found, expected="three operands of one float type")
    return make(Op.MAD, a.dtype, (a, b, c), None, a.lanes)


def scalb(a: Expr, b: Expr) -> Expr:
    """Return ``a * 2**floor(b)``, rounded once."""
    return native(Op.SCALB, a, b)


def native(op: Operation, a: Expr, b: Expr) -> Expr:
    """Return what some targets have one instruction for: SCALB, MAXNUM, MINNUM or NANOF."""
    if a.dtype is not b.dtype or a.lanes != b.lanes or not a.dtype.is_float:
        found = ", ".join(map(_typename, (a, b)))
        raise DTypeError(op.name, found=found, expected="two operands of one float type")
    return make(op, a.dtype, (a, b), None, a.lanes)


def dot(op: Operation, total: Expr, a: Expr, b: Expr) -> Expr:
    """Return `total` plus the products of the elements packed in the words of `a` and `b`."""
    kind = dt.float32 if op is Op.DOT2 else dt.int32
    packed = a.dtype is b.dtype is dt.uint32
    if total.dtype is not kind or not packed or not total.lanes == a.lanes == b.lanes:
        found = ", ".join(map(_typename, (total, a, b)))
        raise DTypeError(op.name, found=found, expected=f"{kind.text} and two words (u32)")
    return make(op, kind, (total, a, b), None, total.lanes)


def matrix(op: Operation, total: Expr, a: Expr, b: Expr) -> Expr:
    """Return `total` plus the product of two matrices of 16 x 16 words, each in 256 lanes."""
    dot(Op.DOT2 if op is Op.MATRIX2 else Op.DOT4, total, a, b)
    if total.lanes != 256:
        raise DTypeError(op.name, found=f"{total.lanes} lanes", expected="256")
    return make(op, total.dtype, (total, a, b), None, 256)


def cast(x: Expr, dtype: DType) -> Expr:
    """Return `x` converted to `dtype` (rules at the head of `weft.ir.op`)."""
    if x.dtype is dtype:
        return x
    if x.op is Op.CONST and x.dtype.kind in "iu" and dtype.kind in "iu":
        return make(Op.CONST, dtype, (), dt.wrap(x.attr, dtype), x.lanes)
    return make(Op.CAST, dtype, (x,), None, x.lanes)


def bitcast(x: Expr, dtype: DType) -> Expr:
    """Return the bits of `x` read as another type of the same width."""
    if x.dtype is dtype:
        return x
    if x.dtype.itemsize != dtype.itemsize or x.dtype.is_bool or dtype.is_bool:
        raise DTypeError("bitcast", found=f"{x.dtype.name} to {dtype.name}",
                         expected="two non-bool types of equal width")
    return make(Op.BITCAST, dtype, (x,), None, x.lanes)


def broadcast(x: Expr, lanes: int) -> Expr:
    """Return the scalar `x` in every lane."""
    if lanes == x.lanes:
        return x
    if x.op is Op.CONST:
        return make(Op.CONST, x.dtype, (), x.attr, lanes)
    return make(Op.BROADCAST, x.dtype, (x,), None, lanes)


def ramp(base: Expr, lanes: int) -> Expr:
    """Return ``base, base + 1, ..., base + lanes - 1``."""
    return base if lanes == 1 else make(Op.RAMP, base.dtype, (base,), None, lanes)


def places(base: Expr, pitch: int) -> Expr:
    """Return where a matrix of 16 x 16 lies from `base` on, its rows `pitch` apart."""
    return make(Op.PLACES, base.dtype, (base,), pitch, 256)


def extract(x: Expr, lane: int) -> Expr:
    """Return one lane of a vector."""
    return make(Op.EXTRACT, x.dtype, (x,), lane, 1) if x.lanes > 1 else x


def half(x: Expr, which: int) -> Expr:
    """Return the lower (0) or upper (1) half of the lanes of a vector."""
    return make(Op.HALF, x.dtype, (x,), which, x.lanes // 2)


def bits(x: Expr) -> Expr:
    """Return the lanes of a bool vector (at most 64) as the bits of a uint64, lane 0 lowest."""
    return make(Op.BITS, dt.uint64, (x,), x.lanes, 1)


def words(x: Expr) -> Expr:
    """Return the bits of neighbouring lanes of 8 or 16 bits as uint32, the first one lowest."""
    return make(Op.WORDS, dt.uint32, (x,), None, x.lanes * x.dtype.itemsize // 4)


def reverse(x: Expr) -> Expr:
    """Return the lanes of `x` in the opposite order."""
    return make(Op.REVERSE, x.dtype, (x,), x.lanes, x.lanes) if x.lanes > 1 else x


def slide(fill: Expr, x: Expr, places: int) -> Expr:
    """Return `x` moved up by some lanes, the last lanes of `fill` before it.

    Lane i is ``x[i - places]``, and ``fill[i - places + lanes]`` for the first `places` lanes.
    """
    return make(Op.SLIDE, x.dtype, (fill, x), places, x.lanes)


def shuffle(a: Expr, b: Expr, picks: Iterable[int]) -> Expr:
    """Return the lanes `picks` of the lanes of `a` followed by those of `b`, in this order."""
    chosen = tuple(picks)
    return make(Op.SHUFFLE, a.dtype, (a, b), "_".join(map(str, chosen)), len(chosen))


def compress(flags: Expr, x: Expr) -> Expr:
    """Return the lanes of `x` whose flag is set, in order from the first lane on, then zeros."""
    return make(Op.COMPRESS, x.dtype, (flags, x), None, x.lanes)


def picks_of(attr: str) -> tuple[int, ...]:
    """Return the lanes that a SHUFFLE picks."""
    return tuple(map(int, attr.split("_")))


def rebuild(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return `e` with other operands of the same types; lanes follow the operands."""
    if args == e.args:
        return e
    lanes = e.lanes if e.op.group == "vector" else args[0].lanes
    if e.op.group == "binary":
        return binary(e.op, args[0], args[1])
    if e.op is Op.WHERE and args[0].op is Op.CONST:
        return where(*args)
    return make(e.op, e.dtype, args, e.attr, lanes)


def toposort(roots: Iterable[Expr]) -> list[Expr]:
    """Return every distinct expression below `roots`, operands before users, iteratively."""
    done: dict[Expr, None] = {}
    stack: list[tuple[Expr, Iterator[Expr]]] = []
    for root in roots:
        if root in done:
            continue
        stack.append((root, iter(root.args)))
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in done:
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                done[node] = None
                stack.pop()
    return list(done)


def substitute(roots: Iterable[Expr], mapping: dict[Expr, Expr]) -> list[Expr]:
    """Return `roots` with every key of `mapping` replaced by its value, in one pass."""
    roots = list(roots)
    new: dict[Expr, Expr] = {}
    for e in toposort(roots):
        if e in mapping:
            new[e] = mapping[e]
        elif e.args:
            new[e] = rebuild(e, tuple(new[a] for a in e.args))
        else:
            new[e] = e
    return [new[r] for r in roots]


def free_vars(roots: Iterable[Expr]) -> set[Expr]:
    """Return the VARs below `roots`."""
    return {e for e in toposort(roots) if e.op is Op.VAR}


def variables(roots: Iterable[Expr]) -> set[Expr]:
    """Return the symbolic VARIABLEs below `roots`."""
    return {e for e in toposort(roots) if e.op is Op.VARIABLE}


_INFIX: Final = dict(add="+", sub="-", mul="*", div="/", floordiv="//", mod="%", lt="<", le="<=",
                     eq="==", ne="!=")  # fmt: skip


def show(e: Expr, limit: int = 400) -> str:
    """Return a short infix rendering for messages (the exact text is made by `text`)."""
    shown: dict[Expr, str] = {}
    for x in toposort([e]):
        args = [shown[a] for a in x.args]
        if x.op is Op.CONST or x.op is Op.VAR:
            text = str(x.attr)
        elif x.op is Op.VARIABLE:
            text = x.attr.name
        elif x.op.name in _INFIX:
            text = f"({args[0]} {_INFIX[x.op.name]} {args[1]})"
        else:
            text = f"{x.op.name}({', '.join(args)})"
        shown[x] = text if len(text) <= limit else text[: limit - 3] + "..."
    return shown[e]
