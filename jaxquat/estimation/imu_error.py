"""How a step moves the error of ``ahrs``: its transition, by blocks too, and its process noise.

The error has 18 elements: attitude (3), bias (3), horizontal velocity (2), declination (1), and the
nine errors of the gyroscope's response. Of its transition F only a few blocks differ from those of
the identity; ``F P F^T`` by these blocks costs an eighth of the two products of (18, 18) matrices.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from jaxquat._linear import square, transpose
from jaxquat.estimation.imu import Settings
from jaxquat.quaternion import to_matrix

GRAVITY = 9.80665  # m/s^2
SIZE = 18
VELOCITY, DECLINATION, RESPONSE = 6, 8, 9  # where they begin in the error
_ALL_DIGITS = lax.Precision.HIGHEST


def transition_of(q: Array, gyro: Array, dt: Array, keep: Array) -> Array:
    """The derivative of the error after a step by that before, (18, 18)."""
    by_rate = -dt * to_matrix(q)
    by_response = (by_rate[:, :, None] * gyro[None, None, :]).reshape(3, 9)
    tilt = dt * jnp.asarray([[0.0, GRAVITY, 0.0], [-GRAVITY, 0.0, 0.0]], dt.dtype)
    matrix = jnp.eye(SIZE, dtype=dt.dtype).at[DECLINATION, DECLINATION].set(keep)
    matrix = matrix.at[:3, 3:6].set(by_rate).at[:3, RESPONSE:].set(by_response)
    return matrix.at[VELOCITY:DECLINATION, :3].set(tilt)


def propagated(covariance: Array, q: Array, gyro: Array, dt: Array, keep: Array) -> Array:
    """``F P F^T`` with the transition F, by its blocks."""
    by_rate = -dt * to_matrix(q)

    def applied(matrix: Array) -> Array:
        response = matrix[RESPONSE:].reshape(3, 3, SIZE)
        rate = matrix[3:6] + jnp.einsum("ijk,j->ik", response, gyro, precision=_ALL_DIGITS)
        tilt = dt * GRAVITY * jnp.stack([matrix[1], -matrix[0]])
        parts = (
            matrix[:3] + jnp.matmul(by_rate, rate, precision=_ALL_DIGITS),
            matrix[3:6],
            matrix[VELOCITY:DECLINATION] + tilt,
            keep * matrix[DECLINATION:RESPONSE],
            matrix[RESPONSE:],
        )
        return jnp.concatenate(parts)

    return applied(transpose(applied(covariance)))


def variances_of(settings: Settings, gyro: Array, dt: Array, keep: Array) -> Array:
    """The variances that a step adds to the error, (18,)."""
    rate = settings.gyro**2 + settings.gyro_by_rate**2 * square(gyro)
    parts = (
        jnp.full(3, rate * dt),
        jnp.full(3, settings.walk**2 * dt),
        jnp.full(2, 1e-6 * dt),  # (m/s)^2: the accelerometer's own noise
        jnp.full(1, settings.declination**2 * (1.0 - keep**2)),
        jnp.zeros(9, dt.dtype),
    )
    return jnp.concatenate(parts)
