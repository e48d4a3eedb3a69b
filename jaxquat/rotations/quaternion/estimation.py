"""Attitudes from many: the mean of attitudes, and the attitude that fits observed directions.

Both minimise a sum of squares that are linear in q: Davenport's q-method and the mean of Markley,
but by the least singular vector of the stacked factors, where they take the dominant eigenvector of
a sum of products (F. L. Markley and J. L. Crassidis, Fundamentals of Spacecraft Attitude
Determination and Control, 2014, section 5.3; Markley, Cheng, Crassidis and Oshman, Averaging
Quaternions, J. Guid. Control Dyn. 30(4), 2007). The products would square the condition: for two
directions an angle a apart the attitude would err as eps/a^2, not as eps/a.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._checks import broadcast, floating, is_concrete, not_negative, one_of
from jaxquat._linear import cross, dot, matmul, matvec, near_one, transpose
from jaxquat.rotations.quaternion.algebra import (
    canonical,
    conjugate,
    left_matrix,
    normalize,
    right_matrix,
)
from jaxquat.rotations.quaternion.representations import of_rotation


def _least_vector(factors: Array, weights: Array, names: str, wanted: str) -> Array:
    """Unit v (..., 4), canonical, with the least ``sum w |M v|^2`` over factors M (..., n, 4, 4).

    It must be unique. Where the least two singular values differ by no more than 100 units of
    rounding, or a weight (..., n) is negative, the result is NaN. Where such values are concrete, a
    ValueError says what was ``wanted`` of the arguments ``names``.

    The derivatives of ``svd`` are NaN where singular values repeat, though this vector is smooth
    there. So its result enters as a constant, and two steps of the chord method on the condition
    that the gradient vanish carry the first and second derivatives. Each takes the products with
    the other singular vectors before it sums, for their small factors to keep their digits.
    """
    weights = near_one(weights)
    rooted = lax.stop_gradient(jnp.sqrt(weights)[..., None, None] * factors)
    stacked = rooted.reshape(*rooted.shape[:-3], -1, 4)
    _, sizes, vectors = jnp.linalg.svd(stacked, full_matrices=False)
    tied = sizes[..., 2] - sizes[..., 3] <= 100 * jnp.finfo(sizes.dtype).eps * sizes[..., 0]
    if is_concrete((sizes, tied)) and np.any(tied):
        least = np.asarray(sizes)[np.asarray(tied)][0, :1:-1]
        got = f"several equally good ones (least singular values {least})"
        raise ValueError(f"{names}: wanted {wanted}, got {got}")
    others, vector = vectors[..., :3, :], vectors[..., 3, :]
    curvatures = (sizes[..., :3] - sizes[..., 3:]) * (sizes[..., :3] + sizes[..., 3:])
    images = matmul(factors, transpose(others)[..., None, :, :])
    for _ in range(2):
        residuals = matvec(factors, vector[..., None, :])
        weighted = weights[..., None] * residuals
        least = jnp.sum(weighted * residuals, axis=(-1, -2))[..., None]
        slope = jnp.sum(images * weighted[..., None], axis=(-2, -3)) - least * matvec(
            others, vector
        )
        vector = normalize(vector - matvec(transpose(others), slope / curvatures))
    return jnp.where(tied[..., None], jnp.nan, canonical(vector))


def mean(q: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Mean attitude over axis -2, canonical. (..., n, 4), (..., n) -> (..., 4).

    It maximises ``sum w (p.q)^2`` over p, so the signs of the quaternions do not matter; weights
    are equal by default. It is smooth in q and weights as long as the maximiser is unique. It is
    not unique for two attitudes a half turn apart, nor with weights that are all 0. There, and
    where a weight is negative, the result is NaN if traced.

    Raises:
        ValueError: a wrong shape; concrete values without a unique maximiser; a negative weight.
        TypeError: an argument is no array of floats.

    Examples:
        >>> yaws = jnp.radians(jnp.array([[0.0, 0.0, 10.0], [0.0, 0.0, 30.0]]))
        >>> mean = jq.quaternion.mean(jq.quaternion.exp(yaws))
        >>> jnp.degrees(jq.quaternion.log(mean)[2]).round(2)
        Array(20., dtype=float32)
    """
    q = floating("q", q)
    if q.ndim < 2 or q.shape[-1] != 4 or q.shape[-2] < 1:
        raise ValueError(f"q: wanted shape (..., n, 4) with n >= 1, got {q.shape}")
    if weights is None:
        weights = jnp.ones(q.shape[:-1], q.dtype)
    q, weights = broadcast(("q", q, q.shape[-2:]), ("weights", weights, q.shape[-2:-1]))
    not_negative("weights", weights)
    # the vector part of q* p vanishes where p is parallel to q
    factors = left_matrix(conjugate(q)).at[..., 0, :].set(0.0)
    return _least_vector(factors, weights, "q, weights", "attitudes that have one mean")


