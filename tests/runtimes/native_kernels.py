"""Kernels and region bodies for the tests of the CPU runtime, as LLVM IR."""

KERNELS = """
declare void @weft_parallel_for(ptr, ptr, i64)

; out[0] = in[0] + var0
define i32 @add_variable(ptr %b, ptr %v, ptr %s) {
  %out = load ptr, ptr %b
  %in_ptr = getelementptr ptr, ptr %b, i64 1
  %in = load ptr, ptr %in_ptr
  %x = load i64, ptr %in
  %y = load i64, ptr %v
  %z = add i64 %x, %y
  store i64 %z, ptr %out
  ret i32 0
}

; out[0] = sum of all buffers after it
define i32 @sum_64(ptr %b, ptr %v, ptr %s) {
entry:
  %out = load ptr, ptr %b
  br label %loop
loop:
  %i = phi i64 [ 1, %entry ], [ %i1, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %loop ]
  %p_ptr = getelementptr ptr, ptr %b, i64 %i
  %p = load ptr, ptr %p_ptr
  %x = load i64, ptr %p
  %sum1 = add i64 %sum, %x
  %i1 = add i64 %i, 1
  %more = icmp sle i64 %i1, 64
  br i1 %more, label %loop, label %done
done:
  store i64 %sum1, ptr %out
  ret i32 0
}

define i32 @nothing(ptr %b, ptr %v, ptr %s) {
  ret i32 0
}

; fails with code 7, statement 3, index -5, bound 2**40
define i32 @fail(ptr %b, ptr %v, ptr %s) {
  store i32 7, ptr %s
  %statement = getelementptr i8, ptr %s, i64 8
  store i32 3, ptr %statement
  %index = getelementptr i8, ptr %s, i64 16
  store i64 -5, ptr %index
  %bound = getelementptr i8, ptr %s, i64 24
  store i64 1099511627776, ptr %bound
  ret i32 7
}

define i32 @fail_silently(ptr %b, ptr %v, ptr %s) {
  ret i32 9
}

; spins var0 times
define i32 @spin(ptr %b, ptr %v, ptr %s) {
entry:
  %word = alloca i64
  %n = load i64, ptr %v
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  store volatile i64 %i, ptr %word
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

; env[i] = i * i for i in chunk; env[-1] counts the chunks
define void @squares_body(ptr %env, i64 %begin, i64 %end) {
entry:
  %count = getelementptr i64, ptr %env, i64 -1
  %old = atomicrmw add ptr %count, i64 1 monotonic
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %x = mul i64 %i, %i
  %p = getelementptr i64, ptr %env, i64 %i
  store i64 %x, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define i32 @squares(ptr %b, ptr %v, ptr %s) {
  %out = load ptr, ptr %b
  %env = getelementptr i64, ptr %out, i64 1
  %n = load i64, ptr %v
  call void @weft_parallel_for(ptr @squares_body, ptr %env, i64 %n)
  ret i32 0
}

; env[2 c] and env[2 c + 1] are the bounds of chunk c, in order of their begin
define void @bounds_body(ptr %env, i64 %begin, i64 %end) {
  %p = getelementptr i64, ptr %env, i64 %begin
  store i64 %end, ptr %p
  ret void
}

; each chunk of env adds 1 to env[0], a hundredfold, in a region of its own
define void @one_body(ptr %env, i64 %begin, i64 %end) {
  %n = sub i64 %end, %begin
  %old = atomicrmw add ptr %env, i64 %n monotonic
  ret void
}
define void @nested_body(ptr %env, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  call void @weft_parallel_for(ptr @one_body, ptr %env, i64 100)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define i32 @nested(ptr %b, ptr %v, ptr %s) {
  %out = load ptr, ptr %b
  %n = load i64, ptr %v
  call void @weft_parallel_for(ptr @nested_body, ptr %out, i64 %n)
  ret i32 0
}

; var0 regions of var1 iterations
define i32 @many_regions(ptr %b, ptr %v, ptr %s) {
entry:
  %out = load ptr, ptr %b
  %count = load i64, ptr %v
  %n_ptr = getelementptr i64, ptr %v, i64 1
  %n = load i64, ptr %n_ptr
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void @weft_parallel_for(ptr @one_body, ptr %out, i64 %n)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""
SYMBOLS = (
    "add_variable",
    "sum_64",
    "nothing",
    "fail",
    "fail_silently",
    "spin",
    "squares",
    "squares_body",
    "bounds_body",
    "one_body",
    "nested_body",
    "nested",
    "many_regions",
)
