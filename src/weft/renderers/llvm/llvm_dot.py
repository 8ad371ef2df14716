"""Dot products of packed words as the instructions that x86 has for them.

VDPBF16PS (AVX512-BF16) is DOT2 and VPDPBUSD (AVX512-VNNI, AVX-VNNI) is DOT4, exactly as the op
table defines them. Vectors of any length are cut into, or filled up to, whole registers.
"""

from __future__ import annotations

from weft.ir.linear import Compute, Value
from weft.ir.op import Op
from weft.renderers.llvm.llvm_types import FunctionWriter, element, vector

__all__ = ["dot", "load_matrix", "matrix", "store_matrix"]

_LEAST = 4  # lanes of the smallest register
_WORDS = vector("i32", 256)  # of a matrix
_SIZE = ("i16", "16"), ("i16", "64")  # of a tile: rows, bytes of a row
_PRODUCTS = {Op.MATRIX2: "tdpbf16ps", Op.MATRIX4: "tdpbusd", Op.MATRIX4S: "tdpbssd"}


def dot(w: FunctionWriter, inst: Compute) -> str:
    """Write a DOT2 or DOT4 and return the operand text of its result."""
    lanes = inst.result.lanes
    total = element(inst.result.dtype)
    most = max(w.module.target.vector_bytes // 4, _LEAST)
    texts = [w.ref(a) for a in inst.args]
    kinds = [total, "i32", "i32"]
    if lanes < _LEAST:
        widened = [_widen(w, t, k, lanes) for t, k in zip(texts, kinds, strict=True)]
        wide = _whole(w, inst.op, total, _LEAST, widened)
        if lanes == 1:
            return w.new(f"extractelement {vector(total, _LEAST)} {wide}, i64 0")
        return _pick(w, wide, total, _LEAST, 0, lanes)
    if lanes <= most:
        return _whole(w, inst.op, total, lanes, texts)
    parts = [_whole(w, inst.op, total, most, [_pick(w, t, k, lanes, first, most)
                                              for t, k in zip(texts, kinds, strict=True)])
             for first in range(0, lanes, most)]
    size = most
    while len(parts) > 1:
        picks = ", ".join(f"i32 {i}" for i in range(2 * size))
        half = vector(total, size)
        parts = [w.new(f"shufflevector {half} {a}, {half} {b}, <{2 * size} x i32> <{picks}>")
                 for a, b in zip(parts[::2], parts[1::2], strict=True)]
        size *= 2
    return parts[0]


def matrix(w: FunctionWriter, inst: Compute) -> str:
    """Write a product of matrices as that of tiles, and return the operand text of its result.

    Loads, stores and loops around it become those of tiles in LLVM's own lowering of AMX types,
    which also writes the configuration of the tiles.
    """
    total = element(inst.result.dtype)
    tiles = [_tile(w, w.ref(a), element(a.dtype)) for a in inst.args]
    made = w.intrinsic(f"llvm.x86.{_PRODUCTS[inst.op]}.internal", "x86_amx", *_SIZE, ("i16", "64"),
                       *[("x86_amx", t) for t in tiles])
    whole = w.intrinsic("llvm.x86.cast.tile.to.vector.v256i32", _WORDS, ("x86_amx", made))
    return whole if total == "i32" else w.new(
        f"bitcast {_WORDS} {whole} to {vector(total, 256)}")


def load_matrix(w: FunctionWriter, at: str, past: bool, pitch: int = 64) -> str:
    """Write the load of a matrix of words into a tile, perhaps past the first cache.

    Its rows are `pitch` bytes apart. Return its operand.
    """
    name = "tileloaddt164" if past else "tileloadd64"
    tile = w.intrinsic(f"llvm.x86.{name}.internal", "x86_amx", *_SIZE, ("ptr", at),
                       ("i64", str(pitch)))
    whole = w.intrinsic("llvm.x86.cast.tile.to.vector.v256i32", _WORDS, ("x86_amx", tile))
    w.tiles[w.block, whole] = tile
    return whole


def store_matrix(w: FunctionWriter, value: Value, at: str) -> None:
    """Write the store of a matrix from its tile; as a vector it would go through memory first."""
    tile = _tile(w, w.ref(value), element(value.dtype))
    w.perform("llvm.x86.tilestored64.internal", *_SIZE, ("ptr", at), ("i64", "64"),
              ("x86_amx", tile))


def _tile(w: FunctionWriter, text: str, kind: str) -> str:
    """Return a matrix as a tile; a second conversion in a block would be a second load."""
    key = (w.block, text)
    known = w.tiles.get(key)
    if known is None:
        if kind != "i32":
            text = w.new(f"bitcast {vector(kind, 256)} {text} to {_WORDS}")
        known = w.tiles[key] = w.intrinsic("llvm.x86.cast.vector.to.tile.v256i32", "x86_amx",
                                           (_WORDS, text))
    return known


def _whole(w: FunctionWriter, op: object, total: str, lanes: int, texts: list[str]) -> str:
    """Write one instruction on whole registers."""
    sums = vector(total, lanes)
    words = vector("i32", lanes)
    if op is Op.DOT2:
        name, packed = "llvm.x86.avx512bf16.dpbf16ps", vector("bfloat", 2 * lanes)
    else:
        name, packed = "llvm.x86.avx512.vpdpbusd", vector("i8", 4 * lanes)
    a, b = (w.new(f"bitcast {words} {t} to {packed}") for t in texts[1:])
    return w.intrinsic(f"{name}.{32 * lanes}", sums, (sums, texts[0]), (packed, a), (packed, b))


def _pick(w: FunctionWriter, text: str, kind: str, lanes: int, first: int, count: int) -> str:
    picks = ", ".join(f"i32 {first + i}" for i in range(count))
    whole = vector(kind, lanes)
    return w.new(f"shufflevector {whole} {text}, {whole} poison, <{count} x i32> <{picks}>")


def _widen(w: FunctionWriter, text: str, kind: str, lanes: int) -> str:
    """Fill a scalar or a pair up to the smallest register; the new lanes do not count."""
    wide = vector(kind, _LEAST)
    if lanes == 1:
        return w.new(f"insertelement {wide} zeroinitializer, {kind} {text}, i64 0")
    picks = ", ".join(f"i32 {min(i, lanes)}" for i in range(_LEAST))
    whole = vector(kind, lanes)
    zero = "zeroinitializer"
    return w.new(f"shufflevector {whole} {text}, {whole} {zero}, <{_LEAST} x i32> <{picks}>")
