"""Operations that x86 has instructions for and LLVM no plain name (AVX-512).

VSCALEFPS and VSCALEFPD are SCALB. VRANGEPS and VRANGEPD are MAXNUM and MINNUM: they order the
zeros, as MAX and MIN do, but prefer a number to NaN, which takes two more instructions to put
right; LLVM writes MAX in seven. VFIXUPIMMPS and VFIXUPIMMPD, which replace chosen kinds of
floats, are NANOF. VPERMPS and VPERMI2PS, which permute one register and two, are LOOKUP.
Vectors of any length are cut into whole registers; a scalar or a pair is filled up to the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.ir.lookup import values_of
from weft.ir.op import Op
from weft.renderers.llvm.llvm_types import FunctionWriter, constant, element, splat, vector

__all__ = ["extreme", "native"]

_MOST, _SMALLEST = 64, 16  # bytes of a register
_NANS = "17"  # quiet and signalling ones, kinds 0 and 1 of eight: take the source (1); others: keep

# element type, its bytes, lanes, operands -> the text of the result
Whole = Callable[[FunctionWriter, str, int, int, list[str]], str]


def native(w: FunctionWriter, inst: Compute) -> str:
    """Write one operation of the group ``native`` and return the operand text of its result."""
    if inst.op is Op.LOOKUP:
        return _lookup(w, inst)
    whole = {Op.SCALB: _scale, Op.NANOF: _fix_up, Op.MAXNUM: _largest, Op.MINNUM: _least}[inst.op]
    return _cut(w, inst.result.dtype, inst.result.lanes, [w.ref(a) for a in inst.args], whole)


def extreme(w: FunctionWriter, inst: Compute, largest: bool) -> str:
    """Write a MAX (MIN if not `largest`) of floats and return the operand text of its result."""
    def whole(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
        found = _range(w, kind, size, lanes, texts, largest)
        a, b = texts
        is_nan = w.new(f"fcmp uno {vector(kind, lanes)} {a}, {b}")
        nan = w.new(f"fadd {vector(kind, lanes)} {a}, {b}")
        return w.new(f"select {vector('i1', lanes)} {is_nan}, {vector(kind, lanes)} {nan}, "
                     f"{vector(kind, lanes)} {found}")
    return _cut(w, inst.result.dtype, inst.result.lanes, [w.ref(a) for a in inst.args], whole)


def _cut(w: FunctionWriter, d: DType, lanes: int, texts: list[str], whole: Whole,
         smallest: int = _SMALLEST) -> str:  # fmt: skip
    kind, size = element(d), d.itemsize
    least = smallest // size
    most = max(min(_MOST, w.module.target.vector_bytes) // size, least)
    if lanes < least:
        wide = vector(kind, least)
        if lanes == 1:
            filled = [w.new(f"insertelement {wide} zeroinitializer, {kind} {t}, i64 0")
                      for t in texts]
            return w.new(f"extractelement {wide} {whole(w, kind, size, least, filled)}, i64 0")
        picks = [min(i, lanes) for i in range(least)]
        filled = [_lanes(w, kind, lanes, t, "zeroinitializer", picks) for t in texts]
        return _lanes(w, kind, least, whole(w, kind, size, least, filled), "poison", range(lanes))
    if lanes <= most:
        return whole(w, kind, size, lanes, texts)
    parts = [whole(w, kind, size, most, [
        _lanes(w, kind, lanes, t, "poison", range(first, first + most)) for t in texts])
        for first in range(0, lanes, most)]
    while len(parts) > 1:
        parts = [_lanes(w, kind, most, a, b, range(2 * most))
                 for a, b in zip(parts[::2], parts[1::2], strict=True)]
        most *= 2
    return parts[0]


def _masked(size: int, lanes: int) -> tuple[list[tuple[str, str]], str]:
    """Return the mask of all lanes, the rounding of the processor, and how the name ends."""
    rounding = [("i32", "4")] if size * lanes == _MOST else []
    mask = ("i16" if lanes > 8 else "i8", "-1")
    return [mask, *rounding], f"p{'s' if size == 4 else 'd'}.{8 * size * lanes}"


def _scale(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    a, b = ((vector(kind, lanes), t) for t in texts)
    rest, end = _masked(size, lanes)
    return w.intrinsic(f"llvm.x86.avx512.mask.scalef.{end}", vector(kind, lanes), a, b, a, *rest)


def _range(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str],
           largest: bool) -> str:  # fmt: skip
    whole = vector(kind, lanes)
    a, b = ((whole, t) for t in texts)
    rest, end = _masked(size, lanes)
    which = ("i32", "5" if largest else "4")  # with the sign of the one that is chosen
    return w.intrinsic(f"llvm.x86.avx512.mask.range.{end}", whole, a, b, which, a, *rest)


def _largest(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    return _range(w, kind, size, lanes, texts, True)


def _least(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    return _range(w, kind, size, lanes, texts, False)


def _fix_up(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    source, kept = ((vector(kind, lanes), t) for t in texts)
    word = "i32" if size == 4 else "i64"
    table = (vector(word, lanes), splat(word, lanes, _NANS))
    rest, end = _masked(size, lanes)
    return w.intrinsic(f"llvm.x86.avx512.mask.fixupimm.{end}", kept[0], kept, source, table,
                       ("i32", "0"), *rest)


def _lookup(w: FunctionWriter, inst: Compute) -> str:
    values = [constant(v, dt.float32) for v in values_of(inst.attr)]
    tables = [f"<{', '.join(f'float {v}' for v in values[i:i + 16])}>"
              for i in range(0, len(values), 16)]
    real, words = vector("float", 16), vector("i32", 16)

    def whole(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
        index = (words, texts[0])
        if len(tables) == 1:
            made = w.intrinsic("llvm.x86.avx512.permvar.sf.512", real, (real, tables[0]), index)
        else:
            made = w.intrinsic("llvm.x86.avx512.vpermi2var.ps.512", real, (real, tables[0]), index,
                               (real, tables[1]))
        return w.new(f"bitcast {real} {made} to {words}")

    lanes = inst.result.lanes
    found = _cut(w, dt.uint32, lanes, [w.ref(inst.args[0])], whole, _MOST)
    return w.new(f"bitcast {vector('i32', lanes)} {found} to {vector('float', lanes)}")


def _lanes(w: FunctionWriter, kind: str, count: int, a: str, b: str, picks: Sequence[int]) -> str:
    """Return some lanes of two vectors, one behind the other."""
    mask = ", ".join(f"i32 {i}" for i in picks)
    whole = vector(kind, count)
    return w.new(f"shufflevector {whole} {a}, {whole} {b}, <{len(picks)} x i32> <{mask}>")
