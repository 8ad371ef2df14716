"""The legality table of expressions, shared by the verifiers of loop and kernel level.

`fault` says what is wrong with one operation, given the types of its operands; it knows nothing
of scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Bounds, Expr
from weft.ir.lookup import is_table
from weft.ir.op import MATRICES, Op, Operation

Typed = tuple[DType, int]

EXPRESSION_GROUPS: Final = ("leaf", "unary", "binary", "ternary", "native", "dot", "convert",
                           "vector")
MAX_LANES: Final = 1024


def show_type(typed: Typed) -> str:
    """Return a type for a message."""
    return typed[0].text + (f"x{typed[1]}" if typed[1] != 1 else "")


def fault(op: Operation, result: Typed, args: Sequence[Typed], attr: Any) -> str | None:
    """Return what is wrong with an operation, or None."""
    if op.group not in EXPRESSION_GROUPS or op is Op.IOTA:
        return f"{op.name} is no operation of this level"
    if len(args) != op.arity:
        return f"{op.name} has {len(args)} operands, expected {op.arity}"
    if not 1 <= result[1] <= MAX_LANES:
        return f"{result[1]} lanes, expected 1 to {MAX_LANES}"
    if not args:
        return _leaf(op, result, attr)
    checked = args[1:] if op is Op.WHERE or op.group == "dot" else args
    for dtype, _ in checked:
        if dtype.kind not in op.kinds:
            return f"{op.name} of {dtype.text}, expected a type of kind {op.kinds!r}"
    if op is Op.COMPRESS:
        fits = attr is None and result[1] > 1 and [*args] == [(dt.bool_, result[1]), result]
        shown = " and ".join(map(show_type, args))
        return None if fits else f"compress of {shown} to {show_type(result)}"
    if op is Op.LOOKUP:
        fits = is_table(attr) and result[0] is dt.float32 and [*args] == [(dt.uint32, result[1])]
        return None if fits else f"lookup.{attr} of {show_type(args[0])} as {show_type(result)}"
    if op.group == "vector":
        if any(arg != args[0] for arg in args):
            return f"{op.name} of {' and '.join(map(show_type, args))}, expected one type"
        return _vector(op, result, args[0], attr)
    if attr is not None:
        return f"{op.name} with the attribute {attr!r}"
    if any(lanes != result[1] for _, lanes in args):
        shown = ", ".join(map(show_type, args))
        return f"{op.name} of {shown} to {show_type(result)}: lanes differ"
    if op.group == "convert":
        return _convert(op, result[0], args[0][0])
    if op in MATRICES and result[1] != 256:
        return f"{op.name} of {result[1]} lanes, expected 256"
    if op.group == "dot":
        return _dot(op, result[0], [dtype for dtype, _ in args])
    return _plain(op, result[0], [dtype for dtype, _ in args])


def _leaf(op: Operation, result: Typed, attr: Any) -> str | None:
    dtype = result[0]
    if op is Op.VAR:
        return None if isinstance(attr, str) and attr else f"the name {attr!r}"
    if op is Op.VARIABLE:
        if not isinstance(attr, Bounds) or result != (dt.int64, 1):
            return "a VARIABLE that is no int64 scalar with bounds"
        return None if attr.min <= attr.max else f"the empty range {attr.min}..{attr.max}"
    if dtype.is_float:
        return None if type(attr) in (int, float) else f"the {dtype.text} constant {attr!r}"
    if not isinstance(attr, int):
        return f"the {dtype.text} constant {attr!r}"
    if not int(dtype.min) <= attr <= int(dtype.max):
        return f"the constant {attr}, which {dtype.text} does not hold"
    return None


def _vector(op: Operation, result: Typed, arg: Typed, attr: Any) -> str | None:
    dtype, lanes = arg
    if op is Op.BITS:
        fits = attr == lanes and 2 <= lanes <= 64 and result == (dt.uint64, 1)
        return None if fits else f"bits.{attr} of {show_type(arg)} as {show_type(result)}"
    if op is Op.WORDS:
        narrow = dtype.itemsize in (1, 2) and not dtype.is_bool and attr is None
        fits = narrow and result[0] is dt.uint32 and lanes * dtype.itemsize == 4 * result[1]
        return None if fits else f"words of {show_type(arg)} as {show_type(result)}"
    if result[0] is not dtype:
        return f"{op.name} of {dtype.text} to {result[0].text}"
    if op is Op.BROADCAST or op is Op.RAMP:
        return None if lanes == 1 and attr is None else f"{op.name} of {show_type(arg)}"
    if op is Op.PLACES:
        fits = dtype is dt.int64 and isinstance(attr, int) and attr >= 16
        return None if fits and (lanes, result[1]) == (1, 256) else (
            f"places.{attr} of {show_type(arg)} as {show_type(result)}")
    if op is Op.EXTRACT:
        if not isinstance(attr, int) or not 0 <= attr < lanes or result[1] != 1:
            return f"lane {attr} of {show_type(arg)}"
        return None
    if op is Op.REVERSE:
        if attr != lanes or lanes < 2 or result[1] != lanes:
            return f"reverse.{attr} of {show_type(arg)} as {show_type(result)}"
        return None
    if op is Op.SLIDE:
        if not isinstance(attr, int) or not 0 < attr < lanes or result[1] != lanes:
            return f"slide by {attr} of {show_type(arg)} as {show_type(result)}"
        return None
    if op is Op.SHUFFLE:
        legal = isinstance(attr, str) and all(
            p.isdecimal() and int(p) < 2 * lanes for p in attr.split("_"))
        if not legal or lanes < 2 or result[1] < 2 or result[1] != attr.count("_") + 1:
            return f"shuffle {attr} of {show_type(arg)} as {show_type(result)}"
        return None
    if attr not in (0, 1) or lanes % 2 or result[1] != lanes // 2:
        return f"half {attr} of {show_type(arg)} as {show_type(result)}"
    return None


def _convert(op: Operation, result: DType, arg: DType) -> str | None:
    if op is Op.BITCAST and (result.itemsize != arg.itemsize or result.is_bool or arg.is_bool):
        return f"bitcast of {arg.text} to {result.text}, expected equal widths"
    return None


def _dot(op: Operation, result: DType, args: list[DType]) -> str | None:
    total = dt.float32 if op in (Op.DOT2, Op.MATRIX2) else dt.int32
    if [result, *args] != [total, total, dt.uint32, dt.uint32]:
        shown = ", ".join(d.text for d in args)
        return f"{op.name} of {shown} to {result.text}, expected {total.text}, u32, u32"
    return None


def _plain(op: Operation, result: DType, args: list[DType]) -> str | None:
    values = args[1:] if op is Op.WHERE else args
    if op is Op.WHERE and not args[0].is_bool:
        return f"a condition of {args[0].text}, expected bool"
    if any(dtype is not values[0] for dtype in values):
        return f"{op.name} of {' and '.join(d.text for d in values)}, expected one type"
    expected = dt.bool_ if op.result == "bool" else values[0]
    if result is not expected:
        return f"{op.name} of {values[0].text} to {result.text}, expected {expected.text}"
    return None


def expr_fault(e: Expr) -> str | None:
    """Return what is wrong with one expression node, or None."""
    return fault(e.op, (e.dtype, e.lanes), [(a.dtype, a.lanes) for a in e.args], e.attr)
