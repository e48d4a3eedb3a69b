; Gates: handlers of XLA's foreign function interface for kernels that are not compiled yet.
;
; Each has an entry in @jaxquat_entries: the address of its kernel, 0 before it is compiled, or 1 if
; it cannot be. A gate waits without Python, whose interpreter may end before XLA's threads do. XLA
; may ask for the version of the interface, see host.ll. The offsets are those of XLA_FFI_CallFrame,
; XLA_FFI_Api and XLA_FFI_Error_Create_Args in xla/ffi/api/c_api.h.

@jaxquat_entries = global [$count x i64] zeroinitializer
@message = internal constant [48 x i8] c"jaxquat: a kernel could not be compiled by LLVM\00"
declare i32 @usleep(i32)

define internal ptr @pass(ptr %frame, i64 %number) noinline {
entry:
  %entry_at = getelementptr i64, ptr @jaxquat_entries, i64 %number
  %extension_at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension_at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %look, label %extended
extended:
  %kind_at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind_at
  %asked = icmp eq i32 %kind, 1
  br i1 %asked, label %describe, label %look
describe:
  %metadata_at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata_at
  %major_at = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major_at
  %minor_at = getelementptr i8, ptr %metadata, i64 28
  store i32 1, ptr %minor_at
  ret ptr null
look:
  %known = load atomic i64, ptr %entry_at acquire, align 8
  switch i64 %known, label %run [
    i64 0, label %wait
    i64 1, label %fail
  ]
wait:
  %slept = call i32 @usleep(i32 100)
  br label %look
run:
  %kernel = inttoptr i64 %known to ptr
  %result = tail call ptr %kernel(ptr %frame)
  ret ptr %result
fail:
  %error = alloca { i64, ptr, ptr, i32 }
  store { i64, ptr, ptr, i32 } { i64 28, ptr null, ptr @message, i32 13 }, ptr %error
  %api_at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create_at
  %created = call ptr %create(ptr %error)
  ret ptr %created
}

$gates
