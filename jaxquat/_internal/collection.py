"""Pause Python's collection of reference cycles while a program is traced and compiled.

Tracing makes some hundred thousand objects that live on. Collections that visit all of them again
and again take a sixth of the time of a first plan, and find nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator

LONGEST = 10.0
"""After so many seconds of pauses that overlap in several threads, cycles are collected again."""

_lock = threading.Lock()
_depth = 0
_began = 0.0
_was_enabled = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Collect no cycles in this block, in any thread; for decorators, too."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _depth, _began, _was_enabled
    with _lock:
        if _depth == 0:
            _began, _was_enabled = time.monotonic(), gc.isenabled()
            gc.disable()
        elif _was_enabled and time.monotonic() - _began > LONGEST:
            gc.enable()
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0 and _was_enabled:
            gc.enable()


def _forget() -> None:
    """Have no pause in the child of a fork, which has none of the threads that would end it."""
    global _lock, _depth
    _lock = threading.Lock()
    if _depth and _was_enabled:
        gc.enable()
    _depth = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
