"""The executor of native plans as LLVM IR text: a plan is data, so it needs no code of its own.

The context is an array of 64-bit words (`CONTEXT` names them) that points at three tables:

* steps, 8 words each: kind, function, number of buffers, first reference, number of variables,
  first variable reference, bytes, and the variable that multiplies the bytes or -1; of a kernel
  with which a group begins (kind 3), which has no bytes, these words are the number of steps that
  run at the same time from here on, and whether that is worth waking threads for (1);
* references, 2 words each: slot and byte offset, an address being ``slots[slot] + offset``;
* variable references, 2 words each: index of a plan variable, or -1 and a constant.

``slots`` are 0 (so that a constant address is an offset from nothing), the inputs, the outputs,
the arena and the variables, in the order in which the caller passes them.

Kernels that run at the same time are in `weft.runtimes.native_together`.
"""

import platform
import sys
from typing import Final

from weft.runtimes import native_together

__all__ = ["CONTEXT", "FRAME_WORDS", "INTERRUPTED", "STEP_WORDS", "SYMBOLS", "source"]

SYMBOLS: Final = ("weft_call", "weft_plan", "weft_run")

CONTEXT: Final = (
    "nargs",  # arguments of a call: inputs, outputs, arena, variables
    "first_variable",  # slot of the first variable
    "nsteps",
    "steps",
    "references",
    "variables",
    "frame_words",  # slots, buffers and variables of the largest step
    "first_buffer",  # word of the frame where the buffers of a step begin
    "first_kernel_variable",  # word of the frame where the variables of a step begin
    "release_gil",
    "ninputs",
    "noutputs",
    "interruptible",  # steps after which a signal may end the call
    "calls",  # how often the plan was run, as good as threads can count without a lock
)
STEP_WORDS: Final = 8
FRAME_WORDS: Final = 256
INTERRUPTED: Final = -(1 << 31)

# A signal is looked for between two steps, at most this often. The time stamp counter of x86
# costs a third of the clock and runs at 1 to 5 GHz, near enough for 25 to 125 ms.
_SIGNAL_NS: Final = 50_000_000
_SIGNAL_TICKS: Final = 125_000_000


def source() -> str:
    """Return the LLVM IR of the executor.

    ``weft_call`` is a METH_FASTCALL function whose ``self`` is an int, the address of the
    context. ``weft_run(ctx, slots, status)`` is what it does with slots that are filled.
    ``weft_plan(ctx, inputs, outputs, arena, vars, status)`` is the same plan for callers
    without Python, ``arena`` being the address of a word that holds the arena's address.
    """
    words = {f"ctx.{name}": 8 * i for i, name in enumerate(CONTEXT)}
    words["FRAME_WORDS"] = FRAME_WORDS
    words["STEP_BYTES"] = 8 * STEP_WORDS
    words["INTERRUPTED"] = INTERRUPTED
    has_counter = platform.machine() in ("x86_64", "AMD64")
    words["TICKS"] = _SIGNAL_TICKS if has_counter else _SIGNAL_NS
    words |= native_together.words(has_counter)
    words["CLOCK"] = 1 if sys.platform == "linux" else 6  # CLOCK_MONOTONIC
    text = _EXECUTOR + native_together.TOGETHER + (_COUNTER if has_counter else _CLOCK)
    text = text.replace("$PLACES$", _PLACES)
    for name, value in words.items():
        text = text.replace(f"${name}$", str(value))
    return text


# Where the steps of a plan and the words of a call lie; a function that walks them starts so.
_PLACES: Final = """\
  %steps_int = call i64 @field(ptr %ctx, i64 $ctx.steps$)
  %steps = inttoptr i64 %steps_int to ptr
  %references_int = call i64 @field(ptr %ctx, i64 $ctx.references$)
  %references = inttoptr i64 %references_int to ptr
  %vrefs_int = call i64 @field(ptr %ctx, i64 $ctx.variables$)
  %vrefs = inttoptr i64 %vrefs_int to ptr
  %first_variable = call i64 @field(ptr %ctx, i64 $ctx.first_variable$)
  %vars = getelementptr i64, ptr %slots, i64 %first_variable
  %first_buffer = call i64 @field(ptr %ctx, i64 $ctx.first_buffer$)
  %first_kvar = call i64 @field(ptr %ctx, i64 $ctx.first_kernel_variable$)
"""

