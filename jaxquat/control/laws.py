"""Control laws without memory: the torque as a function of state, gains and target.

Every law damps the rate error and pulls towards the target like a spring. They differ in their
measure of the attitude error: the vector part of its quaternion on the shortest way
(``quaternion_law``, ``tracking_law``), sines of angles (``euler_law``) or the skew part of its
matrix (``geometric_law``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import euler, quaternion
from jaxquat._internal.checks import broadcast, exactly, finite, instance, unit_quaternion
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
        >>> moments = jnp.array([0.1, 0.1, 0.4])  # kg m^2
        >>> stiffness = jnp.array([0.4, 0.4, 0.9])  # N m/rad
        >>> gains = jq.control.Gains(2.0 * jnp.sqrt(moments * stiffness), stiffness)
        >>> np.asarray(gains.damping).round(2)  # critical damping [N m s/rad]
        array([0.4, 0.4, 1.2], dtype=float32)
    """

    damping: Array
    stiffness: Array


def shortest(q: ArrayLike, target: ArrayLike) -> Array:
    """``target`` or ``-target``, whichever is nearer to q. (..., 4), (..., 4) -> (..., 4).

    Both are the same attitude. At exactly a half turn the result is ``target``.

    Examples:
        >>> q, target = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([-0.5, 0.5, 0.5, 0.5])
        >>> jq.control.shortest(q, target)  # 120 deg away rather than 240
        Array([ 0.5, -0.5, -0.5, -0.5], dtype=float32)
    """
    q, target = broadcast(("q", q, (4,)), ("target", target, (4,)))
    return jnp.where(jnp.sum(q * target, axis=-1, keepdims=True) < 0, -target, target)


def quaternion_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Torque ``-d omega + 2 k vec(q* (s target))`` on the shortest way, per axis. -> (3,) [N m].

    ``target`` is the attitude to reach, (4,), and s = ±1 its sign on the shortest way. For small
    errors the second term is ``k`` times the rotation vector to the target. The torque is
    discontinuous where the attitude is a half turn away from the target. Hoffmann 9.8 to 9.10.

    Examples:
        >>> gains = jq.control.Gains(damping=jnp.full(3, 0.4), stiffness=jnp.full(3, 2.0))
        >>> turned = jq.quaternion.exp(jnp.array([0.1, 0.0, 0.0]))  # 0.1 rad about x
        >>> state = jq.State(turned, omega=jnp.array([0.0, 0.5, 0.0]))  # 0.5 rad/s about y
        >>> tau = jq.control.quaternion_law(state, gains, jnp.array([1.0, 0.0, 0.0, 0.0]))
        >>> f"{tau[0]:.2f} N m, {tau[1]:.2f} N m"  # the spring about x, the damper about y
        '-0.20 N m, -0.20 N m'
    """
    state, gains = broadcastable("state", state), check_gains(gains)
    target = exactly("target", target, (4,))
    unit_quaternion("target", target)
    return _shortest_way(state.q, gains, target) - gains.damping * state.omega


def euler_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Torque ``-d omega - k sin(angle - target)`` of the aircraft angles. -> (3,) [N m].

    ``target`` is (roll, pitch, yaw) [rad]; roll acts on x, pitch on y, yaw on z. The law works away
    from gimbal lock (pitch ±pi/2). Hoffmann 9.2 and 9.3.

    Examples:
        >>> gains = jq.control.Gains(damping=jnp.full(3, 0.4), stiffness=jnp.full(3, 2.0))
        >>> level = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> tau = jq.control.euler_law(level, gains, jnp.radians(jnp.array([0.0, 0.0, 30.0])))
        >>> f"{tau[2]:.2f} N m"  # 2 sin(30 deg), to the heading of 30 deg
        '1.00 N m'
    """
    state, gains = broadcastable("state", state), check_gains(gains)
    target = exactly("target", target, (3,))
    angles = euler.from_quaternion(state.q, "ZYX")[::-1]
    return -gains.damping * state.omega - gains.stiffness * jnp.sin(angles - target)


