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

At rest the gyroscope measures its bias. In motion without a magnetometer, heading and bias about
the vertical follow the gyroscope alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._checks import finite, instance, positive
from jaxquat._linear import dot, matvec, near_one, root, square, transpose
from jaxquat.estimation.arguments import cast, sample_of, settings_of
from jaxquat.estimation.detectors import balance_of, disturbance_of, motion_of, stillness
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
_FALLEN = _MOVING | (np.arange(SIZE) < 2)
_BALANCE = np.arange(5) < 4  # all but the accelerometer's own gravity
_TILT = 0.3  # rad: the standard deviation of the tilt that one specific force gives, in motion
_VELOCITY, _BIAS = np.eye(SIZE)[VELOCITY:DECLINATION], np.eye(SIZE)[3:6]  # as observed
_STEADY = 0.03  # rad: a heading that began at a tilt less certain than this begins again
_SETTLES = 1.0  # s: over which the first readings of a magnetometer are averaged
_ALIKE = 0.15  # m/s^2: at rest the force is as long as at earlier rests
_LEVEL = 0.1  # m/s^2: more horizontal force is no rest
_LONGEST = 1.0  # s: a sample stands for at most so long
_ABSENT = 10.0  # s: after so long without its readings a magnetometer no longer gives the heading


_Linear = tuple[Array, Array, Array]  # covariance after a prediction, its noise and transition


class _Memory(NamedTuple):
    q: Array  # without the latency
    numbers: Array  # bias, velocity, declination, response: the order of the error after attitude
    covariance: Array
    level: Array  # whether an accelerometer has given the tilt
    north: Array  # for how long a magnetometer has given the heading since then [s]; -1 if not yet
    steady: Array  # whether the tilt was certain when it began to
    gyro: Array  # last measured rate
    early: Array  # last measured field, body axes, until the body is level
    since: Array  # times since gyroscope, accelerometer, magnetometer were last read [s], (3,)
    usual: Array  # interval of the gyroscope [s]
    slow: Array  # gyroscope and accelerometer, low-passed, (6,)
    still: Array  # how long the sensors have hardly changed [s]
    rests: Array  # whether the body is at rest
    motion: Array  # of the horizontal velocity, see detectors.motion_of, (7,)
    field: Array  # of the magnetic field, see detectors.disturbance_of, (8,)
    balance: Array  # of the mean force, see detectors.balance_of, (5,)


