"""Keys and members by number, and random bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.checks import shape as checked_shape
from jaxquat._internal.renamed import order_of
from jaxquat.dynamics.body import Body, check_body

LARGEST = 2**31  # members: their numbers, also of padding, are unsigned 32-bit integers


def keys(key: Array, index: ArrayLike) -> Array:
    """Return the keys (m,) of members by their numbers (m,), ``fold_in(key, index)``.

    Examples:
        >>> two = jq.ensembles.keys(jax.random.key(0), jnp.array([7, 123]))  # of members 7 and 123
        >>> jax.vmap(lambda key: jax.random.normal(key, (3,)))(two).shape
        (2, 3)
    """
    key, index = checks.random_key("key", key), checks.integers("index", index)
    if index.ndim != 1:
        raise ValueError(f"index: wanted shape (m,), got {index.shape}")
    checks.not_negative("index", index)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index.astype(jnp.uint32))


def members(key: Array, draw: Callable[[Array], Any], n: int) -> Any:
    """Return the first n members of an ensemble, ``draw(fold_in(key, i))``, with leading axis n.

    Unlike ``jq.ensembles.run``, this is traceable and differentiable: use for instance
    ``jax.lax.map(simulate, members(key, draw, n), batch_size=...)`` under ``jit`` and ``grad``.

    Examples:
        >>> few = jq.ensembles.members(jax.random.key(0), jax.random.uniform, 3)
        >>> many = jq.ensembles.members(jax.random.key(0), jax.random.uniform, 1000)
        >>> bool((few == many[:3]).all())  # a member depends on its number alone
        True
    """
    key = checks.random_key("key", key, order_of("ensembles.members"))
    checks.takes("draw", draw, "key")
    n = checks.positive_integer("n", n)
    return jax.vmap(draw)(keys(key, jnp.arange(n, dtype=jnp.uint32)))


def bodies(key: Array, body: Body, spread: ArrayLike, shape: tuple[int, ...] = ()) -> Body:
    """Draw random, physical bodies around a given one: a Body with leading axes ``shape``.

    To first order in ``spread``, the mass and the second moment of mass along every axis through
    the centre of mass, ``int x^2 dm``, have this relative standard deviation; mass and second
    moments along principal axes are independent. A moment of inertia, their sum, has between
    ``spread/sqrt(2)`` and ``spread``. The Cholesky factor of the second moments is multiplied by
    another one, with normal logarithms on its diagonal (log-Cholesky; Rucker and Wensing, IEEE RA-L
    7(2), 2022), so inertias are positive definite and keep the triangle inequality for any spread.
    Their mean differs from ``body`` by the order of ``spread^2``; the mass is log-normal, with that
    of ``body`` as its median.

    Args:
        key: a ``jax.random.key``.
        body: one body, not a flat one (I1 + I2 = I3). Without a mass, the bodies have none. Draw an
            offset of the centre of mass as part of what it acts on, such as ``forces.thrust``.
        spread: (), not negative. Bodies are differentiable with respect to it and to ``body``.
        shape: leading axes.

    Raises:
        TypeError, ValueError: an argument of wrong type, shape or value; a concrete flat body.

    Examples:
        >>> box = jq.Body.box(12.0, jnp.array([1.0, 2.0, 3.0]))  # kg, m
        >>> drawn = jq.ensembles.bodies(jax.random.key(0), box, 0.1, (1000,))
        >>> f"{jnp.median(drawn.mass):.0f} +- {drawn.mass.std():.1f} kg"
        '12 +- 1.2 kg'
    """
    key, spread = checks.random_key("key", key), checks.exactly("spread", spread, ())
    check_body(body)
    checks.not_negative("spread", spread)
    theta = body.parameters
    if checks.is_concrete(theta) and not bool(jnp.all(jnp.isfinite(theta))):
        moments = body.principal()[0]
        raise ValueError(f"body: wanted one that is not flat, got principal moments {moments}")
    spread = spread.astype(theta.dtype)

    def one(normals: Array) -> Body:
        e = jnp.exp(0.5 * spread * normals[:3])
        e10, e20, e21 = 0.5**0.5 * spread * normals[3:6]
        l11, l22 = jnp.exp(theta[1]), jnp.exp(theta[2])
        below = [
            theta[3] * e[0] + l11 * e10,
            theta[4] * e[0] + theta[5] * e10 + l22 * e20,
            theta[5] * e[1] + l22 * e21,
        ]
        diagonal = theta[:3] + 0.5 * spread * normals[:3]
        mass = None if body.mass is None else body.mass * jnp.exp(spread * normals[6])
        return Body.from_parameters(jnp.concatenate([diagonal, jnp.stack(below)]), mass)

    for _ in checked_shape("shape", shape):
        one = jax.vmap(one)
    return one(jax.random.normal(key, (*shape, 7), theta.dtype))
