"""The executor of native plans as LLVM IR text: a plan is data, so it needs no code of its own.

The context is an array of 64-bit words (`CONTEXT` names them) that points at three tables:

* steps, 8 words each: kind, function, number of buffers, first reference, number of variables,
  first variable reference, bytes, and the variable that multiplies the bytes or -1; of a kernel
  with which a group begins (kind 3), which has no bytes, these words are the number of steps that
  run at the same time from here on, and whether that is worth waking threads for (1);
* references, 2 words each: slot and byte offset, an address being ``slots[slot] + offset``;
* variable references, 2 words each: index of a plan variable, or -1 and a constant.

``slots`` are 0 (so that a constant address is an offset from nothing), the inputs, the outputs,
the arena and the variables, in the order in which the caller passes them.

Kernels that run at the same time are in `weft.runtimes.native.executor.concurrent_kernels`.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["CONTEXT", "FRAME_WORDS", "GROUP", "INTERRUPTED", "STEP_WORDS", "SYMBOLS", "Places",
           "clear", "clock", "clock_function", "failure", "has_counter", "module", "take_frame",
           "ticks"]  # fmt: skip

SYMBOLS: Final = ("weft_call", "weft_plan", "weft_run")

CONTEXT: Final = (
    "nargs",  # arguments of a call: inputs, outputs, arena, variables
    "first_variable",  # slot of the first variable
    "nsteps",
    "steps",
    "references",
    "variables",
    "frame_words",  # slots, buffers and variables of the largest step
    "first_buffer",  # word of the frame where the buffers of a step begin
    "first_kernel_variable",  # word of the frame where the variables of a step begin
    "release_gil",
    "ninputs",
    "noutputs",
    "interruptible",  # steps after which a signal may end the call
    "calls",  # how often the plan was run, as good as threads can count without a lock
)
STEP_WORDS: Final = 8
GROUP: Final = 3  # the kind of a kernel with which a group begins
FRAME_WORDS: Final = 256
INTERRUPTED: Final = -(1 << 31)

# A signal is looked for between two steps, at most this often. The time stamp counter of x86
# costs a third of the clock and runs at 1 to 5 GHz, near enough for 25 to 125 ms.
_SIGNAL_NS: Final = 50_000_000
_SIGNAL_TICKS: Final = 125_000_000


def module() -> Module:
    """Return the code of the executor.

    ``weft_call`` is a METH_FASTCALL function whose ``self`` is an int, the address of the
    context. ``weft_run(ctx, slots, status)`` is what it does with slots that are filled.
    ``weft_plan(ctx, inputs, outputs, arena, vars, status)`` is the same plan for callers
    without Python, ``arena`` being the address of a word that holds the arena's address.
    """
    m = Module({f"ctx.{name}": 8 * i for i, name in enumerate(CONTEXT)})
    clock(m)
    _handle_signals(m)
    _bind(m)
    _blame(m)
    _walk(m)
    _run(m)
    _call(m)
    _plan(m)
    return m


def clock(m: Module) -> None:
    """Write ``now()``: ticks of a counter, or nanoseconds where there is none."""
    if has_counter():
        c = m.define("internal i64 @now() alwaysinline nounwind")
        c.ret(c.call("llvm.readcyclecounter", returns="i64"))
    else:
        clock_function(m)


def clock_function(m: Module) -> None:
    """Write ``now()``, which reads the system's monotonic clock in nanoseconds."""
    c = m.define("internal i64 @now() nounwind")
    time = c.alloca("[2 x i64]")
    c.call("clock_gettime", c.constant(1 if sys.platform == "linux" else 6, "i32"), time,
           returns="i32")  # fmt: skip
    c.ret(c.word(time, 0) * 1_000_000_000 + c.word(time, 1))


def ticks(seconds: float) -> int:
    """Return about as many ticks of the clock as so much time has."""
    return int(seconds * (_SIGNAL_TICKS if has_counter() else _SIGNAL_NS) * 1e9 / _SIGNAL_NS)


def has_counter() -> bool:
    """Whether the processor has a counter that a program may read."""
    return platform.machine() in ("x86_64", "AMD64")


def take_frame(c: Code, words: Value, failed: str) -> tuple[Value, Value]:
    """Return memory of so many words, and whether it lies on the stack, or go to a label."""
    at, fits = c.variable(c.alloca(f"[{FRAME_WORDS} x i64]", 16)), words <= FRAME_WORDS
    with c.unless(fits):
        large = c.call("malloc", words << 3)
        c.store(at, 0, large)
        c.leave(large.eq(None), failed)
    return c.load(at), fits


def failure(c: Code, status: Value) -> list[Value]:
    """Return what a kernel reported besides its code: kernel, statement, index and bound."""
    return [c.load(status, 4, "i32"), c.load(status, 8, "i32"), c.load(status, 16, "i64"),
            c.load(status, 24, "i64")]  # fmt: skip


def clear(c: Code, status: Value) -> None:
    """Let a status say that nothing failed."""
    for k in range(4):
        c.put(status, k, 0)


