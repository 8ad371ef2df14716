"""The rows of the op table for scalars, in what C and its relatives have in common.

What needs an operand twice, or a guard, is a function of the prelude, so that no expression is
written (or computed) twice. All results are those of `weft.ir.op`.
"""

from __future__ import annotations

from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.cstyle.context import Row, Words
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.text import ATOM, BITS, TERNARY, UNARY, Text, atom, infix

__all__ = ["ROWS", "counted", "define", "mulhi", "unsigned"]


def unsigned(d: DType) -> DType:
    """Return the unsigned integer type of a type's width."""
    return dt.unsigned(d.bits)


def define(w: Words, name: str, result: str, params: str, *body: str) -> str:
    """Return a function of the prelude, written if it was not yet."""
    return w.helper(name, lambda: "\n".join([
        f"{w.INLINE} {result} {name}({params}) {{", *(f"  {line}" for line in body), "}"]))


def _const(w: Words, inst: Compute) -> Text:
    return w.literal(inst.attr, inst.result.dtype)


def _arithmetic(operator: str) -> Row:
    def row(w: Words, inst: Compute) -> Text:
        a, b = (w.operand(v) for v in inst.args)
        d = inst.result.dtype
        if d.kind == "f":
            return infix(operator, a, b)
        if d is dt.int64 and None not in map(w.number, inst.args):
            a = w.cast(d, a)  # two literals would be added as ints
        if d.bits < 32:  # in int, whose product of two uint16 may not fit
            wide = w.cast(dt.uint32, a) if d is dt.uint16 and operator == "*" else a
            return w.cast(d, infix(operator, wide, b))
        if d.kind == "i" and not w.WRAPS:
            wide = infix(operator, w.cast(unsigned(d), a), w.cast(unsigned(d), b))
            return w.cast(d, wide)
        return infix(operator, a, b)

    return row


def _bitwise(operator: str) -> Row:
    def row(w: Words, inst: Compute) -> Text:
        a, b = (w.operand(v) for v in inst.args)
        d = inst.result.dtype
        text = infix(operator, a, b)
        return w.cast(d, text) if d.kind in "iu" and d.bits < 32 else text

    return row


def _compare(operator: str) -> Row:
    def row(w: Words, inst: Compute) -> Text:
        return infix(operator, *(w.operand(v) for v in inst.args))

    return row


def _neg(w: Words, inst: Compute) -> Text:
    (a,) = inst.args
    if a.dtype.kind == "f":
        return Text("-" + w.arg(a, ATOM), UNARY)
    zero = Text("0", ATOM)
    return w.cast(a.dtype, infix("-", zero, w.cast(unsigned(a.dtype), w.operand(a))))


def _not(w: Words, inst: Compute) -> Text:
    (a,) = inst.args
    if a.dtype.is_bool:
        return Text("!" + w.arg(a, ATOM), UNARY)
    return w.cast(a.dtype, Text("~" + w.arg(a, ATOM), UNARY))


def _float_function(op: Operation) -> Row:
    def row(w: Words, inst: Compute) -> Text:
        if op not in w.FLOATS:
            raise w.lacks(inst)
        return w.call(w.function_name(op, inst.result.dtype), *(w.operand(v) for v in inst.args))

    return row


def _abs(w: Words, inst: Compute) -> Text:
    (a,) = inst.args
    d = a.dtype
    if d.kind == "u":
        return w.operand(a)
    if d.kind == "f":
        return _float_function(Op.ABS)(w, inst)
    t, u = w.type(d), w.type(unsigned(d))
    name = define(w, f"abs_{d.text}", t, f"{t} x", f"return x < 0 ? ({t})(0 - ({u})x) : x;")
    return w.call(name, w.operand(a))


def counted(w: Words, op: Operation, d: DType) -> str:
    """Return the function POPCOUNT or CLZ of an integer type."""
    bits = d.bits
    ones, zeros = w.COUNTS
    word = f"({w.type(dt.uint64)})x"
    body = (f"{ones}({word})" if op is Op.POPCOUNT else
            f"x != 0 ? {zeros}({word}) - {64 - bits} : {bits}")
    return define(w, f"{op.name}_{d.text}", w.type(d), f"{w.type(unsigned(d))} x",
                  f"return ({w.type(d)})({body});")


def _counted(w: Words, inst: Compute) -> Text:
    (a,) = inst.args
    return w.call(counted(w, inst.op, a.dtype), w.cast(unsigned(a.dtype), w.operand(a)))


def _extreme(which: str) -> Row:
    def row(w: Words, inst: Compute) -> Text:
        a, b = (w.operand(v) for v in inst.args)
        d = inst.result.dtype
        if d.is_bool:
            return infix("&" if which == "min" else "|", a, b)
        return w.call(_of_numbers(w, which, d), a, b)

    return row


