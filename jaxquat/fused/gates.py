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
from typing import Any

from jaxquat.fused.targets import host, template

COUNT = 16
"""The gates that are made at once; one takes LLVM .3 ms."""

FAILED = 1
"""The entry of a kernel that could not be compiled."""

GATE = """
define ptr @gate_{0}(ptr %frame) {{
  %result = tail call ptr @pass(ptr %frame, i64 {0})
  ret ptr %result
}}"""

_lock = threading.Lock()
_free: list[tuple[int, int]] = []  # addresses of gates, and of their entries
_due: collections.deque[tuple[int, Callable[[], bytes]]] = collections.deque()
_present: list[tuple[int, Callable[[], bytes]]] = []  # what is being compiled
_thread: threading.Thread | None = None  # the one that compiles what is due
_forking = False
_engines: list[Any] = []  # LLVM's, which hold the code


def opened(compiled: Callable[[], bytes]) -> int:
    """Return the address of a gate to the kernel that a function compiles, in another thread."""
    with _lock:
        if not _free:
            _free.extend(_new_gates())
        gate, entry = _free.pop()
        _due.append((entry, compiled))
    _start()
    return gate


def _start() -> None:
    """Start the thread if it is needed; compile here if there can be no more threads."""
    global _thread
    with _lock:
        if _thread is not None or not _due or _forking:
            return
        thread = threading.Thread(target=_work, name="jaxquat compiles kernels")
        try:
            thread.start()
        except RuntimeError:
            thread = None
        _thread = thread
    if thread is None:
        _work()


def _work() -> None:
    """Compile the kernels that are due, one after the other, as LLVM has one lock for all."""
    global _thread
    while True:
        with _lock:
            if not _due or _forking:
                _thread = None
                return
            _present.append(_due.popleft())
            entry, compiled = work = _present[-1]
        try:
            engine = host.linked(compiled())
            _engines.append(engine)
            address = engine.get_function_address("jaxquat_kernel")
        except BaseException:
            traceback.print_exc()
            address = FAILED
        ctypes.c_int64.from_address(entry).value = address
        with _lock:
            _present.remove(work)


def _new_gates() -> list[tuple[int, int]]:
    _prepare_forks()
    gates = "".join(map(GATE.format, range(COUNT)))
    engine = host.linked(host.compiled(template("gates.ll", count=COUNT, gates=gates)))
    _engines.append(engine)
    first = engine.get_global_value_address("jaxquat_entries")
    return [(engine.get_function_address(f"gate_{k}"), first + 8 * k) for k in range(COUNT)]


@functools.cache
def _prepare_forks() -> None:
    """Have a fork wait for the kernel that is being compiled, and then compile on both sides."""

    def before() -> None:
        global _forking
        with _lock:
            _forking, thread = True, _thread
        if thread is not None:
            thread.join()

    def after() -> None:
        global _forking
        _forking = False
        _start()

    def after_in_child() -> None:
        global _lock, _thread
        _lock, _thread = threading.Lock(), None  # the child has none of the other threads
        _due.extendleft(_present)
        _present.clear()
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)
