define i32 @k(ptr noalias %buffers, ptr noalias %vars, ptr %status) #0 {
entry:
  %m0 = alloca [64 x i8], align 64
  %p0 = load ptr, ptr %buffers
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at
  store <8 x float> splat (float 0x0000000000000000), ptr %m0, align 4, !alias.scope !4, !noalias !5
  br label %loop1
loop1:
  %i2 = phi i64 [ 0, %entry ], [ %i2.next, %loop1 ]
  %t0 = mul i64 %i2, 8
  %t1 = insertelement <8 x i64> poison, i64 %t0, i64 0
  %t2 = shufflevector <8 x i64> %t1, <8 x i64> poison, <8 x i32> zeroinitializer
  %t3 = add <8 x i64> %t2, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %t4 = icmp slt <8 x i64> %t3, splat (i64 20)
  %t5 = getelementptr float, ptr %p0, i64 %t0
  %t6 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %t5, i32 4, <8 x i1> %t4, <8 x float> zeroinitializer), !alias.scope !6, !noalias !7
  %t7 = load <8 x float>, ptr %m0, align 4, !alias.scope !4, !noalias !5
  %t8 = fadd <8 x float> %t7, %t6
  store <8 x float> %t8, ptr %m0, align 4, !alias.scope !4, !noalias !5
  %i2.next = add nuw nsw i64 %i2, 1
  %t9 = icmp slt i64 %i2.next, 3
  br i1 %t9, label %loop1, label %end2
end2:
  %t10 = load <8 x float>, ptr %m0, align 4, !alias.scope !4, !noalias !5
  %t11 = shufflevector <8 x float> %t10, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %t12 = shufflevector <8 x float> %t10, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %t13 = fadd <4 x float> %t11, %t12
  %t14 = shufflevector <4 x float> %t13, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %t15 = shufflevector <4 x float> %t13, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %t16 = fadd <2 x float> %t14, %t15
  %t17 = extractelement <2 x float> %t16, i64 0
  %t18 = extractelement <2 x float> %t16, i64 1
  %t19 = fadd float %t17, %t18
  %t20 = fcmp oeq float %t19, %t19
  br i1 %t20, label %on4, label %failed3, !prof !8
failed3:
  call void @weft.fail(ptr %status, i32 0, i64 0, i64 0)
  ret i32 1
on4:
  store float %t19, ptr %p1, align 4, !alias.scope !9, !noalias !10
  ret i32 0
}

define internal void @weft.fail(ptr %status, i32 %statement, i64 %value, i64 %bound) #1 {
entry:
  %code = add i32 %statement, 1
  %fail.pair = cmpxchg ptr %status, i32 0, i32 %code acq_rel monotonic
  %fail.first = extractvalue { i32, i1 } %fail.pair, 1
  br i1 %fail.first, label %fail.write, label %fail.done
fail.write:
  %fail.statement = getelementptr i8, ptr %status, i64 8
  store i32 %statement, ptr %fail.statement
  %fail.index = getelementptr i8, ptr %status, i64 16
  store i64 %value, ptr %fail.index
  %fail.bound = getelementptr i8, ptr %status, i64 24
  store i64 %bound, ptr %fail.bound
  br label %fail.done
fail.done:
  ret void
}

declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)

attributes #0 = { nounwind }

attributes #1 = { nounwind noinline cold optnone }

!0 = !{!"kernel"}
!1 = !{!"acc", !0}
!2 = !{!"x", !0}
!3 = !{!"y", !0}
!4 = !{!1}
!5 = !{!2, !3}
!6 = !{!2}
!7 = !{!1, !3}
!8 = !{!"branch_weights", i32 1048575, i32 1}
!9 = !{!3}
!10 = !{!1, !2}
