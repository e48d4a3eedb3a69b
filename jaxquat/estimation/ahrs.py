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
from jax.typing import ArrayLike

from jaxquat._checks import exactly, finite, instance, is_concrete, not_negative, positive
from jaxquat._linear import cross, matvec, square
from jaxquat.estimation.error_state import Error, consistency, observed, predicted
from jaxquat.estimation.filtering import (
    Estimate,
    Filter,
    Linearized,
    corrected,
    filter_of,
    present,
    stacked_updates,
)
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


class Settings(NamedTuple):
    """What ``ahrs`` assumes, a pytree of numbers (); all but ``latency`` are positive.

    An observation whose density is s [unit sqrt(s)] has the standard deviation s/sqrt(dt) in a
    sample of length dt, so the settings do not depend on the sampling rate.

    Attributes:
        gyro: density of the white noise of the rates [rad/s/sqrt(Hz)].
        gyro_by_rate: the same in proportion to the rate [1/sqrt(Hz)].
        walk: density of the random walk of the bias [rad/s^2/sqrt(Hz)].
        start_bias: of the bias, which begins as 0 [rad/s].
        start_response: of the errors of gain and alignment, which begin as 0 [1 or rad].
        start_heading: of the heading that the first sample's magnetometer gives [rad].
        velocity: density of the velocity's observation as 0 [m/s sqrt(s)].
        velocity_by_acceleration: the same in proportion to the root-mean-square horizontal
            acceleration [s sqrt(s)] over ``acceleration_time`` [s].
        acceleration_time: [s].
        heading: density of the magnetic heading [rad sqrt(s)].
        heading_gate: an innovation of this many standard deviations doubles its variance.
        declination: of the local declination [rad], a random process that forgets its value in
            ``declination_time`` [s].
        declination_time: [s].
        field_gate: relative change of the field's norm, or change of the sine of its dip, at which
            the variance of the heading is four times as large.
        field_time: time in which the norm and dip that count as undisturbed are learned [s].
        rest_rate: the body is at rest where the rate [rad/s], which may be its bias, and its change
            in about 0.5 s stay below this for ``rest_time``,
        rest_acceleration: and the change of the specific force below this [m/s^2].
        rest_time: [s].
        rest_velocity: density of the velocity's observation as 0 at rest [m/s sqrt(s)].
        rest_bias: density of the bias's observation at rest [rad/s sqrt(s)].
        latency: the rate that is reported at a time was that this much earlier [s]. Attitudes are
            turned on by it.
    """

    gyro: ArrayLike = 1e-3
    gyro_by_rate: ArrayLike = 5e-4
    walk: ArrayLike = 1e-4
    start_bias: ArrayLike = 0.01
    start_response: ArrayLike = 3e-3
    start_heading: ArrayLike = 0.1
    velocity: ArrayLike = 0.2
    velocity_by_acceleration: ArrayLike = 0.1
    acceleration_time: ArrayLike = 3.0
    heading: ArrayLike = 0.3
    heading_gate: ArrayLike = 1.0
    declination: ArrayLike = 0.08
    declination_time: ArrayLike = 30.0
    field_gate: ArrayLike = 0.05
    field_time: ArrayLike = 15.0
    rest_rate: ArrayLike = 0.035
    rest_acceleration: ArrayLike = 0.5
    rest_time: ArrayLike = 1.5
    rest_velocity: ArrayLike = 4e-3
    rest_bias: ArrayLike = 7e-3
    latency: ArrayLike = 0.0


class ImuSample(NamedTuple):
    """One sample of ``ahrs``; with an axis (N,) in front of each array, a recording.

    A sensor with a NaN was not read. Without the gyroscope its last rate is taken.

    Attributes:
        dt: time since the sample before [s], at least 0, ().
        gyro: mean rate since then [rad/s], body axes, (3,).
        accelerometer: specific force at the end [m/s^2], body axes, (3,).
        magnetometer: magnetic field at the end, body axes, any unit, (3,).
    """

    dt: Array
    gyro: Array
    accelerometer: Array
    magnetometer: Array


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
    zero = jnp.zeros((), dtype)
    slow = jnp.concatenate([gyro, force])
    return _Memory(
        q, jnp.zeros(_SIZE - 3, dtype), jnp.diag(deviations**2), gyro, slow, zero, zero,
        jnp.zeros(4, dtype),
    )  # fmt: skip


