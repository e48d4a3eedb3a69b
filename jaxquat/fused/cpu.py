"""Kernels for the CPU: LLVM assembly compiled by llvmlite, kept in memory and on disk, called by XLA as custom calls."""

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.arguments import missing_package, positive_integer
from jaxquat.fused.assembly import assembly
from jaxquat.fused.kernel import Leaf, Loop

FORMAT = b"jaxquat kernel 1\n"
KEPT = 64  # kernels and compiled calls that are kept though nothing refers to them

_threads = ctypes.c_int64(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
_lock = threading.Lock()


def set_threads(count: int) -> None:
    """How many threads a fused kernel on the CPU uses, 1 to 256; at first as many as there are processors.

    What is compiled already takes no more threads than were set when it was compiled.
    """
    count = positive_integer("count", count)
    if count > 256:
        raise ValueError(f"count: wanted 1 to 256 threads, got {count}")
    _threads.value = count


def missing() -> str | None:
    """What a fused kernel on the CPU lacks here, or None."""
    if os.name != "posix":
        return 'engine "fused" on the CPU needs POSIX threads; use engine="scan"'
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return missing_package("engine", "llvmlite", "fused")
    return None


def call(loop: Loop, kind: str, batched: Sequence[bool], bodies: int, operands: Sequence[Array]) -> list[Array]:
    """The results, (bodies, rows, size) each, for operands (bodies,) + (rows,) + (size,), without the first where not batched."""
    lanes = _lanes(loop, bodies)
    name, scratch = _target(loop, kind, tuple(batched), lanes)
    threads = min(_threads.value, -(-bodies // lanes))
    given = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(operands, batched, strict=True)]
    shapes = [
        jax.ShapeDtypeStruct((*(() if rows is None else (rows,)), leaf.size, bodies), leaf.dtype)
        for leaf, rows in loop.results(kind)
    ]
    run = jax.ffi.ffi_call(name, [*shapes, jax.ShapeDtypeStruct((threads, scratch), np.uint8)])
    *found, _ = run(*given, np.array([bodies, threads], np.int32))
    return [jnp.moveaxis(x, -1, 0) for x in found]


def _lanes(loop: Loop, bodies: int) -> int:
    """A power of two: the vector register, or fewer where there are fewer bodies."""
    widest = max((leaf.dtype.itemsize for leaf in _all(loop)), default=8)
    full = _register_bytes() // widest
    return min(full, 1 << (bodies.bit_length() - 1))


def _all(loop: Loop) -> list[Leaf]:
    return [leaf for leaf in (*loop.constants, *loop.state, *loop.memory, *loop.held) if leaf.smooth]


@functools.cache
def _register_bytes() -> int:
    features = _host()[1]
    return 64 if "+avx512f" in features else 32 if "+avx" in features else 16


@functools.cache
def _host() -> tuple[str, str]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def _target(loop: Loop, kind: str, batched: tuple[bool, ...], lanes: int) -> tuple[str, int]:
    """The name under which XLA knows the kernel, and the bytes that each of its threads wants."""
    bits = 8 * _register_bytes()
    features = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    text, scratch = assembly(loop, kind, batched, lanes, "jaxquat_kernel", features)
    name = "jaxquat_" + hashlib.sha256(text.encode()).hexdigest()[:32]
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(text)
            capsule = ctypes.pythonapi.PyCapsule_New
            capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            jax.ffi.register_ffi_target(name, capsule(_loaded[name][1], None, None), platform="cpu")
    return name, scratch


_loaded: dict[str, tuple[object, int]] = {}


def _load(text: str) -> tuple[object, int]:
    """The compiled module and the address of its kernel."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol("jaxquat_threads", ctypes.addressof(_threads))
    cpu, features = _host()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    key = hashlib.sha256("\n".join([text, cpu, features, machine.triple, str(llvm.llvm_version_info)]).encode()).digest()
    code = _read(key)
    if code is None:
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        code = machine.emit_object(module)
        _write(key, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, engine.get_function_address("jaxquat_kernel")


def _folder() -> Path | None:
    """Where object code is kept: $JAXQUAT_CACHE, empty for nowhere, or the user's cache."""
    given = os.environ.get("JAXQUAT_CACHE")
    if given is not None:
        return Path(given) if given else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxquat"


def _read(key: bytes) -> bytes | None:
    """The object code under a key; None if there is none, or a file that is not whole and ours."""
    folder = _folder()
    if folder is None:
        return None
    try:
        data = (folder / f"{key.hex()}.o").read_bytes()
    except OSError:
        return None
    head, code = data[: len(FORMAT) + 64], data[len(FORMAT) + 64 :]
    return code if head == FORMAT + key + hashlib.sha256(code).digest() else None


def _write(key: bytes, code: bytes) -> None:
    """All or nothing, whoever else writes the same; a folder that cannot be written is no error."""
    folder = _folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(FORMAT + key + hashlib.sha256(code).digest() + code)
            os.replace(name, folder / f"{key.hex()}.o")
        except OSError:
            Path(name).unlink(missing_ok=True)
    except OSError:
        pass
