"""The table of operations: one row each, for graph nodes and scalar expressions alike.

Semantics, everywhere and on every device:

* **Integers** wrap around. ``FLOORDIV`` and ``MOD`` round towards minus infinity as in Python;
  ``x // 0 == 0``, ``x % 0 == 0``, ``INT_MIN // -1 == INT_MIN``, ``INT_MIN % -1 == 0``.
* **Shifts** by the width or more (or by a negative amount): ``SHL`` gives 0, ``SHR`` gives 0 for
  unsigned and the sign (0 or -1) for signed types.
* **Casts** float to integer truncate towards zero and saturate; NaN gives 0. Integer to narrower
  integer wraps. Anything to bool is ``!= 0`` (NaN is true). Float to narrower float rounds to
  nearest even; overflow gives infinity (float8_e4m3fn: NaN). A NaN stays a NaN.
* **Floats** are IEEE 754: no reassociation, no contraction; ``MAD`` alone is fused.
  ``MIN``/``MAX`` propagate NaN and order -0 < +0; comparisons with NaN are false except ``NE``.
  16-bit floats compute in float32 and round once per operation.
* ``FLOORDIV``/``MOD`` on floats are ``floor(x / y)`` and ``x - floor(x / y) * y`` with the sign of
  the divisor, exact where fmod is, as in Python; division by zero gives inf/NaN.
* **Dot products** add the products of narrow elements that lie side by side in 32-bit words, the
  first element in the lowest bits. ``DOT2(s, a, b)`` is ``fma(a0, b0, fma(a1, b1, s))`` on
  bfloat16 pairs, each step rounded to float32; subnormal operands, sums and results count as zeros
  of their sign (no instruction of this kind keeps them). ``DOT4(s, a, b)`` adds four products of
  an unsigned byte of `a` and a signed byte of `b` to an int32, which wraps around; both are signed
  in ``DOT4S``. ``MATRIX2``, ``MATRIX4`` and ``MATRIX4S`` multiply matrices of 16 x 16 words so:
  ``MATRIX2`` sums the lower and the upper elements apart, each with fused multiply-adds in order,
  and adds both sums to the result.
"""

from __future__ import annotations

import sys
from typing import Final, NoReturn

from weft.errors import DeviceError


class Operation:
    """One row of the op table.

    Attributes
    ----------
    name : str
        Lower-case name in printed IR.
    arity : int
        Number of operands; -1 for any number.
    group : str
        ``leaf``, ``unary``, ``binary``, ``ternary``, ``native``, ``dot``, ``convert``,
        ``vector``, ``movement``, ``reduce``, ``gather`` or ``buffer``.
    kinds : str
        The dtype kinds it accepts, of ``buif``.
    result : str
        ``same`` dtype as the operands, ``bool``, or ``attr`` (given at construction).
    commutative : bool
        Whether operands may be exchanged.
    """

    __slots__ = ("arity", "commutative", "group", "kinds", "name", "result")

    def __init__(self, name: str, arity: int, group: str, kinds: str = "buif",
                 result: str = "same", commutative: bool = False) -> None:  # fmt: skip
        self.name, self.arity, self.group = name, arity, group
        self.kinds, self.result, self.commutative = kinds, result, commutative

    def __repr__(self) -> str:
        return f"Op.{self.name.upper()}"

    @property
    def is_elementwise(self) -> bool:
        """Whether the op maps scalars to a scalar, lane by lane."""
        return self.group in ("unary", "binary", "ternary", "convert")


def _unary(name: str, kinds: str = "f", result: str = "same") -> Operation:
    return Operation(name, 1, "unary", kinds, result)


def _binary(name: str, kinds: str, commutative: bool = False, result: str = "same") -> Operation:
    return Operation(name, 2, "binary", kinds, result, commutative)


