"""The rows of the op table for vectors in C: arithmetic, choices, conversions.

Vectors are those of gcc and clang (`vector_size`), whose operators work lane by lane. Vectors of
bools are masks, 0 or -1 in lanes of integers: a comparison makes them as wide as what it compares,
and who uses one says which width it needs.
"""

from __future__ import annotations

from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.cstyle.c.context import CWords, padded
from weft.renderers.cstyle.c.lanes import MOVES
from weft.renderers.cstyle.c.simd import float_function, half_conversion, lanewise
from weft.renderers.cstyle.context import Row
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.operations import ROWS, counted, define, mulhi, unsigned
from weft.renderers.cstyle.text import ATOM, UNARY, Text, atom, infix

__all__ = ["LANES", "choice", "splat"]


def _const(w: CWords, inst: Compute) -> Text:
    return splat(w, w.literal(inst.attr, inst.result.dtype), inst.result.dtype, inst.result.lanes)


def _broadcast(w: CWords, inst: Compute) -> Text:
    return splat(w, w.operand(inst.args[0]), inst.result.dtype, inst.result.lanes)


def splat(w: CWords, text: Text, d: DType, lanes: int) -> Text:
    """Return one element in every lane."""
    kind = w.type(d, lanes)
    listed = ", ".join(["x"] * padded(lanes))
    name = define(w, f"splat_{kind}", kind, f"{w.type(d)} x", f"return ({kind}){{ {listed} }};")
    return w.call(name, text)


def _ramp(w: CWords, inst: Compute) -> Text:
    (a,) = inst.args
    d, lanes = inst.result.dtype, inst.result.lanes
    kind = w.type(d, lanes)
    known = w.number(a)
    if known is not None:
        values = (w.literal(dt.wrap(known + i, d), d).text for i in range(padded(lanes)))
        return atom(f"({kind}){{ {', '.join(values)} }}")
    steps = ", ".join(str(i) for i in range(padded(lanes)))
    name = define(w, f"ramp_{kind}", kind, f"{w.type(d)} x", f"return x + ({kind}){{ {steps} }};")
    return w.call(name, w.operand(a))


def _infix(operator: str) -> Row:
    def row(w: CWords, inst: Compute) -> Text:
        a, b = inst.args
        x = w.operand(a) if w.is_splat(b) else w.scalar(a)  # one of them has to be a vector
        return infix(operator, x, w.scalar(b))

    return row


def _neg(w: CWords, inst: Compute) -> Text:
    return Text("-" + w.arg(inst.args[0], ATOM), UNARY)


def _not(w: CWords, inst: Compute) -> Text:
    return Text("~" + w.arg(inst.args[0], ATOM), UNARY)


def choice(w: CWords, d: DType, lanes: int) -> str:
    """Return the function that chooses lanes of two vectors by a mask as wide as they are."""
    kind, mask = w.type(d, lanes), w.mask_type(d.itemsize * 8, lanes)
    return define(w, f"select_{kind}", kind, f"{mask} m, {kind} a, {kind} b",
                  f"return ({kind})((({mask})a & m) | (({mask})b & ~m));")


def _where(w: CWords, inst: Compute) -> Text:
    c, a, b = inst.args
    d = inst.result.dtype
    name = choice(w, d, inst.result.lanes)
    return w.call(name, w.mask(c, d.itemsize * 8), w.operand(a), w.operand(b))


def _abs(w: CWords, inst: Compute) -> Text:
    d, lanes = inst.result.dtype, inst.result.lanes
    if d.kind == "u":
        return w.operand(inst.args[0])
    kind, mask = w.type(d, lanes), w.mask_type(d.bits, lanes)
    if d.kind == "f":
        body = f"return ({kind})(({mask})x & {(1 << (d.bits - 1)) - 1:#x});"
    else:
        body = f"return {choice(w, d, lanes)}(x < 0, -x, x);"
    return w.call(define(w, f"abs_{kind}", kind, f"{kind} x", body), w.operand(inst.args[0]))


def _copysign(w: CWords, inst: Compute) -> Text:
    d, lanes = inst.result.dtype, inst.result.lanes
    kind, u = w.type(d, lanes), w.type(unsigned(d), lanes)
    sign = f"{1 << (d.bits - 1):#x}u" + ("ll" if d.bits == 64 else "")
    name = define(w, f"copysign_{kind}", kind, f"{kind} x, {kind} y",
                  f"return ({kind})((({u})x & ~{sign}) | (({u})y & {sign}));")
    return w.call(name, *(w.operand(v) for v in inst.args))


def _extreme(which: str) -> Row:
    def row(w: CWords, inst: Compute) -> Text:
        d, lanes = inst.result.dtype, inst.result.lanes
        kind, select = w.type(d, lanes), choice(w, d, lanes)
        operator = "<" if which == "min" else ">"
        body = [f"return {select}(x {operator} y, x, y);"]
        if d.kind == "f":
            mask = w.mask_type(d.bits, lanes)
            both = "|" if which == "min" else "&"  # of equal numbers: the signs of zeros
            body = [f"const {kind} chosen = {select}(x {operator} y, x, y);",
                    f"const {kind} equal = ({kind})(({mask})x {both} ({mask})y);",
                    f"const {mask} nan = (x != x) | (y != y);",
                    f"return {select}(nan, x + y, {select}(x == y, equal, chosen));"]
        name = define(w, f"{which}_{kind}", kind, f"{kind} x, {kind} y", *body)
        return w.call(name, *(w.operand(v) for v in inst.args))

    return row


