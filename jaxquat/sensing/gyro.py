"""A rate gyroscope: what it makes of the true rate, and how to undo that."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import (
    exactly,
    finite,
    floating,
    floating_dtype,
    instance,
    is_concrete,
    not_negative,
    one_shape,
    positive,
    random_key,
)
from jaxquat._linear import inverse, matvec

__all__ = ["Gyro", "correct", "measure", "response"]


class Gyro(NamedTuple):
    """The errors of a rate gyroscope, a pytree: ``measured = (1 + diag(scale)) (1 + M) omega + bias + noise``.

    M has the six misalignments off its diagonal, row by row. Two white noises, as usual: ``noise`` makes the angle's random walk,
    ``walk`` drives the bias. A perfect one is ``Gyro.ideal()``.

    Attributes:
        bias: at the first sample [rad/s], (3,).
        scale: relative errors of the three gains, (3,), above -1: no gain is 0 or negative.
        misalignment: xy, xz, yx, yz, zx, zy [rad], (6,), so small that the axes span space.
        noise: density of the white noise [rad/s/sqrt(Hz)], () or (3,), at least 0.
        walk: density of the bias's random walk [rad/s^2/sqrt(Hz)], () or (3,), at least 0.
    """

    bias: Array
    scale: Array
    misalignment: Array
    noise: Array
    walk: Array

    @staticmethod
    def ideal(dtype: jax.typing.DTypeLike | None = None) -> Gyro:
        """No error: the start of a calibration."""
        zero = jnp.zeros((), floating_dtype("dtype", dtype))
        return Gyro(jnp.zeros(3, dtype), jnp.zeros(3, dtype), jnp.zeros(6, dtype), zero, zero)


def response(gyro: Gyro) -> Array:
    """The matrix ``(1 + diag(scale)) (1 + M)`` from true to measured rate. -> (3, 3)."""
    instance("gyro", gyro, Gyro, "a sensors.Gyro")
    misalignment, scale = (
        exactly("gyro.misalignment", gyro.misalignment, (6,)),
        exactly("gyro.scale", gyro.scale, (3,)),
    )
    finite("gyro.misalignment", misalignment)
    finite("gyro.scale", scale)
    if is_concrete(scale) and not np.all(np.asarray(scale) > -1):
        raise ValueError(f"gyro.scale: wanted values above -1, got {np.asarray(scale)}")
    xy, xz, yx, yz, zx, zy = misalignment
    one = jnp.ones_like(xy)
    rows = jnp.stack([jnp.stack(row) for row in ([one, xy, xz], [yx, one, yz], [zx, zy, one])])
    if is_concrete(rows) and not np.linalg.det(np.asarray(rows)) > 100 * jnp.finfo(rows.dtype).eps:
        raise ValueError(
            f"gyro.misalignment: wanted axes that span space, got {np.asarray(misalignment)}"
        )
    return (1.0 + scale)[:, None] * rows


def measure(gyro: Gyro, omega: ArrayLike, dt: ArrayLike, key: Array) -> Array:
    """What the gyroscope reports of N rates ``dt`` [s] apart: (N, 3) -> (N, 3) [rad/s], differentiable by gyro, omega and dt."""
    instance("gyro", gyro, Gyro, "a sensors.Gyro")
    omega, dt = _samples("omega", omega), exactly("dt", dt, ())
    positive("dt", dt)
    dt = dt.astype(omega.dtype)
    white, steps = jax.random.normal(random_key("key", key), (2, *omega.shape), omega.dtype)
    noise, walk = (
        jnp.broadcast_to(_density(f"gyro.{name}", getattr(gyro, name)), (1, 3))
        for name in ("noise", "walk")
    )
    walk = jnp.cumsum(walk * jnp.sqrt(dt) * steps, axis=0)
    walk = jnp.concatenate([jnp.zeros_like(walk[:1]), walk[:-1]])
    return matvec(response(gyro)[None], omega) + _bias(gyro) + walk + noise / jnp.sqrt(dt) * white


def correct(gyro: Gyro, measured: ArrayLike) -> Array:
    """The rates that explain N measured ones by bias, scale and misalignment: (N, 3) -> (N, 3) [rad/s]."""
    measured = _samples("measured", measured)
    return matvec(inverse(response(gyro))[None], measured - _bias(gyro))


def _bias(gyro: Gyro) -> Array:
    bias = exactly("gyro.bias", gyro.bias, (3,))
    finite("gyro.bias", bias)
    return bias[None]


def _density(name: str, value: ArrayLike) -> Array:
    value = one_shape(name, value, (), (3,))
    not_negative(name, value)
    return value


def _samples(name: str, value: ArrayLike) -> Array:
    value = floating(name, value)
    if value.ndim != 2 or value.shape[1] != 3:
        raise ValueError(f"{name}: wanted shape (N, 3), got {value.shape}")
    return value
