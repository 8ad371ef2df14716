"""Reading one line of IR text: tokens, literals, types and expressions."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from weft.errors import ParseError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Bounds, Expr, Scalar, make
from weft.ir.lookup import is_table
from weft.ir.op import BY_NAME, Op, Operation
from weft.ir.stmt import Memory
from weft.ir.text.text_expr import INFIX

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_TOKEN: Final = re.compile(
    rf"""\s*(?:
      (?P<var>%(?:[A-Za-z_0-9][A-Za-z0-9_.]*|{_STRING}(?:\.\d+)?))
    | (?P<temp>\$\d+)
    | (?P<string>{_STRING})
    | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf\b))
    | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<sign>\.\.|//|<<|>>|<=|==|!=|[-+*/%&|^<=(){{}}\[\],:@])
    )""",
    re.VERBOSE,
)
_TYPE: Final = re.compile(
    "(" + "|".join(sorted((d.text for d in dt.ALL), key=len, reverse=True)) + r")(?:x(\d+))?"
)
_SIGNS: Final[dict[str, Operation]] = {sign: BY_NAME[op] for op, sign in INFIX.items()}
_LEVELS: Final = ("leaf", "unary", "binary", "ternary", "native", "dot", "convert",
                 "vector")
_DIGITS: Final = re.compile(r"-?\d+")

Typed = tuple[DType, int]


class Names:
    """What the lines before the current one have named."""

    __slots__ = ("memories", "temporaries", "types")

    def __init__(self) -> None:
        self.types: dict[str, Typed] = {}
        self.temporaries: dict[str, Expr] = {}
        self.memories: dict[str, Memory] = {}


class Line:
    """The tokens of one line, read from left to right.

    Raises
    ------
    ParseError
        From every method, where the line says something else; its ``where`` names the line.
    """

    __slots__ = ("at", "kinds", "names", "number", "text", "tokens")

    def __init__(self, text: str, number: int, names: Names) -> None:
        self.text, self.number, self.names = text, number, names
        self.at = 0
        self.tokens: list[str] = []
        self.kinds: list[str] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                self.fail("a token", text[position:].strip())
            self.tokens.append(found[found.lastgroup])
            self.kinds.append(found.lastgroup)
            position = found.end()

    def fail(self, expected: str, found: str | None = None) -> NoReturn:
        """Raise the error of this line."""
        if found is None:
            found = self.tokens[self.at] if self.at < len(self.tokens) else "the end of the line"
        raise ParseError(f"IR text, line {self.number}", found=found, expected=expected,
                         where=("<IR text>", self.number, self.text.strip()))

    # --- tokens

    @property
    def more(self) -> bool:
        """Whether tokens are left."""
        return self.at < len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        """Return a token without taking it; "" at the end."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self, *choices: str) -> bool:
        """Take the next tokens if they are these."""
        for n, text in enumerate(choices):
            if self.peek(n) != text:
                return False
        self.at += len(choices)
        return True

    def expect(self, *choices: str) -> None:
        """Take exactly these tokens."""
        for text in choices:
            if not self.take(text):
                self.fail(repr(text))

    def _next(self, kind: str, expected: str) -> str:
        if not self.more or self.kinds[self.at] != kind:
            self.fail(expected)
        self.at += 1
        return self.tokens[self.at - 1]

    def end(self) -> None:
        """Check that nothing is left."""
        if self.more:
            self.fail("the end of the line")

    def name(self) -> str:
        """Return a name, plain or in quotes."""
        if self.more and self.kinds[self.at] == "string":
            return self.string()
        return self._next("name", "a name")

    def one_of(self, choices: Iterable[str], what: str) -> str:
        """Return a name that is one of `choices`."""
        found = self.peek()
        if found not in tuple(choices):
            self.fail(f"{what}: one of {', '.join(choices)}")
        self.at += 1
        return found

    def order(self, choices: Iterable[str], usual: str) -> str:
        """Return the memory order that ends the line, or the usual one."""
        return self.one_of(choices, "an order") if self.more else usual

    def string(self) -> str:
        """Return the content of a string in quotes."""
        return self.unquoted(self._next("string", "a string in double quotes"))

    def unquoted(self, text: str) -> str:
        """Return what a string in quotes says."""
        try:
            return str(json.loads(text))
        except ValueError:
            self.fail("a string in double quotes", text)

    def integer(self) -> int:
        """Return an integer literal."""
        text = self._next("number", "an integer")
        if not _DIGITS.fullmatch(text):
            self.fail("an integer", text)
        return int(text)

    def var_name(self) -> str:
        """Return the name of a ``%variable``."""
        text = self._next("var", "a %name")[1:]
        return self.unquoted(text) if text.startswith('"') else text

    def type(self) -> Typed:
        """Return an element type with its lanes: ``f32`` or ``f32x16``."""
        text = self._next("name", "a type")
        found = _TYPE.fullmatch(text)
        if found is None:
            self.fail("a type like f32 or f32x16", text)
        return dt.from_text(found[1]), int(found[2] or 1)

    # --- declarations

    def binder(self) -> Expr:
        """Return a bound name, and note its type."""
        text = self.var_name()
        typed = self.type() if self.take(":") else (dt.int64, 1)
        self.names.types[text] = typed
        return make(Op.VAR, typed[0], (), text, typed[1])

    def declaration(self) -> Memory:
        """Return ``name: f32[8, 16] scope``, and note the memory."""
        name = self.name()
        self.expect(":")
        dtype, _ = self.type()
        self.expect("[")
        shape = self.exprs("]")
        scope = "global"
        if self.more and self.peek() in ("shared", "local", "register", "constant"):
            scope = self.name()
        memory = Memory(name, dtype, shape, scope)
        self.names.memories[name] = memory
        return memory

    def memory(self) -> Memory:
        """Return a memory that was declared before."""
        name = self.name()
        found = self.names.memories.get(name)
        if found is None:
            self.at -= 1
            self.fail("a declared memory")
        return found

    # --- expressions

    def exprs(self, closing: str) -> tuple[Expr, ...]:
        """Return expressions separated by commas, up to and with the closing token."""
        found: list[Expr] = []
        while not self.take(closing):
            if found:
                self.expect(",")
            found.append(self.expr())
        return tuple(found)

    def expr(self) -> Expr:
        """Return an expression: an operand, or two with an operator between them."""
        try:
            return self._infix()
        except RecursionError:
            self.fail("less nesting; name parts of the expression", "very deep parentheses")

    def option(self, key: str) -> Expr | None:
        """Return the expression after a keyword, or None if the keyword is not next."""
        return self.expr() if self.take(key) else None

    def temporary(self) -> None:
        """Read ``$n = expression``."""
        text = self._next("temp", "$n")
        self.expect("=")
        self.names.temporaries[text] = self.expr()

    def _infix(self) -> Expr:
        left = self._operand()
        op = _SIGNS.get(self.peek())
        if op is None:
            return left
        self.at += 1
        return self.build(op, (left, self._operand()))

    def _operand(self) -> Expr:
        if not self.more:
            self.fail("an operand")
        kind, text = self.kinds[self.at], self.tokens[self.at]
        if kind == "var":
            return self._var()
        if kind == "number":
            self.at += 1
            return self._constant(text)
        if kind == "temp":
            found = self.names.temporaries.get(text)
            if found is None:
                self.fail("a part that was named before")
            self.at += 1
            return found
        if kind == "name":
            self.at += 1
            return self._word(text)
        if self.take("("):
            inner = self._infix()
            self.expect(")")
            return inner
        if self.take("@"):
            return make(Op.VARIABLE, dt.int64, (), self.bounds())
        self.fail("an operand")

    def bounds(self) -> Bounds:
        """Return the name and range of a symbolic variable, after its ``@``."""
        name = self.name()
        self.expect("[")
        low = self.integer()
        self.expect("..")
        high = self.integer()
        self.expect("]")
        return Bounds(name, low, high)

    def _var(self) -> Expr:
        text = self.var_name()
        known = self.names.types.get(text, (dt.int64, 1))
        typed = self.type() if self.take(":") else known
        return make(Op.VAR, typed[0], (), text, typed[1])

    def _constant(self, text: str) -> Expr:
        typed = (dt.bool_ if text in ("true", "false") else dt.int64), 1
        if self.take(":"):
            typed = self.type()
        return make(Op.CONST, typed[0], (), self.scalar(text, typed[0]), typed[1])

    def scalar(self, text: str, dtype: DType) -> Scalar:
        """Return the value of a literal of this type."""
        if dtype.is_bool:
            if text not in ("true", "false", "0", "1"):
                self.fail("true or false", text)
            return text in ("true", "1")
        if _DIGITS.fullmatch(text):
            return int(text)
        if not dtype.is_float or text in ("true", "false"):
            self.fail(f"a literal of {dtype.name}", text)
        if text.startswith("nan_"):
            raw = bytes.fromhex(text[4:])
            return float(struct.unpack(">d", raw)[0]) if len(raw) == 8 else math.nan
        try:
            return float(text)
        except ValueError:  # a name
            self.fail(f"a literal of {dtype.name}", text)

    def literal(self, dtype: DType) -> Scalar:
        """Return the next token as a literal of this type."""
        if not self.more or self.kinds[self.at] not in ("number", "name"):
            self.fail("a literal")
        self.at += 1
        return self.scalar(self.tokens[self.at - 1], dtype)

    def _word(self, text: str) -> Expr:
        if text in ("true", "false", "nan") or re.fullmatch(r"nan_[0-9a-f]{16}", text):
            return self._constant(text)
        head, _, detail = text.partition(".")
        op = BY_NAME.get(head)
        if op is None or op.group not in _LEVELS or not self.take("("):
            self.at -= 1
            self.fail("an operand")
        return self.build(op, self.exprs(")"), detail)

    def build(self, op: Operation, args: Sequence[Expr], detail: str = "") -> Expr:
        """Return an operation, neither checked nor folded beyond what its text must say."""
        if len(args) != op.arity or not args:
            self.fail(f"{op.arity} operands of {op.name}", f"{len(args)}")
        dtype, lanes, attr = args[-1].dtype, args[0].lanes, None
        if op.result == "bool":
            dtype = dt.bool_
        elif op is Op.CAST or op is Op.BITCAST:
            found = _TYPE.fullmatch(detail)
            if found is None:
                self.fail("a type after cast", detail)
            dtype = dt.from_text(found[1])
        elif op.group == "dot" and not detail:
            dtype = args[0].dtype
        elif op.group == "vector":
            if op is Op.WORDS and not detail:
                return make(op, dt.uint32, tuple(args), None, lanes * dtype.itemsize // 4)
            if op is Op.COMPRESS:
                return make(op, dtype, tuple(args), None, lanes)
            if op is Op.SHUFFLE:
                if not re.fullmatch(r"\d+(?:_\d+)*", detail):
                    self.fail("lanes after shuffle", detail)
                return make(op, dtype, tuple(args), detail, detail.count("_") + 1)
            if not detail.isdigit():
                self.fail(f"a number after {op.name}", detail)
            attr = int(detail)
            if op is Op.BROADCAST or op is Op.RAMP:
                lanes, attr = attr, None
            elif op is Op.PLACES:
                lanes = 256
            elif op is Op.BITS:
                dtype, lanes = dt.uint64, 1
            elif op is not Op.SLIDE and op is not Op.REVERSE:
                lanes = 1 if op is Op.EXTRACT else lanes // 2
        elif op is Op.LOOKUP:
            if not is_table(detail):
                self.fail("a table of 16 or 32 numbers after lookup", detail)
            return make(op, dt.float32, tuple(args), detail, lanes)
        elif detail:
            self.fail(f"{op.name} without a detail", detail)
        return make(op, dtype, tuple(args), attr, lanes)
