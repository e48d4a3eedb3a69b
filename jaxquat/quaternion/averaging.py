"""The mean of several attitudes, and the attitude that fits observed directions.

Both are the dominant eigenvector of a symmetric 4x4 matrix (Davenport's q-method, in F. L. Markley
and J. L. Crassidis, Fundamentals of Spacecraft Attitude Determination and Control, 2014, 5.3; the
mean: Markley, Cheng, Crassidis and Oshman, J. Guid. Control Dyn. 30(4), 2007). For two directions
an angle a apart, its largest eigenvalues differ by order a^2, so its eigenvector has an error of
order eps/a^2. ``from_vectors`` therefore solves for the remaining small turn in the frame of the
eigenvectors, where terms of order a^2 are sums of small products; the error is of order eps/a.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import broadcast, floating, is_concrete, not_negative
from jaxquat._internal.linear import (
    cross,
    dot,
    inverse,
    matmul,
    matvec,
    near_one,
    stacked,
    trace,
    transpose,
)
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.quaternion.algebra import canonical, conjugate, exp, multiply, normalize
from jaxquat.quaternion.representations import to_matrix


def _dominant_eigenvector(matrix: Array, weights: Array) -> Array:
    """Return the canonical unit eigenvector (..., 4) of the largest eigenvalue of (..., 4, 4).

    It is NaN if it is not unique, to 100 ulp. Derivatives of ``eigh`` would be NaN more often.
    """
    dtype = matrix.dtype
    matrix = matrix if dtype.itemsize >= 4 else matrix.astype(jnp.float32)  # LAPACK's smallest
    constant = lax.stop_gradient(matrix)
    values, vectors = jnp.linalg.eigh(constant)
    size, rounding = jnp.sum(jnp.abs(constant), axis=(-1, -2)), 100 * jnp.finfo(matrix.dtype).eps
    tied = values[..., 3] - values[..., 2] <= rounding * size  # False where NaN
    _refuse_tied(tied, values, "q, weights: wanted attitudes that have one mean")
    turned = matmul(matmul(transpose(vectors), matrix), vectors)
    others = turned[..., :3, :3]
    eye = jnp.broadcast_to(jnp.eye(3, dtype=matrix.dtype), others.shape)
    x = _small_turn(turned[..., 3:, 3:] * eye - others, turned[..., :3, 3])
    vector = normalize(vectors[..., 3] + matvec(vectors[..., :3], x))
    unknown = tied | jnp.any(weights < 0, axis=-1)
    return jnp.where(unknown[..., None], jnp.nan, canonical(vector)).astype(dtype)


def _small_turn(matrix: Array, z: Array) -> Array:
    """Return the solution x (..., 3) near 0 of ``H x = z - (z.x) x``.

    Then (1, x) is the eigenvector of ((a, z), (z, a - H)) whose eigenvalue is near a.
    """
    inverted, x = inverse(matrix), jnp.zeros_like(z)
    for _ in range(3):
        x = matvec(inverted, z - dot(z, x)[..., None] * x)
    return x


def _refuse_tied(tied: Array, values: Array, wanted: str) -> None:
    """Raise ValueError if a concrete element of ``tied`` (...) is true; show its eigenvalues."""
    if is_concrete((values, tied)) and np.any(tied):
        largest = np.asarray(values)[np.asarray(tied)][0, :1:-1]
        got = f"several equally good ones (largest eigenvalues {largest})"
        raise ValueError(f"{wanted}, got {got}")


def mean(q: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Return the canonical mean attitude over axis -2. (..., n, 4), (..., n) -> (..., 4).

    It maximises ``sum w (p.q)^2`` over p, with equal weights by default; signs of quaternions do
    not matter. It is smooth while the maximiser is unique: not for two attitudes a half turn apart,
    nor if all weights are 0. Concrete values of this kind and negative weights raise ValueError;
    traced ones give NaN.

    Examples:
        >>> jnp.degrees(jq.quaternion.log(jq.quaternion.mean(jnp.stack([level, q])))[2]).round(1)
        Array(36.9, dtype=float32)
    """
    q = floating("q", q)
    if q.ndim < 2 or q.shape[-1] != 4 or q.shape[-2] < 1:
        raise ValueError(f"q: wanted shape (..., n, 4) with n >= 1, got {q.shape}")
    if weights is None:
        weights = jnp.ones(q.shape[:-1], q.dtype)
    q, weights = broadcast(("q", q, q.shape[-2:]), ("weights", weights, q.shape[-2:-1]))
    not_negative("weights", weights)
    weights = near_one(weights)
    q = near_one(q.reshape(*q.shape[:-2], -1)).reshape(q.shape)  # a common scale has no effect
    outer = q[..., :, None] * q[..., None, :]
    total = jnp.sum(weights[..., None, None] * outer, axis=-3)
    return _dominant_eigenvector(total, weights)


