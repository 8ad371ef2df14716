"""Types and values of operators between numbers, against what numba.cuda gives them.

The grids were written by numba-cuda 0.30 (numba 0.68): a row for each type of the left operand, a
letter for the type of the result, as NumPy has them, and ``-`` where numba has no such operator.
"""

import math
import operator
from typing import Any

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import KernelError
from weft.ir import dtype as dt
from weft.lang.core.values import Group, Known
from weft.lang.reader.translate import Launch, translate
from weft.lang.values.types import ScalarType

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64"]  # fmt: skip

ARITHMETIC = ("qqqqqqqqqefd qqqqqqqqqefd qqqqqqqqqffd qqqqqqqqqddd qqqqqqqqqddd qqqqqQQQQffd "
              "qqqqqQQQQddd qqqqqQQQQddd qqqqqQQQQddd eefddfdddefd fffddfdddffd dddddddddddd")
DIVISION = ("dddddddddefd dddddddddefd dddddddddffd dddddddddddd dddddddddddd dddddddddffd "
            "dddddddddddd dddddddddddd dddddddddddd eefddfdddefd fffddfdddffd dddddddddddd")
ROUNDING = ("qqqqqqqqqffd qqqqqqqqqffd qqqqqqqqqffd qqqqqqqqqddd qqqqqqqqqddd qqqqqQQQQffd "
            "qqqqqQQQQddd qqqqqQQQQddd qqqqqQQQQddd fffddfdddffd fffddfdddffd dddddddddddd")
POWER = ("qqqfqqqqqffd qqqqqqqqqffd qqqqqqqqqffd qqqqqqqqqddd qqqqqqqqqddd qqqqqQQQQffd "
         "qqqqqQQQQddd qqqqqQQQQddd qqqqqQQQQddd fffffffffffd fffffffffffd dddddddddddd")
SHIFT = ("qqqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- QQQQQQQQQ--- "
         "QQQQQQQQQ--- QQQQQQQQQ--- QQQQQQQQQ--- ------------ ------------ ------------")
BITS = ("?qqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- qqqqqqqqq--- qqqqqQQQQ--- "
        "qqqqqQQQQ--- qqqqqQQQQ--- qqqqqQQQQ--- ------------ ------------ ------------")
UNIFIED = ("?bhiqBHIQefd bbhiqhiqdefd hhhiqhiqdffd iiiiqiiqdddd qqqqqqqqdddd BhhiqBHIQefd "
           "HiiiqHHIQffd IqqqqIIIQddd QddddQQQQddd eefddefddefd fffddffddffd dddddddddddd")
DIVMOD = ("qqqqqQQQQffd qqqqqqqqdffd qqqqqqqqdffd qqqqqqqqdddd qqqqqqqqdddd QqqqqQQQQffd "
          "QqqqqQQQQddd QqqqqQQQQddd QddddQQQQddd fffddfdddffd fffddfdddffd dddddddddddd")
MATH_POW = ("ffffdfdddffd ffffdfdddffd ffffdfdddffd dddddddddddd dddddddddddd ffffdfdddffd "
            "dddddddddddd dddddddddddd dddddddddddd ffffdfdddffd ffffdffddffd dddddddddddd")
FMOD = ("fffddfdddffd fffddfdddffd fffddfdddffd dddddddddddd dddddddddddd fffddfdddffd "
        "dddddddddddd dddddddddddd dddddddddddd fffddfdddffd fffddfdddffd dddddddddddd")
ATAN2 = ("dddddddddffd dddddddddffd dddddddddffd dddddddddddd dddddddddddd dddddddddffd "
         "dddddddddddd dddddddddddd dddddddddddd fffddfdddffd fffddfdddffd dddddddddddd")
LDEXP = ("ffffffffffff ffffffffffff ffffffffffff dddddddddddd dddddddddddd ffffffffffff "
         "dddddddddddd dddddddddddd dddddddddddd ffffffffffff ffffffffffff dddddddddddd")
TESTS = " ".join(["?" * 12] * 12)

