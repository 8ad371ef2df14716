"""Launches of users' kernels as LLVM IR text: from Python's call to the kernel, without any Python.

A *launch* is a table of rows behind a configured kernel (``k[grid, block]``) or a function of
loops, walked by one function of the vectorcall protocol. Each row takes one argument apart: checks
its type and layout, and writes its address, sizes and value where the kernel looks for them. The
first row that does not fit ends the launch, the next one of the chain is tried, and at last Python
(method ``_miss``), which always is right. So a row may be strict, but must never be lax.

A row has 8 words: the number of its operation, the word of the frame with the argument, and up to
6 operands; what does not fit stands in a table of words at the last operand. The frame of a call is
an array of words: the arguments, items of tuples, addresses of buffers, variables, and objects that
the call owns. Word 0 takes what nobody reads.

What may run other Python code stands before the rows that read addresses of arrays, see `Program`
in `weft.runtimes.launches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from weft.runtimes.launch_objects import READERS
from weft.runtimes.launch_rows import BODIES, OPERATIONS
from weft.runtimes.row_ir import operation

__all__ = ["CONTEXT", "FUNCTIONS", "MOST_WORDS", "ROW_WORDS", "SYMBOLS", "source"]

SYMBOLS: Final = ("weft_launch", "weft_subscript", "weft_serial_for")
ROW_WORDS: Final = 8
MOST_WORDS: Final = 384  # of a frame, which lies on the stack

CONTEXT: Final = (
    "next",  # address of the launch to try if this one does not fit, or 0
    "rows",
    "end",  # address behind the last row
    "nargs",
    "buffers",  # first word of the frame with the address of a buffer
    "variables",  # and with a variable
    "owned",  # first word with an object that the call owns
    "nowned",
    "function",
    "release",  # whether other threads of Python run meanwhile
    "fail",  # the function that raises what a failed kernel reported
    "again",  # a bit for each code of a failure that lets Python make the call anew instead
    "names",  # the tuple of the names that arguments are given by, or 0
    "order",  # address of a table: which argument of the call each one is; 0 if they are in order
)

FUNCTIONS: Final = (
    "PyDict_GetItemWithError", "PyErr_Clear", "PyErr_Occurred", "PyEval_RestoreThread",
    "PyEval_SaveThread", "PyFloat_AsDouble", "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong",
    "PyLong_FromLongLong", "PyObject_CallFunction", "PyObject_CallMethodObjArgs",
    "PyObject_GetAttr", "PyObject_RichCompareBool", "PyObject_Vectorcall", "PyTuple_GetItem",
    "PyTuple_Size", "Py_DecRef", "Py_IncRef",
)  # fmt: skip


def source(layout: Mapping[str, int]) -> str:
    """Return the LLVM IR for objects laid out as `layout` says.

    ``weft_launch`` is the vectorcall function of configured kernels, ``weft_subscript`` the slot
    ``mp_subscript`` of kernels, and ``weft_serial_for`` runs parallel loops on the calling thread.
    """
    words = {f"ctx.{name}": 8 * i for i, name in enumerate(CONTEXT)}
    words |= {"ROW_BYTES": 8 * ROW_WORDS, "MOST_WORDS": MOST_WORDS}
    operations = "".join(
        operation(name, body, range(2, ROW_WORDS), "at", ", ptr %object")
        for name, body in BODIES.items()
    )
    text = _HEAD + READERS + operations + _walk() + _TAIL
    for name, value in {**words, **layout}.items():
        text = text.replace(f"${name}$", str(value))
    return text


def _walk() -> str:
    """Return the function that runs all rows; nonzero: one did not fit."""
    cases = "\n".join(f"    i64 {n}, label %{name}" for name, n in OPERATIONS.items())
    arms = ", ".join(f"[ %r.{name}, %back.{name} ]" for name in OPERATIONS)
    blocks = "\n".join(
        f"{name}:\n  %r.{name} = call i32 @do_{name}(ptr %frame, ptr %row, ptr %object)\n"
        f"  br label %back.{name}\nback.{name}:\n  br label %done" for name in OPERATIONS
    )
    return f"""
