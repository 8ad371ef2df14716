"""Native dispatch as LLVM IR text: a call of a captured function without any Python in between.

A *dispatch* is a table of rows, walked by one function. Rows before the plan's run check the
arguments and everything else that the capture depends on, take memory for the results and note the
addresses; rows after it make the result objects and give written tensors their new values. The
first check that fails gives everything back and the next dispatch is tried, at last the Python path
(method ``_miss``), which always is right. So a row may be strict, but must never be lax.

A row has 8 words: the number of its operation (`OPERATIONS`) and up to 7 operands. The frame of a
call is an array of words: the arguments and keywords, objects that are borrowed, objects that the
call owns (released at its end), and the slots of the plan (see `weft.runtimes.native_ir`).

What may run other Python code (and so change anything) stands before the rows that read addresses:
between those and the run nothing but loads happens, and where the run lets other threads go on, the
frame owns what it uses.

Offsets of members (``$Tensor.shape$``) were found by looking at living objects, see
`weft.runtimes.dispatch`.
"""

from collections.abc import Mapping
from typing import Final

from weft.runtimes.dispatch_rows import BODIES, OPERATIONS
from weft.runtimes.native_ir import INTERRUPTED
from weft.runtimes.row_ir import operation

__all__ = ["CONTEXT", "ROW_WORDS", "SYMBOLS", "source"]

SYMBOLS: Final = ("weft_dispatch", "weft_finalize", "weft_pooled_type")
ROW_WORDS: Final = 8

CONTEXT: Final = (
    "next",  # address of the dispatch to try if this one does not fit, or 0
    "rows",
    "guards",  # number of rows before the run
    "nrows",
    "frame_words",
    "owned",  # first owned word of the frame
    "nowned",
    "slots",  # first slot of the plan
    "plan",  # address of the plan's context
    "result",  # word of the frame with the result
    "exclusive",  # 1 if there is an arena, which the dispatch holds on to
    "busy",  # 1 while a call uses that arena
    "fail",  # the function that raises what a failed kernel reported
)
_FRAME_WORDS: Final = 256


def source(layout: Mapping[str, int]) -> str:
    """Return the LLVM IR for objects laid out as ``layout`` says.

    ``weft_dispatch`` is the ``tp_call`` of captured functions, and ``weft_finalize`` the
    ``tp_finalize`` of pooled buffers, whose type is to be stored at ``weft_pooled_type``.
    """
    words = {f"ctx.{name}": 8 * i for i, name in enumerate(CONTEXT)}
    words |= {"FRAME_WORDS": _FRAME_WORDS, "ROW_BYTES": 8 * ROW_WORDS, "INTERRUPTED": INTERRUPTED}
    operations = "".join(
        operation(name, body, range(1, ROW_WORDS), "word")
        for name, body in BODIES.items()
    )
    text = _HEAD + operations + _walk() + _TAIL
    for name, value in {**words, **layout}.items():
        text = text.replace(f"${name}$", str(value))
    return text


def _walk() -> str:
    """Return the function that runs rows from one to another; nonzero: one did not fit."""
    cases = "\n".join(f"    i64 {n}, label %{name}" for name, n in OPERATIONS.items())
    blocks = "\n".join(
        f"{name}:\n  %r.{name} = call i32 @do_{name}(ptr %frame, ptr %row)\n"
        f"  store i32 %r.{name}, ptr %outcome\n  br label %done"
        for name in OPERATIONS
    )
    return f"""
define internal i32 @walk_rows(ptr %frame, ptr %first, ptr %last) noinline nounwind {{
entry:
  %outcome = alloca i32
  br label %loop
loop:
  %row = phi ptr [ %first, %entry ], [ %next, %good ]
  %more = icmp ne ptr %row, %last
  br i1 %more, label %dispatch, label %finished
dispatch:
  %operation = load i64, ptr %row
  switch i64 %operation, label %unknown [
{cases}
  ]
{blocks}
done:
  %r = load i32, ptr %outcome
  %fits = icmp eq i32 %r, 0
  br i1 %fits, label %good, label %unknown
good:
  %next = getelementptr i8, ptr %row, i64 $ROW_BYTES$
  br label %loop
unknown:
  ret i32 1
finished:
  ret i32 0
}}
"""


