"""The Gaussian part of an error-state Kalman filter: prediction, updates, and the smoother.

The state is a unit quaternion and n - 3 numbers. Its error is a vector (n,): the rotation vector of
the attitude in WORLD axes, ``q_true = exp(error[:3]) q``, then the errors of the numbers. (An
attitude error in world axes makes the linearised equations depend on the measured rates alone: S.
Bonnabel, P. Martin and E. Salaun, Invariant extended Kalman filter, CDC 2009.)

Observations come in small blocks. Their update has Joseph's form, so the covariance stays positive
even in float32, and only the small covariance of an innovation is inverted. The smoother is the
fixed-interval smoother of Rauch, Tung and Striebel in the form of Bierman (Fixed interval smoothing
with discrete measurements, Int. J. Control 18(1), 1973, after Bryson and Frazier): it runs
backwards over the updates and inverts no covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._linear import dot, matvec, transpose


class Error(NamedTuple):
    """The error of a state, as a Gaussian distribution.

    Attributes:
        mean: (n,).
        covariance: (n, n).
    """

    mean: Array
    covariance: Array


class Update(NamedTuple):
    """A block of m scalar observations ``innovation = rows . error + noise`` and its effect.

    Attributes:
        rows: (m, n).
        gain: (n, m); the column of a missing observation is 0.
        innovation: (m,), 0 for a missing observation.
        precision: inverse of the covariance of the innovation, (m, m), 0 for a missing observation.
        log_precision: logarithm of the determinant of ``precision`` over the observations made, ().
    """

    rows: Array
    gain: Array
    innovation: Array
    precision: Array
    log_precision: Array


def predicted(covariance: Array, transition: Array, variances: Array) -> Array:
    """The covariance ``F P F^T + diag(variances)`` after a step. (n, n), (n, n), (n,) -> (n, n)."""
    product = _product(_product(transition, covariance), transpose(transition))
    return symmetric(product) + jnp.diag(variances)


def observed(
    error: Error,
    rows: Array | np.ndarray,
    residuals: Array,
    variances: Array,
    valid: Array,
    admitted: Callable[[Array], Array] = lambda gain: gain,
) -> tuple[Error, Update]:
    """The error after a block of m scalar observations; invalid ones do not change it.

    Invalid residuals and their derivatives must be finite, too.

    Args:
        error: the error before the observations.
        rows: derivatives of the residuals by the error, (m, n); the zeros of a NumPy array cost
            nothing.
        residuals: measured minus computed from the state to which the error belongs, (m,).
        variances: variances of the noises, positive, (m,).
        valid: whether there is an observation, (m,) bool.
        admitted: ``admitted(gain)`` is the part of a gain (n, m) that counts. Along a direction
            that it leaves out, mean and variance do not change (S. F. Schmidt, Application of
            State-Space Methods to Navigation Problems, Advances in Control Systems 3, 1966).
    """
    weight = valid.astype(residuals.dtype)
    images = weight[:, None] * _along(rows, error.covariance)
    spread = weight[:, None] * _along(rows, transpose(images)) + jnp.diag(variances)
    inverse, pivots = _inverse(spread)
    gain = admitted(_product(transpose(images), inverse))
    innovation = jnp.where(valid, residuals - _along(rows, error.mean), 0.0)
    # Joseph's form as matrix products, because their derivatives are matrix products again. XLA
    # would fuse a chain of outer products and recompute it for each sum in a derivative.
    half = error.covariance - _product(gain, images)
    noise = variances[:, None] * transpose(gain)
    remainder = weight[:, None] * _along(rows, transpose(half)) - noise
    joseph = half - transpose(_product(gain, remainder))
    after = Error(error.mean + matvec(gain, innovation), symmetric(joseph))
    precision = weight[:, None] * inverse * weight[None, :]
    logs = -jnp.sum(jnp.where(valid, jnp.log(pivots), 0.0))
    return after, Update(jnp.asarray(rows, gain.dtype), gain, innovation, precision, logs)


def _along(rows: Array | np.ndarray, values: Array) -> Array:
    """``rows @ values``; rows of NumPy are known, so their zeros cost nothing."""
    if not isinstance(rows, np.ndarray):
        return _product(rows, values)
    sums = [sum(row[k].item() * values[k] for k in np.flatnonzero(row)) for row in rows]
    return jnp.stack(sums)


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse and pivots (m,) of a small positive definite matrix (m, m), by Gauss-Jordan."""
    pivots, unit = [], np.eye(matrix.shape[0], dtype=bool)
    for k, here in enumerate(unit):
        pivot = matrix[k, k]
        row = jnp.where(here, 1.0, matrix[k]) / pivot
        column = jnp.where(here, 0.0, matrix[:, k])
        eliminated = jnp.where(here[None, :], 0.0, matrix) - column[:, None] * row[None, :]
        matrix = jnp.where(here[:, None], row[None, :], eliminated)
        pivots.append(pivot)
    return matrix, jnp.stack(pivots)


def consistency(updates: Sequence[Update]) -> tuple[Array, Array, Array]:
    """Normalised innovation squared, number of scalars, log likelihood."""
    squared = sum(dot(x.innovation, matvec(x.precision, x.innovation)) for x in updates)
    squared = jnp.asarray(squared)
    seen = jnp.concatenate([jnp.diagonal(x.precision) for x in updates]) > 0
    count = jnp.sum(seen, dtype=squared.dtype)
    logs = sum(x.log_precision for x in updates)
    return squared, count, 0.5 * (logs - squared - count * jnp.log(2.0 * jnp.pi))


class Adjoint(NamedTuple):
    """The effect of later observations on the error: the smoothed mean is ``mean - P vector``.

    Attributes:
        vector: (n,).
        matrix: (n, n); the smoothed covariance is ``P - P matrix P``.
    """

    vector: Array
    matrix: Array


def no_later_observation(covariance: Array) -> Adjoint:
    """The adjoint after the last step."""
    return Adjoint(jnp.zeros_like(covariance[0]), jnp.zeros_like(covariance))


def smoothed(covariance: Array, adjoint: Adjoint) -> Error:
    """The smoothed error, given the later observations, for this filtered covariance."""
    mean = -matvec(covariance, adjoint.vector)
    known = _product(_product(covariance, adjoint.matrix), covariance)
    return Error(mean, symmetric(covariance - known))


def before(adjoint: Adjoint, transition: Array, updates: Sequence[Update]) -> Adjoint:
    """The adjoint before a step with this transition (n, n) and these updates."""
    vector, matrix = adjoint
    for rows, gain, innovation, precision, _ in reversed(updates):
        across = transpose(rows)
        vector = vector - matvec(across, matvec(transpose(gain), vector))
        vector = vector - matvec(across, matvec(precision, innovation))
        half = matrix - _product(across, _product(transpose(gain), matrix))
        full = half - _product(_product(half, gain), rows)
        matrix = symmetric(full + _product(_product(across, precision), rows))
    back = transpose(transition)
    return Adjoint(matvec(back, vector), symmetric(_product(_product(back, matrix), transition)))


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def symmetric(matrix: Array) -> Array:
    """The symmetric matrix with the same upper triangle; a kernel computes no other elements."""
    return jnp.where(np.tri(len(matrix), dtype=bool), transpose(matrix), matrix)
