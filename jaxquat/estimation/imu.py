"""Samples of an inertial sensor with magnetometer, and settings and error model of ``ahrs``.

The error has 18 elements: attitude (3), bias (3), horizontal velocity (2), declination (1), and the
nine errors of the gyroscope's response. Only a few blocks of its transition F differ from the
identity; computing ``F P F^T`` from these blocks costs an eighth of the two products of (18, 18)
matrices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import divisor, exactly, floating, instance, not_negative
from jaxquat._internal.linear import square, transpose
from jaxquat.estimation.arguments import not_stamps
from jaxquat.estimation.error_state import symmetric
from jaxquat.estimation.weight import check_weight
from jaxquat.quaternion import conjugate, correct_norm, exp, log, multiply, rotate, to_matrix
from jaxquat.recordings import Recording
from jaxquat.recordings.columns import SI
from jaxquat.recordings.recording import check_times
from jaxquat.recordings.units import unlikely_median

GRAVITY = 9.80665  # m/s^2
SIZE = 18
VELOCITY, DECLINATION, RESPONSE = 6, 8, 9  # first indices in the error
_ALL_DIGITS = lax.Precision.HIGHEST


class Settings(NamedTuple):
    """The settings of ``ahrs``, a pytree of numbers (); all but ``latency`` are positive.

    An observation of density s [unit sqrt(s)] has the standard deviation s/sqrt(dt) in a sample of
    length dt, so the settings do not depend on the sampling rate.

    Attributes:
        gyro: density of the white noise of the rates [rad/s/sqrt(Hz)].
        gyro_by_rate: further noise density, proportional to the rate [1/sqrt(Hz)].
        walk: density of the random walk of the bias [rad/s^2/sqrt(Hz)].
        start_bias: standard deviation of the bias at the start, where its estimate is 0 [rad/s].
        start_response: standard deviation of the errors of gain and alignment at the start, where
            their estimates are 0 [1 or rad].
        start_heading: standard deviation of the heading that a magnetometer gives at the start
            [rad].
        velocity: least density of the observation that the velocity is 0 [m/s sqrt(s)].
        velocity_by_motion: further density of that observation, in parts of the density that the
            velocity itself has over times of ``velocity_time``, as the accelerometer measures it.
        velocity_time: time over which the density of the velocity is measured [s].
        heading: density of the magnetic heading [rad sqrt(s)].
        heading_gate: an innovation of this many standard deviations doubles its variance.
        declination: standard deviation of the local declination, a random process [rad].
        declination_time: time in which the declination forgets its value [s].
        field_gate: relative change of the field's norm, or change of the sine of its dip, that
            multiplies the variance of the heading by four.
        field_time: time in which the norm and dip that count as undisturbed are learned, and after
            which a field that differs but stays the same counts as undisturbed [s].
        rest_rate: at rest the measured rate, bias included, is below this and changes by less than
            this in about 0.5 s [rad/s]. A slow turn counts as rest and its rate as bias, so lower
            this for a body that turns slowly. A bias beyond this is not found at rest: increase it
            and ``start_bias`` for a raw MEMS gyroscope.
        rest_acceleration: at rest the specific force changes by less than this in about 0.5 s
            [m/s^2].
        rest_time: the body is at rest once both conditions have held for this long [s] and the mean
            force is vertical to 0.1 m/s^2, beside three deviations of the tilt. The estimates jump
            with this setting, ``rest_rate`` and ``rest_acceleration``, and their derivatives by
            these three are 0.
        rest_velocity: density of the observation, at rest, that the velocity is 0 [m/s sqrt(s)].
        rest_bias: density of the observation of the bias at rest [rad/s sqrt(s)].
        acceleration: standard deviation of the angular acceleration while the gyroscope misses
            samples, beyond its usual interval [rad/s^2].
        latency: time from the measurement of a sample to its reading [s]. The attitude is
            extrapolated over this time at the last rate.

    Examples:
        >>> settings = jq.estimation.Settings(heading=0.5)  # rad sqrt(s), where magnets disturb
        >>> f"{settings.heading / np.sqrt(0.01):.1f} rad"  # of one sample at 100 Hz
        '5.0 rad'
    """

    gyro: ArrayLike = 2e-3
    gyro_by_rate: ArrayLike = 5e-4
    walk: ArrayLike = 1e-4
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
    rate is used, and from its usual interval on the covariance grows as for a body with the angular
    acceleration ``Settings.acceleration``. Each sensor may have rows of its own, at its own times
    and in any order among rows of equal times (``dt`` is 0): a sample covers the time since the
    last one of the same sensor, at most 1 s.

    Attributes:
        dt: time since the previous sample [s], at least 0, finite, ().
        gyro: mean rate since the previous sample of the gyroscope [rad/s], body axes, (3,).
        accelerometer: specific force at the time of the sample [m/s^2], body axes, (3,).
        magnetometer: magnetic field at the time of the sample, body axes, any unit, (3,).

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


def samples(recording: Recording) -> ImuSample:
    """The samples of a recording for ``ahrs``. -> ImuSample with leading axis (N,).

    Sensors may have rates and stamps of their own, as in a recording that ``read_ulog`` returns.
    Intervals are computed in float64, so times since 1970 lose nothing. The arrays have JAX's
    default precision. To pass times and arrays that are no Recording, make one::

        recording = jq.recordings.Recording(t, gyro, accelerometer=..., magnetometer=...)

    Args:
        recording: with gyro and accelerometer; without a magnetometer the heading is not observed.
            At rest with z up, the accelerometer has +9.81 in z. No reading tells the other sign:
            it gives a body that is upside down.

    Raises:
        TypeError, ValueError: there is no finite sample of gyro or accelerometer, all specific
            forces are 0, times do not increase, or medians are unlikely in SI: intervals of 2 s or
            more, rates of 35 rad/s or more, specific forces of 0.5 to 2 or of 100 m/s^2 or more.
            Forces without gravity are refused, as by ``run``: over T seconds their mean length is
            9.81 - 300/T or more for a body that does not come to fall by 300 m/s.

    Examples:
        >>> t = 1.7e9 + np.arange(100) / 100  # s since 1970
        >>> still, up = np.zeros((100, 3)), np.tile([0.0, 0.0, 9.81], (100, 1))
        >>> recording = jq.recordings.Recording(t, still, accelerometer=up)
        >>> samples = jq.estimation.samples(recording)
        >>> samples.dt.dtype, f"{samples.dt.sum():.2f} s"
        (dtype('float32'), '0.99 s')
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
    arrays = recording.intervals(), recording.gyro, recording.accelerometer, field
    check_sizes("recording", *arrays[:3])
    return ImuSample(*map(jnp.asarray, arrays))


