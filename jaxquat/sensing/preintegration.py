"""Preintegration: what the samples of a gyroscope and an accelerometer make of any start.

Rotation, gain in velocity and displacement between two instants are found once, in the axes of the
first one, without its state and without gravity. They come with the covariance that the noise of
the sensors makes and with the derivatives by their biases (T. Lupton and S. Sukkarieh, IEEE Trans.
Robotics 28, 2012, 61-76; C. Forster, L. Carlone, F. Dellaert and D. Scaramuzza, IEEE Trans.
Robotics 33, 2017, 1-21).

A step between two samples is one exponential in the Galilean group (``galilean``). Its derivative
by a shift of the samples is taken in forward mode and then carried to the end by the motion that
remains. Covariance and derivatives are sums over the steps of that one array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jaxquat import _reprs
from jaxquat._checks import (
    exactly,
    finite,
    instance,
    is_concrete,
    not_negative,
    one_of,
    one_shape,
    unit_quaternion,
)
from jaxquat._linear import cross, matmul, transpose
from jaxquat.rotations import quaternion, so3
from jaxquat.sensing import galilean
from jaxquat.sensing.galilean import Motion
from jaxquat.sensing.magnus import NODES, expansion
from jaxquat.sensing.samples import at_gauss_nodes
from jaxquat.sensing.triad import samples
from jaxquat.simulation.grid import grid_at

__all__ = ["Imu", "Preintegrated", "preintegrate"]


class Imu(NamedTuple):
    """One quantity of a gyroscope and of an accelerometer: their biases, or their noise densities.

    Attributes:
        gyro: bias [rad/s], (3,), or density of the white noise [rad/s/sqrt(Hz)], () or (3,).
        accel: bias [m/s^2], (3,), or density of the white noise [m/s^2/sqrt(Hz)], () or (3,).

    Examples:
        >>> noise = jq.kinematics.Imu(gyro=1e-4, accel=1e-3)  # densities
        >>> f"{noise.gyro / np.sqrt(0.01):.3f} rad/s"  # of one sample at 100 Hz
        '0.001 rad/s'
    """

    gyro: Any  # an Array or a number
    accel: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Preintegrated(_reprs.Tabular):
    """The motion between two instants as an inertial unit feels it. A pytree.

    The nine errors stand in this order: rotation, velocity, position. With the errors
    ``(a, b, c)``, (3,) each, the true motion is ``(dq exp(a), dv + b, dp + c)``: the rotation
    vector is in body axes at the END [rad], the others in body axes at the START [m/s] and [m].

    Attributes:
        dq: the rotation, a unit quaternion (4,): ``v_start = dq v_end dq*``.
        dv: the gain in velocity without gravity, body axes at the start [m/s], (3,).
        dp: the displacement from where a point at rest would be without gravity, in the same axes
            [m], (3,).
        dt: the time between the instants [s], ().
        covariance: of the nine errors, from the noise of the samples, (9, 9).
        jacobian: of the nine errors by the biases of gyroscope and accelerometer, (9, 6).
        bias: the biases at which all this holds.

    Examples:
        >>> n = 101
        >>> gyro, accel = jnp.zeros((n, 3)), jnp.tile(jnp.array([1.0, 0.0, 9.81]), (n, 1))
        >>> noise = jq.kinematics.Imu(gyro=1e-4, accel=1e-2)
        >>> times = jnp.linspace(0.0, 1.0, n)
        >>> motion = jax.jit(jq.kinematics.preintegrate)(gyro, accel, times, noise=noise)
        >>> f"{motion.dv[0]:.2f} +- {motion.covariance[3, 3] ** 0.5:.2f} m/s"  # 1e-2 sqrt(1 s)
        '1.00 +- 0.01 m/s'
    """

    dq: Array
    dv: Array
    dp: Array
    dt: Array
    covariance: Array
    jacobian: Array
    bias: Imu

    def with_bias(self, bias: Imu) -> Preintegrated:
        """The same samples with other biases, to first order in the change (Forster 2017, (44)).

        Covariance and Jacobian stay as they are.

        Raises:
            ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
        """
        bias = _checked_bias(bias, self.dv.dtype)
        change = jnp.concatenate([bias.gyro - self.bias.gyro, bias.accel - self.bias.accel])
        turn, dv, dp = jnp.split(_times(self.jacobian, change), 3)
        dq = quaternion.correct_norm(quaternion.multiply(self.dq, quaternion.exp(turn)))
        changed = dq, self.dv + dv, self.dp + dp
        return Preintegrated(*changed, self.dt, self.covariance, self.jacobian, bias)

    def compose(self, following: Preintegrated) -> Preintegrated:
        """The motion through this interval and the one that follows.

        With ``order`` 1 and 2 it is that of the joined samples to rounding, of which the last
        sample of this interval is the first of the following one. Both must have the same biases.

        Raises:
            ValueError, TypeError: an argument of wrong type, or other biases, by name.
        """
        instance("following", following, Preintegrated, "a Preintegrated")
        _check_same("following.bias", following.bias, self.bias)
        first, second = self._motion(), following._motion()
        motion = galilean.multiply(first, second)
        # An error of the first turn moves all that comes later.
        to_start, turned = quaternion.to_matrix(first.q), quaternion.to_matrix(second.q)
        zero, one = jnp.zeros_like(turned), jnp.eye(3, dtype=turned.dtype)
        from_first = _blocks(
            [transpose(turned), zero, zero],
            [-matmul(to_start, so3.hat(second.v)), one, zero],
            [-matmul(to_start, so3.hat(second.p)), following.dt * one, one],
        )
        from_second = _blocks([one, zero, zero], [zero, to_start, zero], [zero, zero, to_start])
        parts = ((from_first, self), (from_second, following))
        covariances = [matmul(matmul(f, x.covariance), f.T) for f, x in parts]
        jacobians = [matmul(f, x.jacobian) for f, x in parts]
        covariance, jacobian = covariances[0] + covariances[1], jacobians[0] + jacobians[1]
        return _preintegrated(motion, self.dt + following.dt, covariance, jacobian, self.bias)

    def predict(
        self, q: ArrayLike, velocity: ArrayLike, position: ArrayLike, gravity: ArrayLike
    ) -> tuple[Array, Array, Array]:
        """Attitude, velocity and position at the end, from those at the start and gravity.

        Args:
            q: attitude at the start, body to world, a unit quaternion (4,).
            velocity: of the inertial unit at the start, world axes [m/s], (3,).
            position: of the inertial unit at the start, world axes [m], (3,).
            gravity: acceleration of free fall, world axes [m/s^2], (3,): (0, 0, -9.81) with z up.

        Raises:
            ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
        """
        q, velocity = exactly("q", q, (4,)), exactly("velocity", velocity, (3,))
        position, gravity = exactly("position", position, (3,)), exactly("gravity", gravity, (3,))
        unit_quaternion("q", q)
        start = Motion(q, velocity, position, jnp.zeros_like(self.dt)[None])
        end = galilean.multiply(start, self._motion())
        fall = gravity * self.dt
        return end.q, end.v + fall, end.p + 0.5 * self.dt * fall

    def _motion(self) -> Motion:
        return Motion(self.dq, self.dv, self.dp, self.dt[None])

    def _table(self) -> _reprs.Table:
        names = "dq", "dv [m/s]", "dp [m]", "covariance", "jacobian"
        values = self.dq, self.dv, self.dp, self.covariance, self.jacobian
        rows = [(name, _reprs.short(value)) for name, value in zip(names, values, strict=True)]
        return f"Preintegrated over {_reprs.short(self.dt)} s", rows, ()


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

    Differentiable by all arrays, in both modes. ``jax.vmap`` takes several recordings; those that
    are shorter are padded by repeating their last time, with any samples. An interval of length 0
    is the identity. Of several samples at one time the last one counts, but at the last time the
    first one.

    Args:
        gyro: measured rates, body axes [rad/s], (N, 3), N >= 2.
        accel: measured specific forces (at rest minus gravity), body axes [m/s^2], (N, 3).
        times: of the samples [s], (N,), not decreasing, at any distances; the differences are taken
            in the dtype they have, then cast to that of gyro.
        bias: what the sensors add to the true values; None for 0.
        noise: densities of the white noise; None for 0. A sample has the variance
            ``density^2/dt``, as ``jq.gyro.measure`` makes it, where dt is the interval it is held
            for. The covariance is that of the linearised errors.
        order: 1 holds each sample until the next one, and the result is exact for such a motion;
            the last sample then has no part. 2, 4 and 6 are orders in the distance of the samples,
            for smooth motions: the polynomial through the nearest ``order`` samples, one-sided at
            the ends, and the Magnus expansion. 4 and 6 take at least so many samples; where the
            times are traced and fewer of them differ the polynomial is that through all. The noise
            is then taken as independent from interval to interval.

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
    accel = _of_dtype("accel", accel, dtype)
    if n < max(order, 2):
        wanted = f"shape (N, 3) with N >= {max(order, 2)} for order {order}"
        raise ValueError(f"gyro: wanted {wanted}, got {gyro.shape}")
    grid = grid_at(times)
    if grid.intervals != n - 1:
        raise ValueError(f"times: wanted one for each of {n} samples, got {grid.intervals + 1}")
    zero = jnp.zeros(3, dtype)
    bias = Imu(zero, zero) if bias is None else _checked_bias(bias, dtype)
    densities = jnp.zeros(6, dtype) if noise is None else _checked_densities(noise, dtype)
    dt = jnp.asarray(grid.step_lengths(), dtype)
    if is_concrete(grid.stamps) and 1 + np.count_nonzero(grid.step_lengths()) < order:
        got = f"{1 + np.count_nonzero(grid.step_lengths())} different ones"
        raise ValueError(f"times: wanted at least {order} for order {order}, got {got}")

    # Compute.
    values = jnp.concatenate([gyro - bias.gyro[None], accel - bias.accel[None]], axis=1)
    values, dt, count = _packed(values, dt)
    step, by_shift = _steps(values, dt, count, order)
    start = Motion(jnp.eye(4, dtype=dtype)[0], zero, zero, zero[:1])

    def advance(motion: Motion, step: Motion) -> tuple[Motion, tuple[Motion, Motion]]:
        after = galilean.advance(motion, step)
        return after, (motion, after)

    final, (before, after) = lax.scan(advance, start, step)
    effects = _effects(step, by_shift, before, after, final)
    lengths = jnp.where(dt == 0, jnp.ones_like(dt), dt)
    roots = effects * (densities[None] / jnp.sqrt(lengths)[:, None])[:, :, None]
    covariance = jnp.einsum("kij,kil->jl", roots, roots, precision=lax.Precision.HIGHEST)
    duration = jnp.asarray(_duration(grid.stamps), dtype)
    return _preintegrated(final, duration, covariance, -jnp.sum(effects, axis=0).T, bias)


def _duration(stamps: Any) -> Any:
    """From the first to the last time, in their dtype."""
    return stamps[-1] - stamps[0]


def _packed(values: Array, dt: Array) -> tuple[Array, Array, Array | int]:
    """Samples and intervals with the empty intervals last, and how many are not empty."""
    steps = len(dt)
    if is_concrete(dt) and np.all(np.asarray(dt) != 0):
        return values, dt, steps
    is_empty = dt == 0
    order = jnp.argsort(is_empty, stable=True)
    count = steps - jnp.sum(is_empty)
    last = order[count - 1] + 1
    rows = jnp.where(jnp.arange(steps + 1) < count, jnp.append(order, last), last)
    return values[rows], dt[order], count


def _steps(values: Array, dt: Array, count: Array | int, order: int) -> tuple[Motion, Motion]:
    """The motions of all steps (M, ...) and their derivatives by a shift of all samples.

    The quaternions are those minus 1. Derivatives have a last axis of length 6.
    """
    number = jnp.arange(len(dt))
    if order == 1:
        nodes = [values[:-1]]
    elif order == 2:
        nodes = [0.5 * (values[:-1] + values[1:])]
    else:
        nodes = at_gauss_nodes(values, dt, jnp.minimum(number, count - 1), count + 1, order)
    rest = jnp.zeros((len(dt), 4), dt.dtype).at[:, 3].set(1.0)

    def shifted(shift: Array) -> tuple[Motion, Motion]:
        elements = [jnp.concatenate([node + shift, rest], axis=1) for node in nodes]
        xi = expansion(elements, dt[:, None], galilean.bracket)
        step = galilean.expm1(jnp.where((number < count)[:, None], xi, jnp.zeros_like(xi)))
        return step, step

    by_shift, step = jax.jacfwd(shifted, has_aux=True)(jnp.zeros((1, 6), dt.dtype))
    return step, jax.tree.map(lambda x: x[..., 0, :], by_shift)


def _effects(step: Motion, by_shift: Motion, before: Motion, after: Motion, final: Motion) -> Array:
    """The nine errors at the end by a shift of the samples of each step, (M, 6, 9).

    A turn of all that remains, about an axis at the start, moves the remaining velocity and
    displacement with it.
    """
    q, v, p = (jnp.swapaxes(x, 1, 2) for x in by_shift[:3])  # (M, 6, ...), axes at the step's start
    whole = step.q + jnp.eye(4, dtype=q.dtype)[:1]
    turn = 2.0 * quaternion.multiply(q, quaternion.conjugate(whole)[:, None])[..., 1:]
    turn, v, p = (quaternion.rotate(before.q[:, None], x) for x in (turn, v, p))
    t = final.t[None] - after.t
    velocity = final.v[None] - after.v
    position = final.p[None] - after.p - after.v * t
    v, p = v + cross(turn, velocity[:, None]), p + v * t[:, None] + cross(turn, position[:, None])
    turn = quaternion.rotate_inverse(final.q[None, None], turn)
    return jnp.concatenate([turn, v, p], axis=2)


def _preintegrated(
    motion: Motion, dt: Array, covariance: Array, jacobian: Array, bias: Imu
) -> Preintegrated:
    return Preintegrated(motion.q, motion.v, motion.p, dt, covariance, jacobian, bias)


def _blocks(*rows: list[Array]) -> Array:
    return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows], axis=0)


def _times(matrix: Array, vector: Array) -> Array:
    return jnp.sum(matrix * vector[None], axis=1)


def _of_dtype(name: str, value: Array, dtype: DTypeLike) -> Array:
    if value.dtype != dtype and not value.weak_type:
        raise TypeError(f"{name}: wanted the dtype of gyro, {dtype}, got {value.dtype}")
    return value.astype(dtype)


def _checked_bias(bias: Imu, dtype: DTypeLike) -> Imu:
    """Arrays (3,) of this dtype."""
    instance("bias", bias, Imu, "a jq.kinematics.Imu")
    names = ("bias.gyro", "bias.accel")
    arrays = [exactly(name, value, (3,)) for name, value in zip(names, bias, strict=True)]
    for name, array in zip(names, arrays, strict=True):
        finite(name, array)
    return Imu(*(_of_dtype(name, x, dtype) for name, x in zip(names, arrays, strict=True)))


def _checked_densities(noise: Imu, dtype: DTypeLike) -> Array:
    """Densities of the six channels, (6,)."""
    instance("noise", noise, Imu, "a jq.kinematics.Imu")
    channels = []
    for name, value in zip(("noise.gyro", "noise.accel"), noise, strict=True):
        density = one_shape(name, value, (), (3,))
        not_negative(name, density)
        channels.append(jnp.broadcast_to(_of_dtype(name, density, dtype), (3,)))
    return jnp.concatenate(channels)


def _check_same(name: str, bias: Imu, other: Imu) -> None:
    """ValueError if concrete biases differ."""
    if is_concrete((bias, other)):
        arrays = [np.concatenate([np.asarray(x) for x in pair]) for pair in (bias, other)]
        if not np.array_equal(arrays[0], arrays[1]):
            wanted = f"the biases of the interval before, {arrays[1]}"
            raise ValueError(f"{name}: wanted {wanted}, got {arrays[0]}")
