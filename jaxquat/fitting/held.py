"""Params that hold more than arrays of floats: what is fitted, and what is held as it is.

For the fit each leaf that is not an array of floats becomes part of the structure, a node without
leaves. The functions of the user get the whole tree.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxquat._internal.checks import floating
from jaxquat.dynamics.body import refuse_bodies


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Held:
    """A leaf that is held: a node without leaves, equal if it holds the same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def checked_params(tree: Any, stacklevel: int) -> Any:
    """Return ``fitted("params", tree)``; TypeError for a Body, UserWarning for signed integers."""
    refuse_bodies("params", tree)
    parts = fitted("params", tree)
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    places = [f"params{jax.tree_util.keystr(path)}" for path, x in leaves if _is_signed(x)]
    if places:
        warnings.warn(
            "params: wanted floats where numbers are to be fitted, got integers at "
            f"{', '.join(places)}, which are held; write 1.0, not 1, and close over what is not to "
            "be fitted",
            UserWarning,
            stacklevel=stacklevel,
        )
    return parts


def size_of_one_start(params: Any, starts: int | None) -> int:
    """Return the number of parameters of one start; ValueError for none or a bad axis."""
    leaves = jax.tree.leaves(params)
    for leaf in leaves if starts is not None else ():
        if leaf.shape[:1] != (starts,):
            wanted = f"a leading axis of {starts} starts throughout"
            raise ValueError(f"params: wanted {wanted}, got shape {leaf.shape}")
    size = sum(leaf.size for leaf in leaves) // (starts or 1)
    if not size:
        raise ValueError("params: wanted at least one number, got none")
    return size


def fitted(name: str, tree: Any) -> Any:
    """Return ``tree`` with arrays of floats as leaves, others held; TypeError if there are none."""

    def one(path: Any, leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        numeric = dtype is not None and jnp.issubdtype(dtype, jnp.inexact)
        if numeric or isinstance(leaf, float | complex):
            return floating(f"{name}{jax.tree_util.keystr(path)}", leaf)
        return Held(leaf)

    parts = jax.tree_util.tree_map_with_path(one, tree)
    if not jax.tree.leaves(parts):
        for leaf in jax.tree.leaves(tree)[:1]:
            hint = " (write 1.0, not 1)" if _is_signed(leaf) else ""
            raise TypeError(f"{name}: wanted at least one array of floats, got {leaf!r}{hint}")
    return parts


def _is_signed(leaf: Any) -> bool:
    """Return whether a leaf is a signed integer; raw keys are unsigned."""
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) is int or (dtype is not None and jnp.issubdtype(dtype, jnp.signedinteger))


def estimates(names: tuple[str, ...], values: Any, errors: Any) -> list[tuple[str, str, str]]:
    """Return the name, value and standard error of each number that is not held, as texts."""
    columns = (ravel_pytree(fitted("params", tree))[0].tolist() for tree in (values, errors))
    return [(name, f"{x: .6g}", f"{e:.2g}") for name, x, e in zip(names, *columns, strict=True)]


def whole(tree: Any) -> Any:
    """Return the tree with the held leaves in their places: the inverse of ``fitted``."""
    is_held = lambda x: isinstance(x, Held)  # noqa: E731
    return jax.tree.map(lambda x: x.value if is_held(x) else x, tree, is_leaf=is_held)
