"""The error of ``ahrs`` where parts of it start anew, and after the observations of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._internal.linear import dot, matvec, transpose
from jaxquat.estimation.error_state import Error, Update, observed
from jaxquat.estimation.imu import DECLINATION, SIZE, VELOCITY, Settings
from jaxquat.estimation.memory import Memory
from jaxquat.estimation.stages import (
    TILT,
    UNKNOWN,
    Headed,
    Levelled,
    Linear,
    Rested,
    Row,
    inverse,
)
from jaxquat.quaternion import rotate_inverse

_HEADING, _MOVING = np.zeros((2, SIZE), bool)  # elements of the error
_HEADING[[2, DECLINATION]], _MOVING[VELOCITY:DECLINATION] = True, True
_FALLEN = _MOVING | (np.arange(SIZE) < 2)
_VELOCITY, _BIAS = np.eye(SIZE)[VELOCITY:DECLINATION], np.eye(SIZE)[3:6]  # as observed
_ABSENT = 10.0  # s: after so long without its readings a magnetometer no longer gives the heading


def start_covariance(settings: Settings, dtype: Any) -> Array:
    """Return the covariance of the error before the first sample, (18, 18)."""
    return jnp.diag(_deviations(settings, jnp.full(3, UNKNOWN, dtype)) ** 2)


def restarted(
    settings: Settings, memory: Memory, row: Row, tilt: Levelled, north: Headed, rest: Rested
) -> tuple[Linear, Array]:
    """Start elements of the error anew. -> the prediction and the numbers (15,) before updates."""
    begins_rest = rest.rest.rests & ~memory.rest.rests
    # At rest the velocity is relative to the one at its beginning: a smooth ride is a rest, too.
    starts = (
        tilt.begins | (tilt.lost & _FALLEN) | (north.first & _HEADING) | (begins_rest & _MOVING)
    )
    of_tilt = jnp.where(tilt.level, TILT, UNKNOWN)
    of_heading = jnp.where(north.first, jnp.sqrt(north.variance), UNKNOWN)
    variances = jnp.diag(_deviations(settings, jnp.stack([of_tilt, of_tilt, of_heading])) ** 2)
    either = starts[:, None] | starts[None, :]
    covariance, noise = (jnp.where(either, variances, x) for x in row.linear[:2])
    transition = jnp.where(starts[:, None], 0.0, row.linear.transition)
    linear = _tilted(
        Linear(covariance, noise, transition), jnp.where(north.first, north.by_tilt, 0.0)
    )
    moved = row.spans[1] * rest.acceleration
    numbers = memory.numbers.at[3:5].add(moved).at[5].multiply(row.keep)
    return linear, jnp.where(starts[3:] | ~tilt.level, 0.0, numbers)


def _deviations(settings: Settings, attitude: Array) -> Array:
    """The standard deviations of the error where it starts, (18,), from those of the attitude."""
    parts = (
        attitude,
        jnp.full(3, settings.start_bias),
        jnp.full(2, 0.1, attitude.dtype),  # m/s
        jnp.full(1, settings.declination),
        jnp.full(9, settings.start_response),
    )
    return jnp.concatenate(parts)


def _tilted(linear: Linear, by_tilt: Array) -> Linear:
    """The linearised prediction where a heading begins, whose error follows from the tilt's.

    ``by_tilt`` is the derivative of the measured heading by the tilt, (2,), or 0 if none begins.
    """

    def follows(matrix: Array) -> Array:
        return matrix.at[2].add(-jnp.sum(by_tilt[:, None] * matrix[:2], axis=0))

    covariance, noise = (follows(transpose(follows(x))) for x in linear[:2])
    return Linear(covariance, noise, follows(linear.transition))


def observe(
    settings: Settings,
    row: Row,
    tilt: Levelled,
    north: Headed,
    rest: Rested,
    covariance: Array,
    numbers: Array,
) -> tuple[Error, tuple[Update, ...], Array]:
    """Observe velocity, heading, and at rest the bias.

    Returns the error, the blocks of observations, and how many scalars they are.
    """
    (of_gyro, of_force, of_field), rests = row.spans, rest.rest.rests
    error = Error(jnp.zeros_like(covariance[0]), covariance)
    density = jnp.where(rests, settings.rest_velocity**2, rest.density)
    seen = jnp.full(2, (of_force > 0) & tilt.level)
    variances = jnp.full(2, inverse(of_force) * density)
    admitted = _without(_vertical(row, north))
    error, first = observed(error, _VELOCITY, -numbers[3:5], variances, seen, admitted)

    rows = jnp.zeros(SIZE, row.gyro.dtype).at[:2].set(north.by_tilt)
    rows = rows.at[2].set(1.0).at[DECLINATION].set(1.0)
    residual = _wrapped(north.angle - numbers[5])
    surprise = _surprise(settings, error, rows, residual)
    variance = jnp.where(north.settles, north.variance, north.variance * surprise)
    has_north = (tilt.level & (of_field > 0) & north.valid & ~north.first)[None]
    heading = rows[None], residual[None], variance[None], has_north
    error, second = observed(error, *heading, lambda gain: gain.at[:2].set(0.0))

    variances = jnp.full(3, inverse(of_gyro) * settings.rest_bias**2)
    has_bias = jnp.full(3, tilt.level & rests & (of_gyro > 0))
    error, third = observed(error, _BIAS, row.gyro - numbers[:3], variances, has_bias)
    count = jnp.sum(jnp.concatenate([seen, has_north, has_bias]), dtype=row.gyro.dtype)
    return error, (first, second, third), count


def _vertical(row: Row, north: Headed) -> Array:
    """Return the vertical in body axes where no magnetometer gives the heading, otherwise 0."""
    no_heading = (north.heading.age < 0) | (row.since[2] > _ABSENT)
    up = jnp.asarray([0.0, 0.0, 1.0], row.dt.dtype)
    return jnp.where(no_heading, rotate_inverse(north.q, up), 0.0)


def _without(up: Array) -> Callable[[Array], Array]:
    """Take heading and bias about the vertical ``up``, (3,), out of a gain (18, m).

    Without a magnetometer nothing measures these in motion. The velocity that counts as 0 would
    seem to: a body that accelerates while it tilts has the same horizontal velocity as one with
    another bias.
    """

    def admitted(gain: Array) -> Array:
        along = jnp.sum(up[:, None] * gain[3:6], axis=0, keepdims=True)
        level = jnp.where(jnp.any(up != 0), 0.0, gain[2])
        return gain.at[2].set(level).at[3:6].add(-up[:, None] * along)

    return admitted


def _surprise(settings: Settings, error: Error, row: Array, residual: Array) -> Array:
    """The factor by which a long innovation increases the heading's variance."""
    expected = dot(row, matvec(error.covariance, row)) + settings.declination**2
    return 1.0 + residual**2 / (settings.heading_gate**2 * expected)


def _wrapped(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
