"""Keys and members by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import integers, not_negative, positive_integer, random_key, takes

LARGEST = 2**31
"""The maximum number of members: numbers, also of padding, are unsigned 32-bit integers."""


def keys(key: Array, index: ArrayLike) -> Array:
    """The keys of members by their numbers, ``fold_in(key, index)``: (m,) integers -> (m,) keys.

    ``jax.vmap(draw)`` of these keys gives the members. ValueError or TypeError for a bad key or
    index.

    Examples:
        >>> draw = lambda key: jax.random.normal(key, (3,))
        >>> two = jq.ensembles.keys(jax.random.key(0), jnp.array([7, 123]))  # of members 7 and 123
        >>> jax.vmap(draw)(two).shape
        (2, 3)
    """
    key, index = random_key("key", key), integers("index", index)
    if index.ndim != 1:
        raise ValueError(f"index: wanted shape (m,), got {index.shape}")
    not_negative("index", index)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index.astype(jnp.uint32))


def members(draw: Callable[[Array], Any], n: int, key: Array) -> Any:
    """The first n members of an ensemble, a pytree with leading axis n: ``draw(fold_in(key, i))``.

    Unlike ``jq.ensembles.run``, this is traceable and differentiable. For instance, use
    ``jax.lax.map(simulate, members(draw, n, key), batch_size=...)`` under ``jit`` and ``grad``.
    ValueError or TypeError for a bad n.

    Examples:
        >>> draw = lambda key: jax.random.uniform(key)
        >>> few = jq.ensembles.members(draw, 3, jax.random.key(0))
        >>> many = jq.ensembles.members(draw, 1000, jax.random.key(0))
        >>> bool((few == many[:3]).all())  # a member depends on its number alone
        True
    """
    takes("draw", draw, "key")
    n = positive_integer("n", n)
    return jax.vmap(draw)(keys(key, jnp.arange(n, dtype=jnp.uint32)))
