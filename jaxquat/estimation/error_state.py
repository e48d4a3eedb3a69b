"""The Gaussian part of an error-state Kalman filter: prediction, updates, and the smoother.

The state is a unit quaternion and n - 3 numbers. Its error is a vector (n,): first the rotation
vector of the attitude in WORLD axes, ``q_true = exp(error[:3]) q``, then the differences of the
numbers. (An attitude error in world axes makes the linearised equations depend on the measured
rates alone: S. Bonnabel, P. Martin and E. Salaun, Invariant extended Kalman filter, CDC 2009.)

Each component of an observation is one scalar update in Joseph's form, so nothing is inverted and
the covariance stays positive in float32 too. The smoother is the fixed-interval one of Rauch, Tung
and Striebel in the form of Bierman (Fixed interval smoothing with discrete measurements, Int. J.
Control 18(1), 1973, after Bryson and Frazier): it goes back over the updates themselves and inverts
no covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxquat._linear import dot, matvec, transpose


class Error(NamedTuple):
    """The error of a state, a Gaussian.

    Attributes:
        mean: (n,).
        covariance: (n, n).
    """

    mean: Array
    covariance: Array


class Update(NamedTuple):
    """One scalar observation ``innovation = row . error + noise`` and what it changed.

    Attributes:
        row: (n,).
        gain: (n,), 0 where there was no observation.
        innovation: (), 0 where there was none.
        precision: 1 over the variance of the innovation, (), 0 where there was none.
    """

    row: Array
    gain: Array
    innovation: Array
    precision: Array


def predicted(covariance: Array, transition: Array, variances: Array) -> Array:
    """The covariance ``F P F^T + diag(variances)`` after a step. (n, n), (n, n), (n,) -> (n, n)."""
    product = _product(_product(transition, covariance), transpose(transition))
    return _symmetric(product) + jnp.diag(variances)


def observed(
    error: Error, row: Array, residual: Array, variance: Array, valid: Array
) -> tuple[Error, Update]:
    """The error after one scalar observation, or unchanged where ``valid`` is False.

    The residual and its derivatives must be finite there too.

    Args:
        error: before.
        row: derivative of the residual by the error, (n,).
        residual: measured minus computed from the state whose error this is, ().
        variance: of the noise, positive, ().
        valid: whether there is an observation, () bool.
    """
    image = matvec(error.covariance, row)
    innovation = jnp.where(valid, residual - dot(row, error.mean), 0.0)
    precision = jnp.where(valid, 1.0 / (dot(row, image) + variance), 0.0)
    gain = precision * image
    half = error.covariance - gain[:, None] * image[None, :]
    noise = variance * gain[:, None] * gain[None, :]
    joseph = half - matvec(half, row)[:, None] * gain[None, :] + noise
    after = Error(error.mean + gain * innovation, _symmetric(joseph))
    return after, Update(row, gain, innovation, precision)


def consistency(updates: Update) -> tuple[Array, Array, Array]:
    """Normalised innovation squared, number of scalars, log likelihood, of (m,) updates."""
    seen = updates.precision > 0
    squared = jnp.sum(updates.precision * updates.innovation**2)
    count = jnp.sum(seen, dtype=squared.dtype)
    logs = jnp.where(seen, jnp.log(jnp.where(seen, updates.precision, 1.0)), 0.0)
    return squared, count, 0.5 * (jnp.sum(logs) - squared - count * jnp.log(2.0 * jnp.pi))


class Adjoint(NamedTuple):
    """What the later observations say of the error now: ``mean - P vector`` is the smoothed one.

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
    """The error, given the later observations too, of a state with this filtered covariance."""
    mean = -matvec(covariance, adjoint.vector)
    known = _product(_product(covariance, adjoint.matrix), covariance)
    return Error(mean, _symmetric(covariance - known))


def before(adjoint: Adjoint, transition: Array, updates: Update) -> Adjoint:
    """The adjoint before a step with this transition (n, n) and these (m,) updates."""
    vector, matrix = adjoint
    for k in reversed(range(updates.precision.shape[0])):
        row, gain, innovation, precision = (x[k] for x in updates)
        vector = vector - row * (dot(gain, vector) + precision * innovation)
        half = matrix - row[:, None] * matvec(transpose(matrix), gain)[None, :]
        matrix = half - matvec(half, gain)[:, None] * row[None, :]
        matrix = _symmetric(matrix + precision * row[:, None] * row[None, :])
    back = transpose(transition)
    return Adjoint(matvec(back, vector), _symmetric(_product(_product(back, matrix), transition)))


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + transpose(matrix))
