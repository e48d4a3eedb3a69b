"""Results in few lines: numbers shortened, small tables as text and as HTML."""

from __future__ import annotations

import html as markup
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

ROWS = 7
"""Rows of a table that are shown. With headline, column names and "3 more" it has ten lines."""

_LONGEST = 4
"""Numbers of an array that are shown; one with more is shown by its dtype, shape and range."""


def short(value: Any) -> str:
    """``value`` in few characters: ``0.5``, ``[1, 2, 3]``, ``float32(20, 3) from -1.2 to 0.9``."""
    if not _is_numeric(value):
        line = " ".join(repr(value).split())
        return line if len(line) <= 60 else line[:57] + "..."
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.integer) and array.dtype != bool:
        array = array.astype(np.float64)  # bfloat16 is none of NumPy's own dtypes
    if array.ndim == 0:
        return f"{array.item():.4g}" if array.dtype == np.float64 else str(array.item())
    if array.ndim == 1 and array.size <= _LONGEST:
        return f"[{', '.join(map(short, array))}]"
    kind = f"{value.dtype}({', '.join(map(str, array.shape))})"
    finite = array[np.isfinite(array)]
    return f"{kind} from {short(finite.min())} to {short(finite.max())}" if finite.size else kind


def named_leaves(tree: Any, name: str = "", *, kinds: Any = ()) -> list[tuple[str, Any]]:
    """The leaves of a pytree and their places: ``("gains.damping", leaf)``.

    The place of a lone leaf is ``name``. What is of one of the ``kinds`` is a leaf.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, kinds))
    place = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")  # noqa: E731
    return [(place(path) or name, leaf) for path, leaf in leaves]


def clipped(rows: Sequence[Any], most: int = ROWS) -> tuple[Sequence[Any], list[str]]:
    """The first rows, and the line that counts the others: [] if there are none."""
    left = len(rows) - most
    return (rows[:most], [f"... {left} more"]) if left > 0 else (rows, [])


def text(headline: str, rows: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> str:
    """A table as text, the columns aligned, of at most ten lines."""
    shown, more = clipped(rows)
    table = [list(columns)] * bool(columns) + [list(row) for row in shown]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    cells = ([x.ljust(k) for x, k in zip(row, widths, strict=True)] for row in table)
    lines = ["  ".join(row).rstrip() for row in cells] + more
    return "\n".join([headline, *("  " + line for line in lines)])


def html(headline: str, rows: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> str:
    """The same table for a notebook."""
    shown, more = clipped(rows)
    head = _row(columns, "th") if columns else ""
    body = "".join(_row(row, "td") for row in shown)
    foot = "".join(f"<p>{markup.escape(line)}</p>" for line in more)
    return f"<p>{markup.escape(headline)}</p><table>{head}{body}</table>{foot}"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{markup.escape(x)}</{tag}>' for x in cells)}</tr>"


def _is_numeric(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    return (
        isinstance(value, np.generic | np.ndarray | Array)
        and not isinstance(value, Tracer)
        and any(jnp.issubdtype(value.dtype, kind) for kind in (np.number, np.bool_))
        and not jnp.issubdtype(value.dtype, np.complexfloating)
    )