def _of_numbers(w: Words, which: str, d: DType) -> str:
    """Return the function of the smaller or larger of two numbers; -0 < +0, NaN if either is."""
    t = w.type(d)
    first, second = ("<", ">") if which == "min" else (">", "<")
    chosen = f"x {first} y ? x : y"
    if d.kind == "f":
        # Equal numbers differ in the sign of zeros at most. It is chosen among bits: compilers that
        # know one of the numbers take floats for the extreme of the processor, which has no sign.
        u = unsigned(d)
        bits = [w.same_bits(n, d, u, 1) for n in "xy"]
        equal = w.same_bits(f"({bits[0]} {'|' if which == 'min' else '&'} {bits[1]})", u, d, 1)
        chosen = f"x {first} y ? x : x {second} y ? y : x != y ? x + y : {equal}"
    return define(w, f"{which}_{d.text}", t, f"{t} x, {t} y", f"return {chosen};")


# integer division


def _division(result: str) -> Row:
    """FLOORDIV, MOD and FMOD; `result` is ``floordiv``, ``mod`` or ``fmod``."""

    def row(w: Words, inst: Compute) -> Text:
        x, y = inst.args
        d = x.dtype
        if d.kind == "f":
            if result != "fmod":
                raise w.lacks(inst)
            return _float_function(Op.FMOD)(w, inst)
        a, b = w.operand(x), w.operand(y)
        known = w.number(y)
        is_power = known is not None and known > 0 and known & (known - 1) == 0
        natural = d is dt.int64 and ranges.of(w.ranges, x)[0] >= 0
        if is_power and (result != "fmod" or natural):
            if result == "floordiv":
                return w.cast(d, infix(">>", a, atom(str(known.bit_length() - 1))))
            return w.cast(d, infix("&", a, w.literal(known - 1, d)))
        if natural and ranges.of(w.ranges, y)[0] > 0:
            high = max(ranges.of(w.ranges, x)[1], ranges.of(w.ranges, y)[1])
            kind = dt.uint32 if high < 1 << 32 else dt.uint64
            operator = "/" if result == "floordiv" else "%"
            return w.cast(d, infix(operator, w.cast(kind, a), w.cast(kind, b)))
        return w.call(_guarded(w, result, d), a, b)

    return row


def _guarded(w: Words, result: str, d: DType) -> str:
    t = w.type(d)
    name, params = f"{result}_{d.text}", f"{t} x, {t} y"
    if d.kind == "u":
        operator = "/" if result == "floordiv" else "%"
        return define(w, name, t, params, f"return y == 0 ? 0 : x {operator} y;")
    if result == "fmod":
        return define(w, name, t, params, f"return y == 0 || y == -1 ? 0 : ({t})(x % y);")
    if result == "mod":
        return define(w, name, t, params, "if (y == 0 || y == -1) return 0;", f"{t} r = x % y;",
                      f"return r != 0 && (r ^ y) < 0 ? ({t})(r + y) : r;")
    return define(w, name, t, params, "if (y == 0) return 0;",
                  f"if (y == -1) return ({t})(0 - ({w.type(unsigned(d))})x);",
                  f"{t} q = x / y, r = x % y;",
                  f"return r != 0 && (r ^ y) < 0 ? ({t})(q - 1) : q;")


# shifts


def _shl(w: Words, inst: Compute) -> Text:
    x, y = inst.args
    d, u = x.dtype, unsigned(x.dtype)
    known = w.number(y)
    if known is not None:
        if not 0 <= known < d.bits:
            return w.literal(0, d)
        return w.cast(d, infix("<<", w.cast(u, w.operand(x)), atom(str(known))))
    t, ut = w.type(d), w.type(u)
    name = define(w, f"shl_{d.text}", t, f"{t} x, {t} y",
                  f"return ({ut})y < {d.bits} ? ({t})(({ut})x << y) : 0;")
    return w.call(name, w.operand(x), w.operand(y))


def _shr(w: Words, inst: Compute) -> Text:
    x, y = inst.args
    d = x.dtype
    known = w.number(y)
    if known is not None:
        inside = 0 <= known < d.bits
        if not inside and d.kind == "u":
            return w.literal(0, d)
        return w.cast(d, infix(">>", w.operand(x), atom(str(known if inside else d.bits - 1))))
    t, ut = w.type(d), w.type(unsigned(d))
    last = "0" if d.kind == "u" else f"({t})(x >> {d.bits - 1})"
    name = define(w, f"shr_{d.text}", t, f"{t} x, {t} y",
                  f"return ({ut})y < {d.bits} ? ({t})(x >> y) : {last};")
    return w.call(name, w.operand(x), w.operand(y))