OF_TWO = {
    "a + b": ARITHMETIC, "a - b": ARITHMETIC, "a * b": ARITHMETIC, "a / b": DIVISION,
    "a // b": ROUNDING, "a % b": ROUNDING, "a ** b": POWER, "pow(a, b)": POWER, "a << b": SHIFT,
    "a >> b": SHIFT, "a & b": BITS, "a | b": BITS, "a ^ b": BITS, "a < b": TESTS, "a >= b": TESTS,
    "a == b": TESTS, "a != b": TESTS, "a if a < b else b": UNIFIED, "a and b": UNIFIED,
    "a or b": UNIFIED, "divmod(a, b)": DIVMOD, "math.pow(a, b)": MATH_POW, "math.fmod(a, b)": FMOD,
    "math.copysign(a, b)": FMOD, "math.atan2(a, b)": ATAN2, "math.hypot(a, b)": ATAN2,
    "math.ldexp(a, b)": LDEXP,
}  # fmt: skip
OF_ONE = {
    "-a": "qqqqqQQQQefd", "+a": "qqqqqQQQQefd", "~a": "?qqqqQQQQ---", "not a": "?" * 12,
    "abs(a)": "bbhiqBHIQefd", "round(a)": "q" * 12, "int(a)": "qbhiqBHIQqqq",
    "float(a)": "dddddddddefd", "bool(a)": "?" * 12, "a + 1": "qqqqqqqqqddd",
    "1 - a": "qqqqqqqqqddd", "a // 2": "qqqqqqqqqddd", "a % 3": "qqqqqqqqqddd",
    "a * 2.0": "d" * 12, "a / 2": "d" * 12, "2 ** a": "qqqqqqqqqddd", "a ** 2": "qqqqqqqqqffd",
    "a ** -1": "qqqqqqqqqffd", "a ** 0.5": "d" * 12, "a << 1": "qqqqqQQQQ---",
    "1 << a": "qqqqqqqqq---", "a & 1": "qqqqqqqqq---", "a + True": "qqqqqqqqqefd",
    "math.floor(a)": "ddddddddd.fd", "math.ceil(a)": "ddddddddd.fd",
    "math.trunc(a)": "ddddddddd.fd", "math.sqrt(a)": "ddddddddd.fd", "math.exp(a)": "ddddddddd.fd",
    "np.uint8(a)": "B" * 12, "np.int32(a)": "i" * 12, "np.float32(a)": "f" * 12,
}  # fmt: skip


class Seen:
    """Takes the types of what it is called with while a kernel is compiled."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __weft_call__(self, reader: Any, args: list[Any], node: Any) -> Known:
        value = args[0].items[0] if isinstance(args[0], Group) else args[0]
        self.found.append(np.dtype(reader.scalar(value, node).dtype.numpy).char)
        return Known(None)


def letters(expressions: list[str], types: dict[str, str]) -> list[str]:
    """Return the letters of the types that expressions have."""
    seen = Seen()
    names = ", ".join(types)
    body = "".join(f"    seen({e})\n" for e in expressions)
    space: dict[str, Any] = {"seen": seen, "math": math, "np": np}
    exec(f"def kernel({names}):\n{body}", space)
    given = {name: ScalarType(getattr(dt, "bool_" if t == "bool" else t))
             for name, t in types.items()}
    translate(space["kernel"], given, Launch((1, 1, 1)), wraps=True, fma=True)
    return ["q" if letter == "l" else "Q" if letter == "L" else letter for letter in seen.found]


@pytest.mark.grid
@pytest.mark.parametrize("first", TYPES)
def test_types_of_two(first: str) -> None:
    """Each operator between a type and each other one."""
    for column, second in enumerate(TYPES):
        wanted = {e: grid.split()[TYPES.index(first)][column] for e, grid in OF_TWO.items()}
        asked = [e for e, letter in wanted.items() if letter != "-"]
        found = dict(zip(asked, letters(asked, {"a": first, "b": second}), strict=True))
        assert found == {e: wanted[e] for e in asked}, (first, second)


@pytest.mark.grid
@pytest.mark.parametrize("kind", TYPES)
def test_types_of_one(kind: str) -> None:
    """Each operator and conversion of one number."""
    wanted = {e: row[TYPES.index(kind)] for e, row in OF_ONE.items()}
    asked = [e for e, letter in wanted.items() if letter not in "-."]
    found = dict(zip(asked, letters(asked, {"a": kind}), strict=True))
    assert found == {e: wanted[e] for e in asked}


@pytest.mark.grid
@pytest.mark.parametrize(("expression", "types"), [
    ("a << b", ("int64", "float32")), ("a >> b", ("float16", "bool")),
    ("a & b", ("float64", "float64")), ("a | b", ("bool", "float32")), ("~a", ("float64", "bool")),
])
def test_bits_of_floats_are_refused(expression: str, types: tuple[str, str]) -> None:
    """As numba does; the error has the place."""
    with pytest.raises(KernelError, match="unsupported operand"):
        letters([expression], dict(zip("ab", types, strict=True)))


# --- values

def extremes(kind: str) -> list[int]:
    """Return integers at and about the ends of a type."""
    if kind == "bool":
        return [0, 1]
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    found = {0, 1, 2, 7, 63, 64, high, high - 1, low, low + 1, high // 2 + 1}
    return sorted(found | ({-1, -2, -7, -64} if low else set()))


def exact(symbol: str, x: int, y: int, unsigned: bool) -> int:
    """Return what numba's rules give for two integers, as an int that is not wrapped yet."""
    if symbol in ("//", "%"):
        if y == 0:
            return 0
        return x // y if symbol == "//" else x % y
    if symbol == "**":
        if y < 0:
            return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
        return pow(x, y, 1 << 64)
    if symbol in ("<<", ">>"):
        if not 0 <= y < 64:
            return -1 if symbol == ">>" and x < 0 else 0
        return x << y if symbol == "<<" else x >> y
    return int({"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_,
                "|": operator.or_, "^": operator.xor}[symbol](x, y))


