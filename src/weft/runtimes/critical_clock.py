"""How long calls take, one by one, measured without Python in between; as LLVM IR text.

``weft_ticks()`` reads the clock: the processor's counter where a program may, else the system's
monotonic clock. ``weft_time_frame(frame, words, results, n, samples)`` calls a frame
(`weft.runtimes.critical_ir`) n times, ``weft_time_call(callable, args, nargs, n, samples)`` a
Python object; each stores the ticks of every call and returns how many calls failed, the second
one at the first of them. ``weft_mean_frame(frame, words, results, n)`` and
``weft_mean_call(callable, args, nargs, n)`` return the ticks of n calls in a row.
``weft_sealed(frame, words, results, n)`` forbids the process every system call but read, write,
exit and the return from a signal (strict mode of seccomp), calls the frame n times and ends the
process: with 0, with 1 if a call failed, with 2 if nothing was forbidden.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

__all__ = ["SYMBOLS", "source"]

SYMBOLS: Final = ("weft_mean_call", "weft_mean_frame", "weft_nothing", "weft_sealed", "weft_ticks",
                  "weft_time_call", "weft_time_frame")  # fmt: skip
_EXIT: Final = {"x86_64": 60, "AMD64": 60, "aarch64": 93, "arm64": 93}


def source() -> str:
    """Return the module for this machine."""
    machine = platform.machine()
    counter = machine in ("x86_64", "AMD64")
    text = _CALLS + _MEANS + (_COUNTER if counter else _CLOCK)
    text = text.replace("$CLOCK$", "1" if sys.platform == "linux" else "6")  # CLOCK_MONOTONIC
    return text + (_SEALED if sys.platform == "linux" else _UNSEALED).replace(
        "$EXIT$", str(_EXIT.get(machine, 93)))


_CALLS: Final = """
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)

define i64 @weft_ticks() nounwind {
  %t = call i64 @now()
  ret i64 %t
}

define i32 @weft_nothing(ptr %words, ptr %results, ptr %failure) noinline nounwind {
  ret i32 0
}

define i64 @weft_time_frame(ptr %frame, ptr %words, ptr %results, i64 %n, ptr %samples) nounwind {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %bad = phi i64 [ 0, %entry ], [ %bad1, %loop ]
  %t0 = call i64 @now()
  %code = call i32 %frame(ptr %words, ptr %results, ptr null)
  %t1 = call i64 @now()
  %d = sub i64 %t1, %t0
  %at = getelementptr i64, ptr %samples, i64 %i
  store i64 %d, ptr %at
  %failed = icmp ne i32 %code, 0
  %one = zext i1 %failed to i64
  %bad1 = add i64 %bad, %one
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  %all = phi i64 [ 0, %entry ], [ %bad1, %loop ]
  ret i64 %all
}

define i64 @weft_time_call(ptr %callable, ptr %args, i64 %nargs, i64 %n, ptr %samples) nounwind {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %t0 = call i64 @now()
  %result = call ptr @PyObject_Vectorcall(ptr %callable, ptr %args, i64 %nargs, ptr null)
  %t1 = call i64 @now()
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %out, label %next
next:
  call void @Py_DecRef(ptr %result)
  %d = sub i64 %t1, %t0
  %at = getelementptr i64, ptr %samples, i64 %i
  store i64 %d, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %end
out:
  ret i64 1
end:
  ret i64 0
}
"""

_MEANS: Final = """
define i64 @weft_mean_frame(ptr %frame, ptr %words, ptr %results, i64 %n) nounwind {
entry:
  %t0 = call i64 @now()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %code = call i32 %frame(ptr %words, ptr %results, ptr null)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  %t1 = call i64 @now()
  %d = sub i64 %t1, %t0
  ret i64 %d
}

define i64 @weft_mean_call(ptr %callable, ptr %args, i64 %nargs, i64 %n) nounwind {
entry:
  %t0 = call i64 @now()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %result = call ptr @PyObject_Vectorcall(ptr %callable, ptr %args, i64 %nargs, ptr null)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %end, label %next
next:
  call void @Py_DecRef(ptr %result)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  %t1 = call i64 @now()
  %d = sub i64 %t1, %t0
  ret i64 %d
}
"""

# The fences keep what is measured between the two readings (Intel SDM volume 2, RDTSC).
_COUNTER: Final = """
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse2.lfence()
define internal i64 @now() alwaysinline nounwind {
  call void @llvm.x86.sse2.lfence()
  %t = call i64 @llvm.readcyclecounter()
  call void @llvm.x86.sse2.lfence()
  ret i64 %t
}
"""

_CLOCK: Final = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  %e = call i32 @clock_gettime(i32 $CLOCK$, ptr %time)
  %s = load i64, ptr %time
  %at = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %at
  %scaled = mul i64 %s, 1000000000
  %t = add i64 %scaled, %ns
  ret i64 %t
}
"""

# 22: PR_SET_SECCOMP, 1: SECCOMP_MODE_STRICT. exit ends the thread, which is all that a fork has;
# exit_group, which the C library's exit calls, is forbidden.
_SEALED: Final = """
declare i32 @prctl(i32, ...)
declare i64 @syscall(i64, ...)
define i64 @weft_sealed(ptr %frame, ptr %words, ptr %results, i64 %n) nounwind {
entry:
  %no = call i32 (i32, ...) @prctl(i32 22, i64 1, i64 0, i64 0, i64 0)
  %open = icmp ne i32 %no, 0
  br i1 %open, label %leave, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %bad = phi i64 [ 0, %entry ], [ %bad1, %loop ]
  %code = call i32 %frame(ptr %words, ptr %results, ptr null)
  %failed = icmp ne i32 %code, 0
  %bad1 = select i1 %failed, i64 1, i64 %bad
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %leave
leave:
  %status = phi i64 [ 2, %entry ], [ %bad1, %loop ]
  %never = call i64 (i64, ...) @syscall(i64 $EXIT$, i64 %status)
  ret i64 %never
}
"""

_UNSEALED: Final = """
define i64 @weft_sealed(ptr %frame, ptr %words, ptr %results, i64 %n) nounwind {
  ret i64 2
}
"""
