"""How the executor of native plans runs kernels at the same time, as LLVM IR text.

Kernels that run at the same time are one region of the thread pool, whose threads take the next
kernel from a counter until there is none: a thread that comes late, or not at all, only leaves more
to the others. The pool is busy then, so a parallel loop inside such a kernel runs its chunks one
after the other, with the bounds that they always have: results are what they are alone. Each
kernel has a status of its own, and all run to their end whatever happens, so that the first failure
in the order of the steps is the one that is told.

To wake a thread costs more than a small group saves. Such a group runs on the calling thread alone
where the others sleep, unless groups have followed each other for a while, so soon that threads,
once awake, stay so. Where processors are shared with others, running together may be slower than in
turn, whatever the plan expects: the time of both is measured, and the faster way is taken. A group
that saves much is always shared.
"""

from typing import Final

from weft.runtimes.native.common.emitter import Code, Module, Value
from weft.runtimes.native.executor.native_ir import STEP_WORDS, Places, clear, has_counter

__all__ = ["functions"]

# Groups that follow each other within less keep the threads awake (they sleep after 50 µs); waking
# them, some 10 µs, is worth it when that has gone on for a while.
_SOON_NS: Final = 30_000
_SOON_TICKS: Final = 60_000
_LONG_NS: Final = 100_000
_LONG_TICKS: Final = 250_000
_MOST_PATIENCE: Final = 32  # times that, where waking has not paid


def functions(m: Module) -> None:
    """Write the functions, beside those of `weft.runtimes.native.executor.native_ir`."""
    long, soon = (_LONG_TICKS, _SOON_TICKS) if has_counter() else (_LONG_NS, _SOON_NS)
    m.hold("ended_alone", "internal global i64 0")  # when the last such group ended, and
    m.hold("alone_since", "internal global i64 0")  # the first of those that followed each other
    m.hold("patience", f"internal global i64 {long}")  # how long they have to before waking threads
    _is_shared(m, long, soon)
    _learn(m)
    _tell(m)
    _take_steps(m)
    _run_together(m)


def _kept(c: Code, place: Value) -> Value:
    """Read a number that threads share without a lock."""
    return c.load(place, 0, "i64", "monotonic")


def _keep(c: Code, place: Value, value: Value) -> None:
    c.store(place, 0, value, order="monotonic")


def _is_shared(m: Module, long: int, soon: int) -> None:
    """Decide whether threads shall help with kernels that may run at the same time.

    Where threads that were woken soon sleep again, as on a processor that others use, they are
    woken ever more rarely.
    """
    c = m.define("internal i1 @is_shared(i1 %ready, i64 %eager) nounwind")
    ready, eager = c.params
    yes, no = c.constant("true", "i1"), c.constant("false", "i1")
    patience_at, since_at = c.symbol("patience"), c.symbol("alone_since")
    c.leave(eager.eq(1), "yes")
    patience = _kept(c, patience_at)
    with c.when(ready):
        c.need(patience.test("ugt", long), "yes")
        _keep(c, patience_at, patience - (patience >> 4))
        c.goto("yes")
    time = c.call("now")
    gap = time - _kept(c, c.symbol("ended_alone"))
    with c.unless(gap.test("ult", soon)):
        _keep(c, since_at, time)
        c.ret(no)
    with c.unless((time - _kept(c, since_at)).test("ugt", patience)):
        c.ret(no)
    _keep(c, since_at, time)
    most = c.constant(_MOST_PATIENCE * long, "i64")
    _keep(c, patience_at, c.call("llvm.umin.i64", patience << 1, most))
    c.begin("yes")
    c.ret(yes)


def _learn(m: Module) -> None:
    """Take the time since a beginning into a running mean, in which one slow run counts little."""
    c = m.define("internal void @learn(ptr %mean_ptr, i64 %begin) nounwind")
    place, begin = c.params
    this = c.call("now") - begin
    mean = _kept(c, place)
    with c.when(mean.eq(0)):
        _keep(c, place, this)
        c.end()
    limited = c.call("llvm.umin.i64", this, mean << 1)
    part = c.new(f"ashr i64 {(limited - mean).text}, 3", "i64")
    _keep(c, place, c.call("llvm.umax.i64", mean + part, 1))
    c.end()


# A region: the context, the slots, the first step, how many there are, the first that failed, its
# status, and on another cache line the next one to run, and a lock.
_CTX, _SLOTS, _FIRST, _COUNT, _FAILED, _STATUS, _NEXT, _LOCK = 0, 8, 16, 24, 32, 40, 64, 72