def wrapped(value: int, kind: str) -> int:
    """Return an integer as a type holds it."""
    if kind == "bool":
        return int(value != 0)
    bits = np.iinfo(kind).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "i" and value >> (bits - 1) else value


SYMBOLS = ["+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^"]
INTEGERS = TYPES[:9]
PAIRS = [(a, b) for a in INTEGERS for b in INTEGERS]
COMPILED = [("int64", "int64"), ("int32", "uint64"), ("uint64", "uint64"), ("uint64", "int8"),
            ("int8", "uint16"), ("bool", "int32")]  # fmt: skip


def operators_of(names: str) -> Any:
    """Return a kernel that applies all operators, each into an array of its own."""
    outs = [f"o{k}" for k in range(len(SYMBOLS))]
    lines = [f"        {o}[i] = a[i] {s} b[i]" for o, s in zip(outs, SYMBOLS, strict=True)]
    space: dict[str, Any] = {"cuda": cuda}
    exec(f"def {names}(a, b, {', '.join(outs)}):\n    i = cuda.grid(1)\n    if i < a.size:\n"
         + "\n".join(lines), space)
    return cuda.jit(space[names])


KERNEL = operators_of("operators")


@pytest.mark.grid
@pytest.mark.parametrize(("first", "second", "compiled"), [
    *((a, b, True) for a, b in COMPILED), *((a, b, False) for a, b in PAIRS[::4])])
def test_values_of_two_integers(first: str, second: str, compiled: bool) -> None:
    """Overflow, division by zero and by -1, powers below zero, shifts by too much."""
    pairs = [(x, y) for x in extremes(first) for y in extremes(second)]
    a, b = (np.array(v, first if k == 0 else second)
            for k, v in enumerate(zip(*pairs, strict=True)))
    grids = [ARITHMETIC, ARITHMETIC, ARITHMETIC, ROUNDING, ROUNDING, POWER, SHIFT, SHIFT,
             BITS, BITS, BITS]  # fmt: skip
    place = INTEGERS.index(first), INTEGERS.index(second)
    chars = [grid.split()[place[0]][place[1]] for grid in grids]
    outs = [np.zeros(len(a), c) for c in chars]
    count = (len(a) + 63) // 64
    run = KERNEL[count, 64] if compiled else weft.interpret(KERNEL, count, 64)
    run(a, b, *outs)
    for symbol, char, out in zip(SYMBOLS, chars, outs, strict=True):
        if char == "f":  # of a bool and an int32, which numba makes floats of
            continue
        kind = {"q": "int64", "Q": "uint64", "?": "bool"}[char]
        held = [(wrapped(x, kind), y if symbol in ("<<", ">>", "**") else wrapped(y, kind))
                for x, y in pairs]
        if symbol == "**":
            held = [(x, wrapped(y, kind)) for x, y in held]
        wanted = [wrapped(exact(symbol, x, y, kind == "uint64"), kind) for x, y in held]
        assert out.tolist() == wanted, symbol


