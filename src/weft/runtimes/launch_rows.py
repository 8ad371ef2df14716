"""What a native launch can do with an argument, one operation a row, as LLVM IR functions' bodies.

See `weft.runtimes.launch_ir` for rows and the frame. Offsets of members (``$array.data$``) were
found by looking at living objects.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BODIES", "OPERATIONS"]

# %object is the argument, %w2… are the operands as integers, %p2… as pointers. Each operation
# goes to `hit`, to `miss` if the argument does not fit, or to `clear` if an exception has to go
# first.
BODIES: Final = {
    # Word w2 is w3.
    "set": """
  call void @put(ptr %frame, i64 %w2, i64 %w3)
  br label %hit
""",
    # Word w2 is from w3 to w4.
    "within": """
  %value = call i64 @at(ptr %frame, i64 %w2)
  %above = icmp sge i64 %value, %w3
  %below = icmp sle i64 %value, %w4
  %inside = and i1 %above, %below
  br i1 %inside, label %hit, label %miss
""",
    # No two of w2 pieces of memory overlap. Table p7: for each the word of its address, its bytes.
    "apart": """
  br label %first
first:
  %i = phi i64 [ 0, %entry ], [ %i1, %following ]
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %w2
  br i1 %more, label %look, label %hit
look:
  %ia = shl i64 %i, 1
  %ib = add i64 %ia, 1
  %a_word = call i64 @at(ptr %p7, i64 %ia)
  %a_bytes = call i64 @at(ptr %p7, i64 %ib)
  %a = call i64 @at(ptr %frame, i64 %a_word)
  %a_end = add i64 %a, %a_bytes
  br label %second
second:
  %j = phi i64 [ %i1, %look ], [ %j1, %other ]
  %left = icmp slt i64 %j, %w2
  br i1 %left, label %other, label %following
other:
  %ja = shl i64 %j, 1
  %jb = add i64 %ja, 1
  %b_word = call i64 @at(ptr %p7, i64 %ja)
  %b_bytes = call i64 @at(ptr %p7, i64 %jb)
  %b = call i64 @at(ptr %frame, i64 %b_word)
  %b_end = add i64 %b, %b_bytes
  %before = icmp ule i64 %b_end, %a
  %behind = icmp ule i64 %a_end, %b
  %separate = or i1 %before, %behind
  %j1 = add i64 %j, 1
  br i1 %separate, label %second, label %miss
following:
  br label %first
""",
    # This very object.
    "same": """
  %e = icmp eq ptr %object, %p2
  br i1 %e, label %hit, label %miss
""",
    # An object of type p3 that is equal to p2: integers, text.
    "equal": """
  %alike = call i1 @is_a(ptr %object, ptr %p3)
  br i1 %alike, label %compare, label %miss
compare:
  %r = call i32 @PyObject_RichCompareBool(ptr %object, ptr %p2, i32 2)
  %e = icmp eq i32 %r, 1
  br i1 %e, label %hit, label %unequal
unequal:
  %raised = icmp slt i32 %r, 0
  br i1 %raised, label %clear, label %miss
""",
    # A float of these bits: -0.0 is not 0.0.
    "bits": """
  %alike = call i1 @is_a(ptr %object, ptr @weft_float)
  br i1 %alike, label %compare, label %miss
compare:
  %value = call i64 @word(ptr %object, i64 $float.value$)
  %e = icmp eq i64 %value, %w2
  br i1 %e, label %hit, label %miss
""",
    # Attribute p2, which is p3.
    "attribute": """
  %found = call ptr @PyObject_GetAttr(ptr %object, ptr %p2)
  %none = icmp eq ptr %found, null
  br i1 %none, label %clear, label %compare
compare:
  call void @Py_DecRef(ptr %found)
  %e = icmp eq ptr %found, %p3
  br i1 %e, label %hit, label %miss
""",
    # A method p2 that returns p3.
    "answer": """
  %found = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %object, ptr %p2, ptr null)
  %none = icmp eq ptr %found, null
  br i1 %none, label %clear, label %compare
compare:
  call void @Py_DecRef(ptr %found)
  %e = icmp eq ptr %found, %p3
  br i1 %e, label %hit, label %miss
""",
    # A tuple of type p2 with exactly w3 items, which go to the frame from w4 on.
    "tuple": """
  %alike = call i1 @is_a(ptr %object, ptr %p2)
  br i1 %alike, label %measure, label %miss
measure:
  %n = call i64 @PyTuple_Size(ptr %object)
  %fits = icmp eq i64 %n, %w3
  br i1 %fits, label %loop, label %miss
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %more ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %more, label %hit
more:
  %item = call ptr @PyTuple_GetItem(ptr %object, i64 %i)
  %place = add i64 %w4, %i
  %address = ptrtoint ptr %item to i64
  call void @put(ptr %frame, i64 %place, i64 %address)
  %i1 = add i64 %i, 1
  br label %loop
