"""Exact text of expressions: names, constants, sharing.

    (%i * 512) + %j            operators in infix form, nested ones in parentheses
    where(%c, 0.5:f32, %x:f32) other operations as calls; constants but int64 carry their type
    cast.f32(%i)               what is no operand follows the name after a dot
    @n[1..64]                  a symbolic Variable with its range
    $0 = exp(%x * 2.0:f32)     a line that names a shared or deep expression for what follows

Floats are written by their shortest exact decimal, a NaN by its bits. Nothing is folded when the
text is read, so that ``parse_expr(print_expr(e)) is e``.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from typing import Any, Final

from weft.ir.dtype import DType
from weft.ir.expr import Expr, Scalar, toposort
from weft.ir.linear import typename
from weft.ir.op import Op

INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "&",
    "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
SHARED: Final = 24  # characters above which an expression with several users gets a name
LONG: Final = 96  # characters above which any expression does
DEEP: Final = 10  # nesting above which any expression does

PLAIN_NAME: Final = re.compile(r"(?!inf\b)[A-Za-z_][A-Za-z0-9_.]*")
_DEFAULT_NAN: Final = struct.pack("<d", math.nan)


def quoted(text: str) -> str:
    """Return a string in double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


def name(text: str) -> str:
    """Return a name, in quotes where it is no plain one."""
    return text if PLAIN_NAME.fullmatch(text) else quoted(text)


def ordered(order: str, usual: str) -> str:
    """Return a memory order as the end of a line, empty for the usual one."""
    return "" if order == usual else f" {order}"


def number(value: Scalar) -> str:
    """Return an exact literal without its type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isnan(value):
        raw = struct.pack("<d", value)
        return "nan" if raw == _DEFAULT_NAN else f"nan_{raw[::-1].hex()}"
    return repr(value)


def literal(value: Scalar, dtype: DType, lanes: int = 1) -> str:
    """Return a constant: the type is left out for a scalar int64 or bool."""
    if dtype.is_bool:
        value = bool(value)
        return number(value) if lanes == 1 else f"{number(value)}:{typename(dtype, lanes)}"
    if dtype.text == "i64" and lanes == 1 and type(value) is int:
        return repr(value)
    shown = repr(int(value)) if dtype.is_integer else number(value)
    return f"{shown}:{typename(dtype, lanes)}"


def variable(e: Expr) -> str:
    """Return a symbolic variable with its range."""
    bounds = e.attr
    return f"@{name(bounds.name)}[{bounds.min}..{bounds.max}]"


class ExprPrinter:
    """Prints the expressions of one text, each shared one once.

    Parameters
    ----------
    roots : iterable of Expr
        Every expression that will be printed, as often as it will be: what has several users is
        named.
    types : dict
        Types of the names that the text binds; other names carry their type where they stand.
    rename : dict
        Names to print in place of those of VARs.
    """

    __slots__ = ("_count", "_depth", "_shown", "_users", "rename", "types")

    def __init__(self, roots: Iterable[Expr], types: dict[str, tuple[DType, int]] | None = None,
                 rename: dict[str, str] | None = None) -> None:  # fmt: skip
        self.types = types or {}
        self.rename = rename or {}
        self._shown: dict[Expr, str] = {}
        self._depth: dict[Expr, int] = {}
        self._count = 0
        self._users: dict[Expr, int] = {}
        users = self._users
        roots = list(roots)
        for e in roots:
            users[e] = users.get(e, 0) + 1
        for e in toposort(roots):
            for a in e.args:
                users[a] = users.get(a, 0) + 1

    def show(self, e: Expr, lines: list[str], indent: str = "") -> str:
        """Return the text of `e`; lines that name parts of it are appended to `lines` first."""
        shown = self._shown
        if e not in shown:
            for node in self._pending(e):
                self._print(node, lines, indent)
        return shown[e]

    def _pending(self, e: Expr) -> list[Expr]:
        """Return what is not printed yet below `e`, operands first."""
        shown = self._shown
        if all(a in shown for a in e.args):
            return [e]
        order: dict[Expr, None] = {}
        stack = [(e, iter(e.args))]
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in order and arg not in shown:
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                order[node] = None
                stack.pop()
        return list(order)

    def _print(self, e: Expr, lines: list[str], indent: str) -> None:
        if not e.args:
            self._shown[e] = self.leaf(e)
            return
        text = self._operation(e)
        depth = 1 + max(self._depth.get(a, 0) for a in e.args)
        size = len(text)
        if depth > DEEP or size > LONG or (size > SHARED and self._users.get(e, 0) > 1):
            lines.append(f"{indent}${self._count} = {text}")
            text, depth = f"${self._count}", 0
            self._count += 1
        self._shown[e] = text
        self._depth[e] = depth

    def _operation(self, e: Expr) -> str:
        shown = self._shown
        sign = INFIX.get(e.op.name)
        if sign is not None and len(e.args) == 2:
            a, b = e.args
            return f"{self._nested(a)} {sign} {self._nested(b)}"
        head = e.op.name
        if e.op is Op.CAST or e.op is Op.BITCAST:
            head = f"{head}.{e.dtype.text}"
        elif e.op is Op.BROADCAST or e.op is Op.RAMP:
            head = f"{head}.{e.lanes}"
        elif e.attr is not None:
            head = f"{head}.{e.attr}"
        return f"{head}({', '.join([shown[a] for a in e.args])})"

    def _nested(self, e: Expr) -> str:
        text = self._shown[e]
        return f"({text})" if e.op.name in INFIX and self._depth[e] else text

    def leaf(self, e: Expr) -> str:
        """Return the text of a name, constant or symbolic variable."""
        if e.op is Op.VAR:
            text = f"%{name(self.rename.get(e.attr, e.attr))}"
            known = self.types.get(e.attr)
            if known is not None and known[0] is e.dtype and known[1] == e.lanes:
                return text
            if known is None and e.dtype.text == "i64" and e.lanes == 1:
                return text
            return f"{text}:{typename(e.dtype, e.lanes)}"
        if e.op is Op.CONST:
            return literal(e.attr, e.dtype, e.lanes)
        if e.op is Op.VARIABLE:
            return variable(e)
        return f"{e.op.name}()"


def print_expr(e: Expr) -> str:
    """Return the exact text of one expression; shared parts stand on lines before it."""
    lines: list[str] = []
    shown = ExprPrinter([e]).show(e, lines)
    return "\n".join([*lines, shown])


def typed_name(e: Expr, printed: Any = None) -> str:
    """Return a binder: the name with its type, which is left out for a scalar int64."""
    text = f"%{name(printed if printed is not None else e.attr)}"
    if e.dtype.text == "i64" and e.lanes == 1:
        return text
    return f"{text}: {typename(e.dtype, e.lanes)}"