def ahrs(settings: Settings | None = None) -> Filter:
    """A filter that estimates attitude from gyroscope, accelerometer, magnetometer. -> Filter.

    Its samples are ``estimation.ImuSample``. World axes are magnetic east, north, and up. The
    filter starts at the first sample whose accelerometer reads more than half of gravity. That
    reading gives the level, and the first second of the magnetometer from then on gives north.
    Until then the standard deviations of tilt and heading are 3 rad. Either starts anew where the
    sensors contradict it for seconds. ::

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
        north=jnp.full((), -1.0, dtype),
        steady=jnp.zeros((), bool),
        gyro=gyro,
        early=jnp.zeros(3, dtype),
        since=jnp.zeros(3, dtype),
        usual=jnp.full((), -1.0, dtype),
        slow=jnp.concatenate([gyro, force]),
        still=zero,
        rests=jnp.zeros((), bool),
        motion=jnp.zeros(7, dtype),
        field=jnp.zeros(8, dtype),
        balance=_balanced(dtype),
    )


def _balanced(dtype: Any) -> Array:
    """The memory of a mean force that agrees with the tilt, (5,)."""
    return jnp.zeros(5, dtype).at[2].set(GRAVITY)


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
    settings: Settings, linear: _Linear, starts: Array, deviations: tuple[Array, Array]
) -> _Linear:
    """The linearised prediction where the elements ``starts``, (18,), of the error start anew.

    Nothing earlier counts for them. Their ``deviations`` are those of tilt and heading.
    """
    covariance, noise, transition = linear
    tilt, heading = deviations
    variances = jnp.diag(_deviations(settings, jnp.stack([tilt, tilt, heading])) ** 2)
    either = starts[:, None] | starts[None, :]
    covariance, noise = (jnp.where(either, variances, x) for x in (covariance, noise))
    return covariance, noise, jnp.where(starts[:, None], 0.0, transition)


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
    usual, unseen = _unseen(settings, memory, dt, has_gyro)
    keep = jnp.exp(-dt / settings.declination_time)
    in_world = rotate(q, force)
    impulse = of_force * in_world[2]  # in free fall a tilt makes no velocity
    transition = transition_of(middle, gyro, dt, keep, impulse)
    covariance = propagated(memory.covariance, middle, gyro, dt, keep, impulse)
    noise = jnp.diag(variances_of(settings, gyro, dt, keep).at[:3].add(unseen))
    linear = covariance + noise, noise, transition

    heavy = has_force & (square(force) > (0.5 * GRAVITY) ** 2)  # not in free fall
    level, begins = memory.level | heavy, heavy & ~memory.level
    rest = memory.rests, memory.slow[3:]
    balance, excess, lost = balance_of(memory.balance, in_world, of_force, rest)
    adrift = heavy & (linear[0][0, 0] + linear[0][1, 1] > 1.0)  # rad^2, as after a gap
    lost, mean = (lost | adrift) & memory.level, jnp.where(adrift, in_world, balance[:3])
    balance = jnp.where((begins | lost) & _BALANCE, _balanced(dt.dtype), balance)
    tilt = jnp.where(begins | lost, _TILT**2, 0.5 * (linear[0][0, 0] + linear[0][1, 1]))
    q = jnp.where(begins, _level(jnp.where(begins, force, up)), q)
    q = jnp.where(lost, correct_norm(multiply(_level(jnp.where(lost, mean, up)), q)), q)

    early = jnp.where(has_field & ~level, field, 0.0)
    field = rotate(q, field)  # a turn about the vertical changes neither its norm nor its dip
    has_heading, east_of_north, steepness, slope = _heading(field)
    of_north = level & has_field & has_heading
    steady = tilt < _STEADY**2
    anew = of_north & ((memory.north < 0) | lost | (steady & ~memory.steady))
    usual_field = jnp.where(anew, 0.0, memory.field)
    norms, doubt, again = disturbance_of(settings, usual_field, field, of_field, has_field & level)
    first = of_north & (again | anew)
    q = jnp.where(first, turned(q, jnp.zeros_like(up).at[2].set(east_of_north)), q)
    north = jnp.where(memory.north < 0, memory.north, memory.north + dt)
    north = jnp.where(first, 0.0, jnp.where(lost, -1.0, north))
    of_heading, settles = _heading_variance(settings, of_field, doubt, steepness, north)

    acceleration = rotate(q, force)[:2]
    motion, density = motion_of(settings, memory.motion, acceleration, of_force, excess)
    motion = jnp.where(level & ~lost, motion, 0.0)
    sensors = jnp.concatenate([gyro, force])
    slow, still = stillness(settings, (memory.slow, memory.still), sensors, read, spans, dt)
    mean_force = rotate(q, slow[3:])
    level_force = square(mean_force[:2])  # not 0 while the body gathers speed
    loose = _LEVEL**2 + 18.0 * GRAVITY**2 * tilt  # three deviations of the tilt
    alike = (balance[4] == 0) | (jnp.abs(root(square(slow[3:])) - balance[4]) < _ALIKE)
    rests = (still > settings.rest_time) & (level_force < loose) & alike & (mean_force[2] > 0)

    # At rest the velocity is relative to the one at its beginning: a smooth ride is a rest, too.
    starts = begins | (lost & _FALLEN) | (first & _HEADING) | (rests & ~memory.rests & _MOVING)
    deviations = jnp.where(level, _TILT, _UNKNOWN), jnp.where(first, jnp.sqrt(of_heading), _UNKNOWN)
    linear = _restarted(settings, linear, starts, deviations)
    east_of_north = jnp.where(first, 0.0, east_of_north)  # after the turn to the north
    by_tilt = slope * jnp.stack([jnp.sin(east_of_north), jnp.cos(east_of_north)])
    covariance, noise, transition = _tilted(linear, jnp.where(first, by_tilt, 0.0))
    numbers = memory.numbers.at[3:5].add(of_force * acceleration).at[5].multiply(keep)
    numbers = jnp.where(starts[3:] | ~level, 0.0, numbers)
    residual = _wrapped(east_of_north - numbers[5])
    heading = of_north & ~first, residual, of_heading, settles, by_tilt
    no_heading = (north < 0) | (since[2] > _ABSENT)
    up = jnp.where(no_heading, rotate_inverse(q, up) / GRAVITY, 0.0)
    error, updates, count = _observed(
        settings, covariance, numbers, gyro, spans, (level, rests), heading, density, up
    )
    none = jnp.asarray(jnp.nan, dt.dtype)
    estimate = Estimate(q, numbers[:3], numbers[3:], covariance, none, count, none)
    estimate = corrected(estimate, error)
    numbers = jnp.concatenate([estimate.bias, estimate.others])
    state = estimate.q, numbers, estimate.covariance
    steady = jnp.where(first, steady, memory.steady)
    told = gyro, early, since, usual, slow, still, rests, motion, norms, balance
    after = _Memory(*state, level, north, steady, *told)
    turned_on = multiply(estimate.q, exp(settings.latency * (gyro - estimate.bias)))
    return after, estimate._replace(q=turned_on), Linearized(transition, noise, updates)


def _unseen(settings: Settings, memory: _Memory, dt: Array, read: Array) -> tuple[Array, Array]:
    """The gyroscope's usual interval, and the variance of a turn that it has missed [rad^2].

    From its usual interval on the body accelerates, for 2 s; then the rate is unknown. The interval
    is -1 before the first reading, and 0 before the second.
    """
    before, usual = memory.since[0], memory.usual
    late = jnp.maximum(jnp.stack([before, before + dt]) - jnp.maximum(usual, 0.0), 0.0)
    late = jnp.where(usual == 0, 0.0, late)
    growth = jnp.minimum(late, 2.0) ** 4 + 32.0 * jnp.maximum(late - 2.0, 0.0)  # smooth at 2 s
    variance = (0.5 * settings.acceleration) ** 2 * (growth[1] - growth[0])
    interval = jnp.minimum(before + dt, 4.0 * usual)
    after = jnp.where(usual > 0, usual + 0.1 * (interval - usual), before + dt)
    after = jnp.where(usual < 0, 0.0, after)
    return jnp.where(read, after, usual), jnp.minimum(variance, _UNKNOWN**2)


def _heading_variance(
    settings: Settings, span: Array, doubt: Array, steepness: Array, age: Array
) -> tuple[Array, Array]:
    """The variance of a measured heading, and whether it is one of the first.

    The first readings are averaged: over ``_SETTLES`` they have ``start_heading`` together.
    """
    settles = age < _SETTLES
    first = _SETTLES / jnp.clip(span, 1e-4, _SETTLES) * settings.start_heading**2
    later = _inverse(span) * settings.heading**2 * doubt
    return steepness * jnp.where(settles, first, later), settles


def _observed(
    settings: Settings,
    covariance: Array,
    numbers: Array,
    gyro: Array,
    spans: Array,
    state: tuple[Array, Array],
    heading: tuple[Array, Array, Array, Array, Array],
    density: Array,
    up: Array,
) -> tuple[Error, tuple[Update, ...], Array]:
    """The error after the observations of a row, their blocks, and how many scalars they are.

    Args:
        settings: as of ``ahrs``.
        covariance: of the error before the observations, (18, 18).
        numbers: the estimates after the attitude's, (15,).
        gyro: measured rate, (3,).
        spans: the times that gyroscope, accelerometer and magnetometer cover, (3,).
        state: whether the body is level, and whether it is at rest.
        heading: whether there is one, its residual, its variance, whether this is certain, and the
            derivative of the residual by the tilt, (2,).
        density: of the velocity in motion, squared.
        up: the vertical in body axes where no magnetometer gives the heading, (3,), otherwise 0.
    """
    (of_gyro, of_force, of_field), (level, rests) = spans, state
    north, residual, of_heading, settles, by_tilt = heading
    error = Error(jnp.zeros_like(covariance[0]), covariance)
    of_velocity = _inverse(of_force) * jnp.where(rests, settings.rest_velocity**2, density)
    seen = jnp.full(2, (of_force > 0) & level)
    error, first = observed(
        error, _VELOCITY, -numbers[3:5], jnp.full(2, of_velocity), seen, _without(up)
    )

    row = jnp.zeros(SIZE, gyro.dtype).at[:2].set(by_tilt).at[2].set(1.0).at[DECLINATION].set(1.0)
    surprise = _surprise(settings, error, row, residual)
    of_heading = jnp.where(settles, of_heading, of_heading * surprise)
    has_north = (level & (of_field > 0) & north)[None]
    untilted = lambda gain: gain.at[:2].set(0.0)  # noqa: E731
    error, second = observed(
        error, row[None], residual[None], of_heading[None], has_north, untilted
    )

    of_bias = jnp.full(3, _inverse(of_gyro) * settings.rest_bias**2)
    has_bias = jnp.full(3, level & rests & (of_gyro > 0))
    error, third = observed(error, _BIAS, gyro - numbers[:3], of_bias, has_bias)
    count = jnp.sum(jnp.concatenate([seen, has_north, has_bias]), dtype=gyro.dtype)
    return error, (first, second, third), count


def _tilted(linear: _Linear, by_tilt: Array) -> _Linear:
    """The linearised prediction where a heading begins, whose error follows from the tilt's.

    ``by_tilt`` is the derivative of the measured heading by the tilt, (2,), or 0 if none begins.
    """

    def follows(matrix: Array) -> Array:
        return matrix.at[2].add(-jnp.sum(by_tilt[:, None] * matrix[:2], axis=0))

    covariance, noise = (follows(transpose(follows(x))) for x in linear[:2])
    return covariance, noise, follows(linear[2])


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
    sample then replaces this turn with its own; if it comes late, only for its usual interval.
    """
    interval, usual = memory.since[0] + dt, memory.usual
    late = (usual != 0) & (interval > 3.0 * usual)
    covered = jnp.where(late, jnp.maximum(usual, 0.0), interval)
    ahead = jnp.where(read, covered - dt, 0.0)
    response = matvec(memory.numbers[6:].reshape(3, 3), gyro)
    turn = dt * (gyro - memory.numbers[:3] - response) + ahead * (gyro - memory.gyro)
    half = exp(0.5 * turn)
    middle = multiply(memory.q, half)
    return correct_norm(multiply(middle, half)), middle


def _long(vector: Array) -> Array:
    """Whether a vector is finite and has a direction; length 0 counts as not measured."""
    valid, vector = present(vector, jnp.zeros_like(vector))
    return valid & jnp.any(vector != 0)


def _heading(field: Array) -> tuple[Array, Array, Array, Array]:
    """Whether the field, in level axes, has a heading, and how far it points east of north [rad].

    The angle is clockwise. A field within 0.6 degrees of the vertical has no heading. The third
    result is the factor of its variance: above 1 where the dip exceeds 72 degrees. The fourth is
    the angle's derivative by a tilt about the field's horizontal direction, the tangent of the dip.
    """
    field = near_one(field)
    across, along = square(field[:2]), square(field)
    has_heading = across > 1e-4 * along
    east, north = jnp.where(has_heading, field[0], 0.0), jnp.where(has_heading, field[1], 1.0)
    level = jnp.where(has_heading, across, 1.0)
    steepness = jnp.maximum(1.0, 0.1 * along / level)
    return has_heading, jnp.arctan2(east, north), steepness, -field[2] / root(level)


def _wrapped(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    return sample_of(sample, dict.fromkeys(ImuSample._fields[1:], (3,)))