def mulhi(w: Words, d: DType) -> str:
    """Return the function MULHI of an integer type."""
    if d.bits == 64 and not w.INT128:
        return _mulhi_of_halves(w, d)
    sign = "unsigned " if d.kind == "u" else ""
    wide = f"{sign}__int128" if d.bits == 64 else w.type(
        (dt.unsigned if d.kind == "u" else dt.signed)(2 * d.bits))
    t = w.type(d)
    return define(w, f"mulhi_{d.text}", t, f"{t} x, {t} y",
                  f"return ({t})((({wide})x * y) >> {d.bits});")


def _mulhi_of_halves(w: Words, d: DType) -> str:
    """Return the function MULHI of 64 bits, from products of 32 bits."""
    t, u, half = w.type(d), w.type(dt.uint64), w.literal(0xFFFFFFFF, dt.uint64).text
    signed = [] if d.kind == "u" else ["high -= (x < 0 ? b : 0) + (y < 0 ? a : 0);"]
    return define(w, f"mulhi_{d.text}", t, f"{t} x, {t} y", f"const {u} a = ({u})x, b = ({u})y;",
                  f"const {u} low = (a & {half}) * (b & {half});",
                  f"const {u} one = (a >> 32) * (b & {half}) + (low >> 32);",
                  f"const {u} two = (a & {half}) * (b >> 32) + (one & {half});",
                  f"{u} high = (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32);", *signed,
                  f"return ({t})high;")


def _mulhi(w: Words, inst: Compute) -> Text:
    return w.call(mulhi(w, inst.result.dtype), *(w.operand(v) for v in inst.args))


# choices and conversions


def _where(w: Words, inst: Compute) -> Text:
    c, a, b = inst.args
    choice = f"{w.arg(c, BITS)} ? {w.arg(a, TERNARY + 1)} : {w.arg(b, TERNARY + 1)}"
    return Text(choice, TERNARY)


def _cast(w: Words, inst: Compute) -> Text:
    (x,) = inst.args
    source, to = x.dtype, inst.result.dtype
    text = w.operand(x)
    if source is to:
        return text
    if is_narrow(source) or is_narrow(to):
        return convert_narrow(w, text, source, to, 1)
    if to.is_bool:
        return infix("!=", text, Text("0", ATOM))
    if source.kind == "f" and to.kind != "f":
        return w.call(_saturating(w, source, to), text)
    return w.cast(to, text)


def _saturating(w: Words, source: DType, to: DType) -> str:
    """Return the function float -> integer: truncated, limits beyond the range, 0 for NaN."""
    t, f = w.type(to), w.type(source)
    above = w.literal(float(int(to.max) + 1), source).text  # powers of two: exact
    least = w.literal(float(to.min), source).text
    # What is read as the limit below is -0.5 for unsigned types, and what truncates to the limit.
    low = "0" if to.kind == "u" else f"x < 0 ? {w.literal(to.min, to).text} : 0"
    return define(w, f"{to.text}_of_{source.text}", t, f"{f} x",
                  f"return x >= {above} ? {w.literal(to.max, to).text} : x >= {least} ? ({t})x : "
                  f"{low};")


def _bitcast(w: Words, inst: Compute) -> Text:
    (a,) = inst.args
    return w.bitcast(w.operand(a), a.dtype, inst.result.dtype)


def _unlikely(w: Words, inst: Compute) -> Text:
    return w.operand(inst.args[0])


ROWS: Final[dict[Operation, Any]] = {
    Op.CONST: _const,
    Op.NEG: _neg,
    Op.NOT: _not,
    Op.ABS: _abs,
    **{op: _float_function(op) for op in (Op.SQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND,
                                          Op.COPYSIGN, Op.MAD)},
    **dict.fromkeys((Op.POPCOUNT, Op.CLZ), _counted),
    Op.ADD: _arithmetic("+"),
    Op.SUB: _arithmetic("-"),
    Op.MUL: _arithmetic("*"),
    Op.DIV: _arithmetic("/"),
    Op.FLOORDIV: _division("floordiv"),
    Op.MOD: _division("mod"),
    Op.FMOD: _division("fmod"),
    Op.MIN: _extreme("min"),
    Op.MAX: _extreme("max"),
    Op.AND: _bitwise("&"),
    Op.OR: _bitwise("|"),
    Op.XOR: _bitwise("^"),
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.MULHI: _mulhi,
    Op.LT: _compare("<"),
    Op.LE: _compare("<="),
    Op.EQ: _compare("=="),
    Op.NE: _compare("!="),
    Op.WHERE: _where,
    Op.UNLIKELY: _unlikely,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
}  # fmt: skip
