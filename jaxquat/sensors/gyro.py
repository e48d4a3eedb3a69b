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
    off its diagonal, row by row. There are two white noises, as usual: ``noise`` causes the random
    walk of the angle, ``bias_random_walk`` drives the bias.

    Attributes:
        bias: bias at the first sample [rad/s], (3,).
        scale: relative errors of the three gains, (3,), above -1: no gain is 0 or negative.
        misalignment: xy, xz, yx, yz, zx, zy [rad], (6,), so small that the axes span space.
        noise: density of the white noise [rad/s/sqrt(Hz)], () or (3,), at least 0.
        bias_random_walk: density of the bias's random walk [rad/s^2/sqrt(Hz)], () or (3,), at least
            0.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.01, 0.0, -0.02]))  # rad/s
        >>> jq.gyro.measure(jax.random.key(0), gyro, jnp.zeros((5, 3)), 0.01)[-1]
        Array([ 0.01,  0.  , -0.02], dtype=float32)
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
            >>> jq.gyro.Gyro.ideal().scale
            Array([0., 0., 0.], dtype=float32)
        """
        return Gyro(*axes.ideal(dtype))


def measure(key: Array, gyro: Gyro, omega: ArrayLike, dt: ArrayLike) -> Array:
    """Simulate the readings of a gyroscope for N true rates [rad/s]. (N, 3) -> (N, 3) [rad/s].

    The rates are ``dt`` [s] apart, and ``key`` draws the noise. Differentiable with respect to
    gyro, omega and dt; the result has the dtype of omega.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(noise=jnp.array(1e-3))  # rad/s/sqrt(Hz)
        >>> rates = jnp.zeros((10_000, 3))
        >>> measured = jax.jit(jq.gyro.measure)(jax.random.key(0), gyro, rates, 0.01)
        >>> f"{measured.std():.3f} rad/s"  # 1e-3/sqrt(0.01 s)
        '0.010 rad/s'
    """
    axes.key_first("gyro", key, Gyro)
    return axes.measure(key, axes.checked(gyro, Gyro), axes.samples("omega", omega), dt)


def sample(
    gyro: Gyro, memory: ArrayLike, omega: ArrayLike, dt: ArrayLike, noise: ArrayLike
) -> tuple[Array, Array]:
    """Simulate one sample of the gyroscope, for a loop. -> (measured (3,) [rad/s], memory (3,)).

    The memory is the accumulated walk of the bias [rad/s]; start with zeros. For a whole recording,
    use ``measure``. Differentiable.

    Args:
        gyro: the errors of the gyroscope.
        memory: the memory from the previous call, (3,).
        omega: true rate [rad/s], (3,). For a gyroscope that integrates, pass the mean since the
            last sample, as required for ``VectorSample.gyro`` of a filter.
        dt: time between the samples [s], ().
        noise: standard normal numbers, (2, 3): for the white noise and for the walk of the bias. A
            controller gets them through ``inputs=``.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.25, 0.0, 0.0]))
        >>> rate, noise = jnp.array([0.5, 0.0, 0.0]), jnp.zeros((2, 3))
        >>> measured, memory = jq.gyro.sample(gyro, jnp.zeros(3), rate, 0.1, noise)
        >>> measured
        Array([0.75, 0.  , 0.  ], dtype=float32)
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
    """Estimate the true rates from N measured ones [rad/s]. (N, 3) -> (N, 3) [rad/s].

    Bias, scale and misalignment are corrected; the noise remains. Differentiable with respect to
    both arguments.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

    Examples:
        >>> gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.array([0.5, 0.0, 0.0]), scale=jnp.ones(3))
        >>> jq.gyro.correct(gyro, jnp.array([[2.5, 1.0, 0.0]]))  # (measured - bias)/2
        Array([[1. , 0.5, 0. ]], dtype=float32)
    """
    return axes.correct(axes.checked(gyro, Gyro), measured)
