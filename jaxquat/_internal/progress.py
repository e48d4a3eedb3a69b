"""Progress bars, and a line on a terminal while something compiles for long."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

from tqdm import TqdmWarning


def bar(
    unit: str, total: int | None = None, *, initial: int = 0, scaled: bool = False, shown: bool
) -> Any:
    """Return a bar of tqdm, a widget where ipywidgets is installed; ``scaled`` writes 100k."""
    with warnings.catch_warnings():  # tqdm warns that it is experimental, or has no ipywidgets
        warnings.simplefilter("ignore", category=TqdmWarning)
        from tqdm.autonotebook import tqdm  # it detects a notebook when it is first imported
    count = f"{{n_fmt}} {unit}" if total is None else "{l_bar}{bar}| {n_fmt}/{total_fmt}"
    times = "{elapsed}" if total is None else "{elapsed}<{remaining}"
    return tqdm(
        total=total,
        initial=initial,
        disable=not shown,
        unit=f" {unit}",
        unit_scale=scaled,
        bar_format=f"{count} [{times}, {{rate_noinv_fmt}}{{postfix}}]",
    )


# How long a compilation is silent; blocks that begin within the gap after another continue it.
SECONDS, GAP = 3.0, 1.0
_lock = threading.Lock()
_began = _ended = -math.inf
_inside = False


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """Print one line on a terminal if this block, which compiles, takes more than 3 s."""
    # The environment variable JAXQUAT_PROGRESS=0 switches the line off.
    global _began, _ended, _inside
    with _lock:
        outermost = not _inside and sys.stderr is not None and sys.stderr.isatty()
        outermost = outermost and os.environ.get("JAXQUAT_PROGRESS") != "0"
        _inside |= outermost
    if not outermost:
        yield
        return
    now, said = time.monotonic(), _ended - _began > SECONDS
    if now - _ended > GAP:
        _began, said = now, False
    timer = threading.Timer(max(0.0, SECONDS - (now - _began)), _say, [what])
    timer.daemon = True
    if not said:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _ended, _inside = time.monotonic(), False


def _say(what: str) -> None:
    sys.stderr.write(f"jaxquat: compiling {what}, {time.monotonic() - _began:.0f} s so far\n")
    sys.stderr.flush()