def _linearize(
    settings: Settings, memory: _Memory, sample: ImuSample
) -> tuple[_Memory, Estimate, Linearized]:
    """One step: turn by the gyroscope, then what the other sensors and the rest say."""
    dt = sample.dt
    _, gyro = present(sample.gyro, memory.gyro)
    q, middle, numbers = _turn(memory, gyro, dt)
    up = jnp.asarray([0.0, 0.0, GRAVITY], dt.dtype)
    has_force, force = present(sample.accelerometer, rotate_inverse(q, up))
    acceleration = rotate(q, force)[:2]
    numbers = numbers.at[3:5].add(dt * acceleration)
    keep = jnp.exp(-dt / settings.declination_time)
    numbers = numbers.at[5].multiply(keep)

    transition = _transition(middle, gyro, dt, keep)
    covariance = predicted(memory.covariance, transition, _variances(settings, gyro, dt, keep))
    slow, rest = _rest(settings, memory, gyro, force, dt)
    share = -jnp.expm1(-dt / settings.acceleration_time)
    mean_square = memory.acceleration + share * (square(acceleration) - memory.acceleration)

    at_rest, some_time = rest > settings.rest_time, dt > 0
    inverse = 1.0 / jnp.where(some_time, dt, 1.0)
    error, updates = Error(jnp.zeros(_SIZE, dt.dtype), covariance), []
    moving = settings.velocity**2 + settings.velocity_by_acceleration**2 * mean_square
    variance = inverse * jnp.where(at_rest, settings.rest_velocity**2, moving)
    for k in range(2):
        row, residual = _unit(_VELOCITY + k, dt), -numbers[3 + k]
        error, update = observed(error, row, residual, variance, has_force & some_time)
        updates.append(update)

    has_field, field = _present_and_long(sample.magnetometer, jnp.ones(3, dt.dtype))
    norms, doubt = _disturbance(settings, memory.field, rotate(q, field), dt, has_field)
    row = _unit(2, dt) + _unit(_DECLINATION, dt)
    heading = _wrapped(_heading(rotate(q, field)) - numbers[5])
    expected = matvec(error.covariance, row) @ row + settings.declination**2
    surprise = 1.0 + heading**2 / (settings.heading_gate**2 * expected)
    variance = inverse * settings.heading**2 * doubt * surprise
    error, update = observed(error, row, heading, variance, has_field & some_time)
    updates.append(update)

    for k in range(3):
        row, residual = _unit(3 + k, dt), gyro[k] - numbers[k]
        variance = inverse * settings.rest_bias**2
        error, update = observed(error, row, residual, variance, at_rest & some_time)
        updates.append(update)

    updates = stacked_updates(updates)
    estimate = Estimate(q, numbers[:3], numbers[3:], covariance, *consistency(updates))
    estimate = corrected(estimate, error)
    after = _Memory(
        estimate.q, jnp.concatenate([estimate.bias, estimate.others]), estimate.covariance,
        gyro, slow, rest, mean_square, norms,
    )  # fmt: skip
    turned_on = multiply(estimate.q, exp(settings.latency * (gyro - estimate.bias)))
    return after, estimate._replace(q=turned_on), Linearized(transition, updates)


def _turn(memory: _Memory, gyro: Array, dt: Array) -> tuple[Array, Array, Array]:
    """The attitude after the gyroscope's turn, that in its middle, and the other numbers."""
    response = matvec(memory.numbers[6:].reshape(3, 3), gyro)
    half = exp(0.5 * dt * (gyro - memory.numbers[:3] - response))
    middle = multiply(memory.q, half)
    return correct_norm(multiply(middle, half)), middle, memory.numbers


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


def _unit(k: int, dt: Array) -> Array:
    return jnp.zeros(_SIZE, dt.dtype).at[k].set(1.0)


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
