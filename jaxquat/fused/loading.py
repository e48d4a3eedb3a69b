"""Compiled kernels in memory, where XLA can call them.

Each is a handler of XLA's foreign function interface. XLA does not report when the last executable
that calls it is gone, so it stays in memory, some 30 kB of at most ``MOST``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxquat.fused import gates
from jaxquat.fused.targets import host

MOST = 2**30  # bytes of object code in one process
_lock = threading.RLock()  # a kernel may be compiled by the thread that adds it
_size = 0
loaded: dict[str, Any] = {}  # the engines of LLVM that hold the code, by the name of the kernel


def target(name: str) -> str:
    """Return the name of a kernel in XLA, from its hash in hexadecimal digits."""
    return f"jaxquat_kernel_{name}"


def add(name: str, code: bytes | Callable[[], bytes]) -> None:
    """Let XLA call ``jaxquat_kernel`` of object code; NotImplementedError if there is too much.

    A function that compiles the code runs in another thread.
    """
    global _size
    with _lock:
        if name in loaded:
            return
        if _size > MOST:
            raise NotImplementedError(f"more than {MOST >> 20} MiB of kernels in one process")
        if isinstance(code, bytes):
            loaded[name] = engine = host.linked(code)
            address = engine.get_function_address("jaxquat_kernel")
            _size += len(code)
        else:
            loaded[name] = address = gates.opened(lambda: _counted(code()))
        capsule = jax.ffi.pycapsule(ctypes.c_void_p(address))
        jax.ffi.register_ffi_target(target(name), capsule, platform="cpu")


def _counted(code: bytes) -> bytes:
    global _size
    with _lock:
        _size += len(code)
    return code
