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

from jaxquat._checks import exactly, finite, instance, is_concrete, not_negative, positive
from jaxquat._linear import cross, dot, matvec, square
from jaxquat.estimation.error_state import Error, Update, consistency, observed, predicted
from jaxquat.estimation.filtering import (
    Estimate,
    Filter,
    Linearized,
    corrected,
    filter_of,
    present,
    stacked_updates,
)
from jaxquat.estimation.imu import ImuSample, Settings
from jaxquat.rotations.quaternion import (
    correct_norm,
    exp,
    from_matrix,
    multiply,
    normalize,
    rotate,
    rotate_inverse,
    to_matrix,
)

GRAVITY = 9.80665  # m/s^2
_SIZE = 18
_VELOCITY, _DECLINATION, _RESPONSE = 6, 8, 9  # where they begin in the error


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

    Examples:
        >>> n = 50
        >>> up, north = jnp.array([0.0, 0.0, 9.81]), jnp.array([2e-5, 0.0, -4e-5])  # m/s^2, T
        >>> sensors = jnp.zeros((n, 3)), jnp.tile(up, (n, 1)), jnp.tile(north, (n, 1))
        >>> samples = jq.estimation.ImuSample(jnp.full(n, 0.01), *sensors)
        >>> run = jax.jit(lambda samples: jq.estimation.run(jq.estimation.ahrs(), samples))
        >>> yaw = jq.euler.from_quaternion(run(samples)[1].q[-1], "ZYX")[0]
        >>> f"{jnp.degrees(yaw):.1f} deg"  # x points north, so it is turned from the east
        '90.0 deg'
    """
    settings = Settings() if settings is None else settings
    instance("settings", settings, Settings, "estimation.Settings")
    for name, value in zip(Settings._fields, settings, strict=True):
        value = exactly(f"settings.{name}", value, ())
        (finite if name == "latency" else positive)(f"settings.{name}", value)

    def init(sample: ImuSample) -> _Memory:
        sample = _checked(sample)
        return _start(sample, _cast(settings, sample))

    def linearize(memory: _Memory, sample: ImuSample) -> tuple[_Memory, Estimate, Linearized]:
        sample = _checked(sample)
        return _linearize(_cast(settings, sample), memory, sample)

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
    zero, start = jnp.zeros((), dtype), (q, jnp.zeros(_SIZE - 3, dtype), jnp.diag(deviations**2))
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

    transition = _transition(middle, gyro, dt, keep)
    covariance = predicted(memory.covariance, transition, _variances(settings, gyro, dt, keep))
    slow, rest = _rest(settings, memory, gyro, force, dt)
    share = -jnp.expm1(-dt / settings.acceleration_time)
    mean_square = memory.acceleration + share * (square(acceleration) - memory.acceleration)
    norms, doubt = _disturbance(settings, memory.field, field, dt, has_field)

    at_rest, some_time = rest > settings.rest_time, dt > 0
    inverse = 1.0 / jnp.where(some_time, dt, 1.0)
    error, updates = Error(jnp.zeros(_SIZE, dt.dtype), covariance), []
    moving = settings.velocity**2 + settings.velocity_by_acceleration**2 * mean_square
    variance = inverse * jnp.where(at_rest, settings.rest_velocity**2, moving)
    rows, valid = _eye(_VELOCITY, 2, dt), has_force & some_time
    error = _observe(error, rows, -numbers[3:5], variance, valid, updates)

    rows, valid = _eye(2, 1, dt) + _eye(_DECLINATION, 1, dt), has_field & some_time
    residual = _wrapped(_heading(field) - numbers[5])
    surprise = _surprise(settings, error, rows[0], residual)
    variance = inverse * settings.heading**2 * doubt * surprise
    error = _observe(error, rows, residual[None], variance, valid, updates)

    rows, valid = _eye(3, 3, dt), at_rest & some_time & has_gyro
    variance = inverse * settings.rest_bias**2
    error = _observe(error, rows, gyro - numbers[:3], variance, valid, updates)

    updates = stacked_updates(updates)
    estimate = Estimate(q, numbers[:3], numbers[3:], covariance, *consistency(updates))
    estimate = corrected(estimate, error)
    numbers = jnp.concatenate([estimate.bias, estimate.others])
    state = estimate.q, numbers, estimate.covariance
    after = _Memory(*state, gyro, slow, rest, mean_square, norms)
    turned_on = multiply(estimate.q, exp(settings.latency * (gyro - estimate.bias)))
    return after, estimate._replace(q=turned_on), Linearized(transition, updates)


def _observe(
    error: Error,
    rows: Array,
    residuals: Array,
    variance: Array,
    valid: Array,
    updates: list[Update],
) -> Error:
    """The error after the scalars of one sensor; their updates are appended to ``updates``."""
    for row, residual in zip(rows, residuals, strict=True):
        error, update = observed(error, row, residual, variance, valid)
        updates.append(update)
    return error


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


def _transition(q: Array, gyro: Array, dt: Array, keep: Array) -> Array:
    """The derivative of the error after a step by that before, (18, 18)."""
    by_rate = -dt * to_matrix(q)
    by_response = (by_rate[:, :, None] * gyro[None, None, :]).reshape(3, 9)
    tilt = dt * jnp.asarray([[0.0, GRAVITY, 0.0], [-GRAVITY, 0.0, 0.0]], dt.dtype)
    matrix = jnp.eye(_SIZE, dtype=dt.dtype).at[_DECLINATION, _DECLINATION].set(keep)
    matrix = matrix.at[:3, 3:6].set(by_rate).at[:3, _RESPONSE:].set(by_response)
    return matrix.at[_VELOCITY:_DECLINATION, :3].set(tilt)


def _variances(settings: Settings, gyro: Array, dt: Array, keep: Array) -> Array:
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
    return jnp.eye(_SIZE, dtype=dt.dtype)[first : first + count]


def _cast(settings: Settings, sample: ImuSample) -> Settings:
    return Settings(*(jnp.asarray(x, sample.dt.dtype) for x in settings))


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    dt = exactly("sample.dt", sample.dt, ())
    if is_concrete(dt):
        not_negative("sample.dt", dt)
    names = ImuSample._fields[1:]
    vectors = [exactly(f"sample.{name}", getattr(sample, name), (3,)) for name in names]
    return ImuSample(dt.astype(vectors[0].dtype), *(x.astype(vectors[0].dtype) for x in vectors))