def _function(w: CWords, inst: Compute) -> Text:
    name = float_function(w, inst.op, inst.result.dtype, inst.result.lanes)
    return w.call(name, *(w.operand(v) for v in inst.args))


def _by_lane(w: CWords, inst: Compute) -> Text:
    """Write an operation that no vector instruction has as that of scalars, lane by lane."""
    lanes, d, op = inst.result.lanes, inst.result.dtype, inst.op
    names = "xy"[: op.arity]
    one = mulhi(w, d) if op is Op.MULHI else counted(w, op, d)
    kind = w.type(d, lanes)
    body = lanewise(w, d, lanes, lambda i: f"{one}({', '.join(f'{n}[{i}]' for n in names)})")
    name = define(w, f"{op.name}_{kind}", kind, ", ".join(f"{kind} {n}" for n in names), *body)
    return w.call(name, *(w.operand(v) for v in inst.args))


# integer division and shifts


def _division(result: str) -> Row:
    """FLOORDIV, MOD and FMOD; `result` is ``floordiv``, ``mod`` or ``fmod``."""

    def row(w: CWords, inst: Compute) -> Text:
        x, y = inst.args
        d, lanes = x.dtype, x.lanes
        if d.kind == "f":
            if result != "fmod":
                raise w.lacks(inst)
            return _function(w, inst)
        known = w.number(y)
        natural = d is dt.int64 and ranges.of(w.ranges, x)[0] >= 0
        if known is not None and known > 0 and known & (known - 1) == 0 and (
                result != "fmod" or natural):
            shift = Text(str(known.bit_length() - 1))
            if result == "floordiv":
                return infix(">>", w.operand(x), shift)
            return infix("&", w.operand(x), w.literal(known - 1, d))
        a, b = w.operand(x), w.operand(y)
        if natural and ranges.of(w.ranges, y)[0] > 0:
            high = max(ranges.of(w.ranges, x)[1], ranges.of(w.ranges, y)[1])
            part = dt.uint32 if high < 1 << 32 else dt.uint64
            operator = "/" if result == "floordiv" else "%"
            divided = infix(operator, *(Text(w.converted(t.text, d, part, lanes)) for t in (a, b)))
            return Text(w.converted(divided.text, part, d, lanes))
        return w.call(_guarded(w, result, d, lanes), a, b)

    return row


def _guarded(w: CWords, result: str, d: DType, lanes: int) -> str:
    kind, select = w.type(d, lanes), choice(w, d, lanes)
    zero, one = f"({kind}){{}}", f"(({kind}){{}} + 1)"
    unsafe = "y == 0" if d.kind == "u" else f"(y == 0) | ((y == -1) & (x == {_least(w, d)}))"
    operator = "/" if result == "floordiv" else "%"
    body = [f"const {kind} divisor = {select}({unsafe}, {one}, y);"]
    if d.kind == "u" or result == "fmod":
        body.append(f"const {kind} value = x {operator} divisor;")
    else:
        mask = w.mask_type(d.bits, lanes)
        body += [f"const {kind} r = x % divisor;",
                 f"const {mask} adjust = (r != 0) & ((r ^ divisor) < 0);"]
        body.append(f"const {kind} value = r + (divisor & ({kind})adjust);" if result == "mod" else
                    f"const {kind} value = x / divisor + ({kind})adjust;")
    body.append(f"return {select}(y == 0, {zero}, value);")
    return define(w, f"{result}_{kind}", kind, f"{kind} x, {kind} y", *body)


def _least(w: CWords, d: DType) -> str:
    return w.literal(int(d.min), d).text


def _shift(operator: str) -> Row:
    def row(w: CWords, inst: Compute) -> Text:
        x, y = inst.args
        d, lanes = x.dtype, x.lanes
        known, kind = w.number(y), w.type(d, lanes)
        arithmetic = operator == ">>" and d.kind == "i"
        if known is not None:
            if 0 <= known < d.bits:
                return infix(operator, w.operand(x), Text(str(known)))
            if arithmetic:
                return infix(operator, w.operand(x), Text(str(d.bits - 1)))
            return splat(w, w.literal(0, d), d, lanes)
        u = w.type(unsigned(d), lanes)
        select = choice(w, d, lanes)
        body = [f"const {kind} near = y & {d.bits - 1};", f"const {u} far = ({u})y;"]
        if arithmetic:  # a negative amount is a huge one
            body.append(f"return x >> {select}(far < {d.bits}, near, ({kind}){{}} + {d.bits - 1});")
        else:
            body.append(f"return {select}(far < {d.bits}, x {operator} near, ({kind}){{}});")
        name = define(w, f"{inst.op.name}_{kind}", kind, f"{kind} x, {kind} y", *body)
        return w.call(name, w.operand(x), w.operand(y))

    return row


