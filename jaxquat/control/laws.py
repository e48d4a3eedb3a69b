"""Control laws without memory, and the reference that they follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import broadcast, exactly, finite, instance, takes, unit_quaternion
from jaxquat._linear import cross, matvec
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State, broadcastable
from jaxquat.rotations import euler, quaternion


class Gains(NamedTuple):
    """Gains per body axis (x, y, z), a pytree.

    Attributes:
        damping: of the rate error [N m s/rad], (3,).
        stiffness: of the attitude error [N m/rad], (3,).
    """

    damping: Array
    stiffness: Array


class Reference(NamedTuple):
    """An attitude to follow, a pytree. Rate and acceleration are those of the reference, in ITS OWN axes.

    Attributes:
        q: attitude, reference to world, (4,).
        omega: its rate [rad/s], (3,).
        alpha: its angular acceleration [rad/s^2], (3,), the feed-forward.
    """

    q: Array
    omega: Array
    alpha: Array


def at_rest(q: ArrayLike) -> Reference:
    """The reference that stands still at an attitude (4,); ValueError for a concrete one that is not unit within 1e-4."""
    q = exactly("q", q, (4,))
    unit_quaternion("q", q)
    return Reference(q, jnp.zeros_like(q[1:]), jnp.zeros_like(q[1:]))


def follow(attitude: Callable[[Array], Array], t: ArrayLike) -> Reference:
    """The reference at time t [s] of a smooth motion ``attitude(t) -> (4,)`` of unit quaternions: its rate by differentiation."""
    takes("attitude", attitude, "t")
    t = exactly("t", t, ())
    one = jnp.ones_like(t)

    def rate(t: Array) -> tuple[Array, Array]:
        q, q_dot = jax.jvp(lambda t: exactly("attitude", attitude(t), (4,)), (t,), (one,))
        return 2.0 * quaternion.multiply(quaternion.conjugate(q), q_dot)[1:], q

    omega, alpha, q = jax.jvp(rate, (t,), (one,), has_aux=True)
    return Reference(q, omega, alpha)


def shortest(q: ArrayLike, target: ArrayLike) -> Array:
    """Of ``target`` and its negative (one attitude) the one nearer to q; +target at exactly a half turn. -> (..., 4)."""
    q, target = broadcast(("q", q, (4,)), ("target", target, (4,)))
    return jnp.where(jnp.sum(q * target, axis=-1, keepdims=True) < 0, -target, target)


def quaternion_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Torque ``-d omega + 2 k vec(q* (s target))`` on the shortest way (s = ±1), all three per axis. -> (3,) [N m].

    ``target`` is the attitude to reach, (4,). For small errors this is ``k`` times the rotation vector to the target. Hoffmann
    9.8 to 9.10. The torque jumps where the attitude is a half turn away from the target.
    """
    state, target, gains = (
        broadcastable("state", state),
        exactly("target", target, (4,)),
        check_gains(gains),
    )
    unit_quaternion("target", target)
    return _shortest_way(state.q, gains, target) - gains.damping * state.omega


def euler_law(state: State, gains: Gains, target: ArrayLike) -> Array:
    """Torque ``-d omega - k sin(angle - target)`` with aircraft angles, roll on x, pitch on y, yaw on z. -> (3,) [N m].

    ``target`` is (roll, pitch, yaw) [rad], in the order of the axes. Hoffmann 9.2 and 9.3. Valid away from gimbal lock (pitch
    ±pi/2).
    """
    state, target, gains = (
        broadcastable("state", state),
        exactly("target", target, (3,)),
        check_gains(gains),
    )
    angles = euler.from_quaternion(state.q, "ZYX")[::-1]
    return -gains.damping * state.omega - gains.stiffness * jnp.sin(angles - target)


def tracking_law(body: Body, state: State, gains: Gains, reference: Reference) -> Array:
    """``quaternion_law`` towards a moving reference, with the feed-forward that its motion takes. -> (3,) [N m].

    ``2 k vec(q* (s q_r)) - d (omega - omega_r) + I (alpha_r - omega × omega_r) + omega × I omega``, with rate and acceleration of
    the reference turned into body axes. B. Wie, Space Vehicle Dynamics and Control, 2nd ed. 2008, section 7.3. The torque jumps
    where the attitude is a half turn away from the reference.
    """
    instance("body", body, Body, "a jq.Body")
    state, gains, reference = (
        broadcastable("state", state),
        check_gains(gains),
        check_reference(reference),
    )
    return _shortest_way(state.q, gains, reference.q) + _rate_terms(body, state, gains, reference)


def geometric_law(body: Body, state: State, gains: Gains, reference: Reference) -> Array:
    """``tracking_law`` with the error ``1/2 vee(R_r^T R - R^T R_r)``, smooth on all of SO(3). -> (3,) [N m].

    T. Lee, M. Leok and N. H. McClamroch, Geometric tracking control of a quadrotor UAV on SE(3), CDC 2010, (11) and
    (16). The pull is k sin(angle): it vanishes at a half turn, which is an unstable equilibrium.
    """
    instance("body", body, Body, "a jq.Body")
    state, gains, reference = (
        broadcastable("state", state),
        check_gains(gains),
        check_reference(reference),
    )
    error = quaternion.multiply(quaternion.conjugate(state.q), reference.q)
    return 2.0 * gains.stiffness * error[0] * error[1:] + _rate_terms(body, state, gains, reference)


def _shortest_way(q: Array, gains: Gains, target: Array) -> Array:
    return (
        2.0
        * gains.stiffness
        * quaternion.multiply(quaternion.conjugate(q), shortest(q, target))[1:]
    )


def _rate_terms(body: Body, state: State, gains: Gains, reference: Reference) -> Array:
    """Damping of the rate error, and the torque that the reference's motion takes."""
    turn = quaternion.multiply(
        quaternion.conjugate(state.q), reference.q
    )  # reference axes to body axes
    omega, alpha = (
        quaternion.rotate(turn, reference.omega),
        quaternion.rotate(turn, reference.alpha),
    )
    needed = matvec(body.inertia, alpha - cross(state.omega, omega)) + cross(
        state.omega, matvec(body.inertia, state.omega)
    )
    return needed - gains.damping * (state.omega - omega)


def check_reference(reference: Reference) -> Reference:
    """A Reference, its fields as arrays, or an error that names the field."""
    instance("reference", reference, Reference, "a control.Reference(q, omega, alpha)")
    q = exactly("reference.q", reference.q, (4,))
    unit_quaternion("reference.q", q)
    return Reference(
        q,
        *(
            exactly(f"reference.{name}", getattr(reference, name), (3,))
            for name in ("omega", "alpha")
        ),
    )


def check_gains(gains: Any, kind: Any = Gains) -> Any:
    """Gains of this kind, their fields as arrays (3,), or an error that names the field."""
    instance("gains", gains, kind, f"control.{kind.__name__}({', '.join(kind._fields)})")
    gains = kind(
        *(exactly(f"gains.{name}", value, (3,)) for name, value in gains._asdict().items())
    )
    for name, value in gains._asdict().items():
        finite(f"gains.{name}", value)
    return gains