def check_sizes(name: str, dt: np.ndarray, gyro: np.ndarray, force: np.ndarray) -> None:
    """ValueError if intervals, rates or forces have sizes of other units, or forces no gravity."""
    for channel, values, quantity in (
        ("t", dt, "intervals"),
        ("gyro", gyro, "rates"),
        ("accelerometer", force, "specific forces"),
    ):
        unlikely = unlikely_median(channel, values)
        if unlikely:
            median, unit = unlikely
            unit = f", {unit} for instance?" if unit else "?"
            got = f"a median of {median:.3g}; are they in another unit{unit}"
            got += " Subtract times in float64, with NumPy" if channel == "t" else ""
            got += " Or is gravity subtracted?" if channel == "accelerometer" else ""
            raise ValueError(f"{name}: wanted {quantity} in {SI[channel]}, got {got}")
    check_weight(name, dt, force)


def merge(samples: ImuSample, every: int) -> ImuSample:
    """Merge every ``every`` of N samples into one. -> ImuSample with a leading axis (N/every,).

    The rotations are composed, so the merged rate gives the same turn as its samples together,
    coning included. Specific force and field are rotated to the body axes at the end and averaged,
    without the samples that are NaN. ``ahrs`` then costs 1/every of the time and memory, and loses
    little while a merged turn is below half a radian.

    Args:
        samples: the samples of one recording, with finite gyroscope.
        every: a divisor of N.

    Examples:
        >>> n = 100
        >>> still, up = jnp.zeros((n, 3)), jnp.tile(jnp.array([0.0, 0.0, 9.81]), (n, 1))
        >>> samples = jq.estimation.ImuSample(jnp.full(n, 0.01), still.at[:, 2].set(0.5), up, still)
        >>> merged = jax.jit(jq.estimation.merge, static_argnums=1)(samples, 5)
        >>> merged.gyro.shape, f"{merged.dt[0]:.2f} s, {merged.gyro[0, 2]:.2f} rad/s"
        ((20, 3), '0.05 s, 0.50 rad/s')
    """
    instance("samples", samples, ImuSample, "an estimation.ImuSample")
    dt = floating("samples.dt", samples.dt)
    if dt.ndim != 1 or not dt.size:
        raise ValueError(f"samples.dt: wanted shape (N,) with N >= 1, got {dt.shape}")
    vectors = [exactly(f"samples.{name}", getattr(samples, name), (dt.size, 3))
               for name in ImuSample._fields[1:]]  # fmt: skip
    not_negative("samples.dt", dt)
    not_stamps("samples.dt", dt)
    every = divisor("every", every, dt.size, "samples")
    rows = [x.reshape(-1, every, *x.shape[1:]) for x in (dt, *vectors)]
    return jax.vmap(_merged)(ImuSample(*rows))


