"""Control laws without memory: the torque as a function of state, gains and target."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import euler, quaternion
from jaxquat._internal.checks import exactly, finite, instance, unit_quaternion
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import cross, matvec
from jaxquat.control.reference import Reference, check_reference
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State, broadcastable


class Gains(NamedTuple):
    """Gains per body axis (x, y, z), a pytree.

    Attributes:
        damping: of the rate error [N m s/rad], (3,).
        stiffness: of the attitude error [N m/rad], (3,).

    Examples:
        >>> moments, k = jnp.diag(body.inertia), jnp.array([1.0, 2.0, 3.0])  # N m/rad
        >>> critical = jq.control.Gains(2.0 * jnp.sqrt(moments * k), k)
    """

    damping: Array
    stiffness: Array


def shortest(error: Array) -> Array:
    """Return twice the vector part of an attitude error q* q_r (4,), of the sign with w >= 0."""
    return 2.0 * jnp.where(error[0] < 0, -error, error)[1:]


def quaternion_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Return the torque ``-d omega + 2 k vec(q* (s target))`` per axis. -> (3,) [N m].

    ``target`` is the attitude to reach, (4,), and s = ±1 its sign on the shortest way. For small
    errors the second term is ``k`` times the rotation vector to the target. The torque is
    discontinuous a half turn away from it. Hoffmann 9.8 to 9.10.

    Examples:
        >>> turned = start._replace(q=jnp.array([0.6, 0.0, 0.0, 0.8]))
        >>> jq.control.quaternion_law(turned, gains, level)[2].round(1)
        Array(-3.2, dtype=float32)
    """
    state, gains = broadcastable("state", state), check_gains(gains)
    target = exactly("target", target, (4,))
    unit_quaternion("target", target)
    error = quaternion.multiply(quaternion.conjugate(state.q), target)
    return gains.stiffness * shortest(error) - gains.damping * state.omega


def euler_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Return the torque ``-d omega - k sin(angle - target)`` of the aircraft angles. -> (3,) [N m].

    ``target`` is (roll, pitch, yaw) [rad]; roll acts on x, pitch on y, yaw on z. Not for gimbal
    lock (pitch ±pi/2). Hoffmann 9.2 and 9.3.

    Examples:
        >>> target = jnp.array([0.0, 0.0, jnp.pi / 6])
        >>> jq.control.euler_law(start, gains, target)[2].round(2)  # 2 sin(30 deg)
        Array(1., dtype=float32)
    """
    state, gains = broadcastable("state", state), check_gains(gains)
    target = exactly("target", target, (3,))
    angles = euler.from_quaternion(state.q, "ZYX")[::-1]
    return -gains.damping * state.omega - gains.stiffness * jnp.sin(angles - target)


def tracking_law(state: State, gains: Gains, reference: Reference, body: Body) -> Array:
    """Follow a moving reference like ``quaternion_law``, with feed-forward. -> (3,) [N m].

    The torque is ``2 k vec(q* (s q_r)) - d (omega - omega_r) + I (alpha_r - omega × omega_r) +
    omega × I omega``, with rate and acceleration of the reference in body axes; discontinuous a
    half turn away. B. Wie, Space Vehicle Dynamics and Control, 2nd ed. 2008, section 7.3.

    Examples:
        >>> steady = jq.control.Reference(level, omega=jnp.array([1.0, 1.0, 0.0]), alpha=zero)
        >>> tau = jq.control.tracking_law(start._replace(omega=steady.omega), gains, steady, body)
        >>> f"{tau[2]:.2f} N m"  # no error: the feed-forward keeps the rate, (I2 - I1) w1 w2
        '1.00 N m'
    """
    gains, error, torque = _followed(state, gains, reference, body)
    return gains.stiffness * shortest(error) + torque


def geometric_law(state: State, gains: Gains, reference: Reference, body: Body) -> Array:
    """Follow a moving reference with an error that is smooth on all of SO(3). -> (3,) [N m].

    This is ``tracking_law`` with the error ``1/2 vee(R_r^T R - R^T R_r)``: the pull is k sin(angle)
    and vanishes at a half turn, an unstable equilibrium. T. Lee, M. Leok and N. H. McClamroch,
    Geometric tracking control of a quadrotor UAV on SE(3), CDC 2010, (11) and (16).

    Examples:
        >>> target = jq.control.Reference(level, zero, zero)
        >>> state = jq.State(jnp.array([0.6, 0.0, 0.0, 0.8]), zero)  # 106 deg away
        >>> tau = jq.control.geometric_law(state, gains, target, body)
        >>> f"{tau[2]:.2f} N m"  # -2 k 0.6 0.8
        '-1.92 N m'
    """
    gains, error, torque = _followed(state, gains, reference, body)
    return 2.0 * gains.stiffness * error[0] * error[1:] + torque


def _followed(
    state: State, gains: Gains, reference: Reference, body: Body
) -> tuple[Gains, Array, Array]:
    """Return checked gains, the attitude error q* q_r, and the damping plus the feed-forward."""
    if isinstance(state, Body):  # the first argument in an old release
        order = "the order is state, gains, reference, body"
        raise TypeError(f"state: wanted a jq.State, got a Body; {order}")
    state, gains = broadcastable("state", state), check_gains(gains)
    reference = check_reference(reference)
    instance("body", body, Body, "a jq.Body")
    error = quaternion.multiply(quaternion.conjugate(state.q), reference.q)
    omega = quaternion.rotate(error, reference.omega)
    alpha = quaternion.rotate(error, reference.alpha)
    forward = matvec(body.inertia, alpha - cross(state.omega, omega))
    forward = forward + cross(state.omega, matvec(body.inertia, state.omega))
    return gains, error, forward - gains.damping * (state.omega - omega)


def check_gains(gains: Any, kind: Any = Gains) -> Any:
    """Return gains of this kind with checked arrays (3,) as fields; errors name the field."""
    wanted = f"control.{kind.__name__}({', '.join(kind._fields)})"
    fields = dict.fromkeys(kind._fields, Field([(3,)], finite))
    return checked_record("gains", gains, kind, fields, wanted)
