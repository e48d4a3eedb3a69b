"""The result of preintegration: a motion, its errors, and the operations on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat import quaternion, so3
from jaxquat._internal import reprs
from jaxquat._internal.checks import exactly, finite, instance, is_concrete, unit_quaternion
from jaxquat._internal.linear import cross, matmul, transpose
from jaxquat.kinematics import galilean
from jaxquat.kinematics.galilean import Motion


class Imu(NamedTuple):
    """One quantity for a gyroscope and an accelerometer: their biases, or their noise densities.

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
class Preintegrated(reprs.Tabular):
    """The motion between two instants as an inertial unit measures it. A pytree.

    The nine errors are in the order rotation, velocity, position. With the errors ``(a, b, c)``,
    (3,) each, the true motion is ``(dq exp(a), dv + b, dp + c)``: the rotation vector is in body
    axes at the END [rad], the others are in body axes at the START [m/s] and [m].

    Attributes:
        dq: the rotation, a unit quaternion (4,): ``v_start = dq v_end dq*``.
        dv: the change of velocity without gravity, body axes at the start [m/s], (3,).
        dp: the displacement without gravity of a unit that starts at rest, in the same axes [m],
            (3,).
        dt: the time between the instants [s], ().
        covariance: covariance of the nine errors from the noise of the samples, (9, 9).
        jacobian: (9, 6), the derivatives of the nine errors by the biases of gyroscope and
            accelerometer.
        bias: the biases for which the motion was computed.

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
        """Return the motion with other biases, to first order in the change (Forster 2017, (44)).

        Covariance and Jacobian do not change.

        Raises:
            ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

        Examples:
            >>> bias = jq.kinematics.Imu(gyro=jnp.zeros(3), accel=jnp.array([0.5, 0.0, 0.0]))
            >>> f"{motion.with_bias(bias).dv[0]:.2f} m/s"  # in 1 s 0.5 m/s^2 is taken off
            '0.50 m/s'
        """
        bias = checked_bias(bias, self.dv.dtype)
        change = jnp.concatenate([bias.gyro - self.bias.gyro, bias.accel - self.bias.accel])
        turn, dv, dp = jnp.split(_times(self.jacobian, change), 3)
        dq = quaternion.correct_norm(quaternion.multiply(self.dq, quaternion.exp(turn)))
        changed = dq, self.dv + dv, self.dp + dp
        return Preintegrated(*changed, self.dt, self.covariance, self.jacobian, bias)

    def compose(self, following: Preintegrated) -> Preintegrated:
        """The motion through this interval and the following one.

        The last sample of this interval must be the first of the following one, and both intervals
        must have the same biases. With ``order`` 1 and 2, the result equals the preintegration of
        the joined samples up to rounding. (With order 2, the time of the shared sample must not be
        repeated: of several samples at one time, the joined interval uses the last, but this
        interval, which ends there, uses the first.)

        Raises:
            ValueError, TypeError: an argument of wrong type, or different biases, by name.

        Examples:
            >>> both = motion.compose(motion)
            >>> f"{both.dt:.0f} s, {both.dv[0]:.0f} m/s, {both.dp[0]:.0f} m"  # 1 m/s^2 for 2 s
            '2 s, 2 m/s, 2 m'
        """
        instance("following", following, Preintegrated, "a Preintegrated")
        _check_same("following.bias", following.bias, self.bias)
        first, second = self._motion(), following._motion()
        motion = galilean.multiply(first, second)
        # An error of the first turn affects everything after it.
        to_start, turned = quaternion.to_matrix(first.q), quaternion.to_matrix(second.q)
        zero, one = jnp.zeros_like(turned), jnp.eye(3, dtype=turned.dtype)
        from_first = blocks(
            [transpose(turned), zero, zero],
            [-matmul(to_start, so3.hat(second.v)), one, zero],
            [-matmul(to_start, so3.hat(second.p)), following.dt * one, one],
        )
        from_second = blocks([one, zero, zero], [zero, to_start, zero], [zero, zero, to_start])
        parts = ((from_first, self), (from_second, following))
        covariances = [matmul(matmul(f, x.covariance), f.T) for f, x in parts]
        jacobians = [matmul(f, x.jacobian) for f, x in parts]
        covariance, jacobian = covariances[0] + covariances[1], jacobians[0] + jacobians[1]
        dt = self.dt + following.dt
        return Preintegrated(*motion[:3], dt, covariance, jacobian, self.bias)

    def predict(
        self,
        q: ArrayLike,
        velocity: ArrayLike,
        position: ArrayLike,
        gravity: ArrayLike,
        earth_rate: ArrayLike | None = None,
    ) -> tuple[Array, Array, Array]:
        """Attitude, velocity and position at the end, from those at the start and gravity.

        It is exact for any ``dt``, also in world axes that turn at a constant rate, such as
        Earth-fixed ones (M. Brossard, A. Barrau, P. Chauchat and S. Bonnabel, IEEE Trans. Robotics
        38, 2022, 998-1015). Errors ``(a, b, c)`` of the motion change the end ``(q, v, p)`` to
        ``(q exp(a), v + M b - earth_rate × M c, p + M c)``. The matrix M is the rotation of the
        start turned by ``-earth_rate dt``.

        Args:
            q: attitude at the start, body to world, a unit quaternion (4,).
            velocity: velocity of the inertial unit at the start, world axes [m/s], (3,).
            position: position of the inertial unit at the start, world axes [m], (3,).
            gravity: acceleration of free fall, world axes [m/s^2], (3,): (0, 0, -9.81) with z up.
                If the axes turn, it is that of a body at rest at their origin: with the origin on
                the ground, what a plumb line shows; at the Earth's centre, the attraction alone.
            earth_rate: rate of the world axes in inertial space, world axes [rad/s], (3,): east,
                north and up it is 7.292115e-5 (0, cos(latitude), sin(latitude)). None for axes that
                do not turn.

        Raises:
            ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

        Examples:
            >>> weightless, times = jnp.zeros((2, 3)), jnp.array([0.0, 2.0])  # s, of a falling unit
            >>> motion = jax.jit(jq.kinematics.preintegrate)(weightless, weightless, times)
            >>> level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
            >>> q, v, p = motion.predict(level, zero, zero, jnp.array([0.0, 0.0, -9.81]))
            >>> f"{v[2]:.2f} m/s, {p[2]:.2f} m"  # -g t, -g t^2/2
            '-19.62 m/s, -19.62 m'
            >>> equator = jnp.array([0.0, 7.292115e-5, 0.0])  # rad/s: east, north, up
            >>> q, v, p = motion.predict(level, zero, zero, jnp.array([0.0, 0.0, -9.81]), equator)
            >>> f"{1e3 * p[0]:.2f} mm"  # g earth_rate t^3/3 to the east
            '1.91 mm'
        """
        q, velocity = exactly("q", q, (4,)), exactly("velocity", velocity, (3,))
        position, gravity = exactly("position", position, (3,)), exactly("gravity", gravity, (3,))
        unit_quaternion("q", q)
        if earth_rate is None:
            start = Motion(q, velocity, position, jnp.zeros_like(self.dt)[None])
            end = galilean.multiply(start, self._motion())
            fall = gravity * self.dt
            return end.q, end.v + fall, end.p + 0.5 * self.dt * fall
        earth_rate = exactly("earth_rate", earth_rate, (3,))
        start = self._inertial(q, velocity, position, earth_rate)
        world = self._world(gravity, earth_rate)
        end = galilean.relative(world, galilean.multiply(start, self._motion()))
        return end.q, end.v - cross(earth_rate, end.p), end.p

    def residual(
        self,
        start: tuple[ArrayLike, ArrayLike, ArrayLike],
        end: tuple[ArrayLike, ArrayLike, ArrayLike],
        gravity: ArrayLike,
        earth_rate: ArrayLike | None = None,
    ) -> Array:
        """The nine errors of the motion if the states at both ends are true, (9,).

        Their covariance is ``covariance``, whether or not the world axes turn. They are 0 for the
        end that ``predict`` returns.

        Args:
            start: attitude, velocity and position at the start, as ``predict`` takes them.
            end: those at the end, as ``predict`` returns them.
            gravity: as for ``predict``.
            earth_rate: as for ``predict``.

        Raises:
            ValueError, TypeError: an argument of wrong shape, dtype or value, by name.

        Examples:
            >>> still, times = jnp.zeros((2, 3)), jnp.array([0.0, 2.0])  # s
            >>> motion = jax.jit(jq.kinematics.preintegrate)(still, still, times)
            >>> level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
            >>> start, end = (level, zero, zero), (level, zero, jnp.array([0.0, 0.0, 0.5]))
            >>> motion.residual(start, end, gravity=zero)[6:]  # m: measured 0, true 0.5
            Array([0. , 0. , 0.5], dtype=float32)
        """
        gravity = exactly("gravity", gravity, (3,))
        rate = jnp.zeros(3, gravity.dtype) if earth_rate is None else earth_rate
        rate = exactly("earth_rate", rate, (3,))
        first, last = (
            self._inertial(*_checked_state(name, state), rate)
            for name, state in (("start", start), ("end", end))
        )
        true = galilean.relative(first, galilean.multiply(self._world(gravity, rate), last))
        turn = quaternion.log(quaternion.multiply(quaternion.conjugate(self.dq), true.q))
        return jnp.concatenate([turn, true.v - self.dv, true.p - self.dp])

    def _inertial(self, q: Array, velocity: Array, position: Array, earth_rate: Array) -> Motion:
        """The state with its velocity in the inertial frame that has these axes at the instant."""
        absolute = velocity + cross(earth_rate, position)
        return Motion(q, absolute, position, jnp.zeros_like(self.dt)[None])

    def _world(self, gravity: Array, earth_rate: Array) -> Motion:
        """The motion of the world axes relative to free fall; a unit at their origin senses it."""
        sensed = [earth_rate, -gravity, jnp.zeros_like(gravity), jnp.ones_like(self.dt)[None]]
        motion = galilean.expm1(self.dt * jnp.concatenate(sensed))
        return motion._replace(q=motion.q.at[0].add(1.0))

    def _motion(self) -> Motion:
        return Motion(self.dq, self.dv, self.dp, self.dt[None])

    def _table(self) -> reprs.Table:
        names = "dq", "dv [m/s]", "dp [m]", "covariance", "jacobian"
        values = self.dq, self.dv, self.dp, self.covariance, self.jacobian
        rows = [(name, reprs.short(value)) for name, value in zip(names, values, strict=True)]
        return f"Preintegrated over {reprs.short(self.dt)} s", rows, ()


def _checked_state(name: str, state: Any) -> tuple[Array, Array, Array]:
    """The checked attitude, velocity and position."""
    instance(name, state, tuple, "a tuple (q, velocity, position)")
    if len(state) != 3:
        raise ValueError(f"{name}: wanted (q, velocity, position), got {len(state)} elements")
    q, velocity, position = (
        exactly(f"{name}[{k}]", x, shape)
        for k, (x, shape) in enumerate(zip(state, ((4,), (3,), (3,)), strict=True))
    )
    unit_quaternion(f"{name}[0]", q)
    return q, velocity, position


def checked_bias(bias: Imu, dtype: DTypeLike) -> Imu:
    """The checked biases as arrays (3,) of this dtype."""
    instance("bias", bias, Imu, "a jq.kinematics.Imu")
    names = ("bias.gyro", "bias.accel")
    arrays = [exactly(name, value, (3,)) for name, value in zip(names, bias, strict=True)]
    for name, array in zip(names, arrays, strict=True):
        finite(name, array)
    return Imu(*(of_dtype(name, x, dtype) for name, x in zip(names, arrays, strict=True)))


def of_dtype(name: str, value: Array, dtype: DTypeLike) -> Array:
    """``value`` in this dtype; TypeError if it has another dtype that is not weak."""
    if value.dtype != dtype and not value.weak_type:
        raise TypeError(f"{name}: wanted the dtype of gyro, {dtype}, got {value.dtype}")
    return value.astype(dtype)


def blocks(*rows: list[Array]) -> Array:
    """The matrix of these rows of blocks."""
    return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows], axis=0)


def _times(matrix: Array, vector: Array) -> Array:
    return jnp.sum(matrix * vector[None], axis=1)


def _check_same(name: str, bias: Imu, other: Imu) -> None:
    """ValueError if concrete biases differ."""
    if is_concrete((bias, other)):
        arrays = [np.concatenate([np.asarray(x) for x in pair]) for pair in (bias, other)]
        if not np.array_equal(arrays[0], arrays[1]):
            wanted = f"the biases of the interval before, {arrays[1]}"
            raise ValueError(f"{name}: wanted {wanted}, got {arrays[0]}")
