"""The Gaussian part of an error-state Kalman filter: prediction, updates, and the smoother.

The error is the rotation vector of the attitude in WORLD axes, ``q_true = exp(error[:3]) q``, then
the errors of the other numbers, (n,). (Its equations depend on the measured rates alone: S.
Bonnabel, P. Martin and E. Salaun, CDC 2009.) Updates have Joseph's form, right for any gain.

The smoother is that of Rauch, Tung and Striebel: ``x_N = x + G (x_N' - x')``, where x' is the
prediction of the next sample and ``G = P F^T P'^-1``. Its backward pass carries
``r = P^-1 (x_N - x)`` (G. J. Bierman, Int. J. Control 18(1), 1973). Before a prediction r becomes
``F^T r``; before an update with rows H, noise R, ``L = 1 - K H`` and any gain K::

    r = A r + B innovation,   B = P^-1 K = H^T S^-1 + P^-1 (K - K_optimal)
                              A = P^-1 P+ = L^T - B (H P L^T - R K^T)

As ``r = M e + noise``, the smoothed error is ``(1 - P M) e - P noise``, with a sum of squares as
covariance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._internal.linear import dot, matvec, transpose

_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Error(NamedTuple):
    """The error of a state, as a Gaussian distribution."""

    mean: Array  # (n,)
    covariance: Array  # (n, n)


class Update(NamedTuple):
    """A block of m scalar observations ``innovation = rows . error + noise`` and its effect."""

    rows: Array  # (m, n)
    variances: Array  # variances of the noises, (m,)
    gain: Array  # (n, m); the column of a missing observation is 0
    innovation: Array  # (m,), 0 for a missing observation
    precision: Array  # inverse covariance of the innovation, (m, m), 0 for a missing observation
    log_precision: Array  # logarithm of the determinant of ``precision`` over the observations made
    limited: Limited | None = None  # for the smoother, if the gain is not optimal


class Limited(NamedTuple):
    """A gain (n, m) that is not the optimal one."""

    covariance: Array  # P before the observations, (n, n)
    excess: Array  # the gain without the optimal gain, (n, m)
    remainder: Array  # ``H P L^T - R K^T``, (m, n)


def predicted(covariance: Array, transition: Array, noise: Array) -> Array:
    """Return the covariance ``F P F^T + Q`` after a step; all are (n, n)."""
    product = _product(_product(transition, covariance), transpose(transition))
    return symmetric(product) + noise


def observed(
    error: Error,
    rows: Array | np.ndarray,
    residuals: Array,
    variances: Array,
    valid: Array,
    admitted: Callable[[Array], Array] | None = None,
) -> tuple[Error, Update]:
    """Update an error by a block of m scalar observations; invalid ones do not change it.

    ``rows`` (m, n) are the derivatives of the residuals (m,), finite, measured minus computed.
    Along directions that ``admitted(gain)`` leaves out, mean and variance stay (S. F. Schmidt,
    Advances in Control Systems 3, 1966).
    """
    weight = valid.astype(residuals.dtype)
    images = weight[:, None] * _along(rows, error.covariance)
    spread = weight[:, None] * _along(rows, transpose(images)) + jnp.diag(variances)
    inverse, pivots = _inverse(spread)
    optimal = _product(transpose(images), inverse)
    gain = optimal if admitted is None else admitted(optimal)
    innovation = jnp.where(valid, residuals - _along(rows, error.mean), 0.0)
    # Joseph's form as matrix products, whose derivatives are matrix products again. XLA would
    # fuse a chain of outer products and recompute it for each sum in a derivative.
    half = error.covariance - _product(gain, images)
    noise = variances[:, None] * transpose(gain)
    remainder = weight[:, None] * _along(rows, transpose(half)) - noise
    joseph = half - transpose(_product(gain, remainder))
    after = Error(error.mean + matvec(gain, innovation), symmetric(joseph))
    precision = weight[:, None] * inverse * weight[None, :]
    logs = -jnp.sum(jnp.where(valid, jnp.log(pivots), 0.0))
    update = Update(jnp.asarray(rows, gain.dtype), variances, gain, innovation, precision, logs)
    if admitted is not None:
        update = update._replace(limited=Limited(error.covariance, gain - optimal, remainder))
    return after, update


def _along(rows: Array | np.ndarray, values: Array) -> Array:
    if not isinstance(rows, np.ndarray):
        return _product(rows, values)
    sums = [sum(row[k].item() * values[k] for k in np.flatnonzero(row)) for row in rows]
    return jnp.stack(sums)


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Return inverse and pivots (m,) of a positive definite matrix (m, m), by Gauss-Jordan."""
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
    """Return the normalised innovation squared, the number of scalars, the log likelihood."""
    terms = [dot(x.innovation, matvec(x.precision, x.innovation)) for x in updates]
    squared = jnp.asarray(sum(terms))
    seen = jnp.concatenate([jnp.diagonal(x.precision) for x in updates]) > 0
    count = jnp.sum(seen, dtype=squared.dtype)
    logs = sum(x.log_precision for x in updates)
    return squared, count, 0.5 * (logs - squared - count * jnp.log(2.0 * jnp.pi))


