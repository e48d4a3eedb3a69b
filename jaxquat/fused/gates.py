"""Gates: what XLA calls in place of a kernel that another thread still compiles.

XLA asks for the address of a kernel when it compiles the program around it, which takes as long as
LLVM takes for the kernel. A gate (``targets/gates.ll``) passes its calls on to the kernel. A call
before the kernel is there waits for it.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import os
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from jaxquat.fused.targets import host, template

COUNT = 16
"""The gates that are made at once; one takes LLVM .3 ms."""

GATE = """
define ptr @gate_{0}(ptr %frame) {{
  %result = tail call ptr @pass(ptr %frame, i64 {0})
  ret ptr %result
}}"""

_lock = threading.Lock()
_free: list[tuple[int, int]] = []  # addresses of gates, and of their entries
_kernels: dict[int, Future[Any]] = {}  # the engine of each kernel, by the address of its entry
_due: collections.deque[tuple[int, Callable[[], bytes]]] = collections.deque()
_is_working = False


def opened(compiled: Callable[[], bytes]) -> int:
    """Return the address of a gate to the kernel that a function compiles, in another thread."""
    global _is_working
    with _lock:
        if not _free:
            _free.extend(_new_gates())
        gate, entry = _free.pop()
        _kernels[entry] = Future()
        _due.append((entry, compiled))
        if not _is_working:
            _is_working = True
            threading.Thread(target=_work, name="jaxquat compiles kernels").start()
    return gate


def _work() -> None:
    """Compile the kernels that are due, one after the other, as LLVM has one lock for all."""
    global _is_working
    while True:
        with _lock:
            if not _due:
                _is_working = False
                return
            entry, compiled = _due.popleft()
        try:
            engine = host.linked(compiled())
            ctypes.c_void_p.from_address(entry).value = _address(engine)
            _kernels[entry].set_result(engine)
        except BaseException as error:
            _kernels[entry].set_exception(error)


def _address(engine: Any) -> int:
    return engine.get_function_address("jaxquat_kernel")


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
def _wait(entry: int) -> int | None:
    """Return the address of a kernel as soon as it is compiled; None if it could not be."""
    try:
        return _address(_kernels[entry].result())
    except BaseException:
        traceback.print_exc()
        return None


def _new_gates() -> list[tuple[int, int]]:
    engines = _engines()
    gates = "".join(map(GATE.format, range(COUNT)))
    engine = host.linked(host.compiled(template("gates.ll", count=COUNT, gates=gates)))
    engines.append(engine)
    first = engine.get_global_value_address("jaxquat_entries")
    return [(engine.get_function_address(f"gate_{k}"), first + 8 * k) for k in range(COUNT)]


@functools.cache
def _engines() -> list[Any]:
    """Return the engines that hold the gates, as long as the process lives; none at first."""
    import llvmlite.binding as llvm

    llvm.add_symbol("jaxquat_wait", ctypes.cast(_wait, ctypes.c_void_p).value)
    os.register_at_fork(before=lambda: wait(list(_kernels.values())))  # a child has no thread
    return []