@refuses_old_keywords("quaternion.from_vectors")
def from_vectors(body: ArrayLike, world: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Return the canonical attitude q with ``rotate(q, body[i]) = world[i]`` as nearly as possible.

    (..., n, 3), (..., n, 3) -> (..., 4). Directions are normalised. The result minimises
    ``sum w |world - R body|^2`` (Wahba's problem).

    Args:
        body: n >= 2 directions in body axes.
        world: the same directions in world axes.
        weights: (..., n), equal by default.

    Raises:
        ValueError: a wrong shape; concrete directions that do not determine the attitude
            (all parallel, weights of 0), one of length 0, a negative weight. If these are traced,
            the result is NaN.
        TypeError: an argument is not an array of floats.

    Examples:
        >>> body = jnp.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # up and north, as measured
        >>> world = jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # up is z, north is x
        >>> q = jq.quaternion.from_vectors(body, world)
        >>> jnp.degrees(jq.quaternion.log(q)[2]).round(2)  # the right side, -y, faces north
        Array(90., dtype=float32)
    """
    body, world = floating("body", body), floating("world", world)
    for name, value in (("body", body), ("world", world)):
        if value.ndim < 2 or value.shape[-1] != 3 or value.shape[-2] < 2:
            raise ValueError(f"{name}: wanted shape (..., n, 3) with n >= 2, got {value.shape}")
    body, world = broadcast(("body", body, body.shape[-2:]), ("world", world, body.shape[-2:]))
    body, world = _directions("body", body), _directions("world", world)
    if weights is None:
        weights = jnp.ones(body.shape[:-1], body.dtype)
    core = body.shape[-2:]
    named = (("body", body, core), ("world", world, core), ("weights", weights, core[:1]))
    body, world, weights = broadcast(*named)
    not_negative("weights", weights)
    return _aligned(body, world, near_one(weights))


def _aligned(body: Array, world: Array, weights: Array) -> Array:
    """Return the canonical q (..., 4) with the least ``sum w |world - R body|^2``.

    The eigenvectors of K give q_0 and three axes a_k = v_k q_0*, the most uncertain last. The turn
    about that one has a closed form; then the eigenvector of K is (1, x) of ``_small_turn`` with
    H = 2 tr(P) - P - P^T for the profile P, and its iteration has the first two derivatives.
    """
    dtype = body.dtype
    if dtype.itemsize < 4:  # too small for LAPACK
        body, world, weights = (v.astype(jnp.float32) for v in (body, world, weights))
    constant = lax.stop_gradient(_davenport(_profile(body, world, weights)))
    values, vectors = jnp.linalg.eigh(constant)
    vector = vectors[..., 3]
    other_vectors = transpose(vectors)[..., 1:3, :]
    axes = multiply(other_vectors, conjugate(vector)[..., None, :])[..., 1:]
    first = cross(axes[..., 0, :], axes[..., 1, :])  # right-handed with the other two
    axes = jnp.concatenate([first[..., None, :], axes], axis=-2)
    body, world = _seen(matmul(axes, to_matrix(vector)), body), _seen(axes, world)
    profile = _profile(body, world, weights)

    fixed = lax.stop_gradient(profile)
    angle = jnp.arctan2(fixed[..., 1, 0] - fixed[..., 0, 1], fixed[..., 0, 0] + fixed[..., 1, 1])
    zero = jnp.zeros_like(angle)
    about_last = jnp.stack([zero, zero, angle], axis=-1)
    profile = matmul(profile, transpose(to_matrix(exp(about_last))))
    vector = multiply(exp(angle[..., None] * axes[..., 2, :]), vector)

    p, q, r = profile[..., 0, 0], profile[..., 1, 1], profile[..., 2, 2]
    xy, xz, yz = (-profile[..., i, j] - profile[..., j, i] for i, j in ((0, 1), (0, 2), (1, 2)))
    weakest = p + q  # not tr(P) - r, which cancels
    rows = [[2.0 * (q + r), xy, xz], [xy, 2.0 * (p + r), yz], [xz, yz, 2.0 * weakest]]
    x = _small_turn(stacked(rows), _axial(profile))
    small_turn = jnp.concatenate([jnp.ones_like(x[..., :1]), matvec(transpose(axes), x)], axis=-1)

    rounding = 100 * jnp.finfo(body.dtype).eps
    spread = body[..., :2] ** 2 + world[..., :2] ** 2
    size = jnp.sum(weights * (jnp.sum(spread, axis=-1) + rounding), axis=-1)
    tied = lax.stop_gradient(weakest <= rounding * size)  # False where NaN
    _refuse_tied(tied, values, "body, world: wanted directions that determine the attitude")
    unknown = tied | jnp.any(weights < 0, axis=-1)
    result = canonical(normalize(multiply(small_turn, vector)))
    return jnp.where(unknown[..., None], jnp.nan, result).astype(dtype)


def _seen(axes: Array, v: Array) -> Array:
    """Return the components of vectors (..., n, 3) along the rows of ``axes`` (..., 3, 3)."""
    return jnp.einsum("...ij,...nj->...ni", axes, v, precision=lax.Precision.HIGHEST)


def _profile(body: Array, world: Array, weights: Array) -> Array:
    """Return ``sum w world body^T`` (..., 3, 3)."""
    return jnp.sum(weights[..., None, None] * world[..., :, None] * body[..., None, :], axis=-3)


def _axial(m: Array) -> Array:
    """Return twice the vector (..., 3) of the antisymmetric part of (..., 3, 3)."""
    twice = (m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1])
    return jnp.stack(twice, axis=-1)


def _davenport(profile: Array) -> Array:
    """Return Davenport's matrix K (..., 4, 4), scalar first: ``q.K q = sum w world.(R body)``."""
    total, z = trace(profile), _axial(profile)
    eye = jnp.broadcast_to(jnp.eye(3, dtype=profile.dtype), profile.shape)
    symmetric = profile + transpose(profile) - total[..., None, None] * eye
    top = jnp.concatenate([total[..., None, None], z[..., None, :]], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([z[..., :, None], symmetric], axis=-1)], axis=-2)


def _directions(name: str, v: Array) -> Array:
    """Return unit vectors along v (..., 3); ValueError if a concrete vector has length 0."""
    v = near_one(v)
    if is_concrete(v) and np.any(np.all(np.asarray(v) == 0, axis=-1)):
        raise ValueError(f"{name}: wanted directions, got one of length 0")
    return v / jnp.sqrt(dot(v, v))[..., None]
