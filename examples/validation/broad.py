"""Score the two filters whose errors on its recordings BROAD published.

D. Laidig et al., Data 6(7), 2021: Madgwick (report, University of Bristol, 2010) with beta = 0.12
and Mahony, Hamel and Pflimlin (IEEE Trans. Autom. Control 53, 2008, 1203-1218) with kP = 0.74 and
kI = 0.0012, with one gain for all recordings. Axes are north, west, up.
"""

from functools import partial

import jax
import jax.numpy as jnp

from examples import attitude_filter as example
from jaxquat import quaternion

UP = jnp.array([0.0, 0.0, 1.0])
EAST = quaternion.exp(0.5 * jnp.pi * UP)  # from axes north, west, up to east, north, up
BETA, K_P, K_I = 0.12, 0.74, 0.0012


def unit(x):
    """Return a vector of length 1."""
    return x / jnp.linalg.norm(x)


def rotation(q):
    """Return the matrix of q; its derivative by a q that is not unit is that of the programs."""
    w, x, y, z = q
    rows = [
        [0.5 - y * y - z * z, x * y - w * z, x * z + w * y],
        [x * y + w * z, 0.5 - x * x - z * z, y * z - w * x],
        [x * z - w * y, y * z + w * x, 0.5 - x * x - y * y],
    ]
    return 2.0 * jnp.array(rows)


def reference(q, mag):
    """Return the field in the world, turned about the vertical to the north."""
    field = rotation(q) @ mag
    return jnp.stack([jnp.hypot(field[0], field[1]), jnp.zeros_like(field[2]), field[2]])


def turned(q, omega, dt):
    """Return the change of q in Euler's step of ``q' = 1/2 q omega``."""
    return 0.5 * dt * quaternion.multiply(q, jnp.concatenate([jnp.zeros(1), omega]))


def madgwick(as_published, carry, sample):
    """Take a step along the gradient of the squared errors of both directions."""
    (q, bias), (dt, gyro, acc, mag) = carry, sample
    north = (0.5 if as_published else 1.0) * reference(q, mag)

    def misfit(q):
        errors = UP @ rotation(q) - acc, north @ rotation(q) - mag
        return 0.5 * sum(jnp.sum(error**2) for error in errors)

    q = unit(q + turned(q, gyro, dt) - dt * BETA * unit(jax.grad(misfit)(q)))
    return (q, bias), q


def mahony(carry, sample):
    """Take a step of the explicit complementary filter with a bias."""
    (q, bias), (dt, gyro, acc, mag) = carry, sample
    error = jnp.cross(acc, UP @ rotation(q)) + jnp.cross(mag, reference(q, mag) @ rotation(q))
    bias = bias + dt * K_I * error
    q = unit(q + turned(q, gyro + K_P * error + bias, dt))
    return (q, bias), q


@partial(jax.jit, static_argnums=(0, 1))
def scored(name, as_published, samples, seen):
    """Return total, heading and inclination [deg] of a filter on a recording."""
    acc, mag = (jax.vmap(unit)(x) for x in (samples.accelerometer, samples.magnetometer))
    west = unit(jnp.cross(acc[0], mag[0]))
    axes = jnp.stack([jnp.cross(west, acc[0]), west, acc[0]])
    if as_published:
        axes = (jnp.array([[-1.0], [-1.0], [1.0]]) * axes).T
    step = mahony if name == "mahony" else partial(madgwick, as_published)
    start = quaternion.from_matrix(axes), jnp.zeros(3)
    q = jax.lax.scan(step, start, (samples.dt.seconds, samples.gyro, acc, mag))[1]
    return example.scores(quaternion.multiply(EAST, q), seen)[:3]
