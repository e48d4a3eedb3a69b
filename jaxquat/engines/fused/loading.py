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

from jaxquat.engines.fused.targets import host, template

KEPT = 64  # kernels in memory
PLACES = 2**16  # places in the table, a power of two
TARGET = "jaxquat_kernel"  # the name under which XLA knows the gate
VERSION = (0, 1)  # the version of XLA's foreign function interface; later ones admit it


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


def _linked(code: bytes) -> Any:
    """An engine of LLVM that holds object code in memory and knows its addresses."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host.machine())
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

    llvm.add_symbol("jaxquat_places", ctypes.addressof(_places))
    llvm.add_symbol("jaxquat_clock", ctypes.addressof(_clock))
    llvm.add_symbol("jaxquat_load", ctypes.cast(_load_again, ctypes.c_void_p).value)
    major, minor = VERSION
    text = template("gate.ll", places=PLACES, mask=PLACES - 1, major=major, minor=minor)
    engine = _linked(host.compiled(text, optimise=False))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    gate = capsule(engine.get_function_address("jaxquat_gate"), None, None)
    jax.ffi.register_ffi_target(TARGET, gate, platform="cpu")
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)
    return _Gate(engine, signature(engine.get_function_address("jaxquat_unload")))
