"""What the rows of launches ask of Python's objects, as functions in LLVM IR.

Tables of words, members at offsets, types, and the layout of arrays: dtype, sizes, steps. See
`weft.runtimes.launch_ir` for the module that they belong to; ``$array.data$`` and the like stand
for offsets.
"""

from typing import Final

__all__ = ["READERS"]

READERS: Final = """
define internal i64 @at(ptr %table, i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}

define internal void @put(ptr %table, i64 %i, i64 %v) alwaysinline nounwind {
  %p = getelementptr i64, ptr %table, i64 %i
  store i64 %v, ptr %p
  ret void
}

define internal i64 @word(ptr %object, i64 %offset) alwaysinline nounwind {
  %p = getelementptr i8, ptr %object, i64 %offset
  %v = load i64, ptr %p
  ret i64 %v
}

define internal ptr @pointer(ptr %object, i64 %offset) alwaysinline nounwind {
  %p = getelementptr i8, ptr %object, i64 %offset
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal i1 @is_a(ptr %object, ptr %type) alwaysinline nounwind {
  %found = call ptr @pointer(ptr %object, i64 $ob_type$)
  %e = icmp eq ptr %found, %type
  ret i1 %e
}

define internal i1 @array_is(ptr %array, ptr %dtype, i64 %axes, i64 %mask, i64 %flags)
    alwaysinline nounwind {
  %descr = call ptr @pointer(ptr %array, i64 $array.descr$)
  %same_kind = icmp eq ptr %descr, %dtype
  %nd_at = getelementptr i8, ptr %array, i64 $array.nd$
  %nd32 = load i32, ptr %nd_at
  %nd = sext i32 %nd32 to i64
  %same_rank = icmp eq i64 %nd, %axes
  %flags_at = getelementptr i8, ptr %array, i64 $array.flags$
  %found32 = load i32, ptr %flags_at
  %found = zext i32 %found32 to i64
  %masked = and i64 %found, %mask
  %same_flags = icmp eq i64 %masked, %flags
  %a = and i1 %same_kind, %same_rank
  %b = and i1 %a, %same_flags
  ret i1 %b
}

; Whether the sizes are as a table of (size or -1, word) says; they go to the words.
define internal i1 @sizes(ptr %frame, ptr %dims, i64 %n, ptr %table) alwaysinline nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %fine ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %look, label %good
look:
  %size = call i64 @at(ptr %dims, i64 %i)
  %j = shl i64 %i, 1
  %wanted = call i64 @at(ptr %table, i64 %j)
  %any = icmp slt i64 %wanted, 0
  %same = icmp eq i64 %wanted, %size
  %fits = or i1 %any, %same
  br i1 %fits, label %fine, label %bad
fine:
  %j1 = add i64 %j, 1
  %place = call i64 @at(ptr %table, i64 %j1)
  call void @put(ptr %frame, i64 %place, i64 %size)
  %i1 = add i64 %i, 1
  br label %loop
good:
  ret i1 true
bad:
  ret i1 false
}

; The steps of an array in elements, how far its first element lies behind its lowest one, and
; its span, as `Host._strided` of the front end computes them.
define internal i1 @steps(ptr %frame, ptr %dims, ptr %strides, i64 %n, i64 %shift, i64 %address,
                          ptr %table) nounwind {
entry:
  %copy = alloca [64 x i64], align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %fine ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %look, label %finish
look:
  %bytes = call i64 @at(ptr %strides, i64 %i)
  %step = ashr i64 %bytes, %shift
  %back = shl i64 %step, %shift
  %whole = icmp eq i64 %back, %bytes
  br i1 %whole, label %fine, label %bad
fine:
  call void @put(ptr %copy, i64 %i, i64 %step)
  %i1 = add i64 %i, 1
  br label %loop
finish:
  %r = call i1 @steps_of_elements(ptr %frame, ptr %dims, ptr %copy, i64 %n, i64 %shift,
                                  i64 %address, ptr %table)
  ret i1 %r
bad:
  ret i1 false
}

define internal i1 @steps_of_elements(ptr %frame, ptr %dims, ptr %strides, i64 %n, i64 %shift,
                                      i64 %address, ptr %table) nounwind {
entry:
  %sizes = shl i64 %n, 1
  %first_step = add i64 %sizes, 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %first = phi i64 [ 0, %entry ], [ %first1, %look ]
  %last = phi i64 [ 0, %entry ], [ %last1, %look ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %look, label %finish
look:
  %size = call i64 @at(ptr %dims, i64 %i)
  %given = call i64 @at(ptr %strides, i64 %i)
  %long = icmp sgt i64 %size, 1
  %step = select i1 %long, i64 %given, i64 0
  %k = add i64 %first_step, %i
  %place = call i64 @at(ptr %table, i64 %k)
  call void @put(ptr %frame, i64 %place, i64 %step)
  %steps = sub i64 %size, 1
  %end = mul i64 %steps, %step
  %down = icmp slt i64 %end, 0
  %below = select i1 %down, i64 %end, i64 0
  %above = select i1 %down, i64 0, i64 %end
  %first1 = sub i64 %first, %below
  %last1 = add i64 %last, %above
  %i1 = add i64 %i, 1
  br label %loop
finish:
  %bytes = shl i64 %first, %shift
  %lowest = sub i64 %address, %bytes
  %at_address = load i64, ptr %table
  call void @put(ptr %frame, i64 %at_address, i64 %lowest)
  %at_first = call i64 @at(ptr %table, i64 2)
  call void @put(ptr %frame, i64 %at_first, i64 %first)
  %sum = add i64 %first, %last
  %span = add i64 %sum, 1
  %at_span = call i64 @at(ptr %table, i64 3)
  call void @put(ptr %frame, i64 %at_span, i64 %span)
  ret i1 true
}

; Whether elements lie in row-major order without gaps, as NumPy sees it.
define internal i1 @in_one_piece(ptr %dims, ptr %strides, i64 %n) nounwind {
entry:
  %none = icmp eq ptr %strides, null
  br i1 %none, label %good, label %empty
empty:
  %e = phi i64 [ 0, %entry ], [ %e1, %full ]
  %more = icmp slt i64 %e, %n
  br i1 %more, label %full_at, label %begin
full_at:
  %extent = call i64 @at(ptr %dims, i64 %e)
  %zero = icmp eq i64 %extent, 0
  br i1 %zero, label %good, label %full
full:
  %e1 = add i64 %e, 1
  br label %empty
begin:
  br label %loop
loop:
  %i = phi i64 [ %n, %begin ], [ %i1, %next ]
  %dense = phi i64 [ 1, %begin ], [ %dense1, %next ]
  %left = icmp sgt i64 %i, 0
  br i1 %left, label %look, label %good
look:
  %i1 = sub i64 %i, 1
  %size = call i64 @at(ptr %dims, i64 %i1)
  %step = call i64 @at(ptr %strides, i64 %i1)
  %one = icmp eq i64 %size, 1
  %same = icmp eq i64 %step, %dense
  %fits = or i1 %one, %same
  br i1 %fits, label %next, label %bad
next:
  %dense1 = mul i64 %dense, %size
  br label %loop
good:
  ret i1 true
bad:
  ret i1 false
}

define internal i1 @is_one(ptr %dims, i64 %n) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %look, label %yes
look:
  %size = call i64 @at(ptr %dims, i64 %i)
  %one = icmp eq i64 %size, 1
  %i1 = add i64 %i, 1
  br i1 %one, label %loop, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; The items of a tuple of n ints as numbers.
define internal i1 @numbers(ptr %tuple, i64 %n, ptr %out) nounwind {
entry:
  %unset = icmp eq ptr %tuple, null
  br i1 %unset, label %bad, label %typed
typed:
  %alike = call i1 @is_a(ptr %tuple, ptr @weft_tuple)
  br i1 %alike, label %measure, label %bad
measure:
  %length = call i64 @PyTuple_Size(ptr %tuple)
  %same = icmp eq i64 %length, %n
  br i1 %same, label %loop, label %bad
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %fine ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %look, label %good
look:
  %item = call ptr @PyTuple_GetItem(ptr %tuple, i64 %i)
  %whole = call i1 @is_a(ptr %item, ptr @weft_int)
  br i1 %whole, label %fine, label %bad
fine:
  %value = call i64 @PyLong_AsLongLong(ptr %item)
  call void @put(ptr %out, i64 %i, i64 %value)
  %i1 = add i64 %i, 1
  br label %loop
good:
  ret i1 true
bad:
  ret i1 false
}

define internal i1 @raise_version(ptr %object, i64 %offset) nounwind {
entry:
  %old = call ptr @pointer(ptr %object, i64 %offset)
  %value = call i64 @PyLong_AsLongLong(ptr %old)
  %next = add i64 %value, 1
  %made = call ptr @PyLong_FromLongLong(i64 %next)
  %none = icmp eq ptr %made, null
  br i1 %none, label %bad, label %good
good:
  %place = getelementptr i8, ptr %object, i64 %offset
  store ptr %made, ptr %place
  call void @Py_DecRef(ptr %old)
  ret i1 true
bad:
  ret i1 false
}
"""
