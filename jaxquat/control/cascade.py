"""A cascade of four regulators that flies a rotorcraft: position, velocity, attitude, rate.

The output of each is the setpoint of the next. The velocity regulator integrates against wind and a
wrong mass, the rate regulator against a disturbing torque. If a limit cuts the output, the integral
shrinks in proportion, so it cannot wind up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import is_concrete, positive, takes
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import cross, dot, inverse_inertia, matvec, root
from jaxquat._internal.renamed import refuses_old_keywords, takes_old_names
from jaxquat.control.flight import Lift, check_gravity
from jaxquat.control.laws import check_gains, shortest
from jaxquat.control.pid import checked_times, function_of
from jaxquat.control.reference import ReferenceTrajectory, attitude_of, check_trajectory
from jaxquat.dynamics.body import Body, mass_of
from jaxquat.dynamics.state import State, broadcastable, moving
from jaxquat.dynamics.units import own_units
from jaxquat.quaternion import conjugate, multiply, rotate, rotate_inverse
from jaxquat.simulation.controller import Controller


class CascadeGains(NamedTuple):
    """Gains of ``cascade``, a pytree: the first three in world axes, the others in body axes.

    Each regulator should be a few times as fast as the one before it.

    Attributes:
        position: velocity setpoint per position error [1/s], (3,).
        velocity: acceleration per velocity error [1/s], (3,).
        velocity_integral: growth of its integral part per velocity error [1/s^2], (3,).
        attitude: rate setpoint per attitude error [1/s], (3,).
        rate: angular acceleration per rate error [1/s], (3,).
        rate_integral: growth of its integral part per rate error [1/s^2], (3,).

    Examples:
        >>> values = 1.0, 2.5, 0.5, 6.0, 15.0, 5.0  # in the order of the attributes
        >>> gains = jq.control.CascadeGains(*(jnp.full(3, value) for value in values))
    """

    position: Array
    velocity: Array
    velocity_integral: Array
    attitude: Array
    rate: Array
    rate_integral: Array


class CascadeLimits(NamedTuple):
    """Limits of the outputs of the regulators of ``cascade``.

    Attributes:
        speed: of the velocity that corrects a position error [m/s], ().
        tilt: of the setpoint of body z from the vertical [rad], (), below pi/2.
        thrust: [N], (), more than the weight.
        torque: per body axis [N m], () or (3,).

    Examples:
        >>> limits = jq.control.CascadeLimits(tilt=np.radians(20.0), thrust=20.0)
    """

    speed: ArrayLike = 5.0
    tilt: ArrayLike = 0.6
    thrust: ArrayLike = np.inf
    torque: ArrayLike = np.inf


class CascadeMemory(NamedTuple):
    """The integral parts of ``cascade``: in world axes [m/s^2], in body axes [rad/s^2]."""

    acceleration: Array
    angular_acceleration: Array


@takes_old_names("control.cascade")
@refuses_old_keywords("control.cascade")
def cascade(
    body: Body,
    period: ArrayLike,
    reference: ReferenceTrajectory | Callable[[Array, Any, Any], ReferenceTrajectory],
    *,
    gains: CascadeGains | Callable[[Any], CascadeGains] = lambda params: params,
    measure: Callable[[State, Any], State] = lambda state, _: state,
    limits: CascadeLimits = CascadeLimits(),  # noqa: B008
    anti_windup_time: ArrayLike | None = None,
    gravity: ArrayLike = 9.80665,
) -> Controller:
    """Make a controller of the position and heading of a rotorcraft, with ``Lift`` as command.

    Its memory holds the integral parts: ``acceleration`` in world axes [m/s^2], (3,), and
    ``angular_acceleration`` in body axes [rad/s^2], (3,).

    With e the errors, at each sample:

    - the velocity setpoint is the velocity of the reference plus ``k e_x``, cut to the limit
      ``speed``;
    - the thrust setpoint is the mass times gravity, the acceleration of the reference, ``k e_v``
      and an integral. Its upward component is at least a tenth of the weight, and its tilt and size
      are limited;
    - the rate setpoint is ``2 k vec(q* q_r)`` plus the rate of the heading. q_r is the attitude
      with body z along that thrust and the heading of the reference, on the shortest way;
    - the torque is ``I (k e_w + integral) + omega × I omega``, limited per axis.

    Args:
        body: the body whose mass gives the thrust and whose inertia the torque.
        period: as for ``pid``.
        reference: as for ``pid``, but a ``control.ReferenceTrajectory``.
        gains: as for ``pid``, but ``control.CascadeGains``.
        measure: as for ``pid``; its state has position and velocity.
        limits: ``control.CascadeLimits``.
        anti_windup_time: as for ``pid``, for both integral parts.
        gravity: g [m/s^2], ().

    Examples:
        >>> reference = jq.control.hold_position(jnp.array([0.0, 0.0, 2.0]))
        >>> values = 1.0, 2.5, 0.5, 6.0, 15.0, 5.0
        >>> gains = jq.control.CascadeGains(*(jnp.full(3, value) for value in values))
        >>> controller = jq.control.cascade(body, 0.01, reference, gains=gains)
        >>> low = jq.State(level, zero, position=jnp.array([0.0, 0.0, 1.0]), velocity=zero)
        >>> memory = controller.init(low, None)
        >>> lift, memory = jax.jit(controller.update)(0.0, low, memory, None, None)
        >>> f"{lift.thrust:.2f} N"  # 1.2 kg (9.81 + 2.5 1.0) m/s^2, because it is 1 m too low
        '14.77 N'
    """
    mass, dtype = mass_of(body), body.inertia.dtype
    g = check_gravity(gravity, dtype)
    dt, unwinding, known_period = checked_times(period, anti_windup_time)
    dt, unwinding = dt.astype(dtype), unwinding.astype(dtype)
    takes("measure", measure, "state, input")
    reference_at = function_of(
        "reference", reference, ReferenceTrajectory, check_trajectory, "t, params, input"
    )
    checked_gains = functools.partial(check_gains, kind=CascadeGains)
    gains_of = function_of("gains", gains, CascadeGains, checked_gains, "params")
    speed, tilt, strongest, most_torque = _checked_limits(limits, mass * g)
    body, scales = own_units(body)
    inertia, inverted = body.inertia, inverse_inertia(body.inertia)
    z = jnp.asarray([0.0, 0.0, 1.0], dtype)

    def init(start: State, params: Any) -> CascadeMemory:
        return CascadeMemory(jnp.zeros_like(start.omega), jnp.zeros_like(start.omega))

    def update(
        t: Array, state: State, memory: CascadeMemory, params: Any, sampled_input: Any
    ) -> tuple[Lift, CascadeMemory]:
        c, k = reference_at(t, params, sampled_input), gains_of(params)
        state = broadcastable("measure(...)", measure(state, sampled_input))
        x, v = moving(state, "measure(...)").position, state.velocity

        velocity_error = c.velocity + _shortened(k.position * (c.position - x), speed) - v
        uncut = c.acceleration + g * z + k.velocity * velocity_error + memory.acceleration
        specific = _thrust_within(uncut, g, tilt, strongest / mass)
        growth = k.velocity_integral * velocity_error + (specific - uncut) / unwinding
        thrust = mass * jnp.maximum(dot(specific, rotate(state.q, z)), 0.0)

        target = attitude_of(specific, c.heading)
        error = shortest(multiply(conjugate(state.q), target))
        rate = k.attitude * error + rotate_inverse(state.q, c.heading_rate * z)
        rate_error = rate - state.omega
        turning = k.rate * rate_error + memory.angular_acceleration
        wanted = matvec(inertia, turning) + cross(state.omega, matvec(inertia, state.omega))
        most = scales.torque * most_torque
        torque = jnp.clip(wanted, -most, most)
        cut = matvec(inverted, torque - wanted) / unwinding
        turning_growth = k.rate_integral * rate_error + cut
        grown = memory.acceleration + dt * growth, memory.angular_acceleration + dt * turning_growth
        return Lift(thrust, torque / scales.torque), CascadeMemory(*grown)

    return Controller(init, update, known_period)


def _thrust_within(specific: Array, g: Array, tilt: Array, largest: Array) -> Array:
    """Return the thrust per mass with at least g/10 upwards, limited in tilt, then in size."""
    up = jnp.maximum(specific[2], 0.1 * g)
    aside = _shortened(specific[:2], jnp.tan(tilt) * up)
    return _shortened(jnp.concatenate([aside, up[None]]), largest)


def _shortened(v: Array, largest: Array) -> Array:
    """Return v, scaled down to the length ``largest`` if it is longer."""
    length = root(dot(v, v))
    longer = length > largest
    return jnp.where(longer, largest / jnp.where(longer, length, 1.0), 1.0) * v


_LIMIT = functools.partial(positive, or_infinite=True)
_LIMITS = dict.fromkeys(CascadeLimits._fields, Field([()], _LIMIT))
_LIMITS |= {"torque": Field([(), (3,)], _LIMIT)}


def _checked_limits(limits: CascadeLimits, weight: Array) -> list[Array]:
    """Return the limits as arrays of the dtype of the weight, checked; errors name the field."""
    limits = checked_record("limits", limits, CascadeLimits, _LIMITS, "a control.CascadeLimits")
    arrays = [jnp.asarray(value, weight.dtype) for value in limits]
    tilt, thrust = arrays[1:3]
    if is_concrete(tilt) and not float(tilt) < np.pi / 2:
        raise ValueError(f"limits.tilt: wanted less than pi/2, got {tilt}")
    if is_concrete((thrust, weight)) and not float(thrust) > float(weight):
        wanted = f"more than the weight, {float(weight):.6g} N"
        raise ValueError(f"limits.thrust: wanted {wanted}, got {float(thrust):.6g}")
    return arrays
