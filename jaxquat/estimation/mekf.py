"""The multiplicative extended Kalman filter: attitude and gyroscope bias.

E. J. Lefferts, F. L. Markley and M. D. Shuster, Kalman filtering for spacecraft attitude
estimation, J. Guid. Control Dyn. 5(5), 1982. Here, the attitude error is in world axes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat import so3
from jaxquat._internal import checks
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import matvec, square, stacked, transpose
from jaxquat._internal.renamed import has_old_fields, takes_old_names
from jaxquat.estimation.arguments import cast, sample_of, unit_or_missing
from jaxquat.estimation.error_state import Error, Update, consistency, observed, predicted
from jaxquat.estimation.filtering import Estimate, Filter, Linearized, corrected, present
from jaxquat.estimation.interval import Interval
from jaxquat.quaternion import conjugate, correct_norm, exp, log, multiply, rotate, to_matrix


@has_old_fields("estimation.MekfSettings")
class MekfSettings(NamedTuple):
    """The settings of ``mekf``, a pytree; densities are those of ``jq.gyro.Gyro``.

    Attributes:
        gyro: density of the white noise of the rates [rad/s/sqrt(Hz)].
        bias_random_walk: density of the bias's random walk [rad/s^2/sqrt(Hz)].
        vectors: standard deviation of each component of a measured vector, in its unit; () or (k,).
        attitude: standard deviation of a measured attitude [rad], () or per body axis, (3,); or its
            covariance in body axes [rad^2], (3, 3). If R maps the star tracker's axes to body axes,
            use ``R @ diag(deviations**2) @ R.T``.
        start_attitude: standard deviation of the attitude at the start about each axis [rad].
        start_bias: standard deviation of the bias at the start [rad/s]; its estimate starts at 0.
        acceleration: standard deviation of the angular acceleration about each axis while the
            gyroscope gives no reading [rad/s^2].

    Examples:
        >>> settings = jq.estimation.MekfSettings(gyro=3e-4, attitude=1e-3)
        >>> f"{settings.gyro / np.sqrt(0.01):.3f} rad/s"  # of one sample at 100 Hz
        '0.003 rad/s'
    """

    gyro: ArrayLike = 1e-4
    bias_random_walk: ArrayLike = 1e-6
    vectors: ArrayLike = 0.01
    attitude: ArrayLike = 1e-4
    start_attitude: ArrayLike = 0.1
    start_bias: ArrayLike = 0.01
    acceleration: ArrayLike = 0.1


class VectorSample(NamedTuple):
    """One sample of ``mekf``, or a recording if each array has a leading axis (N,).

    A vector or attitude with a NaN counts as not measured. An attitude whose norm differs from 1 by
    more than 1e-4 is an error, under jit ignored. While the gyroscope has a NaN, its last rate is
    held (0 before the first): a gap T after a sample of length dt increases the attitude's variance
    by ``T^2 gyro^2/dt + (acceleration T (T + dt)/2)^2``.

    Attributes:
        dt: time since the previous sample, an ``estimation.Interval`` of ().
        gyro: mean rate since the previous sample [rad/s], body axes, (3,).
        vectors: k measured vectors, body axes, (k, 3): directions, specific force, magnetic field.
        references: the same vectors in world axes and the same units, (k, 3).
        attitude: measured attitude, body to world, (4,); NaN without a star tracker.

    Examples:
        >>> dt, force, unknown = jq.estimation.Interval(0.1), up[None], jnp.full(4, jnp.nan)
        >>> sample = jq.estimation.VectorSample(dt, jnp.zeros(3), force, force, unknown)
        >>> jax.jit(mekf.step)(mekf.init(sample), sample)[1].observations
        Array(3., dtype=float32)
    """

    dt: Interval
    gyro: Array
    vectors: Array
    references: Array
    attitude: Array


class _Memory(NamedTuple):
    q: Array
    bias: Array
    covariance: Array
    gyro: Array  # last measured rate
    length: Array  # length of the sample that measured it [s]
    gap: Array  # time since that sample [s]


@takes_old_names("estimation.mekf")
def mekf(
    q: ArrayLike, settings: MekfSettings | None = None, *, gate: ArrayLike = jnp.inf
) -> Filter:
    """Make a filter of attitude and gyroscope bias from vectors and attitudes. -> Filter.

    Its samples are ``estimation.VectorSample``; its error is (attitude [rad], bias [rad/s]), n = 6,
    and ``others`` is empty.

    Args:
        q: unit attitude to start from, (4,).
        settings: standard deviations, differentiable; None for ``MekfSettings()``.
        gate: an observed vector or attitude is ignored if its innovation is longer than this many
            standard deviations, (): accelerations, magnets and a star tracker's outliers.

    Examples:
        >>> tilted = jq.quaternion.exp(jnp.array([0.02, 0.0, 0.0]))  # of a star tracker
        >>> sample = jax.tree.map(lambda rows: rows[0], samples)._replace(attitude=tilted)
        >>> settings = jq.estimation.MekfSettings(attitude=0.1, start_attitude=0.1)  # rad, equal
        >>> mekf = jq.estimation.mekf(level, settings)
        >>> memory, estimate = jax.jit(mekf.step)(mekf.init(sample), sample)
        >>> f"{jq.quaternion.distance(level, estimate.q):.3f} rad"  # half way
        '0.010 rad'
    """
    q = checks.exactly("q", q, (4,))
    checks.unit_quaternion("q", q)
    settings = MekfSettings() if settings is None else settings
    checked_record("settings", settings, MekfSettings, _SETTINGS, "estimation.MekfSettings")
    gate = checks.exactly("gate", gate, ())
    checks.positive("gate", gate, or_infinite=True)

    def init(sample: VectorSample) -> _Memory:
        dtype = _checked(sample).gyro.dtype
        start = [jnp.asarray(x, dtype) for x in (settings.start_attitude, settings.start_bias)]
        covariance = jnp.diag(jnp.repeat(jnp.stack(start) ** 2, 3))
        zero, none = jnp.zeros((), dtype), jnp.zeros(3, dtype)
        return _Memory(q.astype(dtype), none, covariance, none, zero, zero)

    def linearize(memory: _Memory, sample: VectorSample) -> tuple[_Memory, Estimate, Linearized]:
        sample = _checked(sample)
        vectors, k = jnp.shape(settings.vectors), len(sample.vectors)
        if vectors not in ((), (k,)):
            wanted = f"shape () or ({k},), one for each vector of a sample"
            raise ValueError(f"settings.vectors: wanted {wanted}, got {vectors}")
        dtype = sample.gyro.dtype
        numbers = cast(settings, dtype)
        dt = sample.dt.seconds
        valid = jnp.all(jnp.isfinite(sample.gyro)) & (dt > 0)  # it is 0 in padding
        gyro = jnp.where(valid, sample.gyro, memory.gyro)
        length = jnp.where(valid, dt, memory.length)
        gap = jnp.where(valid, 0.0, memory.gap + dt)
        held = _held(numbers, length, gap) - _held(numbers, length, memory.gap)
        variance = jnp.where(valid, numbers.gyro**2 * dt, held)
        sample = sample._replace(gyro=gyro)
        q, transition, noise, covariance = _predict(memory, sample, variance, numbers)
        error = Error(jnp.zeros(6, dtype), covariance)
        error, updates = _observe(error, q, sample, numbers, gate.astype(dtype))
        estimate = Estimate(q, memory.bias, jnp.zeros(0, dtype), covariance, *consistency(updates))
        estimate = corrected(estimate, error)
        memory = _Memory(estimate.q, estimate.bias, estimate.covariance, gyro, length, gap)
        return memory, estimate, Linearized(transition, noise, error.mean)

    return Filter(init, lambda memory, sample: linearize(memory, sample)[:2], linearize)


def _held(settings: MekfSettings, length: Array, gap: Array) -> Array:
    """Return the variance [rad^2] of a gap in which the mean rate of one sample was held."""
    some = length > 0
    noise = jnp.where(some, settings.gyro**2 / jnp.where(some, length, 1.0), 0.0)
    return gap**2 * noise + (0.5 * settings.acceleration * gap * (gap + length)) ** 2


def _predict(
    memory: _Memory, sample: VectorSample, variance: Array, settings: MekfSettings
) -> tuple[Array, Array, Array, Array]:
    """Return the attitude after a turn of this variance; transition, noise, covariance, (6, 6)."""
    dt = sample.dt.seconds
    half = exp(0.5 * dt * (sample.gyro - memory.bias))
    middle = multiply(memory.q, half)
    eye, zero = jnp.eye(3, dtype=dt.dtype), jnp.zeros((3, 3), dt.dtype)
    transition = jnp.block([[eye, -dt * to_matrix(middle)], [zero, eye]])
    noise = jnp.diag(jnp.repeat(jnp.stack([variance, dt * settings.bias_random_walk**2]), 3))
    q = correct_norm(multiply(middle, half))
    return q, transition, noise, predicted(memory.covariance, transition, noise)


def _observe(
    error: Error, q: Array, sample: VectorSample, settings: MekfSettings, gate: Array
) -> tuple[Error, tuple[Update, ...]]:
    """Return the error after all observations of a sample; each is gated as a whole."""
    zero = jnp.zeros((3, 3), q.dtype)
    updates: tuple[Update, ...] = ()
    sigmas = jnp.broadcast_to(settings.vectors, sample.vectors.shape[:1])
    for vector, reference, sigma in zip(sample.vectors, sample.references, sigmas, strict=True):
        known, reference = present(reference, jnp.zeros_like(reference))
        valid, vector = present(vector, jnp.zeros_like(vector))
        # exp(-e) r = r - e × r: a vector turned to the world by the estimate is off by r × e
        rows = jnp.concatenate([so3.hat(reference), zero], axis=1)
        residual = rotate(q, vector) - reference
        variances = jnp.broadcast_to(sigma**2, (3,))
        error, block = _gated(error, rows, residual, variances, known & valid, gate)
        updates += block
    off = jnp.abs(jnp.sqrt(square(sample.attitude)) - 1.0)
    valid, measured = present(jnp.where(off <= 1e-4, sample.attitude, jnp.nan), q)
    residual = log(multiply(measured, conjugate(q)))
    # To second order in the residual, body-axes noise maps to the world at half the residual.
    to_body = transpose(to_matrix(multiply(exp(-0.5 * residual), measured)))
    unit_lower, variances = _independent(jnp.asarray(settings.attitude))
    rows = jnp.matmul(unit_lower, to_body, precision=lax.Precision.HIGHEST)
    residual, rows = matvec(rows, residual), jnp.concatenate([rows, zero], axis=1)
    error, block = _gated(error, rows, residual, variances, valid, gate)
    return error, updates + block


def _gated(
    error: Error, rows: Array, residual: Array, variances: Array, valid: Array, gate: Array
) -> tuple[Error, tuple[Update, ...]]:
    after, updates = error, []
    for row, value, variance in zip(rows, residual, variances, strict=True):
        after, update = observed(after, row[None], value[None], variance[None], valid[None])
        updates.append(update)
    near = consistency(updates)[0] <= gate**2
    after = jax.tree.map(lambda new, old: jnp.where(near, new, old), after, error)
    return after, jax.tree.map(lambda x: jnp.where(near, x, 0.0), tuple(updates))


def _independent(noise: Array) -> tuple[Array, Array]:
    """Return unit lower triangular L, and d (3,) with ``L C L^T = diag(d)`` for a covariance C."""
    eye = jnp.eye(3, dtype=noise.dtype)
    if noise.ndim < 2:
        return eye, jnp.broadcast_to(noise**2, (3,))
    a, b = noise[1, 0] / noise[0, 0], noise[2, 0] / noise[0, 0]
    second = noise[1, 1] - a * noise[1, 0]
    across = noise[2, 1] - b * noise[1, 0]
    c = across / second
    third = noise[2, 2] - b * noise[2, 0] - c * across
    one, none = jnp.ones_like(a), jnp.zeros_like(a)
    rows = stacked([[one, none, none], [-a, one, none], [a * c - b, -c, one]])
    return rows, jnp.stack([noise[0, 0], second, third])


def _attitude_noise(name: str, value: Array) -> None:
    if value.ndim < 2:
        checks.positive(name, value)
        return
    checks.finite(name, value)
    checks.symmetric(name, value)
    if checks.is_concrete(value) and not np.linalg.eigvalsh(np.asarray(value, float))[0] > 0:
        raise ValueError(f"{name}: wanted a positive definite covariance, got {value.tolist()}")


_SETTINGS = dict.fromkeys(MekfSettings._fields, Field([()], checks.not_negative)) | {
    "vectors": Field([(), ("k",)], checks.positive),
    "attitude": Field([(), (3,), (3, 3)], _attitude_noise),
}


def _checked(sample: VectorSample) -> VectorSample:
    checks.instance("sample", sample, VectorSample, "an estimation.VectorSample")
    shape = jnp.shape(sample.vectors)
    if len(shape) != 2 or shape[1] != 3:
        raise ValueError(f"sample.vectors: wanted shape (k, 3), got {shape}")
    shapes = {"gyro": (3,), "vectors": shape, "references": shape, "attitude": (4,)}
    sample = sample_of(sample, shapes)
    unit_or_missing("sample.attitude", sample.attitude)
    return sample
