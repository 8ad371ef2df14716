"""How threads of the pool sleep and where its state lies, as LLVM IR text for each platform."""

from typing import Final

__all__ = ["CONDITION", "FUTEX", "STATIC_STATE", "WIPED_STATE"]

FUTEX: Final = """
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal i32 @current_cpu() nounwind {
  %cpu = call i32 @sched_getcpu()
  ret i32 %cpu
}

; Go on where the thread may run besides this CPU, if anywhere, and may then run where it might.
define internal void @leave_cpu(i32 %cpu) noinline nounwind {
entry:
  %mask = alloca [$MASK_BYTES$ x i8], align 8
  %got = call i32 @sched_getaffinity(i32 0, i64 $MASK_BYTES$, ptr %mask)
  %known = icmp sge i32 %got, 0
  %some = icmp ult i32 %cpu, $MASK_BITS$
  %fine = and i1 %known, %some
  br i1 %fine, label %move, label %done
move:
  %byte32 = lshr i32 %cpu, 3
  %byte = zext i32 %byte32 to i64
  %low = and i32 %cpu, 7
  %low8 = trunc i32 %low to i8
  %bit = shl i8 1, %low8
  %at = getelementptr i8, ptr %mask, i64 %byte
  %old = load i8, ptr %at, align 1
  %others = xor i8 %bit, -1
  %less = and i8 %old, %others
  store i8 %less, ptr %at, align 1
  ; No CPU left is an error, after which the thread may run where it might.
  %moved = call i32 @sched_setaffinity(i32 0, i64 $MASK_BYTES$, ptr %mask)
  store i8 %old, ptr %at, align 1
  %restored = call i32 @sched_setaffinity(i32 0, i64 $MASK_BYTES$, ptr %mask)
  br label %done
done:
  ret void
}

define internal void @prepare_sleep() nounwind { ret void }

; FUTEX_WAIT and FUTEX_WAKE, private to the process. A signal or a changed word returns early.
define internal void @wait(ptr %word, i32 %expected) noinline nounwind {
  %e = call i64 (i64, ...) @syscall(
    i64 $FUTEX_CALL$, ptr %word, i32 128, i32 %expected, ptr null, ptr null, i32 0)
  ret void
}
define internal void @wake(ptr %word) noinline nounwind {
  %e = call i64 (i64, ...) @syscall(
    i64 $FUTEX_CALL$, ptr %word, i32 129, i32 1, ptr null, ptr null, i32 0)
  ret void
}
"""

CONDITION: Final = """
define internal i32 @current_cpu() nounwind { ret i32 0 }
define internal void @leave_cpu(i32 %cpu) nounwind { ret void }
@mutex = internal global [256 x i8] zeroinitializer, align 16
@condition = internal global [256 x i8] zeroinitializer, align 16
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @prepare_sleep() nounwind {
  %e0 = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %e1 = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
define internal void @wait(ptr %word, i32 %expected) noinline nounwind {
entry:
  %e0 = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %expected
  br i1 %same, label %sleep, label %done
sleep:
  %e1 = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %look
done:
  %e2 = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wake(ptr %word) noinline nounwind {
  %e0 = call i32 @pthread_mutex_lock(ptr @mutex)
  %e1 = call i32 @pthread_cond_broadcast(ptr @condition)
  %e2 = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""

STATIC_STATE: Final = """
define internal void @make_state() nounwind {
  %pid = call i32 @getpid()
  store i32 %pid, ptr @owner, align 4
  store i32 1, ptr @check_owner, align 4
  store ptr @static_state, ptr @state, align 8
  ret void
}
"""

WIPED_STATE: Final = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)

; PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, MADV_WIPEONFORK (Linux 4.14)
define internal void @make_state() nounwind {
entry:
  %map = call ptr @mmap(ptr null, i64 $STATE_BYTES$, i32 3, i32 34, i32 -1, i64 0)
  %bad = icmp eq ptr %map, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %fallback, label %advise
advise:
  %refused = call i32 @madvise(ptr %map, i64 $STATE_BYTES$, i32 18)
  %wiped = icmp eq i32 %refused, 0
  br i1 %wiped, label %use, label %fallback
use:
  store ptr %map, ptr @state, align 8
  ret void
fallback:
  %pid = call i32 @getpid()
  store i32 %pid, ptr @owner, align 4
  store i32 1, ptr @check_owner, align 4
  store ptr @static_state, ptr @state, align 8
  ret void
}
"""