class Places:
    """Where the steps of a plan and the words of a call lie."""

    def __init__(self, c: Code, ctx: Value, slots: Value) -> None:
        self.code, self.slots = c, slots
        self.steps, self.references, self.vrefs = (
            c.load(ctx, f"ctx.{name}") for name in ("steps", "references", "variables"))
        self.variables = c.at(slots, c.load(ctx, "ctx.first_variable", "i64"), "i64")
        self.first_buffer = c.load(ctx, "ctx.first_buffer", "i64")
        self.first_kernel_variable = c.load(ctx, "ctx.first_kernel_variable", "i64")

    def record(self, step: Value) -> Value:
        """Return where the record of a step lies."""
        return self.code.at(self.steps, step * STEP_WORDS, "i64")

    def bind(self, record: Value, buffers: Value, variables: Value) -> None:
        """Put the addresses and the variables of a step where its kernel expects them."""
        self.code.call("bind", record, self.slots, self.references, self.vrefs, self.variables,
                       buffers, variables)  # fmt: skip


def _handle_signals(m: Module) -> None:
    """Take the GIL and let Python handle signals; nonzero: a handler raised."""
    c = m.define("internal i32 @handle_signals(ptr %thread) noinline nounwind")
    thread = c.params[0]
    c.call("PyEval_RestoreThread", c.load(thread))
    raised = c.call("PyErr_CheckSignals", returns="i32")
    c.store(thread, 0, c.call("PyEval_SaveThread"))
    c.ret(raised)


def _bind(m: Module) -> None:
    """Put the addresses and the variables of a step where its kernel expects them."""
    c = m.define("internal void @bind(ptr %record, ptr %slots, ptr %references, ptr %vrefs, "
                 "ptr %vars, ptr %buffers, ptr %kvars) alwaysinline nounwind")  # fmt: skip
    record, slots, references, vrefs, variables, buffers, kvars = c.params
    nbuffers, first, nvars, first_var = (c.word(record, k) for k in range(2, 6))
    with c.loop(nbuffers) as i:
        reference = c.at(references, (first + i) << 1, "i64")
        c.put(buffers, i, c.word(slots, c.word(reference, 0)) + c.word(reference, 1))
    with c.loop(nvars) as i:
        reference = c.at(vrefs, (first_var + i) << 1, "i64")
        index = c.word(reference, 0)
        with c.when(index < 0) as otherwise:
            c.put(kvars, i, c.word(reference, 1))
            otherwise()
            c.put(kvars, i, c.word(variables, index))
    c.end()


def _blame(m: Module) -> None:
    """Complete the status: a kernel does not know its place, and may fail without a word."""
    c = m.define("internal void @blame(i64 %s, i32 %code, ptr %status) noinline nounwind")
    step, code, status = c.params
    c.store(status, 4, step.cast("trunc", "i32"))
    told = c.load(status, 0, "i32")
    c.store(status, 0, c.select(told.eq(0), code, told))
    c.end()


def _walk(m: Module) -> None:
    """Walk the steps.

    ``thread`` is where the saved Python thread state is, or null when the GIL is held or there is
    no Python.
    """
    c = m.define("internal i32 @walk(ptr %ctx, ptr %slots, ptr %status, ptr %thread) nounwind")
    ctx, slots, status, thread = c.params
    nsteps, places = c.load(ctx, "ctx.nsteps", "i64"), Places(c, ctx, slots)
    buffers = c.at(slots, places.first_buffer, "i64")
    kvars = c.at(slots, places.first_kernel_variable, "i64")
    interruptible, calls = c.load(ctx, "ctx.interruptible", "i64"), c.at(ctx, "ctx.calls")
    c.store(calls, 0, c.load(calls, 0, "i64", "monotonic") + 1, order="monotonic")
    timed = thread.ne(None)
    at, last = c.variable(0), c.variable(0)
    with c.when(timed):
        c.store(last, 0, c.call("now"))
    c.begin("step")
    step = c.load(at, 0, "i64")
    c.need(step < nsteps, "success")
    record = places.record(step)
    kind = c.word(record, 0)
    places.bind(record, buffers, kvars)
    with c.when(kind.eq(0)) as otherwise:
        code = c.call(c.word(record, 1, "ptr"), buffers, kvars, status, returns="i32")
        with c.unless(code.eq(0)):
            c.call("blame", step, code, status)
            c.goto("told")
        otherwise()
        nbytes, last_word = c.word(record, 6), c.word(record, 7)
        with c.when(kind.eq(GROUP)) as otherwise:
            code = c.call("run_together", ctx, slots, step, nbytes, last_word, status,
                          returns="i32")  # fmt: skip
            c.store(at, 0, step + nbytes - 1)
            c.need(code.eq(0), "told")
            otherwise()
            _move(c, record, buffers, nbytes, last_word, places)
    done = c.load(at, 0, "i64")
    c.store(at, 0, done + 1)
    c.need(timed & (done < interruptible), "step")
    time = c.call("now")
    waited = _SIGNAL_TICKS if has_counter() else _SIGNAL_NS
    c.need(time - c.load(last, 0, "i64") > waited, "step")
    c.store(last, 0, time)
    c.leave(c.call("handle_signals", thread).eq(0), "step")
    c.ret(INTERRUPTED, "i32")
    c.begin("told")
    c.ret(c.load(status, 0, "i32"))
    c.begin("success")
    c.ret(0, "i32")


