"""How threads of the pool sleep and where its state lies, as LLVM IR for each platform."""

from __future__ import annotations

from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.thread_region import STATE_BYTES

__all__ = ["condition", "futex"]

_MASK_BYTES: Final = 1024  # of the CPUs that a thread may run on
# FUTEX_WAIT and FUTEX_WAKE, private to the process
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129


def futex(m: Module, number: int) -> None:
    """Write how threads sleep on Linux: futexes, whose system call has a number.

    Their words are all the state there is, so a wiped page is a pool without workers.
    """
    c = m.define("internal i32 @current_cpu() nounwind")
    c.ret(c.call("sched_getcpu", returns="i32"))
    _leave_cpu(m)
    m.define("internal void @prepare_sleep() nounwind").end()
    # A signal or a changed word returns early.
    c = m.define("internal void @wait(ptr %word, i32 %expected) noinline nounwind")
    _futex(c, number, _FUTEX_WAIT, c.params[1])
    c = m.define("internal void @wake(ptr %word) noinline nounwind")
    _futex(c, number, _FUTEX_WAKE, c.constant(1, "i32"))
    _wiped_state(m)


def _futex(c: Code, number: int, operation: int, value: Value) -> None:
    c.call("syscall", number, c.params[0], c.constant(operation, "i32"), value, None, None,
           c.constant(0, "i32"), returns="i64")  # fmt: skip
    c.end()


def _leave_cpu(m: Module) -> None:
    """Go on where the thread may run besides a CPU, if anywhere; then it may run where it might."""
    c = m.define("internal void @leave_cpu(i32 %cpu) noinline nounwind")
    cpu, mask, none = c.params[0], c.alloca(f"[{_MASK_BYTES} x i8]"), c.constant(0, "i32")
    got = c.call("sched_getaffinity", none, _MASK_BYTES, mask, returns="i32")
    c.need((got >= 0) & cpu.test("ult", 8 * _MASK_BYTES), "done")
    place = c.at(mask, (cpu >> 3).cast("zext", "i64"))
    old = c.load(place, 0, "i8")
    low = (cpu & 7).cast("trunc", "i8")
    others = c.new(f"shl i8 1, {low.text}", "i8") ^ -1
    # No CPU left is an error, after which the thread may run where it might.
    for allowed in (old & others, old):
        c.store(place, 0, allowed)
        c.call("sched_setaffinity", none, _MASK_BYTES, mask, returns="i32")
    c.begin("done")
    c.end()


def _use_static_state(c: Code) -> None:
    """Let the state lie where forked children find it, who compare process ids."""
    c.store(c.symbol("owner"), 0, c.call("getpid", returns="i32"))
    c.store(c.symbol("check_owner"), 0, 1, "i32")
    c.store(c.symbol("state"), 0, c.symbol("static_state"))


def _wiped_state(m: Module) -> None:
    """Let the state lie where the system zeroes it in forked children, if it can."""
    c = m.define("internal void @make_state() nounwind")
    # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, MADV_WIPEONFORK (Linux 4.14)
    flags = [c.constant(flag, "i32") for flag in (3, 34, -1)]
    found = c.call("mmap", None, STATE_BYTES, *flags, 0)
    c.leave(found.cast("ptrtoint", "i64").eq(-1), "fallback")
    refused = c.call("madvise", found, STATE_BYTES, c.constant(18, "i32"), returns="i32")
    c.need(refused.eq(0), "fallback")
    c.store(c.symbol("state"), 0, found)
    c.end()
    c.begin("fallback")
    _use_static_state(c)
    c.end()


def condition(m: Module) -> None:
    """Write how threads sleep elsewhere: one condition variable for all.

    A mutex has to be made anew in forked children, which only a comparison of process ids can
    notice.
    """
    m.define("internal i32 @current_cpu() nounwind").ret(0, "i32")
    m.define("internal void @leave_cpu(i32 %cpu) nounwind").end()
    for name in ("mutex", "condition"):
        m.hold(name, "internal global [256 x i8] zeroinitializer, align 16")

    def call(c: Code, name: str, *args: Value | None) -> None:
        c.call(f"pthread_{name}", *args, returns="i32")

    c = m.define("internal void @prepare_sleep() nounwind")
    call(c, "mutex_init", c.symbol("mutex"), None)
    call(c, "cond_init", c.symbol("condition"), None)
    c.end()
    c = m.define("internal void @wait(ptr %word, i32 %expected) noinline nounwind")
    word, expected = c.params
    call(c, "mutex_lock", c.symbol("mutex"))
    c.begin("look")
    with c.when(c.load(word, 0, "i32", "seq_cst").eq(expected)):
        call(c, "cond_wait", c.symbol("condition"), c.symbol("mutex"))
        c.goto("look")
    call(c, "mutex_unlock", c.symbol("mutex"))
    c.end()
    c = m.define("internal void @wake(ptr %word) noinline nounwind")
    call(c, "mutex_lock", c.symbol("mutex"))
    call(c, "cond_broadcast", c.symbol("condition"))
    call(c, "mutex_unlock", c.symbol("mutex"))
    c.end()
    c = m.define("internal void @make_state() nounwind")
    _use_static_state(c)
    c.end()
