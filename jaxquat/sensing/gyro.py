"""A model of a rate gyroscope: what it measures of a true rate, and how to undo its errors."""

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
    """The errors of a rate gyroscope, a pytree.

    ``measured = (1 + diag(scale)) (1 + M) omega + bias + noise``, where M has the six misalignments
    off its diagonal, row by row. There are two white noises, as usual: ``noise`` makes the angle's
    random walk, ``walk`` drives the bias. A perfect gyroscope is ``Gyro.ideal()``.

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
        """A gyroscope without errors: the start of a calibration."""
        zero = jnp.zeros((), floating_dtype("dtype", dtype))
        return Gyro(jnp.zeros(3, dtype), jnp.zeros(3, dtype), jnp.zeros(6, dtype), zero, zero)


def response(gyro: Gyro) -> Array:
    """The matrix ``(1 + diag(scale)) (1 + M)`` from true to measured rate. -> (3, 3)."""
    instance("gyro", gyro, Gyro, "a jq.gyro.Gyro")
    misalignment = exactly("gyro.misalignment", gyro.misalignment, (6,))
    scale = exactly("gyro.scale", gyro.scale, (3,))
    finite("gyro.misalignment", misalignment)
    finite("gyro.scale", scale)
    if is_concrete(scale) and not np.all(np.asarray(scale) > -1):
        raise ValueError(f"gyro.scale: wanted values above -1, got {np.asarray(scale)}")
    xy, xz, yx, yz, zx, zy = misalignment
    one = jnp.ones_like(xy)
    rows = jnp.stack([jnp.stack(row) for row in ([one, xy, xz], [yx, one, yz], [zx, zy, one])])
    if is_concrete(rows) and not np.linalg.det(np.asarray(rows)) > 100 * jnp.finfo(rows.dtype).eps:
        wanted, got = "axes that span space", np.asarray(misalignment)
        raise ValueError(f"gyro.misalignment: wanted {wanted}, got {got}")
    return (1.0 + scale)[:, None] * rows


def measure(gyro: Gyro, omega: ArrayLike, dt: ArrayLike, key: Array) -> Array:
    """What the gyroscope measures of N true rates [rad/s]. (N, 3) -> (N, 3) [rad/s].

    The rates are ``dt`` [s] apart, and ``key`` draws the noise. Differentiable by gyro, omega and
    dt; the result has the dtype of omega.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    instance("gyro", gyro, Gyro, "a jq.gyro.Gyro")
    omega, dt = _samples("omega", omega), exactly("dt", dt, ())
    positive("dt", dt)
    dt = dt.astype(omega.dtype)
    white, steps = jax.random.normal(random_key("key", key), (2, *omega.shape), omega.dtype)
    noise, walk = _density("gyro.noise", gyro.noise), _density("gyro.walk", gyro.walk)
    walked = jnp.cumsum(walk * jnp.sqrt(dt) * steps, axis=0)
    walked = jnp.concatenate([jnp.zeros_like(walked[:1]), walked[:-1]])  # the first sample has none
    true = matvec(response(gyro)[None], omega)
    return true + _bias(gyro) + walked + noise / jnp.sqrt(dt) * white


def correct(gyro: Gyro, measured: ArrayLike) -> Array:
    """The rates that N measured ones [rad/s] stand for. (N, 3) -> (N, 3) [rad/s].

    Bias, scale and misalignment are undone; the noise stays. Differentiable by both arguments.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    measured = _samples("measured", measured)
    return matvec(inverse(response(gyro))[None], measured - _bias(gyro))


def _bias(gyro: Gyro) -> Array:
    bias = exactly("gyro.bias", gyro.bias, (3,))
    finite("gyro.bias", bias)
    return bias[None]


def _density(name: str, value: ArrayLike) -> Array:
    """The density of a noise on each axis, (1, 3)."""
    value = one_shape(name, value, (), (3,))
    not_negative(name, value)
    return jnp.broadcast_to(value, (1, 3))


def _samples(name: str, value: ArrayLike) -> Array:
    value = floating(name, value)
    if value.ndim != 2 or value.shape[1] != 3:
        raise ValueError(f"{name}: wanted shape (N, 3), got {value.shape}")
    return value
