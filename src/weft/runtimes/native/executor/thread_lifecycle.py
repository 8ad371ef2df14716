"""The life of the thread pool as LLVM IR: set up, start, adopt after a fork, end."""

from __future__ import annotations

import sys
from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.native_ir import clock_function
from weft.runtimes.native.executor.thread_region import (
    BUSY,
    HANDLE,
    MAX_THREADS,
    SEEN,
    SLEEPING,
    STARTED,
    STATE_BYTES,
    Pause,
    leave_pool,
    slot_of,
    state_of,
    take_pool,
    usable_state,
)

__all__ = ["functions"]

# How long a worker looks for the next region before it sleeps: longer than the serial part
# between two kernels of a plan, shorter than what an idle user would notice on a battery.
_SPIN_NS: Final = 50_000
_STACK_BYTES: Final = 8 << 20


def functions(m: Module, pause: Pause) -> None:
    """Write the functions, and the state."""
    m.hold("threads", "internal global i32 1")
    m.hold("spins", "internal global i32 0")
    m.hold("state", "internal global ptr null")
    m.hold("owner", "internal global i32 0")
    m.hold("check_owner", "internal global i32 0")
    m.hold("static_state",
           f"internal global [{STATE_BYTES} x i8] zeroinitializer, align 128")  # fmt: skip
    clock_function(m)
    _start_workers(m)
    _adopt_state(m)
    _measure_spins(m, pause)
    _init(m)
    _counts(m)
    _shutdown(m)


def _number(c: Code, name: str, *args: Value | int) -> Value:
    """Call a function of the system that takes and returns numbers of 32 bits, and addresses."""
    given = (c.constant(a, "i32") if isinstance(a, int) else a for a in args)
    return c.call(name, *given, returns="i32")


def _start_workers(m: Module) -> None:
    """Start workers; the pool is taken.

    A thread that cannot be created leaves its chunks to the caller.
    """
    c = m.define("internal void @start_workers(ptr %state, i32 %wanted) noinline nounwind")
    state, wanted = c.params
    attributes, blocked, before = (c.alloca(f"[{size} x i8]", 16) for size in (256, 128, 128))
    # SIG_BLOCK, SIG_SETMASK and SIGBUS as Linux and macOS number them.
    block, setmask, bus = (0, 2, 7) if sys.platform == "linux" else (1, 3, 10)
    _number(c, "pthread_attr_init", attributes)
    c.call("pthread_attr_setstacksize", attributes, _STACK_BYTES, returns="i32")
    _number(c, "sigfillset", blocked)
    for signal in (4, 8, 11, bus):  # what a fault of the worker itself raises stays open
        _number(c, "sigdelset", blocked, signal)
    _number(c, "pthread_sigmask", block, blocked, before)
    c.begin("next")
    count = c.load(state, STARTED, "i32")
    c.need(count < wanted, "done")
    number = count + 1
    slot = slot_of(c, state, number.cast("sext", "i64"))
    epoch = c.load(slot, 0, "i32")
    c.store(slot, SLEEPING, 0, "i32")
    c.store(slot, SEEN, epoch)
    failed = _number(c, "pthread_create", c.at(slot, HANDLE), attributes, c.symbol("worker"), slot)
    c.need(failed.eq(0), "done")
    c.store(state, STARTED, number)
    c.goto("next")
    c.begin("done")
    _number(c, "pthread_sigmask", setmask, before, c.constant("null", "ptr"))
    _number(c, "pthread_attr_destroy", attributes)
    c.end()


def _adopt_state(m: Module) -> None:
    """Find whether the state is this process's own, for kernels without MADV_WIPEONFORK.

    One thread of a forked child clears it while the others, if any, run their regions inline.
    """
    c = m.define("internal i1 @adopt_state() noinline nounwind")
    pid, owner_at = _number(c, "getpid"), c.symbol("owner")
    owner = c.load(owner_at, 0, "i32", "acquire")
    c.leave(pid.eq(owner), "yes")
    c.leave(owner.eq(-1), "no")  # it is being cleared
    c.need(c.swap(owner_at, owner, -1, "acq_rel"), "no")
    c.call("llvm.memset.p0.i64", state_of(c), c.constant(0, "i8"), STATE_BYTES,
           c.constant("false", "i1"))  # fmt: skip
    c.call("prepare_sleep", returns="void")
    c.store(owner_at, 0, pid, order="release")
    c.begin("yes")
    c.ret(c.constant("true", "i1"))
    c.begin("no")
    c.ret(c.constant("false", "i1"))


