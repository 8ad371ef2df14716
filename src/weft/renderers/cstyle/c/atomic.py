"""Atomic operations in C.

Integers have builtins for most; the rest is a loop that reads the element, computes what it is to
be and exchanges the two if nobody was faster: extremes, counters, floats. Floats narrower than
float32 are added there and rounded once.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import AtomicInst
from weft.ir.stmt import FENCE_ORDERS, THREAD_SCOPES
from weft.renderers.cstyle.c.context import CWords
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import Text

__all__ = ["ATOMIC", "FENCES", "SCOPES", "atomic", "fence", "step"]

# The memory model. Locked instructions of processors have the strongest order at no cost.
ATOMIC: Final = "__ATOMIC_SEQ_CST"  # whatever the operation asks for
FENCES: Final = {order: f"__ATOMIC_{order.upper()}" for order in FENCE_ORDERS}
SCOPES: Final = {scope: f"__atomic_{'signal' if scope == 'thread' else 'thread'}_fence"
                 for scope in THREAD_SCOPES}  # fmt: skip
_BUILTIN: Final = {"add": "fetch_add", "sub": "fetch_sub", "and": "fetch_and", "or": "fetch_or",
                   "xor": "fetch_xor"}  # fmt: skip


def atomic(w: CWords, inst: AtomicInst, address: Text, value: Text, compare: Text) -> Text:
    """Return an atomic operation on one element, as a call that gives what was there before."""
    d = dt.uint8 if inst.memory.dtype.is_bool else inst.memory.dtype
    kind, t = inst.kind, w.stored(d)
    name, params = f"atomic_{kind}_{d.text}", f"{w.SPACE}{t} *p, {t} x"
    if kind == "cas":
        bits = w.type(dt.unsigned(d.bits))
        define(w, name, t, f"{w.SPACE}{t} *p, {t} old, {t} x",
               f"{bits} found = {w.same_bits('old', d, dt.unsigned(d.bits), 1)};",
               f"__atomic_compare_exchange_n(({w.SPACE}{bits} *)p, &found, "
               f"{w.same_bits('x', d, dt.unsigned(d.bits), 1)}, 0, {ATOMIC}, {ATOMIC});",
               f"return {w.same_bits('found', dt.unsigned(d.bits), d, 1)};")
        return w.call(name, address, compare, value)
    if kind == "exch":
        bits = w.type(dt.unsigned(d.bits))
        raw = w.same_bits("x", d, dt.unsigned(d.bits), 1)
        got = f"__atomic_exchange_n(({w.SPACE}{bits} *)p, {raw}, {ATOMIC})"
        define(w, name, t, params, f"const {bits} old = {got};",
               f"return {w.same_bits('old', dt.unsigned(d.bits), d, 1)};")
    elif kind in _BUILTIN and d.kind != "f":
        define(w, name, t, params, f"return __atomic_{_BUILTIN[kind]}(p, x, {ATOMIC});")
    else:
        _loop(w, inst, d, name)
    return w.call(name, address, value)


def fence(order: str, scope: str) -> str:
    """Return the statement of a fence."""
    return f"{SCOPES[scope]}({FENCES[order]});"


def _loop(w: CWords, inst: AtomicInst, d: DType, name: str) -> None:
    """Write a loop that exchanges the element for a new one, or leaves it."""
    unsigned = dt.unsigned(d.bits)
    t, bits = w.stored(d), w.type(unsigned)
    new, replaces = step(w, inst, d)
    wide = w.type(dt.float32) if is_narrow(d) else t
    body = [f"{bits} raw = __atomic_load_n(({w.SPACE}{bits} *)p, {ATOMIC});", "for (;;) {",
            f"  const {t} old = {w.same_bits('raw', unsigned, d, 1)};"]
    if is_narrow(d):
        read = convert_narrow(w, Text("old"), d, dt.float32, 1).text
        given = convert_narrow(w, Text("x"), d, dt.float32, 1).text
        body.append(f"  const {wide} a = {read}, b = {given};")
    else:
        body.append(f"  const {wide} a = old, b = x;")
    if replaces:
        body.append(f"  if (!({replaces})) return old;")
    body += [f"  const {bits} next = {w.same_bits(new, d, unsigned, 1)};",
             f"  if (__atomic_compare_exchange_n(({w.SPACE}{bits} *)p, &raw, next, 0, {ATOMIC}, "
             f"{ATOMIC}))", "    return old;", "}"]  # fmt: skip
    define(w, name, t, f"{w.SPACE}{t} *p, {t} x", *body)


def step(w: CWords, inst: AtomicInst, d: DType) -> tuple[str, str]:
    """Return the new element of old `a` and given `b`, and when it is written at all."""
    kind, t = inst.kind, w.stored(d)
    if kind in ("add", "sub") and d.kind == "f":
        total = f"a {'+' if kind == 'add' else '-'} b"
        if is_narrow(d):
            return convert_narrow(w, Text(total), dt.float32, d, 1).text, ""
        return f"({total})", ""
    if kind in ("min", "max", "nanmin", "nanmax") and not (kind[:3] == "nan" and d.kind != "f"):
        test = f"b {'<' if kind.endswith('min') else '>'} a"
        if kind.startswith("nan"):
            test += " || (a != a && b == b)"
        return "x", test
    if kind == "inc" and d.kind in "iu":
        return f"({t})(a >= b ? 0 : a + 1)", ""
    if kind == "dec" and d.kind in "iu":
        return f"({t})(a == 0 || a > b ? b : a - 1)", ""
    raise AssertionError(f"{kind} of {d.name}")  # `weft.renderers.primitives` refuses it
