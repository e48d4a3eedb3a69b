"""The motion that a tracking law follows: an attitude with its rate and acceleration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal.checks import exactly, instance, takes, unit_quaternion


class Reference(NamedTuple):
    """An attitude to follow, a pytree.

    Attributes:
        q: attitude, reference to world, (4,).
        omega: its rate [rad/s], (3,), in the axes of the REFERENCE, given by q.
        alpha: its angular acceleration [rad/s^2], (3,), in the same axes, for the feed-forward.

    Examples:
        >>> level, still = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
        >>> reference = jq.control.Reference(level, omega=still, alpha=jnp.array([0.0, 0.0, 0.5]))
        >>> body = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))  # kg m^2
        >>> gains = jq.control.Gains(damping=jnp.ones(3), stiffness=jnp.ones(3))
        >>> tau = jq.control.tracking_law(jq.State(level, still), gains, reference, body)
        >>> f"{tau[2]:.2f} N m"  # the feed-forward, 4 kg m^2 times 0.5 rad/s^2
        '2.00 N m'
    """

    q: Array
    omega: Array
    alpha: Array


def at_rest(q: ArrayLike) -> Reference:
    """The constant reference at the attitude q (4,).

    ValueError for a concrete q that is not unit within 1e-4.

    Examples:
        >>> target = jq.control.at_rest(jnp.array([0.6, 0.0, 0.0, 0.8]))
        >>> target.omega
        Array([0., 0., 0.], dtype=float32)
    """
    q = exactly("q", q, (4,))
    unit_quaternion("q", q)
    return Reference(q, jnp.zeros_like(q[1:]), jnp.zeros_like(q[1:]))


def follow(attitude: Callable[[Array], Array], t: ArrayLike) -> Reference:
    """The reference at time t [s] of a smooth motion ``attitude(t) -> (4,)`` of unit quaternions.

    Differentiation gives its rate and acceleration: ``omega = 2 vec(q* q')``, ``alpha = omega'``.

    Examples:
        >>> attitude = lambda t: jq.quaternion.exp(jnp.array([0.0, 0.0, 0.5]) * t**2)  # 1 rad/s^2
        >>> reference = jq.control.follow(attitude, 3.0)
        >>> f"{reference.omega[2]:.2f} rad/s, {reference.alpha[2]:.2f} rad/s^2"
        '3.00 rad/s, 1.00 rad/s^2'
    """
    takes("attitude", attitude, "t")
    t = exactly("t", t, ())
    one = jnp.ones_like(t)

    def rate(t: Array) -> tuple[Array, Array]:
        q, q_dot = jax.jvp(lambda t: exactly("attitude", attitude(t), (4,)), (t,), (one,))
        return 2.0 * quaternion.multiply(quaternion.conjugate(q), q_dot)[1:], q

    omega, alpha, q = jax.jvp(rate, (t,), (one,), has_aux=True)
    return Reference(q, omega, alpha)


def check_reference(reference: Reference) -> Reference:
    """Return the reference with arrays as fields, checked; errors name the field."""
    instance("reference", reference, Reference, "a control.Reference(q, omega, alpha)")
    q = exactly("reference.q", reference.q, (4,))
    unit_quaternion("reference.q", q)
    omega = exactly("reference.omega", reference.omega, (3,))
    return Reference(q, omega, exactly("reference.alpha", reference.alpha, (3,)))