def _measure_spins(m: Module, pause: Pause) -> None:
    """Return how many pauses a worker makes before it sleeps.

    A pause lasts 10 to 140 cycles depending on the processor, so its duration is measured: the
    least of several times, for the first reading of a clock is slow, and any may be interrupted.
    """
    c = m.define("internal i32 @measure_spins() noinline nounwind")
    least = c.variable(1_000_000_000)
    with c.loop(12):
        begin = c.call("now")
        with c.loop(64):
            pause(c)
        time = c.call("now") - begin
        c.store(least, 0, c.call("llvm.smin.i64", c.load(least, 0, "i64"), time))
    time = c.call("llvm.smax.i64", c.load(least, 0, "i64"), 1)
    count = c.new(f"udiv i64 {_SPIN_NS * 64}, {time.text}", "i64").cast("trunc", "i32")
    low = c.call("llvm.smax.i32", count, c.constant(100, "i32"))
    c.ret(c.call("llvm.smin.i32", low, c.constant(10_000, "i32")))


def _init(m: Module) -> None:
    """Set the number of threads, the caller included; return what was set.

    Workers start when a region first needs them. Spinning is for threads that have a CPU of their
    own: `spin` 0 sleeps at once.
    """
    c = m.define("i32 @weft_pool_init(i32 %wanted, i32 %spin) nounwind")
    wanted, spins = c.params[0], c.variable(c.constant(0, "i32"))
    with c.when(state_of(c).eq(None)):
        c.call("prepare_sleep", returns="void")
        c.call("make_state", returns="void")
    with c.unless(c.params[1].eq(0)):
        c.store(spins, 0, c.call("measure_spins"))
    c.store(c.symbol("spins"), 0, c.load(spins, 0, "i32"))
    low = c.call("llvm.smax.i32", wanted, c.constant(1, "i32"))
    count = c.call("llvm.smin.i32", low, c.constant(MAX_THREADS, "i32"))
    c.store(c.symbol("threads"), 0, count, order="release")
    c.ret(count)


def _counts(m: Module) -> None:
    c = m.define("i32 @weft_pool_threads() nounwind")
    c.ret(c.load(c.symbol("threads"), 0, "i32", "acquire"))
    c = m.define("i32 @weft_pool_workers() nounwind")
    c.ret(c.load(state_of(c), STARTED, "i32"))
    c = m.define("i32 @weft_pool_busy() nounwind")
    c.ret(c.load(usable_state(c, "no"), BUSY, "i32", "monotonic"))
    c.begin("no")
    c.ret(0, "i32")
    c = m.define("i64 @weft_pool_handle(i64 %worker) nounwind")
    c.ret(c.load(slot_of(c, state_of(c), c.params[0]), HANDLE, "i64"))


def _shutdown(m: Module) -> None:
    """Join all workers; the next region starts new ones. Not to be called from inside a region."""
    c = m.define("void @weft_pool_shutdown() nounwind")
    state = usable_state(c, "leave")
    c.begin("take")
    with c.unless(take_pool(c, state)):
        _number(c, "sched_yield")
        c.goto("take")
    count = c.load(state, STARTED, "i32").cast("sext", "i64")
    with c.loop(count + 1, 1) as k:
        c.call("post", state, k, None, None, 0, 0)
        handle = c.load(slot_of(c, state, k), HANDLE, "i64")
        c.call("pthread_join", handle, None, returns="i32")
    c.store(state, STARTED, 0, "i32")
    leave_pool(c, state)
    c.begin("leave")
    c.end()
