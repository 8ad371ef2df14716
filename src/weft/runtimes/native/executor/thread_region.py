"""The regions of the thread pool as LLVM IR: posting, working, taking over, waiting.

`thread_lifecycle` starts and stops the workers; `thread_sleep` has what depends on the platform:
``wait``, ``wake``, ``prepare_sleep`` and ``make_state``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["BUSY", "HANDLE", "MAX_THREADS", "SEEN", "SLEEPING", "STARTED", "STATE_BYTES", "Pause",
           "functions", "leave_pool", "serial", "slot_of", "state_of", "take_pool",
           "usable_state"]  # fmt: skip

MAX_THREADS: Final = 512

# Offsets in the state, each on a cache line of its own.
BUSY: Final = 0
_PENDING: Final = 128
_WAITER: Final = 192
STARTED: Final = 256
_WAKER: Final = 320
_SLOTS: Final = 512
_SLOT_BYTES: Final = 128
STATE_BYTES: Final = _SLOTS + _SLOT_BYTES * MAX_THREADS

# Offsets in the slot of a worker, which begins with its epoch.
SLEEPING, _FUNCTION, _ENV, _BEGIN, _END, SEEN, _CLAIM, HANDLE = 4, 8, 16, 24, 32, 40, 44, 64

# How often the caller looks for the end before it takes over chunks that nobody has begun: a
# worker that spins begins within 100 ns, one that sleeps needs 30 to 100 µs.
_GLANCES: Final = 16

Pause = Callable[[Code], None]


def serial(m: Module) -> None:
    """Write the pool of a platform without threads."""
    c = m.define("void @weft_parallel_for(ptr %fn, ptr %env, i64 %n) nounwind")
    function, env, n = c.params
    with c.when(n > 0):
        c.call(function, env, 0, n, returns="void")
    c.end()
    for head, count in (("i32 @weft_pool_init(i32 %threads, i32 %spin)", 1),
                        ("i32 @weft_pool_threads()", 1), ("i32 @weft_pool_workers()", 0),
                        ("i32 @weft_pool_awake(i64 %n)", 0), ("i32 @weft_pool_busy()", 0),
                        ("i64 @weft_pool_handle(i64 %worker)", 0)):  # fmt: skip
        m.define(f"{head} nounwind").ret(count, head.partition(" ")[0])
    m.define("void @weft_pool_shutdown() nounwind").end()


def functions(m: Module, pause: Pause) -> None:
    """Write the functions; ``pause`` writes what a thread does that looks again and again."""
    _chunk_begin(m)
    _run_chunks(m)
    _claim(m)
    _post(m)
    _take_chunks(m)
    _sleep_until_done(m)
    _parallel_for(m, pause)
    _awake(m)
    _worker(m, pause)


def state_of(c: Code) -> Value:
    """Return where the state of the pool lies."""
    return c.load(c.symbol("state"))


def slot_of(c: Code, state: Value, worker: Value) -> Value:
    """Return the slot of a worker; they count from 1."""
    return c.at(c.at(state, _SLOTS), worker * _SLOT_BYTES)


def usable_state(c: Code, otherwise: str) -> Value:
    """Return the state if it is this process's own, or go elsewhere."""
    state = state_of(c)
    with c.unless(c.load(c.symbol("check_owner"), 0, "i32").eq(0)):
        c.need(c.call("adopt_state", returns="i1"), otherwise)
    return state


def take_pool(c: Code, state: Value) -> Value:
    """Take the pool; whether nobody else had it."""
    return c.swap(c.at(state, BUSY), 0, 1, "acquire")


def leave_pool(c: Code, state: Value) -> None:
    """Let others have the pool."""
    c.store(state, BUSY, 0, "i32", "release")


def _read(c: Code, place: Value, offset: int, order: str) -> Value:
    return c.load(place, offset, "i32", order)


def _chunk_begin(m: Module) -> None:
    c = m.define("internal i64 @chunk_begin(i64 %n, i64 %parts, i64 %k) alwaysinline nounwind")
    n, parts, k = c.params
    quotient, rest = (c.new(f"{name} i64 {n.text}, {parts.text}", "i64")
                      for name in ("udiv", "urem"))  # fmt: skip
    c.ret(quotient * k + c.call("llvm.smin.i64", k, rest))


def _run_chunks(m: Module) -> None:
    """Run chunks [first, parts) here, with the very bounds that the workers would have had."""
    c = m.define("internal void @run_chunks(ptr %fn, ptr %env, i64 %n, i64 %parts, i64 %first) "
                 "nounwind")  # fmt: skip
    function, env, n, parts, first = c.params
    begin = c.variable(c.call("chunk_begin", n, parts, first))
    with c.loop(parts, first) as k:
        end = c.call("chunk_begin", n, parts, k + 1)
        c.call(function, env, c.load(begin, 0, "i64"), end, returns="void")
        c.store(begin, 0, end)
    c.end()