_EXECUTOR: Final = """
%status = type { i32, i32, i32, i32, i64, i64 }

@weft_none = external global i8
@weft_type_error = external global i8
@wrong_count = private constant [61 x i8]
  c"a native plan takes %zd integers (addresses, sizes), not %zd\\00"
@failure = private constant [6 x i8] c"iiiLL\\00"

declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @weft_int64_of(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyErr_NoMemory()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare ptr @Py_BuildValue(ptr, ...)
declare void @weft_parallel_for(ptr, ptr, i64)
declare i32 @weft_pool_awake(i64)

define internal i64 @field(ptr %ctx, i64 %offset) alwaysinline nounwind {
  %p = getelementptr i8, ptr %ctx, i64 %offset
  %v = load i64, ptr %p, align 8
  ret i64 %v
}

; Take the GIL and let Python handle signals; nonzero: a handler raised.
define internal i32 @handle_signals(ptr %thread) noinline nounwind {
  %saved = load ptr, ptr %thread, align 8
  call void @PyEval_RestoreThread(ptr %saved)
  %raised = call i32 @PyErr_CheckSignals()
  %again = call ptr @PyEval_SaveThread()
  store ptr %again, ptr %thread, align 8
  ret i32 %raised
}

define internal i64 @resolve(ptr %slots, ptr %references, i64 %r) alwaysinline nounwind {
  %base = shl i64 %r, 4
  %ref = getelementptr i8, ptr %references, i64 %base
  %offset_ptr = getelementptr i8, ptr %ref, i64 8
  %slot = load i64, ptr %ref, align 8
  %offset = load i64, ptr %offset_ptr, align 8
  %address_ptr = getelementptr i64, ptr %slots, i64 %slot
  %address = load i64, ptr %address_ptr, align 8
  %sum = add i64 %address, %offset
  ret i64 %sum
}

; Put the addresses and the variables of a step where its kernel expects them.
define internal void @bind(ptr %record, ptr %slots, ptr %references, ptr %vrefs, ptr %vars,
                           ptr %buffers, ptr %kvars) alwaysinline nounwind {
dispatch:
  %nbuffers = call i64 @field(ptr %record, i64 16)
  %ref0 = call i64 @field(ptr %record, i64 24)
  %nvars = call i64 @field(ptr %record, i64 32)
  %vref0 = call i64 @field(ptr %record, i64 40)
  br label %bind
bind:
  %b = phi i64 [ 0, %dispatch ], [ %b1, %bind_one ]
  %more_b = icmp slt i64 %b, %nbuffers
  br i1 %more_b, label %bind_one, label %bind_vars
bind_one:
  %r = add i64 %ref0, %b
  %address = call i64 @resolve(ptr %slots, ptr %references, i64 %r)
  %buffer_ptr = getelementptr i64, ptr %buffers, i64 %b
  store i64 %address, ptr %buffer_ptr, align 8
  %b1 = add i64 %b, 1
  br label %bind
bind_vars:
  %v = phi i64 [ 0, %bind ], [ %v1, %bind_var ]
  %more_v = icmp slt i64 %v, %nvars
  br i1 %more_v, label %load_var, label %done
load_var:
  %vr = add i64 %vref0, %v
  %vr16 = shl i64 %vr, 4
  %vref = getelementptr i8, ptr %vrefs, i64 %vr16
  %index = load i64, ptr %vref, align 8
  %fixed = icmp slt i64 %index, 0
  br i1 %fixed, label %constant_var, label %plan_var
constant_var:
  %constant = call i64 @field(ptr %vref, i64 8)
  br label %bind_var
plan_var:
  %var_ptr = getelementptr i64, ptr %vars, i64 %index
  %var = load i64, ptr %var_ptr, align 8
  br label %bind_var
bind_var:
  %value = phi i64 [ %constant, %constant_var ], [ %var, %plan_var ]
  %kvar_ptr = getelementptr i64, ptr %kvars, i64 %v
  store i64 %value, ptr %kvar_ptr, align 8
  %v1 = add i64 %v, 1
  br label %bind_vars
done:
  ret void
}

; A kernel does not know its place in the plan, and may fail without a word of its own.
define internal void @blame(i64 %s, i32 %code, ptr %status) noinline nounwind {
  %step_number = trunc i64 %s to i32
  %kernel_ptr = getelementptr %status, ptr %status, i64 0, i32 1
  store i32 %step_number, ptr %kernel_ptr, align 4
  %told = load i32, ptr %status, align 4
  %silent = icmp eq i32 %told, 0
  %final = select i1 %silent, i32 %code, i32 %told
  store i32 %final, ptr %status, align 4
  ret void
}

; Walk the steps. %thread: where the saved Python thread state is, or null when the GIL is held
; or there is no Python.
define internal i32 @walk(ptr %ctx, ptr %slots, ptr %status, ptr %thread) nounwind {
entry:
  %nsteps = call i64 @field(ptr %ctx, i64 $ctx.nsteps$)
$PLACES$  %buffers = getelementptr i64, ptr %slots, i64 %first_buffer
  %kvars = getelementptr i64, ptr %slots, i64 %first_kvar
  %interruptible = call i64 @field(ptr %ctx, i64 $ctx.interruptible$)
  %calls_ptr = getelementptr i8, ptr %ctx, i64 $ctx.calls$
  %calls = load atomic i64, ptr %calls_ptr monotonic, align 8
  %calls1 = add i64 %calls, 1
  store atomic i64 %calls1, ptr %calls_ptr monotonic, align 8
  %timed = icmp ne ptr %thread, null
  br i1 %timed, label %start_clock, label %step
start_clock:
  %t0 = call i64 @now()
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ 0, %start_clock ], [ %s1, %next ]
  %last = phi i64 [ 0, %entry ], [ %t0, %start_clock ], [ %last1, %next ]
  %more = icmp slt i64 %s, %nsteps
  br i1 %more, label %dispatch, label %success
dispatch:
  %step_offset = mul i64 %s, $STEP_BYTES$
  %record = getelementptr i8, ptr %steps, i64 %step_offset
  %kind = load i64, ptr %record, align 8
  %fn_int = call i64 @field(ptr %record, i64 8)
  call void @bind(ptr %record, ptr %slots, ptr %references, ptr %vrefs, ptr %vars,
                  ptr %buffers, ptr %kvars)
  %is_kernel = icmp eq i64 %kind, 0
  br i1 %is_kernel, label %kernel, label %memory
kernel:
  %fn = inttoptr i64 %fn_int to ptr
  %code = call i32 %fn(ptr %buffers, ptr %kvars, ptr %status)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %ran, label %failed
memory:
  %bytes1 = call i64 @field(ptr %record, i64 48)
  %is_group = icmp eq i64 %kind, 3
  br i1 %is_group, label %group, label %move
group:
  %eager = call i64 @field(ptr %record, i64 56)
  %group_code = call i32 @run_together(
    ptr %ctx, ptr %slots, i64 %s, i64 %bytes1, i64 %eager, ptr %status)
  %group_last = add i64 %bytes1, -1
  %s_group = add i64 %s, %group_last
  %group_good = icmp eq i32 %group_code, 0
  br i1 %group_good, label %ran, label %told
move:
  %scale_index = call i64 @field(ptr %record, i64 56)
  %unscaled = icmp slt i64 %scale_index, 0
  br i1 %unscaled, label %sized, label %scale
scale:
  %scale_ptr = getelementptr i64, ptr %vars, i64 %scale_index
  %factor = load i64, ptr %scale_ptr, align 8
  %scaled = mul i64 %bytes1, %factor
  br label %sized
sized:
  %bytes = phi i64 [ %bytes1, %move ], [ %scaled, %scale ]
  %target_int = load i64, ptr %buffers, align 8
  %target = inttoptr i64 %target_int to ptr
  %is_copy = icmp eq i64 %kind, 1
  br i1 %is_copy, label %copy, label %fill
copy:
  %origin_ptr = getelementptr i64, ptr %buffers, i64 1
  %origin_int = load i64, ptr %origin_ptr, align 8
  %origin = inttoptr i64 %origin_int to ptr
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %origin, i64 %bytes, i1 false)
  br label %ran
fill:
  %byte = trunc i64 %fn_int to i8
  call void @llvm.memset.p0.i64(ptr %target, i8 %byte, i64 %bytes, i1 false)
  br label %ran
ran:
  %s_done = phi i64 [ %s, %kernel ], [ %s_group, %group ], [ %s, %copy ], [ %s, %fill ]
  %may_stop = icmp slt i64 %s_done, %interruptible
  %looks = and i1 %timed, %may_stop
  br i1 %looks, label %clock, label %next
clock:
  %t1 = call i64 @now()
  %elapsed = sub i64 %t1, %last
  %long = icmp sgt i64 %elapsed, $TICKS$
  br i1 %long, label %signals, label %next
signals:
  %raised = call i32 @handle_signals(ptr %thread)
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %next, label %interrupted
next:
  %last1 = phi i64 [ %last, %ran ], [ %last, %clock ], [ %t1, %signals ]
  %s1 = add i64 %s_done, 1
  br label %step
failed:
  call void @blame(i64 %s, i32 %code, ptr %status)
  br label %told
told:
  %final = load i32, ptr %status, align 4
  ret i32 %final
interrupted:
  ret i32 $INTERRUPTED$
success:
  ret i32 0
}

; Run a plan whose slots are filled, with or without the GIL as its context says.
define i32 @weft_run(ptr %ctx, ptr %slots, ptr %status) nounwind {
entry:
  %thread = alloca ptr, align 8
  %release = call i64 @field(ptr %ctx, i64 $ctx.release_gil$)
  %hold = icmp eq i64 %release, 0
  br i1 %hold, label %held, label %released
held:
  %code1 = call i32 @walk(ptr %ctx, ptr %slots, ptr %status, ptr null)
  ret i32 %code1
released:
  %saved = call ptr @PyEval_SaveThread()
  store ptr %saved, ptr %thread, align 8
  %code2 = call i32 @walk(ptr %ctx, ptr %slots, ptr %status, ptr %thread)
  %restore = load ptr, ptr %thread, align 8
  call void @PyEval_RestoreThread(ptr %restore)
  ret i32 %code2
}

define ptr @weft_call(ptr %self, ptr %args, i64 %nargs) nounwind {
entry:
  %small_frame = alloca [$FRAME_WORDS$ x i64], align 16
  %status = alloca %status, align 8
  %ctx_int = call i64 @weft_int64_of(ptr %self)
  %ctx = inttoptr i64 %ctx_int to ptr
  %expected = call i64 @field(ptr %ctx, i64 $ctx.nargs$)
  %right = icmp eq i64 %nargs, %expected
  br i1 %right, label %frame, label %count_error
count_error:
  %e0 = call ptr (ptr, ptr, ...) @PyErr_Format(
    ptr @weft_type_error, ptr @wrong_count, i64 %expected, i64 %nargs)
  ret ptr null
frame:
  %words = call i64 @field(ptr %ctx, i64 $ctx.frame_words$)
  %fits = icmp sle i64 %words, $FRAME_WORDS$
  br i1 %fits, label %convert, label %large
large:
  %frame_bytes = shl i64 %words, 3
  %big_frame = call ptr @malloc(i64 %frame_bytes)
  %none = icmp eq ptr %big_frame, null
  br i1 %none, label %no_memory, label %convert
no_memory:
  %e1 = call ptr @PyErr_NoMemory()
  ret ptr null
convert:
  %slots = phi ptr [ %small_frame, %frame ], [ %big_frame, %large ]
  store i64 0, ptr %slots, align 8
  br label %convert_loop
convert_loop:
  %i = phi i64 [ 0, %convert ], [ %i1, %converted ]
  %more = icmp slt i64 %i, %nargs
  br i1 %more, label %convert_one, label %run
convert_one:
  %i1 = add i64 %i, 1
  %arg_ptr = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg_ptr, align 8
  %value = call i64 @weft_int64_of(ptr %arg)
  %suspect = icmp eq i64 %value, -1
  br i1 %suspect, label %check, label %converted
check:
  %error = call ptr @PyErr_Occurred()
  %clean = icmp eq ptr %error, null
  br i1 %clean, label %converted, label %raise
converted:
  %slot_ptr = getelementptr i64, ptr %slots, i64 %i1
  store i64 %value, ptr %slot_ptr, align 8
  br label %convert_loop
run:
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  %code = call i32 @weft_run(ptr %ctx, ptr %slots, ptr %status)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %return_none, label %failed
return_none:
  call void @Py_IncRef(ptr @weft_none)
  br label %done
failed:
  %is_interrupt = icmp eq i32 %code, $INTERRUPTED$
  br i1 %is_interrupt, label %raise, label %report
report:
  %kernel_ptr = getelementptr %status, ptr %status, i64 0, i32 1
  %statement_ptr = getelementptr %status, ptr %status, i64 0, i32 2
  %index_ptr = getelementptr %status, ptr %status, i64 0, i32 4
  %bound_ptr = getelementptr %status, ptr %status, i64 0, i32 5
  %kernel = load i32, ptr %kernel_ptr, align 4
  %statement = load i32, ptr %statement_ptr, align 4
  %index = load i64, ptr %index_ptr, align 8
  %bound = load i64, ptr %bound_ptr, align 8
  %tuple = call ptr (ptr, ...) @Py_BuildValue(
    ptr @failure, i32 %code, i32 %kernel, i32 %statement, i64 %index, i64 %bound)
  br label %done
raise:
  br label %done
done:
  %result = phi ptr [ @weft_none, %return_none ], [ %tuple, %report ], [ null, %raise ]
  br i1 %fits, label %leave, label %release_frame
release_frame:
  call void @free(ptr %slots)
  br label %leave
leave:
  ret ptr %result
}

define i32 @weft_plan(
    ptr %ctx, ptr %inputs, ptr %outputs, ptr %arena, ptr %vars, ptr %status) nounwind {
entry:
  %small_frame = alloca [$FRAME_WORDS$ x i64], align 16
  %words = call i64 @field(ptr %ctx, i64 $ctx.frame_words$)
  %fits = icmp sle i64 %words, $FRAME_WORDS$
  br i1 %fits, label %copy, label %large
large:
  %frame_bytes = shl i64 %words, 3
  %big_frame = call ptr @malloc(i64 %frame_bytes)
  %none = icmp eq ptr %big_frame, null
  br i1 %none, label %no_memory, label %copy
no_memory:
  store i32 -1, ptr %status, align 4
  ret i32 -1
copy:
  %slots = phi ptr [ %small_frame, %entry ], [ %big_frame, %large ]
  %nargs = call i64 @field(ptr %ctx, i64 $ctx.nargs$)
  %first_variable = call i64 @field(ptr %ctx, i64 $ctx.first_variable$)
  %ninputs = call i64 @field(ptr %ctx, i64 $ctx.ninputs$)
  %noutputs = call i64 @field(ptr %ctx, i64 $ctx.noutputs$)
  store i64 0, ptr %slots, align 8
  %input_slots = getelementptr i64, ptr %slots, i64 1
  %input_bytes = shl i64 %ninputs, 3
  call void @llvm.memmove.p0.p0.i64(ptr %input_slots, ptr %inputs, i64 %input_bytes, i1 false)
  %output_slots = getelementptr i64, ptr %input_slots, i64 %ninputs
  %output_bytes = shl i64 %noutputs, 3
  call void @llvm.memmove.p0.p0.i64(ptr %output_slots, ptr %outputs, i64 %output_bytes, i1 false)
  %arena_slot = getelementptr i64, ptr %output_slots, i64 %noutputs
  call void @llvm.memmove.p0.p0.i64(ptr %arena_slot, ptr %arena, i64 8, i1 false)
  %variable_slots = getelementptr i64, ptr %slots, i64 %first_variable
  %others = sub i64 %first_variable, 1
  %nvars = sub i64 %nargs, %others
  %variable_bytes = shl i64 %nvars, 3
  call void @llvm.memmove.p0.p0.i64(ptr %variable_slots, ptr %vars, i64 %variable_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  %code = call i32 @walk(ptr %ctx, ptr %slots, ptr %status, ptr null)
  br i1 %fits, label %leave, label %release_frame
release_frame:
  call void @free(ptr %slots)
  br label %leave
leave:
  ret i32 %code
}
"""

_COUNTER: Final = """
declare i64 @llvm.readcyclecounter()
define internal i64 @now() alwaysinline nounwind {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}
"""

_CLOCK: Final = """
declare i32 @clock_gettime(i32, ptr)
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
"""