def _merged(samples: ImuSample) -> ImuSample:
    def turn(q: Array, u: Array) -> tuple[Array, Array]:
        q = correct_norm(multiply(q, exp(u)))
        return q, q

    start = jnp.zeros(4, samples.gyro.dtype).at[0].set(1.0)
    end, q = lax.scan(turn, start, samples.dt[:, None] * samples.gyro)
    total = jnp.sum(samples.dt)
    gyro = log(end) / jnp.where(total > 0, total, 1.0)
    to_end = multiply(conjugate(end)[None], q)
    averages = (_mean(rotate(to_end, x)) for x in (samples.accelerometer, samples.magnetometer))
    return ImuSample(total, gyro, *averages)


def _mean(vectors: Array) -> Array:
    """The mean of the rows without a NaN; NaN if every row has one."""
    valid = ~jnp.any(jnp.isnan(vectors), axis=1, keepdims=True)
    count = jnp.sum(valid, dtype=vectors.dtype)
    total = jnp.sum(jnp.where(valid, vectors, 0.0), axis=0)
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)


def transition_of(q: Array, gyro: Array, dt: Array, keep: Array, impulse: Array) -> Array:
    """The derivative of the error after a step by the error before it, (18, 18).

    ``impulse`` is the vertical specific force times its interval [m/s].
    """
    by_rate = -dt * to_matrix(q)
    by_response = (by_rate[:, :, None] * gyro[None, None, :]).reshape(3, 9)
    tilt = impulse * jnp.asarray([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], dt.dtype)
    matrix = jnp.eye(SIZE, dtype=dt.dtype).at[DECLINATION, DECLINATION].set(keep)
    matrix = matrix.at[:3, 3:6].set(by_rate).at[:3, RESPONSE:].set(by_response)
    return matrix.at[VELOCITY:DECLINATION, :3].set(tilt)


def propagated(
    covariance: Array, q: Array, gyro: Array, dt: Array, keep: Array, impulse: Array
) -> Array:
    """``F P F^T`` with the transition F, computed from its blocks."""
    by_rate = -dt * to_matrix(q)

    def applied(matrix: Array) -> Array:
        response = matrix[RESPONSE:].reshape(3, 3, SIZE)
        rate = matrix[3:6] + jnp.einsum("ijk,j->ik", response, gyro, precision=_ALL_DIGITS)
        tilt = impulse * jnp.stack([matrix[1], -matrix[0]])
        parts = (
            matrix[:3] + jnp.matmul(by_rate, rate, precision=_ALL_DIGITS),
            matrix[3:6],
            matrix[VELOCITY:DECLINATION] + tilt,
            keep * matrix[DECLINATION:RESPONSE],
            matrix[RESPONSE:],
        )
        return jnp.concatenate(parts)

    return symmetric(applied(transpose(applied(covariance))))


def variances_of(settings: Settings, gyro: Array, dt: Array, keep: Array) -> Array:
    """The variances that a step adds to the error, (18,)."""
    rate = settings.gyro**2 + settings.gyro_by_rate**2 * square(gyro)
    parts = (
        jnp.full(3, rate * dt),
        jnp.full(3, settings.walk**2 * dt),
        jnp.full(2, 1e-6 * dt),  # (m/s)^2: the accelerometer's own noise
        jnp.full(1, settings.declination**2 * (1.0 - keep**2)),
        jnp.zeros(9, dt.dtype),
    )
    return jnp.concatenate(parts)
