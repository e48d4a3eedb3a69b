"""The propagation of biases and white noise in the samples to the end of a motion.

A shift of a sensor channel during one step changes the step; the rest of the motion carries the
effect to the end. The sum of the effects is the derivative with respect to a bias, that of their
products, weighted by variances, the covariance. A vector is a list of three arrays with one number
per step, so XLA makes one plain loop, several times as fast as with a last axis of length 3. The
axes of the sensors are a scan, because XLA recomputes all but arguments of loops for each result.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal import series
from jaxquat._internal.linear import stacked
from jaxquat.kinematics.galilean import Motion

Vector = list[Array]

# The index pairs of the lower triangle of a covariance of nine errors.
_LOWER = [(i, j) for i in range(9) for j in range(i + 1)]


@jax.jit  # without jit, each eager call would compile the scan again
def propagate(xi: Array, before: Motion, after: Motion, variances: Array) -> tuple[Array, Array]:
    """Return the derivative of the final errors with respect to a shift of all samples (9, 6)."""
    # Return also their covariance (9, 9). The errors are rotation, velocity and displacement, all
    # in axes at the start of the motion. ``xi`` (M, 10) are the elements of the Galilean algebra
    # whose exponentials are the steps: the samples times the lengths of the steps. The motions lead
    # to start and end of each step. ``variances`` (M, 6) are those of the samples' white noise.
    element, q = _components(xi), _components(before.q)
    t = after.t[-1:] - after.t
    velocity = _components(after.v[-1:] - after.v)
    displacement = _components(after.p[-1:] - after.p - after.v * t)
    t = t[:, 0]

    def of_axis(covariance: Array, axis: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        """Add the covariance from the two channels of an axis; return the sums of effects."""
        shift, (gyro_variance, accel_variance) = axis
        turn, v, p, v_accel, p_accel = (_rotate(q, x) for x in _of_samples(element, shift))
        p = _plus(_plus(p, _times(t, v)), _cross(turn, displacement))
        gyro = [*turn, *_plus(v, _cross(turn, velocity)), *p]
        accel = [*v_accel, *_plus(p_accel, _times(t, v_accel))]

        def product(i: int, j: int) -> Array:
            products = gyro_variance * gyro[i] * gyro[j]
            if j >= 3:  # the specific force does not affect the rotation
                products = products + accel_variance * accel[i - 3] * accel[j - 3]
            return jnp.sum(products)

        products = jnp.stack([product(i, j) for i, j in _LOWER])
        sums = [jnp.stack([jnp.sum(x) for x in errors]) for errors in (gyro, accel)]
        return covariance + products, (sums[0], sums[1])

    variances = jnp.moveaxis(variances.reshape(-1, 2, 3), 0, 2).swapaxes(0, 1)
    axes = jnp.eye(3, dtype=xi.dtype), variances
    lower, (gyro, accel) = lax.scan(of_axis, jnp.zeros(len(_LOWER), xi.dtype), axes)
    place = {pair: k for k, pair in enumerate(_LOWER)}
    rows = [[lower[place[max(i, j), min(i, j)]] for j in range(9)] for i in range(9)]
    accel = jnp.concatenate([jnp.zeros((3, 3), xi.dtype), accel], axis=1)
    return jnp.concatenate([gyro, accel]).T, stacked(rows)


def _of_samples(element: Vector, axis: Array) -> tuple[Vector, ...]:
    """Return the effects on turn, velocity and displacement of shifts along an axis (3,)."""
    theta, nu, tau = element[:3], element[3:6], element[9]
    mean, second = _factors(theta)
    shift = [tau * x for x in axis]
    moved = mean.sum(theta, shift)
    p, p_accel = second.slope(theta, nu, shift), second.sum(theta, shift)
    return moved, mean.slope(theta, nu, shift), _times(tau, p), moved, _times(tau, p_accel)


class _Factors(NamedTuple):
    """``c v + f theta × v + g theta × (theta × v)``, with slopes of f and g along ``|theta|^2``."""

    c: float
    f: Array
    g: Array
    f_slope: Array
    g_slope: Array

    def sum(self, theta: Vector, v: Vector) -> Vector:
        """Return the function, which is linear in v."""
        once = _cross(theta, v)
        twice = _cross(theta, once)
        return _plus(_times(self.c, v), _plus(_times(self.f, once), _times(self.g, twice)))

    def slope(self, theta: Vector, v: Vector, d: Vector) -> Vector:
        """Return the derivative of the function with respect to theta along d."""
        once, crossed = _cross(theta, v), _cross(d, v)
        twice = _cross(theta, once)
        direct = _times(self.g, _plus(_cross(d, once), _cross(theta, crossed)))
        by_length = _plus(_times(self.f_slope, once), _times(self.g_slope, twice))
        by_length = _times(2.0 * _dot(theta, d), by_length)
        return _plus(_times(self.f, crossed), _plus(direct, by_length))


def _factors(theta: Vector) -> tuple[_Factors, _Factors]:
    """Return the factors of J, the sum of ``hat(theta)^n/(n+1)!``, and N, of ``.../(n+2)!``."""
    square = _dot(theta, theta)
    s = 0.25 * square
    sine, sine_slope = series.sin_defect(s), 0.25 * series.sin_defect_slope(s)
    cosine, cosine_slope = series.cos_defect(s), 0.25 * series.cos_defect_slope(s)
    mean = _Factors(1.0, 0.5 - square * cosine, sine, cosine - 0.5 * sine, sine_slope)
    return mean, _Factors(0.5, sine, cosine, sine_slope, cosine_slope)


def _rotate(q: Vector, v: Vector) -> Vector:
    """Rotate v by the quaternion q."""
    twice = _times(2.0, _cross(q[1:], v))
    return _plus(v, _plus(_times(q[0], twice), _cross(q[1:], twice)))


def _components(rows: Array) -> Vector:
    return [rows[:, k] for k in range(rows.shape[1])]


def _times(factor: Array | float, v: Vector) -> Vector:
    return [factor * x for x in v]


def _plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _dot(a: Vector, b: Vector) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Vector, b: Vector) -> Vector:
    return [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