class BackwardStep(NamedTuple):
    """A block of observations for the backward pass of the smoother, see above."""

    update: Update  # without its limited gain
    weights: Array  # B, (n, m)
    remainder: Array | None  # (m, n), None for an optimal gain


def backward_step(update: Update) -> BackwardStep:
    """Return the BackwardStep of an update."""
    weights = _product(transpose(update.rows), update.precision)
    if update.limited is None:
        return BackwardStep(update, weights, None)
    covariance, excess, remainder = update.limited
    weights = weights + _solved(covariance, excess)
    return BackwardStep(update._replace(limited=None), weights, remainder)


def _solved(covariance: Array, columns: Array) -> Array:
    """Return ``covariance^-1 columns`` by Gauss-Jordan elimination in units of the deviations."""
    size = len(covariance)
    scale = jnp.sqrt(jnp.diagonal(covariance))[:, None]
    least = 10.0 * jnp.finfo(scale.dtype).eps
    system = jnp.concatenate([covariance / transpose(scale), columns], axis=1) / scale

    def eliminated(system: Array, here: Array) -> tuple[Array, None]:  # a loop compiles faster
        row, column = matvec(transpose(system), here), matvec(system[:, :size], here)
        row = row / jnp.maximum(jnp.sum(column * here), least)
        return system - (column - here)[:, None] * row[None, :], None

    system, _ = lax.scan(eliminated, system, jnp.eye(size, dtype=scale.dtype))
    return system[:, size:] / scale


class Information(NamedTuple):
    """Information of later observations about the error e: ``vector = matrix e + noise``."""

    vector: Array  # (n,); the smoothed mean is ``P vector``
    matrix: Array  # (n, n)
    noise: Array  # covariance of the noise, (n, n)


def no_information(covariance: Array) -> Information:
    """Return the information after the last step: none."""
    none = jnp.zeros_like(covariance)
    return Information(none[0], none, none)


def smoothed(covariance: Array, later: Information) -> Error:
    """Return the smoothed error for this filtered covariance, given the later observations."""
    gain = _product(covariance, later.matrix)
    left = jnp.eye(len(gain), dtype=gain.dtype) - gain
    own = _product(_product(left, covariance), transpose(left))
    noise = _product(_product(covariance, later.noise), covariance)
    return Error(matvec(covariance, later.vector), symmetric(own + noise))


def information_before(
    later: Information, transition: Array, noise: Array, steps: Sequence[BackwardStep]
) -> Information:
    """Return the information before a prediction, with this noise (n, n), and its updates."""
    for step in reversed(steps):
        later = _before_update(later, step)
    back = transpose(transition)
    vector, matrix, covariance = later
    covariance = covariance + _product(_product(matrix, noise), transpose(matrix))
    return Information(
        matvec(back, vector),
        _product(_product(back, matrix), transition),
        symmetric(_product(_product(back, covariance), transition)),
    )


def _before_update(later: Information, step: BackwardStep) -> Information:
    (rows, variances, gain, innovation, *_), weights, remainder = step

    def applied(values: Array) -> Array:  # A values
        after = values - _product(transpose(rows), _product(transpose(gain), values))
        if remainder is None:
            return after
        return after - _product(weights, _product(remainder, values))

    vector = applied(later.vector[:, None])[:, 0] + matvec(weights, innovation)
    left = applied(later.matrix)
    own = weights - _product(left, gain)
    matrix = left + _product(own, rows)
    covariance = applied(transpose(applied(later.noise)))
    covariance = covariance + _product(own * variances[None, :], transpose(own))
    return Information(vector, matrix, symmetric(covariance))


def symmetric(matrix: Array) -> Array:
    """Return the symmetric matrix with this upper triangle; kernels compute no other elements."""
    return jnp.where(np.tri(len(matrix), dtype=bool), transpose(matrix), matrix)
