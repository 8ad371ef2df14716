"""Multiplication by a power of two as the instruction that x86 has for it.

VSCALEFPS and VSCALEFPD (AVX-512) are SCALB. Vectors of any length are cut into whole registers; a
scalar or a pair is filled up to the smallest one.
"""

from __future__ import annotations

from weft.ir.linear import Compute
from weft.renderers.llvm_types import FunctionWriter, element, vector

__all__ = ["scalb"]

_MOST, _LEAST = 64, 16  # bytes of a register


def scalb(w: FunctionWriter, inst: Compute) -> str:
    """Write a SCALB and return the operand text of its result."""
    d, lanes = inst.result.dtype, inst.result.lanes
    kind, size = element(d), d.itemsize
    texts = [w.ref(a) for a in inst.args]
    least, most = _LEAST // size, min(_MOST, w.module.target.vector_bytes) // size
    if lanes < least:
        wide = vector(kind, least)
        if lanes == 1:
            filled = [w.new(f"insertelement {wide} zeroinitializer, {kind} {t}, i64 0")
                      for t in texts]
            return w.new(f"extractelement {wide} {_whole(w, kind, size, least, filled)}, i64 0")
        filled = [_lanes(w, kind, lanes, t, "zeroinitializer", range(least)) for t in texts]
        return _lanes(w, kind, least, _whole(w, kind, size, least, filled), "poison", range(lanes))
    if lanes <= most:
        return _whole(w, kind, size, lanes, texts)
    parts = [_whole(w, kind, size, most, [
        _lanes(w, kind, lanes, t, "poison", range(first, first + most)) for t in texts])
        for first in range(0, lanes, most)]
    while len(parts) > 1:
        parts = [_lanes(w, kind, most, a, b, range(2 * most))
                 for a, b in zip(parts[::2], parts[1::2], strict=True)]
        most *= 2
    return parts[0]


def _whole(w: FunctionWriter, kind: str, size: int, lanes: int, texts: list[str]) -> str:
    """Write one instruction on whole registers, all lanes of them."""
    whole = vector(kind, lanes)
    name = f"llvm.x86.avx512.mask.scalef.p{'s' if size == 4 else 'd'}.{8 * size * lanes}"
    mask = "i16" if lanes > 8 else "i8"
    rounding = [("i32", "4")] if size * lanes == _MOST else []  # as the processor is set
    return w.intrinsic(name, whole, (whole, texts[0]), (whole, texts[1]), (whole, texts[0]),
                       (mask, "-1"), *rounding)


def _lanes(w: FunctionWriter, kind: str, count: int, a: str, b: str, picks: range) -> str:
    """Return some lanes of two vectors, one behind the other."""
    mask = ", ".join(f"i32 {i}" for i in picks)
    whole = vector(kind, count)
    return w.new(f"shufflevector {whole} {a}, {whole} {b}, <{len(picks)} x i32> <{mask}>")
