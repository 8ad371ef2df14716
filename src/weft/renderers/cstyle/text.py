"""Words of C and its relatives: operands with their precedence, identifiers, literals."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.renderers.base import encode_float

__all__ = ["ADD", "ATOM", "BITS", "EQUALITY", "KEYWORDS", "MUL", "TERNARY", "UNARY",
           "Names", "Text", "atom", "infix", "literal"]

# How tightly an operand holds together: what binds less than its place asks for is put in brackets.
ATOM: Final = 16  # a name, a literal, a call, an element
UNARY: Final = 14  # a sign, a cast, a negative literal
MUL: Final = 13
ADD: Final = 12
SHIFT: Final = 11
RELATION: Final = 10
EQUALITY: Final = 9
BITS: Final = 6  # &, ^ and |, whose ranks nobody remembers: their operands are at least unary
TERNARY: Final = 3

_LEVELS: Final = {"*": MUL, "/": MUL, "%": MUL, "+": ADD, "-": ADD, "<<": SHIFT, ">>": SHIFT,
                  "<": RELATION, "<=": RELATION, ">": RELATION, ">=": RELATION, "==": EQUALITY,
                  "!=": EQUALITY, "&": BITS, "^": BITS, "|": BITS}  # fmt: skip
_TYPED: Final = re.compile(r"(^|_)(bool|[iuf]\d+|bf16|f8e\w+)(x\d+)?u?$")  # of the prelude
_SHOWN: Final = 1 << 24  # integers below are written as decimal floats


class Text(NamedTuple):
    """An expression as it is written, and how tightly it holds together."""

    text: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """Return it for a place that needs at least this level."""
        return self.text if self.level >= level else f"({self.text})"


def atom(text: str) -> Text:
    """Return a name, a literal or a call as an operand."""
    return Text(text, ATOM)


def infix(operator: str, a: Text, b: Text) -> Text:
    """Return ``a operator b``; additions and multiplications group to the left, as C does."""
    level = _LEVELS[operator]
    if level in (MUL, ADD):
        return Text(f"{a.at(level)} {operator} {b.at(level + 1)}", level)
    # Of operators that rank otherwise than readers think, operands are put in brackets.
    least = ADD if level in (RELATION, EQUALITY) else UNARY
    return Text(f"{a.at(least)} {operator} {b.at(least)}", level)


class Names:
    """Identifiers of one kernel, each given once.

    Parameters
    ----------
    reserved
        Words that the language, or what is written before the kernel, has taken.
    """

    def __init__(self, reserved: frozenset[str]) -> None:
        self._taken = set(reserved)

    def take(self, wanted: str) -> str:
        """Return an identifier like `wanted` that nothing else has, and keep it."""
        plain = re.sub(r"\W", "_", wanted, flags=re.ASCII) or "_"
        if plain[0].isdigit() or plain.startswith(("_", "weft_")) or _TYPED.search(plain):
            plain = f"x{plain}"  # the others belong to compilers and to the prelude
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}_{count}"
        self._taken.add(name)
        return name


KEYWORDS: Final = frozenset((
    "alignas", "alignof", "asm", "auto", "bool", "break", "case", "char", "const", "constexpr",
    "continue", "default", "do", "double", "else", "enum", "extern", "false", "float", "for",
    "goto", "if", "inline", "int", "long", "main", "nullptr", "register", "restrict", "return",
    "short", "signed", "sizeof", "static", "static_assert", "struct", "switch", "thread_local",
    "true", "typedef", "typeof", "union", "unsigned", "void", "volatile", "while", "linux", "unix",
))  # fmt: skip


def literal(value: Any, d: DType) -> Text:
    """Return a scalar constant in the language's own notation, exactly.

    bool as 0 or 1, narrow floats as their bits, other floats in hexadecimal unless they are small
    whole numbers or halves. `special` of the writer spells infinities and NaN.
    """
    if d.kind == "b":
        return atom("1" if value else "0")
    if d.kind != "f":
        return _integer(int(value), d)
    if d.bits < 32:
        return atom(f"{encode_float(float(value), d):#x}")
    return _real(_single(float(value)) if d is dt.float32 else float(value), d)


def _integer(value: int, d: DType) -> Text:
    """Return an integer literal; one of int64 is an int if it fits, since all meet wider ones."""
    suffix = {32: "u", 64: "ull"}.get(d.bits, "") if d.kind == "u" else ""
    if d is dt.int64 and not -(1 << 31) < value < 1 << 31:
        suffix = "ll"
    if value == d.min and d.kind == "i" and d.bits >= 32:  # its magnitude is no literal of the type
        return Text(f"(-{-value - 1}{suffix} - 1)", ATOM)
    return Text(f"{value}{suffix}", UNARY if value < 0 else ATOM)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _real(value: float, d: DType) -> Text:
    suffix = "f" if d is dt.float32 else ""
    is_short = abs(value) < _SHOWN and value * 4 == int(value * 4)  # exact in decimal
    text = repr(value) if is_short else re.sub(r"\.?0*p", "p", value.hex())
    level = UNARY if math.copysign(1.0, value) < 0 else ATOM
    return Text(text + suffix, level)
