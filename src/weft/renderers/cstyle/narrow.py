"""Narrow floats in the arithmetic of float32 and uint32, for scalars and for vectors alike.

Both directions are exact: what is read keeps its value, its sign and its being a NaN; what is
rounded goes to the nearest, ties to even, through subnormal results and into infinity (NaN in
float8_e4m3fn). The same steps are `weft.renderers.llvm.llvm_convert`.
"""

from __future__ import annotations

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.renderers.cstyle.context import Words
from weft.renderers.cstyle.text import Text

__all__ = ["convert_narrow", "is_narrow"]


def is_narrow(d: DType) -> bool:
    """Whether a type is a float of less than 32 bits."""
    return d.kind == "f" and d.bits < 32


def convert_narrow(w: Words, text: Text, source: DType, to: DType, lanes: int) -> Text:
    """Return a conversion between a narrow float and float32.

    Raises
    ------
    UnsupportedError
        For any other pair: `weft.passes.legalize` takes those apart.
    """
    if dt.float32 not in (source, to):
        raise UnsupportedError("render", found=f"a cast from {source.name} to {to.name}",
                               expected="casts of narrow floats from and to float32",
                               hint="legalize the kernel first")
    width = f"x{lanes}" if lanes > 1 else ""
    name = f"{to.text}_of_{source.text}{width}"
    body = _widen(w, source, lanes) if to is dt.float32 else _round(w, to, lanes)
    t = w.type(to, lanes)
    lines = [f"{w.INLINE} {t} {name}({w.type(source, lanes)} x) {{", *(f"  {s}" for s in body), "}"]
    return w.call(w.helper(name, lambda: "\n".join(lines)), text)


def _widen(w: Words, d: DType, lanes: int) -> list[str]:
    """Return the statements narrow bits -> float32."""
    u, f = w.type(dt.uint32, lanes), w.type(dt.float32, lanes)
    word, single, bits = dt.uint32, dt.float32, dt.unsigned(d.bits)

    def choose(condition: str, a: str, b: str) -> str:
        return w.choose(condition, a, b, word, lanes)

    wide = f"const {u} wide = {w.converted('x', bits, word, lanes)};"
    if d is dt.bfloat16:
        return [wide, f"return {w.same_bits('(wide << 16)', word, single, lanes)};"]
    m, bias = d.mantissa, (1 << (d.exponent - 1)) - 1
    if d is dt.float8_e4m3fn:
        is_special, special = "magnitude == 0x7fu", "(magnitude | 0x7fc00000u)"
    else:
        is_special = f"magnitude >= {((1 << d.exponent) - 1) << m:#x}u"
        special = "(shifted | 0x7f800000u)"
    number = w.converted(w.converted("magnitude", word, dt.int32, lanes), dt.int32, single, lanes)
    scale = (2.0 ** (1 - bias - m)).hex()
    return [
        wide,
        f"const {u} magnitude = wide & {(1 << (d.bits - 1)) - 1:#x}u;",
        f"const {u} sign = (wide ^ magnitude) << {32 - d.bits};",
        f"const {u} shifted = magnitude << {23 - m};",
        f"const {u} normal = shifted + {(127 - bias) << 23:#x}u;",
        f"const {f} scaled = {number} * {scale}f;  // a subnormal: its integer times a power of 2",
        f"const {u} small = {w.same_bits('scaled', single, word, lanes)};",
        f"const {u} finite = {choose(f'magnitude < {1 << m:#x}u', 'small', 'normal')};",
        f"const {u} value = {choose(is_special, special, 'finite')};",
        f"return {w.same_bits('(value | sign)', word, single, lanes)};",
    ]


def _round(w: Words, d: DType, lanes: int) -> list[str]:
    """Return the statements float32 -> narrow bits."""
    u, f = w.type(dt.uint32, lanes), w.type(dt.float32, lanes)
    word, single, bits = dt.uint32, dt.float32, dt.unsigned(d.bits)

    def choose(condition: str, a: str, b: str) -> str:
        return w.choose(condition, a, b, word, lanes)

    def nearest(x: str, drop: int) -> str:
        return f"({x} + {(1 << (drop - 1)) - 1:#x}u + (({x} >> {drop}) & 1u)) >> {drop}"

    raw = f"const {u} raw = {w.same_bits('x', single, word, lanes)};"
    if d is dt.bfloat16:
        return [
            raw,
            f"const {u} near = {nearest('raw', 16)};",
            f"const {u} quiet = (raw >> 16) | 0x40u;",
            f"const {u} code = {choose('(raw & 0x7fffffffu) > 0x7f800000u', 'quiet', 'near')};",
            f"return {w.converted('code', word, bits, lanes)};",
        ]
    m, bias = d.mantissa, (1 << (d.exponent - 1)) - 1
    top = ((1 << d.exponent) - 1) << m
    fn = d is dt.float8_e4m3fn
    infinity, nan = (0x7F, 0x7F) if fn else (top, top | 1 << (m - 1))
    power = (2.0 ** (24 - bias - m)).hex()
    magic = (127 - bias + 23 - m + 1) << 23
    absolute = w.same_bits("magnitude", word, single, lanes)
    return [
        raw,
        f"const {u} magnitude = raw & 0x7fffffffu;",
        f"const {u} sign = (raw ^ magnitude) >> {32 - d.bits};",
        f"const {u} rebased = magnitude - {(127 - bias) << 23:#x}u;",
        f"const {u} normal = {nearest('rebased', 23 - m)};",
        f"const {f} moved = {absolute} + {power}f;  // which rounds a subnormal in the adder",
        f"const {u} small = {w.same_bits('moved', single, word, lanes)} - {magic:#x}u;",
        f"const {u} finite = {choose(f'magnitude < {(128 - bias) << 23:#x}u', 'small', 'normal')};",
        f"const {u} top = {_all(w, infinity, lanes)};",
        f"const {u} capped = {choose('finite < top', 'finite', 'top')};",
        f"const {u} code = {choose('magnitude > 0x7f800000u', _all(w, nan, lanes), 'capped')};",
        f"return {w.converted('(code | sign)', word, bits, lanes)};",
    ]


def _all(w: Words, value: int, lanes: int) -> str:
    """Return a constant in every lane."""
    if lanes == 1:
        return f"{value:#x}u"
    return f"(({w.type(dt.uint32, lanes)}){{}} + {value:#x}u)"
