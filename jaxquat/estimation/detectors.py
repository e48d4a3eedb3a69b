"""The detectors of ``ahrs``: each returns its next memory and what it detects."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import near_one, power_of_two, root, square
from jaxquat.estimation.arguments import GRAVITY
from jaxquat.estimation.imu import AhrsSettings
from jaxquat.estimation.memory import HorizontalField, MagneticField, MeanForce, Motion, Rest

_SENSOR_TIME = 0.5  # s: time constant of gyroscope and accelerometer; vibrations are shorter
_FIELD_TIME = 0.15  # s: time constant of the field's norm and dip; smooths noise, keeps steps
_FORCE_TIME = 3.0  # s: time constant of the mean force; a body moved about accelerates to and fro
_LOST_TIME = 5.0  # s: a mean force that is off for so long shows a lost tilt, not an acceleration
_OFF = 1.5  # m/s^2: least distance of the mean force from gravity that counts; a tilt of 9 degrees
_INVERTED = -0.3  # of gravity: a mean upward force below this is upside down, not a motion
_PUSH_TIME = 0.5  # s: for so long a body that is moved about accelerates one way
_FORCE_ERROR = 0.5  # m/s^2: error of the length of one force, 5 % of gravity
_MEAN_ERROR = 0.25  # m/s^2: error of the length of the mean force, whose noise averages out
_HORIZONTAL_TIME = 10.0  # s: time constant of the mean horizontal field, which averages noise
_BY_CHANCE = 15.0  # noise alone has a longer squared mean, in its own units, with probability e^-15
_VERTICAL_TILTS = 32.0  # four deviations about two axes: a wrong tilt is seldom larger
_STEEP = 0.25  # of the norm: a longer horizontal field is no wrong tilt; a dip of 75 degrees
_FIRST_NOISE = 0.04  # of the norm: noise of the field that one reading alone is taken to have
_FIELD_RATIO = 1e3  # largest relative change of the norm: its fourth power fits into float32


def detect_stillness(
    settings: AhrsSettings,
    memory: Rest,
    sensors: Array,
    measured: Array,
    intervals: Array,
    dt: Array,
) -> tuple[Array, Array]:
    """Low-pass gyroscope and accelerometer, (6,); count for how long they hardly change [s]."""
    sensors = jnp.where(jnp.repeat(measured[:2], 3), sensors, memory.smoothed)
    share = jnp.expm1(-jnp.repeat(intervals[:2], 3) / _SENSOR_TIME)
    smoothed = memory.smoothed - share * (sensors - memory.smoothed)
    change, rate_limit = sensors - smoothed, settings.rest_rate**2
    still = (square(change[:3]) < rate_limit) & (square(smoothed[:3]) < rate_limit)
    still = still & (square(change[3:]) < settings.rest_acceleration**2)
    return smoothed, jnp.where(still, memory.still_time + dt, 0.0)


def measure_motion(
    settings: AhrsSettings,
    memory: Motion,
    acceleration: Array,
    interval: Array,
    at_rest: Array,
    excess: Array,
    mean_excess: Array,
) -> tuple[Motion, Array]:
    """Return the memory and the squared density of the true velocity [m^2/s], ()."""
    # Of the velocity, from the horizontal acceleration in world axes, ``(s T)^2 / (1 + s T)^3``
    # passes, T = ``velocity_time``, which removes the constant error of the tilt. White noise of
    # density d would then have the variance ``3 d^2 / (16 T)``. A lasting acceleration, or any in
    # the first T, shows in the excess of the mean force over gravity.
    time = jnp.asarray(settings.velocity_time)
    share = -jnp.expm1(-interval / time)
    mean = memory.acceleration + share * (acceleration - memory.acceleration)
    velocity = (1.0 - share) * (memory.velocity + interval * (acceleration - mean))
    smoothed = memory.smoothed + share * (velocity - memory.smoothed)
    mean_square = jnp.maximum((1.0 - share) * memory.mean_square, 0.5 * square(smoothed))
    speed = _PUSH_TIME * jnp.maximum(jnp.abs(excess) - _FORCE_ERROR, 0.0)
    mean_square = jnp.maximum(mean_square, (1.0 - memory.known) * jnp.square(speed))
    known = jnp.where(at_rest, 1.0, memory.known + share * (1.0 - memory.known))
    after = Motion(mean, velocity, smoothed, mean_square, known)
    # A horizontal acceleration a makes the force longer by a^2/(2 g); after T the speed is a T.
    lasting = 2.0 * GRAVITY * jnp.maximum(mean_excess - _MEAN_ERROR, 0.0) * time**2
    mean_square = jnp.maximum(mean_square, lasting)
    density = 16.0 / 3.0 * time * mean_square * jnp.square(settings.velocity_by_motion)
    return after, density + jnp.square(settings.velocity)


def detect_disturbance(
    settings: AhrsSettings, memory: MagneticField, field: Array, interval: Array, valid: Array
) -> tuple[MagneticField, Array, Array]:
    """Return the memory, the factor of the heading's variance, and whether the heading restarts."""
    # Norm and dip are learned where the factor is small. Another field that stays the same for
    # ``field_time`` and more than half of the total time becomes the undisturbed one.
    unit = power_of_two(field)  # the squares of any unit of the field stay in the dtype's range
    norm = jnp.sqrt(square(field / unit))
    now = jnp.stack([unit * norm, field[2] / unit / norm])
    known = memory.smoothed[0] > 0
    smoothed, undisturbed, candidate = (jnp.where(known, x, now) for x in memory[:3])
    share = jnp.expm1(-interval / _FIELD_TIME)
    smoothed = jnp.where(known, smoothed - share * (now - smoothed), now)

    def change(before: Array) -> Array:
        ratio = jnp.minimum(smoothed[0] / before[0] - 1.0, _FIELD_RATIO)
        return square(jnp.stack([ratio, smoothed[1] - before[1]]) / settings.field_gate)

    factor = (1.0 + change(undisturbed)) ** 2
    share = -jnp.expm1(-interval / settings.field_time)
    same = change(candidate) < 1.0
    candidate = jnp.where(same, candidate + share * (smoothed - candidate), smoothed)
    time = jnp.where(same, memory.candidate_time + interval, 0.0)
    total = memory.total_time + interval
    lasts = (time > settings.field_time) & (time > 0.5 * total)
    restart = valid & (change(undisturbed) > 4.0) & lasts
    learned = undisturbed + share / factor * (smoothed - undisturbed)
    undisturbed = jnp.where(restart, candidate, learned)
    after = MagneticField(smoothed, undisturbed, candidate, time, total)
    return jax.tree.map(lambda x, y: jnp.where(valid, x, y), after, memory), factor, restart


