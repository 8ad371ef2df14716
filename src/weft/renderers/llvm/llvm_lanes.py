"""Vector instructions that take lanes to other lanes."""

from __future__ import annotations

from typing import Final

from weft.ir.expr import picks_of
from weft.ir.linear import Compute
from weft.renderers.llvm.llvm_types import FunctionWriter, element, suffix, vector

__all__ = ["EXTREMES", "fenced", "half", "reverse", "shuffle", "slide"]

# What LLVM looks through, at most: shuffles of shuffles, extremes of extremes.
SHUFFLES: Final = 2
EXTREMES: Final = 4
_NARROWEST: Final = 256  # bits of vectors: what is narrower ends a sum of lanes soon


def half(w: FunctionWriter, inst: Compute) -> str:
    """Write one half of a vector."""
    (a,) = inst.args
    count = a.lanes // 2
    first = count * inst.attr
    if count == 1:
        return w.new(f"extractelement {w.type_of(a)} {w.ref(a)}, i64 {first}")
    picks = ", ".join(f"i32 {first + i}" for i in range(count))
    mask = f"<{count} x i32> <{picks}>"
    return w.new(f"shufflevector {w.type_of(a)} {w.ref(a)}, {w.type_of(a)} poison, {mask}")


def reverse(w: FunctionWriter, inst: Compute) -> str:
    """Write the lanes of a vector from the last one on."""
    (x,) = inst.args
    picks = ", ".join(f"i32 {x.lanes - 1 - i}" for i in range(x.lanes))
    mask = f"<{x.lanes} x i32> <{picks}>"
    return w.new(f"shufflevector {w.type_of(x)} {w.ref(x)}, {w.type_of(x)} poison, {mask}")


def slide(w: FunctionWriter, inst: Compute) -> str:
    """Write lanes moved up, others in front of them."""
    fill, x = inst.args
    lanes = x.lanes
    picks = ", ".join(f"i32 {lanes - inst.attr + i}" for i in range(lanes))
    mask = f"<{lanes} x i32> <{picks}>"
    return w.new(f"shufflevector {w.type_of(x)} {w.ref(fill)}, {w.type_of(x)} {w.ref(x)}, {mask}")


def shuffle(w: FunctionWriter, inst: Compute) -> str:
    """Write a choice of lanes of two vectors."""
    a, b = inst.args
    picks = ", ".join(f"i32 {i}" for i in picks_of(inst.attr))
    mask = f"<{inst.result.lanes} x i32> <{picks}>"
    kind = w.type_of(a)
    name = w.new(f"shufflevector {kind} {w.ref(a)}, {kind} {w.ref(b)}, {mask}")
    if inst.result.lanes != a.lanes:
        return name
    return fenced(w, inst, name, SHUFFLES)


def fenced(w: FunctionWriter, inst: Compute, name: str, deepest: int) -> str:
    """Keep LLVM from looking far through what a vector was made of, where nothing is to be found.

    Both its search for fewer shuffles and that for bits which are known go through all operands of
    operands, to a depth of six: that took a quarter to a half of the time of a network of shuffles
    or of minima and maxima. The fence is no instruction of the machine.

    Only x86 has fences: there alone the times were measured, and the machine code was seen to stay
    the same.
    """
    v = inst.result
    depth = 1 + min(w.depths.get(a.id, 0) for a in inst.args[-2:])
    bits = v.dtype.bits * v.lanes
    if depth < deepest:
        w.depths[v.id] = depth
        return name
    if w.module.target.arch != "x86_64" or v.dtype.is_bool or bits < _NARROWEST:
        return name
    kind = w.type_of(v)
    if element(v.dtype) in ("float", "double"):
        full = f"llvm.arithmetic.fence.{suffix(element(v.dtype), v.lanes)}"
        return w.intrinsic(full, kind, (kind, name))
    lanes = bits // 32
    floats = vector("float", lanes)
    name = w.new(f"bitcast {kind} {name} to {floats}")
    name = w.intrinsic(f"llvm.arithmetic.fence.v{lanes}f32", floats, (floats, name))
    return w.new(f"bitcast {floats} {name} to {kind}")