def tracking_law(state: State, gains: Gains, reference: Reference, body: Body) -> Array:
    """``quaternion_law`` to a moving reference, with the feed-forward of its motion. -> (3,) [N m].

    ``2 k vec(q* (s q_r)) - d (omega - omega_r) + I (alpha_r - omega × omega_r) + omega × I omega``,
    with rate and acceleration of the reference in body axes. The torque is discontinuous where the
    attitude is a half turn away from the reference. B. Wie, Space Vehicle Dynamics and Control, 2nd
    ed. 2008, section 7.3.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))  # kg m^2
        >>> gains = jq.control.Gains(damping=jnp.full(3, 0.4), stiffness=jnp.full(3, 2.0))
        >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 1.0, 0.0]))
        >>> steady = jq.control.Reference(state.q, state.omega, alpha=jnp.zeros(3))
        >>> tau = jq.control.tracking_law(state, gains, steady, body)
        >>> f"{tau[2]:.2f} N m"  # no error: the feed-forward keeps the rate, (I2 - I1) w1 w2
        '1.00 N m'
    """
    check_order(state, "tracking_law(state, gains, reference, body)")
    state, gains = broadcastable("state", state), check_gains(gains)
    reference = check_reference(reference)
    instance("body", body, Body, "a jq.Body")
    return _shortest_way(state.q, gains, reference.q) + _rate_terms(body, state, gains, reference)


def geometric_law(state: State, gains: Gains, reference: Reference, body: Body) -> Array:
    """``tracking_law`` with an error that is smooth on all of SO(3). -> (3,) [N m].

    The error is ``1/2 vee(R_r^T R - R^T R_r)``, and the pull is k sin(angle). The pull vanishes at
    a half turn, which is an unstable equilibrium. T. Lee, M. Leok and N. H. McClamroch, Geometric
    tracking control of a quadrotor UAV on SE(3), CDC 2010, (11) and (16).

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))  # kg m^2
        >>> gains = jq.control.Gains(damping=jnp.full(3, 0.4), stiffness=jnp.full(3, 1.0))
        >>> target = jq.control.at_rest(jnp.array([1.0, 0.0, 0.0, 0.0]))
        >>> state = jq.State(jnp.array([0.6, 0.0, 0.0, 0.8]), jnp.zeros(3))  # 106 deg away
        >>> laws = jq.control.geometric_law, jq.control.tracking_law
        >>> [f"{law(state, gains, target, body)[2]:.2f} N m" for law in laws]  # -2 0.6 0.8, -2 0.8
        ['-0.96 N m', '-1.60 N m']
    """
    check_order(state, "geometric_law(state, gains, reference, body)")
    state, gains = broadcastable("state", state), check_gains(gains)
    reference = check_reference(reference)
    instance("body", body, Body, "a jq.Body")
    error = quaternion.multiply(quaternion.conjugate(state.q), reference.q)
    return 2.0 * gains.stiffness * error[0] * error[1:] + _rate_terms(body, state, gains, reference)


def check_order(state: Any, call: str) -> None:
    """Raise TypeError if a body is passed as the state, as in an old release.

    ``call`` shows the order of the arguments.
    """
    if isinstance(state, Body):
        raise TypeError(f"state: wanted a jq.State, got a Body; the order is {call}")


def _shortest_way(q: Array, gains: Gains, target: Array) -> Array:
    """The pull ``2 k vec(q* (s target))``."""
    doubled = 2.0 * gains.stiffness
    return doubled * quaternion.multiply(quaternion.conjugate(q), shortest(q, target))[1:]


def _rate_terms(body: Body, state: State, gains: Gains, reference: Reference) -> Array:
    """The damping of the rate error plus the feed-forward, the torque that the motion needs."""
    to_body = quaternion.multiply(quaternion.conjugate(state.q), reference.q)
    omega = quaternion.rotate(to_body, reference.omega)
    alpha = quaternion.rotate(to_body, reference.alpha)
    forward = matvec(body.inertia, alpha - cross(state.omega, omega))
    forward = forward + cross(state.omega, matvec(body.inertia, state.omega))
    return forward - gains.damping * (state.omega - omega)


def check_gains(gains: Any, kind: Any = Gains) -> Any:
    """Return gains of this kind with arrays (3,) as fields, checked; errors name the field."""
    instance("gains", gains, kind, f"control.{kind.__name__}({', '.join(kind._fields)})")
    fields = gains._asdict().items()
    gains = kind(*(exactly(f"gains.{name}", value, (3,)) for name, value in fields))
    for name, value in gains._asdict().items():
        finite(f"gains.{name}", value)
    return gains