class Op:
    """All operations. ``Op.ADD`` is a row; `BY_NAME` finds one by its printed name."""

    # leaves
    CONST: Final = Operation("const", 0, "leaf", result="attr")  # attr: Python value
    VAR: Final = Operation("var", 0, "leaf", result="attr")  # attr: name of a let or loop
    VARIABLE: Final = Operation("variable", 0, "leaf", "i", "attr")  # attr: Bounds; int64

    # unary
    NEG: Final = _unary("neg", "uif")
    NOT: Final = _unary("not", "bui")  # logical on bool, bitwise on integers
    ABS: Final = _unary("abs", "uif")
    SQRT: Final = _unary("sqrt")  # correctly rounded
    RSQRT: Final = _unary("rsqrt")
    RECIPROCAL: Final = _unary("reciprocal")
    EXP: Final = _unary("exp")
    EXP2: Final = _unary("exp2")
    EXPM1: Final = _unary("expm1")
    LOG: Final = _unary("log")
    LOG2: Final = _unary("log2")
    LOG10: Final = _unary("log10")
    LOG1P: Final = _unary("log1p")
    SIN: Final = _unary("sin")
    COS: Final = _unary("cos")
    TAN: Final = _unary("tan")
    ASIN: Final = _unary("asin")
    ACOS: Final = _unary("acos")
    ATAN: Final = _unary("atan")
    SINH: Final = _unary("sinh")
    COSH: Final = _unary("cosh")
    TANH: Final = _unary("tanh")
    ASINH: Final = _unary("asinh")
    ACOSH: Final = _unary("acosh")
    ATANH: Final = _unary("atanh")
    ERF: Final = _unary("erf")
    ERFC: Final = _unary("erfc")
    SIGMOID: Final = _unary("sigmoid")
    FLOOR: Final = _unary("floor")
    CEIL: Final = _unary("ceil")
    TRUNC: Final = _unary("trunc")
    ROUND: Final = _unary("round")  # half to even
    POPCOUNT: Final = _unary("popcount", "ui")
    CLZ: Final = _unary("clz", "ui")  # width for 0

    # binary
    ADD: Final = _binary("add", "uif", True)
    SUB: Final = _binary("sub", "uif")
    MUL: Final = _binary("mul", "uif", True)
    DIV: Final = _binary("div", "f")
    FLOORDIV: Final = _binary("floordiv", "uif")
    MOD: Final = _binary("mod", "uif")  # sign of the divisor
    FMOD: Final = _binary("fmod", "uif")  # sign of the dividend
    POW: Final = _binary("pow", "uif")  # integers: wrap around, negative exponents by the limit
    ATAN2: Final = _binary("atan2", "f")
    COPYSIGN: Final = _binary("copysign", "f")
    MIN: Final = _binary("min", "buif", True)
    MAX: Final = _binary("max", "buif", True)
    AND: Final = _binary("and", "bui", True)
    OR: Final = _binary("or", "bui", True)
    XOR: Final = _binary("xor", "bui", True)
    SHL: Final = _binary("shl", "ui")
    SHR: Final = _binary("shr", "ui")
    MULHI: Final = _binary("mulhi", "ui", True)  # upper half of the double-width product
    LT: Final = _binary("lt", "buif", result="bool")
    LE: Final = _binary("le", "buif", result="bool")
    EQ: Final = _binary("eq", "buif", True, "bool")
    NE: Final = _binary("ne", "buif", True, "bool")

    # ternary
    WHERE: Final = Operation("where", 3, "ternary")  # bool, then two of one dtype
    MAD: Final = Operation("mad", 3, "ternary", "f")  # a * b + c, rounded once

    # what some targets have one instruction for (made by passes/transcendental,
    # passes/vector/extremes)
    SCALB: Final = Operation("scalb", 2, "native", "f")  # a * 2**floor(b), rounded once
    MAXNUM: Final = Operation("maxnum", 2, "native", "f")  # as MAX, but a number before a NaN
    MINNUM: Final = Operation("minnum", 2, "native", "f")
    NANOF: Final = Operation("nanof", 2, "native", "f")  # a if it is NaN, else b
    # its operand; what a WHERE takes where this holds is computed only if it does in some lane
    UNLIKELY: Final = Operation("unlikely", 1, "native", "b")
    # number a % n of a table of n = 16 or 32 float32 numbers; attr: the table (ir/lookup.py)
    LOOKUP: Final = Operation("lookup", 1, "native", "u", "attr")

    # dot products of packed words (made by schedule.tensorize); kinds: of the words
    DOT2: Final = Operation("dot2", 3, "dot", "u", "attr")  # float32 += 2 bf16 * 2 bf16
    DOT4: Final = Operation("dot4", 3, "dot", "u", "attr")  # int32 += 4 uint8 * 4 int8
    DOT4S: Final = Operation("dot4s", 3, "dot", "u", "attr")  # int32 += 4 int8 * 4 int8
    # ... of matrices of 16 x 16 in 256 lanes, row by row: c[i, j] += the sum of a[i, q] . b[q, j]
    MATRIX2: Final = Operation("matrix2", 3, "dot", "u", "attr")
    MATRIX4: Final = Operation("matrix4", 3, "dot", "u", "attr")
    MATRIX4S: Final = Operation("matrix4s", 3, "dot", "u", "attr")

    # conversion
    CAST: Final = Operation("cast", 1, "convert", result="attr")
    BITCAST: Final = Operation("bitcast", 1, "convert", result="attr")  # equal widths

    # vectors (kernel level; made by passes/vector/vectorize)
    BROADCAST: Final = Operation("broadcast", 1, "vector")  # scalar to all lanes
    RAMP: Final = Operation("ramp", 1, "vector", "ui")  # base, base + 1, ...
    # base + i * attr + j for row i and column j of a matrix of 16 x 16, in 256 lanes
    PLACES: Final = Operation("places", 1, "vector", "i")
    EXTRACT: Final = Operation("extract", 1, "vector")  # attr: lane
    HALF: Final = Operation("half", 1, "vector")  # attr: 0 lower, 1 upper half of the lanes
    REVERSE: Final = Operation("reverse", 1, "vector")  # last lane first; attr: the lanes
    SLIDE: Final = Operation("slide", 2, "vector")  # attr n: last n lanes of a, then those of b
    SHUFFLE: Final = Operation("shuffle", 2, "vector")  # attr "0_5_1": these lanes of a, then b

    # uint32 from the bits of 2 or 4 neighbouring lanes each, the first one lowest
    WORDS: Final = Operation("words", 1, "vector", result="attr")

    # the lanes of b whose flag in a is set, in order from the first lane on; zeros behind them
    COMPRESS: Final = Operation("compress", 2, "vector")
    BITS: Final = Operation("bits", 1, "vector", "b", "attr")  # lane i is bit i of a uint64

    # graph level only (attributes in ir/node.py)
    BUFFER: Final = Operation("buffer", 0, "buffer", result="attr")
    IOTA: Final = Operation("iota", 0, "leaf", "uif", "attr")  # attr: axis; shape of the node
    RESHAPE: Final = Operation("reshape", 1, "movement")
    PERMUTE: Final = Operation("permute", 1, "movement")
    EXPAND: Final = Operation("expand", 1, "movement")
    SLICE: Final = Operation("slice", 1, "movement")
    PAD: Final = Operation("pad", 1, "movement")
    WINDOW: Final = Operation("window", 1, "movement")
    UNWINDOW: Final = Operation("unwindow", 1, "movement")
    STRIDED: Final = Operation("strided", 1, "movement")
    REDUCE: Final = Operation("reduce", 1, "reduce")
    ARGREDUCE: Final = Operation("argreduce", 1, "reduce", result="attr")
    SCAN: Final = Operation("scan", 1, "scan")
    RECURRENCE: Final = Operation("recurrence", 2, "scan")  # h[k] = a[k] * h[k - 1] + b[k]
    SORT: Final = Operation("sort", 1, "sort", result="attr")  # a tuple: values, indices
    # a tuple: what a kernel of the user leaves in the arrays that it writes to
    LAUNCH: Final = Operation("launch", -1, "launch", result="attr")
    PROJECT: Final = Operation("project", 1, "tuple", result="attr")
    GATHER: Final = Operation("gather", 2, "gather")
    SCATTER: Final = Operation("scatter", 3, "gather")
    # a tuple: the elements of a row where a row of bool is true, how many they are
    PACK: Final = Operation("pack", 2, "pack")
    CONTIGUOUS: Final = Operation("contiguous", 1, "buffer")
    DETACH: Final = Operation("detach", 1, "buffer")
    COPY: Final = Operation("copy", 1, "device", result="same")  # attr: name of the device


