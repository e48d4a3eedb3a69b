"""The memory of ``ahrs`` between samples, a record for each part; fields without a shape are ()."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxquat.estimation.arguments import GRAVITY
from jaxquat.estimation.filtering import present
from jaxquat.estimation.imu import ImuSample


class MeanForce(NamedTuple):
    """The mean specific force, which shows a lost tilt."""

    mean: Array  # mean over some seconds, world axes [m/s^2], (3,)
    off_time: Array  # for how long it has not pointed up [s]
    gravity: Array  # as the accelerometer measures it at rest [m/s^2]; 0 before the first rest


class MagneticField(NamedTuple):
    """The magnetic field, as (norm, sine of the dip), (2,); all 0 before the first reading."""

    smoothed: Array  # low-passed readings
    undisturbed: Array  # the field that gives the heading its full weight
    candidate: Array  # the field that is there now, which replaces the undisturbed one if it stays
    candidate_time: Array  # for how long the candidate has stayed the same [s]
    total_time: Array  # for how long there have been readings [s]


class HorizontalField(NamedTuple):
    """The horizontal part of the magnetic field relative to its norm, in world axes."""

    mean: Array  # low-passed readings, (2,)
    variance: Array  # of a component of a reading
    share: Array  # variance of ``mean`` in units of this one, if the readings are independent


class Heading(NamedTuple):
    """The magnetic heading."""

    age: Array  # for how long a magnetometer has given the heading [s]; -1 if it does not
    tilt_variance: Array  # variance of the tilt when the heading began [rad^2]
    early_field: Array  # last measured field until the tilt is known, body axes, (3,)
    field: MagneticField
    horizontal: HorizontalField


class Rest(NamedTuple):
    """The detector of rest."""

    smoothed: Array  # low-passed gyroscope and accelerometer, (6,)
    still_time: Array  # for how long the sensors have hardly changed [s]
    at_rest: Array  # whether the body is at rest


class Motion(NamedTuple):
    """The horizontal motion; all 0 at the start."""

    acceleration: Array  # low-passed [m/s^2], (2,)
    velocity: Array  # high-passed [m/s], (2,)
    smoothed: Array  # the velocity after a low-pass as well [m/s], (2,)
    mean_square: Array  # mean square of a component of ``smoothed`` [m^2/s^2]
    known: Array  # share of the velocity that is known, from 0 at a start in motion to 1


class Memory(NamedTuple):
    """The memory of ``ahrs`` between samples."""

    q: Array  # attitude without the latency, (4,)
    numbers: Array  # bias, velocity, declination, response, (15,)
    covariance: Array  # of the error, (18, 18)
    gyro: Array  # last measured rate [rad/s], (3,)
    since_read: Array  # times since gyroscope, accelerometer, magnetometer were last read [s], (3,)
    gyro_interval: Array  # usual one [s]; -1 before the first reading, 0 before the second
    has_tilt: Array  # whether an accelerometer has given the tilt
    mean_force: MeanForce
    heading: Heading
    rest: Rest
    motion: Motion


def vertical_force(gravity: Array) -> MeanForce:
    """Return the memory of a mean force that agrees with the tilt, for this measured gravity."""
    up = jnp.asarray([0.0, 0.0, GRAVITY], gravity.dtype)
    return MeanForce(up, jnp.zeros_like(gravity), gravity)


def no_horizontal_field(zero: Array) -> HorizontalField:
    """Return the memory before the first reading, which then counts alone."""
    return HorizontalField(jnp.stack([zero, zero]), zero, zero + 1e6)


def start_memory(sample: ImuSample, covariance: Array) -> Memory:
    """Return the memory before the first sample, where the attitude is unknown."""
    dtype = sample.gyro.dtype
    zero, minus_one, pair = jnp.zeros((), dtype), jnp.full((), -1.0, dtype), jnp.zeros(2, dtype)
    _, gyro = present(sample.gyro, jnp.zeros(3, dtype))
    _, force = present(sample.accelerometer, jnp.asarray([0.0, 0.0, GRAVITY], dtype))
    field = MagneticField(pair, pair, pair, zero, zero)
    return Memory(
        q=jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype),
        numbers=jnp.zeros(len(covariance) - 3, dtype),
        covariance=covariance,
        gyro=gyro,
        since_read=jnp.zeros(3, dtype),
        gyro_interval=minus_one,
        has_tilt=jnp.zeros((), bool),
        mean_force=vertical_force(zero),
        heading=Heading(minus_one, zero, jnp.zeros(3, dtype), field, no_horizontal_field(zero)),
        rest=Rest(jnp.concatenate([gyro, force]), zero, jnp.zeros((), bool)),
        motion=Motion(pair, pair, pair, zero, zero),
    )
