"""Operations that x86 has instructions for and LLVM no plain name (AVX-512).

VSCALEFPS and VSCALEFPD are SCALB. VRANGEPS and VRANGEPD are MAXNUM and MINNUM: they order the
zeros, as MAX and MIN do, but prefer a number to NaN, which takes two more instructions to put
right; LLVM writes MAX in seven. VFIXUPIMMPS and VFIXUPIMMPD, which replace chosen kinds of
floats, are NANOF.
Vectors of any length are cut into whole registers; a scalar or a pair is filled up to the smallest.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.renderers.llvm_types import FunctionWriter, element, splat, vector

__all__ = ["extreme", "nan_of", "number", "scalb"]

_MOST, _LEAST = 64, 16  # bytes of a register
_NANS = "17"  # quiet and signalling ones, kinds 0 and 1 of eight: take the source (1); others: keep

# element type, its bytes, lanes, operands -> the text of the result
Whole = Callable[[FunctionWriter, str, int, int, list[str]], str]


def scalb(w: FunctionWriter, inst: Compute) -> str:
    """Write a SCALB and return the operand text of its result."""
    return _cut(w, inst.result.dtype, inst.result.lanes, [w.ref(a) for a in inst.args], _scale)


def number(w: FunctionWriter, inst: Compute, largest: bool) -> str:
    """Write a MAXNUM (MINNUM if not `largest`) and return the operand text of its result."""
    def whole(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
        return _range(w, kind, size, lanes, texts, largest)
    return _cut(w, inst.result.dtype, inst.result.lanes, [w.ref(a) for a in inst.args], whole)


def nan_of(w: FunctionWriter, inst: Compute) -> str:
    """Write a NANOF and return the operand text of its result."""
    return _cut(w, inst.result.dtype, inst.result.lanes, [w.ref(a) for a in inst.args], _fix_up)


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


def _cut(w: FunctionWriter, d: DType, lanes: int, texts: list[str], whole: Whole) -> str:
    kind, size = element(d), d.itemsize
    least, most = _LEAST // size, min(_MOST, w.module.target.vector_bytes) // size
    if lanes < least:
        wide = vector(kind, least)
        if lanes == 1:
            filled = [w.new(f"insertelement {wide} zeroinitializer, {kind} {t}, i64 0")
                      for t in texts]
            return w.new(f"extractelement {wide} {whole(w, kind, size, least, filled)}, i64 0")
        filled = [_lanes(w, kind, lanes, t, "zeroinitializer", range(least)) for t in texts]
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


def _fix_up(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    source, kept = ((vector(kind, lanes), t) for t in texts)
    word = "i32" if size == 4 else "i64"
    table = (vector(word, lanes), splat(word, lanes, _NANS))
    rest, end = _masked(size, lanes)
    return w.intrinsic(f"llvm.x86.avx512.mask.fixupimm.{end}", kept[0], kept, source, table,
                       ("i32", "0"), *rest)


def _lanes(w: FunctionWriter, kind: str, count: int, a: str, b: str, picks: range) -> str:
    """Return some lanes of two vectors, one behind the other."""
    mask = ", ".join(f"i32 {i}" for i in picks)
    whole = vector(kind, count)
    return w.new(f"shufflevector {whole} {a}, {whole} {b}, <{len(picks)} x i32> <{mask}>")
