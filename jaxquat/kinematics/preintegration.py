"""Preintegration: the motion from gyroscope and accelerometer samples, for any start.

Rotation, change of velocity and displacement are computed once, in body axes at the first instant,
without the state there and gravity (T. Lupton and S. Sukkarieh, IEEE Trans. Robotics 28, 2012,
61-76; C. Forster, L. Carlone, F. Dellaert and D. Scaramuzza, IEEE Trans. Robotics 33, 2017, 1-21).
A step between two samples is one exponential in the Galilean group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jaxquat import quaternion
from jaxquat._internal import checks, reprs
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import cross, matmul, transpose
from jaxquat._internal.renamed import has_old_fields, refuses_old_keywords, takes_old_names
from jaxquat.kinematics import galilean
from jaxquat.kinematics.galilean import Motion
from jaxquat.kinematics.propagation import propagate
from jaxquat.sensors.axes import samples
from jaxquat.simulation.grid import grid_at

_BIAS, _NOISE = Field([(3,)], checks.finite), Field([(), (3,)], checks.not_negative)


@has_old_fields("kinematics.Imu")
class Imu(NamedTuple):
    """One quantity for a gyroscope and an accelerometer: their biases, or their noise densities.

    Attributes:
        gyro: bias [rad/s], (3,), or density [rad/s/sqrt(Hz)], () or (3,).
        accelerometer: bias [m/s^2], (3,), or density [m/s^2/sqrt(Hz)], () or (3,).

    Examples:
        >>> noise = jq.kinematics.Imu(gyro=1e-4, accelerometer=1e-3)  # at 100 Hz: 1e-3 rad/s
    """

    gyro: Any  # an Array or a number
    accelerometer: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Preintegrated(reprs.Tabular):
    """The motion between two instants as an inertial unit measures it. A pytree.

    With the nine errors ``(a, b, c)``, (3,) each, the true motion is
    ``(dq exp(a), dv + b, dp + c)``: rotation vector in body axes at the END [rad], the others in
    those at the START [m/s], [m].

    Attributes:
        dq: the rotation, a unit quaternion (4,): ``v_start = dq v_end dq*``.
        dv: the change of velocity without gravity, body axes at the start [m/s], (3,).
        dp: the displacement without gravity of a unit that starts at rest, as dv [m], (3,).
        dt: the time between the instants [s], ().
        covariance: covariance of the nine errors from the noise of the samples, (9, 9).
        jacobian: of the nine errors with respect to the biases (gyroscope, accelerometer), (9, 6).
        bias: the biases for which the motion was computed.

    Examples:
        >>> noise = jq.kinematics.Imu(gyro=1e-4, accelerometer=1e-2)
        >>> motion = jax.jit(jq.kinematics.preintegrate)(gyro, force, times, noise=noise)
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
        """Return the motion with other biases, to first order (Forster 2017, (44)).

        Examples:
            >>> bias = jq.kinematics.Imu(jnp.zeros(3), jnp.array([0.5, 0.0, 0.0]))
            >>> f"{motion.with_bias(bias).dv[0]:.2f} m/s"  # in 1 s 0.5 m/s^2 is taken off
            '0.50 m/s'
        """
        bias = _checked_imu("bias", bias, _BIAS, self.dv.dtype)
        change = jnp.concatenate([new - old for new, old in zip(bias, self.bias, strict=True)])
        turn, dv, dp = jnp.split(jnp.sum(self.jacobian * change[None], axis=1), 3)
        dq = quaternion.correct_norm(quaternion.multiply(self.dq, quaternion.exp(turn)))
        changed = dq, self.dv + dv, self.dp + dp
        return Preintegrated(*changed, self.dt, self.covariance, self.jacobian, bias)

    def predict(
        self,
        q: ArrayLike,
        velocity: ArrayLike,
        position: ArrayLike,
        gravity: ArrayLike,
        earth_rate: ArrayLike | None = None,
    ) -> tuple[Array, Array, Array]:
        """Return attitude, velocity and position at the end, from those at the start and gravity.

        It is exact for any ``dt``, also in world axes that turn at a constant rate (M. Brossard, A.
        Barrau, P. Chauchat and S. Bonnabel, IEEE Trans. Robotics 38, 2022, 998-1015). Errors
        ``(a, b, c)`` of the motion change the end to
        ``(q exp(a), v + M b - earth_rate × M c, p + M c)``, M the rotation of the start turned by
        ``-earth_rate dt``.

        Args:
            q: attitude at the start, body to world, a unit quaternion (4,).
            velocity: of the inertial unit at the start, world axes [m/s], (3,).
            position: of the inertial unit at the start, world axes [m], (3,).
            gravity: acceleration of free fall, world axes [m/s^2], (3,): (0, 0, -9.81) with z up.
                If the axes turn, that of a body at rest at their origin: on the ground along a
                plumb line, at the Earth's centre the attraction alone.
            earth_rate: rate of the world axes in inertial space, world axes [rad/s], (3,): east,
                north and up 7.292115e-5 (0, cos(latitude), sin(latitude)). None for axes that do
                not turn.

        Examples:
            >>> q, v, p = motion.predict(level, zero, zero, gravity)
            >>> f"{v[0]:.2f} m/s, {p[0]:.2f} m"  # 1 m/s^2 for 1 s
            '1.00 m/s, 0.50 m'
        """
        q, velocity = checks.exactly("q", q, (4,)), checks.exactly("velocity", velocity, (3,))
        position = checks.exactly("position", position, (3,))
        gravity = checks.exactly("gravity", gravity, (3,))
        checks.unit_quaternion("q", q)
        if earth_rate is None:
            start = Motion(q, velocity, position, jnp.zeros_like(self.dt)[None])
            end = galilean.multiply(start, self._motion())
            fall = gravity * self.dt
            return end.q, end.v + fall, end.p + 0.5 * self.dt * fall
        earth_rate = checks.exactly("earth_rate", earth_rate, (3,))
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
        """Return the nine errors (9,) for true states at both ends; 0 if ``predict`` gave the end.

        Their covariance is ``covariance``, whether or not the world axes turn. ``start`` and
        ``end`` are attitude, velocity and position, all else as for ``predict``.

        Examples:
            >>> start, end = (level, zero, zero), (level, zero, jnp.array([2.0, 0.0, 0.0]))
            >>> f"{motion.residual(start, end, gravity)[6]:.2f} m"  # measured 0.5, true 2
            '1.50 m'
        """
        gravity = checks.exactly("gravity", gravity, (3,))
        rate = jnp.zeros(3, gravity.dtype) if earth_rate is None else earth_rate
        rate = checks.exactly("earth_rate", rate, (3,))
        first, last = (
            self._inertial(*_checked_state(name, state), rate)
            for name, state in (("start", start), ("end", end))
        )
        true = galilean.relative(first, galilean.multiply(self._world(gravity, rate), last))
        turn = quaternion.log(quaternion.multiply(quaternion.conjugate(self.dq), true.q))
        return jnp.concatenate([turn, true.v - self.dv, true.p - self.dp])

    def _inertial(self, q: Array, velocity: Array, position: Array, earth_rate: Array) -> Motion:
        """Return the state with the velocity in the inertial frame that has these axes now."""
        absolute = velocity + cross(earth_rate, position)
        return Motion(q, absolute, position, jnp.zeros_like(self.dt)[None])

    def _world(self, gravity: Array, earth_rate: Array) -> Motion:
        """Return the motion of the world axes relative to free fall, measured at their origin."""
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