""",
    # An int from w3 to w4, to word w2.
    "integer": """
  %alike = call i1 @is_a(ptr %object, ptr @weft_int)
  br i1 %alike, label %convert, label %miss
convert:
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  %doubtful = icmp eq i64 %value, -1
  br i1 %doubtful, label %ask, label %range
ask:
  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %range, label %clear
range:
  %above = icmp sge i64 %value, %w3
  %below = icmp sle i64 %value, %w4
  %inside = and i1 %above, %below
  br i1 %inside, label %store, label %miss
store:
  call void @put(ptr %frame, i64 %w2, i64 %value)
  br label %hit
""",
    # An int of 64 bits without a sign, to word w2.
    "unsigned": """
  %alike = call i1 @is_a(ptr %object, ptr @weft_int)
  br i1 %alike, label %convert, label %miss
convert:
  %value = call i64 @PyLong_AsUnsignedLongLong(ptr %object)
  %doubtful = icmp eq i64 %value, -1
  br i1 %doubtful, label %ask, label %store
ask:
  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %store, label %clear
store:
  call void @put(ptr %frame, i64 %w2, i64 %value)
  br label %hit
""",
    # A number of type p3 (float, int, NumPy's float64) as the bits of a float of w4 bytes, to w2.
    "real": """
  %alike = call i1 @is_a(ptr %object, ptr %p3)
  br i1 %alike, label %which, label %miss
which:
  %is_int = icmp eq ptr %p3, @weft_int
  br i1 %is_int, label %convert, label %read
read:
  %bits = call i64 @word(ptr %object, i64 $float.value$)
  %plain = bitcast i64 %bits to double
  br label %have
convert:
  %other = call double @PyFloat_AsDouble(ptr %object)
  %doubtful = fcmp oeq double %other, -1.0
  br i1 %doubtful, label %ask, label %have
ask:
  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %have, label %clear
have:
  %value = phi double [ %plain, %read ], [ %other, %convert ], [ %other, %ask ]
  %is_wide = icmp eq i64 %w4, 8
  br i1 %is_wide, label %wide, label %narrow
narrow:
  %short = fptrunc double %value to float
  %short_bits = bitcast float %short to i32
  %short_word = zext i32 %short_bits to i64
  call void @put(ptr %frame, i64 %w2, i64 %short_word)
  br label %hit
wide:
  %wide_bits = bitcast double %value to i64
  call void @put(ptr %frame, i64 %w2, i64 %wide_bits)
  br label %hit
""",
    # True or False, to word w2.
    "truth": """
  %yes = icmp eq ptr %object, @weft_true
  %no = icmp eq ptr %object, @weft_false
  %either = or i1 %yes, %no
  br i1 %either, label %store, label %miss
store:
  %value = zext i1 %yes to i64
  call void @put(ptr %frame, i64 %w2, i64 %value)
  br label %hit
""",
    # A NumPy scalar of type p3: its w4 bytes, with a sign (w5) or not, to word w2.
    "scalar": """
  %alike = call i1 @is_a(ptr %object, ptr %p3)
  br i1 %alike, label %read, label %miss
read:
  %at = getelementptr i8, ptr %object, i64 $float.value$
  switch i64 %w4, label %eight [ i64 1, label %one i64 2, label %two i64 4, label %four ]
one:
  %v1 = load i8, ptr %at
  %s1 = sext i8 %v1 to i64
  br label %have
two:
  %v2 = load i16, ptr %at
  %s2 = sext i16 %v2 to i64
  br label %have
four:
  %v4 = load i32, ptr %at
  %s4 = sext i32 %v4 to i64
  br label %have
eight:
  %v8 = load i64, ptr %at
  br label %have
have:
  %wide = phi i64 [ %s1, %one ], [ %s2, %two ], [ %s4, %four ], [ %v8, %eight ]
  %is_signed = icmp ne i64 %w5, 0
  %bits = shl i64 %w4, 3
  %unused = sub i64 64, %bits
  %up = shl i64 %wide, %unused
  %down = lshr i64 %up, %unused
  %value = select i1 %is_signed, i64 %wide, i64 %down
  call void @put(ptr %frame, i64 %w2, i64 %value)
  br label %hit
""",
    # A NumPy array of type p2 and dtype p3, w4 axes, of whose flags those in w5 are w6. Table p7:
    # the word for its address, and for each axis its size or -1, and the word for the size.
    "array": """
  %alike = call i1 @is_a(ptr %object, ptr %p2)
  br i1 %alike, label %kind, label %miss
