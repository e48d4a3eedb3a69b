; The gate: the one handler that XLA knows, which calls a kernel by its number (see loading.py).
; The offsets are those of XLA_FFI_CallFrame and XLA_FFI_Metadata in xla/ffi/api/c_api.h.

%place = type { i64, ptr, i64, i64 }
@jaxquat_places = external global [$places x %place]
@jaxquat_clock = external global i64
@message = private constant [36 x i8] c"jaxquat: a kernel cannot be loaded\0A\00"
declare ptr @jaxquat_load(i64)

define internal ptr @find(i64 %number) nounwind {
entry:
  br label %look
look:
  %k = phi i64 [ %number, %entry ], [ %next, %other ]
  %index = and i64 %k, $mask
  %place = getelementptr [$places x %place], ptr @jaxquat_places, i64 0, i64 %index
  %there = load atomic i64, ptr %place seq_cst, align 8
  %same = icmp eq i64 %there, %number
  br i1 %same, label %found, label %other
other:
  %next = add i64 %k, 1
  %free = icmp eq i64 %there, 0
  br i1 %free, label %none, label %look
found:
  ret ptr %place
none:
  ret ptr null
}

define i64 @jaxquat_unload(i64 %number) nounwind {
entry:
  %place = call ptr @find(i64 %number)
  %code_at = getelementptr %place, ptr %place, i32 0, i32 1
  %users_at = getelementptr %place, ptr %place, i32 0, i32 2
  %code = atomicrmw xchg ptr %code_at, ptr null seq_cst
  %users = load atomic i64, ptr %users_at seq_cst, align 8
  %idle = icmp eq i64 %users, 0
  br i1 %idle, label %done, label %restore
restore:
  store atomic ptr %code, ptr %code_at seq_cst, align 8
  ret i64 0
done:
  ret i64 1
}

define ptr @jaxquat_gate(ptr %frame) nounwind {
entry:
  %error = alloca { i64, ptr, ptr, i32 }
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
  store i32 $major, ptr %major_at
  %minor_at = getelementptr i8, ptr %metadata, i64 28
  store i32 $minor, ptr %minor_at
  ret ptr null
execute:
  %count_at = getelementptr i8, ptr %frame, i64 56
  %count = load i64, ptr %count_at
  %args_at = getelementptr i8, ptr %frame, i64 72
  %args = load ptr, ptr %args_at
  %last = sub i64 %count, 1
  %buffer_at = getelementptr ptr, ptr %args, i64 %last
  %buffer = load ptr, ptr %buffer_at
  %data_at = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data_at
  %number_at = getelementptr i8, ptr %data, i64 8
  %number = load i64, ptr %number_at, align 4
  %place = call ptr @find(i64 %number)
  %unknown = icmp eq ptr %place, null
  br i1 %unknown, label %failed, label %known
known:
  %users_at = getelementptr %place, ptr %place, i32 0, i32 2
  %users = atomicrmw add ptr %users_at, i64 1 seq_cst
  %time = atomicrmw add ptr @jaxquat_clock, i64 1 seq_cst
  %time_at = getelementptr %place, ptr %place, i32 0, i32 3
  store atomic i64 %time, ptr %time_at seq_cst, align 8
  %code_at = getelementptr %place, ptr %place, i32 0, i32 1
  %there = load atomic ptr, ptr %code_at seq_cst, align 8
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %load, label %call
load:
  %loaded = call ptr @jaxquat_load(i64 %number)
  %still = icmp eq ptr %loaded, null
  br i1 %still, label %leave, label %call
call:
  %code = phi ptr [ %there, %known ], [ %loaded, %load ]
  %result = call ptr %code(ptr %frame)
  %before = atomicrmw sub ptr %users_at, i64 1 seq_cst
  ret ptr %result
leave:
  %before2 = atomicrmw sub ptr %users_at, i64 1 seq_cst
  br label %failed
failed:
  %api_at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create_at
  store { i64, ptr, ptr, i32 } { i64 32, ptr null, ptr @message, i32 13 }, ptr %error
  %made = call ptr %create(ptr %error)
  ret ptr %made
}
