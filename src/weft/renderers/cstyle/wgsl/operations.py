"""The rows of the op table in WGSL; what needs more than an operator is in the library.

Integers of less than 32 bits are carried in words of 32 bits, with the sign or zeros above them;
narrow floats are their bits; integers of 64 bits are pairs of words. Results of float arithmetic
that more arithmetic uses pass by a zero that no compiler knows: otherwise drivers fold
``(x + y) - y``.
"""

from __future__ import annotations

from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers.cstyle.narrow import is_narrow
from weft.renderers.cstyle.text import UNARY, Text, atom, infix
from weft.renderers.cstyle.wgsl.context import WGSLWords

__all__ = ["ROWS", "is_wide", "kind_of", "narrowed"]


def is_wide(d: DType) -> bool:
    """Whether values are pairs of words."""
    return d.bits == 64


def kind_of(d: DType) -> str:
    """Return the type that values of a dtype are computed in, as names of functions end in it."""
    if d.bits == 64:
        return f"{d.kind}64"
    return "f32" if d.kind == "f" else "i32" if d.kind == "i" else "u32"


def narrowed(w: WGSLWords, text: Text, d: DType) -> Text:
    """Return a word as an integer of less than 32 bits: what is above its bits made right."""
    if d.bits >= 32:
        return text
    if d.kind == "u":
        return _bracketed(infix("&", text, atom(f"{(1 << d.bits) - 1:#x}u")))
    return _bracketed(Text(f"({text.at(UNARY)} << {32 - d.bits}u) >> {32 - d.bits}u", UNARY - 3))


def _bracketed(text: Text) -> Text:
    return atom(f"({text.text})")


def _const(w: WGSLWords, inst: Compute) -> Text:
    return w.literal(inst.attr, inst.result.dtype)


_WORDS: Final = {"+": "add64", "-": "sub64", "*": "mul64"}


