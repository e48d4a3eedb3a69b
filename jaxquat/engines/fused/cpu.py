"""Kernels for the CPU: LLVM assembly compiled by llvmlite, kept in memory and on disk, called by XLA as custom calls."""

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


def call(
    loop: Loop, kind: str, batched: Sequence[bool], bodies: int, operands: Sequence[Array]
) -> list[Array]:
    """The results, (bodies, rows, size) each, for operands (bodies,) + (rows,) + (size,), without the first where not batched."""
    lanes = _lanes(loop, bodies)
    number, scratch = _kernel(loop, kind, tuple(batched), lanes)
    threads = min(_threads.value, -(-bodies // lanes))
    given = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(operands, batched, strict=True)]
    shapes = [
        jax.ShapeDtypeStruct((*(() if rows is None else (rows,)), leaf.size, bodies), leaf.dtype)
        for leaf, rows in loop.results(kind)
    ]
    run = jax.ffi.ffi_call(
        loading.TARGET, [*shapes, jax.ShapeDtypeStruct((threads, scratch), np.uint8)]
    )
    words = np.array([number], np.uint64).view(np.int32)
    *found, _ = run(*given, np.array([bodies, threads, *words], np.int32))
    return [jnp.moveaxis(x, -1, 0) for x in found]


def _lanes(loop: Loop, bodies: int) -> int:
    """A power of two: the vector register, or fewer where there are fewer bodies."""
    widest = max((leaf.dtype.itemsize for leaf in _all(loop)), default=8)
    full = _register_bytes() // widest
    return min(full, 1 << (bodies.bit_length() - 1))


def _all(loop: Loop) -> list[Leaf]:
    return [
        leaf for leaf in (*loop.constants, *loop.state, *loop.memory, *loop.held) if leaf.smooth
    ]


@functools.cache
def _register_bytes() -> int:
    features = loading.host()[1]
    return 64 if "+avx512f" in features else 32 if "+avx" in features else 16


@functools.lru_cache(maxsize=loading.KEPT)
def _kernel(loop: Loop, kind: str, batched: tuple[bool, ...], lanes: int) -> tuple[int, int]:
    """The number of the kernel, and the bytes that each of its threads wants."""
    import llvmlite.binding as llvm

    bits = 8 * _register_bytes()
    features = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    text, scratch = assembly(loop, kind, batched, lanes, "jaxquat_kernel", features)
    llvm.add_symbol("jaxquat_threads", ctypes.addressof(_threads))
    machine = loading.machine()
    key = hashlib.sha256(
        "\n".join([text, *loading.host(), machine.triple, str(llvm.llvm_version_info)]).encode()
    )
    if not loading.known(key.hexdigest()):
        code = _read(key.digest())
        if code is None:
            code = _compiled(text, machine)
            _write(key.digest(), code)
        loading.add(key.hexdigest(), code)
    return loading.number(key.hexdigest()), scratch


def _compiled(text: str, machine: Any) -> bytes:
    """Object code of a module."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _folder() -> Path | None:
    """Where object code is kept: $JAXQUAT_CACHE, empty for nowhere, or the user's cache; None without a home."""
    given = os.environ.get("JAXQUAT_CACHE")
    if given is not None:
        return Path(given) if given else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    try:  # by its specification a relative path is to be ignored
        return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jaxquat"
    except RuntimeError:
        return None


def _private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextlib.contextmanager
def _opened_folder(make: bool) -> Iterator[int | None]:
    """A descriptor of the folder, so that it is the same one for all that follows; None where there is none to be trusted.

    What lies there is executed. A folder or a file that others can change is not used, with a warning.
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
    warnings.warn(
        f"{path}: kernels are neither read nor kept here, for others than you can write to it, or own it; "
        "chmod go-w, or set JAXQUAT_CACHE",
        RuntimeWarning,
        stacklevel=2,
    )


def _read(key: bytes) -> bytes | None:
    """The object code under a key; None if there is none, or a file that is not whole and ours."""
    with _opened_folder(make=False) as folder:
        if folder is None:
            return None
        try:
            descriptor = os.open(
                f"{key.hex()}.o", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder
            )
        except OSError:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not _private(status):
                _warn((_folder() or Path()) / f"{key.hex()}.o")
                return None
            try:
                data = file.read()
            except OSError:
                return None
    head, code = data[: len(FORMAT) + 64], data[len(FORMAT) + 64 :]
    return code if head == FORMAT + key + hashlib.sha256(code).digest() else None


def _write(key: bytes, code: bytes) -> None:
    """All or nothing, whoever else writes the same; a folder that cannot be written is no error."""
    with _opened_folder(make=True) as folder:
        if folder is None:
            return
        name = f".{secrets.token_hex(8)}"
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(FORMAT + key + hashlib.sha256(code).digest() + code)
                os.replace(name, f"{key.hex()}.o", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(name, dir_fd=folder)
        except OSError:
            pass
