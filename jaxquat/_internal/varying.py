"""Mesh axes along which an array varies from device to device within ``jax.shard_map``.

With ``check_vma=True`` they are part of an array's type, which a loop must keep: a start that is
the same on all devices is cast before the first step. Elsewhere nothing is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

Axes = frozenset[Any]


def axes_of(tree: Any) -> Axes:
    """Return the axes along which any leaf (array, type, ``ShapeDtypeStruct``) varies."""
    return frozenset().union(*map(_axes_of, jax.tree.leaves(tree)))


def _axes_of(x: Any) -> Axes:
    kind = jax.typeof(x) if isinstance(x, Array) else x
    kind = getattr(kind, "manual_axis_type", kind)  # jax 0.10; before, the type itself has vma
    return frozenset(getattr(kind, "varying", None) or getattr(kind, "vma", None) or ())


def cast(tree: Any, axes: Axes) -> Any:
    """Return the tree with every array cast to vary along these axes, too."""
    return jax.tree.map(lambda x: _cast(x, axes - _axes_of(x)), tree) if axes else tree


def _cast(x: Any, axes: Axes) -> Any:
    if not axes or not isinstance(x, Array):
        return x
    if hasattr(lax, "pcast"):
        return lax.pcast(x, tuple(axes), to="varying")
    return lax.pvary(x, tuple(axes))  # pyright: ignore[reportAttributeAccessIssue]


def within_shard_map() -> bool:
    """Return whether this is traced by ``jax.shard_map``, with or without varying types."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def typed(shape: Sequence[int], dtype: Any, operands: Sequence[Any]) -> ShapedArray:
    """Return the type of a result of a primitive: it varies like the operand with the most axes."""
    like = max(operands, key=lambda x: len(_axes_of(x)), default=None)
    if like is None or not _axes_of(like):
        return ShapedArray(tuple(shape), dtype)
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return like.update(shape=tuple(shape), dtype=dtype, weak_type=False, sharding=sharding)


def shaped(shape: Sequence[int], dtype: Any, like: Any) -> jax.ShapeDtypeStruct:
    """Return a ``ShapeDtypeStruct`` that varies along the same axes as ``like``."""
    if not _axes_of(like):
        return jax.ShapeDtypeStruct(tuple(shape), dtype)
    return jax.eval_shape(lambda: cast(jnp.zeros(shape, dtype), _axes_of(like)))
