; A kernel for NVIDIA's GPUs. @member runs the time loop for one member; thread t of T takes the members
; t, t + T, t + 2 T and so on.
;
; In scratch memory neighbouring threads have neighbouring addresses, as in operands and results: an
; array of elements of s bytes that begins at byte b of each thread's part begins at b T + s t, with
; s T bytes from one element to the next.
;
; Without the attributes that name the threads of a block the driver may leave a thread 32 registers
; and put thousands of bytes into memory. LLVM 20 reads them from !nvvm.annotations alone.

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()

define internal i64 @threads() alwaysinline #0 {
  %blocks32 = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %blocks = zext i32 %blocks32 to i64
  %threads = mul i64 %blocks, $block
  ret i64 %threads
}

define internal i64 @thread() alwaysinline #0 {
  %tid32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %tid = zext i32 %tid32 to i64
  %block32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext i32 %block32 to i64
  %before = mul i64 %block, $block
  %thread = add i64 %before, %tid
  ret i64 %thread
}

define internal i64 @between(i64 %size) alwaysinline #0 {
  %threads = call i64 @threads()
  %bytes = mul i64 %threads, %size
  ret i64 %bytes
}

define internal ptr @element(ptr %scratch, i64 %begin, i64 %size) alwaysinline #0 {
  %thread = call i64 @thread()
  %own = mul i64 %thread, %size
  %array = call i64 @between(i64 %begin)
  %offset = add i64 %array, %own
  %element = getelementptr i8, ptr %scratch, i64 %offset
  ret ptr %element
}

$functions

define ptx_kernel void @$kernel($parameters) #1 {
entry:
$casts
  %members32 = load i32, ptr %counts
  %members = zext i32 %members32 to i64
  %thread = call i64 @thread()
  %threads = call i64 @threads()
  %some = icmp ult i64 %thread, %members
  br i1 %some, label %run, label %done
run:
  %first = phi i64 [ %thread, %entry ], [ %following, %run ]
  call fastcc void @member($arrays, ptr $memory, i64 %members, i64 %first)
  %following = add i64 %first, %threads
  %more = icmp ult i64 %following, %members
  br i1 %more, label %run, label %done
done:
  ret void
}

attributes #0 = { nounwind }
attributes #1 = { nounwind "nvvm.maxntid"="$block" "nvvm.minctasm"="1" }
!nvvm.annotations = !{!1}
!0 = !{!"branch_weights", i32 1, i32 1000000}
!1 = !{ptr @$kernel, !"maxntidx", i32 $block, !"minctasm", i32 1}
