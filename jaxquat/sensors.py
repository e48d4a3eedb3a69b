"""A rate gyroscope: what it makes of the true rate, and how to undo that."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat.arguments import exactly, floating, instance, is_concrete, one_shape, random_key
from jaxquat.linear import inverse, matvec

__all__ = ["Gyro", "correct", "measure", "response"]


class Gyro(NamedTuple):
    """The errors of a rate gyroscope, a pytree: ``measured = (1 + diag(scale)) (1 + M) omega + bias + noise``.

    M has the six misalignments off its diagonal, row by row. Two white noises, as usual: ``noise`` makes the angle's random walk,
    ``walk`` drives the bias. A perfect one is ``Gyro.ideal()``.

    Attributes:
        bias: at the first sample [rad/s], (3,).
        scale: relative errors of the three gains, (3,).
        misalignment: xy, xz, yx, yz, zx, zy [rad], (6,).
        noise: density of the white noise [rad/s/sqrt(Hz)], () or (3,).
        walk: density of the bias's random walk [rad/s^2/sqrt(Hz)], () or (3,).
    """

    bias: Array
    scale: Array
    misalignment: Array
    noise: Array
    walk: Array

    @staticmethod
    def ideal(dtype: jax.typing.DTypeLike | None = None) -> "Gyro":
        """No error: the start of a calibration."""
        zero = jnp.zeros((), dtype)
        return Gyro(jnp.zeros(3, dtype), jnp.zeros(3, dtype), jnp.zeros(6, dtype), zero, zero)


def response(gyro: Gyro) -> Array:
    """The matrix ``(1 + diag(scale)) (1 + M)`` from true to measured rate. -> (3, 3)."""
    instance("gyro", gyro, Gyro, "a sensors.Gyro")
    xy, xz, yx, yz, zx, zy = exactly("gyro.misalignment", gyro.misalignment, (6,))
    one = jnp.ones_like(xy)
    rows = jnp.stack([jnp.stack(row) for row in ([one, xy, xz], [yx, one, yz], [zx, zy, one])])
    return (1.0 + exactly("gyro.scale", gyro.scale, (3,)))[:, None] * rows


def measure(gyro: Gyro, omega: ArrayLike, dt: ArrayLike, key: Array) -> Array:
    """What the gyroscope reports of N rates ``dt`` [s] apart: (N, 3) -> (N, 3) [rad/s], differentiable by gyro, omega and dt."""
    omega, dt = _samples("omega", omega), exactly("dt", dt, ())
    if is_concrete(dt) and not float(dt) > 0:
        raise ValueError(f"dt: wanted a positive interval, got {dt}")
    dt = dt.astype(omega.dtype)
    white, steps = jax.random.normal(random_key("key", key), (2, *omega.shape), omega.dtype)
    noise, walk = (jnp.broadcast_to(one_shape(f"gyro.{name}", getattr(gyro, name), (), (3,)), (1, 3)) for name in ("noise", "walk"))
    walk = jnp.cumsum(walk * jnp.sqrt(dt) * steps, axis=0)
    walk = jnp.concatenate([jnp.zeros_like(walk[:1]), walk[:-1]])
    bias = exactly("gyro.bias", gyro.bias, (3,))[None]
    return matvec(response(gyro)[None], omega) + bias + walk + noise / jnp.sqrt(dt) * white


def correct(gyro: Gyro, measured: ArrayLike) -> Array:
    """The rates that explain N measured ones by bias, scale and misalignment: (N, 3) -> (N, 3) [rad/s]."""
    measured = _samples("measured", measured)
    return matvec(inverse(response(gyro))[None], measured - exactly("gyro.bias", gyro.bias, (3,))[None])


def _samples(name: str, value: ArrayLike) -> Array:
    value = floating(name, value)
    if value.ndim != 2 or value.shape[1] != 3:
        raise ValueError(f"{name}: wanted shape (N, 3), got {value.shape}")
    return value
