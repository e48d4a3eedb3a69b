"""Short texts and tables of the contents of results, for ``repr``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

# A title, rows of cells, and the titles of the columns, () for none.
Table = tuple[str, list[tuple[str, ...]], tuple[str, ...]]
_ROWS = 7  # shown of a table: with title, columns and "... 3 more" it has ten lines
_NUMBERS, _LEAVES = 4, 6  # the most shown of an array, and of a pytree


class Tabular:
    """A result that is shown by its ``_table()``."""

    def _table(self) -> Table:
        raise NotImplementedError

    def _brief(self) -> list[tuple[str, str]]:
        return [("", self._table()[0])]

    def __repr__(self) -> str:
        title, rows, columns = self._table()
        shown, more = clipped(rows)
        cells = [columns] * bool(columns) + [*shown]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = ([x.ljust(k) for x, k in zip(row, widths, strict=True)] for row in cells)
        table = ["  ".join(row).rstrip() for row in aligned]
        return "\n".join([title, *("  " + line for line in table + more)])


class InOneLine(Tabular):
    """A result whose text is one line."""

    def __repr__(self) -> str:
        title, rows, _ = self._table()
        return f"<{title}{''.join(f', {name} {text}' for name, text in rows)}>"


def shapes(tree: Any) -> str:
    """Return places, dtypes and shapes of the leaves of a pytree: ".q float32[11, 4]"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    named = [(jax.tree_util.keystr(path), shape(leaf)) for path, leaf in leaves]
    shown = [f"{place} {text}".strip() for place, text in named[:_LEAVES]]
    others = len(named) - _LEAVES
    return ", ".join([*shown, *([f"and {others} more"] if others > 0 else [])])


def shape(leaf: Any) -> str:
    """Return dtype and shape of an array, "float32[11, 4]"; the type of anything else."""
    if not hasattr(leaf, "shape"):
        return type(leaf).__name__
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]"


def short(value: Any) -> str:
    """Return a number or array in few characters: "0.5" or "float32[20, 3] from -1.2 to 0.9"."""
    if not _is_real(value):
        line = " ".join(repr(value).split())
        return line if len(line) <= 60 else line[:57] + "..."
    array = np.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(np.float64)  # bfloat16 is not a dtype of NumPy
    if array.ndim == 0:
        return f"{array.item():.4g}" if array.dtype == np.float64 else str(array.item())
    if array.ndim == 1 and array.size <= _NUMBERS:
        return f"[{', '.join(map(short, array))}]"
    finite = array[np.isfinite(array)]
    bounds = f" from {short(finite.min())} to {short(finite.max())}" if finite.size else ""
    return shape(value) + bounds


def _is_real(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    if isinstance(value, Tracer) or not isinstance(value, np.generic | np.ndarray | Array):
        return False
    kinds = jnp.bool_, jnp.integer, jnp.floating
    return any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def named_leaves(tree: Any, name: str = "", *, kinds: Any = ()) -> list[tuple[str, Any]]:
    """Return leaves, or ``kinds``, of a pytree and their places: ``("gains.damping", leaf)``."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, kinds))
    place = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")  # noqa: E731
    return [(place(path) or name, leaf) for path, leaf in leaves]


def named_numbers(tree: Any, name: str) -> tuple[str, ...]:
    """Return a name for each number of a pytree of arrays, in the order of ``ravel_pytree``."""
    return tuple(
        place + (str(list(index)) if index else "")
        for place, leaf in named_leaves(tree, name)
        for index in np.ndindex(np.shape(leaf))
    )


def clipped(rows: Sequence[Any]) -> tuple[Sequence[Any], list[str]]:
    """Return the first rows, and a line that counts the others if there are any."""
    others = len(rows) - _ROWS
    return (rows[:_ROWS], [f"... {others} more"]) if others > 0 else (rows, [])
