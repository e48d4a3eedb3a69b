"""The four stages of a step of ``ahrs``, each to a record with its parts of the memory.

Fields without a shape are ().
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import cross, matvec, near_one, root, square, transpose
from jaxquat.estimation import detectors
from jaxquat.estimation.arguments import GRAVITY
from jaxquat.estimation.error_state import symmetric
from jaxquat.estimation.filtering import present, turned
from jaxquat.estimation.imu import SIZE, AhrsSettings, ImuSample, transition_of, variances_of
from jaxquat.estimation.memory import (
    Heading,
    MeanForce,
    Memory,
    Motion,
    Rest,
    no_horizontal_field,
    vertical_force,
)
from jaxquat.quaternion import correct_norm, exp, multiply, normalize, rotate, rotate_inverse

UNKNOWN = 3.0  # rad: deviation of an unknown angle, beyond the 1.8 of a uniform one
START_TILT = 0.3  # rad: deviation of the tilt from one specific force, of a body at 0.3 g
_STEADY_TILT = 0.03  # rad: a heading that began at a less certain tilt begins again at this one
_AGAIN = 5.0  # s: before that, it begins again at most so often, when the deviation has halved
_LOST_TILT = 1.0  # rad^2: two variances of the tilt too large for a linear error, as after a gap
_PROVEN = 10.0  # s: an older heading is kept when the field becomes vertical
_FREE_FALL = 0.5  # in units of gravity: a shorter force has no use as the vertical
_MERGED = 0.1  # s: samples up to this length may be merged from shorter ones, coning included
_FIRST_READINGS = 1.0  # s: over which the first readings of a magnetometer are averaged
_SAME_GRAVITY = 0.15  # m/s^2: the force at rest is as long as at earlier rests, up to drift
_LEVEL_FORCE = 0.1  # m/s^2: horizontal mean force at rest; a body with more gathers speed
_LONGEST = 1.0  # s: a sample stands for no more; a longer gap is not covered by one reading
_IMPOSSIBLE = 1e9  # m/s^2: a longer specific force counts as missing
_ACCELERATING = 2.0  # s: a missed rate changes steadily for so long, then the rate is unknown


class Prediction(NamedTuple):
    """The prediction to the time of a sample, and the sample without missing values."""

    sample: ImuSample  # a missing rate is the last one, a missing force that of the predicted tilt
    measured: Array  # whether gyroscope, accelerometer, magnetometer are read, (3,)
    since_read: Array  # times since they were read [s], (3,)
    intervals: Array  # times since the last sample of the same sensor [s]; 0 if missing, (3,)
    gyro_interval: Array
    q: Array  # predicted attitude, (4,)
    covariance: Array  # of the error after the prediction, (18, 18)
    noise: Array  # covariance that the prediction adds, (18, 18)
    transition: Array  # of the error, (18, 18)
    decay: Array  # factor by which the declination decays


class Tilt(NamedTuple):
    """The tilt from the specific force."""

    q: Array  # attitude, levelled where the tilt begins or is lost, (4,)
    known: Array  # whether the tilt is known
    begins: Array  # whether it begins with this sample
    lost: Array  # whether it was lost, and begins again with this sample
    variance: Array  # of the tilt about an axis [rad^2]
    mean_excess: Array  # length of the mean force minus gravity [m/s^2]
    mean_force: MeanForce


class MagneticHeading(NamedTuple):
    """The heading from the magnetic field."""

    q: Array  # attitude, turned to the north where the heading begins, (4,)
    valid: Array  # whether the sample gives a heading
    begins: Array  # whether the heading begins with this sample
    lost: Array  # whether the field from which it began has turned out to be vertical
    angle: Array  # how far the field points east of north, clockwise [rad]
    variance: Array  # of the angle [rad^2]
    is_early: Array  # whether it is one of the first readings, which are averaged
    by_tilt: Array  # derivative of the angle with respect to the tilt, (2,)
    heading: Heading


class MotionAndRest(NamedTuple):
    """The motion and rest of the body."""

    acceleration: Array  # horizontal, world axes [m/s^2], (2,)
    density: Array  # squared density of the observation that the velocity is 0 [m^2/s]
    motion: Motion
    rest: Rest


def predict(settings: AhrsSettings, memory: Memory, sample: ImuSample) -> Prediction:
    """Turn the attitude by the gyroscope, predict the error, and replace missing readings."""
    dt = sample.dt.seconds
    has_gyro, gyro = present(sample.gyro, memory.gyro)
    q, middle = _turn(memory, gyro, dt, has_gyro)
    up = jnp.asarray([0.0, 0.0, GRAVITY], dt.dtype)
    possible = jnp.max(jnp.abs(sample.accelerometer)) < _IMPOSSIBLE  # False for NaN
    given = jnp.where(possible, sample.accelerometer, jnp.nan)
    has_force, force = present(given, rotate_inverse(q, up))
    # A field whose row came before the first force of the same time.
    same_time = ~memory.has_tilt & (memory.since_read[2] + dt <= 0)
    early = same_time & ~_has_direction(sample.magnetometer)
    field = jnp.where(early, memory.heading.early_field, sample.magnetometer)
    has_field = _has_direction(field)
    field = jnp.where(has_field, field, 1.0)
    measured = jnp.stack([has_gyro, has_force, has_field])
    since = memory.since_read + dt
    intervals = jnp.where(measured, jnp.minimum(since, _LONGEST), 0.0)
    since = jnp.where(measured, 0.0, since)
    gyro_interval, missed = _missed_turn(settings, memory, dt, has_gyro)
    missed = missed + _coning(memory.gyro, gyro, intervals[0])
    decay = jnp.exp(-dt / settings.declination_time)
    impulse = intervals[1] * rotate(q, force)[2]  # in free fall a tilt makes no velocity
    times_transition = transition_of(middle, gyro, dt, decay, impulse)
    covariance = symmetric(times_transition(transpose(times_transition(memory.covariance))))
    noise = jnp.diag(variances_of(settings, gyro, dt, decay).at[:3].add(missed))
    error = covariance + noise, noise, times_transition(jnp.eye(SIZE, dtype=dt.dtype))
    sample = ImuSample(sample.dt, gyro, force, field)
    return Prediction(sample, measured, since, intervals, gyro_interval, q, *error, decay)


def find_tilt(memory: Memory, predicted: Prediction) -> Tilt:
    """Level the attitude by the specific force where the tilt begins or is lost."""
    force, covariance = predicted.sample.accelerometer, predicted.covariance
    up = jnp.asarray([0.0, 0.0, GRAVITY], force.dtype)
    has_weight = predicted.measured[1] & (square(force) > (_FREE_FALL * GRAVITY) ** 2)
    known, begins = memory.has_tilt | has_weight, has_weight & ~memory.has_tilt
    in_world = rotate(predicted.q, force)
    at_rest, rest_force = memory.rest.at_rest, memory.rest.smoothed[3:]
    mean_force, mean_excess, lost = detectors.detect_lost_tilt(
        memory.mean_force, in_world, predicted.intervals[1], at_rest, rest_force
    )
    unknown = has_weight & (covariance[0, 0] + covariance[1, 1] > _LOST_TILT)  # as after a gap
    lost = (lost | unknown) & memory.has_tilt
    mean = jnp.where(unknown, in_world, mean_force.mean)
    restarts = begins | lost
    start = vertical_force(mean_force.gravity)
    mean_force = jax.tree.map(lambda x, y: jnp.where(restarts, x, y), start, mean_force)
    variance = 0.5 * (covariance[0, 0] + covariance[1, 1])
    variance = jnp.where(restarts, START_TILT**2, variance)
    q = jnp.where(begins, _levelling(jnp.where(begins, force, up)), predicted.q)
    correction = _levelling(jnp.where(lost, mean, up))
    q = jnp.where(lost, correct_norm(multiply(correction, q)), q)
    return Tilt(q, known, begins, lost, variance, mean_excess, mean_force)


def find_heading(
    settings: AhrsSettings, memory: Memory, predicted: Prediction, tilt: Tilt
) -> MagneticHeading:
    """Measure the heading by the magnetic field, and turn the attitude where it begins."""
    before, has_field, interval = memory.heading, predicted.measured[2], predicted.intervals[2]
    early_field = jnp.where(has_field & ~tilt.known, predicted.sample.magnetometer, 0.0)
    # In level axes: a turn about the vertical changes neither norm nor dip.
    field = rotate(tilt.q, predicted.sample.magnetometer)
    has_heading, angle, dip_factor, slope = _heading(field)
    start = no_horizontal_field(interval)
    horizontal = jax.tree.map(lambda x, y: jnp.where(tilt.lost, x, y), start, before.horizontal)
    horizontal, is_vertical, noise = detectors.measure_horizontal_field(
        horizontal, field, interval, has_field & tilt.known, tilt.variance
    )
    valid = tilt.known & has_field & has_heading & ~is_vertical
    lost = has_field & is_vertical & (before.age >= 0) & (before.age < _PROVEN)
    # A heading has the error of the tilt at which it began.
    steady = tilt.variance < _STEADY_TILT**2
    halved = tilt.variance < 0.25 * before.tilt_variance
    better = steady | (halved & (before.age > _AGAIN))
    outdated = better & (before.tilt_variance > _STEADY_TILT**2)
    begins = valid & ((before.age < 0) | tilt.lost | outdated)
    past_field = jax.tree.map(lambda x: jnp.where(begins, 0.0, x), before.field)
    field_memory, factor, restarts = detectors.detect_disturbance(
        settings, past_field, field, interval, has_field & tilt.known
    )
    begins = valid & (restarts | begins)
    q = jnp.where(begins, turned(tilt.q, jnp.zeros_like(field).at[2].set(angle)), tilt.q)
    horizontal = horizontal._replace(mean=_turned(horizontal.mean, jnp.where(begins, angle, 0.0)))
    age = jnp.where(before.age < 0, before.age, before.age + predicted.sample.dt.seconds)
    age = jnp.where(begins, 0.0, jnp.where(tilt.lost | lost, -1.0, age))
    # The first readings have the deviation ``start_heading`` together.
    is_early = age < _FIRST_READINGS
    share = jnp.clip(interval, 1e-4, _FIRST_READINGS)  # s: not 0, of a second row of the same time
    first = _FIRST_READINGS / share * settings.start_heading**2
    later = inverse(interval) * settings.heading**2 * factor
    variance = jnp.maximum(dip_factor * jnp.where(is_early, first, later), noise)
    angle = jnp.where(begins, 0.0, angle)  # after the turn to the north
    by_tilt = slope * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
    tilt_variance = jnp.where(begins, tilt.variance, before.tilt_variance)
    heading = Heading(age, tilt_variance, early_field, field_memory, horizontal)
    return MagneticHeading(q, valid, begins, lost, angle, variance, is_early, by_tilt, heading)


def _turned(vector: Array, angle: Array) -> Array:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1]])


def find_rest(
    settings: AhrsSettings, memory: Memory, predicted: Prediction, tilt: Tilt, q: Array
) -> MotionAndRest:
    """Measure the motion with the attitude q, and detect rest."""
    ((dt,), gyro, force, _), measured, _, intervals, *_ = predicted
    gravity, rest = tilt.mean_force.gravity, memory.rest
    acceleration = rotate(q, force)[:2]
    excess = jnp.where(measured[1], root(square(force)) - detectors.or_standard(gravity), 0.0)
    motion, density = detectors.measure_motion(
        settings, memory.motion, acceleration, intervals[1], rest.at_rest, excess, tilt.mean_excess
    )
    has_vertical = tilt.known & ~tilt.lost
    motion = jax.tree.map(lambda x: jnp.where(has_vertical, x, 0.0), motion)
    sensors = jnp.concatenate([gyro, force])
    smoothed, still_time = detectors.detect_stillness(
        settings, rest, sensors, measured, intervals, dt
    )
    mean_force = rotate(q, smoothed[3:])
    level_force = square(mean_force[:2])  # not 0 while the body gathers speed
    limit = _LEVEL_FORCE**2 + 18.0 * GRAVITY**2 * tilt.variance  # three deviations of two axes
    same = (gravity == 0) | (jnp.abs(root(square(smoothed[3:])) - gravity) < _SAME_GRAVITY)
    at_rest = (still_time > settings.rest_time) & (level_force < limit) & same & (mean_force[2] > 0)
    return MotionAndRest(acceleration, density, motion, Rest(smoothed, still_time, at_rest))


def _levelling(force: Array) -> Array:
    """Return the turn (4,) about a level axis that makes a specific force (3,) point up."""
    x, y, z = force / jnp.sqrt(square(force))
    below = z < 0
    y, z = jnp.where(below, -y, y), jnp.abs(z)
    zero = jnp.zeros_like(z)
    turn = normalize(jnp.stack([1.0 + z, y, -x, zero]))
    flip = jnp.asarray([0.0, 1.0, 0.0, 0.0], force.dtype)
    return jnp.where(below, multiply(turn, flip), turn)


def _missed_turn(
    settings: AhrsSettings, memory: Memory, dt: Array, measured: Array
) -> tuple[Array, Array]:
    """Return the gyroscope's usual interval, and the variance of a turn that it missed [rad^2]."""
    # The interval is -1 before the first reading, and 0 before the second.
    before, usual, time = memory.since_read[0], memory.gyro_interval, _ACCELERATING
    late = jnp.maximum(jnp.stack([before, before + dt]) - jnp.maximum(usual, 0.0), 0.0)
    late = jnp.where(usual == 0, 0.0, late)
    later = 4.0 * time**3 * jnp.maximum(late - time, 0.0)  # continues late^4 with its slope
    growth = jnp.minimum(late, time) ** 4 + later
    variance = (0.5 * settings.acceleration) ** 2 * (growth[1] - growth[0])
    interval = jnp.minimum(before + dt, 4.0 * usual)  # a gap is no usual interval
    after = jnp.where(usual > 0, usual + 0.1 * (interval - usual), before + dt)  # over 10 readings
    after = jnp.where(usual < 0, 0.0, after)
    return jnp.where(measured, after, usual), jnp.minimum(variance, UNKNOWN**2)


