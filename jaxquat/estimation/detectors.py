"""What ``ahrs`` detects: rest, the size of the motion, disturbances of the field, a lost tilt."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import power_of_two, root, square
from jaxquat.estimation.imu import GRAVITY, Settings

_CHANGES = 0.5  # s: for so long a body that is moved about accelerates one way
_ERRORS = 0.5  # m/s^2: of the length of the specific force, 5 % of gravity


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


class Motion(NamedTuple):
    """What ``motion_of`` remembers of the horizontal motion; 0 at the start.

    Attributes:
        mean: mean acceleration [m/s^2], (2,).
        velocity: velocity after the high-pass [m/s], (2,).
        slow: velocity after the low-pass as well [m/s], (2,).
        spread: mean square of an axis of it [m^2/s^2], ().
        known: how far the velocity's size is known, from 0 to 1 after a rest, ().
    """

    mean: Array
    velocity: Array
    slow: Array
    spread: Array
    known: Array


def no_motion(dtype: Any) -> Motion:
    """Return the memory of a body that has not moved."""
    pair = jnp.zeros(2, dtype)
    zero = jnp.zeros((), dtype)
    return Motion(pair, pair, pair, zero, zero)


def motion_of(
    settings: Settings,
    memory: Motion,
    acceleration: Array,
    span: Array,
    rests: Array,
    longer: tuple[Array, Array],
) -> tuple[Motion, Array]:
    """Return the memory of the motion and the density of the true velocity, squared, ().

    The acceleration (2,) is integrated to a velocity between a high-pass, which removes the tilt's
    constant error, and a low-pass: of the true velocity passes ``(s T)^2 / (1 + s T)^3``. White
    noise of density d would have the variance ``3 d^2 / (16 T)`` after it. The spread rises with
    the velocity at once and decays in T. An acceleration that lasts shows in the excess of the mean
    force over gravity, where that is more than an accelerometer's errors. In the first T of a start
    in motion nothing is known of the velocity but by the length of the force.

    Args:
        settings: of the filter.
        memory: of the row before.
        acceleration: horizontal, world axes [m/s^2], (2,).
        span: time that it covers.
        rests: whether the body was at rest.
        longer: by how much the force is longer than gravity, and the mean force [m/s^2].
    """
    push, excess = longer
    time = jnp.asarray(settings.velocity_time)
    share = -jnp.expm1(-span / time)
    mean = memory.mean + share * (acceleration - memory.mean)
    velocity = (1.0 - share) * (memory.velocity + span * (acceleration - mean))
    slow = memory.slow + share * (velocity - memory.slow)
    spread = jnp.maximum((1.0 - share) * memory.spread, 0.5 * square(slow))
    speed = _CHANGES * jnp.maximum(jnp.abs(push) - _ERRORS, 0.0)
    spread = jnp.maximum(spread, (1.0 - memory.known) * jnp.square(speed))
    known = jnp.where(rests, 1.0, memory.known + share * (1.0 - memory.known))
    after = Motion(mean, velocity, slow, spread, known)
    lasting = 2.0 * GRAVITY * jnp.maximum(excess - 0.25, 0.0) * time**2
    spread = jnp.maximum(spread, lasting)
    density = 16.0 / 3.0 * time * spread * jnp.square(settings.velocity_by_motion)
    return after, density + jnp.square(settings.velocity)


class Field(NamedTuple):
    """What ``disturbance_of`` remembers of the magnetic field; 0 before the first reading.

    Attributes:
        fast: norm and sine of the dip, low-passed, (2,).
        usual: those of the undisturbed field, (2,).
        lasting: those of the field that is there now, (2,).
        age: for how long this one has been there [s], ().
        time: for how long any field has been there [s], ().
    """

    fast: Array
    usual: Array
    lasting: Array
    age: Array
    time: Array


def no_field(dtype: Any) -> Field:
    """Return the memory before the first field."""
    pair, zero = jnp.zeros(2, dtype), jnp.zeros((), dtype)
    return Field(pair, pair, pair, zero, zero)


def disturbance_of(
    settings: Settings, memory: Field, field: Array, span: Array, valid: Array
) -> tuple[Field, Array, Array]:
    """Return the memory of the field, the factor of the heading's variance, whether to restart.

    The factor is 1 where norm and dip equal the usual ones, which are learned where it is small. A
    field that differs by two gates, has stayed the same for ``field_time``, and was there for more
    than half of the time, is the usual one: what came before it was a disturbance, and the heading
    starts again.
    """
    unit = power_of_two(field)  # the squares of any unit of the field stay in the dtype's range
    norm = jnp.sqrt(square(field / unit))
    now = jnp.stack([unit * norm, field[2] / unit / norm])
    known = memory.fast[0] > 0
    fast, usual, lasting = (jnp.where(known, x, now) for x in memory[:3])
    fast = jnp.where(known, fast - jnp.expm1(-span / 0.15) * (now - fast), now)

    def change(before: Array) -> Array:
        off = jnp.stack([jnp.minimum(fast[0] / before[0] - 1.0, 1e3), fast[1] - before[1]])
        return square(off / settings.field_gate)

    doubt = (1.0 + change(usual)) ** 2
    share = -jnp.expm1(-span / settings.field_time)
    same = change(lasting) < 1.0
    lasting = jnp.where(same, lasting + share * (fast - lasting), fast)
    age, time = jnp.where(same, memory.age + span, 0.0), memory.time + span
    again = valid & (change(usual) > 4.0) & (age > settings.field_time) & (age > 0.5 * time)
    usual = jnp.where(again, lasting, usual + share / doubt * (fast - usual))
    after = Field(fast, usual, lasting, age, time)
    return jax.tree.map(lambda x, y: jnp.where(valid, x, y), after, memory), doubt, again


class Balance(NamedTuple):
    """What ``balance_of`` remembers of the mean specific force.

    Attributes:
        mean: mean over some seconds, world axes [m/s^2], (3,).
        elsewhere: for how long it has not pointed up [s], ().
        gravity: as the accelerometer measures it at rest [m/s^2]; 0 before the first rest, ().
    """

    mean: Array
    elsewhere: Array
    gravity: Array


def or_standard(gravity: Array) -> Array:
    """Return gravity as the accelerometer measures it, and the standard one before it has."""
    return jnp.where(gravity > 0, gravity, GRAVITY)


def balanced(gravity: Array) -> Balance:
    """Return the memory of a mean force that agrees with the tilt, and this measured gravity."""
    up = jnp.asarray([0.0, 0.0, GRAVITY], gravity.dtype)
    return Balance(up, jnp.zeros_like(gravity), gravity)


def balance_of(
    memory: Balance, force: Array, span: Array, rests: Array, resting: Array
) -> tuple[Balance, Array, Array]:
    """Return the memory of the mean force, its excess over gravity, and whether the tilt is lost.

    The mean specific force in world axes over some seconds is gravity, but for the body's mean
    acceleration: a horizontal one, a, makes it longer by a^2/(2 g). If the mean is as long as
    gravity but points elsewhere for 5 s, the tilt is lost. The limit is half of that excess, and
    less for a large one, so that an acceleration beside a wrong tilt is none.

    Args:
        memory: of the row before.
        force: specific force in world axes, (3,).
        span: time that it covers.
        rests: whether the body was at rest.
        resting: mean specific force at rest, body axes, (3,).
    """
    mean = memory.mean - jnp.expm1(-span / 3.0) * (force - memory.mean)
    norm, own = root(square(resting)), memory.gravity
    share = jnp.where(own > 0, -jnp.expm1(-span), 1.0)
    own = jnp.where(rests, own + share * (norm - own), own)
    gravity = or_standard(own)
    off, excess = square(mean.at[2].add(-gravity)), root(square(mean)) - gravity
    limit = jnp.minimum(off / (4.0 * GRAVITY), 0.1 + off / (16.0 * GRAVITY))
    elsewhere = (off > 1.5**2) & (jnp.abs(excess) < limit)
    elsewhere = elsewhere | (mean[2] < -0.3 * gravity)  # for seconds upside down
    time = jnp.maximum(memory.elsewhere + jnp.where(elsewhere, span, -span), 0.0)
    return Balance(mean, time, own), excess, time > 5.0
