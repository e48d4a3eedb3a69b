"""Short texts and tables of what results hold, for ``repr`` and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import jax


def shapes(tree: Any) -> str:
    """Dtypes and shapes of the leaves of a pytree, with their places in it: ".q float32[11, 4]"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    named = [(jax.tree_util.keystr(path), _shape(leaf)) for path, leaf in leaves]
    shown = [f"{place} {text}".strip() for place, text in named[:6]]
    return ", ".join([*shown, *([f"and {len(named) - 6} more"] if len(named) > 6 else [])])


def _shape(leaf: Any) -> str:
    if not hasattr(leaf, "shape"):
        return type(leaf).__name__
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]"


def table(title: str, rows: Iterable[tuple[str, ...]]) -> str:
    """An HTML table for a notebook."""
    cells = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"
