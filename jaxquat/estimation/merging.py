"""Fewer, longer samples of an inertial sensor."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._checks import divisor, exactly, floating, instance
from jaxquat.estimation.imu import ImuSample
from jaxquat.quaternion import conjugate, correct_norm, exp, log, multiply, rotate


def merge(samples: ImuSample, every: int) -> ImuSample:
    """Merge each ``every`` of N samples into one. -> ImuSample with N/every in front.

    The rotations are composed, so a merged gyroscope turns as far as its samples together, coning
    included; the rate is that of the whole rotation. Specific force and field are turned to the
    axes at the end and averaged, without those that are NaN. ``ahrs`` then costs 1/every of the
    time and memory, and loses little while a merged turn is below half a radian.

    Args:
        samples: of one recording, with finite gyroscope.
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
    """The mean of the rows that have no NaN; NaN where all have."""
    valid = ~jnp.any(jnp.isnan(vectors), axis=1, keepdims=True)
    count = jnp.sum(valid, dtype=vectors.dtype)
    total = jnp.sum(jnp.where(valid, vectors, 0.0), axis=0)
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)