define internal i32 @walk_rows(ptr %frame, ptr %first, ptr %last) alwaysinline nounwind {{
entry:
  br label %loop
loop:
  %row = phi ptr [ %first, %entry ], [ %next, %good ]
  %more = icmp ne ptr %row, %last
  br i1 %more, label %dispatch, label %finished
dispatch:
  %operation = load i64, ptr %row
  %index = call i64 @at(ptr %row, i64 1)
  %object_at = getelementptr i64, ptr %frame, i64 %index
  %object = load ptr, ptr %object_at
  switch i64 %operation, label %unknown [
{cases}
  ]
{blocks}
done:
  %r = phi i32 {arms}
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
@weft_true = external global i8
@weft_false = external global i8
@weft_int = external global i8
@weft_float = external global i8
@weft_tuple = external global i8
@weft_watched = external global i64
@weft_name_miss = external global i8
@weft_name_is_neg = external global i8
@weft_name_configure = external global i8
@format = private constant [6 x i8] c"iiiLL\\00"

declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_TAIL: Final = """
; Whether two tuples hold the same names, of which the interpreter has one each; null is no tuple.
define internal i1 @same_names(ptr %a, ptr %b) nounwind {
entry:
  %same = icmp eq ptr %a, %b
  br i1 %same, label %yes, label %look
look:
  %no_a = icmp eq ptr %a, null
  %no_b = icmp eq ptr %b, null
  %bare = or i1 %no_a, %no_b
  br i1 %bare, label %no, label %measure
measure:
  %n = call i64 @PyTuple_Size(ptr %a)
  %m = call i64 @PyTuple_Size(ptr %b)
  %long = icmp eq i64 %n, %m
  br i1 %long, label %turn, label %no
turn:
  %i = phi i64 [ 0, %measure ], [ %i1, %on ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %item, label %yes
item:
  %x = call ptr @PyTuple_GetItem(ptr %a, i64 %i)
  %y = call ptr @PyTuple_GetItem(ptr %b, i64 %i)
  %equal = icmp eq ptr %x, %y
  br i1 %equal, label %on, label %no
on:
  %i1 = add i64 %i, 1
  br label %turn
yes:
  ret i1 true
no:
  ret i1 false
}

; One launch: 0 and a result (null with an exception set), or 1 if the call does not fit it.
define internal i32 @attempt(ptr %ctx, ptr %args, i64 %nargs, ptr %kwnames, ptr %out) nounwind {
entry:
  %frame = alloca [$MOST_WORDS$ x i64], align 16
  %status = alloca %status, align 8
  %wanted = call i64 @word(ptr %ctx, i64 $ctx.nargs$)
  %many = icmp eq i64 %wanted, %nargs
  br i1 %many, label %call, label %other
call:
  %names = call ptr @pointer(ptr %ctx, i64 $ctx.names$)
  %order = call ptr @pointer(ptr %ctx, i64 $ctx.order$)
  %named = call i1 @same_names(ptr %names, ptr %kwnames)
  %ordered = icmp eq ptr %order, null
  br i1 %named, label %copy, label %other
copy:
  %i = phi i64 [ 0, %call ], [ %i1, %item ]
  %left = icmp slt i64 %i, %nargs
  br i1 %left, label %which_item, label %begin
which_item:
  br i1 %ordered, label %item, label %looked_up
looked_up:
  %there = call i64 @at(ptr %order, i64 %i)
  br label %item
item:
  %place = phi i64 [ %i, %which_item ], [ %there, %looked_up ]
  %value = call i64 @at(ptr %args, i64 %place)
  %i1 = add i64 %i, 1
  call void @put(ptr %frame, i64 %i1, i64 %value)
  br label %copy
begin:
  %nowned = call i64 @word(ptr %ctx, i64 $ctx.nowned$)
  %owned = call i64 @word(ptr %ctx, i64 $ctx.owned$)
  %keeps = getelementptr i64, ptr %frame, i64 %owned
  br label %wipe
wipe:
  %k = phi i64 [ 0, %begin ], [ %k1, %wipe_one ]
  %unwiped = icmp slt i64 %k, %nowned
  br i1 %unwiped, label %wipe_one, label %walk
wipe_one:
  call void @put(ptr %keeps, i64 %k, i64 0)
  %k1 = add i64 %k, 1
  br label %wipe
walk:
  %rows = call ptr @pointer(ptr %ctx, i64 $ctx.rows$)
  %end = call ptr @pointer(ptr %ctx, i64 $ctx.end$)
  %misfit = call i32 @walk_rows(ptr %frame, ptr %rows, ptr %end)
  %right = icmp eq i32 %misfit, 0
  br i1 %right, label %run, label %clean
run:
  store i32 0, ptr %status
  %first_buffer = call i64 @word(ptr %ctx, i64 $ctx.buffers$)
  %buffers = getelementptr i64, ptr %frame, i64 %first_buffer
  %first_variable = call i64 @word(ptr %ctx, i64 $ctx.variables$)
  %variables = getelementptr i64, ptr %frame, i64 %first_variable
  %function = call ptr @pointer(ptr %ctx, i64 $ctx.function$)
  %release = call i64 @word(ptr %ctx, i64 $ctx.release$)
  %long = icmp ne i64 %release, 0
  br i1 %long, label %apart, label %held
held:
  %code0 = call i32 %function(ptr %buffers, ptr %variables, ptr %status)
  br label %ran
apart:
  %thread = call ptr @PyEval_SaveThread()
  %code1 = call i32 %function(ptr %buffers, ptr %variables, ptr %status)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %code = phi i32 [ %code0, %held ], [ %code1, %apart ]
  %good = icmp eq i32 %code, 0
  br i1 %good, label %give, label %which
which:
  %again = call i64 @word(ptr %ctx, i64 $ctx.again$)
  %wide = zext i32 %code to i64
  %known = icmp ult i64 %wide, 64
  %number = select i1 %known, i64 %wide, i64 0
  %bits = lshr i64 %again, %number
  %bit = and i64 %bits, 1
  %anew = icmp ne i64 %bit, 0
  br i1 %anew, label %clean, label %failed
give:
  call void @Py_IncRef(ptr @weft_none)
  store ptr @weft_none, ptr %out
  br label %clean
failed:
  %statement_at = getelementptr %status, ptr %status, i64 0, i32 2
  %index_at = getelementptr %status, ptr %status, i64 0, i32 4
  %bound_at = getelementptr %status, ptr %status, i64 0, i32 5
  %statement = load i32, ptr %statement_at
  %index = load i64, ptr %index_at
  %bound = load i64, ptr %bound_at
  %fail = call ptr @pointer(ptr %ctx, i64 $ctx.fail$)
  %raised = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
    ptr %fail, ptr @format, i32 %code, i32 0, i32 %statement, i64 %index, i64 %bound)
  store ptr %raised, ptr %out
  br label %clean
clean:
  %answer = phi i32 [ 1, %walk ], [ 1, %which ], [ 0, %give ], [ 0, %failed ]
  br label %drop
drop:
  %d = phi i64 [ 0, %clean ], [ %d1, %dropped ]
  %more = icmp slt i64 %d, %nowned
  br i1 %more, label %drop_one, label %leave
drop_one:
  %kept = call i64 @at(ptr %keeps, i64 %d)
  %kept_object = inttoptr i64 %kept to ptr
  %empty = icmp eq i64 %kept, 0
  br i1 %empty, label %dropped, label %release_one
release_one:
  call void @Py_DecRef(ptr %kept_object)
  br label %dropped
dropped:
  %d1 = add i64 %d, 1
  br label %drop
leave:
  ret i32 %answer
other:
  ret i32 1
}

define ptr @weft_launch(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) nounwind {
entry:
  %out = alloca ptr
  %nargs = and i64 %nargsf, 9223372036854775807
  %bare = icmp eq ptr %kwnames, null
  %watched = load i64, ptr @weft_watched
  %unwatched = icmp eq i64 %watched, 0
  br i1 %unwatched, label %count, label %python
count:
  br i1 %bare, label %begin, label %named
named:
  %nnames = call i64 @PyTuple_Size(ptr %kwnames)
  br label %begin
begin:
  %extra = phi i64 [ 0, %count ], [ %nnames, %named ]
  %all = add i64 %nargs, %extra
  %type = call ptr @pointer(ptr %self, i64 $ob_type$)
  %slot = call i64 @word(ptr %type, i64 $type.vectorcall$)
  %own = add i64 %slot, 8
  %first = call ptr @pointer(ptr %self, i64 %own)
  br label %try
try:
  %ctx = phi ptr [ %first, %begin ], [ %following, %next ]
  %none = icmp eq ptr %ctx, null
  br i1 %none, label %python, label %attempt
attempt:
  %misfit = call i32 @attempt(ptr %ctx, ptr %args, i64 %all, ptr %kwnames, ptr %out)
  %fits = icmp eq i32 %misfit, 0
  br i1 %fits, label %done, label %next
next:
  %following = call ptr @pointer(ptr %ctx, i64 $ctx.next$)
  br label %try
done:
  %result = load ptr, ptr %out
  ret ptr %result
python:
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr @weft_name_miss)
  %absent = icmp eq ptr %method, null
  br i1 %absent, label %lost, label %call
call:
  %found = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %nargs, ptr %kwnames)
  call void @Py_DecRef(ptr %method)
  ret ptr %found
lost:
  ret ptr null
}

; kernel[configuration]: from the dict of those made before, or by the method that makes it.
define ptr @weft_subscript(ptr %self, ptr %key) nounwind {
entry:
  %dict = call ptr @pointer(ptr %self, i64 $Kernel._configured$)
  %unset = icmp eq ptr %dict, null
  br i1 %unset, label %python, label %look
look:
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %none = icmp eq ptr %found, null
  br i1 %none, label %missing, label %give
give:
  call void @Py_IncRef(ptr %found)
  ret ptr %found
missing:
  call void @PyErr_Clear()
  br label %python
python:
  %made = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(
    ptr %self, ptr @weft_name_configure, ptr %key, ptr null)
  ret ptr %made
}

define void @weft_serial_for(ptr %fn, ptr %env, i64 %n) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %fn(ptr %env, i64 0, i64 %n)
  br label %done
done:
  ret void
}
"""