_HEAD: Final = """
%status = type { i32, i32, i32, i32, i64, i64 }

@weft_none = external global i8
@weft_context_type = external global i8
@weft_true = external global i8
@weft_false = external global i8
@weft_zero = external global i8
@weft_empty = external global i8
@weft_list = external global i8
@weft_dict = external global i8
@weft_str = external global i8
@weft_float = external global i8
@weft_tensor_type = external global i8
@weft_buffer_type = external global i8
@weft_foreign_type = external global i8
@weft_free_type = external global i8
@weft_array_type = external global i8
@weft_state = external global i8
@weft_name_dict = external global i8
@weft_name_grad = external global i8
@weft_name_capture = external global i8
@weft_name_key = external global i8
@weft_name_advance = external global i8
@weft_name_miss = external global i8

; The type of pooled buffers that this code finalizes, made after it was loaded.
@weft_pooled_type = global ptr null

@state_thread = internal global i64 -1
@state_dict = internal global ptr null
@failure = private constant [6 x i8] c"iiiLL\\00"

declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @weft_run(ptr, ptr, ptr)
declare i64 @weft_int64_of(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare ptr @PyErr_NoMemory()
declare ptr @Py_BuildValue(ptr, ...)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare ptr @PyObject_CallObject(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetSlice(ptr, i64, i64, ptr)
declare i32 @PyList_Append(ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyThreadState_Get()
declare i64 @PyThreadState_GetID(ptr)

define internal i64 @word(ptr %table, i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}

define internal void @put_word(ptr %table, i64 %i, i64 %v) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  store i64 %v, ptr %p
  ret void
}

define internal ptr @object(ptr %table, i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal void @put(ptr %table, i64 %i, ptr %v) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  store ptr %v, ptr %p
  ret void
}

; Own an object at a word of the frame, in place of what may be there.
define internal void @own(ptr %table, i64 %i, ptr %v) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  %old = load ptr, ptr %p
  call void @Py_IncRef(ptr %v)
  store ptr %v, ptr %p
  %empty = icmp eq ptr %old, null
  br i1 %empty, label %done, label %drop
drop:
  call void @Py_DecRef(ptr %old)
  br label %done
done:
  ret void
}

define internal i64 @integer(ptr %object, i64 %offset) alwaysinline nounwind {
  %p = getelementptr i8, ptr %object, i64 %offset
  %v = load i64, ptr %p
  ret i64 %v
}

define internal ptr @member(ptr %object, i64 %offset) alwaysinline nounwind {
  %p = getelementptr i8, ptr %object, i64 %offset
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal void @put_member(ptr %object, i64 %offset, ptr %v) alwaysinline nounwind {
  %p = getelementptr i8, ptr %object, i64 %offset
  store ptr %v, ptr %p
  ret void
}

; Fill a member that is empty, or whose old value the caller releases.
define internal void @set_member(ptr %object, i64 %offset, ptr %v) alwaysinline nounwind {
  call void @Py_IncRef(ptr %v)
  call void @put_member(ptr %object, i64 %offset, ptr %v)
  ret void
}

define internal void @replace(ptr %object, i64 %offset, ptr %v) alwaysinline nounwind {
  %old = call ptr @member(ptr %object, i64 %offset)
  call void @set_member(ptr %object, i64 %offset, ptr %v)
  call void @Py_DecRef(ptr %old)
  ret void
}

define internal i1 @equal(ptr %a, ptr %b) alwaysinline nounwind {
  %r = call i32 @PyObject_RichCompareBool(ptr %a, ptr %b, i32 2)
  %e = icmp eq i32 %r, 1
  ret i1 %e
}

"""

