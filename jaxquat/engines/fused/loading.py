"""Compiled kernels in memory: a bounded number, which XLA calls through one handler that stays.

Nobody tells when the last executable that calls a kernel is gone. So XLA never knows the address of
a kernel: it calls the gate, a handler in LLVM code, with the kernel's number (64 bits of its hash)
in the last operand. The gate

1. looks the number up in a table (``_places``) that Python and the gate share,
2. adds one to the calls of this kernel that are under way, and notes the time,
3. calls the kernel, after ``jaxquat_load`` (``_load_again``) if its code is not in memory,
4. takes the one away again.

If more than ``KEPT`` kernels are in memory, the one that was called longest ago is unloaded, but
only if no call of it is under way. Its object code stays, compressed, and is loaded again when the
kernel is called again.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import zlib
from typing import Any, NamedTuple

import jax

KEPT = 64  # kernels in memory
PLACES = 2**16  # places in the table, a power of two
TARGET = "jaxquat_kernel"  # the name under which XLA knows the gate
VERSION = (0, 1)  # the version of XLA's foreign function interface; later ones admit it

_GATE = f"""
%place = type {{ i64, ptr, i64, i64 }}
@jaxquat_places = external global [{PLACES} x %place]
@jaxquat_clock = external global i64
@message = private constant [36 x i8] c"jaxquat: a kernel cannot be loaded\\0A\\00"
declare ptr @jaxquat_load(i64)

define internal ptr @find(i64 %number) nounwind {{
entry:
  br label %look
look:
  %k = phi i64 [ %number, %entry ], [ %next, %other ]
  %index = and i64 %k, {PLACES - 1}
  %place = getelementptr [{PLACES} x %place], ptr @jaxquat_places, i64 0, i64 %index
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
}}

define i64 @jaxquat_unload(i64 %number) nounwind {{
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
}}

define ptr @jaxquat_gate(ptr %frame) nounwind {{
entry:
  %error = alloca {{ i64, ptr, ptr, i32 }}
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
  store i32 {VERSION[0]}, ptr %major_at
  %minor_at = getelementptr i8, ptr %metadata, i64 28
  store i32 {VERSION[1]}, ptr %minor_at
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
  store {{ i64, ptr, ptr, i32 }} {{ i64 32, ptr null, ptr @message, i32 13 }}, ptr %error
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}
"""


class _Place(ctypes.Structure):
    """An entry of the table; its number is 0 if it is free."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("code", ctypes.c_void_p),
        ("users", ctypes.c_int64),
        ("time", ctypes.c_int64),
    )


_places, _clock = (_Place * PLACES)(), ctypes.c_int64(1)
_lock = threading.RLock()
_objects: dict[int, bytes] = {}  # object code by number, compressed
loaded: dict[int, Any] = {}  # the engines that hold the code of the kernels in memory, by number


def number(name: str) -> int:
    """The number of a kernel, from its hash in hexadecimal digits."""
    return int(name[:16], 16) or 1


def known(name: str) -> bool:
    """Whether XLA may call a kernel."""
    return number(name) in _objects


def add(name: str, code: bytes) -> None:
    """Lets XLA call a kernel; its object code defines the function ``jaxquat_kernel``."""
    with _lock:
        _gate()
        if not known(name):
            if len(_objects) > PLACES // 2:
                raise NotImplementedError(
                    f"more than {PLACES // 2} different fused kernels in one process"
                )
            _objects[number(name)] = zlib.compress(code, 1)
            _places[_index(number(name))].number = number(name)
            _load(number(name))


@functools.cache
def host() -> tuple[str, str]:
    """Name and features of the processor."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def machine() -> Any:
    """LLVM's description of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = host()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, jit=True
    )


def _linked(code: bytes) -> Any:
    """An engine of LLVM that holds object code in memory and knows its addresses."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _index(number: int) -> int:
    """The index of the place of a number, or of the free place where it belongs."""
    index = number % PLACES
    while _places[index].number not in (0, number):
        index = (index + 1) % PLACES
    return index


def _load(number: int) -> int:
    """The address of a kernel, which is loaded if it is not; another is unloaded if needed."""
    with _lock:
        place = _places[_index(number)]
        if not place.code:
            for other in sorted(loaded, key=lambda other: _places[_index(other)].time):
                if len(loaded) < KEPT:
                    break
                if _gate().unload(other):
                    del loaded[other]
            loaded[number] = _linked(zlib.decompress(_objects[number]))
            place.time = _clock.value
            place.code = loaded[number].get_function_address("jaxquat_kernel")
        return place.code


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64)
def _load_again(number: int) -> int | None:
    try:
        return _load(number)
    except Exception:  # out of memory, say: the gate makes an error of it
        return None


class _Gate(NamedTuple):
    engine: Any  # holds the code
    unload: Any


@functools.cache
def _gate() -> _Gate:
    """The gate, compiled and made known to XLA."""
    import llvmlite.binding as llvm

    target = machine()
    llvm.add_symbol("jaxquat_places", ctypes.addressof(_places))
    llvm.add_symbol("jaxquat_clock", ctypes.addressof(_clock))
    llvm.add_symbol("jaxquat_load", ctypes.cast(_load_again, ctypes.c_void_p).value)
    module = llvm.parse_assembly(_GATE)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    engine = _linked(target.emit_object(module))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    gate = capsule(engine.get_function_address("jaxquat_gate"), None, None)
    jax.ffi.register_ffi_target(TARGET, gate, platform="cpu")
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)
    return _Gate(engine, signature(engine.get_function_address("jaxquat_unload")))
