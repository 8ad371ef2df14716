"""What a native dispatch can do, one operation a row, as bodies of LLVM IR functions.

See `weft.runtimes.dispatch_ir` for the frame and the order of rows. Offsets of members
(``$Tensor.shape$``) were found by looking at living objects.
"""

from typing import Final

__all__ = ["BODIES", "OPERATIONS"]

# Each operation returns 0 if it went well. %w1… are the operands as integers, %p1… as pointers.
# Going to `miss` means: does not fit, or an exception is set.
BODIES: Final = {
    # A tuple of type p4 with exactly w2 items, which go to the frame from w3 on.
    "tuple": """
  %items = call ptr @object(ptr %frame, i64 %w1)
  %type = call ptr @member(ptr %items, i64 $ob_type$)
  %is_tuple = icmp eq ptr %type, %p4
  br i1 %is_tuple, label %measure, label %miss
measure:
  %n = call i64 @PyTuple_Size(ptr %items)
  %fits = icmp eq i64 %n, %w2
  br i1 %fits, label %loop, label %miss
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %more ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %more, label %hit
more:
  %item = call ptr @PyTuple_GetItem(ptr %items, i64 %i)
  %place = add i64 %w3, %i
  call void @put(ptr %frame, i64 %place, ptr %item)
  %i1 = add i64 %i, 1
  br label %loop
""",
    # A list of exactly w2 items, which go to the frame from w3 on.
    "list": """
  %items = call ptr @object(ptr %frame, i64 %w1)
  %type = call ptr @member(ptr %items, i64 $ob_type$)
  %is_list = icmp eq ptr %type, @weft_list
  br i1 %is_list, label %measure, label %miss
measure:
  %n = call i64 @PyList_Size(ptr %items)
  %fits = icmp eq i64 %n, %w2
  br i1 %fits, label %loop, label %miss
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %more ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %more, label %hit
more:
  %item = call ptr @PyList_GetItem(ptr %items, i64 %i)
  %place = add i64 %w3, %i
  call void @put(ptr %frame, i64 %place, ptr %item)
  %i1 = add i64 %i, 1
  br label %loop
""",
    # A dict of exactly w2 items with the keys of table p4 in their order; values go to w3 on.
    "dict": """
  %position = alloca i64
  %key_place = alloca ptr
  %value_place = alloca ptr
  %items = call ptr @object(ptr %frame, i64 %w1)
  %absent = icmp eq ptr %items, null
  br i1 %absent, label %miss, label %typed
typed:
  %type = call ptr @member(ptr %items, i64 $ob_type$)
  %is_dict = icmp eq ptr %type, @weft_dict
  br i1 %is_dict, label %measure, label %miss
measure:
  store i64 0, ptr %position
  %n = call i64 @PyDict_Size(ptr %items)
  %fits = icmp eq i64 %n, %w2
  br i1 %fits, label %loop, label %miss
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %same ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %more, label %hit
more:
  %there = call i32 @PyDict_Next(
    ptr %items, ptr %position, ptr %key_place, ptr %value_place)
  %found = icmp ne i32 %there, 0
  br i1 %found, label %look, label %miss
look:
  %key = load ptr, ptr %key_place
  %wanted = call ptr @object(ptr %p4, i64 %i)
  %identical = icmp eq ptr %key, %wanted
  br i1 %identical, label %same, label %compare
compare:
  %key_type = call ptr @member(ptr %key, i64 $ob_type$)
  %is_text = icmp eq ptr %key_type, @weft_str
  br i1 %is_text, label %equal, label %miss
equal:
  %e = call i1 @equal(ptr %key, ptr %wanted)
  br i1 %e, label %same, label %miss
same:
  %value = load ptr, ptr %value_place
  %place = add i64 %w3, %i
  call void @put(ptr %frame, i64 %place, ptr %value)
  %i1 = add i64 %i, 1
  br label %loop
""",
    # No keywords.
    "no_keywords": """
  %items = call ptr @object(ptr %frame, i64 %w1)
  %absent = icmp eq ptr %items, null
  br i1 %absent, label %hit, label %measure
measure:
  %n = call i64 @PyDict_Size(ptr %items)
  %empty = icmp eq i64 %n, 0
  br i1 %empty, label %hit, label %miss
""",
    # This very object.
    "same": """
  %found = call i64 @word(ptr %frame, i64 %w1)
  %e = icmp eq i64 %found, %w2
  br i1 %e, label %hit, label %miss
""",
    # The same object as word w2 of the frame.
    "alias": """
  %found = call i64 @word(ptr %frame, i64 %w1)
  %other = call i64 @word(ptr %frame, i64 %w2)
  %e = icmp eq i64 %found, %other
  br i1 %e, label %hit, label %miss
""",
    # This object, or one of its very type that is equal to it: integers, text.
    "equal": """
  %found = call ptr @object(ptr %frame, i64 %w1)
  %identical = icmp eq ptr %found, %p2
  br i1 %identical, label %hit, label %typed
typed:
  %type = call ptr @member(ptr %found, i64 $ob_type$)
  %alike = icmp eq ptr %type, %p3
  br i1 %alike, label %compare, label %miss
compare:
  %e = call i1 @equal(ptr %found, ptr %p2)
  br i1 %e, label %hit, label %miss
""",
    # A float of these bits: -0.0 is not 0.0.
    "float": """
  %found = call ptr @object(ptr %frame, i64 %w1)
  %type = call ptr @member(ptr %found, i64 $ob_type$)
  %alike = icmp eq ptr %type, @weft_float
  br i1 %alike, label %compare, label %miss
compare:
  %value = call double @PyFloat_AsDouble(ptr %found)
  %bits = bitcast double %value to i64
  %e = icmp eq i64 %bits, %w2
  br i1 %e, label %hit, label %miss
""",
    # A tensor of type p2, shape p3 and dtype w4, learned or not (w5).
    "spec": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %type = call ptr @member(ptr %tensor, i64 $ob_type$)
  %alike = icmp eq ptr %type, %p2
  br i1 %alike, label %learned, label %miss
learned:
  %needs = call i64 @integer(ptr %tensor, i64 $Tensor._requires_grad$)
  %as_before = icmp eq i64 %needs, %w5
  br i1 %as_before, label %dtype, label %miss
dtype:
  %kind = call i64 @integer(ptr %tensor, i64 $Tensor.dtype$)
  %same_kind = icmp eq i64 %kind, %w4
  br i1 %same_kind, label %shape, label %miss
shape:
  %sizes = call ptr @member(ptr %tensor, i64 $Tensor.shape$)
  %same = icmp eq ptr %sizes, %p3
  br i1 %same, label %hit, label %sized
sized:
  %unset = icmp eq ptr %sizes, null
  br i1 %unset, label %miss, label %compare
compare:
  %e = call i1 @equal(ptr %sizes, ptr %p3)
  br i1 %e, label %hit, label %miss
""",
    # A tensor that is no view and lies in memory: its address and w3 bytes go to slot w2.
    # Its buffer is owned by the frame at w4, if that is not 0.
    "read": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %base = call ptr @member(ptr %tensor, i64 $Tensor._base$)
  %is_base = icmp eq ptr %base, @weft_none
  br i1 %is_base, label %memory, label %miss
memory:
  %buffer = call ptr @member(ptr %tensor, i64 $Tensor._buffer$)
  %unset = icmp eq ptr %buffer, null
  br i1 %unset, label %miss, label %typed
typed:
  %type = call ptr @member(ptr %buffer, i64 $ob_type$)
  %pooled_type = load ptr, ptr @weft_pooled_type
  %pooled = icmp eq ptr %type, %pooled_type
  br i1 %pooled, label %known, label %other
other:
  %plain = icmp eq ptr %type, @weft_buffer_type
  br i1 %plain, label %known, label %third
third:
  %foreign = icmp eq ptr %type, @weft_foreign_type
  br i1 %foreign, label %known, label %miss
known:
  %number = call ptr @member(ptr %buffer, i64 $Buffer.address$)
  %released = icmp eq ptr %number, null
  br i1 %released, label %miss, label %convert
convert:
  %address = call i64 @weft_int64_of(ptr %number)
  %bad = icmp eq i64 %address, -1
  br i1 %bad, label %miss, label %store
store:
  %sum = add i64 %address, %w3
  call void @put_word(ptr %frame, i64 %w2, i64 %sum)
  %held = icmp ne i64 %w4, 0
  br i1 %held, label %hold, label %hit
hold:
  call void @own(ptr %frame, i64 %w4, ptr %buffer)
  br label %hit
""",
    # A NumPy array in one piece and aligned, w3 axes of the sizes in table p4, of type object w5:
    # its address and w6 bytes go to slot w2. The frame owns it at w7, if that is not 0.
    "array": """
  %array = call ptr @object(ptr %frame, i64 %w1)
  %type = call ptr @member(ptr %array, i64 $ob_type$)
  %alike = icmp eq ptr %type, @weft_array_type
  br i1 %alike, label %layout, label %miss
layout:
  %flags_place = getelementptr i8, ptr %array, i64 $array.flags$
  %flags = load i32, ptr %flags_place
  %both = and i32 %flags, $array.good$
  %good = icmp eq i32 %both, $array.good$
  br i1 %good, label %kind, label %miss
kind:
  %descr = call i64 @integer(ptr %array, i64 $array.descr$)
  %same_kind = icmp eq i64 %descr, %w5
  br i1 %same_kind, label %rank, label %miss
rank:
  %nd_place = getelementptr i8, ptr %array, i64 $array.nd$
  %nd32 = load i32, ptr %nd_place
  %nd = sext i32 %nd32 to i64
  %same_rank = icmp eq i64 %nd, %w3
  br i1 %same_rank, label %sizes, label %miss
sizes:
  %dims = call ptr @member(ptr %array, i64 $array.dimensions$)
  br label %loop
loop:
  %i = phi i64 [ 0, %sizes ], [ %i1, %next ]
  %left = icmp slt i64 %i, %nd
  br i1 %left, label %size, label %store
size:
  %found = call i64 @word(ptr %dims, i64 %i)
  %wanted = call i64 @word(ptr %p4, i64 %i)
  %e = icmp eq i64 %found, %wanted
  br i1 %e, label %next, label %miss
next:
  %i1 = add i64 %i, 1
  br label %loop
store:
  %address = call i64 @integer(ptr %array, i64 $array.data$)
  %sum = add i64 %address, %w6
  call void @put_word(ptr %frame, i64 %w2, i64 %sum)
  %held = icmp ne i64 %w7, 0
  br i1 %held, label %hold, label %hit
hold:
  call void @own(ptr %frame, i64 %w7, ptr %array)
  br label %hit
""",
    # A word of the frame is w2.
    "set": """
  call void @put_word(ptr %frame, i64 %w1, i64 %w2)
  br label %hit
""",
    # An object of the frame is owned as well.
    "hold": """
  %object = call ptr @object(ptr %frame, i64 %w1)
  call void @own(ptr %frame, i64 %w2, ptr %object)
  br label %hit
""",
    # The gradient of tensor w1, or None, goes to w2; the frame owns it there.
    "gradient": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %found = call ptr @member(ptr %tensor, i64 $Tensor._grad$)
  %unset = icmp eq ptr %found, null
  br i1 %unset, label %miss, label %keep
keep:
  call void @own(ptr %frame, i64 %w2, ptr %found)
  br label %hit
""",
    # A tensor from outside that is learned, or not, as it was.
    "learned": """
  %needs = call i64 @integer(ptr %p1, i64 $Tensor._requires_grad$)
  %e = icmp eq i64 %needs, %w2
  br i1 %e, label %hit, label %miss
""",
    # A tensor p1 from outside whose version, and that of its memory, are the two objects at p2.
    "unchanged": """
  %version = call i64 @integer(ptr %p1, i64 $Tensor._version$)
  %wanted = call i64 @word(ptr %p2, i64 0)
  %same = icmp eq i64 %version, %wanted
  br i1 %same, label %memory, label %miss
memory:
  %buffer = call ptr @member(ptr %p1, i64 $Tensor._buffer$)
  %unset = icmp eq ptr %buffer, null
  br i1 %unset, label %miss, label %typed
typed:
  %type = call ptr @member(ptr %buffer, i64 $ob_type$)
  %pooled_type = load ptr, ptr @weft_pooled_type
  %pooled = icmp eq ptr %type, %pooled_type
  %plain = icmp eq ptr %type, @weft_buffer_type
  %known = or i1 %pooled, %plain
  br i1 %known, label %look, label %miss
look:
  %written = call i64 @integer(ptr %buffer, i64 $Buffer.version$)
  %kept = call i64 @word(ptr %p2, i64 1)
  %e = icmp eq i64 %written, %kept
  br i1 %e, label %hit, label %miss
""",
    # An attribute p2 of object p1 that still is w3.
    "attribute": """
  %found = call ptr @PyObject_GetAttr(ptr %p1, ptr %p2)
  call void @Py_DecRef(ptr %found)
  %e = icmp eq ptr %found, %p3
  br i1 %e, label %hit, label %miss
""",
    # A tensor that is none of the w3 in table p2.
    "outside": """
  %found = call i64 @word(ptr %frame, i64 %w1)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %left = icmp slt i64 %i, %w3
  br i1 %left, label %look, label %hit
look:
  %other = call i64 @word(ptr %p2, i64 %i)
  %e = icmp eq i64 %found, %other
  br i1 %e, label %miss, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
""",
    # A tensor that is none of the objects in the w3 words of the frame that table p2 names.
    "distinct": """
  %found = call i64 @word(ptr %frame, i64 %w1)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %left = icmp slt i64 %i, %w3
  br i1 %left, label %look, label %hit
look:
  %index = call i64 @word(ptr %p2, i64 %i)
  %other = call i64 @word(ptr %frame, i64 %index)
  %e = icmp eq i64 %found, %other
  br i1 %e, label %miss, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
""",
    # A tensor whose value may be replaced: no view, and no memory that others own.
    "writable": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %base = call ptr @member(ptr %tensor, i64 $Tensor._base$)
  %is_base = icmp eq ptr %base, @weft_none
  br i1 %is_base, label %owner, label %miss
owner:
  %shared = call ptr @member(ptr %tensor, i64 $Tensor._shared$)
  %alone = icmp eq ptr %shared, @weft_none
  br i1 %alone, label %hit, label %miss
""",
    # This thread is in no capture, and records gradients or not as w1 says. The attributes of a
    # thread-local object lie in a dict of the thread; that of the last thread is kept at hand.
    "state": """
  %thread = call ptr @PyThreadState_Get()
  %id = call i64 @PyThreadState_GetID(ptr %thread)
  %last = load i64, ptr @state_thread
  %known = load ptr, ptr @state_dict
  %same = icmp eq i64 %id, %last
  br i1 %same, label %look, label %renew
renew:
  %fresh = call ptr @PyObject_GetAttr(ptr @weft_state, ptr @weft_name_dict)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %miss, label %replace
replace:
  store i64 %id, ptr @state_thread
  store ptr %fresh, ptr @state_dict
  call void @Py_DecRef(ptr %known)
  br label %look
look:
  %dict = phi ptr [ %known, %entry ], [ %fresh, %replace ]
  %set = call ptr @PyDict_GetItemWithError(ptr %dict, ptr @weft_name_grad)
  %default = icmp eq ptr %set, null
  %grad = select i1 %default, ptr @weft_true, ptr %set
  %grad_word = ptrtoint ptr %grad to i64
  %e = icmp eq i64 %grad_word, %w1
  br i1 %e, label %capture, label %miss
capture:
  %watcher = call ptr @PyDict_GetItemWithError(ptr %dict, ptr @weft_name_capture)
  %never = icmp eq ptr %watcher, null
  %none = icmp eq ptr %watcher, @weft_none
  %free = or i1 %never, %none
  br i1 %free, label %hit, label %miss
""",
    # A new buffer of p4 bytes (an int object) from the free list p3: owned at w1, address in w2.
    "allocate": """
  %pooled_type = load ptr, ptr @weft_pooled_type
  %buffer = call ptr @PyType_GenericAlloc(ptr %pooled_type, i64 0)
  %failed = icmp eq ptr %buffer, null
  br i1 %failed, label %miss, label %made
made:
  call void @put(ptr %frame, i64 %w1, ptr %buffer)
  %n = call i64 @PyList_Size(ptr %p3)
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %take, label %miss
take:
  %last = sub i64 %n, 1
  %number = call ptr @PyList_GetItem(ptr %p3, i64 %last)
  call void @Py_IncRef(ptr %number)
  %error = call i32 @PyList_SetSlice(ptr %p3, i64 %last, i64 %n, ptr null)
  %taken = icmp eq i32 %error, 0
  br i1 %taken, label %fill, label %drop
drop:
  call void @Py_DecRef(ptr %number)
  br label %miss
fill:
  call void @put_member(ptr %buffer, i64 $Buffer.address$, ptr %number)
  call void @set_member(ptr %buffer, i64 $Buffer.nbytes$, ptr %p4)
  call void @set_member(ptr %buffer, i64 $Buffer.version$, ptr @weft_zero)
  call void @set_member(ptr %buffer, i64 $Buffer._home$, ptr %p3)
  %address = call i64 @weft_int64_of(ptr %number)
  call void @put_word(ptr %frame, i64 %w2, i64 %address)
  br label %hit
""",
    # Draw p2 blocks from the random generator p1: its key and count go to the frame at w3.
    "draw": """
  %key = call ptr @PyObject_GetAttr(ptr %p1, ptr @weft_name_key)
  %no_key = icmp eq ptr %key, null
  br i1 %no_key, label %miss, label %advance
advance:
  %key_word = call i64 @PyLong_AsUnsignedLongLongMask(ptr %key)
  call void @Py_DecRef(ptr %key)
  %count = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(
    ptr %p1, ptr @weft_name_advance, ptr %p2, ptr null)
  %no_count = icmp eq ptr %count, null
  br i1 %no_count, label %miss, label %note
note:
  %count_word = call i64 @PyLong_AsUnsignedLongLongMask(ptr %count)
  call void @Py_DecRef(ptr %count)
  call void @put_word(ptr %frame, i64 %w3, i64 %key_word)
  %second = add i64 %w3, 1
  call void @put_word(ptr %frame, i64 %second, i64 %count_word)
  br label %hit
""",
    # Where word w2 of the frame is, and w3 bytes, goes to slot w1.
    "address": """
  %place = getelementptr i64, ptr %frame, i64 %w2
  %address = ptrtoint ptr %place to i64
  %sum = add i64 %address, %w3
  call void @put_word(ptr %frame, i64 %w1, i64 %sum)
  br label %hit
""",
    # A new tensor over buffer w2, of shape p3 and dtype p4: owned at w1.
    "result": """
  %tensor = call ptr @PyType_GenericAlloc(ptr @weft_tensor_type, i64 0)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %miss, label %fill
fill:
  call void @put(ptr %frame, i64 %w1, ptr %tensor)
  %buffer = call ptr @object(ptr %frame, i64 %w2)
  call void @set_member(ptr %tensor, i64 $Tensor._buffer$, ptr %buffer)
  call void @set_member(ptr %tensor, i64 $Tensor.shape$, ptr %p3)
  call void @set_member(ptr %tensor, i64 $Tensor.dtype$, ptr %p4)
  call void @set_member(ptr %tensor, i64 $Tensor._node$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._base$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._grad$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._shared$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._history$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._path$, ptr @weft_empty)
  call void @set_member(ptr %tensor, i64 $Tensor._version$, ptr @weft_zero)
  call void @set_member(ptr %tensor, i64 $Tensor._requires_grad$, ptr @weft_false)
  call void @set_member(ptr %tensor, i64 $Tensor._is_leaf$, ptr @weft_true)
  br label %hit
""",
    # Tensor w1 has the value in buffer w2 from now on.
    "give": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %buffer = call ptr @object(ptr %frame, i64 %w2)
  %old = call ptr @member(ptr %tensor, i64 $Tensor._version$)
  %version = call i64 @weft_int64_of(ptr %old)
  %next = add i64 %version, 1
  %number = call ptr @PyLong_FromLongLong(i64 %next)
  %failed = icmp eq ptr %number, null
  br i1 %failed, label %miss, label %replace
replace:
  %old_buffer = call ptr @member(ptr %tensor, i64 $Tensor._buffer$)
  %old_node = call ptr @member(ptr %tensor, i64 $Tensor._node$)
  %old_history = call ptr @member(ptr %tensor, i64 $Tensor._history$)
  call void @set_member(ptr %tensor, i64 $Tensor._buffer$, ptr %buffer)
  call void @set_member(ptr %tensor, i64 $Tensor._node$, ptr @weft_none)
  call void @set_member(ptr %tensor, i64 $Tensor._history$, ptr @weft_none)
  call void @put_member(ptr %tensor, i64 $Tensor._version$, ptr %number)
  call void @Py_DecRef(ptr %old)
  call void @Py_DecRef(ptr %old_history)
  call void @Py_DecRef(ptr %old_node)
  call void @Py_DecRef(ptr %old_buffer)
  br label %hit
""",
    # Tensor w1 is a leaf that is learned, or not (p2).
    "leaf": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  call void @replace(ptr %tensor, i64 $Tensor._requires_grad$, ptr %p2)
  call void @replace(ptr %tensor, i64 $Tensor._is_leaf$, ptr @weft_true)
  br label %hit
""",
    # The gradient of tensor w1 is object w2 of the frame.
    "set_gradient": """
  %tensor = call ptr @object(ptr %frame, i64 %w1)
  %value = call ptr @object(ptr %frame, i64 %w2)
  call void @replace(ptr %tensor, i64 $Tensor._grad$, ptr %value)
  br label %hit
""",
    # A constant p2 is owned at w1.
    "constant": """
  call void @own(ptr %frame, i64 %w1, ptr %p2)
  br label %hit
""",
    # A tuple of the w2 objects of the frame that table p3 names: owned at w1.
    "make_tuple": """
  %made = call ptr @PyTuple_New(i64 %w2)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %miss, label %keep
keep:
  call void @put(ptr %frame, i64 %w1, ptr %made)
  br label %loop
loop:
  %i = phi i64 [ 0, %keep ], [ %i1, %more ]
  %left = icmp slt i64 %i, %w2
  br i1 %left, label %more, label %hit
more:
  %index = call i64 @word(ptr %p3, i64 %i)
  %item = call ptr @object(ptr %frame, i64 %index)
  call void @Py_IncRef(ptr %item)
  %error = call i32 @PyTuple_SetItem(ptr %made, i64 %i, ptr %item)
  %i1 = add i64 %i, 1
  br label %loop
""",
    # What p2 returns for the tuple w3 of arguments: owned at w1. Lists and dicts are made so.
    "call": """
  %given = call ptr @object(ptr %frame, i64 %w3)
  %made = call ptr @PyObject_CallObject(ptr %p2, ptr %given)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %miss, label %keep
keep:
  call void @put(ptr %frame, i64 %w1, ptr %made)
  br label %hit
""",
}
OPERATIONS: Final = {name: number for number, name in enumerate(BODIES, 1)}