_TAIL: Final = """
; One dispatch: 0 and a result (null with an exception set), or 1 if the call does not fit it.
define internal i32 @attempt(ptr %ctx, ptr %args, ptr %kwargs, ptr %out) noinline nounwind {
entry:
  %small_frame = alloca [$FRAME_WORDS$ x i64], align 16
  %status = alloca %status, align 8
  store ptr null, ptr %out
  %words = call i64 @integer(ptr %ctx, i64 $ctx.frame_words$)
  %fits = icmp sle i64 %words, $FRAME_WORDS$
  br i1 %fits, label %begin, label %large
large:
  %frame_bytes = shl i64 %words, 3
  %big_frame = call ptr @malloc(i64 %frame_bytes)
  %none = icmp eq ptr %big_frame, null
  br i1 %none, label %no_memory, label %begin
no_memory:
  %e0 = call ptr @PyErr_NoMemory()
  ret i32 0
begin:
  %frame = phi ptr [ %small_frame, %entry ], [ %big_frame, %large ]
  call void @put(ptr %frame, i64 0, ptr %args)
  call void @put(ptr %frame, i64 1, ptr %kwargs)
  %owned = call i64 @integer(ptr %ctx, i64 $ctx.owned$)
  %nowned = call i64 @integer(ptr %ctx, i64 $ctx.nowned$)
  %owned_place = getelementptr i64, ptr %frame, i64 %owned
  %owned_bytes = shl i64 %nowned, 3
  call void @llvm.memset.p0.i64(ptr %owned_place, i8 0, i64 %owned_bytes, i1 false)
  %rows = call ptr @member(ptr %ctx, i64 $ctx.rows$)
  %nguards = call i64 @integer(ptr %ctx, i64 $ctx.guards$)
  %nrows = call i64 @integer(ptr %ctx, i64 $ctx.nrows$)
  %guard_bytes = mul i64 %nguards, $ROW_BYTES$
  %row_bytes = mul i64 %nrows, $ROW_BYTES$
  %finish = getelementptr i8, ptr %rows, i64 %guard_bytes
  %end = getelementptr i8, ptr %rows, i64 %row_bytes
  ; The arena is claimed first: after random numbers are drawn nothing may fail to fit. If another
  ; call is using it, in another thread or further up, Python takes a new one.
  %busy_place = getelementptr i8, ptr %ctx, i64 $ctx.busy$
  %busy = call i64 @integer(ptr %ctx, i64 $ctx.busy$)
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %claim, label %clean
claim:
  %exclusive = call i64 @integer(ptr %ctx, i64 $ctx.exclusive$)
  store i64 %exclusive, ptr %busy_place
  %misfit = call i32 @walk_rows(ptr %frame, ptr %rows, ptr %finish)
  %right = icmp eq i32 %misfit, 0
  br i1 %right, label %run, label %unfit
unfit:
  store i64 0, ptr %busy_place
  ; What a check raised is the caller's; that includes a Ctrl-C.
  %error = call ptr @PyErr_Occurred()
  %clear = icmp eq ptr %error, null
  %unfit_answer = zext i1 %clear to i32
  br label %clean
run:
  call void @llvm.memset.p0.i64(ptr %status, i8 0, i64 32, i1 false)
  %slot = call i64 @integer(ptr %ctx, i64 $ctx.slots$)
  %slots = getelementptr i64, ptr %frame, i64 %slot
  %plan = call ptr @member(ptr %ctx, i64 $ctx.plan$)
  %code = call i32 @weft_run(ptr %plan, ptr %slots, ptr %status)
  store i64 0, ptr %busy_place
  %good = icmp eq i32 %code, 0
  br i1 %good, label %make, label %failed
failed:
  %is_interrupt = icmp eq i32 %code, $INTERRUPTED$
  br i1 %is_interrupt, label %clean, label %report
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
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %clean, label %raise
raise:
  %raiser = call ptr @member(ptr %ctx, i64 $ctx.fail$)
  %nothing = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %raiser, ptr %tuple, ptr null)
  call void @Py_DecRef(ptr %nothing)
  call void @Py_DecRef(ptr %tuple)
  br label %clean
make:
  %unmade = call i32 @walk_rows(ptr %frame, ptr %finish, ptr %end)
  %made = icmp eq i32 %unmade, 0
  br i1 %made, label %take, label %clean
take:
  %result = call i64 @integer(ptr %ctx, i64 $ctx.result$)
  %value = call ptr @object(ptr %frame, i64 %result)
  store ptr %value, ptr %out
  call void @put(ptr %frame, i64 %result, ptr null)
  br label %clean
clean:
  %answer = phi i32 [ %unfit_answer, %unfit ], [ 1, %begin ], [ 0, %failed ], [ 0, %report ],
    [ 0, %raise ], [ 0, %make ], [ 0, %take ]
  br label %release
release:
  %i = phi i64 [ 0, %clean ], [ %i1, %next ]
  %left = icmp slt i64 %i, %nowned
  br i1 %left, label %one, label %leave
one:
  %held = call ptr @object(ptr %owned_place, i64 %i)
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %next, label %drop
drop:
  call void @Py_DecRef(ptr %held)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %release
leave:
  br i1 %fits, label %return, label %free_frame
free_frame:
  call void @free(ptr %frame)
  br label %return
return:
  ret i32 %answer
}

define ptr @weft_dispatch(ptr %self, ptr %args, ptr %kwargs) nounwind {
entry:
  %out = alloca ptr
  %head = call ptr @member(ptr %self, i64 $Jitted._dispatch$)
  %unset = icmp eq ptr %head, null
  br i1 %unset, label %python, label %typed
typed:
  %type = call ptr @member(ptr %head, i64 $ob_type$)
  %alike = icmp eq ptr %type, @weft_context_type
  br i1 %alike, label %begin, label %python
begin:
  ; The function may be given other dispatches while this call runs.
  call void @Py_IncRef(ptr %head)
  %first = call i64 @weft_int64_of(ptr %head)
  br label %try
try:
  %address = phi i64 [ %first, %begin ], [ %following, %other ]
  %ctx = inttoptr i64 %address to ptr
  %misfit = call i32 @attempt(ptr %ctx, ptr %args, ptr %kwargs, ptr %out)
  %fits = icmp eq i32 %misfit, 0
  br i1 %fits, label %done, label %other
other:
  %following = call i64 @integer(ptr %ctx, i64 $ctx.next$)
  %any = icmp ne i64 %following, 0
  br i1 %any, label %try, label %give_up
done:
  %result = load ptr, ptr %out
  call void @Py_DecRef(ptr %head)
  ret ptr %result
give_up:
  call void @Py_DecRef(ptr %head)
  br label %python
python:
  %no_keywords = icmp eq ptr %kwargs, null
  %keywords = select i1 %no_keywords, ptr @weft_none, ptr %kwargs
  %found = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(
    ptr %self, ptr @weft_name_miss, ptr %args, ptr %keywords, ptr null)
  ret ptr %found
}

; A pooled buffer dies: its address goes back to the list that it came from.
define void @weft_finalize(ptr %self) nounwind {
entry:
  %home = call ptr @member(ptr %self, i64 $Buffer._home$)
  %empty = icmp eq ptr %home, null
  br i1 %empty, label %done, label %typed
typed:
  %type = call ptr @member(ptr %home, i64 $ob_type$)
  %is_list = icmp eq ptr %type, @weft_free_type
  br i1 %is_list, label %look, label %done
look:
  %address = call ptr @member(ptr %self, i64 $Buffer.address$)
  %unset = icmp eq ptr %address, null
  br i1 %unset, label %done, label %append
append:
  %error = call i32 @PyList_Append(ptr %home, ptr %address)
  %good = icmp eq i32 %error, 0
  br i1 %good, label %forget, label %clear
forget:
  ; Who meets the buffer in a cycle that is being freed must not see memory of somebody else.
  %place = getelementptr i8, ptr %self, i64 $Buffer.address$
  store ptr null, ptr %place
  call void @Py_DecRef(ptr %address)
  br label %done
clear:
  call void @PyErr_Clear()
  br label %done
done:
  ret void
}
"""
