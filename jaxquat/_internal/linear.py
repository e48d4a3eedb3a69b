"""Three-by-three linear algebra at full precision on any device, without ``jnp.linalg``.

Every function broadcasts over leading axes of equal rank. Each form was chosen by measurement.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax


def dot(a: Array, b: Array) -> Array:
    """Return the inner product over the last axis."""
    products = a * b
    return functools.reduce(operator.add, [products[..., i] for i in range(products.shape[-1])])


def square(a: Array) -> Array:
    """Return ``dot(a, a)`` as a reduction, which XLA computes once for all its derivatives."""
    return jnp.sum(a * a, axis=-1)


def root(x: Array) -> Array:
    """Return the square root of x >= 0 with the derivative 0 at x = 0; NaN stays NaN."""
    regular = ~(x <= 0)  # true for NaN, which propagates
    return jnp.where(regular, jnp.sqrt(jnp.where(regular, x, 1.0)), 0.0)


@jax.custom_jvp
def cross(a: Array, b: Array) -> Array:
    """Return the vector product of (..., 3) arrays."""
    return jnp.cross(a, b)


@cross.defjvp
def _cross_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return ``da × b + a × db`` by cyclic shifts, whose transpose XLA compiles best."""
    (a, b), (da, db) = primals, tangents
    return cross(a, b), _next(da * _next(b) - _next(da) * b + a * _next(db) - _next(a) * db)


def _next(a: Array) -> Array:
    """Return the components of a (..., 3) shifted cyclically: (x, y, z) becomes (y, z, x)."""
    return jnp.roll(a, -1, axis=-1)


def matvec(matrix: Array, vector: Array) -> Array:
    """Return matrix (..., m, n) times vector (..., n)."""
    return jnp.einsum("...ij,...j->...i", matrix, vector, precision=lax.Precision.HIGHEST)


def matmul(a: Array, b: Array) -> Array:
    """Return matrix (..., l, m) times matrix (..., m, n)."""
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def transpose(matrix: Array) -> Array:
    """Return the matrix with its last two axes exchanged."""
    return jnp.swapaxes(matrix, -1, -2)


def trace(matrix: Array) -> Array:
    """Return the sum of the diagonal of (..., 3, 3) matrices -> (...)."""
    return matrix[..., 0, 0] + matrix[..., 1, 1] + matrix[..., 2, 2]


def stacked(rows: Sequence[Sequence[Array]]) -> Array:
    """Return the matrices (..., m, n) with these m rows of n elements (...)."""
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def sums_of_others(v: Array) -> Array:
    """Return for each of three numbers the sum of the other two. (3,) -> (3,)."""
    return jnp.roll(v, 1) + jnp.roll(v, -1)


def inverse(matrix: Array) -> Array:
    """Return the inverse of (..., 3, 3) by the adjugate; infinite or NaN for a singular matrix."""
    a, b, c = matrix[..., :, 0], matrix[..., :, 1], matrix[..., :, 2]
    rows = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-2)
    return rows / dot(a, rows[..., 0, :])[..., None, None]


def power_of_two(x: Array) -> Array:
    """Return the power of two next to max |x| -> (), a constant for derivatives."""
    # Divide by it: its inverse may be subnormal, and XLA on a CPU takes subnormal numbers for 0.
    info = jnp.finfo(x.dtype)
    largest = jnp.max(jnp.abs(lax.stop_gradient(x)))
    largest = jnp.clip(largest, info.tiny, 2.0 ** (info.maxexp - 1))
    return lax.reduce_precision(largest, info.nexp, 0)


def scale_of(x: Array) -> Array:
    """Return the factor that brings x, and all that is proportional to it, to order 1. -> ()."""
    # It is a power of two and a constant for derivatives, 2^26 within the normal numbers, because
    # XLA may multiply it by a time step first. To compute x / y, multiply both by it.
    least = 2.0**26 * float(jnp.finfo(x.dtype).tiny)
    return 1.0 / jnp.clip(power_of_two(x), least, 1.0 / least)


def near_one(v: Array) -> Array:
    """Return ``v`` times the power of two that brings its largest component near 1. (..., n)."""
    # For functions that do not depend on the scale of v the factor counts as a constant.
    info = jnp.finfo(v.dtype)
    largest = lax.stop_gradient(jnp.max(jnp.abs(v), axis=-1, keepdims=True))
    largest = jnp.clip(largest, float(info.tiny), 1.0 / float(info.tiny))
    return v / lax.reduce_precision(largest, info.nexp, 0)


def inverse_inertia(inertia: Array) -> Array:
    """Return the inverse of an inertia (3, 3), even if the dtype cannot hold its determinant."""
    unit = power_of_two(inertia)
    return inverse(inertia / unit) / unit
