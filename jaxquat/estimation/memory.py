"""The memory of ``ahrs`` between samples."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxquat.estimation.detectors import Balance, Field, Motion, balanced, no_field, no_motion
from jaxquat.estimation.filtering import present
from jaxquat.estimation.imu import GRAVITY, ImuSample


class Heading(NamedTuple):
    """The memory of the heading.

    Attributes:
        age: for how long a magnetometer has given the heading [s]; -1 if it does not, ().
        tilt: variance of the tilt when it began to [rad^2], ().
        early: last measured field, body axes, until the body is level, (3,).
        field: of the magnetic field.
    """

    age: Array
    tilt: Array
    early: Array
    field: Field


class Rest(NamedTuple):
    """The memory of rest.

    Attributes:
        slow: gyroscope and accelerometer, low-passed, (6,).
        still: for how long the sensors have hardly changed [s], ().
        rests: whether the body is at rest, ().
    """

    slow: Array
    still: Array
    rests: Array


class Memory(NamedTuple):
    """The memory of ``ahrs`` between samples.

    Attributes:
        q: attitude without the latency, (4,).
        numbers: bias, velocity, declination, response, as in the error after the attitude, (15,).
        covariance: of the error, (18, 18).
        gyro: last measured rate, (3,).
        since: times since gyroscope, accelerometer, magnetometer were last read [s], (3,).
        usual: interval of the gyroscope [s]; -1 before its first reading, 0 before the second, ().
        level: whether an accelerometer has given the tilt, ().
        balance: of the mean force.
        heading: of the heading.
        rest: of rest.
        motion: of the horizontal velocity.
    """

    q: Array
    numbers: Array
    covariance: Array
    gyro: Array
    since: Array
    usual: Array
    level: Array
    balance: Balance
    heading: Heading
    rest: Rest
    motion: Motion


def started(sample: ImuSample, covariance: Array) -> Memory:
    """Return the memory before the first sample, where the attitude is unknown."""
    dtype = sample.dt.dtype
    zero, never = jnp.zeros((), dtype), jnp.zeros((), bool)
    _, gyro = present(sample.gyro, jnp.zeros(3, dtype))
    _, force = present(sample.accelerometer, jnp.asarray([0.0, 0.0, GRAVITY], dtype))
    return Memory(
        q=jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype),
        numbers=jnp.zeros(len(covariance) - 3, dtype),
        covariance=covariance,
        gyro=gyro,
        since=jnp.zeros(3, dtype),
        usual=jnp.full((), -1.0, dtype),
        level=never,
        balance=balanced(zero),
        heading=Heading(jnp.full((), -1.0, dtype), zero, jnp.zeros(3, dtype), no_field(dtype)),
        rest=Rest(jnp.concatenate([gyro, force]), zero, never),
        motion=no_motion(dtype),
    )