@takes_old_names("kinematics.preintegrate")
@refuses_old_keywords("kinematics.preintegrate")
def preintegrate(
    gyro: ArrayLike,
    accelerometer: ArrayLike,
    times: ArrayLike,
    bias: Imu | None = None,
    noise: Imu | None = None,
) -> Preintegrated:
    """Compute the motion from the first to the last of N samples of an inertial unit.

    Each sample is held until the next one; the result is exact for such a motion, and the last
    sample is not used. Of several samples at one time, the last one counts. For several recordings
    use ``jax.vmap``; pad shorter ones by repeating their last time, with any samples.

    Args:
        gyro: measured rates, body axes [rad/s], (N, 3), N >= 2.
        accelerometer: measured specific forces (at rest minus gravity), body axes [m/s^2], (N, 3).
        times: times of the samples [s], (N,), not decreasing; subtracted in their own dtype.
        bias: the constant errors that the sensors add to the true values; None for 0.
        noise: densities of the white noise; None for 0. A sample has the variance ``density^2/dt``,
            as in ``jq.gyro.measure``, where dt is the interval for which it is held. The covariance
            is that of the linearised errors.

    Examples:
        >>> motion = jax.jit(jq.kinematics.preintegrate)(gyro, force, times)
        >>> q, v, p = motion.predict(level, zero, zero, gravity)
        >>> f"{v[0]:.2f} m/s, {p[0]:.2f} m"  # 1 m/s^2 for 1 s
        '1.00 m/s, 0.50 m'
    """
    # Check and convert.
    gyro, force = samples("gyro", gyro), samples("accelerometer", accelerometer)
    dtype, n = gyro.dtype, len(gyro)
    if force.shape != gyro.shape:
        wanted = f"the shape of gyro, {gyro.shape}"
        raise ValueError(f"accelerometer: wanted {wanted}, got {force.shape}")
    force = _of_dtype("accelerometer", force, dtype)
    if n < 2:
        raise ValueError(f"gyro: wanted shape (N, 3) with N >= 2, got {gyro.shape}")
    grid = grid_at(times)
    if grid.intervals != n - 1:
        raise ValueError(f"times: wanted one for each of {n} samples, got {grid.intervals + 1}")
    zero = jnp.zeros(3, dtype)
    bias = Imu(zero, zero) if bias is None else _checked_imu("bias", bias, _BIAS, dtype)
    noise = Imu(zero, zero) if noise is None else _checked_imu("noise", noise, _NOISE, dtype)
    densities = jnp.concatenate(noise)

    # Compute.
    dt = jnp.asarray(grid.step_lengths(), dtype)
    values = jnp.concatenate([gyro - bias.gyro[None], force - bias.accelerometer[None]], axis=1)
    is_empty = (dt == 0)[:, None]
    held = jnp.where(is_empty, jnp.zeros_like(values[:-1]), values[:-1])  # NaN in the padding
    time_part = jnp.where(is_empty, 0.0, jnp.asarray([[0.0, 0.0, 0.0, 1.0]], dtype))
    xi = dt[:, None] * jnp.concatenate([held, time_part], axis=1)
    start = Motion(jnp.eye(4, dtype=dtype)[0], zero, zero, zero[:1])
    final, (before, after) = lax.scan(_advance, start, galilean.expm1(xi))
    variances = densities[None] ** 2 / jnp.where(dt == 0, jnp.ones_like(dt), dt)[:, None]
    jacobian, covariance = propagate(xi, before, after, variances)
    # So far the rotation error is in axes at the start.
    zeros, one = jnp.zeros((3, 6), dtype), jnp.eye(6, dtype=dtype)
    to_end = jnp.block([[transpose(quaternion.to_matrix(final.q)), zeros], [zeros.T, one]])
    covariance = matmul(matmul(to_end, covariance), to_end.T)
    stamps: Any = grid.stamps
    duration = jnp.asarray(stamps[-1] - stamps[0], dtype)
    jacobian = -matmul(to_end, jacobian)
    return Preintegrated(*final[:3], duration, covariance, jacobian, bias)


