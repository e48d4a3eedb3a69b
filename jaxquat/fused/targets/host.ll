; A kernel for this processor: a handler of XLA's foreign function interface.
;
; Its last operand is an int32 array: the number of members, and the most threads that are useful.
; Its last result, (threads, bytes), is scratch memory. @block runs the time loop for a vector of
; members. Threads take blocks from a common counter. The last block begins early rather than being
; ragged: members in two blocks are computed twice, with the same results. XLA may ask the handler
; which version of the interface it has, in place of a call. The offsets are those of
; XLA_FFI_CallFrame, XLA_FFI_Metadata and XLA_FFI_Buffer in xla/ffi/api/c_api.h.

%work = type { i64, i64, ptr }  ; the next block, the next thread, XLA's call frame
@jaxquat_threads = external global i64
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)

$functions

; the operands (at 72) or the results (at 112) of a call frame
define internal ptr @buffers(ptr %frame, i64 %offset) alwaysinline #0 {
  %at = getelementptr i8, ptr %frame, i64 %offset
  %buffers = load ptr, ptr %at
  ret ptr %buffers
}

; the memory of one of them
define internal ptr @data(ptr %buffers, i64 %number) alwaysinline #0 {
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %number
  %buffer = load ptr, ptr %buffer_at
  %data_at = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data_at
  ret ptr %data
}

define internal ptr @thread(ptr %work) #0 {
entry:
  %frame_at = getelementptr %work, ptr %work, i32 0, i32 2
  %frame = load ptr, ptr %frame_at
  %operands = call ptr @buffers(ptr %frame, i64 72)
  %results = call ptr @buffers(ptr %frame, i64 112)
  %counts = call ptr @data(ptr %operands, i64 $operands)
  %members32 = load i32, ptr %counts
  %members = zext i32 %members32 to i64
  %latest = sub i64 %members, $lanes
  %scratch_of_all = call ptr @data(ptr %results, i64 $results)
  %thread_at = getelementptr %work, ptr %work, i32 0, i32 1
  %thread = atomicrmw add ptr %thread_at, i64 1 monotonic
  %own = mul i64 %thread, $scratch
  %unaligned = getelementptr i8, ptr %scratch_of_all, i64 %own
  %address = ptrtoint ptr %unaligned to i64
  %beyond = add i64 %address, 63
  %aligned = and i64 %beyond, -64
  %scratch = inttoptr i64 %aligned to ptr
  br label %next
next:
  %number = atomicrmw add ptr %work, i64 1 monotonic
  %due = mul i64 %number, $lanes
  %more = icmp ult i64 %due, %members
  br i1 %more, label %run, label %done
run:
  %first = call i64 @llvm.umin.i64(i64 %due, i64 %latest)
  call fastcc void @block(ptr %operands, ptr %results, ptr %scratch, i64 %members, i64 %first)
  br label %next
done:
  ret ptr null
}

define ptr @jaxquat_kernel(ptr %frame) #0 {
entry:
  %work = alloca %work
  %threads = alloca [256 x i64]
  %extension_at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension_at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %execute, label %extended
extended:
  %kind_at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind_at
  %asked = icmp eq i32 %kind, 1
  br i1 %asked, label %describe, label %execute
describe:
  %metadata_at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata_at
  %major_at = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major_at  ; version 0.1; later ones admit it
  %minor_at = getelementptr i8, ptr %metadata, i64 28
  store i32 1, ptr %minor_at
  ret ptr null
execute:
  store %work zeroinitializer, ptr %work
  %frame_at = getelementptr %work, ptr %work, i32 0, i32 2
  store ptr %frame, ptr %frame_at
  %operands = call ptr @buffers(ptr %frame, i64 72)
  %counts = call ptr @data(ptr %operands, i64 $operands)
  %useful_at = getelementptr i8, ptr %counts, i64 4
  %useful32 = load i32, ptr %useful_at
  %useful = zext i32 %useful32 to i64
  %allowed = load i64, ptr @jaxquat_threads
  %count = call i64 @llvm.umin.i64(i64 %useful, i64 %allowed)
  br label %launch
launch:
  %n = phi i64 [ 1, %execute ], [ %n_next, %launched ]
  %another = icmp ult i64 %n, %count
  br i1 %another, label %one, label %own
one:
  %slot = getelementptr i64, ptr %threads, i64 %n
  %failed = call i32 @pthread_create(ptr %slot, ptr null, ptr @thread, ptr %work)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %launched, label %own
launched:
  %n_next = add i64 %n, 1
  br label %launch
own:
  %ignored = call ptr @thread(ptr %work)
  br label %join
join:
  %m = phi i64 [ 1, %own ], [ %m_next, %joined ]
  %waiting = icmp ult i64 %m, %n
  br i1 %waiting, label %joined, label %end
joined:
  %slot_of = getelementptr i64, ptr %threads, i64 %m
  %started = load i64, ptr %slot_of
  %ignored_too = call i32 @pthread_join(i64 %started, ptr null)
  %m_next = add i64 %m, 1
  br label %join
end:
  ret ptr null
}

declare i64 @llvm.umin.i64(i64, i64)
attributes #0 = { nounwind "denormal-fp-math"="preserve-sign,preserve-sign" "prefer-vector-width"="$width" "min-legal-vector-width"="$width" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
