"""A model of a rate gyroscope: simulate its readings of a true rate, and correct its errors."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, single_or_double
from jaxquat._internal.linear import matvec
from jaxquat._internal.renamed import has_old_fields
from jaxquat.sensors import axes

__all__ = ["Gyro", "correct", "measure", "sample"]


@has_old_fields("gyro.Gyro")
class Gyro(NamedTuple):
    """The errors of a rate gyroscope, a pytree.

    ``measured = (1 + diag(scale)) (1 + M) omega + bias + noise``, where M has the six misalignments
    off its diagonal, row by row. Of the two white noises, ``noise`` causes the random walk of the
    angle, ``bias_random_walk`` that of the bias.

    Attributes:
        bias: bias at the first sample [rad/s], (3,).
        scale: relative errors of the three gains, (3,), above -1: no gain is 0 or negative.
        misalignment: xy, xz, yx, yz, zx, zy [rad], (6,), so small that the axes span space.
        noise: density of the white noise [rad/s/sqrt(Hz)], () or (3,), at least 0.
        bias_random_walk: density of the bias's random walk [rad/s^2/sqrt(Hz)], () or (3,), at least
            0.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.01, 0.0, -0.02]))  # rad/s
    """

    bias: Array
    scale: Array
    misalignment: Array
    noise: Array
    bias_random_walk: Array

    @staticmethod
    def ideal(dtype: jax.typing.DTypeLike | None = None) -> Gyro:
        """Return a gyroscope without errors, to start a calibration from.

        Examples:
            >>> gyro = jq.gyro.Gyro.ideal()
        """
        return Gyro(*axes.ideal(dtype))


def measure(key: Array, gyro: Gyro, omega: ArrayLike, dt: ArrayLike) -> Array:
    """Simulate the readings of a gyroscope for N true rates [rad/s]. (N, 3) -> (N, 3) [rad/s].

    The rates are ``dt`` [s] apart, and ``key`` draws the noise. Differentiable with respect to
    gyro, omega and dt; the result has the dtype of omega.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(noise=jnp.array(1e-3))  # rad/s/sqrt(Hz)
        >>> measured = jq.gyro.measure(jax.random.key(0), gyro, jnp.zeros((10_000, 3)), 0.01)
        >>> f"{measured.std():.3f} rad/s"  # 1e-3/sqrt(0.01 s)
        '0.010 rad/s'
    """
    axes.key_first("gyro", key, Gyro)
    return axes.measure(key, axes.checked(gyro, Gyro), axes.samples("omega", omega), dt)


def sample(
    gyro: Gyro, memory: ArrayLike, omega: ArrayLike, dt: ArrayLike, noise: ArrayLike
) -> tuple[Array, Array]:
    """Simulate one sample of the gyroscope, for a loop. -> (measured (3,) [rad/s], memory (3,)).

    Args:
        gyro: the errors of the gyroscope.
        memory: the walk of the bias [rad/s], (3,), from the previous call; at first zeros.
        omega: true rate [rad/s], (3,). For a gyroscope that integrates, as ``VectorSample.gyro`` of
            a filter requires, pass the mean since the last sample.
        dt: time between the samples [s], ().
        noise: standard normals (2, 3), for noise and walk; in a controller from ``inputs=``.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.25, 0.0, 0.0]))
        >>> rate, noise = jnp.array([0.5, 0.0, 0.0]), jnp.zeros((2, 3))
        >>> measured, memory = jq.gyro.sample(gyro, jnp.zeros(3), rate, 0.1, noise)  # 0.75 about x
    """
    gyro = axes.checked(gyro, Gyro)
    omega = exactly("omega", omega, (3,))
    memory, noise = exactly("memory", memory, (3,)), exactly("noise", noise, (2, 3))
    for name, value in (("omega", omega), ("memory", memory), ("noise", noise)):
        single_or_double(name, value)
    dt = axes.spacing(dt, omega)
    measured = matvec(axes.response(gyro), omega) + (gyro.bias + memory)
    measured = measured + gyro.noise / jnp.sqrt(dt) * noise[0]
    return measured, memory + gyro.bias_random_walk * jnp.sqrt(dt) * noise[1]


def correct(gyro: Gyro, measured: ArrayLike) -> Array:
    """Estimate the true rates from N measured ones; noise remains. (N, 3) -> (N, 3) [rad/s].

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.5, 0.0, 0.0]), scale=jnp.ones(3))
        >>> jq.gyro.correct(gyro, jnp.array([[2.5, 1.0, 0.0]]))  # (measured - bias)/2
        Array([[1. , 0.5, 0. ]], dtype=float32)
    """
    return axes.correct(axes.checked(gyro, Gyro), measured)
