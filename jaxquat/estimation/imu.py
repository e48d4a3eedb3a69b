"""Samples of an inertial sensor with magnetometer, and settings and error model of ``ahrs``.

The error has 18 elements: attitude (3), bias (3), horizontal velocity (2), declination (1), and the
nine errors of the gyroscope's response. ``F P F^T`` is computed from the blocks of the transition F
that differ from the identity, at an eighth of the cost of (18, 18) products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import divisor, exactly, instance, vector
from jaxquat._internal.linear import square
from jaxquat._internal.renamed import has_old_fields
from jaxquat.estimation.arguments import check_sizes
from jaxquat.estimation.interval import Interval, checked, intervals
from jaxquat.quaternion import conjugate, correct_norm, exp, log, multiply, rotate, to_matrix
from jaxquat.recordings import Recording
from jaxquat.recordings.recording import check_times

SIZE = 18
VELOCITY, DECLINATION, RESPONSE = 6, 8, 9  # first indices in the error
_ALL_DIGITS = lax.Precision.HIGHEST
_FORCE_NOISE = 1e-3  # m/s^2/sqrt(Hz): density of an accelerometer, which never limits the velocity


@has_old_fields("estimation.AhrsSettings")
class AhrsSettings(NamedTuple):
    """The settings of ``ahrs``, a pytree of numbers (); all but ``latency`` are positive.

    An observation of density s [unit sqrt(s)] has the standard deviation s/sqrt(dt) in a sample of
    length dt, so the settings do not depend on the sampling rate.

    Attributes:
        gyro: density of the white noise of the rates [rad/s/sqrt(Hz)].
        gyro_by_rate: further noise density, proportional to the rate [1/sqrt(Hz)].
        bias_random_walk: density of the random walk of the bias [rad/s^2/sqrt(Hz)].
        start_bias: standard deviation of the bias at the start, where its estimate is 0 [rad/s].
        start_response: standard deviation of the errors of gain and alignment at the start
            [1 or rad].
        start_heading: standard deviation of the magnetic heading at the start [rad].
        velocity: least density of the observation that the velocity is 0 [m/s sqrt(s)].
        velocity_by_motion: further density of that observation, in units of the density of the
            velocity over times of ``velocity_time``, as the accelerometer measures it.
        velocity_time: time over which the density of the velocity is measured [s].
        heading: density of the magnetic heading [rad sqrt(s)].
        heading_gate: an innovation of this many standard deviations doubles its variance.
        declination: standard deviation of the local declination, a random process [rad].
        declination_time: correlation time of the declination [s].
        field_gate: relative change of the field's norm, or change of the sine of its dip, that
            multiplies the variance of the heading by four.
        field_time: time in which norm and dip of the undisturbed field are learned, and after which
            another field that stays the same counts as undisturbed [s].
        rest_rate: at rest the measured rate, bias included, is below this and changes by less than
            this in about 0.5 s [rad/s]. A slower turn counts as rest and its rate as bias: lower
            this for a body that turns slowly; raise this and ``start_bias`` for a raw MEMS
            gyroscope.
        rest_acceleration: at rest the specific force changes by less than this in about 0.5 s
            [m/s^2].
        rest_time: the body is at rest once both conditions have held for this long [s] and the mean
            force is vertical to 0.1 m/s^2 plus three deviations of the tilt. Derivatives with
            respect to this, ``rest_rate`` and ``rest_acceleration`` are 0; the estimates jump.
        rest_velocity: density of the observation, at rest, that the velocity is 0 [m/s sqrt(s)].
        rest_bias: density of the observation of the bias at rest [rad/s sqrt(s)].
        acceleration: standard deviation of the angular acceleration while the gyroscope misses
            samples, beyond its usual interval [rad/s^2].
        latency: time from the measurement of a sample to its reading [s], over which the attitude
            is extrapolated at the last rate.

    Examples:
        >>> settings = jq.estimation.AhrsSettings(heading=0.5)  # rad sqrt(s), where magnets disturb
        >>> f"{settings.heading / np.sqrt(0.01):.1f} rad"  # of one sample at 100 Hz
        '5.0 rad'
    """

    gyro: ArrayLike = 2e-3
    gyro_by_rate: ArrayLike = 5e-4
    bias_random_walk: ArrayLike = 1e-4
    start_bias: ArrayLike = 0.01
    start_response: ArrayLike = 3e-3
    start_heading: ArrayLike = 0.1
    velocity: ArrayLike = 0.2
    velocity_by_motion: ArrayLike = 1.0
    velocity_time: ArrayLike = 8.0
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
    acceleration: ArrayLike = 1.0
    latency: ArrayLike = 0.0


class ImuSample(NamedTuple):
    """One sample of ``ahrs``, or a recording if each array has a leading axis (N,).

    A sensor with a NaN or an infinity counts as not read. Without a gyroscope reading, the last
    rate is used; after its usual interval, the covariance grows by ``AhrsSettings.acceleration``.
    Each sensor may have rows of its own, in any order among rows of equal times (intervals of 0): a
    sample covers the time since the sensor's last one, at most 1 s.

    Attributes:
        dt: time since the previous sample, an ``estimation.Interval`` of ().
        gyro: mean rate since the previous sample of the gyroscope [rad/s], body axes, (3,).
        accelerometer: specific force at the time of the sample [m/s^2], body axes, (3,).
        magnetometer: magnetic field at the time of the sample, body axes, any unit, (3,).

    Examples:
        >>> unread = jnp.full((n, 3), jnp.nan)  # no magnetometer
        >>> samples = jq.estimation.ImuSample(imu.dt, imu.gyro, imu.accelerometer, unread)
    """

    dt: Interval
    gyro: Array
    accelerometer: Array
    magnetometer: Array


def imu_samples(recording: Recording) -> ImuSample:
    """Return the samples of a recording for ``ahrs``. -> ImuSample with leading axis (N,).

    Sensors may have rates and stamps of their own, as ``read_ulog`` returns them. Intervals are
    computed in float64; the arrays have JAX's default precision.

    Args:
        recording: with gyro and accelerometer; without a magnetometer the heading is not observed.
            At rest with z up, the accelerometer has +9.81 in z; the other sign cannot be detected
            and gives a body that is upside down.

    Raises:
        TypeError, ValueError: no finite sample of gyro or accelerometer, all specific forces 0,
            times that do not increase, or medians unlikely in SI: intervals of 2 s or more, rates
            of 35 rad/s or more, specific forces of 0.5 to 2 or of 100 m/s^2 or more. Forces without
            gravity, also by ``run``: over T seconds their mean length is below 9.81 - 300/T.

    Examples:
        >>> t, force = 1.7e9 + np.arange(100) / 100, np.tile([0.0, 0.0, 9.81], (100, 1))
        >>> recording = jq.recordings.Recording(t, np.zeros((100, 3)), accelerometer=force)
        >>> f"{jq.estimation.imu_samples(recording).dt.seconds.sum():.2f} s"
        '0.99 s'
    """
    instance("recording", recording, Recording, "a recordings.Recording")
    for name in ("gyro", "accelerometer"):
        if getattr(recording, name) is None:
            raise ValueError(f"recording: wanted {name}, got none")
        if not np.isfinite(getattr(recording, name)).all(axis=1).any():
            raise ValueError(f"recording.{name}: wanted a finite sample at least, got none")
    if not np.any(np.nan_to_num(recording.accelerometer)):
        raise ValueError("recording.accelerometer: wanted specific forces, got 0 in all samples")
    check_times("recording.t", recording.t)
    missing = np.full((len(recording.t), 3), np.nan)
    field = missing if recording.magnetometer is None else recording.magnetometer
    sensors = recording.gyro, recording.accelerometer, field
    steps = np.diff(np.asarray(recording.t, np.float64), prepend=recording.t[0])
    check_sizes("recording", steps, *sensors[:2])
    return ImuSample(intervals(recording.t), *map(jnp.asarray, sensors))


def merge(samples: ImuSample, every: int) -> ImuSample:
    """Merge every ``every`` of N samples into one. -> ImuSample with a leading axis (N/every,).

    The merged rate gives the same turn as its samples together, coning included. Specific force and
    field are rotated to the body axes at the end and averaged, without NaN. ``ahrs`` then costs
    1/every of the time and memory, and loses little while a merged turn is below half a radian.

    Args:
        samples: the samples of one recording, with finite gyroscope.
        every: a divisor of N.

    Examples:
        >>> merged = jax.jit(jq.estimation.merge, static_argnums=1)(imu, 5)
        >>> merged.gyro.shape, f"{merged.dt.seconds[0]:.2f} s"
        ((10, 3), '0.50 s')
    """
    instance("samples", samples, ImuSample, "an estimation.ImuSample")
    dt = vector("samples.dt", checked("samples.dt", samples.dt))
    vectors = [exactly(f"samples.{name}", getattr(samples, name), (dt.size, 3))
               for name in ImuSample._fields[1:]]  # fmt: skip
    every = divisor("every", every, dt.size, "samples")
    samples = ImuSample(Interval(dt), *vectors)
    return jax.vmap(_merged)(jax.tree.map(lambda x: x.reshape(-1, every, *x.shape[1:]), samples))


def _merged(samples: ImuSample) -> ImuSample:
    def turn(q: Array, u: Array) -> tuple[Array, Array]:
        q = correct_norm(multiply(q, exp(u)))
        return q, q

    start = jnp.zeros(4, samples.gyro.dtype).at[0].set(1.0)
    end, q = lax.scan(turn, start, samples.dt.seconds[:, None] * samples.gyro)
    total = jnp.sum(samples.dt.seconds)
    gyro = log(end) / jnp.where(total > 0, total, 1.0)
    to_end = multiply(conjugate(end)[None], q)

    def mean(vectors: Array) -> Array:
        valid = ~jnp.any(jnp.isnan(vectors), axis=1, keepdims=True)
        return jnp.mean(rotate(to_end, vectors), axis=0, where=valid)  # NaN without a valid one

    return ImuSample(Interval(total), gyro, mean(samples.accelerometer), mean(samples.magnetometer))


def transition_of(
    q: Array, gyro: Array, dt: Array, decay: Array, impulse: Array
) -> Callable[[Array], Array]:
    """Return the product ``matrix -> F matrix``, (18, n), with the transition F of the error."""
    by_rate = -dt * to_matrix(q)

    def applied(matrix: Array) -> Array:
        response = matrix[RESPONSE:].reshape(3, 3, -1)
        rate = matrix[3:6] + jnp.einsum("ijk,j->ik", response, gyro, precision=_ALL_DIGITS)
        tilt = impulse * jnp.stack([matrix[1], -matrix[0]])
        parts = (
            matrix[:3] + jnp.matmul(by_rate, rate, precision=_ALL_DIGITS),
            matrix[3:6],
            matrix[VELOCITY:DECLINATION] + tilt,
            decay * matrix[DECLINATION:RESPONSE],
            matrix[RESPONSE:],
        )
        return jnp.concatenate(parts)

    return applied


def variances_of(settings: AhrsSettings, gyro: Array, dt: Array, decay: Array) -> Array:
    """Return the variances that a step adds to the error, (18,)."""
    rate = settings.gyro**2 + settings.gyro_by_rate**2 * square(gyro)
    parts = (
        jnp.full(3, rate * dt),
        jnp.full(3, settings.bias_random_walk**2 * dt),
        jnp.full(2, _FORCE_NOISE**2 * dt),
        jnp.full(1, settings.declination**2 * (1.0 - decay**2)),
        jnp.zeros(9, dt.dtype),
    )
    return jnp.concatenate(parts)
