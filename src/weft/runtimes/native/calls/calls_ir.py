"""What all native calls do besides their rows: take turns, report failures, let go, in LLVM IR.

A call has a context, an array of 64-bit words: `MEMBERS` names those that all of them have. Where a
call does not fit, the next context of the chain is tried, at last Python (method ``_miss``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.native_ir import failure

__all__ = ["MEMBERS", "STATUS", "call_method", "members", "release_owned", "report",
           "take_turn", "turns", "walk_rows"]  # fmt: skip

MEMBERS: Final = (
    "next",  # address of the context to try if this one does not fit, or 0
    "rows",
    "end",  # address behind the rows that come before the run
    "owned",  # first word of the frame with an object that the call owns
    "nowned",
    "fail",  # the function that raises what a failed kernel reported
    "acquire",  # takes the lock of what changes tensors, or 0 if the call needs none
    "give",  # gives it back
    "writing",  # address of the word that is 1 while somebody has it
)
STATUS: Final = "[4 x i64]"  # i32: code, kernel, statement, -; i64: index, bound


def members(names: Sequence[str]) -> Mapping[str, int]:
    """Return where the words of a context lie, as ``ctx.rows``."""
    return {f"ctx.{name}": 8 * i for i, name in enumerate(names)}


def turns(m: Module) -> None:
    """Write the functions that take and give back the lock of what changes tensors.

    ``take_turn`` returns what its word was before, 0 or 1, or -1 if somebody else has the lock;
    ``end_turn`` leaves whatever exception is set as it is.
    """
    c = m.define("internal i64 @take_turn(ptr %ctx, ptr %acquire) noinline nounwind")
    ctx, acquire = c.params
    args = c.alloca("ptr")
    c.store(args, 0, c.symbol("weft_false"))
    got = c.call("PyObject_Vectorcall", acquire, args, 1, None)
    c.leave(got.eq(None), "failed")
    c.call("Py_DecRef", got)
    c.need(got.eq(c.symbol("weft_true")), "busy")
    word = c.load(ctx, "ctx.writing")
    before = c.load(word, 0, "i64")
    c.store(word, 0, 1)
    c.ret(before)
    c.begin("failed")
    c.call("PyErr_Clear")
    c.begin("busy")
    c.ret(-1, "i64")

    c = m.define("internal void @end_turn(ptr %ctx, i64 %before) noinline nounwind")
    ctx, before = c.params
    error = [c.alloca("ptr") for _ in range(3)]
    c.store(c.load(ctx, "ctx.writing"), 0, before)
    c.call("PyErr_Fetch", *error)
    c.call("Py_DecRef", c.call("PyObject_Vectorcall", c.load(ctx, "ctx.give"), None, 0, None))
    c.call("PyErr_Restore", *(c.load(part) for part in error))
    c.end()


def take_turn(c: Code, ctx: Value) -> Value:
    """Take a turn if the call needs one; return where the end of the call finds which.

    A call that changes tensors, and lets other threads go on meanwhile, takes the lock of such
    calls. If somebody else has it, it goes to ``unfit``, and Python waits.
    """
    turn, acquire = c.variable(-1), c.load(ctx, "ctx.acquire")
    with c.unless(acquire.eq(None)):
        before = c.call("take_turn", ctx, acquire)
        c.store(turn, 0, before)
        c.leave(before < 0, "unfit")
    return turn


def walk_rows(c: Code, ctx: Value, frame: Value, first: str, last: str) -> Value:
    """Walk the rows between two words of the context; whether all fit."""
    rows = c.load(ctx, f"ctx.{first}"), c.load(ctx, f"ctx.{last}")
    return c.call("walk_rows", frame, *rows).eq(0)


def report(c: Code, ctx: Value, status: Value, code: Value, pattern: str) -> Value:
    """Call the function that raises what a kernel reported: null, with an exception set."""
    return c.call("PyObject_CallFunction", c.load(ctx, "ctx.fail"), c.literal(pattern), code,
                  *failure(c, status))  # fmt: skip


def release_owned(c: Code, ctx: Value, turn: Value, owned: Value, count: Value) -> None:
    """Give back the turn and what the call owns."""
    before = c.load(turn, 0, "i64")
    with c.when(before >= 0):
        c.call("end_turn", ctx, before)
    with c.loop(count) as i:
        held = c.word(owned, i, "ptr")
        with c.when(held.ne(None)):
            c.call("Py_DecRef", held)


def call_method(c: Code, this: Value, name: str, args: Value, nargs: Value,
                kwnames: Value) -> None:  # fmt: skip
    """Return what a method of an object returns for the arguments of a call."""
    method = c.call("PyObject_GetAttr", this, c.symbol(name))
    with c.when(method.eq(None)):
        c.ret(None)
    result = c.call("PyObject_Vectorcall", method, args, nargs, kwnames)
    c.call("Py_DecRef", method)
    c.ret(result)