def _coning(before: Array, rate: Array, interval: Array) -> Array:
    """Return the variance of a turn that two mean rates do not show, a twelfth of their product."""
    # J. E. Bortz, IEEE Trans. Aerosp. Electron. Syst. 7, 61, 1971.
    time_squared = interval * jnp.maximum(interval - _MERGED, 0.0)
    return square(time_squared * cross(before, rate) / 12.0) / 3.0


def _turn(memory: Memory, gyro: Array, dt: Array, measured: Array) -> tuple[Array, Array]:
    """Return the attitudes at the end and in the middle of the turn at the gyroscope's rate."""
    interval, usual = memory.since_read[0] + dt, memory.gyro_interval
    late = (usual != 0) & (interval > 3.0 * usual)  # more than two samples are missing
    covered = jnp.where(late, jnp.maximum(usual, 0.0), interval)
    ahead = jnp.where(measured, covered - dt, 0.0)
    response = matvec(memory.numbers[6:].reshape(3, 3), gyro)
    turn = dt * (gyro - memory.numbers[:3] - response) + ahead * (gyro - memory.gyro)
    half = exp(0.5 * turn)
    middle = multiply(memory.q, half)
    return correct_norm(multiply(middle, half)), middle


def _has_direction(vector: Array) -> Array:
    """Return whether a vector is finite and not 0; 0 counts as not measured."""
    valid, vector = present(vector, jnp.zeros_like(vector))
    return valid & jnp.any(vector != 0)


def _heading(field: Array) -> tuple[Array, Array, Array, Array]:
    """Return whether a field in level axes has a heading, its angle, variance factor and slope."""
    # The angle [rad] is clockwise from north. The slope, the tangent of the dip, is with respect to
    # a tilt about the horizontal field. The factor is above 1 where the dip exceeds 72 degrees.
    field = near_one(field)
    across, along = square(field[:2]), square(field)
    has_heading = across > 1e-4 * along
    east, north = jnp.where(has_heading, field[0], 0.0), jnp.where(has_heading, field[1], 1.0)
    level = jnp.where(has_heading, across, 1.0)
    dip_factor = jnp.maximum(1.0, 0.1 * along / level)
    return has_heading, jnp.arctan2(east, north), dip_factor, -field[2] / root(level)


def inverse(interval: Array) -> Array:
    """Return 1/interval, and 1 where it is 0."""
    return 1.0 / jnp.where(interval > 0, interval, 1.0)
