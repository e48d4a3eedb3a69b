"""Position control of a rotorcraft with thrust along body z: a law without memory."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, finite, is_concrete
from jaxquat._internal.linear import cross, dot
from jaxquat._internal.renamed import refuses_old_keywords, takes_old_names
from jaxquat.control.laws import Gains, check_gains, geometric_law
from jaxquat.control.reference import ReferenceTrajectory, attitude_of, check_trajectory, follow
from jaxquat.dynamics.body import Body, mass_of
from jaxquat.dynamics.state import State, check_state, moving
from jaxquat.quaternion import rotate


class Lift(NamedTuple):
    """The collective thrust and torque commanded of all rotors together.

    Attributes:
        thrust: along body z [N], ().
        torque: body axes [N m], (3,).

    Examples:
        >>> lift = jq.control.Lift(thrust=jnp.array(14.7), torque=zero)
    """

    thrust: Array
    torque: Array


class FlightGains(NamedTuple):
    """Gains of ``flight_law``, a pytree.

    Attributes:
        position: of the position error, world axes [N/m], (3,).
        velocity: of the velocity error, world axes [N s/m], (3,).
        damping: of the rate error, body axes [N m s/rad], (3,).
        stiffness: of the attitude error, body axes [N m/rad], (3,).

    Examples:
        >>> m, w, one = 1.2, 2.0, jnp.ones(3)  # kg, rad/s: critical damping of a position error
        >>> gains = jq.control.FlightGains(m * w**2 * one, 2.0 * m * w * one, 0.1 * one, one)
    """

    position: Array
    velocity: Array
    damping: Array
    stiffness: Array


@takes_old_names("control.flight_law")
@refuses_old_keywords("control.flight_law")
def flight_law(
    state: State,
    gains: FlightGains,
    reference: ReferenceTrajectory,
    body: Body,
    gravity: ArrayLike = 9.80665,
) -> Lift:
    """Follow position and heading with a rotorcraft by the geometric tracking law.

    The force setpoint is ``A = -k_x e_x - k_v e_v + m (g z + a_d)`` in world axes with z up, the
    thrust is ``A . (R z)``; ``jq.rotors.allocate`` divides it among rotors. ``geometric_law`` turns
    body z towards A, with the feed-forward of its motion under this thrust and gravity; other
    forces are disturbances. Then ``I e_w' = -k_R e_R - k_w e_w`` holds exactly, and
    ``m e_v' = -k_x e_x - k_v e_v`` if attitude and rate have no error. T. Lee, M. Leok and N. H.
    McClamroch, Geometric tracking control of a quadrotor UAV on SE(3), CDC 2010, (12), (15) and
    (16), with world z and the thrust turned upwards.

    Args:
        state: with position and velocity (ValueError without).
        gains: ``control.FlightGains``.
        reference: ``control.ReferenceTrajectory``, from ``follow_position`` or ``hold_position``.
            ValueError if A is 0 or along the heading (NaN torque if traced).
        body: with a mass (ValueError without), and the inertia that the feed-forward assumes.
        gravity: g [m/s^2], ().

    Examples:
        >>> gains = jq.control.FlightGains(*(k * jnp.ones(3) for k in (3.0, 3.0, 0.1, 1.0)))
        >>> reference = jq.control.hold_position(jnp.array([0.0, 0.0, 1.0]))
        >>> lift = jax.jit(jq.control.flight_law)(low, gains, reference, body)
        >>> f"{lift.thrust:.2f} N"  # the weight of 11.77 N, and 3 N/m times 1 m
        '14.77 N'
    """
    state, reference = check_state("state", state), check_trajectory(reference)
    gains, mass = check_gains(gains, FlightGains), jnp.asarray(mass_of(body), state.q.dtype)
    x, v = moving(state).position, state.velocity
    gravity = check_gravity(gravity, state.q.dtype)
    z = jnp.asarray([0.0, 0.0, 1.0], state.q.dtype)
    weight = mass * gravity * z

    def wanted(s: Array, x: Array, v: Array) -> Array:
        """Return A at the time s from now, by the Taylor series of the reference."""
        c = reference
        acceleration = c.acceleration + s * (c.jerk + 0.5 * s * c.snap)
        e_v = v - (c.velocity + s * (c.acceleration + 0.5 * s * c.jerk))
        e_x = x - (c.position + s * (c.velocity + 0.5 * s * c.acceleration))
        return weight + mass * acceleration - gains.position * e_x - gains.velocity * e_v

    up = rotate(state.q, z)
    force = wanted(jnp.zeros_like(mass), x, v)
    if is_concrete(force) and not np.all(np.isfinite(attitude_of(force, reference.heading))):
        text = "wanted a reference with a force that is neither 0 nor along the heading"
        raise ValueError(f"reference: {text}, got the force {force}")
    thrust = dot(force, up)
    a = thrust * up / mass - gravity * z

    # The jerk of the body follows from the rates of the thrust and of body z.
    of_force = mass * reference.jerk - gains.position * (v - reference.velocity)
    of_force = of_force - gains.velocity * (a - reference.acceleration)
    of_up = rotate(state.q, cross(state.omega, z))
    jerk = ((dot(of_force, up) + dot(force, of_up)) * up + thrust * of_up) / mass

    def attitude(s: Array) -> Array:
        """Return the attitude setpoint at the time s from now, to its second derivative."""
        ahead = wanted(s, x + s * (v + 0.5 * s * a), v + s * (a + 0.5 * s * jerk))
        rate, acceleration = reference.heading_rate, reference.heading_acceleration
        return attitude_of(ahead, reference.heading + s * (rate + 0.5 * s * acceleration))

    turn = follow(attitude, jnp.zeros_like(mass))
    turning = Gains(damping=gains.damping, stiffness=gains.stiffness)
    return Lift(thrust, geometric_law(state, turning, turn, body))


def check_gravity(gravity: ArrayLike, dtype: jnp.dtype) -> Array:
    """Return gravity as a checked array () of this dtype."""
    gravity = exactly("gravity", gravity, ())
    finite("gravity", gravity)
    return jnp.asarray(gravity, dtype)