def _move(c: Code, record: Value, buffers: Value, nbytes: Value, scale: Value,
          places: Places) -> None:  # fmt: skip
    """Copy or fill memory, of as many bytes as a variable says that multiplies them."""
    size = c.variable(nbytes)
    with c.unless(scale < 0):
        c.store(size, 0, nbytes * c.word(places.variables, scale))
    count, target = c.load(size, 0, "i64"), c.word(buffers, 0, "ptr")
    no = c.constant("false", "i1")
    with c.when(c.word(record, 0).eq(1)) as otherwise:
        c.call("llvm.memmove.p0.p0.i64", target, c.word(buffers, 1, "ptr"), count, no)
        otherwise()
        byte = c.word(record, 1).cast("trunc", "i8")
        c.call("llvm.memset.p0.i64", target, byte, count, no)


def _run(m: Module) -> None:
    """Run a plan whose slots are filled, with or without the GIL as its context says."""
    c = m.define("i32 @weft_run(ptr %ctx, ptr %slots, ptr %status) nounwind")
    ctx, slots, status = c.params
    thread = c.alloca("ptr")
    with c.when(c.load(ctx, "ctx.release_gil", "i64").eq(0)):
        c.ret(c.call("walk", ctx, slots, status, None))
    c.store(thread, 0, c.call("PyEval_SaveThread"))
    code = c.call("walk", ctx, slots, status, thread)
    c.call("PyEval_RestoreThread", c.load(thread))
    c.ret(code)


def _call(m: Module) -> None:
    """Run a plan with addresses and sizes as Python's integers: None, or the failure."""
    c = m.define("ptr @weft_call(ptr %self, ptr %args, i64 %nargs) nounwind")
    this, args, nargs = c.params
    status, result = c.alloca("[4 x i64]"), c.variable(c.constant("null", "ptr"))
    ctx = c.call("weft_int64_of", this).cast("inttoptr", "ptr")
    expected = c.load(ctx, "ctx.nargs", "i64")
    c.need(nargs.eq(expected), "count")
    slots, fits = take_frame(c, c.load(ctx, "ctx.frame_words", "i64"), "no_memory")
    c.put(slots, 0, 0)
    with c.loop(nargs) as i:
        value = c.call("weft_int64_of", c.word(args, i, "ptr"))
        with c.when(value.eq(-1)):
            c.need(c.call("PyErr_Occurred").eq(None), "done")
        c.put(slots, i + 1, value)
    clear(c, status)
    code = c.call("weft_run", ctx, slots, status)
    with c.when(code.eq(0)):
        none = c.symbol("weft_none")
        c.call("Py_IncRef", none)
        c.store(result, 0, none)
        c.goto("done")
    c.leave(code.eq(INTERRUPTED), "done")
    c.store(result, 0, c.call("Py_BuildValue", c.literal("iiiLL"), code, *failure(c, status)))
    c.begin("done")
    with c.unless(fits):
        c.call("free", slots)
    c.ret(c.load(result))
    c.begin("count")
    message = c.literal("a native plan takes %zd integers (addresses, sizes), not %zd")
    c.ret(c.call("PyErr_Format", c.symbol("weft_type_error"), message, expected, nargs))
    c.begin("no_memory")
    c.ret(c.call("PyErr_NoMemory"))


def _plan(m: Module) -> None:
    """Run a plan without Python."""
    c = m.define("i32 @weft_plan(ptr %ctx, ptr %inputs, ptr %outputs, ptr %arena, ptr %vars, "
                 "ptr %status) nounwind")  # fmt: skip
    ctx, inputs, outputs, arena, variables, status = c.params
    slots, fits = take_frame(c, c.load(ctx, "ctx.frame_words", "i64"), "no_memory")
    nargs, first, ninputs, noutputs = (
        c.load(ctx, f"ctx.{name}", "i64")
        for name in ("nargs", "first_variable", "ninputs", "noutputs"))
    c.put(slots, 0, 0)
    given = c.at(slots, 1, "i64")
    results = c.at(given, ninputs, "i64")
    for target, source, count in (
        (given, inputs, ninputs), (results, outputs, noutputs),
        (c.at(results, noutputs, "i64"), arena, c.constant(1, "i64")),
        (c.at(slots, first, "i64"), variables, nargs - (first - 1))):
        c.call("llvm.memmove.p0.p0.i64", target, source, count << 3, c.constant("false", "i1"))
    clear(c, status)
    code = c.call("walk", ctx, slots, status, None)
    with c.unless(fits):
        c.call("free", slots)
    c.ret(code)
    c.begin("no_memory")
    c.store(status, 0, -1, "i32")
    c.ret(-1, "i32")