kind:
  %good = call i1 @array_is(ptr %object, ptr %p3, i64 %w4, i64 %w5, i64 %w6)
  br i1 %good, label %layout, label %miss
layout:
  %dims = call ptr @pointer(ptr %object, i64 $array.dimensions$)
  %address = call i64 @word(ptr %object, i64 $array.data$)
  %rest = getelementptr i64, ptr %p7, i64 1
  %fits = call i1 @sizes(ptr %frame, ptr %dims, i64 %w4, ptr %rest)
  br i1 %fits, label %store, label %miss
store:
  %place = load i64, ptr %p7
  call void @put(ptr %frame, i64 %place, i64 %address)
  br label %hit
""",
    # A NumPy array with gaps or another order. Table p7: the word for its address, the shift that
    # makes bytes of elements, the words for its first element and for its span, for each axis as
    # above, and for each axis the word for its step.
    "strided": """
  %alike = call i1 @is_a(ptr %object, ptr %p2)
  br i1 %alike, label %kind, label %miss
kind:
  %good = call i1 @array_is(ptr %object, ptr %p3, i64 %w4, i64 %w5, i64 %w6)
  br i1 %good, label %layout, label %miss
layout:
  %dims = call ptr @pointer(ptr %object, i64 $array.dimensions$)
  %strides = call ptr @pointer(ptr %object, i64 $array.strides$)
  %address = call i64 @word(ptr %object, i64 $array.data$)
  %shift = call i64 @at(ptr %p7, i64 1)
  %rest = getelementptr i64, ptr %p7, i64 4
  %fits = call i1 @sizes(ptr %frame, ptr %dims, i64 %w4, ptr %rest)
  br i1 %fits, label %steps, label %miss
steps:
  %whole = call i1 @steps(ptr %frame, ptr %dims, ptr %strides, i64 %w4, i64 %shift,
                          i64 %address, ptr %p7)
  br i1 %whole, label %hit, label %miss
""",
    # An object of type p2 that offers its memory by the function p3 (DLPack's exchange): on the
    # host, of element type w5 (as one word of 32 bits) with w4 axes, in one piece (w6 is 1) or not.
    # One element alone may be one whose sign PyTorch still has to turn, which only strides tell
    # elsewhere: it is asked. Table p7 as for the other arrays.
    "exchange": """
  %out = alloca [6 x i64], align 8
  %alike = call i1 @is_a(ptr %object, ptr %p2)
  br i1 %alike, label %ask, label %miss
ask:
  %code = call i32 %p3(ptr %object, ptr %out)
  %told = icmp eq i32 %code, 0
  br i1 %told, label %kind, label %clear
kind:
  %device_at = getelementptr i8, ptr %out, i64 8
  %device = load i64, ptr %device_at
  %on_host = icmp eq i64 %device, 1
  %nd_at = getelementptr i8, ptr %out, i64 16
  %nd32 = load i32, ptr %nd_at
  %nd = sext i32 %nd32 to i64
  %same_rank = icmp eq i64 %nd, %w4
  %type_at = getelementptr i8, ptr %out, i64 20
  %type32 = load i32, ptr %type_at
  %type = zext i32 %type32 to i64
  %same_type = icmp eq i64 %type, %w5
  %a = and i1 %on_host, %same_rank
  %b = and i1 %a, %same_type
  br i1 %b, label %layout, label %miss
layout:
  %data = load i64, ptr %out
  %offset = call i64 @at(ptr %out, i64 5)
  %address = add i64 %data, %offset
  %dims_at = getelementptr i8, ptr %out, i64 24
  %dims = load ptr, ptr %dims_at
  %strides_at = getelementptr i8, ptr %out, i64 32
  %strides = load ptr, ptr %strides_at
  %dense = call i1 @in_one_piece(ptr %dims, ptr %strides, i64 %nd)
  %is_dense = zext i1 %dense to i64
  %as_wanted = icmp eq i64 %is_dense, %w6
  br i1 %as_wanted, label %which, label %miss
which:
  br i1 %dense, label %plain, label %gaps
plain:
  %alone = call i1 @is_one(ptr %dims, i64 %nd)
  br i1 %alone, label %turned, label %several
turned:
  %answer = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(
    ptr %object, ptr @weft_name_is_neg, ptr null)
  %no_answer = icmp eq ptr %answer, null
  br i1 %no_answer, label %clear, label %compare
compare:
  call void @Py_DecRef(ptr %answer)
  %straight = icmp eq ptr %answer, @weft_false
  br i1 %straight, label %several, label %miss
several:
  %rest = getelementptr i64, ptr %p7, i64 1
  %fits = call i1 @sizes(ptr %frame, ptr %dims, i64 %nd, ptr %rest)
  br i1 %fits, label %store, label %miss