def measure_horizontal_field(
    memory: HorizontalField, field: Array, interval: Array, valid: Array, tilt_variance: Array
) -> tuple[HorizontalField, Array, Array]:
    """Return the memory, whether the field may be vertical, and the variance of its direction."""
    # The squared mean of noise in world axes is exponential, with the mean ``2 variance share``.
    field = near_one(field)
    now = field[:2] / jnp.sqrt(square(field))
    part = -jnp.expm1(-interval / _HORIZONTAL_TIME)
    part = jnp.maximum(part, memory.share / (1.0 + memory.share))
    change = now - memory.mean
    spread = 0.5 * square(change) / (1.0 + memory.share)
    after = HorizontalField(
        memory.mean + part * change,
        memory.variance + part * (spread - memory.variance),
        (1.0 - part) ** 2 * memory.share + part**2,
    )
    after = jax.tree.map(lambda x, y: jnp.where(valid, x, y), after, memory)
    variance = after.variance + _FIRST_NOISE**2 * after.share
    beyond_noise = square(after.mean) - 2.0 * _BY_CHANCE * variance * after.share
    is_vertical = beyond_noise <= jnp.minimum(_VERTICAL_TILTS * tilt_variance, _STEEP**2)
    return after, is_vertical, after.variance / jnp.where(is_vertical, 1.0, beyond_noise)


def or_standard(gravity: Array) -> Array:
    """Return the measured gravity, or the standard one before it is measured."""
    return jnp.where(gravity > 0, gravity, GRAVITY)


def detect_lost_tilt(
    memory: MeanForce, force: Array, interval: Array, at_rest: Array, rest_force: Array
) -> tuple[MeanForce, Array, Array]:
    """Return the memory, the excess of the mean force over gravity, and whether it is lost."""
    # A horizontal acceleration a makes the mean force longer by a^2/(2 g). So one as long as
    # gravity that points elsewhere shows a wrong tilt; the limit is half of that, or less if large.
    mean = memory.mean - jnp.expm1(-interval / _FORCE_TIME) * (force - memory.mean)
    norm, own = root(square(rest_force)), memory.gravity
    share = jnp.where(own > 0, -jnp.expm1(-interval), 1.0)  # in 1 s; the first rest counts at once
    own = jnp.where(at_rest, own + share * (norm - own), own)
    gravity = or_standard(own)
    off, excess = square(mean.at[2].add(-gravity)), root(square(mean)) - gravity
    limit = jnp.minimum(off / (4.0 * GRAVITY), 0.1 + off / (16.0 * GRAVITY))  # equal at 2.3 m/s^2
    wrong = (off > _OFF**2) & (jnp.abs(excess) < limit)
    wrong = wrong | (mean[2] < _INVERTED * gravity)
    time = jnp.maximum(memory.off_time + jnp.where(wrong, interval, -interval), 0.0)
    return MeanForce(mean, time, own), excess, time > _LOST_TIME
