"""An attitude and heading reference system: gyroscope, accelerometer and magnetometer.

A Kalman filter of 18 errors. Beside the attitude and the gyroscope's bias it estimates

- the horizontal velocity that the accelerometer integrates to, which is observed to be near 0. An
  acceleration is thus told from a tilt by what becomes of it: a body that is moved about comes
  back, and a tilt does not. D. Laidig and T. Seel (VQF, Information Fusion 91, 2023) filter the
  specific force in world axes to the same end; here the time constant is the filter's own;
- the local declination of the magnetic field, which indoors changes from place to place;
- the errors of the gyroscope's response: its three gains and six misalignments. A fast motion
  makes a rate of some 0.1 % of its own of them, in a direction that no constant bias has.

At rest the gyroscope measures its bias.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxquat._checks import finite, instance, positive
from jaxquat._linear import cross, dot, matvec, square
from jaxquat.estimation.arguments import cast, sample_of, settings_of
from jaxquat.estimation.error_state import Error, consistency, observed
from jaxquat.estimation.filtering import (
    Estimate,
    Filter,
    Linearized,
    corrected,
    filter_of,
    present,
)
from jaxquat.estimation.imu import ImuSample, Settings
from jaxquat.estimation.imu_error import (
    DECLINATION,
    GRAVITY,
    SIZE,
    VELOCITY,
    propagated,
    transition_of,
    variances_of,
)
from jaxquat.rotations.quaternion import (
    correct_norm,
    exp,
    from_matrix,
    multiply,
    normalize,
    rotate,
    rotate_inverse,
)


class _Memory(NamedTuple):
    q: Array  # without the latency
    numbers: Array  # bias, velocity, declination, response: the error without the attitude
    covariance: Array
    gyro: Array  # last measured
    slow: Array  # gyroscope and accelerometer, low-passed, (6,)
    rest: Array  # how long it has been at rest [s]
    acceleration: Array  # mean square of the horizontal one
    field: Array  # norm and sine of the dip, low-passed, and what counts as undisturbed, (4,)


def ahrs(settings: Settings | None = None) -> Filter:
    """A filter of attitude from gyroscope, accelerometer and magnetometer. -> Filter.

    Its samples are ``estimation.ImuSample``. World axes are magnetic east, north, and up. ::

        dt = jnp.diff(t, prepend=t[:1])
        samples = estimation.ImuSample(dt, gyro, accelerometer, magnetometer)
        memory, estimates = estimation.run(estimation.ahrs(), samples)

    The error has n = 18 elements: attitude [rad] and bias [rad/s], then those of ``others``:
    velocity to the east and north [m/s], (2,); declination [rad], clockwise, (); the errors M of
    the response, row by row, (9,): the true rate is ``gyro - bias - M gyro``.

    Args:
        settings: differentiable; None for ``Settings()``.
    """
    settings = settings_of("settings", settings, Settings(), {"latency": finite}, positive)

    def init(sample: ImuSample) -> _Memory:
        sample = _checked(sample)
        return _start(sample, cast(settings, sample.dt.dtype))

    def linearize(memory: _Memory, sample: ImuSample) -> tuple[_Memory, Estimate, Linearized]:
        sample = _checked(sample)
        return _linearize(cast(settings, sample.dt.dtype), memory, sample)

    return filter_of(init, linearize)


def _start(sample: ImuSample, settings: Settings) -> _Memory:
    """The memory before the first sample: level by the accelerometer, north by the magnetometer.

    These were read at the end of the sample, so the attitude is turned back by the gyroscope.
    """
    dtype = sample.dt.dtype
    x, y, up = jnp.eye(3, dtype=dtype)
    has_force, force = _present_and_long(sample.accelerometer, GRAVITY * up)
    _, gyro = present(sample.gyro, jnp.zeros(3, dtype))
    vertical = force / jnp.sqrt(square(force))
    any_axis = jnp.where(jnp.abs(vertical[1]) < 0.9, y, x)
    _, field = present(sample.magnetometer, vertical)
    has_field, east = _present_and_long(cross(field, vertical), cross(any_axis, vertical))
    east = east / jnp.sqrt(square(east))
    at_end = from_matrix(jnp.stack([east, cross(vertical, east), vertical]))
    q = normalize(multiply(at_end, exp(-sample.dt * gyro)))
    one = jnp.ones((), dtype)
    tilt, heading = jnp.where(has_force, 0.1 * one, one), jnp.where(has_field, 0.0, 3.0 * one)
    heading = jnp.sqrt(settings.start_heading**2 + heading**2)
    parts = (
        jnp.stack([tilt, tilt, heading]),
        jnp.full(3, settings.start_bias),
        jnp.full(2, 0.1, dtype),  # m/s
        jnp.full(1, settings.declination),
        jnp.full(9, settings.start_response),
    )
    deviations = jnp.concatenate(parts)
    zero, start = jnp.zeros((), dtype), (q, jnp.zeros(SIZE - 3, dtype), jnp.diag(deviations**2))
    return _Memory(*start, gyro, jnp.concatenate([gyro, force]), zero, zero, jnp.zeros(4, dtype))


def _linearize(
    settings: Settings, memory: _Memory, sample: ImuSample
) -> tuple[_Memory, Estimate, Linearized]:
    """One step: turn by the gyroscope, then what the other sensors and the rest say."""
    dt, ones = sample.dt, jnp.ones(3, sample.dt.dtype)
    has_gyro, gyro = present(sample.gyro, memory.gyro)
    q, middle = _turn(memory, gyro, dt)
    up = jnp.asarray([0.0, 0.0, GRAVITY], dt.dtype)
    has_force, force = present(sample.accelerometer, rotate_inverse(q, up))
    has_field, field = _present_and_long(sample.magnetometer, ones)
    acceleration, field = rotate(q, force)[:2], rotate(q, field)
    keep = jnp.exp(-dt / settings.declination_time)
    numbers = memory.numbers.at[3:5].add(dt * acceleration).at[5].multiply(keep)

    transition = transition_of(middle, gyro, dt, keep)
    covariance = propagated(memory.covariance, middle, gyro, dt, keep)
    covariance = covariance + jnp.diag(variances_of(settings, gyro, dt, keep))
    slow, rest = _rest(settings, memory, gyro, force, dt)
    share = -jnp.expm1(-dt / settings.acceleration_time)
    mean_square = memory.acceleration + share * (square(acceleration) - memory.acceleration)
    norms, doubt = _disturbance(settings, memory.field, field, dt, has_field)

    at_rest, some_time = rest > settings.rest_time, dt > 0
    inverse = 1.0 / jnp.where(some_time, dt, 1.0)
    error = Error(jnp.zeros(SIZE, dt.dtype), covariance)
    moving = settings.velocity**2 + settings.velocity_by_acceleration**2 * mean_square
    variance = inverse * jnp.where(at_rest, settings.rest_velocity**2, moving)
    valid = jnp.full(2, has_force & some_time)
    error, first = observed(
        error, _eye(VELOCITY, 2, dt), -numbers[3:5], jnp.full(2, variance), valid
    )

    row = _eye(2, 1, dt) + _eye(DECLINATION, 1, dt)
    residual = _wrapped(_heading(field) - numbers[5])
    surprise = _surprise(settings, error, row[0], residual)
    of_heading = inverse * settings.heading**2 * doubt * surprise
    of_bias = inverse * settings.rest_bias**2
    error, second = observed(
        error,
        jnp.concatenate([row, _eye(3, 3, dt)]),
        jnp.concatenate([residual[None], gyro - numbers[:3]]),
        jnp.stack([of_heading, of_bias, of_bias, of_bias]),
        some_time & jnp.stack([has_field, *[at_rest & has_gyro] * 3]),
    )
    updates = first, second
    estimate = Estimate(q, numbers[:3], numbers[3:], covariance, *consistency(updates))
    estimate = corrected(estimate, error)
    numbers = jnp.concatenate([estimate.bias, estimate.others])
    state = estimate.q, numbers, estimate.covariance
    after = _Memory(*state, gyro, slow, rest, mean_square, norms)
    turned_on = multiply(estimate.q, exp(settings.latency * (gyro - estimate.bias)))
    return after, estimate._replace(q=turned_on), Linearized(transition, updates)


def _surprise(settings: Settings, error: Error, row: Array, residual: Array) -> Array:
    """The factor of the heading's variance for a long innovation."""
    expected = dot(matvec(error.covariance, row), row) + settings.declination**2
    return 1.0 + residual**2 / (settings.heading_gate**2 * expected)