store:
  %place = load i64, ptr %p7
  call void @put(ptr %frame, i64 %place, i64 %address)
  br label %hit
gaps:
  %rest2 = getelementptr i64, ptr %p7, i64 4
  %fits2 = call i1 @sizes(ptr %frame, ptr %dims, i64 %nd, ptr %rest2)
  br i1 %fits2, label %steps, label %miss
steps:
  %shift = call i64 @at(ptr %p7, i64 1)
  %whole = call i1 @steps_of_elements(ptr %frame, ptr %dims, ptr %strides, i64 %nd, i64 %shift,
                                      i64 %address, ptr %p7)
  br i1 %whole, label %hit, label %miss
""",
    # A tensor of type p2 and dtype p3 that is no view, has no gradient, shares no memory, lies in
    # memory and has w4 axes; it is written (w5) only if no graph and no array knows its value.
    # Table p7 as for arrays, and the word that owns its memory.
    "tensor": """
  %dims = alloca [64 x i64], align 8
  %alike = call i1 @is_a(ptr %object, ptr %p2)
  br i1 %alike, label %kind, label %miss
kind:
  %dtype = call ptr @pointer(ptr %object, i64 $Tensor.dtype$)
  %same_kind = icmp eq ptr %dtype, %p3
  %base = call ptr @pointer(ptr %object, i64 $Tensor._base$)
  %is_base = icmp eq ptr %base, @weft_none
  %shared = call ptr @pointer(ptr %object, i64 $Tensor._shared$)
  %own = icmp eq ptr %shared, @weft_none
  %a = and i1 %same_kind, %is_base
  %b = and i1 %a, %own
  br i1 %b, label %memory, label %miss
memory:
  %written = icmp ne i64 %w5, 0
  br i1 %written, label %alone, label %buffer
alone:
  %node = call ptr @pointer(ptr %object, i64 $Tensor._node$)
  %unknown = icmp eq ptr %node, @weft_none
  %history = call ptr @pointer(ptr %object, i64 $Tensor._history$)
  %bare = icmp eq ptr %history, @weft_none
  %learned = call ptr @pointer(ptr %object, i64 $Tensor._requires_grad$)
  %plain = icmp eq ptr %learned, @weft_false
  %c = and i1 %unknown, %bare
  %d = and i1 %c, %plain
  br i1 %d, label %buffer, label %miss
buffer:
  %held = call ptr @pointer(ptr %object, i64 $Tensor._buffer$)
  %unset = icmp eq ptr %held, null
  br i1 %unset, label %miss, label %typed
typed:
  %held_type = call ptr @pointer(ptr %held, i64 $ob_type$)
  %pooled = icmp eq ptr %held_type, %p6
  %references_at = getelementptr i8, ptr %held, i64 $references$
  %references = load i32, ptr %references_at
  %single = icmp eq i32 %references, 1
  %unwritten = xor i1 %written, true
  %unseen = or i1 %single, %unwritten
  %e = and i1 %pooled, %unseen
  br i1 %e, label %shape, label %miss
shape:
  %sizes = call ptr @pointer(ptr %object, i64 $Tensor.shape$)
  %known = call i1 @numbers(ptr %sizes, i64 %w4, ptr %dims)
  br i1 %known, label %fit, label %miss
fit:
  %rest = getelementptr i64, ptr %p7, i64 2
  %fits = call i1 @sizes(ptr %frame, ptr %dims, i64 %w4, ptr %rest)
  br i1 %fits, label %address, label %miss
address:
  %number = call ptr @pointer(ptr %held, i64 $Buffer.address$)
  %released = icmp eq ptr %number, null
  br i1 %released, label %miss, label %convert
convert:
  %value = call i64 @PyLong_AsLongLong(ptr %number)
  %bad = icmp eq i64 %value, -1
  br i1 %bad, label %clear, label %own_it
own_it:
  %place = load i64, ptr %p7
  call void @put(ptr %frame, i64 %place, i64 %value)
  %keeper = call i64 @at(ptr %p7, i64 1)
  call void @Py_IncRef(ptr %held)
  %held_word = ptrtoint ptr %held to i64
  call void @put(ptr %frame, i64 %keeper, i64 %held_word)
  br i1 %written, label %count, label %hit
count:
  %counted = call i1 @raise_version(ptr %object, i64 $Tensor._version$)
  br i1 %counted, label %count_memory, label %clear
count_memory:
  %counted2 = call i1 @raise_version(ptr %held, i64 $Buffer.version$)
  br i1 %counted2, label %hit, label %clear
""",
}
OPERATIONS: Final = {name: i for i, name in enumerate(BODIES)}