def _mulhi(w: CWords, inst: Compute) -> Text:
    d, lanes = inst.result.dtype, inst.result.lanes
    if d.bits == 64:
        return _by_lane(w, inst)
    kind = w.type(d, lanes)
    if d is dt.uint32 and lanes % 2 == 0 and lanes > 2:
        # Even and odd lanes in place, where their double width fits without moving them.
        wide = w.type(dt.uint64, lanes // 2)
        low, high = "0xffffffffull", "0xffffffff00000000ull"
        body = [f"const {wide} a = ({wide})x, b = ({wide})y;",
                f"const {wide} even = (a & {low}) * (b & {low}), odd = (a >> 32) * (b >> 32);",
                f"return ({kind})((even >> 32) | (odd & {high}));"]
    else:
        wide_d = (dt.unsigned if d.kind == "u" else dt.signed)(2 * d.bits)
        a, b = (w.converted(n, d, wide_d, lanes) for n in "xy")
        body = [f"return {w.converted(f'(({a} * {b}) >> {d.bits})', wide_d, d, lanes)};"]
    name = define(w, f"mulhi_{kind}", kind, f"{kind} x, {kind} y", *body)
    return w.call(name, *(w.operand(v) for v in inst.args))


# conversions


def _cast(w: CWords, inst: Compute) -> Text:
    (x,) = inst.args
    source, to, lanes = x.dtype, inst.result.dtype, x.lanes
    if source.is_bool:
        kind = w.type(to, lanes)
        if to.kind != "f":
            return Text(f"({kind})-{w.mask(x, to.bits)}", UNARY)
        one = {dt.float32: "0x3f800000", dt.float64: "0x3ff0000000000000ll"}.get(to)
        if one is None:
            raise w.lacks(inst)
        return Text(f"({kind})({w.mask(x, to.bits)} & {one})", UNARY)
    text = w.operand(x)
    if source is to:
        return text
    if is_narrow(source) or is_narrow(to):
        half = half_conversion(w, source, to, lanes)
        return w.call(half, text) if half else convert_narrow(w, text, source, to, lanes)
    if source.kind == "f" and to.kind != "f":
        return w.call(_saturating(w, source, to, lanes), text)
    return Text(w.converted(text.text, source, to, lanes))


def _saturating(w: CWords, source: DType, to: DType, lanes: int) -> str:
    """Return the function float -> integer: truncated, limits beyond the range, 0 for NaN.

    Short integers go by way of 32 bits, which have vector instructions everywhere.
    """
    word = dt.int32 if to.bits < 32 else to
    f, kind = w.type(source, lanes), w.type(to, lanes)
    least, above = (w.literal(float(v), source).text for v in (to.min, int(to.max) + 1))
    select, pick = choice(w, source, lanes), choice(w, word, lanes)
    big = f"x >= {above}"
    if word.bits != source.bits:
        mask, wide = w.mask_type(source.bits, lanes), w.mask_type(word.bits, lanes)
        big = f"__builtin_convertvector(({mask})({big}), {wide})"
    found = w.converted("inside", source, word, lanes)
    top = f"({w.type(word, lanes)}){{}} + {w.literal(to.max, word).text}"
    body = [f"const {f} raised = {select}(x < {least}, ({f}){{}} + {least}, x);",
            f"const {f} inside = {select}(x < {above}, raised, ({f}){{}});",
            f"const {w.type(word, lanes)} value = {pick}({big}, {top}, {found});",
            f"return {w.converted('value', word, to, lanes)};"]
    return define(w, f"{kind}_of_{source.text}", kind, f"{f} x", *body)


def _bitcast(w: CWords, inst: Compute) -> Text:
    (a,) = inst.args
    return Text(w.same_bits(w.arg(a, UNARY), a.dtype, inst.result.dtype, a.lanes), UNARY)


LANES: Final[dict[Operation, Any]] = {
    Op.CONST: _const,
    Op.BROADCAST: _broadcast,
    Op.RAMP: _ramp,
    Op.NEG: _neg,
    Op.NOT: _not,
    Op.ABS: _abs,
    Op.COPYSIGN: _copysign,
    **dict.fromkeys((Op.SQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.MAD), _function),
    **dict.fromkeys((Op.POPCOUNT, Op.CLZ), _by_lane),
    **{op: _infix(sign) for op, sign in ((Op.ADD, "+"), (Op.SUB, "-"), (Op.MUL, "*"),
                                         (Op.DIV, "/"), (Op.AND, "&"), (Op.OR, "|"),
                                         (Op.XOR, "^"))},
    Op.FLOORDIV: _division("floordiv"),
    Op.MOD: _division("mod"),
    Op.FMOD: _division("fmod"),
    Op.MIN: _extreme("min"),
    Op.MAX: _extreme("max"),
    Op.SHL: _shift("<<"),
    Op.SHR: _shift(">>"),
    Op.MULHI: _mulhi,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    **MOVES,
}  # fmt: skip
assert ROWS.keys() - LANES.keys() <= {Op.LT, Op.LE, Op.EQ, Op.NE, Op.UNLIKELY}
