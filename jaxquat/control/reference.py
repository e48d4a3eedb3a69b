"""The motion that a tracking law follows: an attitude with its rate and acceleration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import exactly, instance, takes, unit_quaternion
from jaxquat.rotations import quaternion


class Reference(NamedTuple):
    """An attitude to follow, a pytree.

    Attributes:
        q: attitude, reference to world, (4,).
        omega: its rate [rad/s], (3,), in ITS OWN axes, those of q.
        alpha: its angular acceleration [rad/s^2], (3,), in its own axes too: the feed-forward.
    """

    q: Array
    omega: Array
    alpha: Array


def at_rest(q: ArrayLike) -> Reference:
    """The reference that stands still at the attitude q (4,).

    ValueError for a concrete q that is not unit within 1e-4.
    """
    q = exactly("q", q, (4,))
    unit_quaternion("q", q)
    return Reference(q, jnp.zeros_like(q[1:]), jnp.zeros_like(q[1:]))


def follow(attitude: Callable[[Array], Array], t: ArrayLike) -> Reference:
    """The reference at time t [s] of a smooth motion ``attitude(t) -> (4,)`` of unit quaternions.

    Its rate and acceleration come by differentiation: ``omega = 2 vec(q* q')``, ``alpha = omega'``.
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
    """A Reference with arrays for fields, or an error that names the field."""
    instance("reference", reference, Reference, "a control.Reference(q, omega, alpha)")
    q = exactly("reference.q", reference.q, (4,))
    unit_quaternion("reference.q", q)
    omega = exactly("reference.omega", reference.omega, (3,))
    return Reference(q, omega, exactly("reference.alpha", reference.alpha, (3,)))
