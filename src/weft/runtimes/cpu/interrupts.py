"""Ctrl-C in kernels with loops that may never end.

Such a loop counts its turns, and asks after some of them (`weft_turns`) whether to go on. The first
launch that asks puts a handler of its own before that of SIGINT: it counts interrupts, and then
calls the handler that was there, by which Python learns of the interrupt and raises it when the
kernel has returned. The last of these launches to leave puts the handler back (`weft_turned`).
Launches whose loops are short make no system call.

A launch is left if there were interrupts since it began, whatever others did meanwhile: so it has a
record of two numbers, how many interrupts there were then, and whether it has asked.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from weft.locks import in_child
from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["SYMBOLS", "imports", "module"]

SYMBOLS: Final = ("weft_turns", "weft_turned")

_stop: Final = ctypes.c_int64(0)  # how many interrupts there were
_watching: Final = ctypes.c_int64(0)  # launches that have asked: if there are any, our handler is
_changing: Final = ctypes.c_int64(0)  # 1: a thread is about to change this number and the handler


def imports() -> dict[str, int]:
    """Return the addresses that `module` and kernels are linked with."""
    return {"weft_stop": ctypes.addressof(_stop), "weft_watching": ctypes.addressof(_watching),
            "weft_changing": ctypes.addressof(_changing)}


def _begin_anew() -> None:
    """Forget in a forked child what other threads were about to do."""
    _watching.value = _changing.value = 0


in_child(_begin_anew)


def module() -> Module:
    """Return the code of `SYMBOLS`; ``weft_turns(record)`` tells whether to leave."""
    m = Module()
    if os.name != "posix":
        m.define("i64 @weft_turns(ptr %launch) nounwind").ret(0, "i64")
        m.define("void @weft_turned(ptr %launch) nounwind").end()
        return m
    m.hold("before", "internal global ptr null")
    for name in ("saved", "asked"):
        m.hold(name, f"internal global [{_ACTION_BYTES} x i8] zeroinitializer, align 16")
    c = m.define("internal void @interrupted(i32 %number, ptr %info, ptr %context) nounwind")
    c.fetch("add", c.symbol("weft_stop"), 1, "monotonic", "i64")
    c.call(c.load(c.symbol("before")), *c.params, returns="void")
    c.end()
    _turns(m)
    _turned(m)
    return m


# A struct sigaction begins with the handler on every system, and has less bytes. What is not
# understood of it stays as Python set it: the signal's mask, and whether calls begin anew.
# A forked child may find our handler there: what it stands before is known.
_ACTION_BYTES: Final = 256


def _sigaction(c: Code, new: Value | None, old: Value | None) -> Value:
    return c.call("sigaction", c.constant(2, "i32"), new, old, returns="i32")


def _begin_change(c: Code, otherwise: str) -> None:
    """Go on if no other thread is about to change the number of launches and the handler."""
    c.need(c.swap(c.symbol("weft_changing"), 0, 1, "acquire", "i64"), otherwise)


def _end_change(c: Code, watching: Value) -> None:
    c.store(c.symbol("weft_watching"), 0, watching, order="release")
    c.store(c.symbol("weft_changing"), 0, 0, order="release")


def _turns(m: Module) -> None:
    """Ask whether to leave; the first launch that asks puts our handler before that of SIGINT."""
    c = m.define("i64 @weft_turns(ptr %launch) nounwind")
    launch, asked = c.params[0], c.symbol("asked")
    asks = c.at(launch, 8)
    c.need(c.load(asks, 0, "i64", "monotonic").eq(0), "done")
    _begin_change(c, "done")
    new = c.new(f"atomicrmw xchg ptr {asks.text}, i64 1 monotonic, align 8", "i64").eq(0)
    others = c.load(c.symbol("weft_watching"), 0, "i64", "monotonic")
    with c.when(others.eq(0) & new):
        good = _sigaction(c, None, asked).eq(0)
        handler = c.load(asked)
        handled = handler.cast("ptrtoint", "i64").test("ugt", 1)
        with c.when(handled & handler.ne(c.symbol("interrupted")) & good):
            c.call("llvm.memcpy.p0.p0.i64", c.symbol("saved"), asked, _ACTION_BYTES,
                   c.constant("false", "i1"), returns="void")  # fmt: skip
            c.store(c.symbol("before"), 0, handler)
            c.store(asked, 0, c.symbol("interrupted"))
            _sigaction(c, asked, None)
    _end_change(c, others + new.cast("zext", "i64"))
    c.begin("done")
    now = c.load(c.symbol("weft_stop"), 0, "i64", "monotonic")
    c.ret(c.load(launch, 0, "i64").ne(now).cast("zext", "i64"))


def _turned(m: Module) -> None:
    """Note that a launch has ended that asked; the last one puts the handler back."""
    c = m.define("void @weft_turned(ptr %launch) nounwind")
    asked = c.symbol("asked")
    c.goto("enter")
    c.begin("wait")
    c.call("sched_yield", returns="i32")
    c.begin("enter")
    _begin_change(c, "wait")
    watching = c.load(c.symbol("weft_watching"), 0, "i64", "monotonic")
    left = c.select(watching > 0, watching - 1, 0)
    with c.when(left.eq(0)):
        _sigaction(c, None, asked)
        with c.when(c.load(asked).eq(c.symbol("interrupted"))):
            _sigaction(c, c.symbol("saved"), None)
    _end_change(c, left)
    c.end()
