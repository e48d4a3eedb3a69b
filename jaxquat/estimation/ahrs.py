"""An attitude and heading reference system: gyroscope, accelerometer and magnetometer.

This is a Kalman filter of 18 errors. Besides the attitude and the gyroscope's bias it estimates

- the horizontal velocity that the accelerometer integrates to, which is observed to be near 0.
  This distinguishes an acceleration from a tilt by its integral: the velocity of a body that is
  moved about returns to 0, but the velocity from a tilt grows. D. Laidig and T. Seel (VQF,
  Information Fusion 91, 2023) filter the specific force in world axes for the same purpose; here
  the Kalman filter sets the time constant;
- the local declination of the magnetic field, which indoors changes from place to place;
- the errors of the gyroscope's response: its three gains and six misalignments. They turn a fast
  motion into a false rate of some 0.1 % of its own, in a direction that no constant bias has.

At rest the gyroscope measures its bias.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._checks import finite, instance, positive
from jaxquat._linear import matvec, near_one, square
from jaxquat.estimation.arguments import cast, sample_of, settings_of
from jaxquat.estimation.detectors import disturbance_of, motion_of, stillness
from jaxquat.estimation.error_state import Error, Update, observed
from jaxquat.estimation.filtering import (
    Estimate,
    Filter,
    Linearized,
    corrected,
    filter_of,
    present,
    turned,
)
from jaxquat.estimation.imu import (
    DECLINATION,
    GRAVITY,
    SIZE,
    VELOCITY,
    ImuSample,
    Settings,
    propagated,
    transition_of,
    variances_of,
)
from jaxquat.quaternion import (
    correct_norm,
    exp,
    multiply,
    normalize,
    rotate,
    rotate_inverse,
)

_UNKNOWN = 3.0  # rad: the standard deviation of an unknown angle
_HEADING, _MOVING = np.zeros((2, SIZE), bool)  # elements of the error
_HEADING[[2, DECLINATION]], _MOVING[VELOCITY:DECLINATION] = True, True
_ROWS = np.eye(SIZE)[[6, 7, 2, 3, 4, 5]]  # what is observed: velocity, heading, bias
_ROWS[2, DECLINATION] = 1.0
_LEVEL = 0.1  # m/s^2: more horizontal force is no rest
_LONGEST = 1.0  # s: a sample stands for at most so long


class _Memory(NamedTuple):
    q: Array  # without the latency
    numbers: Array  # bias, velocity, declination, response: the order of the error after attitude
    covariance: Array
    level: Array  # whether an accelerometer has given the tilt
    north: Array  # whether a magnetometer has given the heading since then
    gyro: Array  # last measured rate
    early: Array  # last measured field, body axes, until the body is level
    since: Array  # times since gyroscope, accelerometer, magnetometer were last read [s], (3,)
    slow: Array  # gyroscope and accelerometer, low-passed, (6,)
    still: Array  # how long the sensors have hardly changed [s]
    rests: Array  # whether the body is at rest
    motion: Array  # of the horizontal velocity, see detectors.motion_of, (7,)
    field: Array  # of the magnetic field, see detectors.disturbance_of, (8,)


def ahrs(settings: Settings | None = None) -> Filter:
    """A filter that estimates attitude from gyroscope, accelerometer, magnetometer. -> Filter.

    Its samples are ``estimation.ImuSample``. World axes are magnetic east, north, and up. The
    filter starts at the first sample whose accelerometer reads more than half of gravity. That
    reading gives the level, and the first reading of the magnetometer from then on gives north.
    Until then the standard deviations of tilt and heading are 3 rad. ::

        recording = jq.recordings.read("log.csv", columns)
        samples = jq.estimation.samples(recording)
        memory, estimates = jq.estimation.run(jq.estimation.ahrs(), samples)

    The error has n = 18 elements: attitude [rad] and bias [rad/s], then those of ``others``:
    velocity to the east and north [m/s], (2,); declination [rad], clockwise, (); the errors M of
    the response, row by row, (9,). The true rate is ``gyro - bias - M gyro``.

    The velocity counts as 0 with the density that it has over times of ``velocity_time``, which the
    accelerometer measures: a hovering craft, a car in a bend and an aeroplane in a turn have large
    velocities, and the covariance says so. An even ride is a rest whose velocity is constant.
    Velocity, declination and disturbances of the field are no white noise, so there is no
    likelihood of a single sample: ``nis`` and ``log_likelihood`` are NaN.

    Args:
        settings: the assumed noises and times, differentiable; None for ``Settings()``.

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
    settings = settings_of("settings", settings, Settings(), {"latency": finite}, positive)

    def init(sample: ImuSample) -> _Memory:
        sample = _checked(sample)
        return _start(sample, cast(settings, sample.dt.dtype))

    def linearize(memory: _Memory, sample: ImuSample) -> tuple[_Memory, Estimate, Linearized]:
        sample = _checked(sample)
        return _linearize(cast(settings, sample.dt.dtype), memory, sample)

    return filter_of(init, linearize)


