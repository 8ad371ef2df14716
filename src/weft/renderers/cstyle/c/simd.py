"""Vector functions of the prelude whose text depends on what a compiler offers.

Each takes the best of: a builtin that means the operation (clang), the builtin of an instruction
(x86), halves of a vector that is wider than the registers, and one lane after the other. All of
them give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.op import Op, Operation
from weft.renderers.cstyle.c.context import CWords, padded

__all__ = ["converted", "float_function", "half_conversion", "lanewise", "split"]

_LISTED: Final = 16  # lanes that are written one by one; more are a loop
_NARROWEST: Final = 16  # bytes of a register

# The builtin of clang, and of x86 with its arguments behind the operands: by bytes of the register.
_ELEMENTWISE: Final = {
    Op.SQRT: "sqrt", Op.FLOOR: "floor", Op.CEIL: "ceil", Op.TRUNC: "trunc", Op.ROUND: "roundeven",
    Op.MAD: "fma",
}  # fmt: skip
_MODES: Final = {Op.ROUND: 8, Op.FLOOR: 9, Op.CEIL: 10, Op.TRUNC: 11}
_ENDS: Final = {16: "", 32: "256", 64: "512_mask"}


def float_function(w: CWords, op: Operation, d: DType, lanes: int) -> str:
    """Return the name of a function of vectors of floats."""
    names = "xyz"[: op.arity]
    kind, scalar = w.type(d, lanes), w.type(d)
    name = f"{op.name}_{d.text}x{lanes}"

    def text() -> str:
        whole = ", ".join(names)
        one = w.function_name(op, d)
        body = w.vector_call(op, d, lanes, names) or lanewise(
            w, d, lanes, lambda i: f"{one}({', '.join(f'{n}[{i}]' for n in names)})")
        forms = []
        if op in _ELEMENTWISE:
            builtin = f"__builtin_elementwise_{_ELEMENTWISE[op]}"
            forms.append((builtin, [f"return {builtin}({whole});"]))
        forms += _instruction(w, op, d, lanes, names)
        params = ", ".join(f"{kind} {n}" for n in names)
        return "\n".join([f"{w.INLINE} {kind} {name}({params}) {{", *_ladder(forms, body), "}"])

    assert scalar
    return w.helper(name, text)


def _ladder(forms: Sequence[tuple[str, list[str]]], last: list[str]) -> list[str]:
    """Return statements for the first builtin that a compiler has."""
    lines: list[str] = []
    for builtin, body in forms:
        lines += [f"#{'elif' if lines else 'if'} __has_builtin({builtin})", *_indented(body)]
    if not lines:
        return _indented(last)
    return [*lines, "#else", *_indented(last), "#endif"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _instruction(w: CWords, op: Operation, d: DType, lanes: int,
                 names: str) -> list[tuple[str, list[str]]]:  # fmt: skip
    """Return the builtin of x86 and what is returned with it, if it has one."""
    bits = "ps" if d is dt.float32 else "pd"
    size, most = lanes * d.itemsize, w.target.vector_bytes
    features = w.target.features
    if w.target.arch != "x86_64" or padded(lanes) != lanes or size < _NARROWEST:
        return []
    width = min(size, most)
    end, whole = _ENDS[width], width == 64
    rest = f", (u{max(width // d.itemsize, 8)})-1, 4" if whole else ""
    if op is Op.MAD and ("+fma" in features or whole):
        call, args = f"vfmadd{bits}{end}", "{}" + rest
    elif op is Op.SQRT and not whole:
        call, args = f"sqrt{bits}{end}", "{}"
    elif op in _MODES and whole:
        call, args = f"rndscale{bits}_mask", f"{{0}}, {_MODES[op]}, {{0}}{rest}"
    elif op in _MODES and "+sse4.1" in features:
        call, args = f"round{bits}{end}", f"{{}}, {_MODES[op]}"
    else:
        return []
    builtin = f"__builtin_ia32_{call}"
    if size == width:
        return [(builtin, [f"return {builtin}({args.format(', '.join(names))});"])]
    part = float_function(w, op, d, width // d.itemsize)
    return [(builtin, split(w, d, lanes, width // d.itemsize, part, names))]


def split(w: CWords, d: DType, lanes: int, part: int, function: str, names: str) -> list[str]:
    """Return statements that call a function for one piece of some vectors after the other."""
    whole, piece, count = w.type(d, lanes), w.type(d, part), lanes // part
    union = f"union {{ {whole} whole; {piece} part[{count}]; }}"
    operands = ", ".join(f"{n}s = {{ {n} }}" for n in names)
    calls = ", ".join(f"{n}s.part[i]" for n in names)
    return [f"{union} {operands}, made;",
            f"for (int i = 0; i < {count}; i++) made.part[i] = {function}({calls});",
            "return made.whole;"]  # fmt: skip


def lanewise(w: CWords, d: DType, lanes: int, one: Callable[[str], str]) -> list[str]:
    """Return statements that make a vector lane by lane; `one` writes the lane of an index."""
    kind, count = w.type(d, lanes), padded(lanes)
    if count <= _LISTED:
        return [f"return ({kind}){{ {', '.join(one(str(i)) for i in range(count))} }};"]
    return [f"{kind} made;", f"for (int i = 0; i < {count}; i++) made[i] = {one('i')};",
            "return made;"]  # fmt: skip


def converted(w: CWords, text: str, source: DType, to: DType, lanes: int) -> str:
    """Return vectors converted as C does, in steps that gcc has instructions for as well.

    Integers are doubled or halved in width at a time, and short ones become floats through int32.
    """
    kind = w.type(to, lanes)
    if source.kind != "f" and to.kind != "f":
        if source.bits == to.bits:
            return f"(({kind})({text}))"
        ratio = max(source.bits, to.bits) // min(source.bits, to.bits)
        if ratio > 2:
            bits = source.bits * 2 if to.bits > source.bits else source.bits // 2
            step = (dt.signed if source.kind == "i" else dt.unsigned)(bits)
            return converted(w, converted(w, text, source, step, lanes), step, to, lanes)
        if (source.bits, lanes) == (64, 4):
            return f"{_halved(w, source, to)}({text})"
    elif source.kind != "f" and source.bits < 32:
        return converted(w, converted(w, text, source, dt.int32, lanes), dt.int32, to, lanes)
    elif (source, to, lanes) == (dt.float32, dt.float64, 4) and w.target.arch == "x86_64":
        return f"{_doubled(w)}({text})"
    return f"__builtin_convertvector({text}, {kind})"


def _halved(w: CWords, source: DType, to: DType) -> str:
    """Return the function of four integers of 64 bits to the lower halves of them."""
    kind, start, words = w.type(to, 4), w.type(source, 4), w.type(to, 8)
    name = f"{kind}_of_{source.text}"
    return w.helper(name, lambda: "\n".join([
        f"{w.INLINE} {kind} {name}({start} x) {{",
        "#if !defined(__clang__) && __has_builtin(__builtin_shufflevector) && "
        "__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__",
        f"  return __builtin_shufflevector(({words})x, ({words})x, 0, 2, 4, 6);",
        "#else", f"  return __builtin_convertvector(x, {kind});", "#endif", "}"]))  # fmt: skip


def _doubled(w: CWords) -> str:
    """Return the function of four float32 to float64, which gcc takes apart first."""
    kind, start = w.type(dt.float64, 4), w.type(dt.float32, 4)
    builtin = "__builtin_ia32_cvtps2pd256"
    name = f"{kind}_of_f32"
    return w.helper(name, lambda: "\n".join([
        f"{w.INLINE} {kind} {name}({start} x) {{",
        *_ladder([(builtin, [f"return {builtin}(x);"])],
                 [f"return __builtin_convertvector(x, {kind});"]), "}"]))


def half_conversion(w: CWords, source: DType, to: DType, lanes: int) -> str:
    """Return the function between float16 and float32 that x86 has instructions for (F16C).

    An empty string where it has none for so many lanes.
    """
    if (w.target.arch != "x86_64" or {source, to} != {dt.float16, dt.float32}
            or dt.float16.text not in w.target.native_conversions or padded(lanes) != lanes):
        return ""
    name = f"{to.text}_of_{source.text}x{lanes}"
    kind, start = w.type(to, lanes), w.type(source, lanes)
    shorts, singles = w.type(dt.int16, 8), w.type(dt.float32, 8)
    if lanes > 8:
        part = half_conversion(w, source, to, 8)
        union = "union {{ {} whole; {} part[{}]; }}"
        body = [union.format(start, w.type(source, 8), lanes // 8) + " from = { x };",
                union.format(kind, w.type(to, 8), lanes // 8) + " made;",
                f"for (int i = 0; i < {lanes // 8}; i++) made.part[i] = {part}(from.part[i]);",
                "return made.whole;"]  # fmt: skip
    elif lanes == 8:
        body = ([f"return ({kind})__builtin_ia32_vcvtps2ph256(x, 0);"] if to is dt.float16 else
                [f"return ({kind})__builtin_ia32_vcvtph2ps256(({shorts})x);"])
    else:
        element = [f"x[{i}]" for i in range(lanes)] if lanes > 1 else ["x"]
        wide = w.type(source, 8)
        listed = ", ".join(element)
        call = (f"({w.type(to, 8)})__builtin_ia32_vcvtps2ph256(({singles}){{ {listed} }}, 0)"
                if to is dt.float16 else
                f"__builtin_ia32_vcvtph2ps256(({shorts})({wide}){{ {listed} }})")
        body = [f"const {w.type(to, 8)} made = {call};"]
        body += ["return made[0];"] if lanes == 1 else [
            f"return ({kind}){{ {', '.join(f'made[{i}]' for i in range(lanes))} }};"]
        name = name if lanes > 1 else f"{to.text}_of_{source.text}"
    lines = [f"{w.INLINE} {kind} {name}({start} x) {{", *_indented(body), "}"]
    return w.helper(name, lambda: "\n".join(lines))
