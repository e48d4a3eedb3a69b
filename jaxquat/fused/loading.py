"""Compiled kernels in memory, where XLA can call them.

Each is a handler of XLA's foreign function interface. XLA does not report when the last executable
that calls it is gone, so it stays in memory, some 30 kB of at most ``MOST``.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import jax

from jaxquat.fused.targets import host

MOST = 2**30  # bytes of object code in one process
_lock = threading.Lock()
_size = 0
loaded: dict[str, Any] = {}  # the engines of LLVM that hold the code, by the name of the kernel


def target(name: str) -> str:
    """Return the name of a kernel in XLA, from its hash in hexadecimal digits."""
    return f"jaxquat_kernel_{name}"


def add(name: str, code: bytes) -> None:
    """Let XLA call ``jaxquat_kernel`` of object code; NotImplementedError if there is too much."""
    global _size
    with _lock:
        if name in loaded:
            return
        if _size + len(code) > MOST:
            raise NotImplementedError(f"more than {MOST >> 20} MiB of kernels in one process")
        engine = linked(code)
        address: Any = ctypes.c_void_p(engine.get_function_address("jaxquat_kernel"))
        jax.ffi.register_ffi_target(target(name), jax.ffi.pycapsule(address), platform="cpu")
        loaded[name] = engine
        _size += len(code)


def linked(code: bytes) -> Any:
    """Return an LLVM engine that holds object code in memory and knows its addresses."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host.machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