def _start(sample: ImuSample, settings: Settings) -> _Memory:
    """The memory before the first sample, where the attitude is unknown."""
    dtype = sample.dt.dtype
    zero = jnp.zeros((), dtype)
    _, gyro = present(sample.gyro, jnp.zeros(3, dtype))
    _, force = present(sample.accelerometer, jnp.asarray([0.0, 0.0, GRAVITY], dtype))
    return _Memory(
        q=jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype),
        numbers=jnp.zeros(SIZE - 3, dtype),
        covariance=jnp.diag(_deviations(settings, jnp.full(3, _UNKNOWN, dtype)) ** 2),
        level=jnp.zeros((), bool),
        north=jnp.zeros((), bool),
        gyro=gyro,
        early=jnp.zeros(3, dtype),
        since=jnp.zeros(3, dtype),
        slow=jnp.concatenate([gyro, force]),
        still=zero,
        rests=jnp.zeros((), bool),
        motion=jnp.zeros(7, dtype),
        field=jnp.zeros(8, dtype),
    )


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


def _restarted(
    settings: Settings, linear: tuple[Array, Array], starts: Array, level: Array, north: Array
) -> tuple[Array, Array]:
    """Covariance and transition where the elements ``starts``, (18,), of the error start anew.

    Nothing earlier counts for them. The tilt is known where the body is ``level``, and the heading
    where there is ``north``.
    """
    covariance, transition = linear
    tilt = jnp.where(level, 0.1, _UNKNOWN)
    heading = jnp.where(north, settings.start_heading, _UNKNOWN)
    variances = _deviations(settings, jnp.stack([tilt, tilt, heading])) ** 2
    either = starts[:, None] | starts[None, :]
    covariance = jnp.where(either, jnp.diag(variances), covariance)
    return covariance, jnp.where(starts[:, None], 0.0, transition)


def _level(force: Array) -> Array:
    """The attitude that turns a specific force (3,) to point up, about a level axis.

    A force that points down is first turned by pi about x, so the turn is never near pi.
    """
    x, y, z = force / jnp.sqrt(square(force))
    below = z < 0
    y, z = jnp.where(below, -y, y), jnp.abs(z)
    zero = jnp.zeros_like(z)
    turn = normalize(jnp.stack([1.0 + z, y, -x, zero]))
    flip = jnp.asarray([0.0, 1.0, 0.0, 0.0], force.dtype)
    return jnp.where(below, multiply(turn, flip), turn)