def _parallel_for(m: Module, pause: Pause) -> None:
    c = m.define("void @weft_parallel_for(ptr %fn, ptr %env, i64 %n) nounwind")
    function, env, n = c.params
    parts = _parts(c, n)
    with c.unless(parts > 1):
        with c.when(n > 0):
            c.call(function, env, 0, n, returns="void")
        c.end()
    state = usable_state(c, "serial")
    c.need(take_pool(c, state), "serial")
    end = c.call("chunk_begin", n, parts, 1)
    workers = _post_chunks(c, state, (function, env, n, parts), end)
    c.call(function, env, 0, end, returns="void")
    with c.unless(workers.eq(parts - 1)):
        c.call("run_chunks", function, env, n, parts, workers + 1)
    with c.loop(_GLANCES):
        c.leave(_read(c, state, _PENDING, "acquire").eq(0), "leave")
        pause(c)
    # A worker that sleeps, or has lost its CPU, has not begun: rather than wait, take its chunk.
    c.call("take_chunks", state, workers)
    _spin(c, pause, c.load(c.symbol("spins"), 0, "i32"), lambda: c.leave(
        _read(c, state, _PENDING, "acquire").eq(0), "leave"))
    c.call("sleep_until_done", state)
    c.begin("leave")
    leave_pool(c, state)
    c.end()
    c.begin("serial")
    c.call("run_chunks", function, env, n, parts, 0)
    c.end()


def _parts(c: Code, n: Value) -> Value:
    """Return how many chunks n iterations have."""
    threads = _read(c, c.symbol("threads"), 0, "monotonic").cast("sext", "i64")
    return c.call("llvm.smin.i64", n, threads)


def _post_chunks(c: Code, state: Value, region: tuple[Value, Value, Value, Value],
                 end: Value) -> Value:  # fmt: skip
    """Post the chunks but the first, which ends at `end`; return how many workers have one."""
    function, env, n, parts = region
    wanted = (parts - 1).cast("trunc", "i32")
    with c.when(c.load(state, STARTED, "i32") < wanted):
        c.call("start_workers", state, wanted, returns="void")
    count = c.call("llvm.smin.i32", c.load(state, STARTED, "i32"), wanted)
    c.store(state, _PENDING, count, order="monotonic")
    workers, begin = count.cast("sext", "i64"), c.variable(end)
    with c.loop(workers + 1, 1) as k:
        following = c.call("chunk_begin", n, parts, k + 1)
        c.call("post", state, k, function, env, c.load(begin, 0, "i64"), following)
        c.store(begin, 0, following)
    return workers


def _spin(c: Code, pause: Pause, limit: Value, look: Callable[[], None]) -> None:
    """Look once, and again after pauses, as often as a limit says."""
    again, count = c.label(), c.variable(c.constant(0, "i32"))
    c.begin(again)
    look()
    pause(c)
    following = c.load(count, 0, "i32") + 1
    c.store(count, 0, following)
    c.leave(following < limit, again)


def _awake(m: Module) -> None:
    """Whether the last worker that a region of n iterations uses looks for work at this moment."""
    c = m.define("i32 @weft_pool_awake(i64 %n) nounwind")
    last = _parts(c, c.params[0]) - 1
    c.need(last > 0, "no")
    state = state_of(c)
    c.need(_read(c, state, STARTED, "monotonic").cast("sext", "i64") >= last, "no")
    sleeping = _read(c, slot_of(c, state, last), SLEEPING, "monotonic")
    c.ret(sleeping.eq(0).cast("zext", "i32"))
    c.begin("no")
    c.ret(0, "i32")


def _post(m: Module) -> None:
    """Give a worker a chunk, and wake it if it sleeps.

    The pair (epoch, sleeping) is Dekker's: we raise the epoch and then look whether the worker
    sleeps, it says that it sleeps and then looks at the epoch.
    """
    c = m.define("internal void @post(ptr %state, i64 %k, ptr %fn, ptr %env, i64 %begin, i64 %end) "
                 "alwaysinline nounwind")  # fmt: skip
    state, k, *words = c.params
    slot = slot_of(c, state, k)
    for offset, word in zip((_FUNCTION, _ENV, _BEGIN, _END), words, strict=True):
        c.store(slot, offset, word)
    old = c.fetch("add", slot, 1, "seq_cst")
    mark = (old << 1) | 1
    sleeping = c.at(slot, SLEEPING)
    c.need(_read(c, sleeping, 0, "seq_cst").eq(mark), "done")
    # One wake for one sleep: it costs more than a short region, and the worker may be slow to come.
    # The mark holds the epoch that the sleeper waits to see the end of. Any other mark is of one
    # that has seen our epoch and sleeps again, or is about to look: to wipe that out would lose it.
    c.need(c.swap(sleeping, mark, 0, "seq_cst"), "done")
    c.store(state, _WAKER, c.call("current_cpu", returns="i32"), order="monotonic")
    c.call("wake", slot, returns="void")
    c.begin("done")
    c.end()


