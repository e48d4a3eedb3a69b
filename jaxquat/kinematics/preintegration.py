"""Preintegration: the motion from gyroscope and accelerometer samples, for any start.

Rotation, change of velocity and displacement between two instants are computed once, in body axes
at the first instant, without the state there and without gravity. Their covariance from the noise
of the sensors and their derivatives by the biases are computed with them (T. Lupton and S.
Sukkarieh, IEEE Trans. Robotics 28, 2012, 61-76; C. Forster, L. Carlone, F. Dellaert and D.
Scaramuzza, IEEE Trans. Robotics 33, 2017, 1-21).

A step between two samples is one exponential in the Galilean group (``galilean``), and the motion
is the product of the steps. ``propagation`` has the derivatives and the covariance.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jaxquat import quaternion
from jaxquat._internal.checks import instance, is_concrete, not_negative, one_of, one_shape
from jaxquat._internal.linear import matmul, transpose
from jaxquat.kinematics import galilean
from jaxquat.kinematics.galilean import Motion
from jaxquat.kinematics.magnus_expansion import NODES, expansion
from jaxquat.kinematics.preintegrated import Imu, Preintegrated, blocks, checked_bias, of_dtype
from jaxquat.kinematics.propagation import propagate
from jaxquat.kinematics.samples import at_gauss_nodes
from jaxquat.sensors.axes import samples
from jaxquat.simulation.grid import grid_at


def preintegrate(
    gyro: ArrayLike,
    accel: ArrayLike,
    times: ArrayLike,
    bias: Imu | None = None,
    noise: Imu | None = None,
    *,
    order: int = 1,
) -> Preintegrated:
    """The motion from the first to the last of N samples of gyroscope and accelerometer.

    ::

        imu = jq.kinematics.Imu
        noise = imu(gyro=1e-4, accel=1e-3)
        motion = jq.kinematics.preintegrate(gyro, accel, times, imu(bias_gyro, bias_accel), noise)
        q, v, p = motion.predict(q0, v0, p0, jnp.array([0.0, 0.0, -9.81]))

    Differentiable by all arrays, in both modes. For several recordings use ``jax.vmap``; pad
    shorter ones by repeating their last time, with any samples. An interval of length 0 is the
    identity. Of several samples at one time, the last one counts; of several at the last time, the
    first one.

    Args:
        gyro: measured rates, body axes [rad/s], (N, 3), N >= 2.
        accel: measured specific forces (at rest minus gravity), body axes [m/s^2], (N, 3).
        times: times of the samples [s], (N,), not decreasing, at any distances; they are subtracted
            in their own dtype, and the differences are cast to the dtype of gyro.
        bias: the constant errors that the sensors add to the true values; None for 0.
        noise: densities of the white noise; None for 0. A sample has the variance ``density^2/dt``,
            as in ``jq.gyro.measure``, where dt is the interval for which it is held. The covariance
            is the one of the linearised errors.
        order: 1 holds each sample until the next one; the result is exact for such a motion, and
            the last sample is not used. 2, 4 and 6 are orders in the distance of the samples, for
            smooth motions: they use the polynomial through the nearest ``order`` samples, one-sided
            at the ends, and the Magnus expansion. 4 and 6 need at least that many samples; if the
            times are traced and fewer of them differ, the polynomial goes through all samples. For
            2, 4 and 6 the noise is treated as independent between intervals.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

    Examples:
        >>> n = 101
        >>> gyro, accel = jnp.zeros((n, 3)), jnp.tile(jnp.array([1.0, 0.0, 9.81]), (n, 1))
        >>> motion = jax.jit(jq.kinematics.preintegrate)(gyro, accel, jnp.linspace(0.0, 2.0, n))
        >>> start, gravity = jnp.zeros(3), jnp.array([0.0, 0.0, -9.81])
        >>> q, v, p = motion.predict(jnp.array([1.0, 0.0, 0.0, 0.0]), start, start, gravity)
        >>> f"{v[0]:.2f} m/s, {p[0]:.2f} m"  # 1 m/s^2 for 2 s
        '2.00 m/s, 2.00 m'
    """
    # Check and convert.
    one_of("order", order, (1, *NODES))
    order = int(order)  # 2.0 is 2
    gyro, accel = samples("gyro", gyro), samples("accel", accel)
    dtype, n = gyro.dtype, len(gyro)
    if accel.shape != gyro.shape:
        raise ValueError(f"accel: wanted the shape of gyro, {gyro.shape}, got {accel.shape}")
    accel = of_dtype("accel", accel, dtype)
    if n < max(order, 2):
        wanted = f"shape (N, 3) with N >= {max(order, 2)} for order {order}"
        raise ValueError(f"gyro: wanted {wanted}, got {gyro.shape}")
    grid = grid_at(times)
    if grid.intervals != n - 1:
        raise ValueError(f"times: wanted one for each of {n} samples, got {grid.intervals + 1}")
    zero = jnp.zeros(3, dtype)
    bias = Imu(zero, zero) if bias is None else checked_bias(bias, dtype)
    densities = jnp.zeros(6, dtype) if noise is None else _checked_densities(noise, dtype)
    lengths = grid.step_lengths()
    if is_concrete(lengths) and 1 + np.count_nonzero(lengths) < order:
        got = f"{1 + np.count_nonzero(lengths)} different ones"
        raise ValueError(f"times: wanted at least {order} for order {order}, got {got}")

    # Compute.
    values = jnp.concatenate([gyro - bias.gyro[None], accel - bias.accel[None]], axis=1)
    dt, count = jnp.asarray(lengths, dtype), n - 1
    if not is_concrete(lengths) or not np.all(lengths):
        values, dt, count = _packed(values, dt)
    xi, by_shift = _elements(values, dt, count, order)
    start = Motion(jnp.eye(4, dtype=dtype)[0], zero, zero, zero[:1])
    final, (before, after) = lax.scan(_advance, start, galilean.expm1(xi))
    variances = densities[None] ** 2 / jnp.where(dt == 0, jnp.ones_like(dt), dt)[:, None]
    jacobian, covariance = propagate(xi, by_shift, before, after, variances)
    # So far the rotation error is in axes at the start.
    zeros, one = jnp.zeros((3, 6), dtype), jnp.eye(6, dtype=dtype)
    to_end = blocks([transpose(quaternion.to_matrix(final.q)), zeros], [zeros.T, one])
    covariance = matmul(matmul(to_end, covariance), to_end.T)
    duration = jnp.asarray(_duration(grid.stamps), dtype)
    jacobian = -matmul(to_end, jacobian)
    return Preintegrated(*final[:3], duration, covariance, jacobian, bias)


def _advance(motion: Motion, step: Motion) -> tuple[Motion, tuple[Motion, Motion]]:
    after = galilean.advance(motion, step)
    return after, (motion, after)


def _duration(stamps: Any) -> Any:
    """The time from the first to the last stamp, in their dtype."""
    return stamps[-1] - stamps[0]


def _packed(values: Array, dt: Array) -> tuple[Array, Array, Array]:
    """Samples and intervals with the empty intervals last, and the number of nonempty ones."""
    steps, is_empty = len(dt), dt == 0
    order = jnp.argsort(is_empty, stable=True)
    count = steps - jnp.sum(is_empty)
    last = order[count - 1] + 1
    rows = jnp.where(jnp.arange(steps + 1) < count, jnp.append(order, last), last)
    return values[rows], dt[order], count


def _elements(
    values: Array, dt: Array, count: Array | int, order: int
) -> tuple[Array, Array | None]:
    """The Lie algebra elements of all steps (M, 10), and their derivatives by a shift (M, 10, 6).

    The derivatives are None for orders 1 and 2, where they are the length of the step for each
    channel.
    """
    number = jnp.arange(len(dt))
    if order == 1:
        nodes = [values[:-1]]
    elif order == 2:
        nodes = [0.5 * (values[:-1] + values[1:])]
    else:
        nodes = at_gauss_nodes(values, dt, jnp.minimum(number, count - 1), count + 1, order)
    time_part = jnp.zeros((len(dt), 4), dt.dtype).at[:, 3].set(1.0)

    def shifted(shift: Array) -> tuple[Array, Array]:
        elements = [jnp.concatenate([node + shift, time_part], axis=1) for node in nodes]
        xi = expansion(elements, dt[:, None], galilean.bracket)
        xi = jnp.where((number < count)[:, None], xi, jnp.zeros_like(xi))
        return xi, xi

    unshifted = jnp.zeros((1, 6), dt.dtype)
    if len(nodes) == 1:
        return shifted(unshifted)[0], None
    by_shift, xi = jax.jacfwd(shifted, has_aux=True)(unshifted)
    return xi, by_shift[:, :, 0]


def _checked_densities(noise: Imu, dtype: DTypeLike) -> Array:
    """Densities of the six channels, (6,)."""
    instance("noise", noise, Imu, "a jq.kinematics.Imu")
    channels = []
    for name, value in zip(("noise.gyro", "noise.accel"), noise, strict=True):
        density = one_shape(name, value, (), (3,))
        not_negative(name, density)
        channels.append(jnp.broadcast_to(of_dtype(name, density, dtype), (3,)))
    return jnp.concatenate(channels)
