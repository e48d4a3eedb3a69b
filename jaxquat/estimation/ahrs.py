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

import jax.numpy as jnp

from jaxquat._internal.checks import finite, instance, positive
from jaxquat._internal.declared import Field, checked_record
from jaxquat.estimation import observations, stages
from jaxquat.estimation.arguments import cast, sample_of
from jaxquat.estimation.filtering import Estimate, Filter, Linearized, corrected, filter_of
from jaxquat.estimation.imu import ImuSample, Settings
from jaxquat.estimation.memory import Memory, started
from jaxquat.quaternion import exp, multiply


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
    settings = Settings() if settings is None else settings
    checked_record("settings", settings, Settings, _SETTINGS, "estimation.Settings")

    def init(sample: ImuSample) -> Memory:
        sample = _checked(sample)
        numbers = cast(settings, sample.dt.dtype)
        return started(sample, observations.start_covariance(numbers, sample.dt.dtype))

    def linearize(memory: Memory, sample: ImuSample) -> tuple[Memory, Estimate, Linearized]:
        sample = _checked(sample)
        return _linearize(cast(settings, sample.dt.dtype), memory, sample)

    return filter_of(init, linearize)


_SETTINGS = dict.fromkeys(Settings._fields, Field([()], positive))
_SETTINGS |= {"latency": Field([()], finite)}


def _linearize(
    settings: Settings, memory: Memory, sample: ImuSample
) -> tuple[Memory, Estimate, Linearized]:
    """One step: turn by the gyroscope, then correct by the other sensors and by rest."""
    row = stages.predicted(settings, memory, sample)
    tilt = stages.levelled(memory, row)
    north = stages.headed(settings, memory, row, tilt)
    rest = stages.rested(settings, memory, row, tilt, north.q)
    linear, numbers = observations.restarted(settings, memory, row, tilt, north, rest)
    error, updates, count = observations.observe(
        settings, row, tilt, north, rest, linear.covariance, numbers
    )
    none = jnp.asarray(jnp.nan, row.dt.dtype)
    numbers = numbers[:3], numbers[3:]
    estimate = corrected(Estimate(north.q, *numbers, linear.covariance, none, count, none), error)
    after = Memory(
        q=estimate.q,
        numbers=jnp.concatenate([estimate.bias, estimate.others]),
        covariance=estimate.covariance,
        gyro=row.gyro,
        since=row.since,
        usual=row.usual,
        level=tilt.level,
        balance=tilt.balance,
        heading=north.heading,
        rest=rest.rest,
        motion=rest.motion,
    )
    ahead = multiply(estimate.q, exp(settings.latency * (row.gyro - estimate.bias)))
    linearized = Linearized(linear.transition, linear.noise, updates)
    return after, estimate._replace(q=ahead), linearized


def _checked(sample: ImuSample) -> ImuSample:
    instance("sample", sample, ImuSample, "an estimation.ImuSample")
    return sample_of(sample, dict.fromkeys(ImuSample._fields[1:], (3,)))
