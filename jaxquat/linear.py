"""Three-by-three linear algebra, unrolled: no ``jnp.linalg``, no matrix-multiply unit, so full precision on any device.

Every function broadcasts over leading axes of equal rank.
"""

import jax.numpy as jnp
from jax import Array


def dot(a: Array, b: Array) -> Array:
    """Inner product over the last axis."""
    return jnp.sum(a * b, axis=-1)


def cross(a: Array, b: Array) -> Array:
    """Vector product of (..., 3) arrays."""
    return jnp.cross(a, b)


def matvec(matrix: Array, vector: Array) -> Array:
    """Matrix (..., m, n) times vector (..., n)."""
    return jnp.sum(matrix * vector[..., None, :], axis=-1)


def matmul(a: Array, b: Array) -> Array:
    """Matrix (..., l, m) times matrix (..., m, n)."""
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def transpose(matrix: Array) -> Array:
    """The last two axes exchanged."""
    return jnp.swapaxes(matrix, -1, -2)


def inverse(matrix: Array) -> Array:
    """Inverse of (..., 3, 3) matrices by the adjugate; infinite or NaN where a matrix is singular."""
    a, b, c = matrix[..., :, 0], matrix[..., :, 1], matrix[..., :, 2]
    rows = jnp.stack([cross(b, c), cross(c, a), cross(a, b)], axis=-2)
    return rows / dot(a, rows[..., 0, :])[..., None, None]