def from_vectors(
    body: ArrayLike,
    world: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    method: str = "davenport",
) -> Array:
    """Attitude q, canonical, with ``rotate(q, body[i]) = world[i]`` as nearly as possible.

    (..., n, 3), (..., n, 3) -> (..., 4). Directions are normalised.

    Args:
        body: n >= 2 directions in body axes.
        world: the same directions in world axes.
        weights: (..., n), equal by default; "davenport" alone takes them.
        method: "davenport" minimises ``sum w |world - R body|^2`` (Wahba's problem). "triad" takes
            exactly two directions and keeps the first exactly and the plane of both.

    Raises:
        ValueError: a wrong shape or method; concrete directions that do not determine the attitude
            (all parallel, weights of 0), one of length 0, a negative weight. Where these are traced
            the result is NaN.
        TypeError: an argument is no array of floats.

    Examples:
        >>> body = jnp.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # up and north, as measured
        >>> world = jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # up is z, north is x
        >>> q = jq.quaternion.from_vectors(body, world)
        >>> jnp.degrees(jq.quaternion.log(q)[2]).round(2)  # the right side, -y, looks north
        Array(90., dtype=float32)
    """
    one_of("method", method, ("davenport", "triad"))
    body, world = floating("body", body), floating("world", world)
    for name, value in (("body", body), ("world", world)):
        if value.ndim < 2 or value.shape[-1] != 3 or value.shape[-2] < 2:
            raise ValueError(f"{name}: wanted shape (..., n, 3) with n >= 2, got {value.shape}")
    body, world = broadcast(("body", body, body.shape[-2:]), ("world", world, body.shape[-2:]))
    body, world = _directions("body", body), _directions("world", world)
    if method == "triad":
        if weights is not None or body.shape[-2] != 2:
            got = f"{body.shape[-2]} directions"
            raise ValueError(f"method: 'triad' wanted two directions and no weights, got {got}")
        columns = _triad("world", world)[..., :, None, :] * _triad("body", body)[..., None, :, :]
        return of_rotation(jnp.sum(columns, axis=-1))
    if weights is None:
        weights = jnp.ones(body.shape[:-1], body.dtype)
    core = body.shape[-2:]
    named = (("body", body, core), ("world", world, core), ("weights", weights, core[:1]))
    body, world, weights = broadcast(*named)
    not_negative("weights", weights)
    # |v q - q u| = |v - R u| for unit q
    body, world = (jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(1, 0)]) for v in (body, world))
    factors, wanted = (
        left_matrix(world) - right_matrix(body),
        "directions that determine the attitude",
    )
    return _least_vector(factors, weights, "body, world", wanted)


def _directions(name: str, v: Array) -> Array:
    """Unit vectors along v (..., n, 3); ValueError if a concrete one has length 0."""
    v = near_one(v)
    if is_concrete(v) and np.any(np.all(np.asarray(v) == 0, axis=-1)):
        raise ValueError(f"{name}: wanted directions, got one of length 0")
    return v / jnp.sqrt(dot(v, v))[..., None]


def _triad(name: str, v: Array) -> Array:
    """The frame (..., 3, 3) of two unit vectors (..., 2, 3): columns first, normal, third."""
    first, normal = v[..., 0, :], cross(v[..., 0, :], v[..., 1, :])
    square = dot(normal, normal)
    parallel = square <= (100 * jnp.finfo(v.dtype).eps) ** 2
    if is_concrete(parallel) and np.any(parallel):
        wanted = "directions that determine the attitude"
        raise ValueError(f"{name}: wanted {wanted}, got parallel ones")
    normal = jnp.where(parallel[..., None], jnp.nan, normal / jnp.sqrt(square)[..., None])
    return jnp.stack([first, normal, cross(first, normal)], axis=-1)