def _linearize(
    settings: Settings, memory: _Memory, sample: ImuSample
) -> tuple[_Memory, Estimate, Linearized]:
    """One step: turn by the gyroscope, then correct by the other sensors and by rest."""
    dt = sample.dt
    has_gyro, gyro = present(sample.gyro, memory.gyro)
    q, middle = _turn(memory, gyro, dt, has_gyro)
    up = jnp.asarray([0.0, 0.0, GRAVITY], dt.dtype)
    has_force, force = present(sample.accelerometer, rotate_inverse(q, up))
    waits = ~memory.level & (memory.since[2] + dt <= 0)  # the field of a row of the same time
    field = jnp.where(waits & ~_long(sample.magnetometer), memory.early, sample.magnetometer)
    has_field = _long(field)
    field = jnp.where(has_field, field, 1.0)
    read = jnp.stack([has_gyro, has_force, has_field])
    since, spans = _spans(memory.since, dt, read)
    _, of_force, of_field = spans
    keep = jnp.exp(-dt / settings.declination_time)
    transition = transition_of(middle, gyro, dt, keep, of_force)
    covariance = propagated(memory.covariance, middle, gyro, dt, keep, of_force)
    covariance = covariance + jnp.diag(variances_of(settings, gyro, dt, keep))

    heavy = has_force & (square(force) > (0.5 * GRAVITY) ** 2)  # not in free fall
    level, begins = memory.level | heavy, heavy & ~memory.level
    q = jnp.where(begins, _level(jnp.where(begins, force, up)), q)
    early = jnp.where(has_field & ~level, field, 0.0)
    field = rotate(q, field)  # a turn about the vertical changes neither its norm nor its dip
    has_heading, east_of_north = _heading(field)
    of_north = level & has_field & has_heading
    norms, doubt, again = disturbance_of(settings, memory.field, field, of_field, has_field & level)
    first = of_north & (again | ~memory.north)
    q = jnp.where(first, turned(q, jnp.zeros_like(up).at[2].set(east_of_north)), q)

    acceleration = rotate(q, force)[:2]
    motion, density = motion_of(settings, memory.motion, acceleration, of_force)
    motion = jnp.where(level, motion, 0.0)
    sensors = jnp.concatenate([gyro, force])
    slow, still = stillness(settings, (memory.slow, memory.still), sensors, read, spans, dt)
    tilt = 9.0 * GRAVITY**2 * (covariance[0, 0] + covariance[1, 1])  # of three deviations
    level_force = square(rotate(q, slow[3:])[:2])  # not 0 while the body gathers speed
    rests = (still > settings.rest_time) & (level_force < _LEVEL**2 + tilt)

    # At rest the velocity is relative to the one at its beginning: a smooth ride is a rest, too.
    starts = begins | (first & _HEADING) | (rests & ~memory.rests & _MOVING)
    covariance, transition = _restarted(settings, (covariance, transition), starts, level, first)
    numbers = memory.numbers.at[3:5].add(of_force * acceleration).at[5].multiply(keep)
    numbers = jnp.where(starts[3:] | ~level, 0.0, numbers)
    residual = _wrapped(jnp.where(first, 0.0, east_of_north) - numbers[5])
    heading = of_north, residual, doubt
    error, updates, count = _observed(
        settings, covariance, numbers, gyro, spans, (level, rests), heading, density
    )
    none = jnp.asarray(jnp.nan, dt.dtype)
    estimate = Estimate(q, numbers[:3], numbers[3:], covariance, none, count, none)
    estimate = corrected(estimate, error)
    numbers = jnp.concatenate([estimate.bias, estimate.others])
    state = estimate.q, numbers, estimate.covariance
    north = memory.north | of_north
    told = gyro, early, since, slow, still, rests, motion, norms
    after = _Memory(*state, level, north, *told)
    turned_on = multiply(estimate.q, exp(settings.latency * (gyro - estimate.bias)))
    return after, estimate._replace(q=turned_on), Linearized(transition, updates)


