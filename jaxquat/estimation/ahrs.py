"""An attitude and heading reference system: gyroscope, accelerometer and magnetometer.

This is a Kalman filter of 18 errors. Besides attitude and bias it estimates the horizontal velocity
to which the accelerometer integrates, observed to be near 0: that of a body that is moved about
returns to 0, but the velocity from a tilt grows (compare D. Laidig and T. Seel, VQF, Information
Fusion 91, 2023; here the Kalman filter sets the time constant); the local declination of the
magnetic field, which indoors changes from place to place; and three gains and six misalignments of
the gyroscope, which turn a fast motion into a false rate of some 0.1 % of its own. In motion
without a magnetometer, heading and bias about the vertical follow the gyroscope alone.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._internal.checks import finite, instance, positive
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import dot, matvec, transpose
from jaxquat.estimation import stages
from jaxquat.estimation.arguments import cast, sample_of
from jaxquat.estimation.error_state import Error, observed
from jaxquat.estimation.filtering import Estimate, Filter, Linearized, corrected, joined
from jaxquat.estimation.imu import DECLINATION, SIZE, VELOCITY, AhrsSettings, ImuSample
from jaxquat.estimation.memory import Memory, start_memory
from jaxquat.estimation.stages import MagneticHeading, MotionAndRest, Prediction, Tilt
from jaxquat.quaternion import conjugate, exp, log, multiply, rotate_inverse

_HEADING, _MOVING = np.zeros((2, SIZE), bool)  # elements of the error
_HEADING[[2, DECLINATION]], _MOVING[VELOCITY:DECLINATION] = True, True
_TILTED = _MOVING | (np.arange(SIZE) < 2)
_VELOCITY, _BIAS = np.eye(SIZE)[VELOCITY:DECLINATION], np.eye(SIZE)[3:6]  # rows of observations
_ABSENT = 10.0  # s: after so long without a reading, a magnetometer no longer gives the heading
# Cosine of half of the largest turn at which the tilt may begin for the smoother.
_NEAR = float(np.cos(0.25))
_START_VELOCITY = 0.1  # m/s: deviation of the velocity where it begins, relative to that instant
_SETTINGS = dict.fromkeys(AhrsSettings._fields, Field([()], positive))
_SETTINGS |= {"latency": Field([()], finite)}


def ahrs(settings: AhrsSettings | None = None) -> Filter:
    """Make a filter of attitude from gyroscope, accelerometer and magnetometer. -> Filter.

    Its samples are ``estimation.ImuSample``. World axes are magnetic east, north, and up. The first
    reading of the accelerometer above half of gravity gives the level; the first second of the
    magnetometer from then on gives north. Until then the standard deviations of tilt and heading
    are 3 rad. Either starts again where the sensors contradict it for seconds. A nearly vertical
    field, as at a magnetic pole, gives no heading.

    The error has n = 18 elements: attitude [rad] and bias [rad/s], then those of ``others``:
    velocity to the east and north [m/s], (2,); declination [rad], clockwise, (); the errors M of
    the response, row by row, (9,). The true rate is ``gyro - bias - M gyro``.

    The observation that the velocity is 0 has the density that the accelerometer measures over
    times of ``velocity_time``: the covariance is large for a hovering craft, a car in a bend or an
    aeroplane in a turn. A smooth ride counts as rest. Velocity, declination and disturbances of the
    field are no white noise: ``nis`` and ``log_likelihood`` are NaN.

    Args:
        settings: the assumed noises and times, differentiable; None for ``AhrsSettings()``.

    Examples:
        >>> memory, estimates = jax.jit(lambda x: jq.estimation.run(jq.estimation.ahrs(), x))(imu)
        >>> yaw = jq.euler.from_quaternion(estimates.q[-1], "ZYX")[0]
        >>> f"{jnp.degrees(yaw):.1f} deg"  # x points north, so it is turned from the east
        '90.0 deg'
    """
    settings = AhrsSettings() if settings is None else settings
    checked_record("settings", settings, AhrsSettings, _SETTINGS, "estimation.AhrsSettings")

    def init(sample: ImuSample) -> Memory:
        sample = _checked(sample)
        numbers = cast(settings, sample.gyro.dtype)
        unknown = jnp.full(3, stages.UNKNOWN, sample.gyro.dtype)
        return start_memory(sample, _start_covariance(numbers, unknown))

    def linearize(memory: Memory, sample: ImuSample) -> tuple[Memory, Estimate, Linearized]:
        sample = _checked(sample)
        return _linearize(cast(settings, sample.gyro.dtype), memory, sample)

    return Filter(init, lambda memory, sample: linearize(memory, sample)[:2], linearize)


def _linearize(
    settings: AhrsSettings, memory: Memory, sample: ImuSample
) -> tuple[Memory, Estimate, Linearized]:
    """Take one step: turn by the gyroscope, then correct by the other sensors and by rest."""
    predicted = stages.predict(settings, memory, sample)
    tilt = stages.find_tilt(memory, predicted)
    north = stages.find_heading(settings, memory, predicted, tilt)
    moving = stages.find_rest(settings, memory, predicted, tilt, north.q)
    starts, known = _starts(memory, predicted, tilt, north, moving)
    gained = predicted.intervals[1] * moving.acceleration
    numbers = memory.numbers.at[3:5].add(gained).at[5].multiply(predicted.decay)
    numbers = jnp.where(starts[3:] | ~tilt.known, 0.0, numbers)
    # What was unknown and becomes known is known of the past, too.
    past = _restarted(settings, predicted, tilt, north, starts & known)
    turn = log(multiply(north.q, conjugate(predicted.q)))
    predicted = _restarted(settings, predicted, tilt, north, starts)
    error, count = _observe(settings, predicted, tilt, north, moving, numbers)
    none = jnp.asarray(jnp.nan, sample.gyro.dtype)
    before = Estimate(north.q, numbers[:3], numbers[3:], predicted.covariance, none, count, none)
    estimate = corrected(before, error)
    after = Memory(
        q=estimate.q,
        numbers=jnp.concatenate([estimate.bias, estimate.others]),
        covariance=estimate.covariance,
        gyro=predicted.sample.gyro,
        since_read=predicted.since_read,
        gyro_interval=predicted.gyro_interval,
        has_tilt=tilt.known,
        mean_force=tilt.mean_force,
        heading=north.heading,
        rest=moving.rest,
        motion=moving.motion,
    )
    ahead = multiply(estimate.q, exp(settings.latency * (predicted.sample.gyro - estimate.bias)))
    turn = jnp.where(starts[2], joined(error.mean[:3], turn), error.mean[:3])
    linearized = Linearized(past.transition, past.noise, error.mean.at[:3].set(turn))
    return after, estimate._replace(q=ahead), linearized


def _start_covariance(settings: AhrsSettings, attitude: Array) -> Array:
    """Return the covariance of an error that begins (18, 18), for deviations of the attitude."""
    parts = (
        attitude,
        jnp.full(3, settings.start_bias),
        jnp.full(2, _START_VELOCITY, attitude.dtype),
        jnp.full(1, settings.declination),
        jnp.full(9, settings.start_response),
    )
    return jnp.diag(jnp.concatenate(parts) ** 2)


def _starts(
    memory: Memory, predicted: Prediction, tilt: Tilt, north: MagneticHeading, moving: MotionAndRest
) -> tuple[Array, Array]:
    """Return which elements of the error begin again, and which keep to the past, (18,)."""
    # Of an attitude that was wrong by more than half a radian the linear past is too certain.
    rest_begins = moving.rest.at_rest & ~memory.rest.at_rest
    # At rest the velocity is relative to the one at its beginning: a smooth ride is a rest, too.
    starts = tilt.begins | (tilt.lost & _TILTED) | ((north.begins | north.lost) & _HEADING)
    starts = starts | (rest_begins & _MOVING)
    near = jnp.abs(dot(predicted.q, tilt.q)) > _NEAR
    heading = north.begins & ~tilt.begins & (memory.heading.age < 0) & ~tilt.lost & _HEADING
    return starts, ~((tilt.begins & near) | heading)


def _restarted(
    settings: AhrsSettings, predicted: Prediction, tilt: Tilt, north: MagneticHeading, starts: Array
) -> Prediction:
    """Begin these elements of the error again."""
    of_tilt = jnp.where(tilt.known, stages.START_TILT, stages.UNKNOWN)
    of_heading = jnp.where(north.begins, jnp.sqrt(north.variance), stages.UNKNOWN)
    start = _start_covariance(settings, jnp.stack([of_tilt, of_tilt, of_heading]))
    either = starts[:, None] | starts[None, :]
    covariance = jnp.where(either, start, predicted.covariance)
    noise = jnp.where(either, start, predicted.noise)
    transition = jnp.where(starts[:, None], 0.0, predicted.transition)
    by_tilt = jnp.where(north.begins & starts[2], north.by_tilt, 0.0)

    def with_tilt(matrix: Array) -> Array:
        """Add the part of the heading's error that follows from the tilt's, where it begins."""
        return matrix.at[2].add(-jnp.sum(by_tilt[:, None] * matrix[:2], axis=0))

    return predicted._replace(
        covariance=with_tilt(transpose(with_tilt(covariance))),
        noise=with_tilt(transpose(with_tilt(noise))),
        transition=with_tilt(transition),
    )


def _observe(
    settings: AhrsSettings,
    predicted: Prediction,
    tilt: Tilt,
    north: MagneticHeading,
    moving: MotionAndRest,
    numbers: Array,
) -> tuple[Error, Array]:
    """Observe velocity, heading, and at rest the bias. -> error, number of scalars."""
    (of_gyro, of_force, of_field), at_rest = predicted.intervals, moving.rest.at_rest
    up = _unobserved_vertical(predicted, north)

    def without_vertical(gain: Array) -> Array:
        """Take the heading, and the bias about the vertical, out of a gain (18, m)."""
        along = jnp.sum(up[:, None] * gain[3:6], axis=0, keepdims=True)
        heading = jnp.where(jnp.any(up != 0), 0.0, gain[2])
        return gain.at[2].set(heading).at[3:6].add(-up[:, None] * along)

    error = Error(jnp.zeros_like(predicted.noise[0]), predicted.covariance)
    density = jnp.where(at_rest, settings.rest_velocity**2, moving.density)
    has_velocity = jnp.full(2, (of_force > 0) & tilt.known)
    variances = jnp.full(2, stages.inverse(of_force) * density)
    residuals = -numbers[3:5]
    error, _ = observed(error, _VELOCITY, residuals, variances, has_velocity, without_vertical)

    row = jnp.zeros(SIZE, predicted.sample.gyro.dtype).at[:2].set(north.by_tilt)
    row = row.at[2].set(1.0).at[DECLINATION].set(1.0)
    angle = north.angle - numbers[5]
    residual = jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
    # A long innovation increases the variance, except of the first readings.
    expected = dot(row, matvec(error.covariance, row)) + settings.declination**2
    factor = 1.0 + residual**2 / (settings.heading_gate**2 * expected)
    variance = jnp.where(north.is_early, north.variance, north.variance * factor)
    has_north = (tilt.known & (of_field > 0) & north.valid & ~north.begins)[None]
    block = row[None], residual[None], variance[None], has_north
    error, _ = observed(error, *block, lambda gain: gain.at[:2].set(0.0))

    variances = jnp.full(3, stages.inverse(of_gyro) * settings.rest_bias**2)
    has_bias = jnp.full(3, tilt.known & at_rest & (of_gyro > 0))
    error, _ = observed(error, _BIAS, predicted.sample.gyro - numbers[:3], variances, has_bias)
    flags = jnp.concatenate([has_velocity, has_north, has_bias])
    return error, jnp.sum(flags, dtype=predicted.sample.gyro.dtype)


def _unobserved_vertical(predicted: Prediction, north: MagneticHeading) -> Array:
    """Return the vertical in body axes where no magnetometer gives the heading, otherwise 0."""
    # A body that accelerates while it tilts has the velocity of one with another bias about it.
    no_heading = (north.heading.age < 0) | (predicted.since_read[2] > _ABSENT)
    up = jnp.asarray([0.0, 0.0, 1.0], predicted.sample.gyro.dtype)
    return jnp.where(no_heading, rotate_inverse(north.q, up), 0.0)


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    return sample_of(sample, dict.fromkeys(ImuSample._fields[1:], (3,)))
