"""The rows of the op table as LLVM instructions: one entry each, scalar and vector alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.errors import UnsupportedError
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir.linear import Compute, Value
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.llvm.llvm_convert import cast
from weft.renderers.llvm.llvm_lanes import EXTREMES, fenced, half, reverse, shuffle, slide
from weft.renderers.llvm.llvm_types import FunctionWriter, constant, element, splat, suffix, vector

if TYPE_CHECKING:
    from weft.renderers.llvm import llvm_avx512, llvm_dot
else:
    llvm_avx512 = Late("weft.renderers.llvm.llvm_avx512")
    llvm_dot = Late("weft.renderers.llvm.llvm_dot")

__all__ = ["RENDERED", "compute"]

Row = Callable[[FunctionWriter, Compute], str]


def compute(w: FunctionWriter, inst: Compute) -> str:
    """Write one `Compute` and return the operand text of its result.

    Raises
    ------
    UnsupportedError
        For a row, or a row of this dtype, that should have been decomposed.
    """
    row = RENDERED.get(inst.op)
    if row is None or (inst.args and _is_foreign(inst)):
        raise _lacks(inst)
    return row(w, inst)


def _lacks(inst: Compute) -> UnsupportedError:
    dtype = (inst.args[-1] if inst.args else inst.result).dtype
    return UnsupportedError("render", found=f"{inst.op.name} of {dtype.name}",
                            expected="what the target supports",
                            hint="legalize the kernel first")


_ANY_DTYPE: Final = (Op.CAST, Op.BITCAST, Op.WHERE, Op.BROADCAST, Op.EXTRACT, Op.HALF,
                     Op.REVERSE, Op.SLIDE, Op.SHUFFLE, Op.BITS, Op.WORDS)  # fmt: skip


def _is_foreign(inst: Compute) -> bool:
    """Whether the operands are narrow floats, with which nothing is computed."""
    d = inst.args[-1].dtype
    return d.kind == "f" and d.bits < 32 and inst.op not in _ANY_DTYPE


def _kind(v: Value) -> str:
    return vector(element(v.dtype), v.lanes)


def _number(w: FunctionWriter, v: Value) -> Any:
    """Return the Python value of a constant operand, else None."""
    return w.module.numbers.get(v.id)


def _infix(floats: str, integers: str) -> Row:
    def row(w: FunctionWriter, inst: Compute) -> str:
        a, b = inst.args
        if a.dtype.kind == "f":
            return w.new(f"{floats} {w.module.flags}{_kind(a)} {w.ref(a)}, {w.ref(b)}")
        return w.new(f"{integers} {_kind(a)} {w.ref(a)}, {w.ref(b)}")

    return row


def _compare(floats: str, signed: str, unsigned: str) -> Row:
    def row(w: FunctionWriter, inst: Compute) -> str:
        a, b = inst.args
        k = a.dtype.kind
        what = f"fcmp {floats}" if k == "f" else f"icmp {signed if k == 'i' else unsigned}"
        return w.new(f"{what} {_kind(a)} {w.ref(a)}, {w.ref(b)}")

    return row


def _intrinsic(name: str) -> Row:
    def row(w: FunctionWriter, inst: Compute) -> str:
        v = inst.result
        args = [(_kind(a), w.ref(a)) for a in inst.args]
        full = f"llvm.{name}.{suffix(element(v.dtype), v.lanes)}"
        return w.intrinsic(full, _kind(v), *args)

    return row


def _const(w: FunctionWriter, inst: Compute) -> str:
    return constant(inst.attr, inst.result.dtype, inst.result.lanes)


def _neg(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    if a.dtype.kind == "f":
        return w.new(f"fneg {_kind(a)} {w.ref(a)}")
    return w.new(f"sub {_kind(a)} {constant(0, a.dtype, a.lanes)}, {w.ref(a)}")


def _not(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    ones = splat(element(a.dtype), a.lanes, "true" if a.dtype.is_bool else "-1")
    return w.new(f"xor {_kind(a)} {w.ref(a)}, {ones}")


def _abs(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    if a.dtype.kind == "u":
        return w.ref(a)
    if a.dtype.kind == "f":
        return _intrinsic("fabs")(w, inst)
    name = f"llvm.abs.{suffix(element(a.dtype), a.lanes)}"
    return w.intrinsic(name, _kind(a), (_kind(a), w.ref(a)), ("i1", "false"))


def _clz(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    name = f"llvm.ctlz.{suffix(element(a.dtype), a.lanes)}"
    return w.intrinsic(name, _kind(a), (_kind(a), w.ref(a)), ("i1", "false"))


def _extreme(which: str) -> Row:
    def row(w: FunctionWriter, inst: Compute) -> str:
        a, b = inst.args
        k, kind = a.dtype.kind, _kind(a)
        if k == "b":
            return w.new(f"{'and' if which == 'min' else 'or'} {kind} {w.ref(a)}, {w.ref(b)}")
        if k == "f" and all(w.ref(x).startswith("%") for x in inst.args) and (
                {"+avx512dq", "+avx512vl"} <= set(w.module.target.features)):
            return llvm_avx512.extreme(w, inst, which == "max")
        name = {"f": f"{which}imum", "i": f"s{which}", "u": f"u{which}"}[k]
        full = f"llvm.{name}.{suffix(element(a.dtype), a.lanes)}"
        # x86 inspects the sign of the first operand: the second one here, so that the running
        # value of a reduction stays off the critical path.
        found = w.intrinsic(full, kind, (kind, w.ref(b)), (kind, w.ref(a)))
        return found if k == "f" or a.lanes == 1 else fenced(w, inst, found, EXTREMES)

    return row


def _division(result: str) -> Row:
    """FLOORDIV, MOD and FMOD; `result` is ``floordiv``, ``mod`` or ``fmod``."""

    def row(w: FunctionWriter, inst: Compute) -> str:
        x, y = inst.args
        d, lanes, kind = x.dtype, x.lanes, _kind(x)
        if d.kind == "f":
            if result != "fmod":
                raise _lacks(inst)
            return w.new(f"frem {w.module.flags}{kind} {w.ref(x)}, {w.ref(y)}")
        known = _number(w, y)
        is_shift = known is not None and known > 0 and known & (known - 1) == 0
        if d is dt.int64 and not is_shift:
            low, high = ranges.of(w.module.ranges, x)
            least, most = ranges.of(w.module.ranges, y)
            exact = max(-low, high, -least, most) < _EXACT
            if lanes > 1 and exact and known is None and _converts(w):
                return _by_floats(w, x, y, result, least > 0)
            if low >= 0 and least > 0:
                return _of_naturals(w, x, y, max(high, most) < 1 << 32, result)
        if known is not None:
            return _by_constant(w, x, y, known, result)
        zero, one = constant(0, d, lanes), constant(1, d, lanes)
        i1 = vector("i1", lanes)
        is_zero = w.new(f"icmp eq {kind} {w.ref(y)}, {zero}")
        unsafe = is_zero
        if d.kind == "i":
            lowest, minus = constant(d.min, d, lanes), constant(-1, d, lanes)
            is_lowest = w.new(f"icmp eq {kind} {w.ref(x)}, {lowest}")
            is_minus = w.new(f"icmp eq {kind} {w.ref(y)}, {minus}")
            overflow = w.new(f"and {i1} {is_lowest}, {is_minus}")
            unsafe = w.new(f"or {i1} {is_zero}, {overflow}")
        divisor = w.new(f"select {i1} {unsafe}, {kind} {one}, {kind} {w.ref(y)}")
        value = _floor(w, x, divisor, result) if d.kind == "i" else _truncate(
            w, x, divisor, result
        )
        return w.new(f"select {i1} {is_zero}, {kind} {zero}, {kind} {value}")

    return row


_EXACT: Final = 1 << 52  # integers below have quotients in float64 that do not round up to whole


def _converts(w: FunctionWriter) -> bool:
    """Whether vectors of int64 are converted to float64 and back by single instructions."""
    target = w.module.target
    return target.arch == "aarch64" or "+avx512dq" in target.features


def _by_floats(w: FunctionWriter, x: Value, y: Value, result: str, positive: bool) -> str:
    """Write the division of vectors in float64, which no processor does in int64.

    The quotient of two integers below 2**52 that is not whole is further from the next whole
    number than float64 rounds, so its floor is right; the remainder is exact.
    """
    kind, double, i1 = _kind(x), vector("double", x.lanes), vector("i1", x.lanes)
    divisor, is_zero = w.ref(y), ""
    if not positive:
        is_zero = w.new(f"icmp eq {kind} {divisor}, zeroinitializer")
        one = constant(1, x.dtype, x.lanes)
        divisor = w.new(f"select {i1} {is_zero}, {kind} {one}, {kind} {divisor}")
    a = w.new(f"sitofp {kind} {w.ref(x)} to {double}")
    b = w.new(f"sitofp {kind} {divisor} to {double}")
    name = f"llvm.{'trunc' if result == 'fmod' else 'floor'}.v{x.lanes}f64"
    w.module.declare(f"declare {double} @{name}({double})")
    found = w.new(f"call {double} @{name}({double} {w.new(f'fdiv {double} {a}, {b}')})")
    if result != "floordiv":
        fma = f"llvm.fma.v{x.lanes}f64"
        w.module.declare(f"declare {double} @{fma}({double}, {double}, {double})")
        less = w.new(f"fneg {double} {found}")
        found = w.new(f"call {double} @{fma}({double} {less}, {double} {b}, {double} {a})")
    whole = w.new(f"fptosi {double} {found} to {kind}")
    if positive:
        return whole
    return w.new(f"select {i1} {is_zero}, {kind} zeroinitializer, {kind} {whole}")


def _of_naturals(w: FunctionWriter, x: Value, y: Value, is_small: bool, result: str) -> str:
    """Write a division of numbers that are not negative; `is_small`: below 2**32."""
    kind, lanes = _kind(x), x.lanes
    what = "udiv" if result == "floordiv" else "urem"
    if not is_small:
        return w.new(f"{what} {kind} {w.ref(x)}, {w.ref(y)}")
    narrow = vector("i32", lanes)
    a = w.new(f"trunc {kind} {w.ref(x)} to {narrow}")
    b = w.new(f"trunc {kind} {w.ref(y)} to {narrow}")
    return w.new(f"zext {narrow} {w.new(f'{what} {narrow} {a}, {b}')} to {kind}")


def _truncate(w: FunctionWriter, x: Value, divisor: str, result: str) -> str:
    sign = "s" if x.dtype.kind == "i" else "u"
    what = f"{sign}div" if result == "floordiv" else f"{sign}rem"
    return w.new(f"{what} {_kind(x)} {w.ref(x)}, {divisor}")


def _floor(w: FunctionWriter, x: Value, divisor: str, result: str) -> str:
    """Write the signed division by a divisor that is neither 0 nor overflows."""
    kind, i1 = _kind(x), vector("i1", x.lanes)
    if result == "fmod":
        return w.new(f"srem {kind} {w.ref(x)}, {divisor}")
    zero, minus = constant(0, x.dtype, x.lanes), constant(-1, x.dtype, x.lanes)
    rest = w.new(f"srem {kind} {w.ref(x)}, {divisor}")
    has_rest = w.new(f"icmp ne {kind} {rest}, {zero}")
    signs = w.new(f"xor {kind} {rest}, {divisor}")
    differ = w.new(f"icmp slt {kind} {signs}, {zero}")
    adjust = w.new(f"and {i1} {has_rest}, {differ}")
    if result == "mod":
        add = w.new(f"select {i1} {adjust}, {kind} {divisor}, {kind} {zero}")
        return w.new(f"add {kind} {rest}, {add}")
    add = w.new(f"select {i1} {adjust}, {kind} {minus}, {kind} {zero}")
    quotient = w.new(f"sdiv {kind} {w.ref(x)}, {divisor}")
    return w.new(f"add {kind} {quotient}, {add}")


def _by_constant(w: FunctionWriter, x: Value, y: Value, known: int, result: str) -> str:
    d, kind, lanes = x.dtype, _kind(x), x.lanes
    if known == 0:
        return constant(0, d, lanes)
    if known == 1:
        return w.ref(x) if result == "floordiv" else constant(0, d, lanes)
    if known == -1 and d.kind == "i":
        if result != "floordiv":
            return constant(0, d, lanes)
        return w.new(f"sub {kind} {constant(0, d, lanes)}, {w.ref(x)}")  # wraps for the lowest
    if d.kind == "u":
        return _truncate(w, x, w.ref(y), result)
    if known > 0 and known & (known - 1) == 0 and result != "fmod":
        if result == "mod":
            return w.new(f"and {kind} {w.ref(x)}, {constant(known - 1, d, lanes)}")
        return w.new(f"ashr {kind} {w.ref(x)}, {constant(known.bit_length() - 1, d, lanes)}")
    return _floor(w, x, w.ref(y), result)


def _shl(w: FunctionWriter, inst: Compute) -> str:
    x, y = inst.args
    return _shift(w, x, y, "shl")


def _shr(w: FunctionWriter, inst: Compute) -> str:
    x, y = inst.args
    if x.dtype.kind == "u":
        return _shift(w, x, y, "lshr")
    d, kind, lanes = x.dtype, _kind(x), x.lanes
    known = _number(w, y)
    most = constant(d.bits - 1, d, lanes)
    if known is not None:
        amount = most if not 0 <= known < d.bits else w.ref(y)
    else:
        name = f"llvm.umin.{suffix(element(d), lanes)}"  # a negative amount is a huge one
        amount = w.intrinsic(name, kind, (kind, w.ref(y)), (kind, most))
    return w.new(f"ashr {kind} {w.ref(x)}, {amount}")


def _shift(w: FunctionWriter, x: Value, y: Value, what: str) -> str:
    d, kind, lanes = x.dtype, _kind(x), x.lanes
    zero = constant(0, d, lanes)
    known = _number(w, y)
    if known is not None:
        inside = 0 <= known < d.bits
        return w.new(f"{what} {kind} {w.ref(x)}, {w.ref(y)}") if inside else zero
    inside_range = w.new(f"icmp ult {kind} {w.ref(y)}, {constant(d.bits, d, lanes)}")
    moved = w.new(f"{what} {kind} {w.ref(x)}, {w.ref(y)}")
    return w.new(f"select {vector('i1', lanes)} {inside_range}, {kind} {moved}, {kind} {zero}")


def _mulhi(w: FunctionWriter, inst: Compute) -> str:
    x, y = inst.args
    d, kind, lanes = x.dtype, _kind(x), x.lanes
    if d is dt.uint32 and lanes > 1:
        return _mulhi_pairs(w, x, y)
    wide = vector(f"i{2 * d.bits}", lanes)
    extend = "sext" if d.kind == "i" else "zext"
    a = w.new(f"{extend} {kind} {w.ref(x)} to {wide}")
    b = w.new(f"{extend} {kind} {w.ref(y)} to {wide}")
    product = w.new(f"mul {wide} {a}, {b}")
    upper = w.new(f"lshr {wide} {product}, {splat(f'i{2 * d.bits}', lanes, str(d.bits))}")
    return w.new(f"trunc {wide} {upper} to {kind}")


def _mulhi_pairs(w: FunctionWriter, x: Value, y: Value) -> str:
    """Multiply even and odd lanes in place, where their double width fits without moving them."""
    kind, lanes = _kind(x), x.lanes
    wide = vector("i64", lanes // 2)
    half = splat("i64", lanes // 2, "32")
    low = splat("i64", lanes // 2, str(0xFFFFFFFF))
    high = splat("i64", lanes // 2, str(-(1 << 32)))
    a, b = (w.new(f"bitcast {kind} {w.ref(v)} to {wide}") for v in (x, y))
    even = [w.new(f"and {wide} {v}, {low}") for v in (a, b)]
    odd = [w.new(f"lshr {wide} {v}, {half}") for v in (a, b)]
    even_product = w.new(f"mul {wide} {even[0]}, {even[1]}")
    odd_product = w.new(f"mul {wide} {odd[0]}, {odd[1]}")
    upper = w.new(f"lshr {wide} {even_product}, {half}")
    lower = w.new(f"and {wide} {odd_product}, {high}")
    return w.new(f"bitcast {wide} {w.new(f'or {wide} {upper}, {lower}')} to {kind}")


def _where(w: FunctionWriter, inst: Compute) -> str:
    c, a, b = inst.args
    name = w.new(f"select {_kind(c)} {w.ref(c)}, {_kind(a)} {w.ref(a)}, {_kind(b)} {w.ref(b)}")
    return name if a.lanes == 1 else fenced(w, inst, name, EXTREMES)


def _cast(w: FunctionWriter, inst: Compute) -> str:
    return cast(w, inst.args[0], inst.result.dtype)


def _bitcast(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    source, to = _kind(a), _kind(inst.result)
    return w.ref(a) if source == to else w.new(f"bitcast {source} {w.ref(a)} to {to}")


def _broadcast(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    scalar, kind, lanes = element(a.dtype), _kind(inst.result), inst.result.lanes
    known = _number(w, a)
    if known is not None:
        return constant(known, a.dtype, lanes)
    first = w.once(f"insertelement {kind} poison, {scalar} {w.ref(a)}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return w.once(f"shufflevector {kind} {first}, {kind} poison, {zeros}")


def _ramp(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    scalar, kind, lanes = element(a.dtype), _kind(inst.result), inst.result.lanes
    known = _number(w, a)
    if known is not None:
        values = (dt.wrap(known + i, a.dtype) for i in range(lanes))
        return f"<{', '.join(f'{scalar} {v}' for v in values)}>"
    steps = f"<{', '.join(f'{scalar} {i}' for i in range(lanes))}>"
    return w.new(f"add {kind} {_broadcast(w, inst)}, {steps}")


def _places(w: FunctionWriter, inst: Compute) -> str:
    steps = ", ".join(f"i64 {i * inst.attr + j}" for i in range(16) for j in range(16))
    return w.new(f"add {_kind(inst.result)} {_broadcast(w, inst)}, <{steps}>")


def _extract(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    return w.new(f"extractelement {_kind(a)} {w.ref(a)}, i64 {inst.attr}")


def _bits(w: FunctionWriter, inst: Compute) -> str:
    (a,) = inst.args
    if a.lanes == 64:
        return w.new(f"bitcast {_kind(a)} {w.ref(a)} to i64")
    packed = w.new(f"bitcast {_kind(a)} {w.ref(a)} to i{a.lanes}")
    return w.new(f"zext i{a.lanes} {packed} to i64")


def _compress(w: FunctionWriter, inst: Compute) -> str:
    flags, x = inst.args
    kind = _kind(x)
    return w.intrinsic(f"llvm.experimental.vector.compress.{suffix(element(x.dtype), x.lanes)}",
                       kind, (kind, w.ref(x)), (_kind(flags), w.ref(flags)),
                       (kind, "zeroinitializer"))


RENDERED: Final[dict[Operation, Row]] = {
    Op.CONST: _const,
    Op.NEG: _neg,
    Op.NOT: _not,
    Op.ABS: _abs,
    Op.SQRT: _intrinsic("sqrt"),
    Op.FLOOR: _intrinsic("floor"),
    Op.CEIL: _intrinsic("ceil"),
    Op.TRUNC: _intrinsic("trunc"),
    Op.ROUND: _intrinsic("roundeven"),
    Op.POPCOUNT: _intrinsic("ctpop"),
    Op.CLZ: _clz,
    Op.ADD: _infix("fadd", "add"),
    Op.SUB: _infix("fsub", "sub"),
    Op.MUL: _infix("fmul", "mul"),
    Op.DIV: _infix("fdiv", "sdiv"),
    Op.FLOORDIV: _division("floordiv"),
    Op.MOD: _division("mod"),
    Op.FMOD: _division("fmod"),
    Op.COPYSIGN: _intrinsic("copysign"),
    Op.MIN: _extreme("min"),
    Op.MAX: _extreme("max"),
    Op.AND: _infix("and", "and"),
    Op.OR: _infix("or", "or"),
    Op.XOR: _infix("xor", "xor"),
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.MULHI: _mulhi,
    Op.LT: _compare("olt", "slt", "ult"),
    Op.LE: _compare("ole", "sle", "ule"),
    Op.EQ: _compare("oeq", "eq", "eq"),
    Op.NE: _compare("une", "ne", "ne"),
    Op.WHERE: _where,
    Op.MAD: _intrinsic("fma"),
    **dict.fromkeys((Op.SCALB, Op.MAXNUM, Op.MINNUM, Op.NANOF, Op.LOOKUP),
                    lambda w, i: llvm_avx512.native(w, i)),
    Op.UNLIKELY: lambda w, i: w.ref(i.args[0]),
    Op.DOT2: lambda w, i: llvm_dot.dot(w, i),
    Op.DOT4: lambda w, i: llvm_dot.dot(w, i),
    Op.MATRIX2: lambda w, i: llvm_dot.matrix(w, i),
    Op.MATRIX4: lambda w, i: llvm_dot.matrix(w, i),
    Op.MATRIX4S: lambda w, i: llvm_dot.matrix(w, i),
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.BROADCAST: _broadcast,
    Op.RAMP: _ramp,
    Op.PLACES: _places,
    Op.EXTRACT: _extract,
    Op.HALF: half,
    Op.BITS: _bits,
    Op.WORDS: _bitcast,
    Op.REVERSE: reverse,
    Op.SLIDE: slide,
    Op.SHUFFLE: shuffle,
    Op.COMPRESS: _compress,
}