def _observed(
    settings: Settings,
    covariance: Array,
    numbers: Array,
    gyro: Array,
    spans: Array,
    state: tuple[Array, Array],
    heading: tuple[Array, Array, Array],
    density: Array,
) -> tuple[Error, tuple[Update, Update], Array]:
    """The error after the observations of a row, their blocks, and how many scalars they are.

    Args:
        settings: as of ``ahrs``.
        covariance: of the error before the observations, (18, 18).
        numbers: the estimates after the attitude's, (15,).
        gyro: measured rate, (3,).
        spans: the times that gyroscope, accelerometer and magnetometer cover, (3,).
        state: whether the body is level, and whether it is at rest.
        heading: whether there is one, its residual, and the factor of its variance.
        density: of the velocity in motion, squared.
    """
    (of_gyro, of_force, of_field), (level, rests), (north, residual, doubt) = spans, state, heading
    error = Error(jnp.zeros_like(covariance[0]), covariance)
    of_velocity = _inverse(of_force) * jnp.where(rests, settings.rest_velocity**2, density)
    seen = jnp.full(2, (of_force > 0) & level)
    error, first = observed(error, _ROWS[:2], -numbers[3:5], jnp.full(2, of_velocity), seen)

    surprise = _surprise(settings, error, residual)
    of_heading = _inverse(of_field) * settings.heading**2 * doubt * surprise
    of_bias = _inverse(of_gyro) * settings.rest_bias**2
    seen_others = level & jnp.stack([(of_field > 0) & north, *[rests & (of_gyro > 0)] * 3])
    error, second = observed(
        error,
        _ROWS[2:],
        jnp.concatenate([residual[None], gyro - numbers[:3]]),
        jnp.stack([of_heading, of_bias, of_bias, of_bias]),
        seen_others,
    )
    count = jnp.sum(jnp.concatenate([seen, seen_others]), dtype=gyro.dtype)
    return error, (first, second), count


def _surprise(settings: Settings, error: Error, residual: Array) -> Array:
    """The factor by which a long innovation increases the heading's variance."""
    both = (2, DECLINATION)
    expected = sum(error.covariance[i, j] for i in both for j in both) + settings.declination**2
    return 1.0 + residual**2 / (settings.heading_gate**2 * expected)


def _spans(since: Array, dt: Array, read: Array) -> tuple[Array, Array]:
    """The times since each sensor was last read, and the time that each sample of this row covers.

    A sample covers the time since the last one of the same sensor, so it counts the same whether
    other sensors have rows in between or not. A sensor that is not read covers 0.
    """
    since = since + dt
    return jnp.where(read, 0.0, since), jnp.where(read, jnp.minimum(since, _LONGEST), 0.0)


def _inverse(span: Array) -> Array:
    return 1.0 / jnp.where(span > 0, span, 1.0)


def _turn(memory: _Memory, gyro: Array, dt: Array, read: Array) -> tuple[Array, Array]:
    """The attitudes at the end and in the middle of the gyroscope's turn.

    In rows between two samples of the gyroscope the body turns at the earlier rate. The later
    sample then replaces this turn with its own.
    """
    ahead = jnp.where(read, memory.since[0], 0.0)
    response = matvec(memory.numbers[6:].reshape(3, 3), gyro)
    turn = dt * (gyro - memory.numbers[:3] - response) + ahead * (gyro - memory.gyro)
    half = exp(0.5 * turn)
    middle = multiply(memory.q, half)
    return correct_norm(multiply(middle, half)), middle


def _long(vector: Array) -> Array:
    """Whether a vector is finite and has a direction; length 0 counts as not measured."""
    valid, vector = present(vector, jnp.zeros_like(vector))
    return valid & jnp.any(vector != 0)


def _heading(field: Array) -> tuple[Array, Array]:
    """Whether the field, in level axes, has a heading, and how far it points east of north [rad].

    The angle is clockwise. A field within 0.6 degrees of the vertical has no heading.
    """
    field = near_one(field)
    has_heading = square(field[:2]) > 1e-4 * square(field)
    east, north = jnp.where(has_heading, field[0], 0.0), jnp.where(has_heading, field[1], 1.0)
    return has_heading, jnp.arctan2(east, north)


def _wrapped(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    return sample_of(sample, dict.fromkeys(ImuSample._fields[1:], (3,)))
