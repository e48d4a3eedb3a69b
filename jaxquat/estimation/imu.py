"""The samples of an inertial sensor with magnetometer, and what ``ahrs`` assumes of it."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jax.typing import ArrayLike


class Settings(NamedTuple):
    """What ``ahrs`` assumes, a pytree of numbers (); all but ``latency`` are positive.

    An observation whose density is s [unit sqrt(s)] has the standard deviation s/sqrt(dt) in a
    sample of length dt, so the settings do not depend on the sampling rate.

    Attributes:
        gyro: density of the white noise of the rates [rad/s/sqrt(Hz)].
        gyro_by_rate: the same in proportion to the rate [1/sqrt(Hz)].
        walk: density of the random walk of the bias [rad/s^2/sqrt(Hz)].
        start_bias: of the bias, which begins as 0 [rad/s].
        start_response: of the errors of gain and alignment, which begin as 0 [1 or rad].
        start_heading: of the heading that a magnetometer gives at the beginning [rad].
        velocity: density of the velocity's observation as 0 [m/s sqrt(s)].
        velocity_by_acceleration: the same in proportion to the root-mean-square horizontal
            acceleration [s sqrt(s)] over ``acceleration_time`` [s].
        acceleration_time: [s].
        heading: density of the magnetic heading [rad sqrt(s)].
        heading_gate: an innovation of this many standard deviations doubles its variance.
        declination: of the local declination [rad], a random process that forgets its value in
            ``declination_time`` [s].
        declination_time: [s].
        field_gate: relative change of the field's norm, or change of the sine of its dip, at which
            the variance of the heading is four times as large.
        field_time: time in which the norm and dip that count as undisturbed are learned [s].
        rest_rate: a body at rest has a measured rate below this [rad/s], the bias included, which
            changes by less in about 0.5 s. A slow turn counts as rest and its rate as bias, so
            lower this for a body that turns slowly.
        rest_acceleration: at rest the specific force changes by less than this in about 0.5 s
            [m/s^2].
        rest_time: the body is at rest once both have held for so long [s].
        rest_velocity: density of the velocity's observation as 0 at rest [m/s sqrt(s)].
        rest_bias: density of the bias's observation at rest [rad/s sqrt(s)].
        latency: the sample that is read at a time was measured this much earlier [s]. The attitude
            is turned on by as much, at the last rate.

    Examples:
        >>> settings = jq.estimation.Settings(heading=0.5)  # rad sqrt(s), where magnets disturb
        >>> f"{settings.heading / np.sqrt(0.01):.1f} rad"  # of one sample at 100 Hz
        '5.0 rad'
    """

    gyro: ArrayLike = 1e-3
    gyro_by_rate: ArrayLike = 5e-4
    walk: ArrayLike = 1e-4
    start_bias: ArrayLike = 0.01
    start_response: ArrayLike = 3e-3
    start_heading: ArrayLike = 0.1
    velocity: ArrayLike = 0.2
    velocity_by_acceleration: ArrayLike = 0.1
    acceleration_time: ArrayLike = 3.0
    heading: ArrayLike = 0.3
    heading_gate: ArrayLike = 1.0
    declination: ArrayLike = 0.08
    declination_time: ArrayLike = 30.0
    field_gate: ArrayLike = 0.05
    field_time: ArrayLike = 15.0
    rest_rate: ArrayLike = 0.035
    rest_acceleration: ArrayLike = 0.5
    rest_time: ArrayLike = 1.5
    rest_velocity: ArrayLike = 4e-3
    rest_bias: ArrayLike = 7e-3
    latency: ArrayLike = 0.0


class ImuSample(NamedTuple):
    """One sample of ``ahrs``; with an axis (N,) in front of each array, a recording.

    A sensor with a NaN or an infinity was not read. Without the gyroscope its last rate is taken,
    and the covariance grows as if it had been read: after a long gap it is too small.

    Attributes:
        dt: time since the sample before [s], at least 0, ().
        gyro: mean rate since then [rad/s], body axes, (3,).
        accelerometer: specific force at the end [m/s^2], body axes, (3,).
        magnetometer: magnetic field at the end, body axes, any unit, (3,).

    Examples:
        >>> n = 100
        >>> samples = jq.estimation.ImuSample(
        ...     dt=jnp.full(n, 0.01),
        ...     gyro=jnp.zeros((n, 3)),
        ...     accelerometer=jnp.tile(jnp.array([0.0, 0.0, 9.81]), (n, 1)),
        ...     magnetometer=jnp.full((n, 3), jnp.nan),  # not read
        ... )
        >>> f"{samples.dt.sum():.2f} s"
        '1.00 s'
    """

    dt: Array
    gyro: Array
    accelerometer: Array
    magnetometer: Array
