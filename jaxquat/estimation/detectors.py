"""What ``ahrs`` detects: rest, the size of the motion, disturbances of the field, a lost tilt."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxquat._linear import power_of_two, root, square
from jaxquat.estimation.imu import GRAVITY, Settings


def stillness(
    settings: Settings,
    memory: tuple[Array, Array],
    sensors: Array,
    read: Array,
    spans: Array,
    dt: Array,
) -> tuple[Array, Array]:
    """The low-passed gyroscope and accelerometer, (6,), and how long they have hardly changed."""
    slow, time = memory
    sensors = jnp.where(jnp.repeat(read[:2], 3), sensors, slow)
    slow = slow - jnp.expm1(-jnp.repeat(spans[:2], 3) / 0.5) * (sensors - slow)
    off = sensors - slow
    still = (square(off[:3]) < settings.rest_rate**2) & (square(slow[:3]) < settings.rest_rate**2)
    still = still & (square(off[3:]) < settings.rest_acceleration**2)
    return slow, jnp.where(still, time + dt, 0.0)


def motion_of(
    settings: Settings, memory: Array, acceleration: Array, span: Array, excess: Array
) -> tuple[Array, Array]:
    """The memory of the motion, (7,), and the density of the true velocity, squared, ().

    The acceleration (2,) is integrated to a velocity between a high-pass, which removes the tilt's
    constant error, and a low-pass: of the true velocity passes ``(s T)^2 / (1 + s T)^3``. White
    noise of density d would have the variance ``3 d^2 / (16 T)`` after it. The memory has the
    acceleration's mean, the velocity before and after the low-pass, and the mean square of an axis,
    which rises with the velocity at once and decays in T. An acceleration that lasts shows in the
    ``excess`` of the mean force over gravity, where that is more than an accelerometer's errors.
    """
    time = jnp.asarray(settings.velocity_time)
    share = -jnp.expm1(-span / time)
    mean, velocity, slow, spread = memory[:2], memory[2:4], memory[4:6], memory[6]
    mean = mean + share * (acceleration - mean)
    velocity = (1.0 - share) * (velocity + span * (acceleration - mean))
    slow = slow + share * (velocity - slow)
    spread = jnp.maximum((1.0 - share) * spread, 0.5 * square(slow))
    after = jnp.concatenate([mean, velocity, slow, spread[None]])
    lasting = 2.0 * GRAVITY * jnp.maximum(excess - 0.25, 0.0) * time**2
    spread = jnp.maximum(spread, lasting)
    density = 16.0 / 3.0 * time * spread * jnp.square(settings.velocity_by_motion)
    return after, density + jnp.square(settings.velocity)


def disturbance_of(
    settings: Settings, memory: Array, field: Array, span: Array, valid: Array
) -> tuple[Array, Array, Array]:
    """The memory of the field, (8,), the factor of the heading's variance, and whether to restart.

    The factor is 1 where norm and dip equal the usual ones, which are learned where it is small. A
    field that differs by two gates, has stayed the same for ``field_time``, and was there for more
    than half of the time, is the usual one: what came before it was a disturbance, and the heading
    starts again. The memory has norm and sine of the dip: low-passed, usual, and of the field that
    lasts; then for how long this one and all fields were there.
    """
    unit = power_of_two(field)  # the squares of any unit of the field stay in the dtype's range
    norm = jnp.sqrt(square(field / unit))
    now = jnp.stack([unit * norm, field[2] / unit / norm])
    fast, usual, lasting, (age, time) = memory.reshape(4, 2)
    known = memory[0] > 0
    fast = jnp.where(known, fast - jnp.expm1(-span / 0.15) * (now - fast), now)
    usual, lasting = jnp.where(known, usual, now), jnp.where(known, lasting, now)

    def change(before: Array) -> Array:
        off = jnp.stack([jnp.minimum(fast[0] / before[0] - 1.0, 1e3), fast[1] - before[1]])
        return square(off / settings.field_gate)

    doubt = (1.0 + change(usual)) ** 2
    share = -jnp.expm1(-span / settings.field_time)
    same = change(lasting) < 1.0
    lasting = jnp.where(same, lasting + share * (fast - lasting), fast)
    age, time = jnp.where(same, age + span, 0.0), time + span
    again = valid & (change(usual) > 4.0) & (age > settings.field_time) & (age > 0.5 * time)
    usual = jnp.where(again, lasting, usual + share / doubt * (fast - usual))
    after = jnp.concatenate([fast, usual, lasting, jnp.stack([age, time])])
    return jnp.where(valid, after, memory), doubt, again


def balance_of(
    memory: Array, force: Array, span: Array, rest: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    """The memory of the mean force, (5,), its excess over gravity, and whether the tilt is lost.

    The mean specific force in world axes over some seconds is gravity, but for the body's mean
    acceleration: a horizontal one, a, makes it longer by a^2/(2 g). If the mean is as long as
    gravity but points elsewhere for 5 s, the tilt is lost. The limit is half of that excess, and
    less for a large one, so that an acceleration beside a wrong tilt is none. The memory has the
    mean, for how long it has pointed elsewhere, and gravity as the accelerometer measures it at
    rest; 0 before the first rest.

    Args:
        memory: of the row before.
        force: specific force in world axes, (3,).
        span: time that it covers.
        rest: whether the body was at rest, and its mean force, (3,).
    """
    mean, time, own = memory[:3], memory[3], memory[4]
    mean = mean - jnp.expm1(-span / 3.0) * (force - mean)
    resting, norm = rest[0], root(square(rest[1]))
    share = jnp.where(own > 0, -jnp.expm1(-span), 1.0)
    own = jnp.where(resting, own + share * (norm - own), own)
    gravity = jnp.where(own > 0, own, GRAVITY)
    off, excess = square(mean.at[2].add(-gravity)), root(square(mean)) - gravity
    limit = jnp.minimum(off / (4.0 * GRAVITY), 0.1 + off / (16.0 * GRAVITY))
    elsewhere = (off > 1.5**2) & (jnp.abs(excess) < limit)
    elsewhere = elsewhere | (mean[2] < -0.3 * gravity)  # for seconds upside down
    time = jnp.maximum(time + jnp.where(elsewhere, span, -span), 0.0)
    return jnp.concatenate([mean, jnp.stack([time, own])]), excess, time > 5.0
