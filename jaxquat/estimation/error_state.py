"""The Gaussian part of an error-state Kalman filter: prediction, updates, and the smoother.

The error is the rotation vector of the attitude in WORLD axes, ``q_true = exp(error[:3]) q``, then
the errors of the other numbers, (n,). (Its equations depend on the measured rates alone: S.
Bonnabel, P. Martin and E. Salaun, CDC 2009.) Updates have Joseph's form, right for any gain.

The smoother is that of Rauch, Tung and Striebel (AIAA J. 3, 1445, 1965): it gives the state
``x_N = x + G (x_N' - x')`` with the prediction x' of the next sample, the covariance
``P' = F P F^T + Q`` of x', and ``G = P F^T P'^-1``. The part ``e - G e'`` of the error is
uncorrelated with e' and with all later noises, for any gains of the filter. So the covariance is ::

    P_N = (1 - G F) P (1 - G F)^T + G (Q + P_N') G^T

A sum of squares stays positive in any precision; ``P + G (P_N' - P') G^T``, which is equal to it,
does not, and neither does a form that carries the inverse of a covariance.
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
    """The innovation of a block of m scalar observations."""

    innovation: Array  # (m,), 0 for a missing observation
    precision: Array  # inverse covariance of the innovation, (m, m), 0 for a missing observation
    log_precision: Array  # logarithm of the determinant of ``precision`` over the observations made


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
    """Update an error by a block of m scalar observations; invalid ones do not change it."""
    # ``rows`` (m, n) are the derivatives of the residuals (m,), finite, measured minus computed.
    # Along directions that ``admitted(gain)`` leaves out, mean and variance stay (S. F. Schmidt,
    # Advances in Control Systems 3, 1966).
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
    return after, Update(innovation, precision, logs)


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


def smoothed(
    covariance: Array, transition: Array, noise: Array, later: Array
) -> tuple[Array, Array]:
    """Return G, and the smoothed covariance of a sample from that of the next one, ``later``."""
    # ``covariance`` is that of the filter's error at the sample; ``transition`` and ``noise`` lead
    # to the next one.
    ahead = predicted(covariance, transition, noise)
    gain = transpose(_solved(ahead, _product(transition, covariance)))
    left = jnp.eye(len(gain), dtype=gain.dtype) - _product(gain, transition)
    own = _product(_product(left, covariance), transpose(left))
    new = _product(_product(gain, noise + later), transpose(gain))
    return gain, symmetric(own + new)


def _solved(covariance: Array, columns: Array) -> Array:
    """Return ``covariance^-1 columns`` by Gauss-Jordan elimination in units of the deviations."""
    # Rows without variance give 0.
    size, variances = len(covariance), jnp.diagonal(covariance)[:, None]
    scale = jnp.sqrt(jnp.where(variances > 0, variances, 1.0))
    least = 10.0 * jnp.finfo(scale.dtype).eps
    system = jnp.concatenate([covariance / transpose(scale), columns], axis=1) / scale

    def eliminated(k: Array, system: Array) -> Array:  # a loop compiles faster
        row = lax.dynamic_index_in_dim(system, k, keepdims=False)
        column = lax.dynamic_index_in_dim(system, k, 1, keepdims=False)
        here = jnp.arange(size) == k
        row = row / jnp.maximum(row[k], least)
        return system - jnp.where(here, column - 1.0, column)[:, None] * row[None, :]

    system = lax.fori_loop(0, size, eliminated, system)
    return system[:, size:] / scale


def symmetric(matrix: Array) -> Array:
    """Return the symmetric matrix with this upper triangle; kernels compute no other elements."""
    return jnp.where(np.tri(len(matrix), dtype=bool), transpose(matrix), matrix)