def _arithmetic(operator: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        a, b = w.runtime(inst)
        d = inst.result.dtype
        if d is dt.float64:
            return w.call(w.function(f"weft_{_WORDS[operator][:3]}_f64"), a, b)
        if d.kind == "f":
            # Drivers take x - x for 0 even of infinities, and x * 0 and x + 0 for what they are of
            # most numbers: what they compute with is nothing that they know.
            if operator == "-" or w.number(inst.args[1]) is not None:
                b = w.call(w.function("weft_keep"), b)
            elif w.number(inst.args[0]) is not None:
                a = w.call(w.function("weft_keep"), a)
            return w.kept(inst, infix(operator, a, b))
        if is_wide(d):
            return w.call(w.function(f"weft_{_WORDS[operator]}"), a, b)
        return narrowed(w, infix(operator, a, b), d)

    return row


def _divide(w: WGSLWords, inst: Compute) -> Text:
    name = f"weft_div_{kind_of(inst.result.dtype)}"
    return w.call(w.function(name), *map(w.operand, inst.args))


def _mad(w: WGSLWords, inst: Compute) -> Text:
    name = "weft_mad_f64" if is_wide(inst.result.dtype) else "weft_mad"
    return w.call(w.function(name), *map(w.operand, inst.args))


def _bitwise(operator: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        a, b = w.runtime(inst)
        if inst.result.dtype.is_bool and operator == "^":
            return _bracketed(infix("!=", a, b))
        return _bracketed(infix(operator, a, b))

    return row


def _compare(op: Operation, operator: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        a, b = w.runtime(inst)
        d = inst.args[0].dtype
        if d.is_bool:
            return _compare_bools(op, a, b)
        if d.kind == "f":
            return _compare_floats(w, inst, a, b)
        if is_wide(d):
            return _compare_words(w, op, d, a, b)
        return _bracketed(infix(operator, a, b))

    return row


def _compare_bools(op: Operation, a: Text, b: Text) -> Text:
    if op in (Op.EQ, Op.NE):
        return _bracketed(infix("==" if op is Op.EQ else "!=", a, b))
    return atom(f"(!{a.at(UNARY)} {'&' if op is Op.LT else '|'} {b.at(UNARY)})")


def _compare_words(w: WGSLWords, op: Operation, d: DType, a: Text, b: Text) -> Text:
    if op in (Op.EQ, Op.NE):
        call = w.call(w.function("weft_eq64"), a, b)
        return call if op is Op.EQ else Text(f"!{call.text}", UNARY)
    less = w.function(f"weft_lt_{kind_of(d)}")
    return w.call(less, a, b) if op is Op.LT else Text(f"!{w.call(less, b, a).text}", UNARY)


def _compare_floats(w: WGSLWords, inst: Compute, a: Text, b: Text) -> Text:
    """Compare by bits: drivers take ``x != x`` for false, and numbers below 2**-126 for zeros."""
    name = {Op.LT: "lt", Op.LE: "le"}.get(inst.op, "eq")
    call = w.call(w.function(f"weft_{name}_{kind_of(inst.args[0].dtype)}"), a, b)
    return Text(f"!{call.text}", UNARY) if inst.op is Op.NE else call


def _neg(w: WGSLWords, inst: Compute) -> Text:
    (a,) = inst.args
    d, text = a.dtype, w.operand(a)
    if d is dt.float64:
        return w.call(w.function("weft_neg_f64"), text)
    if d.kind == "f":
        return w.call("bitcast<f32>", f"bitcast<u32>({text.text}) ^ 0x80000000u")
    if is_wide(d):
        return w.call(w.function("weft_neg64"), text)
    (text,) = w.runtime(inst)
    zero = "0u" if d.kind == "u" else "0i"
    return narrowed(w, infix("-", atom(zero), text), d)


def _not(w: WGSLWords, inst: Compute) -> Text:
    (a,) = inst.args
    text = w.operand(a)
    if a.dtype.is_bool:
        return Text(f"!{text.at(UNARY)}", UNARY)
    return narrowed(w, Text(f"~{text.at(UNARY)}", UNARY), a.dtype)


def _abs(w: WGSLWords, inst: Compute) -> Text:
    (a,) = inst.args
    d, text = a.dtype, w.operand(a)
    if d.kind == "u":
        return text
    if d is dt.float64:
        return w.call(w.function("weft_abs_f64"), text)
    if d.kind == "f":
        return w.call("bitcast<f32>", f"bitcast<u32>({text.text}) & 0x7fffffffu")
    if is_wide(d):
        return w.call(w.function("weft_abs_i64"), text)
    return narrowed(w, w.call("abs", *w.runtime(inst)), d)


def _copysign(w: WGSLWords, inst: Compute) -> Text:
    a, b = map(w.operand, inst.args)
    if inst.result.dtype is dt.float64:
        return w.call(w.function("weft_copysign_f64"), a, b)
    return w.call("bitcast<f32>", f"(bitcast<u32>({a.text}) & 0x7fffffffu) | "
                  f"(bitcast<u32>({b.text}) & 0x80000000u)")


def _rounding(name: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        return w.call(w.function(f"weft_{name}_{kind_of(inst.result.dtype)}"),
                      w.operand(inst.args[0]))

    return row


def _sqrt(w: WGSLWords, inst: Compute) -> Text:
    name = f"weft_sqrt_{kind_of(inst.result.dtype)}"
    return w.call(w.function(name), w.operand(inst.args[0]))


def _counted(w: WGSLWords, inst: Compute) -> Text:
    (a,) = inst.args
    d, text = a.dtype, w.operand(a)
    ones = inst.op is Op.POPCOUNT
    if is_wide(d):
        name = w.hoisted(text, d)
        found = (f"countOneBits({name}.x) + countOneBits({name}.y)" if ones else
                 f"{w.function('weft_zeros64')}({name})")
        return w.call("vec2<u32>", found, "0u")
    bits = w.call("bitcast<u32>", text) if d.kind == "i" else text
    if d.kind == "i" and d.bits < 32:
        bits = infix("&", bits, atom(f"{(1 << d.bits) - 1:#x}u"))
    if ones:
        found = f"countOneBits({bits.text})"
    else:
        found = f"countLeadingZeros({bits.text}) - {32 - d.bits}u"
    return w.call("bitcast<i32>", found) if d.kind == "i" else atom(f"({found})")


def _extreme(which: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        a, b = map(w.operand, inst.args)
        d = inst.result.dtype
        if d.is_bool:
            return _bracketed(infix("&" if which == "min" else "|", a, b))
        if is_wide(d) or d.kind == "f":
            return w.call(w.function(f"weft_{which}_{kind_of(d)}"), a, b)
        return w.call(which, a, b)

    return row


def _division(result: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        x, y = inst.args
        d = x.dtype
        a, b = w.runtime(inst)
        if d.kind == "f" and result != "fmod":
            raise w.lacks(inst)
        known = w.number(y)
        if known is not None and known > 0 and d.kind != "f":
            power = known & (known - 1) == 0
            shift = known.bit_length() - 1
            natural = d.kind == "u" or w.is_natural(x)
            if power and result != "fmod":
                if is_wide(d):
                    amount = atom(f"vec2<u32>({shift}u, 0u)")
                    if result == "floordiv":
                        return w.call(w.function(f"weft_shr_{kind_of(d)}"), a, amount)
                    return _bracketed(infix("&", a, w.literal(known - 1, d)))
                if result == "floordiv":
                    return _bracketed(infix(">>", a, atom(f"{shift}u")))
                return _bracketed(infix("&", a, w.literal(known - 1, d)))
            if natural and not is_wide(d):
                return infix("/" if result == "floordiv" else "%", a, b)
        if d.kind == "i" and not is_wide(d) and w.is_natural(x) and w.is_positive(y):
            return infix("/" if result == "floordiv" else "%", a, b)
        found = w.call(w.function(f"weft_{result}_{kind_of(d)}"), a, b)
        return narrowed(w, found, d) if d.kind == "i" else found

    return row


def _shift(which: str) -> Any:
    def row(w: WGSLWords, inst: Compute) -> Text:
        x, y = inst.args
        d = x.dtype
        a, b = w.runtime(inst)
        known = w.number(y)
        if known is not None and not 0 <= known < d.bits:
            if which == "shl" or d.kind == "u":
                return w.literal(0, d)
            known = d.bits - 1
        if is_wide(d):
            name = "weft_shl64" if which == "shl" else f"weft_shr_{kind_of(d)}"
            amount = b if known is None else atom(f"vec2<u32>({known}u, 0u)")
            return w.call(w.function(name), a, amount)
        if known is not None:
            moved = infix("<<" if which == "shl" else ">>", a, atom(f"{known}u"))
            return narrowed(w, _bracketed(moved), d)
        found = w.call(w.function(f"weft_{which}_{kind_of(d)}"), a, b)
        return narrowed(w, found, d)

    return row


def _mulhi(w: WGSLWords, inst: Compute) -> Text:
    d = inst.result.dtype
    a, b = w.runtime(inst)
    if d.bits >= 32:
        return w.call(w.function(f"weft_mulhi_{kind_of(d)}"), a, b)
    return _bracketed(infix(">>", _bracketed(infix("*", a, b)), atom(f"{d.bits}u")))


def _where(w: WGSLWords, inst: Compute) -> Text:
    c, a, b = map(w.operand, inst.args)
    if inst.result.dtype is dt.float32:  # bits, which no driver makes another NaN of
        return w.call("bitcast<f32>", w.call("select", f"bitcast<u32>({b.text})",
                                             f"bitcast<u32>({a.text})", c))
    return w.call("select", b, a, c)


def _cast(w: WGSLWords, inst: Compute) -> Text:
    (x,) = inst.args
    source, to = x.dtype, inst.result.dtype
    text = w.operand(x)
    if source is to:
        return text
    if is_narrow(source) or is_narrow(to):
        if dt.float32 not in (source, to):
            raise w.lacks(inst)
        return w.call(w.function(f"weft_{to.text}_of_{source.text}"), text)
    if to.is_bool:
        return _truth(w, text, source)
    if source.kind == "f" and to.kind == "f":
        return w.call(w.function(f"weft_{to.text}_of_{source.text}"), text)
    if source.kind == "f":
        return _truncated(w, text, source, to)
    if to.kind == "f":
        return _real(w, text, source, to)
    return w.integer(text, source, to)


def _truth(w: WGSLWords, text: Text, d: DType) -> Text:
    if d is dt.float64:
        return Text(f"!{w.call(w.function('weft_is_zero64'), text).text}", UNARY)
    if d.kind == "f":
        return atom(f"((bitcast<u32>({text.text}) & 0x7fffffffu) != 0u)")
    if is_wide(d):
        return w.call("any", f"{text.at(UNARY)} != vec2<u32>(0u, 0u)")
    return _bracketed(infix("!=", text, atom("0u" if d.kind == "u" else "0i")))


def _truncated(w: WGSLWords, text: Text, source: DType, to: DType) -> Text:
    """Return a float as an integer: truncated, limits beyond the range, 0 for NaN."""
    if to.bits == 64 or to is dt.uint32:
        return w.call(w.function(f"weft_{kind_of(to)}_of_{source.text}"), text)
    name = "weft_limited64" if is_wide(source) else "weft_limited"
    found = w.call(w.function(name), text, w.literal(int(to.min), dt.int32),
                   w.literal(int(to.max), dt.int32))
    return w.call("bitcast<u32>", found) if to.kind == "u" else found


def _real(w: WGSLWords, text: Text, source: DType, to: DType) -> Text:
    """Return an integer or bool as a float."""
    if source.is_bool:
        if is_wide(to):
            return w.call("select", w.literal(0.0, to), w.literal(1.0, to), text)
        return w.call("select", "0.0f", "1.0f", text)
    if source.bits < 32 and not is_wide(to):
        return w.call("f32", text)
    return w.call(w.function(f"weft_{to.text}_of_{kind_of(source)}"), text)


def _bitcast(w: WGSLWords, inst: Compute) -> Text:
    (a,) = inst.args
    return w.bitcast(w.operand(a), a.dtype, inst.result.dtype)


def _same(w: WGSLWords, inst: Compute) -> Text:
    return w.operand(inst.args[0])


ROWS: Final[dict[Operation, Any]] = {
    Op.CONST: _const,
    Op.NEG: _neg,
    Op.NOT: _not,
    Op.ABS: _abs,
    Op.COPYSIGN: _copysign,
    Op.SQRT: _sqrt,
    Op.FLOOR: _rounding("floor"),
    Op.CEIL: _rounding("ceil"),
    Op.TRUNC: _rounding("trunc"),
    Op.ROUND: _rounding("round"),
    Op.MAD: _mad,
    **dict.fromkeys((Op.POPCOUNT, Op.CLZ), _counted),
    Op.ADD: _arithmetic("+"),
    Op.SUB: _arithmetic("-"),
    Op.MUL: _arithmetic("*"),
    Op.DIV: _divide,
    Op.FLOORDIV: _division("floordiv"),
    Op.MOD: _division("mod"),
    Op.FMOD: _division("fmod"),
    Op.MIN: _extreme("min"),
    Op.MAX: _extreme("max"),
    Op.AND: _bitwise("&"),
    Op.OR: _bitwise("|"),
    Op.XOR: _bitwise("^"),
    Op.SHL: _shift("shl"),
    Op.SHR: _shift("shr"),
    Op.MULHI: _mulhi,
    Op.LT: _compare(Op.LT, "<"),
    Op.LE: _compare(Op.LE, "<="),
    Op.EQ: _compare(Op.EQ, "=="),
    Op.NE: _compare(Op.NE, "!="),
    Op.WHERE: _where,
    Op.UNLIKELY: _same,
    Op.BROADCAST: _same,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
}  # fmt: skip