@cuda.jit
def signs(a, b, c, negative, inverse, sizes, narrow):
    i = cuda.grid(1)
    if i < a.size:
        negative[i] = -a[i]
        inverse[i] = ~b[i]
        sizes[i] = abs(c[i])
        narrow[i] = -int(c[i])


def test_signs_wrap_in_the_type_of_the_number() -> None:
    """The least int32 and int8 are their own negatives."""
    least = -(1 << 31)
    for run in (signs[1, 4], weft.interpret(signs, 1, 4)):
        found = [np.zeros(3, np.int64) for _ in range(4)]
        run(np.array([least, -1, 7], np.int32), np.array([0, 3, 255], np.uint8),
            np.array([-128, 127, -1], np.int8), *found)
        assert [f.tolist() for f in found] == [
            [least, 1, -7], [255, 252, 0], [-128, 127, 1], [-128, -127, 1]]


@cuda.jit
def cut(x, y, words, bytes_, unsigned, large):
    i = cuda.grid(1)
    if i < x.size:
        words[i] = int(x[i])
        bytes_[i] = np.int8(y[i])
        unsigned[i] = np.uint32(x[i])
        large[i] = np.uint64(y[i])


def test_floats_saturate() -> None:
    """What does not fit becomes the nearest number that does, NaN becomes 0, as in hardware."""
    values = [math.nan, math.inf, -math.inf, 1e30, -1e30, 300.7, -7.9, 2.0**63]
    for run in (cut[1, 8], weft.interpret(cut, 1, 8)):
        found = [np.zeros(8, t) for t in (np.int64, np.int8, np.uint32, np.uint64)]
        run(np.array(values), np.array(values, np.float32), *found)
        ends = [np.iinfo(f.dtype) for f in found]
        for out, end in zip(found, ends, strict=True):
            wanted = [0, end.max, end.min, end.max, end.min, min(300, end.max), max(-7, end.min),
                      min(1 << 63, end.max)]
            assert out.tolist() == wanted


@cuda.jit
def of_floats(x, y, n, least, largest, power, whole, below):
    i = cuda.grid(1)
    if i < x.size:
        least[i] = min(x[i], y[i])
        largest[i] = max(x[i], y[i])
        power[i] = x[i] ** n[i]
        whole[i] = math.floor(x[i])
        below[i] = math.ceil(x[i]) / 3


def test_floats_as_on_a_gpu() -> None:
    """A NaN gives way to a number, the parity of a large power counts, whole floats stay floats."""
    x = np.array([np.nan, 1, -1, 3.5, 1e30], np.float32)
    y = np.array([2, np.nan, -5, 3.25, np.inf], np.float32)
    n = np.array([0, -1, (1 << 31) - 1, 2, 1], np.int32)
    for run in (of_floats[1, 8], weft.interpret(of_floats, 1, 8)):
        found = [np.zeros(5) for _ in range(5)]
        run(x, y, n, *found)
        np.testing.assert_array_equal(found[0], np.fmin(x, y))
        np.testing.assert_array_equal(found[1], np.fmax(x, y))
        np.testing.assert_array_equal(found[2], [1, 1, -1, 12.25, np.float32(1e30)])
        np.testing.assert_array_equal(found[3], np.floor(x))
        np.testing.assert_array_equal(found[4], np.ceil(x).astype(float) / 3)


@weft.kernel
def of_python(x, y, found, whole):
    i = weft.gpu.grid(1)
    if i < x.size:
        found[i] = min(x[i], y[i])
        whole[i] = math.floor(x[i])


def test_floats_as_in_python_under_weft_kernel() -> None:
    """There ``min`` is ``b if b < a else a``, and ``math.floor`` an int, as in Python."""
    found, whole = np.zeros(2), np.zeros(2, np.int64)
    of_python[1, 2](np.array([np.nan, -2.5]), np.array([1, np.nan]), found, whole)
    np.testing.assert_array_equal(found, [np.nan, -2.5])
    assert whole.tolist() == [0, -3]


@pytest.mark.parametrize(("value", "wanted"), [
    (np.int8(100), 200), (np.uint8(200), 400), (np.int64((1 << 63) - 1), -2)])
def test_numbers_of_numpy_that_are_known(value: np.integer[Any], wanted: int) -> None:
    """Numbers from outside compute as those of arrays do, not in the type that NumPy keeps."""

    @cuda.jit
    def twice(out):
        out[0] = value + value

    out = np.zeros(1, np.int64)
    twice[1, 1](out)
    assert out[0] == wanted
