"""Atomic operations of the LLVM renderer.

What processors have is one instruction. The rest is a loop that reads the element, computes what it
is to be and exchanges the two if nobody was faster: counters with a sign, the extremes of floats
(whose rules for NaN and for zeros are numba's, not an instruction's) and arithmetic of floats that
are narrower than a register, which is done in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.ir import linear as li
from weft.ir.dtype import DType, float32
from weft.ir.linear import Value
from weft.ir.stmt import FENCE_ORDERS, THREAD_SCOPES
from weft.renderers.llvm.llvm_convert import cast, converted
from weft.renderers.llvm.llvm_memory import address, from_memory, to_memory
from weft.renderers.llvm.llvm_types import element, stored

if TYPE_CHECKING:
    from weft.renderers.llvm.llvm_types import FunctionWriter

__all__ = ["ATOMIC", "FENCES", "SCOPES", "atomic", "fence"]

# The memory model. Locked instructions of processors have the strongest order at no cost.
ATOMIC: Final = "seq_cst"  # whatever the operation asks for
FENCES: Final = {order: order for order in FENCE_ORDERS}
SCOPES: Final = {scope: 'syncscope("singlethread") ' if scope == "thread" else ""
                 for scope in THREAD_SCOPES}  # fmt: skip

_ONE: Final = {  # the instruction for integers with a sign, without one, and for floats
    "add": ("add", "add", "fadd"), "sub": ("sub", "sub", "fsub"), "exch": ("xchg",) * 3,
    "min": ("min", "umin", ""), "max": ("max", "umax", ""),
    "and": ("and", "and", ""), "or": ("or", "or", ""), "xor": ("xor", "xor", ""),
    "inc": ("", "uinc_wrap", ""), "dec": ("", "udec_wrap", ""),
}  # fmt: skip
_OF_BOOLS: Final = ("and", "or", "xor", "exch")


def fence(w: FunctionWriter, inst: li.FenceInst) -> None:
    """Write a fence."""
    w.put(f"fence {SCOPES[inst.scope]}{FENCES[inst.order]}")


def atomic(w: FunctionWriter, inst: li.AtomicInst, base: str) -> None:
    """Write an atomic operation on one element."""
    mem, value = inst.memory, inst.value
    d, kind = mem.dtype, stored(mem.dtype)
    at = address(w, mem, base, inst.offset, True)
    text = to_memory(w, value)
    narrow = d.kind == "f" and d.bits < 32
    names = _ONE.get(inst.kind, ("", "", ""))
    name = names["iuf".index(d.kind)] if d.kind != "b" else (
        names[1] if inst.kind in _OF_BOOLS else "")
    if inst.kind == "cas" and inst.compare is not None:
        got = _compare_exchange(w, at, kind, to_memory(w, inst.compare), text, d.itemsize)
    elif name and (not narrow or inst.kind == "exch"):
        got = w.new(f"atomicrmw {name} ptr {at}, {kind} {text} {ATOMIC}, align {d.itemsize}")
    elif inst.kind in ("inc", "dec") and d.kind == "i":
        got = _turn(w, inst.kind, at, kind, text, d.itemsize)
    elif inst.kind in ("min", "max", "nanmin", "nanmax") and d.kind == "f":
        got = _extreme(w, inst.kind, at, value, d)
    elif inst.kind in ("add", "sub") and narrow:
        got = _narrow_sum(w, inst.kind, at, value, d)
    else:
        raise AssertionError(f"{inst.kind} of {d.name}")  # `weft.renderers.primitives` refuses it
    w.names[inst.result.id] = from_memory(w, got, inst.result)


def _bits(d: DType) -> str:
    return f"i{d.itemsize * 8}"


def _turn(w: FunctionWriter, kind: str, at: str, type_: str, value: str, size: int) -> str:
    """Write a counter with a sign that begins again, which processors and LLVM have without one."""
    again, on = w.label("again"), w.label("on")
    w.put(f"br label %{again}")
    w.begin(again)
    old = w.new(f"load atomic {type_}, ptr {at} {ATOMIC}, align {size}")
    ends = w.new(f"icmp {'sge' if kind == 'inc' else 'sgt'} {type_} {old}, {value}")
    if kind == "dec":
        ends = w.new(f"or i1 {ends}, {w.new(f'icmp eq {type_} {old}, 0')}")
    step = w.new(f"add {type_} {old}, {1 if kind == 'inc' else -1}")
    new = w.new(f"select i1 {ends}, {type_} {'0' if kind == 'inc' else value}, {type_} {step}")
    done = _exchanged(w, at, type_, old, new, size)
    w.put(f"br i1 {done}, label %{on}, label %{again}")
    w.begin(on)
    return old


def _extreme(w: FunctionWriter, kind: str, at: str, value: Value, d: DType) -> str:
    """Write a smallest or largest float; nothing is written where the element stays."""
    again, swap, on = w.label("again"), w.label("swap"), w.label("on")
    bits = _bits(d)
    own = cast(w, value, float32) if d.bits < 32 else w.ref(value)
    raw = w.ref(value) if element(d) == bits else w.new(
        f"bitcast {element(d)} {w.ref(value)} to {bits}")
    f = "float" if d.bits < 32 else element(d)
    w.put(f"br label %{again}")
    w.begin(again)
    old = w.new(f"load atomic {bits}, ptr {at} {ATOMIC}, align {d.itemsize}")
    number = converted(w, old, d, float32) if d.bits < 32 else w.new(
        f"bitcast {bits} {old} to {f}")
    test = "olt" if kind.endswith("min") else "ogt"
    replaces = w.new(f"fcmp {test} {f} {own}, {number}")
    if kind.startswith("nan"):
        gone = w.new(f"fcmp uno {f} {number}, {number}")
        there = w.new(f"fcmp ord {f} {own}, {own}")
        replaces = w.new(f"or i1 {replaces}, {w.new(f'and i1 {gone}, {there}')}")
    w.put(f"br i1 {replaces}, label %{swap}, label %{on}")
    w.begin(swap)
    done = _exchanged(w, at, bits, old, raw, d.itemsize)
    w.put(f"br i1 {done}, label %{on}, label %{again}")
    w.begin(on)
    return old if element(d) == bits else w.new(f"bitcast {bits} {old} to {element(d)}")


def _narrow_sum(w: FunctionWriter, kind: str, at: str, value: Value, d: DType) -> str:
    """Write a sum in float32 that is rounded to the type of the elements.

    float32 has more than twice the digits of float16 and bfloat16, so rounding twice is rounding
    once.
    """
    again, on = w.label("again"), w.label("on")
    bits = _bits(d)
    own = cast(w, value, float32)
    w.put(f"br label %{again}")
    w.begin(again)
    old = w.new(f"load atomic {bits}, ptr {at} {ATOMIC}, align {d.itemsize}")
    total = w.new(f"f{kind} float {converted(w, old, d, float32)}, {own}")
    new = converted(w, total, float32, d)
    done = _exchanged(w, at, bits, old, new, d.itemsize)
    w.put(f"br i1 {done}, label %{on}, label %{again}")
    w.begin(on)
    return old


def _exchanged(w: FunctionWriter, at: str, bits: str, old: str, new: str, size: int) -> str:
    """Write an exchange if the element is still the old one; return whether it was."""
    pair = w.new(f"cmpxchg ptr {at}, {bits} {old}, {bits} {new} {ATOMIC} {ATOMIC}, align {size}")
    return w.new(f"extractvalue {{ {bits}, i1 }} {pair}, 1")


def _compare_exchange(w: FunctionWriter, at: str, kind: str, compare: str, text: str,
                      size: int) -> str:  # fmt: skip
    bits = f"i{size * 8}"
    if kind != bits:
        text = w.new(f"bitcast {kind} {text} to {bits}")
        compare = w.new(f"bitcast {kind} {compare} to {bits}")
    pair = w.new(f"cmpxchg ptr {at}, {bits} {compare}, {bits} {text} {ATOMIC} {ATOMIC}, "
                 f"align {size}")
    got = w.new(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    return got if kind == bits else w.new(f"bitcast {bits} {got} to {kind}")
