"""Kernels for the CPU: compiled by llvmlite, kept in memory and on disk, called by XLA.

The hash of a kernel's assembly, of the processor and of LLVM's version is the key of its object
code: in memory (``loading``), on disk (``targets.objects``).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
from collections.abc import Sequence

from jax import Array

from jaxquat._internal.checks import missing_package, positive_integer
from jaxquat._internal.progress import announced
from jaxquat.fused import loading
from jaxquat.fused.kernel import CACHED, Loop, launched
from jaxquat.fused.targets import host, objects

WORK = 100_000
"""A thread pays from this cost of the steps on (``Program.cost``): it starts in 10 to 50 us."""

_threads = ctypes.c_int64(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


def set_threads(count: int) -> None:
    """Set how many threads a fused kernel on the CPU uses: 1 to 256, by default one per processor.

    A function that is already compiled uses no more threads than were set when it was compiled.

    Examples:
        >>> import os
        >>> jq.fused.set_threads(min(os.cpu_count(), 256))  # all of them
    """
    count = positive_integer("count", count)
    if count > 256:
        raise ValueError(f"count: wanted 1 to 256 threads, got {count}")
    _threads.value = count


def missing() -> str | None:
    """Return an error message if there are no fused kernels on this CPU, otherwise None."""
    if os.name != "posix":
        return 'engine "fused" on the CPU needs POSIX threads; use engine="scan"'
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return missing_package("engine", "llvmlite", "fused")
    return None


def call(
    loop: Loop, kind: str, batched: Sequence[bool], members: int, operands: Sequence[Array]
) -> list[Array]:
    """Return the results of a kernel, with shapes (members, rows, size) or (members, size)."""
    lanes = host.lanes(loop, members)
    name, scratch = _kernel(loop, kind, tuple(batched), lanes)
    vectors = -(-members // lanes)
    worth = int(vectors * loop.steps * loop.step.cost() / WORK)
    threads = max(1, min(_threads.value, vectors, worth))
    counts, memory = (members, threads), (threads, scratch)
    return launched(loading.target(name), loop, kind, batched, operands, counts, memory)


def begin(loop: Loop, operands: int) -> None:
    """Begin to compile the kernel of the values of one member, of so many arrays."""
    _kernel(loop, "forward", (False,) * operands, host.lanes(loop, 1))


@functools.lru_cache(maxsize=CACHED)
def _kernel(loop: Loop, kind: str, batched: tuple[bool, ...], lanes: int) -> tuple[str, int]:
    text, scratch = host.module(loop, kind, batched, lanes)
    _define_threads()
    key = hashlib.sha256("\n".join([text, *host.processor(), *host.version()]).encode())
    name = key.hexdigest()

    def compiled() -> bytes:
        with announced("a kernel"):
            code = host.compiled(text)
        with contextlib.suppress(Warning):  # made an error, it would stop the thread
            objects.write(key.digest(), code)
        return code

    if name not in loading.loaded:
        loading.add(name, objects.read(key.digest()) or compiled)
    return name, scratch


@functools.cache
def _define_threads() -> None:
    import llvmlite.binding as llvm

    llvm.add_symbol("jaxquat_threads", ctypes.addressof(_threads))
