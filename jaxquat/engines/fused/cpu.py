"""Kernels for the CPU: compiled by llvmlite, kept in memory and on disk, called by XLA.

``call`` is what the primitive of ``engine`` is lowered to. It chooses the number of lanes, gets the
kernel (``_kernel``) and calls it through XLA's foreign function interface: the target is the gate
of ``loading``, and the last operand says which kernel it shall run, for how many bodies.

``_kernel`` writes the assembly. Its hash, with that of the processor and of LLVM, is the key under
which object code is kept: in memory by ``loading``, and in a file ``KEY.o`` of the cache folder. A
kernel that is in neither is compiled. A file holds FORMAT, its key, the hash of the code, and the
code; anything else is not used. Since the code is executed, neither is a file or a folder that
another user owns or can write to.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import secrets
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._checks import missing_package, positive_integer
from jaxquat.engines.fused import loading
from jaxquat.engines.fused.assembly import assembly
from jaxquat.engines.fused.kernel import Leaf, Loop

FORMAT = b"jaxquat kernel 1\n"

_threads = ctypes.c_int64(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


def set_threads(count: int) -> None:
    """Set how many threads a fused kernel on the CPU uses: 1 to 256, at first one per processor.

    A function that is compiled already uses no more threads than were set when it was compiled.
    """
    count = positive_integer("count", count)
    if count > 256:
        raise ValueError(f"count: wanted 1 to 256 threads, got {count}")
    _threads.value = count


def missing() -> str | None:
    """Why there are no fused kernels on this CPU, as an error message; None if there are."""
    if os.name != "posix":
        return 'engine "fused" on the CPU needs POSIX threads; use engine="scan"'
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return missing_package("engine", "llvmlite", "fused")
    return None


def call(
    loop: Loop, kind: str, batched: Sequence[bool], bodies: int, operands: Sequence[Array]
) -> list[Array]:
    """The results of a kernel, with shapes (bodies, rows, size) or (bodies, size).

    ``operands`` have these shapes too, without the axis of bodies where they are not ``batched``.
    ``kind`` is that of ``Loop.operands``.
    """
    lanes = _lanes(loop, bodies)
    number, scratch = _kernel(loop, kind, tuple(batched), lanes)
    threads = min(_threads.value, -(-bodies // lanes))
    arrays = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(operands, batched, strict=True)]
    shapes = [
        jax.ShapeDtypeStruct((*(() if rows is None else (rows,)), leaf.size, bodies), leaf.dtype)
        for leaf, rows in loop.results(kind)
    ]
    memory = jax.ShapeDtypeStruct((threads, scratch), np.uint8)
    run = jax.ffi.ffi_call(loading.TARGET, [*shapes, memory])
    words = np.array([number], np.uint64).view(np.int32)
    *results, _ = run(*arrays, np.array([bodies, threads, *words], np.int32))
    return [jnp.moveaxis(x, -1, 0) for x in results]


def _lanes(loop: Loop, bodies: int) -> int:
    """Bodies in a vector, a power of two: those that fill a register, at most as there are."""
    widest = max((leaf.dtype.itemsize for leaf in _floats(loop)), default=8)
    full = _register_bytes() // widest
    return min(full, 1 << (bodies.bit_length() - 1))


def _floats(loop: Loop) -> list[Leaf]:
    leaves = (*loop.constants, *loop.state, *loop.memory, *loop.command)
    return [leaf for leaf in leaves if leaf.smooth]


@functools.cache
def _register_bytes() -> int:
    features = loading.host()[1]
    return 64 if "+avx512f" in features else 32 if "+avx" in features else 16


@functools.lru_cache(maxsize=loading.KEPT)
def _kernel(loop: Loop, kind: str, batched: tuple[bool, ...], lanes: int) -> tuple[int, int]:
    """The number of the kernel, and the bytes of scratch memory that each of its threads needs."""
    import llvmlite.binding as llvm

    bits = 8 * _register_bytes()
    features = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    text, scratch = assembly(loop, kind, batched, lanes, "jaxquat_kernel", features)
    llvm.add_symbol("jaxquat_threads", ctypes.addressof(_threads))
    machine = loading.machine()
    parts = [text, *loading.host(), machine.triple, str(llvm.llvm_version_info)]
    key = hashlib.sha256("\n".join(parts).encode())
    if not loading.known(key.hexdigest()):
        code = kept(key.digest())
        if code is None:
            code = _compiled(text, machine)
            keep(key.digest(), code)
        loading.add(key.hexdigest(), code)
    return loading.number(key.hexdigest()), scratch


def _compiled(text: str, machine: Any) -> bytes:
    """The object code of a module."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _folder() -> Path | None:
    """The cache folder: $JAXQUAT_CACHE, or that of the user.

    None if the variable is set to nothing, or if the user has no home.
    """
    own = os.environ.get("JAXQUAT_CACHE")
    if own is not None:
        return Path(own) if own else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    try:  # the XDG specification wants relative paths ignored
        return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jaxquat"
    except RuntimeError:
        return None


def _private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextlib.contextmanager
def _opened_folder(make: bool) -> Iterator[int | None]:
    """A descriptor of the cache folder, or None if there is none that can be trusted.

    With a descriptor it stays the same folder whatever its path comes to name. A folder or file
    that others can change is not used, with a warning, since what lies there is executed.
    """
    folder = _folder()
    if folder is None:
        yield None
        return
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError):  # ValueError: a null byte in the path
        yield None
        return
    try:
        fine = _private(os.fstat(descriptor))
        if not fine:
            _warn(folder)
        yield descriptor if fine else None
    finally:
        os.close(descriptor)


def _warn(path: Path) -> None:
    message = (
        f"{path}: kernels are neither read nor kept here, for others than you can write to it, "
        "or own it; chmod go-w, or set JAXQUAT_CACHE"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def kept(key: bytes, suffix: str = "o") -> bytes | None:
    """What was kept under a key; None if there is no file of it that is whole and ours."""
    with _opened_folder(make=False) as folder:
        if folder is None:
            return None
        try:  # no links; and a pipe in place of the file must not block
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(f"{key.hex()}.{suffix}", flags, dir_fd=folder)
        except OSError:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not _private(status):
                _warn((_folder() or Path()) / f"{key.hex()}.{suffix}")
                return None
            try:
                data = file.read()
            except OSError:
                return None
    head, code = data[: len(FORMAT) + 64], data[len(FORMAT) + 64 :]
    return code if head == FORMAT + key + hashlib.sha256(code).digest() else None


def keep(key: bytes, code: bytes, suffix: str = "o") -> None:
    """Keeps object code, or other bytes, in a file, all of it or nothing.

    Others may write the same file. A folder that cannot be written to is no error.
    """
    with _opened_folder(make=True) as folder:
        if folder is None:
            return
        name = f".{secrets.token_hex(8)}"
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(FORMAT + key + hashlib.sha256(code).digest() + code)
                os.replace(name, f"{key.hex()}.{suffix}", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(name, dir_fd=folder)
        except OSError:
            pass