MATRICES: Final = (Op.MATRIX2, Op.MATRIX4, Op.MATRIX4S)  # products of whole matrices
BY_NAME: Final[dict[str, Operation]] = {
    row.name: row for row in vars(Op).values() if isinstance(row, Operation)
}
SCALAR_OPS: Final[tuple[Operation, ...]] = tuple(
    row for row in BY_NAME.values() if row.is_elementwise
)
# What values that a device only stores may be in: a copy of them takes these along (see
# `weft.graph.stored_reads`).
MOVES: Final = frozenset(
    row for row in BY_NAME.values() if row.group == "movement" or row in (Op.CONTIGUOUS, Op.DETACH)
)
# Names of devices that store values and compute none: those whose backend says so.
storage_only: Final[set[str]] = set()


def place_of(op: Operation, device: str, attr: object) -> str:
    """Return where a node with this attribute, of operands on a device, is computed.

    It is the device of the operands but for a BUFFER and a COPY, whose attributes tell it.

    Raises
    ------
    DeviceError
        If nothing of the kind is done there: the device only stores values.
    """
    if op is Op.COPY or op is Op.BUFFER:
        found = attr if op is Op.COPY else getattr(attr, "device", "")
        if type(found) is not str:
            return ""  # the verifier refuses it
        if found in storage_only and op is Op.COPY:
            _refuse(op, found)
        return sys.intern(found)
    if device in storage_only and op not in MOVES:
        _refuse(op, device)
    return device


def refuse_devices(op: Operation, first: str, second: str) -> NoReturn:
    """Say that the operands of an operation are on several devices.

    Raises
    ------
    DeviceError
        Always.
    """
    goal = second if first in storage_only else first
    raise DeviceError(op.name, found=f"operands on {first} and {second}",
                      expected="operands on one device", hint=f"move one, as in x.to({goal!r})")


def _refuse(op: Operation, device: str) -> NoReturn:
    """Say that an operation does nothing on a device that only stores values.

    Raises
    ------
    DeviceError
        Always.
    """
    if op is Op.COPY:
        raise DeviceError(f"copy to {device}", found="a tensor without a file",
                          expected="a device with memory to write to",
                          hint="weft.save(tensors, path) writes a file, which "
                          f"weft.load(path, device={device!r}) opens")
    raise DeviceError(op.name, found=f"a tensor on {device}, where nothing is computed",
                      expected="tensors on a device that computes",
                      hint="copy it there first, as in x.to('cpu')")
