"""How long calls take, one by one, measured without Python in between; as LLVM IR text.

``weft_ticks()`` reads the clock: the processor's counter where a program may, else the system's
monotonic clock. ``weft_time_frame(frame, words, results, n, samples)`` calls a frame
(`weft.runtimes.native.calls.critical_ir`) n times, ``weft_time_call(callable, args, nargs, n,
samples)`` a Python object; each stores the ticks of every call and returns how many calls failed,
the second one at the first of them. ``weft_mean_frame(frame, words, results, n)`` and
``weft_mean_call(callable, args, nargs, n)`` return the ticks of n calls in a row.
``weft_sealed(frame, words, results, n)`` forbids the process every system call but read, write,
exit and the return from a signal (strict mode of seccomp), calls the frame n times and ends the
process: with 0, with 1 if a call failed, with 2 if nothing was forbidden.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.native_ir import clock_function, has_counter

__all__ = ["SYMBOLS", "module"]

SYMBOLS: Final = ("weft_mean_call", "weft_mean_frame", "weft_nothing", "weft_sealed", "weft_ticks",
                  "weft_time_call", "weft_time_frame")  # fmt: skip
_EXIT: Final = {"x86_64": 60, "AMD64": 60, "aarch64": 93, "arm64": 93}


def module() -> Module:
    """Return the code for this machine."""
    m = Module()
    _now(m)
    c = m.define("i64 @weft_ticks() nounwind")
    c.ret(c.call("now"))
    c = m.define("i32 @weft_nothing(ptr %words, ptr %results, ptr %failure) noinline nounwind")
    c.ret(0, "i32")
    _time_frame(m)
    _time_call(m)
    _means(m)
    _sealed(m)
    return m


def _now(m: Module) -> None:
    if not has_counter():
        clock_function(m)
        return
    # The fences keep what is measured between the two readings (Intel SDM volume 2, RDTSC).
    c = m.define("internal i64 @now() alwaysinline nounwind")
    c.call("llvm.x86.sse2.lfence", returns="void")
    time = c.call("llvm.readcyclecounter", returns="i64")
    c.call("llvm.x86.sse2.lfence", returns="void")
    c.ret(time)


def _failing(c: Code) -> Value:
    """Call a frame, the first parameter; whether it failed."""
    frame, words, results, *_ = c.params
    return c.call(frame, words, results, None, returns="i32").ne(0)


def _called(c: Code) -> Value:
    """Call an object, the first parameter."""
    function, args, nargs, *_ = c.params
    return c.call("PyObject_Vectorcall", function, args, nargs, None)


def _time_frame(m: Module) -> None:
    c = m.define("i64 @weft_time_frame(ptr %frame, ptr %words, ptr %results, i64 %n, ptr %samples) "
                 "nounwind")  # fmt: skip
    n, samples = c.params[3:]
    bad = c.variable(0)
    with c.loop(n) as i:
        begin = c.call("now")
        failed = _failing(c)
        c.put(samples, i, c.call("now") - begin)
        c.store(bad, 0, c.load(bad, 0, "i64") + failed.cast("zext", "i64"))
    c.ret(c.load(bad, 0, "i64"))


def _time_call(m: Module) -> None:
    c = m.define("i64 @weft_time_call(ptr %callable, ptr %args, i64 %nargs, i64 %n, ptr %samples) "
                 "nounwind")  # fmt: skip
    n, samples = c.params[3:]
    with c.loop(n) as i:
        begin = c.call("now")
        result = _called(c)
        time = c.call("now") - begin
        with c.when(result.eq(None)):
            c.ret(1, "i64")
        c.call("Py_DecRef", result)
        c.put(samples, i, time)
    c.ret(0, "i64")


def _means(m: Module) -> None:
    """Write what times n calls in a row, of an object up to the first that fails."""
    c = m.define("i64 @weft_mean_frame(ptr %frame, ptr %words, ptr %results, i64 %n) nounwind")
    begin = c.call("now")
    with c.loop(c.params[3]):
        _failing(c)
    c.ret(c.call("now") - begin)
    c = m.define("i64 @weft_mean_call(ptr %callable, ptr %args, i64 %nargs, i64 %n) nounwind")
    begin = c.call("now")
    with c.loop(c.params[3]):
        result = _called(c)
        c.leave(result.eq(None), "end")
        c.call("Py_DecRef", result)
    c.begin("end")
    c.ret(c.call("now") - begin)


def _sealed(m: Module) -> None:
    c = m.define("i64 @weft_sealed(ptr %frame, ptr %words, ptr %results, i64 %n) nounwind")
    if sys.platform != "linux":
        c.ret(2, "i64")
        return
    status = c.variable(2)
    # PR_SET_SECCOMP and SECCOMP_MODE_STRICT
    refused = c.call("prctl", c.constant(22, "i32"), 1, 0, 0, 0, returns="i32")
    with c.when(refused.eq(0)):
        c.store(status, 0, 0)
        with c.loop(c.params[3]), c.when(_failing(c)):
            c.store(status, 0, 1)
    # exit ends the thread, which is all that a fork has; exit_group, which the C library's exit
    # calls, is forbidden.
    number = _EXIT.get(platform.machine(), 93)
    c.ret(c.call("syscall", number, c.load(status, 0, "i64"), returns="i64"))