def _turn(memory: _Memory, gyro: Array, dt: Array) -> tuple[Array, Array]:
    """The attitude after the gyroscope's turn, and that in its middle."""
    response = matvec(memory.numbers[6:].reshape(3, 3), gyro)
    half = exp(0.5 * dt * (gyro - memory.numbers[:3] - response))
    middle = multiply(memory.q, half)
    return correct_norm(multiply(middle, half)), middle


def _rest(
    settings: Settings, memory: _Memory, gyro: Array, force: Array, dt: Array
) -> tuple[Array, Array]:
    """The low-passed sensors, and for how long the body has been at rest."""
    both = jnp.concatenate([gyro, force])
    slow = memory.slow - jnp.expm1(-dt / 0.5) * (both - memory.slow)
    off = both - slow
    still = (square(off[:3]) < settings.rest_rate**2) & (square(slow[:3]) < settings.rest_rate**2)
    still = still & (square(off[3:]) < settings.rest_acceleration**2)
    return slow, jnp.where(still, memory.rest + dt, 0.0)


def _disturbance(
    settings: Settings, memory: Array, field: Array, dt: Array, valid: Array
) -> tuple[Array, Array]:
    """The field's norms and sines of dip, (4,), and the factor of the heading's variance.

    The factor is 1 where norm and dip are those learned, and they are learned where it is small.
    """
    norm = jnp.sqrt(square(field))
    now = jnp.stack([norm, field[2] / norm])
    known = memory[0] > 0
    fast = jnp.where(known, memory[:2] - jnp.expm1(-dt / 0.15) * (now - memory[:2]), now)
    usual = jnp.where(known, memory[2:], now)
    off = jnp.stack([fast[0] / usual[0] - 1.0, fast[1] - usual[1]]) / settings.field_gate
    doubt = (1.0 + square(off)) ** 2
    usual = usual - jnp.expm1(-dt / settings.field_time) / doubt * (fast - usual)
    return jnp.where(valid, jnp.concatenate([fast, usual]), memory), doubt


def _present_and_long(value: Array, fallback: Array) -> tuple[Array, Array]:
    """``present`` for a vector whose direction counts: one of length 0 is none."""
    valid, value = present(value, fallback)
    valid = valid & (square(value) > 0)
    return valid, jnp.where(valid, value, fallback)


def _heading(field: Array) -> Array:
    """How far the field points east of north [rad], clockwise; 0 where it is vertical."""
    level = square(field[:2]) > 0
    east, north = jnp.where(level, field[0], 0.0), jnp.where(level, field[1], 1.0)
    return jnp.arctan2(east, north)


def _wrapped(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))


def _eye(first: int, count: int, dt: Array) -> Array:
    """Rows of the identity of 18, from ``first`` on. -> (count, 18)."""
    return jnp.eye(SIZE, dtype=dt.dtype)[first : first + count]


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    return sample_of(sample, dict.fromkeys(ImuSample._fields[1:], (3,)))
