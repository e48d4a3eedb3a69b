"""Progress bars: text in a terminal, a widget in a notebook."""

from __future__ import annotations

import warnings
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
