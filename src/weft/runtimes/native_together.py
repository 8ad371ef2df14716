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

__all__ = ["TOGETHER", "words"]

# Groups that follow each other within less keep the threads awake (they sleep after 50 µs); waking
# them, some 10 µs, is worth it when that has gone on for a while.
_SOON_NS: Final = 30_000
_SOON_TICKS: Final = 60_000
_LONG_NS: Final = 100_000
_LONG_TICKS: Final = 250_000
_MOST_PATIENCE: Final = 32  # times that, where waking has not paid


def words(has_counter: bool) -> dict[str, int]:
    """Return the numbers that the text names, in ticks of a counter or in nanoseconds."""
    long = _LONG_TICKS if has_counter else _LONG_NS
    return {"LONG": long, "LONGEST": _MOST_PATIENCE * long,
            "SOON": _SOON_TICKS if has_counter else _SOON_NS}


# It stands behind the functions of `weft.runtimes.native_ir`, whose `field`, `bind`, `blame` and
# `now` it calls.
TOGETHER: Final = """
@ended_alone = internal global i64 0  ; when the last such group ended
@alone_since = internal global i64 0  ; when the first of those began that followed each other soon
@patience = internal global i64 $LONG$  ; for how long they have to before threads are woken

; Whether threads shall help with kernels that may run at the same time. Where threads that were
; woken soon sleep again, as on a processor that others use, they are woken ever more rarely.
define internal i1 @is_shared(i1 %ready, i64 %eager) nounwind {
entry:
  %worth = icmp eq i64 %eager, 1
  br i1 %worth, label %yes, label %look
look:
  %patience = load atomic i64, ptr @patience monotonic, align 8
  br i1 %ready, label %calm, label %ask
calm:
  %careful = icmp ugt i64 %patience, $LONG$
  br i1 %careful, label %relax, label %yes
relax:
  %less = lshr i64 %patience, 4
  %relaxed = sub i64 %patience, %less
  store atomic i64 %relaxed, ptr @patience monotonic, align 8
  br label %yes
ask:
  %t = call i64 @now()
  %last = load atomic i64, ptr @ended_alone monotonic, align 8
  %gap = sub i64 %t, %last
  %soon = icmp ult i64 %gap, $SOON$
  br i1 %soon, label %again, label %first
first:
  store atomic i64 %t, ptr @alone_since monotonic, align 8
  ret i1 false
again:
  %since = load atomic i64, ptr @alone_since monotonic, align 8
  %while = sub i64 %t, %since
  %long = icmp ugt i64 %while, %patience
  br i1 %long, label %wake, label %no
wake:
  store atomic i64 %t, ptr @alone_since monotonic, align 8
  %twice = shl i64 %patience, 1
  %patient = call i64 @llvm.umin.i64(i64 %twice, i64 $LONGEST$)
  store atomic i64 %patient, ptr @patience monotonic, align 8
  br label %yes
no:
  ret i1 false
yes:
  ret i1 true
}

; Take the time since the beginning into a running mean, in which one slow run counts for little.
define internal void @learn(ptr %mean_ptr, i64 %begin) nounwind {
entry:
  %end = call i64 @now()
  %this = sub i64 %end, %begin
  %mean = load atomic i64, ptr %mean_ptr monotonic, align 8
  %known = icmp ne i64 %mean, 0
  br i1 %known, label %move, label %first
first:
  store atomic i64 %this, ptr %mean_ptr monotonic, align 8
  ret void
move:
  %twice = shl i64 %mean, 1
  %limited = call i64 @llvm.umin.i64(i64 %this, i64 %twice)
  %difference = sub i64 %limited, %mean
  %part = ashr i64 %difference, 3
  %moved = add i64 %mean, %part
  %least = call i64 @llvm.umax.i64(i64 %moved, i64 1)
  store atomic i64 %least, ptr %mean_ptr monotonic, align 8
  ret void
}

; Run kernels at the same time. Whether that is faster is measured: the record of the second step,
; which the walk never comes to, holds the mean time of its kernels in turn and together. Of 256
; calls one goes in turn and four together, of which the first may have to wake threads. Results are
; the same either way. Of the region: the context, the slots, the first step, how many there are,
; the next one to run, a lock, the first that failed, and its status.
define internal i32 @run_together(
    ptr %ctx, ptr %slots, i64 %first, i64 %count, i64 %eager, ptr %status) noinline nounwind {
entry:
  %region = alloca [128 x i8], align 64
  %r8 = getelementptr i8, ptr %region, i64 8
  %r16 = getelementptr i8, ptr %region, i64 16
  %r24 = getelementptr i8, ptr %region, i64 24
  %failed_ptr = getelementptr i8, ptr %region, i64 32
  %r40 = getelementptr i8, ptr %region, i64 40
  %next = getelementptr i8, ptr %region, i64 64
  %lock = getelementptr i8, ptr %region, i64 72
  store ptr %ctx, ptr %region, align 8
  store ptr %slots, ptr %r8, align 8
  store i64 %first, ptr %r16, align 8
  store i64 %count, ptr %r24, align 8
  store i64 %count, ptr %failed_ptr, align 8
  store ptr %status, ptr %r40, align 8
  store i64 0, ptr %next, align 8
  store i32 0, ptr %lock, align 4
  %steps_int = call i64 @field(ptr %ctx, i64 $ctx.steps$)
  %steps = inttoptr i64 %steps_int to ptr
  %second = add i64 %first, 1
  %second_offset = mul i64 %second, $STEP_BYTES$
  %record = getelementptr i8, ptr %steps, i64 %second_offset
  %apart_ptr = getelementptr i8, ptr %record, i64 48
  %together_ptr = getelementptr i8, ptr %record, i64 56
  %apart = load atomic i64, ptr %apart_ptr monotonic, align 8
  %joint = load atomic i64, ptr %together_ptr monotonic, align 8
  %calls_ptr = getelementptr i8, ptr %ctx, i64 $ctx.calls$
  %calls = load atomic i64, ptr %calls_ptr monotonic, align 8
  %phase = and i64 %calls, 255
  %begin = call i64 @now()
  %turn_apart = icmp eq i64 %phase, 128
  ; What a group leaves in another thread's cache costs who reads it: an eighth has to be gained.
  %more = lshr i64 %joint, 3
  %weighed = add i64 %joint, %more
  %slower = icmp uge i64 %weighed, %apart
  %measured = icmp ne i64 %apart, 0
  %worse = and i1 %slower, %measured
  %turn_together = icmp ult i64 %phase, 4
  %tries = xor i1 %turn_together, true
  %avoids = and i1 %worse, %tries
  %not_wanted = or i1 %turn_apart, %avoids
  %doubted = icmp ne i64 %eager, 1
  %rejected = and i1 %doubted, %not_wanted
  br i1 %rejected, label %alone, label %ask
ask:
  %awake = call i32 @weft_pool_awake(i64 %count)
  %ready = icmp ne i32 %awake, 0
  %shared = call i1 @is_shared(i1 %ready, i64 %eager)
  br i1 %shared, label %together, label %alone
together:
  call void @weft_parallel_for(ptr @take_steps, ptr %region, i64 %count)
  br i1 %ready, label %learn, label %done
learn:
  call void @learn(ptr %together_ptr, i64 %begin)
  br label %done
alone:
  call void @take_steps(ptr %region, i64 0, i64 %count)
  call void @learn(ptr %apart_ptr, i64 %begin)
  %t = call i64 @now()
  store atomic i64 %t, ptr @ended_alone monotonic, align 8
  br label %done
done:
  %failed = load i64, ptr %failed_ptr, align 8
  %good = icmp eq i64 %failed, %count
  br i1 %good, label %success, label %failure
success:
  ret i32 0
failure:
  %code = load i32, ptr %status, align 4
  ret i32 %code
}

define internal void @take_steps(ptr %region, i64 %begin, i64 %end) nounwind {
entry:
  %status = alloca %status, align 8
  %r8 = getelementptr i8, ptr %region, i64 8
  %r16 = getelementptr i8, ptr %region, i64 16
  %r24 = getelementptr i8, ptr %region, i64 24
  %ctx = load ptr, ptr %region, align 8
  %slots = load ptr, ptr %r8, align 8
  %first = load i64, ptr %r16, align 8
  %count = load i64, ptr %r24, align 8
  %next = getelementptr i8, ptr %region, i64 64
$PLACES$  %words = call i64 @field(ptr %ctx, i64 $ctx.frame_words$)
  %own_words = sub i64 %words, %first_buffer
  %buffers = alloca i64, i64 %own_words, align 16
  %most_buffers = sub i64 %first_kvar, %first_buffer
  %kvars = getelementptr i64, ptr %buffers, i64 %most_buffers
  br label %take
take:
  %i = atomicrmw add ptr %next, i64 1 monotonic
  %more = icmp slt i64 %i, %count
  br i1 %more, label %run, label %done
run:
  %s = add i64 %first, %i
  %step_offset = mul i64 %s, $STEP_BYTES$
  %record = getelementptr i8, ptr %steps, i64 %step_offset
  %fn_int = call i64 @field(ptr %record, i64 8)
  %fn = inttoptr i64 %fn_int to ptr
  call void @bind(ptr %record, ptr %slots, ptr %references, ptr %vrefs, ptr %vars,
                  ptr %buffers, ptr %kvars)
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  %code = call i32 %fn(ptr %buffers, ptr %kvars, ptr %status)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %take, label %failed
failed:
  call void @blame(i64 %s, i32 %code, ptr %status)
  call void @tell(ptr %region, i64 %i, ptr %status)
  br label %take
done:
  ret void
}

; Keep the status of a failed step unless an earlier one failed, too.
define internal void @tell(ptr %region, i64 %i, ptr %status) noinline nounwind {
entry:
  %failed_ptr = getelementptr i8, ptr %region, i64 32
  %r40 = getelementptr i8, ptr %region, i64 40
  %whole = load ptr, ptr %r40, align 8
  %lock = getelementptr i8, ptr %region, i64 72
  br label %acquire
acquire:
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %compare, label %acquire
compare:
  %best = load i64, ptr %failed_ptr, align 8
  %earlier = icmp slt i64 %i, %best
  br i1 %earlier, label %keep, label %release
keep:
  store i64 %i, ptr %failed_ptr, align 8
  call void @llvm.memmove.p0.p0.i64(ptr %whole, ptr %status, i64 32, i1 false)
  br label %release
release:
  store atomic i32 0, ptr %lock release, align 4
  ret void
}
"""
