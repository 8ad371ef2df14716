"""The life of the thread pool as LLVM IR text: set up, start, adopt after a fork, end."""

from typing import Final

__all__ = ["LIFECYCLE"]

LIFECYCLE: Final = """
; Called with the pool taken. A thread that cannot be created leaves its chunks to the caller.
define internal void @start_workers(ptr %state, i32 %wanted) noinline nounwind {
entry:
  %attributes = alloca [256 x i8], align 16
  %blocked = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %e0 = call i32 @pthread_attr_init(ptr %attributes)
  %e1 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK_BYTES$)
  %e2 = call i32 @sigfillset(ptr %blocked)
  ; What a fault of the worker itself raises stays open: SIGILL, SIGFPE, SIGSEGV, SIGBUS.
  %e3 = call i32 @sigdelset(ptr %blocked, i32 4)
  %e4 = call i32 @sigdelset(ptr %blocked, i32 8)
  %e5 = call i32 @sigdelset(ptr %blocked, i32 11)
  %e6 = call i32 @sigdelset(ptr %blocked, i32 $SIGBUS$)
  %e7 = call i32 @pthread_sigmask(i32 $SIG_BLOCK$, ptr %blocked, ptr %before)
  %started = getelementptr i8, ptr %state, i64 $STARTED$
  br label %loop
loop:
  %count = load i32, ptr %started, align 4
  %more = icmp slt i32 %count, %wanted
  br i1 %more, label %create, label %done
create:
  %number = add i32 %count, 1
  %number64 = sext i32 %number to i64
  %offset = mul i64 %number64, $SLOT_BYTES$
  %offset1 = add i64 %offset, $SLOTS$
  %slot = getelementptr i8, ptr %state, i64 %offset1
  %epoch = load i32, ptr %slot, align 4
  %sleeping = getelementptr i8, ptr %slot, i64 4
  store i32 0, ptr %sleeping, align 4
  %seen = getelementptr i8, ptr %slot, i64 40
  store i32 %epoch, ptr %seen, align 4
  %handle = getelementptr i8, ptr %slot, i64 64
  %failed = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @worker, ptr %slot)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %created, label %done
created:
  store i32 %number, ptr %started, align 4
  br label %loop
done:
  %e8 = call i32 @pthread_sigmask(i32 $SIG_SETMASK$, ptr %before, ptr null)
  %e9 = call i32 @pthread_attr_destroy(ptr %attributes)
  ret void
}

; For kernels without MADV_WIPEONFORK. True: the state is this process's own. One thread of a
; forked child clears it while the others, if any, run their regions inline.
define internal i1 @adopt_state() noinline nounwind {
entry:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %pid, %owner
  br i1 %ours, label %yes, label %foreign
foreign:
  %being_cleared = icmp eq i32 %owner, -1
  br i1 %being_cleared, label %no, label %claim
claim:
  %pair = cmpxchg ptr @owner, i32 %owner, i32 -1 acq_rel monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %clear, label %no
clear:
  %state = load ptr, ptr @state, align 8
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 $STATE_BYTES$, i1 false)
  call void @prepare_sleep()
  store atomic i32 %pid, ptr @owner release, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i64 @now() nounwind {
  %time = alloca [2 x i64], align 8
  %e = call i32 @clock_gettime(i32 $CLOCK$, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %ns_ptr = getelementptr i8, ptr %time, i64 8
  %ns = load i64, ptr %ns_ptr, align 8
  %s = mul i64 %seconds, 1000000000
  %t = add i64 %s, %ns
  ret i64 %t
}

; A pause lasts 10 to 140 cycles depending on the processor, so its duration is measured: the least
; of several times, for the first reading of a clock is slow, and any may be interrupted.
define internal i32 @measure_spins() noinline nounwind {
entry:
  br label %turn
turn:
  %turn_number = phi i32 [ 0, %entry ], [ %turn_number1, %done ]
  %least = phi i64 [ 1000000000, %entry ], [ %ns, %done ]
  %t0 = call i64 @now()
  br label %loop
loop:
  %k = phi i32 [ 0, %turn ], [ %k1, %loop ]
  $PAUSE$
  %k1 = add i32 %k, 1
  %more = icmp slt i32 %k1, 64
  br i1 %more, label %loop, label %done
done:
  %t1 = call i64 @now()
  %this = sub i64 %t1, %t0
  %ns = call i64 @llvm.smin.i64(i64 %least, i64 %this)
  %turn_number1 = add i32 %turn_number, 1
  %again = icmp slt i32 %turn_number1, 12
  br i1 %again, label %turn, label %found
found:
  %positive = call i64 @llvm.smax.i64(i64 %ns, i64 1)
  %total = mul i64 $SPIN_NS$, 64
  %count = udiv i64 %total, %positive
  %count32 = trunc i64 %count to i32
  %low = call i32 @llvm.smax.i32(i32 %count32, i32 100)
  %high = call i32 @llvm.smin.i32(i32 %low, i32 10000)
  ret i32 %high
}

; Set the number of threads, the caller included; returns what was set. Workers start when a
; region first needs them. Spinning is for threads that have a CPU of their own: `spin` 0 sleeps
; at once.
define i32 @weft_pool_init(i32 %wanted, i32 %spin) nounwind {
entry:
  %state = load ptr, ptr @state, align 8
  %fresh = icmp eq ptr %state, null
  br i1 %fresh, label %make, label %set
make:
  call void @prepare_sleep()
  call void @make_state()
  br label %set
set:
  %idle = icmp eq i32 %spin, 0
  br i1 %idle, label %store, label %measure
measure:
  %measured = call i32 @measure_spins()
  br label %store
store:
  %spins = phi i32 [ 0, %set ], [ %measured, %measure ]
  store i32 %spins, ptr @spins, align 4
  %low = call i32 @llvm.smax.i32(i32 %wanted, i32 1)
  %count = call i32 @llvm.smin.i32(i32 %low, i32 $MAX_THREADS$)
  store atomic i32 %count, ptr @threads release, align 4
  ret i32 %count
}

define i32 @weft_pool_threads() nounwind {
  %count = load atomic i32, ptr @threads acquire, align 4
  ret i32 %count
}

define i32 @weft_pool_workers() nounwind {
  %state = load ptr, ptr @state, align 8
  %started = getelementptr i8, ptr %state, i64 $STARTED$
  %count = load i32, ptr %started, align 4
  ret i32 %count
}

; Join all workers. The next region starts new ones. Must not be called from inside a region.
define void @weft_pool_shutdown() nounwind {
entry:
  %state = load ptr, ptr @state, align 8
  %must_check = load i32, ptr @check_owner, align 4
  %trusted = icmp eq i32 %must_check, 0
  br i1 %trusted, label %take, label %adopt
adopt:
  %adopted = call i1 @adopt_state()
  br i1 %adopted, label %take, label %leave
take:
  %busy = getelementptr i8, ptr %state, i64 $BUSY$
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %taken, 1
  br i1 %won, label %stop, label %yield
yield:
  %e0 = call i32 @sched_yield()
  br label %take
stop:
  %started = getelementptr i8, ptr %state, i64 $STARTED$
  %count = load i32, ptr %started, align 4
  %count64 = sext i32 %count to i64
  br label %loop
loop:
  %c = phi i64 [ 1, %stop ], [ %c1, %join ]
  %more = icmp sle i64 %c, %count64
  br i1 %more, label %join, label %done
join:
  %c1 = add i64 %c, 1
  call void @post(ptr %state, i64 %c, ptr null, ptr null, i64 0, i64 0)
  %offset = mul i64 %c, $SLOT_BYTES$
  %offset1 = add i64 %offset, $SLOTS$
  %slot = getelementptr i8, ptr %state, i64 %offset1
  %handle_ptr = getelementptr i8, ptr %slot, i64 64
  %handle = load i64, ptr %handle_ptr, align 8
  %e1 = call i32 @pthread_join(i64 %handle, ptr null)
  br label %loop
done:
  store i32 0, ptr %started, align 4
  store atomic i32 0, ptr %busy release, align 4
  br label %leave
leave:
  ret void
}
"""
