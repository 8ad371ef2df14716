define i32 @k(ptr noalias %buffers, ptr noalias %vars, ptr %status) #3 {
entry:
  %env1 = alloca [16 x i8], align 64
  %p0 = load ptr, ptr %buffers
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at
  %t0 = getelementptr i8, ptr %env1, i64 0
  store ptr %p0, ptr %t0, align 8
  %t1 = getelementptr i8, ptr %env1, i64 8
  store ptr %p1, ptr %t1, align 8
  call void @weft_parallel_for(ptr @k.par0, ptr %env1, i64 4)
  ret i32 0
}

define internal void @k.par0(ptr noalias %env, i64 %begin, i64 %end) #0 {
entry:
  %c0.at = getelementptr i8, ptr %env, i64 0
  %c0 = load ptr, ptr %c0.at, align 8
  %c1.at = getelementptr i8, ptr %env, i64 8
  %c1 = load ptr, ptr %c1.at, align 8
  %t0 = icmp slt i64 %begin, %end
  br i1 %t0, label %loop1, label %end2
loop1:
  %i0 = phi i64 [ %begin, %entry ], [ %i0.next, %on5 ]
  %t1 = mul i64 %i0, 16
  %t2 = getelementptr inbounds float, ptr %c0, i64 %t1
  %t3 = load <16 x float>, ptr %t2, align 4, !alias.scope !3, !noalias !4
  %t4 = fmul <16 x float> %t3, %t3
  %t5 = getelementptr inbounds float, ptr %c1, i64 %t1
  %t6 = ptrtoint ptr %t5 to i64
  %t7 = and i64 %t6, 63
  %t8 = icmp eq i64 %t7, 0
  br i1 %t8, label %past3, label %plain4
past3:
  store <16 x float> %t4, ptr %t5, align 64, !nontemporal !7, !alias.scope !5, !noalias !6
  br label %on5
plain4:
  store <16 x float> %t4, ptr %t5, align 4, !alias.scope !5, !noalias !6
  br label %on5
on5:
  %i0.next = add nuw nsw i64 %i0, 1
  %t9 = icmp slt i64 %i0.next, %end
  br i1 %t9, label %loop1, label %end2
end2:
  call void @llvm.x86.sse.sfence()
  ret void
}

declare void @llvm.x86.sse.sfence()
declare void @weft_parallel_for(ptr, ptr, i64)

attributes #0 = { nounwind "target-cpu"="znver4" "target-features"="+avx512f" "prefer-vector-width"="512" }

attributes #3 = { noinline optnone nounwind "target-cpu"="znver4" "target-features"="+avx512f" "prefer-vector-width"="512" }

!0 = !{!"kernel"}
!1 = !{!"x", !0}
!2 = !{!"y", !0}
!3 = !{!1}
!4 = !{!2}
!5 = !{!2}
!6 = !{!1}
!7 = !{i32 1}
