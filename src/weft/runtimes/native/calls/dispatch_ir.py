"""Native dispatch as LLVM IR text: a call of a captured function without any Python in between.

A *dispatch* is a table of rows (`weft.runtimes.native.calls.rows`), walked by one function. Rows
before the plan's run check the arguments and everything else that the capture depends on, take
memory for the results and note the addresses; rows after it make the result objects and give
written tensors their new values. The first check that fails gives everything back and the next
dispatch is tried, at last the Python path.

The frame of a call is an array of words: one that nobody reads, the arguments and keywords, objects
that are borrowed, objects that the call owns (released at its end), and the slots of the plan (see
`weft.runtimes.native.executor.native_ir`).

What may run other Python code (and so change anything) stands before the rows that read addresses:
between those and the run nothing but loads happens, and where the run lets other threads go on, the
frame owns what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft.runtimes.native.calls import calls_ir
from weft.runtimes.native.calls.dispatch_rows import TABLE
from weft.runtimes.native.calls.objects import is_a, layout_functions
from weft.runtimes.native.calls.rows import walk
from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.native_ir import INTERRUPTED, clear, clock, take_frame

__all__ = ["ARGUMENTS", "CONTEXT", "KEYWORDS", "SYMBOLS", "module"]

SYMBOLS: Final = ("weft_dispatch", "weft_finalize", "weft_pooled_type")

ARGUMENTS, KEYWORDS = 1, 2  # words of the frame

CONTEXT: Final = (
    *calls_ir.MEMBERS,
    "last",  # address behind the last row
    "frame_words",
    "slots",  # first slot of the plan
    "plan",  # address of the plan's context
    "chosen",  # word of the frame with that address where sizes choose it, or 0
    "result",  # word of the frame with the result
    "exclusive",  # 1 if there is an arena, which the dispatch holds on to
    "busy",  # 1 while a call uses that arena
)


def module(layout: Mapping[str, int]) -> Module:
    """Return the code for objects laid out as ``layout`` says.

    ``weft_dispatch`` is the ``tp_call`` of captured functions, and ``weft_finalize`` the
    ``tp_finalize`` of pooled buffers, whose type is to be stored at ``weft_pooled_type``.
    """
    m = Module({**layout, **calls_ir.members(CONTEXT)})
    m.hold("weft_pooled_type", "global ptr null")  # it is made after this code was loaded
    m.hold("state_thread", "internal global i64 -1")
    m.hold("state_dict", "internal global ptr null")
    clock(m)
    layout_functions(m)
    walk(m, TABLE, "noinline")
    calls_ir.turns(m)
    _attempt(m)
    _dispatch(m)
    _finalize(m)
    return m


def _attempt(m: Module) -> None:
    """Try one dispatch: 0 and a result (null with an exception set), 1 if the call does not fit."""
    c = m.define("internal i32 @attempt(ptr %ctx, ptr %args, ptr %kwargs, ptr %out) "
                 "noinline nounwind")  # fmt: skip
    ctx, args, kwargs, out = c.params
    status, answer = c.alloca(calls_ir.STATUS), c.variable(c.constant(0, "i32"))
    c.store(out, 0, None, "ptr")
    frame, fits = take_frame(c, c.load(ctx, "ctx.frame_words", "i64"), "no_memory")
    c.put(frame, ARGUMENTS, args)
    c.put(frame, KEYWORDS, kwargs)
    owned, count = (c.load(ctx, f"ctx.{name}", "i64") for name in ("owned", "nowned"))
    first = c.at(frame, owned, "i64")
    c.call("llvm.memset.p0.i64", first, c.constant(0, "i8"), count << 3, c.constant("false", "i1"))
    turn = calls_ir.take_turn(c, ctx)
    # The arena is claimed first: after random numbers are drawn nothing may fail to fit. If another
    # call is using it, in another thread or further up, Python takes a new one.
    c.need(c.load(ctx, "ctx.busy", "i64").eq(0), "unfit")
    c.store(ctx, "ctx.busy", c.load(ctx, "ctx.exclusive", "i64"))
    c.need(calls_ir.walk_rows(c, ctx, frame, "rows", "end"), "misfit")
    _run(c, ctx, frame, status, out)
    c.goto("clean")
    c.begin("misfit")
    c.store(ctx, "ctx.busy", 0)
    # What a check raised is the caller's; that includes a Ctrl-C.
    c.need(c.call("PyErr_Occurred").eq(None), "clean")
    c.begin("unfit")
    c.store(answer, 0, c.constant(1, "i32"))
    c.begin("clean")
    calls_ir.release_owned(c, ctx, turn, first, count)
    with c.unless(fits):
        c.call("free", frame)
    c.ret(c.load(answer, 0, "i32"))
    c.begin("no_memory")
    c.call("PyErr_NoMemory")
    c.ret(0, "i32")


def _run(c: Code, ctx: Value, frame: Value, status: Value, out: Value) -> None:
    """Run the plan, and make the result."""
    clear(c, status)
    chosen = c.load(ctx, "ctx.chosen", "i64")
    plan = c.select(chosen.eq(0), c.load(ctx, "ctx.plan"), c.word(frame, chosen, "ptr"))
    slots = c.at(frame, c.load(ctx, "ctx.slots", "i64"), "i64")
    code = c.call("weft_run", plan, slots, status)
    c.store(ctx, "ctx.busy", 0)
    with c.unless(code.eq(0)):
        c.leave(code.eq(INTERRUPTED), "clean")
        c.call("Py_DecRef", calls_ir.report(c, ctx, status, code, "((iiiLL))"))
        c.goto("clean")
    c.need(calls_ir.walk_rows(c, ctx, frame, "end", "last"), "clean")
    result = c.at(frame, c.load(ctx, "ctx.result", "i64"), "i64")
    c.store(out, 0, c.load(result))
    c.store(result, 0, None, "ptr")


def _dispatch(m: Module) -> None:
    """Try one dispatch after the other, at last Python."""
    c = m.define("ptr @weft_dispatch(ptr %self, ptr %args, ptr %kwargs) nounwind")
    this, args, kwargs = c.params
    out = c.alloca("ptr")
    head = c.load(this, "Jitted._dispatch")
    c.leave(head.eq(None), "python")
    c.need(is_a(c, head, "weft_context_type"), "python")
    c.call("Py_IncRef", head)  # the function may be given other dispatches while this call runs
    at = c.variable(c.call("weft_int64_of", head))
    c.begin("try")
    ctx = c.load(at)
    with c.when(c.call("attempt", ctx, args, kwargs, out).eq(0)):
        c.call("Py_DecRef", head)
        c.ret(c.load(out))
    following = c.load(ctx, "ctx.next", "i64")
    c.store(at, 0, following)
    c.leave(following.ne(0), "try")
    c.call("Py_DecRef", head)
    c.begin("python")
    keywords = c.select(kwargs.eq(None), c.symbol("weft_none"), kwargs)
    c.ret(c.call("PyObject_CallMethodObjArgs", this, c.symbol("weft_name_miss"), args, keywords,
                 None))  # fmt: skip


def _finalize(m: Module) -> None:
    """Give the address of a pooled buffer that dies back to the list that it came from."""
    c = m.define("void @weft_finalize(ptr %self) nounwind")
    this = c.params[0]
    home = c.load(this, "Buffer._home")
    c.leave(home.eq(None), "done")
    c.need(is_a(c, home, "weft_free_type"), "done")
    address = c.load(this, "Buffer.address")
    c.leave(address.eq(None), "done")
    c.need(c.call("PyList_Append", home, address).eq(0), "clear")
    # Who meets the buffer in a cycle that is being freed must not see memory of somebody else.
    c.store(this, "Buffer.address", None, "ptr")
    c.call("Py_DecRef", address)
    c.goto("done")
    c.begin("clear")
    c.call("PyErr_Clear")
    c.begin("done")
    c.end()
