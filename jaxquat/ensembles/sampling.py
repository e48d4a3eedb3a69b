"""Members by their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import integers, not_negative, positive_integer, random_key, takes

LARGEST = 2**31
"""Members of an ensemble: numbers of members and of padding are unsigned 32-bit integers."""


def keys(key: Array, index: ArrayLike) -> Array:
    """The keys of members by their numbers, ``fold_in(key, index)``: (m,) integers -> (m,) keys. Inputs of ``jax.vmap(sample)``."""
    key, index = random_key("key", key), integers("index", index)
    if index.ndim != 1:
        raise ValueError(f"index: wanted shape (m,), got {index.shape}")
    not_negative("index", index)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index.astype(jnp.uint32))


def draw(sample: Callable[[Array], Any], n: int, key: Array) -> Any:
    """The first n members of an ensemble, a pytree with leading axis n: ``sample(fold_in(key, i))``.

    Traceable and differentiable, unlike ``jq.ensemble``: ``jax.lax.map(simulate, draw(sample, n, key), batch_size=...)`` under
    ``jit`` and ``grad``. ValueError or TypeError for a bad n.
    """
    takes("sample", sample, "key")
    n = positive_integer("n", n)
    return jax.vmap(sample)(keys(key, jnp.arange(n, dtype=jnp.uint32)))