def _claim(m: Module) -> None:
    """Take a chunk, which belongs to whoever moves `claim` from the epoch before to its own.

    Later epochs cannot come before this chunk is done, so a late claim of an old epoch always
    fails.
    """
    c = m.define("internal i1 @claim(ptr %slot, i32 %epoch) alwaysinline nounwind")
    slot, epoch = c.params
    c.ret(c.swap(c.at(slot, _CLAIM), epoch - 1, epoch, "acq_rel"))


def _run_posted(c: Code, slot: Value, function: Value) -> None:
    begin, end = c.load(slot, _BEGIN, "i64"), c.load(slot, _END, "i64")
    c.call(function, c.load(slot, _ENV), begin, end, returns="void")


def _take_chunks(m: Module) -> None:
    """Run the chunks that no worker has begun, from the last."""
    c = m.define("internal void @take_chunks(ptr %state, i64 %workers) noinline nounwind")
    state, workers = c.params
    pending = c.at(state, _PENDING)
    with c.loop(workers) as i:
        c.leave(_read(c, pending, 0, "monotonic").eq(0), "done")
        slot = slot_of(c, state, workers - i)
        with c.when(c.call("claim", slot, _read(c, slot, 0, "monotonic"))):
            _run_posted(c, slot, c.load(slot, _FUNCTION))
            c.fetch("sub", pending, 1, "acq_rel")
    c.begin("done")
    c.end()


def _sleep_until_done(m: Module) -> None:
    c = m.define("internal void @sleep_until_done(ptr %state) noinline nounwind")
    pending, waiter = c.at(c.params[0], _PENDING), c.at(c.params[0], _WAITER)
    c.store(waiter, 0, 1, "i32", "seq_cst")
    c.begin("look")
    left = _read(c, pending, 0, "seq_cst")
    with c.unless(left.eq(0)):
        c.call("wait", pending, left, returns="void")
        c.goto("look")
    c.store(waiter, 0, 0, "i32", "seq_cst")
    c.end()


def _worker(m: Module, pause: Pause) -> None:
    """Run what is posted to a slot, until that is null."""
    c = m.define("internal ptr @worker(ptr %slot) nounwind")
    slot, state = c.params[0], state_of(c)
    pending, sleeping = c.at(state, _PENDING), c.at(slot, SLEEPING)
    seen_at, epoch_at = c.variable(c.load(slot, SEEN, "i32")), c.alloca("i32")

    def look(order: str) -> Value:
        epoch = _read(c, slot, 0, order)
        c.store(epoch_at, 0, epoch)
        return epoch.ne(seen)

    c.begin("idle")
    seen, limit = c.load(seen_at, 0, "i32"), c.load(c.symbol("spins"), 0, "i32")
    _spin(c, pause, limit, lambda: c.leave(look("acquire"), "work"))
    c.store(sleeping, 0, (seen << 1) | 1, order="seq_cst")
    c.begin("look")
    with c.unless(look("seq_cst")):
        c.call("wait", slot, seen, returns="void")
        c.goto("look")
    c.store(sleeping, 0, 0, "i32", "monotonic")
    # A kernel that takes the sleeping CPU of a virtual machine for a busy one wakes us on that of
    # our caller, and leaves us there: each would run while the other waits.
    own = c.call("current_cpu", returns="i32")
    shared = own.eq(_read(c, state, _WAKER, "monotonic"))
    with c.when(shared & limit.ne(0)):
        c.call("leave_cpu", own, returns="void")
    c.begin("work")
    epoch = c.load(epoch_at, 0, "i32")
    c.store(seen_at, 0, epoch)
    c.need(c.call("claim", slot, epoch), "idle")
    function = c.load(slot, _FUNCTION)
    with c.when(function.eq(None)):
        c.ret(None)
    _run_posted(c, slot, function)
    c.need(c.fetch("sub", pending, 1, "seq_cst").eq(1), "idle")
    c.need(_read(c, state, _WAITER, "seq_cst").ne(0), "idle")
    c.call("wake", pending, returns="void")
    c.goto("idle")
