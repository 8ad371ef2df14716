"""The regions of the thread pool as LLVM IR text: posting, working, taking over, waiting.

``$NAME$`` stands for a number that `threads.source` fills in. `thread_lifecycle` starts and stops
the workers; `thread_sleep` has what depends on the platform: ``wait``, ``wake``,
``prepare_sleep`` and ``make_state``.
"""

from typing import Final

__all__ = ["POOL", "SERIAL"]

SERIAL: Final = """
define void @weft_parallel_for(ptr %fn, ptr %env, i64 %n) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %fn(ptr %env, i64 0, i64 %n)
  br label %done
done:
  ret void
}
define i32 @weft_pool_init(i32 %threads, i32 %spin) nounwind { ret i32 1 }
define i32 @weft_pool_threads() nounwind { ret i32 1 }
define i32 @weft_pool_workers() nounwind { ret i32 0 }
define i32 @weft_pool_awake(i64 %n) nounwind { ret i32 0 }
define void @weft_pool_shutdown() nounwind { ret void }
"""

POOL: Final = """
@threads = internal global i32 1
@spins = internal global i32 0
@state = internal global ptr null
@owner = internal global i32 0
@check_owner = internal global i32 0
@static_state = internal global [$STATE_BYTES$ x i8] zeroinitializer, align 128

declare i32 @getpid()
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i64 @llvm.smax.i64(i64, i64)
$PAUSE_DECLARATION$

define internal i64 @chunk_begin(i64 %n, i64 %parts, i64 %c) alwaysinline nounwind {
  %q = udiv i64 %n, %parts
  %r = urem i64 %n, %parts
  %base = mul i64 %q, %c
  %extra = call i64 @llvm.smin.i64(i64 %c, i64 %r)
  %begin = add i64 %base, %extra
  ret i64 %begin
}

; Run chunks [first, parts) here, with the very bounds that the workers would have had.
define internal void @run_chunks(ptr %fn, ptr %env, i64 %n, i64 %parts, i64 %first) nounwind {
entry:
  %begin0 = call i64 @chunk_begin(i64 %n, i64 %parts, i64 %first)
  br label %loop
loop:
  %c = phi i64 [ %first, %entry ], [ %next, %body ]
  %begin = phi i64 [ %begin0, %entry ], [ %end, %body ]
  %more = icmp slt i64 %c, %parts
  br i1 %more, label %body, label %done
body:
  %next = add i64 %c, 1
  %end = call i64 @chunk_begin(i64 %n, i64 %parts, i64 %next)
  call void %fn(ptr %env, i64 %begin, i64 %end)
  br label %loop
done:
  ret void
}

define void @weft_parallel_for(ptr %fn, ptr %env, i64 %n) nounwind {
entry:
  %threads32 = load atomic i32, ptr @threads monotonic, align 4
  %threads = sext i32 %threads32 to i64
  %parts = call i64 @llvm.smin.i64(i64 %n, i64 %threads)
  %several = icmp sgt i64 %parts, 1
  br i1 %several, label %check, label %single
single:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %inline, label %done
inline:
  call void %fn(ptr %env, i64 0, i64 %n)
  ret void
check:
  %state = load ptr, ptr @state, align 8
  %must_check = load i32, ptr @check_owner, align 4
  %trusted = icmp eq i32 %must_check, 0
  br i1 %trusted, label %take, label %adopt
adopt:
  %adopted = call i1 @adopt_state()
  br i1 %adopted, label %take, label %serial
take:
  %busy = getelementptr i8, ptr %state, i64 $BUSY$
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %taken, 1
  br i1 %won, label %region, label %serial
serial:
  call void @run_chunks(ptr %fn, ptr %env, i64 %n, i64 %parts, i64 0)
  ret void
region:
  %wanted64 = sub i64 %parts, 1
  %wanted = trunc i64 %wanted64 to i32
  %started_ptr = getelementptr i8, ptr %state, i64 $STARTED$
  %started = load i32, ptr %started_ptr, align 4
  %enough = icmp sge i32 %started, %wanted
  br i1 %enough, label %post, label %start
start:
  call void @start_workers(ptr %state, i32 %wanted)
  br label %post
post:
  %ready = load i32, ptr %started_ptr, align 4
  %workers = call i32 @llvm.smin.i32(i32 %ready, i32 %wanted)
  %workers64 = sext i32 %workers to i64
  %pending = getelementptr i8, ptr %state, i64 $PENDING$
  store atomic i32 %workers, ptr %pending monotonic, align 4
  %end0 = call i64 @chunk_begin(i64 %n, i64 %parts, i64 1)
  br label %post_loop
post_loop:
  %c = phi i64 [ 1, %post ], [ %c1, %post_next ]
  %begin = phi i64 [ %end0, %post ], [ %end, %post_next ]
  %more = icmp sle i64 %c, %workers64
  br i1 %more, label %post_body, label %own
post_body:
  %c1 = add i64 %c, 1
  %end = call i64 @chunk_begin(i64 %n, i64 %parts, i64 %c1)
  call void @post(ptr %state, i64 %c, ptr %fn, ptr %env, i64 %begin, i64 %end)
  br label %post_next
post_next:
  br label %post_loop
own:
  call void %fn(ptr %env, i64 0, i64 %end0)
  %all = icmp eq i64 %workers64, %wanted64
  br i1 %all, label %wait, label %rest
rest:
  call void @run_chunks(ptr %fn, ptr %env, i64 %n, i64 %parts, i64 %c)
  br label %wait
wait:
  br label %glance
glance:
  %g = phi i32 [ 0, %wait ], [ %g1, %glance_again ]
  %left0 = load atomic i32, ptr %pending acquire, align 4
  %finished0 = icmp eq i32 %left0, 0
  br i1 %finished0, label %leave, label %glance_again
glance_again:
  $PAUSE$
  %g1 = add i32 %g, 1
  %glance_on = icmp slt i32 %g1, $GLANCES$
  br i1 %glance_on, label %glance, label %help
help:
  ; A worker that sleeps, or has lost its CPU, has not begun: rather than wait, take its chunk.
  call void @take_chunks(ptr %state, i64 %workers64)
  %limit = load i32, ptr @spins, align 4
  br label %spin
spin:
  %k = phi i32 [ 0, %help ], [ %k1, %pause ]
  %left = load atomic i32, ptr %pending acquire, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %leave, label %pause
pause:
  $PAUSE$
  %k1 = add i32 %k, 1
  %again = icmp slt i32 %k1, %limit
  br i1 %again, label %spin, label %sleep
sleep:
  call void @sleep_until_done(ptr %state)
  br label %leave
leave:
  store atomic i32 0, ptr %busy release, align 4
  br label %done
done:
  ret void
}

; Whether the last worker that a region of n iterations uses looks for work at this moment.
define i32 @weft_pool_awake(i64 %n) nounwind {
entry:
  %threads32 = load atomic i32, ptr @threads monotonic, align 4
  %threads = sext i32 %threads32 to i64
  %parts = call i64 @llvm.smin.i64(i64 %n, i64 %threads)
  %last = sub i64 %parts, 1
  %several = icmp sgt i64 %last, 0
  br i1 %several, label %look, label %no
look:
  %state = load ptr, ptr @state, align 8
  %started_ptr = getelementptr i8, ptr %state, i64 $STARTED$
  %started32 = load atomic i32, ptr %started_ptr monotonic, align 4
  %started = sext i32 %started32 to i64
  %exists = icmp sge i64 %started, %last
  br i1 %exists, label %ask, label %no
ask:
  %offset = mul i64 %last, $SLOT_BYTES$
  %offset1 = add i64 %offset, $SLOTS$
  %slot = getelementptr i8, ptr %state, i64 %offset1
  %sleeping_ptr = getelementptr i8, ptr %slot, i64 4
  %sleeping = load atomic i32, ptr %sleeping_ptr monotonic, align 4
  %awake = icmp eq i32 %sleeping, 0
  %answer = zext i1 %awake to i32
  ret i32 %answer
no:
  ret i32 0
}

define internal void @post(
    ptr %state, i64 %c, ptr %fn, ptr %env, i64 %begin, i64 %end) alwaysinline nounwind {
  %offset = mul i64 %c, $SLOT_BYTES$
  %offset1 = add i64 %offset, $SLOTS$
  %slot = getelementptr i8, ptr %state, i64 %offset1
  %fn_ptr = getelementptr i8, ptr %slot, i64 8
  %env_ptr = getelementptr i8, ptr %slot, i64 16
  %begin_ptr = getelementptr i8, ptr %slot, i64 24
  %end_ptr = getelementptr i8, ptr %slot, i64 32
  store ptr %fn, ptr %fn_ptr, align 8
  store ptr %env, ptr %env_ptr, align 8
  store i64 %begin, ptr %begin_ptr, align 8
  store i64 %end, ptr %end_ptr, align 8
  ; The pair (epoch, sleeping) is Dekker's: we raise the epoch and then look whether the worker
  ; sleeps, it says that it sleeps and then looks at the epoch.
  %old = atomicrmw add ptr %slot, i32 1 seq_cst
  %sleeping_ptr = getelementptr i8, ptr %slot, i64 4
  %sleeping = load atomic i32, ptr %sleeping_ptr seq_cst, align 4
  %twice = shl i32 %old, 1
  %mark = or i32 %twice, 1
  %asleep = icmp eq i32 %sleeping, %mark
  br i1 %asleep, label %wake, label %done
wake:
  ; One wake for one sleep: it costs more than a short region, and the worker may be slow to come.
  ; The mark holds the epoch that the sleeper waits to see the end of. Any other mark is of one
  ; that has seen our epoch and sleeps again, or is about to look: to wipe that out would lose it.
  %cleared = cmpxchg ptr %sleeping_ptr, i32 %mark, i32 0 seq_cst monotonic
  %ours = extractvalue { i32, i1 } %cleared, 1
  br i1 %ours, label %call, label %done
call:
  %cpu = call i32 @current_cpu()
  %waker = getelementptr i8, ptr %state, i64 $WAKER$
  store atomic i32 %cpu, ptr %waker monotonic, align 4
  call void @wake(ptr %slot)
  br label %done
done:
  ret void
}

; A chunk belongs to whoever moves `claim` from the epoch before to its own; true: we did. Later
; epochs cannot come before this chunk is done, so a late claim of an old epoch always fails.
define internal i1 @claim(ptr %slot, i32 %epoch) alwaysinline nounwind {
  %claim = getelementptr i8, ptr %slot, i64 44
  %before = sub i32 %epoch, 1
  %pair = cmpxchg ptr %claim, i32 %before, i32 %epoch acq_rel monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  ret i1 %won
}

define internal void @take_chunks(ptr %state, i64 %workers) noinline nounwind {
entry:
  %pending = getelementptr i8, ptr %state, i64 $PENDING$
  br label %loop
loop:
  %c = phi i64 [ %workers, %entry ], [ %c1, %next ]
  %more = icmp sgt i64 %c, 0
  br i1 %more, label %look, label %done
look:
  %c1 = sub i64 %c, 1
  %left = load atomic i32, ptr %pending monotonic, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %done, label %try
try:
  %offset = mul i64 %c, $SLOT_BYTES$
  %offset1 = add i64 %offset, $SLOTS$
  %slot = getelementptr i8, ptr %state, i64 %offset1
  %epoch = load atomic i32, ptr %slot monotonic, align 4
  %won = call i1 @claim(ptr %slot, i32 %epoch)
  br i1 %won, label %run, label %next
run:
  %fn_ptr = getelementptr i8, ptr %slot, i64 8
  %env_ptr = getelementptr i8, ptr %slot, i64 16
  %begin_ptr = getelementptr i8, ptr %slot, i64 24
  %end_ptr = getelementptr i8, ptr %slot, i64 32
  %fn = load ptr, ptr %fn_ptr, align 8
  %env = load ptr, ptr %env_ptr, align 8
  %begin = load i64, ptr %begin_ptr, align 8
  %end = load i64, ptr %end_ptr, align 8
  call void %fn(ptr %env, i64 %begin, i64 %end)
  %old = atomicrmw sub ptr %pending, i32 1 acq_rel
  br label %next
next:
  br label %loop
done:
  ret void
}

define internal void @sleep_until_done(ptr %state) noinline nounwind {
entry:
  %pending = getelementptr i8, ptr %state, i64 $PENDING$
  %waiter = getelementptr i8, ptr %state, i64 $WAITER$
  store atomic i32 1, ptr %waiter seq_cst, align 4
  br label %look
look:
  %left = load atomic i32, ptr %pending seq_cst, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %done, label %sleep
sleep:
  call void @wait(ptr %pending, i32 %left)
  br label %look
done:
  store atomic i32 0, ptr %waiter seq_cst, align 4
  ret void
}

define internal ptr @worker(ptr %slot) nounwind {
entry:
  %state = load ptr, ptr @state, align 8
  %pending = getelementptr i8, ptr %state, i64 $PENDING$
  %waiter = getelementptr i8, ptr %state, i64 $WAITER$
  %waker = getelementptr i8, ptr %state, i64 $WAKER$
  %sleeping = getelementptr i8, ptr %slot, i64 4
  %fn_ptr = getelementptr i8, ptr %slot, i64 8
  %env_ptr = getelementptr i8, ptr %slot, i64 16
  %begin_ptr = getelementptr i8, ptr %slot, i64 24
  %end_ptr = getelementptr i8, ptr %slot, i64 32
  %seen_ptr = getelementptr i8, ptr %slot, i64 40
  %seen0 = load i32, ptr %seen_ptr, align 4
  br label %idle
idle:
  %seen = phi i32 [ %seen0, %entry ], [ %epoch, %idle_again ]
  %limit = load i32, ptr @spins, align 4
  br label %spin
spin:
  %k = phi i32 [ 0, %idle ], [ %k1, %pause ]
  %epoch1 = load atomic i32, ptr %slot acquire, align 4
  %fresh1 = icmp ne i32 %epoch1, %seen
  br i1 %fresh1, label %work, label %pause
pause:
  $PAUSE$
  %k1 = add i32 %k, 1
  %again = icmp slt i32 %k1, %limit
  br i1 %again, label %spin, label %sleep
sleep:
  %twice = shl i32 %seen, 1
  %mark = or i32 %twice, 1
  store atomic i32 %mark, ptr %sleeping seq_cst, align 4
  br label %look
look:
  %epoch2 = load atomic i32, ptr %slot seq_cst, align 4
  %fresh2 = icmp ne i32 %epoch2, %seen
  br i1 %fresh2, label %awake, label %doze
doze:
  call void @wait(ptr %slot, i32 %seen)
  br label %look
awake:
  store atomic i32 0, ptr %sleeping monotonic, align 4
  ; A kernel that takes the sleeping CPU of a virtual machine for a busy one wakes us on the CPU of
  ; our caller, and leaves us there: each would run while the other waits.
  %own = call i32 @current_cpu()
  %callers = load atomic i32, ptr %waker monotonic, align 4
  %shared = icmp eq i32 %own, %callers
  %alone = icmp ne i32 %limit, 0
  %leave = and i1 %shared, %alone
  br i1 %leave, label %move, label %work
move:
  call void @leave_cpu(i32 %own)
  br label %work
work:
  %epoch = phi i32 [ %epoch1, %spin ], [ %epoch2, %awake ], [ %epoch2, %move ]
  %mine = call i1 @claim(ptr %slot, i32 %epoch)
  br i1 %mine, label %claimed, label %idle_again
claimed:
  %fn = load ptr, ptr %fn_ptr, align 8
  %stop = icmp eq ptr %fn, null
  br i1 %stop, label %exit, label %run
run:
  %env = load ptr, ptr %env_ptr, align 8
  %begin = load i64, ptr %begin_ptr, align 8
  %end = load i64, ptr %end_ptr, align 8
  call void %fn(ptr %env, i64 %begin, i64 %end)
  %before = atomicrmw sub ptr %pending, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %tell, label %idle_again
tell:
  %waiting = load atomic i32, ptr %waiter seq_cst, align 4
  %sleeper = icmp ne i32 %waiting, 0
  br i1 %sleeper, label %rouse, label %idle_again
rouse:
  call void @wake(ptr %pending)
  br label %idle_again
idle_again:
  br label %idle
exit:
  ret ptr null
}
"""