def _advance(motion: Motion, step: Motion) -> tuple[Motion, tuple[Motion, Motion]]:
    after = galilean.advance(motion, step)
    return after, (motion, after)


def _checked_state(name: str, state: Any) -> tuple[Array, Array, Array]:
    """Return the checked attitude, velocity and position."""
    checks.instance(name, state, tuple, "a tuple (q, velocity, position)")
    if len(state) != 3:
        raise ValueError(f"{name}: wanted (q, velocity, position), got {len(state)} elements")
    q, velocity, position = (
        checks.exactly(f"{name}[{k}]", x, shape)
        for k, (x, shape) in enumerate(zip(state, ((4,), (3,), (3,)), strict=True))
    )
    checks.unit_quaternion(f"{name}[0]", q)
    return q, velocity, position


def _checked_imu(name: str, value: Imu, field: Field, dtype: DTypeLike) -> Imu:
    """Return a record whose fields meet these demands, as arrays (3,) of this dtype."""
    fields = dict.fromkeys(Imu._fields, field)
    arrays = checked_record(name, value, Imu, fields, "a jq.kinematics.Imu")._asdict()
    arrays = {key: _of_dtype(f"{name}.{key}", x, dtype) for key, x in arrays.items()}
    return Imu(**{key: jnp.broadcast_to(x, (3,)) for key, x in arrays.items()})


def _of_dtype(name: str, value: Array, dtype: DTypeLike) -> Array:
    """Return ``value`` in this dtype; TypeError if it has another dtype that is not weak."""
    if not value.weak_type:
        checks.same_dtype(name, value, dtype, "gyro")
    return value.astype(dtype)