def _run_together(m: Module) -> None:
    """Run kernels at the same time.

    Whether that is faster is measured: the record of the second step, which the walk never comes
    to, holds the mean time of its kernels in turn and together. Of 256 calls one goes in turn and
    four together, of which the first may have to wake threads. Results are the same either way.
    """
    c = m.define("internal i32 @run_together(ptr %ctx, ptr %slots, i64 %first, i64 %count, "
                 "i64 %eager, ptr %status) noinline nounwind")  # fmt: skip
    ctx, slots, first, count, eager, status = c.params
    region = c.alloca("[128 x i8]", 64)
    for offset, value in ((_CTX, ctx), (_SLOTS, slots), (_FIRST, first), (_COUNT, count),
                          (_FAILED, count), (_STATUS, status), (_NEXT, 0)):
        c.store(region, offset, value)
    c.store(region, _LOCK, 0, "i32")
    record = c.at(c.load(ctx, "ctx.steps"), (first + 1) * STEP_WORDS, "i64")
    apart_at, joint_at = c.at(record, 6, "i64"), c.at(record, 7, "i64")
    apart, joint = _kept(c, apart_at), _kept(c, joint_at)
    phase, begin = _kept(c, c.at(ctx, "ctx.calls")) & 255, c.call("now")
    # What a group leaves in another thread's cache costs who reads it: an eighth has to be gained.
    worse = (joint + (joint >> 3)).test("uge", apart) & apart.ne(0)
    avoided = phase.eq(128) | (worse & phase.test("uge", 4))
    c.leave(eager.ne(1) & avoided, "alone")
    ready = c.call("weft_pool_awake", count, returns="i32").ne(0)
    c.need(c.call("is_shared", ready, eager), "alone")
    c.call("weft_parallel_for", c.symbol("take_steps"), region, count, returns="void")
    with c.when(ready):
        c.call("learn", joint_at, begin)
    c.goto("done")
    c.begin("alone")
    c.call("take_steps", region, 0, count)
    c.call("learn", apart_at, begin)
    _keep(c, c.symbol("ended_alone"), c.call("now"))
    c.begin("done")
    with c.when(c.load(region, _FAILED, "i64").eq(count)):
        c.ret(0, "i32")
    c.ret(c.load(status, 0, "i32"))


def _take_steps(m: Module) -> None:
    """Run the kernels of a region that no other thread has taken."""
    c = m.define("internal void @take_steps(ptr %region, i64 %begin, i64 %end) nounwind")
    region = c.params[0]
    status, ctx = c.alloca("[4 x i64]"), c.load(region, _CTX)
    first, count = c.load(region, _FIRST, "i64"), c.load(region, _COUNT, "i64")
    places = Places(c, ctx, c.load(region, _SLOTS))
    words = c.load(ctx, "ctx.frame_words", "i64") - places.first_buffer
    buffers = c.new(f"alloca i64, i64 {words.text}, align 16", "ptr")
    kvars = c.at(buffers, places.first_kernel_variable - places.first_buffer, "i64")
    following = c.at(region, _NEXT)
    c.begin("take")
    i = c.fetch("add", following, 1, "monotonic", "i64")
    c.need(i < count, "done")
    step = first + i
    record = places.record(step)
    places.bind(record, buffers, kvars)
    clear(c, status)
    code = c.call(c.word(record, 1, "ptr"), buffers, kvars, status, returns="i32")
    c.leave(code.eq(0), "take")
    c.call("blame", step, code, status)
    c.call("tell", region, i, status)
    c.goto("take")
    c.begin("done")
    c.end()


def _tell(m: Module) -> None:
    """Keep the status of a failed step unless an earlier one failed, too."""
    c = m.define("internal void @tell(ptr %region, i64 %i, ptr %status) noinline nounwind")
    region, i, status = c.params
    lock = c.at(region, _LOCK)
    c.begin("acquire")
    c.need(c.swap(lock, 0, 1, "acquire"), "acquire")
    with c.when(i < c.load(region, _FAILED, "i64")):
        c.store(region, _FAILED, i)
        c.call("llvm.memmove.p0.p0.i64", c.load(region, _STATUS), status, 32,
               c.constant("false", "i1"))  # fmt: skip
    c.store(lock, 0, c.constant(0, "i32"), order="release")
    c.end()
