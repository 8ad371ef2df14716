"""Atomic operations in OpenCL C, from the functions of version 1.2 alone.

The language has compare-and-swap of 32 and 64 bits. Shorter elements are exchanged within their
word; what has no function of its own is a loop around compare-and-swap. Private arrays belong to
one work-item: there the same functions are plain reads and writes.

The functions order nothing else, so the order of an operation is that of fences around it. These
are clang's, as vectors are, because ``mem_fence`` is for the group alone from OpenCL 2.0 on, and
empty in PoCL. In version 1.2 it orders all memory, and oclgrind has no other.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import AtomicInst
from weft.renderers.cstyle.c.atomic import FENCES, step
from weft.renderers.cstyle.c.context import CWords
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import Text

_SHARED: Final = ("__global", "__local")
__all__ = ["FENCE", "FENCES", "atomic"]

# The memory model: a fence of several work-items, of the orders of C and in any scope.
FENCE: Final = """#if __OPENCL_VERSION__ >= 200
#define WEFT_FENCE(order) __atomic_thread_fence(order)
#else
#define WEFT_FENCE(order) mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE)
#endif"""
_FUNCTIONS: Final = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor",
                     "exch": "xchg"}  # fmt: skip
_PLAIN: Final = {"add": "old + x", "sub": "old - x", "and": "old & x", "or": "old | x",
                 "xor": "old ^ x", "exch": "x"}  # fmt: skip


def atomic(w: CWords, inst: AtomicInst, address: Text, value: Text, compare: Text) -> Text:
    """Return an atomic operation on one element, as a call that gives what was there before."""
    d = dt.uint8 if inst.memory.dtype.is_bool else inst.memory.dtype
    kind, t, bits = inst.kind, w.stored(d), dt.unsigned(d.bits)
    name, params = f"atomic_{kind}_{d.text}", f"{w.SPACE}{t} *p, {t} x"
    cas, u = _swap(w, bits), w.type(bits)
    place = f"({w.SPACE}{u} *)p"
    if kind == "cas":
        old, new = (w.same_bits(n, d, bits, 1) for n in ("old", "x"))
        define(w, name, t, f"{w.SPACE}{t} *p, {t} old, {t} x",
               f"return {w.same_bits(f'{cas}({place}, {old}, {new})', bits, d, 1)};")
        return w.call(name, address, compare, value)
    if kind in _FUNCTIONS and d.bits >= 32 and (d.kind != "f" or kind == "exch"):
        given = w.same_bits("x", d, bits, 1)
        found = f"{_function(w, kind, bits)}({place}, {given})"
        define(w, name, t, params, f"return {w.same_bits(found, bits, d, 1)};")
        return w.call(name, address, value)
    plain = kind in _PLAIN and (d.kind != "f" or kind == "exch")
    new, replaces = (f"(({t})({_PLAIN[kind]}))", "") if plain else step(w, inst, d)
    wide = w.type(dt.float32) if is_narrow(d) else t
    a, b = "old", "x"
    if is_narrow(d):
        a, b = (convert_narrow(w, Text(n), d, dt.float32, 1).text for n in (a, b))
    body = [f"{u} raw = {cas}({place}, 0, 0);", "for (;;) {",  # an atomic read
            f"  const {t} old = {w.same_bits('raw', bits, d, 1)};"]  # fmt: skip
    if not plain:
        body.append(f"  const {wide} a = {a}, b = {b};")
    if replaces:
        body.append(f"  if (!({replaces})) return old;")
    body += [f"  const {u} found = {cas}({place}, raw, {w.same_bits(new, d, bits, 1)});",
             "  if (found == raw) return old;", "  raw = found;", "}"]  # fmt: skip
    define(w, name, t, params, *body)
    return w.call(name, address, value)


def _function(w: CWords, kind: str, d: DType) -> str:
    """Return the function of an operation of 32 or 64 bits, one for each kind of memory."""
    u, word = w.type(d), _FUNCTIONS[kind]
    name = f"weft_{kind}_{u}"
    start = "atomic" if d.bits == 32 else "atom"
    return w.helper(name, lambda: "\n".join([
        *(f"{w.INLINE} {u} {name}({space} {u} *p, {u} x) {{\n"
          f"  return {start}_{word}((volatile {space} {u} *)p, x);\n}}" for space in _SHARED),
        f"{w.INLINE} {u} {name}(__private {u} *p, {u} x) {{",
        f"  const {u} old = *p;", f"  *p = {_PLAIN[kind]};", "  return old;", "}"]))  # fmt: skip


def _swap(w: CWords, d: DType) -> str:
    """Return the function that puts `x` where `old` is; it gives what was there."""
    u = w.type(d)
    name = f"weft_swap_{u}"
    if d.bits >= 32:
        start = "atomic" if d.bits == 32 else "atom"
        body = [f"  return {start}_cmpxchg((volatile SHARED {u} *)p, old, x);"]
    else:
        most = hex((1 << d.bits) - 1)
        body = [
            "  volatile SHARED u32 *word = (volatile SHARED u32 *)((u64)p & ~(u64)3);",
            f"  const u32 shift = ((u32)(u64)p & 3) * 8, mask = {most}u << shift;",
            "  u32 seen = atomic_cmpxchg(word, 0, 0);",
            "  for (;;) {",
            f"    const {u} now = ({u})((seen & mask) >> shift);",
            "    if (now != old) return now;",
            "    const u32 next = (seen & ~mask) | ((u32)x << shift);",
            "    const u32 found = atomic_cmpxchg(word, seen, next);",
            "    if (found == seen) return old;",
            "    seen = found;",
            "  }",
        ]
    whole = "\n".join([f"{w.INLINE} {u} {name}(SHARED {u} *p, {u} old, {u} x) {{", *body, "}"])
    return w.helper(name, lambda: "\n".join([
        *(whole.replace("SHARED", space) for space in _SHARED),
        f"{w.INLINE} {u} {name}(__private {u} *p, {u} old, {u} x) {{",
        f"  const {u} now = *p;", "  if (now == old) *p = x;", "  return now;", "}"]))  # fmt: skip
