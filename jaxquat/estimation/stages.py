"""The stages of a step of ``ahrs``: predict, level, head, rest.

A stage takes the memory before the row, the row, and what earlier stages found. It returns a record
of what it finds; the parts of the memory that it owns are fields of this record.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import cross, matvec, near_one, root, square
from jaxquat.estimation.detectors import (
    Balance,
    Motion,
    balance_of,
    balanced,
    disturbance_of,
    motion_of,
    or_standard,
    stillness,
)
from jaxquat.estimation.filtering import present, turned
from jaxquat.estimation.imu import (
    GRAVITY,
    ImuSample,
    Settings,
    propagated,
    transition_of,
    variances_of,
)
from jaxquat.estimation.memory import Heading, Memory, Rest
from jaxquat.quaternion import correct_norm, exp, multiply, normalize, rotate, rotate_inverse

UNKNOWN = 3.0  # rad: the standard deviation of an unknown angle
TILT = 0.3  # rad: the standard deviation of the tilt that one specific force gives, in motion
_STEADY = 0.03  # rad: a tilt less certain than this makes a heading begin again later
_AGAIN = 5.0  # s: after so long it does so too if the tilt has become twice as certain
_MERGED = 0.1  # s: shorter samples contain the coning
_SETTLES = 1.0  # s: over which the first readings of a magnetometer are averaged
_ALIKE = 0.15  # m/s^2: at rest the force is as long as at earlier rests
_LEVEL = 0.1  # m/s^2: a body with more horizontal force does not rest
_LONGEST = 1.0  # s: a sample stands for at most so long


class Linear(NamedTuple):
    """The linearised prediction of the error; each is (18, 18).

    Attributes:
        covariance: after the prediction.
        noise: what the prediction adds to it.
        transition: of the error.
    """

    covariance: Array
    noise: Array
    transition: Array


class Row(NamedTuple):
    """A sample in which nothing is missing, and the prediction to its time.

    Attributes:
        dt: as of the sample.
        gyro: rate, the last one if it is not read.
        force: specific force, the one of the predicted tilt if it is not read.
        field: magnetic field, body axes.
        read: whether gyroscope, accelerometer, magnetometer are read, (3,).
        since: times since they were read, (3,).
        spans: times that their samples cover, (3,).
        usual: interval of the gyroscope.
        q: predicted attitude.
        linear: predicted error.
        keep: the part of the declination that remains, ().
    """

    dt: Array
    gyro: Array
    force: Array
    field: Array
    read: Array
    since: Array
    spans: Array
    usual: Array
    q: Array
    linear: Linear
    keep: Array


class Levelled(NamedTuple):
    """What the specific force tells of the tilt.

    Attributes:
        q: attitude, level where the tilt begins or is lost.
        level: whether the tilt is known.
        begins: whether it begins in this row.
        lost: whether it begins anew in this row.
        variance: of the tilt about an axis [rad^2], ().
        excess: of the mean force over gravity [m/s^2], ().
        balance: memory.
    """

    q: Array
    level: Array
    begins: Array
    lost: Array
    variance: Array
    excess: Array
    balance: Balance


class Headed(NamedTuple):
    """What the magnetic field tells of the heading.

    Attributes:
        q: attitude, turned to the north where the heading begins.
        valid: whether there is a heading, ().
        first: whether it begins in this row, ().
        angle: how far the field points east of north [rad], ().
        variance: of the angle, ().
        settles: whether it is one of the first readings, ().
        by_tilt: derivative of the angle by the tilt, (2,).
        heading: memory.
    """

    q: Array
    valid: Array
    first: Array
    angle: Array
    variance: Array
    settles: Array
    by_tilt: Array
    heading: Heading


class Rested(NamedTuple):
    """What gyroscope and accelerometer tell of motion and rest.

    Attributes:
        acceleration: horizontal, world axes [m/s^2], (2,).
        density: of the true velocity, squared, ().
        motion: memory.
        rest: memory.
    """

    acceleration: Array
    density: Array
    motion: Motion
    rest: Rest


def predicted(settings: Settings, memory: Memory, sample: ImuSample) -> Row:
    """Turn by the gyroscope and predict the error."""
    dt = sample.dt
    has_gyro, gyro = present(sample.gyro, memory.gyro)
    q, middle = _turn(memory, gyro, dt, has_gyro)
    up = jnp.asarray([0.0, 0.0, GRAVITY], dt.dtype)
    has_force, force = present(sample.accelerometer, rotate_inverse(q, up))
    waits = ~memory.level & (memory.since[2] + dt <= 0)  # the field of a row of the same time
    early = waits & ~_long(sample.magnetometer)
    field = jnp.where(early, memory.heading.early, sample.magnetometer)
    has_field = _long(field)
    field = jnp.where(has_field, field, 1.0)
    read = jnp.stack([has_gyro, has_force, has_field])
    since, spans = _spans(memory.since, dt, read)
    usual, unseen = _unseen(settings, memory, dt, has_gyro)
    unseen = unseen + _coning(memory.gyro, gyro, spans[0])
    keep = jnp.exp(-dt / settings.declination_time)
    impulse = spans[1] * rotate(q, force)[2]  # in free fall a tilt makes no velocity
    transition = transition_of(middle, gyro, dt, keep, impulse)
    covariance = propagated(memory.covariance, middle, gyro, dt, keep, impulse)
    noise = jnp.diag(variances_of(settings, gyro, dt, keep).at[:3].add(unseen))
    linear = Linear(covariance + noise, noise, transition)
    return Row(dt, gyro, force, field, read, since, spans, usual, q, linear, keep)


def levelled(memory: Memory, row: Row) -> Levelled:
    """Level the attitude where the tilt begins, and where it is lost."""
    up = jnp.asarray([0.0, 0.0, GRAVITY], row.dt.dtype)
    heavy = row.read[1] & (square(row.force) > (0.5 * GRAVITY) ** 2)  # not in free fall
    level, begins = memory.level | heavy, heavy & ~memory.level
    in_world = rotate(row.q, row.force)
    rests, resting = memory.rest.rests, memory.rest.slow[3:]
    balance, excess, lost = balance_of(memory.balance, in_world, row.spans[1], rests, resting)
    covariance = row.linear.covariance
    adrift = heavy & (covariance[0, 0] + covariance[1, 1] > 1.0)  # rad^2, as after a gap
    lost, mean = (lost | adrift) & memory.level, jnp.where(adrift, in_world, balance.mean)
    anew = begins | lost
    starts = balanced(balance.gravity)
    balance = jax.tree.map(lambda x, y: jnp.where(anew, x, y), starts, balance)
    variance = jnp.where(anew, TILT**2, 0.5 * (covariance[0, 0] + covariance[1, 1]))
    q = jnp.where(begins, _level(jnp.where(begins, row.force, up)), row.q)
    q = jnp.where(lost, correct_norm(multiply(_level(jnp.where(lost, mean, up)), q)), q)
    return Levelled(q, level, begins, lost, variance, excess, balance)


def headed(settings: Settings, memory: Memory, row: Row, tilt: Levelled) -> Headed:
    """Read the heading, and turn the attitude to the north where it begins."""
    before, has_field, span = memory.heading, row.read[2], row.spans[2]
    early = jnp.where(has_field & ~tilt.level, row.field, 0.0)
    field = rotate(tilt.q, row.field)  # a turn about the vertical changes neither norm nor dip
    has_heading, angle, steepness, slope = _heading(field)
    valid = tilt.level & has_field & has_heading
    steady, halved = tilt.variance < _STEADY**2, tilt.variance < 0.25 * before.tilt
    better = steady | (halved & (before.age > _AGAIN))
    anew = valid & ((before.age < 0) | tilt.lost | (better & (before.tilt > _STEADY**2)))
    usual = jax.tree.map(lambda x: jnp.where(anew, 0.0, x), before.field)
    norms, doubt, again = disturbance_of(settings, usual, field, span, has_field & tilt.level)
    first = valid & (again | anew)
    q = jnp.where(first, turned(tilt.q, jnp.zeros_like(field).at[2].set(angle)), tilt.q)
    age = jnp.where(before.age < 0, before.age, before.age + row.dt)
    age = jnp.where(first, 0.0, jnp.where(tilt.lost, -1.0, age))
    variance, settles = _heading_variance(settings, span, doubt, steepness, age)
    angle = jnp.where(first, 0.0, angle)  # after the turn to the north
    by_tilt = slope * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
    heading = Heading(age, jnp.where(first, tilt.variance, before.tilt), early, norms)
    return Headed(q, valid, first, angle, variance, settles, by_tilt, heading)


def rested(settings: Settings, memory: Memory, row: Row, tilt: Levelled, q: Array) -> Rested:
    """Measure the motion at the attitude q, and detect rest."""
    acceleration = rotate(q, row.force)[:2]
    gravity = tilt.balance.gravity
    longer = root(square(row.force)) - or_standard(gravity)
    longer = jnp.where(row.read[1], longer, 0.0), tilt.excess
    motion, density = motion_of(
        settings, memory.motion, acceleration, row.spans[1], memory.rest.rests, longer
    )
    knows = tilt.level & ~tilt.lost
    motion = jax.tree.map(lambda x: jnp.where(knows, x, 0.0), motion)
    sensors = jnp.concatenate([row.gyro, row.force])
    earlier = memory.rest.slow, memory.rest.still
    slow, still = stillness(settings, earlier, sensors, row.read, row.spans, row.dt)
    mean_force = rotate(q, slow[3:])
    level_force = square(mean_force[:2])  # not 0 while the body gathers speed
    loose = _LEVEL**2 + 18.0 * GRAVITY**2 * tilt.variance  # three deviations of the tilt
    alike = (gravity == 0) | (jnp.abs(root(square(slow[3:])) - gravity) < _ALIKE)
    rests = (still > settings.rest_time) & (level_force < loose) & alike & (mean_force[2] > 0)
    return Rested(acceleration, density, motion, Rest(slow, still, rests))


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


def _unseen(settings: Settings, memory: Memory, dt: Array, read: Array) -> tuple[Array, Array]:
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
    return jnp.where(read, after, usual), jnp.minimum(variance, UNKNOWN**2)


def _coning(before: Array, rate: Array, span: Array) -> Array:
    """The variance of a turn about an axis that the mean rates of two samples do not tell [rad^2].

    A rate that changes its direction evenly turns a body by a twelfth of the product of the two
    turns more than its mean does (J. E. Bortz, IEEE Trans. Aerosp. Electron. Syst. 7, 61, 1971).
    Samples of a tenth of a second count as merged from shorter ones, by a merge that knows it.
    """
    square_of_span = span * jnp.maximum(span - _MERGED, 0.0)
    return square(square_of_span * cross(before, rate) / 12.0) / 3.0


def _turn(memory: Memory, gyro: Array, dt: Array, read: Array) -> tuple[Array, Array]:
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


def _spans(since: Array, dt: Array, read: Array) -> tuple[Array, Array]:
    """The times since each sensor was last read, and the time that each sample of this row covers.

    A sample covers the time since the last one of the same sensor, so it counts the same whether
    other sensors have rows in between or not. A sensor that is not read covers 0.
    """
    since = since + dt
    return jnp.where(read, 0.0, since), jnp.where(read, jnp.minimum(since, _LONGEST), 0.0)


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


def _heading_variance(
    settings: Settings, span: Array, doubt: Array, steepness: Array, age: Array
) -> tuple[Array, Array]:
    """The variance of a measured heading, and whether it is one of the first.

    The first readings are averaged: over ``_SETTLES`` they have ``start_heading`` together.
    """
    settles = age < _SETTLES
    first = _SETTLES / jnp.clip(span, 1e-4, _SETTLES) * settings.start_heading**2
    later = inverse(span) * settings.heading**2 * doubt
    return steepness * jnp.where(settles, first, later), settles


def inverse(span: Array) -> Array:
    """Return 1/span, and 1 where it is 0."""
    return 1.0 / jnp.where(span > 0, span, 1.0)
