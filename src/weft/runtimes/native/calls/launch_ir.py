"""Launches of users' kernels as LLVM IR text: from Python's call to the kernel, without any Python.

A *launch* is a table of rows (`weft.runtimes.native.calls.rows`) behind a configured kernel
(``k[grid, block]``) or a function of loops, walked by one function of the vectorcall protocol. Each
row takes one argument apart: checks its type and layout, and writes its address, sizes and value
where the kernel looks for them. The first row that does not fit ends the launch, the next one of
the chain is tried, and at last Python.

The frame of a call is an array of words: one that nobody reads, the arguments, items of tuples,
addresses of buffers, variables, and objects that the call owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft.runtimes.native.calls import calls_ir
from weft.runtimes.native.calls.launch_rows import TABLE
from weft.runtimes.native.calls.objects import layout_functions
from weft.runtimes.native.calls.rows import walk
from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["CONTEXT", "MOST_WORDS", "SYMBOLS", "module"]

SYMBOLS: Final = ("weft_launch", "weft_subscript", "weft_serial_for")
MOST_WORDS: Final = 384  # of a frame, which lies on the stack

CONTEXT: Final = (
    *calls_ir.MEMBERS,
    "nargs",
    "buffers",  # first word of the frame with the address of a buffer
    "variables",  # and with a variable
    "function",
    "release",  # whether other threads of Python run meanwhile
    "again",  # a bit for each code of a failure that lets Python make the call anew instead
    "names",  # the tuple of the names that arguments are given by, or 0
    "order",  # address of a table: which argument of the call each one is; 0 if they are in order
)


def module(layout: Mapping[str, int]) -> Module:
    """Return the code for objects laid out as `layout` says.

    ``weft_launch`` is the vectorcall function of configured kernels, ``weft_subscript`` the slot
    ``mp_subscript`` of kernels, and ``weft_serial_for`` runs parallel loops on the calling thread.
    """
    m = Module({**layout, **calls_ir.members(CONTEXT)})
    layout_functions(m)
    walk(m, TABLE, "alwaysinline")
    calls_ir.turns(m)
    _same_names(m)
    _attempt(m)
    _launch(m)
    _subscript(m)
    _serial(m)
    return m


def _same_names(m: Module) -> None:
    """Compare two tuples of names, of which the interpreter has one each; null is no tuple."""
    c = m.define("internal i1 @same_names(ptr %a, ptr %b) nounwind")
    a, b = c.params
    c.leave(a.eq(b), "yes")
    c.leave(a.eq(None) | b.eq(None), "no")
    n = c.call("PyTuple_Size", a)
    c.need(n.eq(c.call("PyTuple_Size", b)), "no")
    with c.loop(n) as i:
        c.need(c.call("PyTuple_GetItem", a, i).eq(c.call("PyTuple_GetItem", b, i)), "no")
    c.begin("yes")
    c.ret(c.constant("true", "i1"))
    c.begin("no")
    c.ret(c.constant("false", "i1"))


def _attempt(m: Module) -> None:
    """Try one launch: 0 and a result (null with an exception set), 1 if the call does not fit."""
    c = m.define("internal i32 @attempt(ptr %ctx, ptr %args, i64 %nargs, ptr %kwnames, ptr %out) "
                 "nounwind")  # fmt: skip
    ctx, args, nargs, kwnames, out = c.params
    frame, status = c.alloca(f"[{MOST_WORDS} x i64]", 16), c.alloca(calls_ir.STATUS)
    answer = c.variable(c.constant(1, "i32"))
    c.need(nargs.eq(c.load(ctx, "ctx.nargs", "i64")), "other")
    c.need(c.call("same_names", c.load(ctx, "ctx.names"), kwnames), "other")
    order = c.load(ctx, "ctx.order")
    with c.loop(nargs) as i:
        place = c.variable(i)
        with c.unless(order.eq(None)):
            c.store(place, 0, c.word(order, i))
        c.put(frame, i + 1, c.word(args, c.load(place, 0, "i64")))
    owned, count = (c.load(ctx, f"ctx.{name}", "i64") for name in ("owned", "nowned"))
    first = c.at(frame, owned, "i64")
    with c.loop(count) as i:
        c.put(first, i, 0)
    turn = calls_ir.take_turn(c, ctx)
    c.need(calls_ir.walk_rows(c, ctx, frame, "rows", "end"), "unfit")
    _run(c, ctx, frame, status, out)
    c.store(answer, 0, c.constant(0, "i32"))
    c.begin("unfit")
    calls_ir.release_owned(c, ctx, turn, first, count)
    c.ret(c.load(answer, 0, "i32"))
    c.begin("other")
    c.ret(1, "i32")


def _run(c: Code, ctx: Value, frame: Value, status: Value, out: Value) -> None:
    """Run the kernel; go to ``unfit`` where Python has to make the call anew."""
    c.put(status, 0, 0)
    buffers, variables = (c.at(frame, c.load(ctx, f"ctx.{name}", "i64"), "i64")
                          for name in ("buffers", "variables"))
    function, code = c.load(ctx, "ctx.function"), c.alloca("i32")
    with c.when(c.load(ctx, "ctx.release", "i64").eq(0)) as otherwise:
        c.store(code, 0, c.call(function, buffers, variables, status, returns="i32"))
        otherwise()
        thread = c.call("PyEval_SaveThread")
        c.store(code, 0, c.call(function, buffers, variables, status, returns="i32"))
        c.call("PyEval_RestoreThread", thread)
    failure = c.load(code, 0, "i32")
    with c.when(failure.eq(0)) as otherwise:
        none = c.symbol("weft_none")
        c.call("Py_IncRef", none)
        c.store(out, 0, none)
        otherwise()
        wide = failure.cast("zext", "i64")
        number = c.select(wide.test("ult", 64), wide, 0)
        c.need(((c.load(ctx, "ctx.again", "i64") >> number) & 1).eq(0), "unfit")
        c.store(out, 0, calls_ir.report(c, ctx, status, failure, "iiiLL"))


def _launch(m: Module) -> None:
    """Try one launch after the other, at last Python, which also sees launches that are watched."""
    c = m.define("ptr @weft_launch(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) nounwind")
    this, args, flagged, kwnames = c.params
    out, nargs = c.alloca("ptr"), flagged & 0x7FFFFFFFFFFFFFFF
    c.need(c.load(c.symbol("weft_watched"), 0, "i64").eq(0), "python")
    given = c.variable(nargs)
    with c.unless(kwnames.eq(None)):
        c.store(given, 0, nargs + c.call("PyTuple_Size", kwnames))
    count = c.load(given, 0, "i64")
    slot = c.load(c.load(this, "ob_type"), "type.vectorcall", "i64")
    at = c.variable(c.load(this, slot + 8))
    c.begin("try")
    ctx = c.load(at)
    c.leave(ctx.eq(None), "python")
    with c.when(c.call("attempt", ctx, args, count, kwnames, out).eq(0)):
        c.ret(c.load(out))
    c.store(at, 0, c.load(ctx, "ctx.next"))
    c.goto("try")
    c.begin("python")
    calls_ir.call_method(c, this, "weft_name_miss", args, nargs, kwnames)


def _subscript(m: Module) -> None:
    """Find ``kernel[configuration]`` among those made before, or call the method that makes it."""
    c = m.define("ptr @weft_subscript(ptr %self, ptr %key) nounwind")
    this, key = c.params
    made = c.load(this, "Kernel._configured")
    c.leave(made.eq(None), "python")
    found = c.call("PyDict_GetItemWithError", made, key)
    with c.unless(found.eq(None)):
        c.call("Py_IncRef", found)
        c.ret(found)
    c.call("PyErr_Clear")
    c.begin("python")
    c.ret(c.call("PyObject_CallMethodObjArgs", this, c.symbol("weft_name_configure"), key, None))


def _serial(m: Module) -> None:
    """Run a parallel loop on the calling thread."""
    c = m.define("void @weft_serial_for(ptr %fn, ptr %env, i64 %n) nounwind")
    function, env, n = c.params
    with c.when(n > 0):
        c.call(function, env, 0, n, returns="void")
    c.end()
