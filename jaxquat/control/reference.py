"""References: an attitude with its derivatives, and a position and heading with theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, finite, takes, unit_quaternion
from jaxquat._internal.declared import Field, checked_record
from jaxquat.quaternion import conjugate, multiply


class Reference(NamedTuple):
    """An attitude to follow, a pytree.

    Attributes:
        q: attitude, reference to world, (4,).
        omega: its rate in the axes of the REFERENCE [rad/s], (3,).
        alpha: its angular acceleration in the same axes [rad/s^2], (3,), for the feed-forward.

    Examples:
        >>> reference = jq.control.Reference(level, omega=zero, alpha=jnp.array([0.0, 0.0, 0.5]))
    """

    q: Array
    omega: Array
    alpha: Array


def follow(attitude: Callable[[Array], Array], t: ArrayLike) -> Reference:
    """Return the reference at time t [s] of a smooth ``attitude(t) -> (4,)``, by derivatives of it.

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
        return 2.0 * multiply(conjugate(q), q_dot)[1:], q

    omega, alpha, q = jax.jvp(rate, (t,), (one,), has_aux=True)
    return Reference(q, omega, alpha)


_REFERENCE = {"q": Field([(4,)], unit_quaternion), "omega": Field([(3,)]), "alpha": Field([(3,)])}


def check_reference(reference: Reference) -> Reference:
    """Return the reference with checked arrays as fields."""
    wanted = "a control.Reference(q, omega, alpha)"
    return checked_record("reference", reference, Reference, _REFERENCE, wanted)


class ReferenceTrajectory(NamedTuple):
    """A position and heading to follow, with their derivatives, in world axes with z up; a pytree.

    The heading is the angle about world z from world x to the horizontal direction of body x.

    Attributes:
        position: (3,) [m].
        velocity: [m/s], (3,).
        acceleration: [m/s^2], (3,).
        jerk: [m/s^3], (3,).
        snap: [m/s^4], (3,).
        heading: () [rad].
        heading_rate: () [rad/s].
        heading_acceleration: () [rad/s^2].

    Examples:
        >>> reference = jq.control.follow_position(lambda t: jnp.full(3, 0.5) * t**2, 4.0)  # m, s
    """

    position: Array
    velocity: Array
    acceleration: Array
    jerk: Array
    snap: Array
    heading: Array
    heading_rate: Array
    heading_acceleration: Array


def hold_position(position: ArrayLike, heading: ArrayLike = 0.0) -> ReferenceTrajectory:
    """Return the reference that stays at a position (3,) [m] with a heading () [rad].

    Examples:
        >>> reference = jq.control.hold_position(jnp.array([1.0, 2.0, 5.0]), heading=jnp.pi / 2)
    """
    position, heading = exactly("position", position, (3,)), exactly("heading", heading, ())
    finite("position", position)
    finite("heading", heading)
    heading = jnp.asarray(heading, position.dtype)
    still, level = jnp.zeros_like(position), jnp.zeros_like(heading)
    return ReferenceTrajectory(position, still, still, still, still, heading, level, level)


def follow_position(
    position: Callable[[Array], Array],
    t: ArrayLike,
    heading: Callable[[Array], Array] | None = None,
) -> ReferenceTrajectory:
    """Return the reference at time t [s] of smooth ``position(t) -> (3,)``, ``heading(t) -> ()``.

    The position [m] is differentiated four times, the heading [rad], 0 by default, twice.

    Examples:
        >>> circle = lambda t: 2.0 * jnp.array([jnp.cos(1.5 * t), jnp.sin(1.5 * t), 0.0])  # m
        >>> reference = jq.control.follow_position(circle, 1.0, heading=lambda t: 1.5 * t)
        >>> f"{jnp.linalg.norm(reference.velocity):.2f} m/s, {reference.heading_rate:.2f} rad/s"
        '3.00 m/s, 1.50 rad/s'
    """
    takes("position", position, "t")
    t = exactly("t", t, ())
    places = _derivatives(lambda t: exactly("position(t)", position(t), (3,)), t, 4)
    if heading is None:
        turns = [jnp.zeros_like(t)] * 3
    else:
        takes("heading", heading, "t")
        turns = _derivatives(lambda t: exactly("heading(t)", heading(t), ()), t, 2)
    return ReferenceTrajectory(*places, *turns)


def _derivatives(function: Callable[[Array], Array], t: Array, count: int) -> list[Array]:
    """Return the value at t and ``count`` derivatives, by nested forward mode."""
    if not count:
        return [function(t)]
    lower = lambda t: _derivatives(function, t, count - 1)  # noqa: E731
    values, slopes = jax.jvp(lower, (t,), (jnp.ones_like(t),))
    return [*values, slopes[-1]]


_TRAJECTORY = dict.fromkeys(ReferenceTrajectory._fields[:5], Field([(3,)], finite))
_TRAJECTORY |= dict.fromkeys(ReferenceTrajectory._fields[5:], Field([()], finite))


def check_trajectory(reference: ReferenceTrajectory) -> ReferenceTrajectory:
    """Return the trajectory with checked arrays as fields."""
    wanted = "a control.ReferenceTrajectory"
    return checked_record("reference", reference, ReferenceTrajectory, _TRAJECTORY, wanted)


def attitude_of(force: Array, heading: Array) -> Array:
    """Return the attitude (4,) with body z along ``force`` (3,), world axes, and this heading."""
    # It turns by the heading about z, then about x and y. Body x is the heading's projection on the
    # plane normal to the force; NaN where the force is 0 or along the heading.
    cosine, sine = jnp.cos(heading), jnp.sin(heading)
    ahead, left = cosine * force[0] + sine * force[1], cosine * force[1] - sine * force[0]
    up, zero = force[2], jnp.zeros_like(force[2])
    across = jnp.sqrt(left * left + up * up)
    length = jnp.sqrt(ahead * ahead + across * across)
    inverted = up < 0
    roll = _unit(jnp.where(inverted, -left, across + up), jnp.where(inverted, across - up, -left))
    pitch = _unit(length + across, ahead)
    yaw = jnp.stack([jnp.cos(0.5 * heading), zero, zero, jnp.sin(0.5 * heading)])
    about_x = jnp.stack([roll[0], roll[1], zero, zero])
    about_y = jnp.stack([pitch[0], zero, pitch[1], zero])
    return multiply(multiply(yaw, about_x), about_y)


def _unit(cosine: Array, sine: Array) -> Array:
    pair = jnp.stack([cosine, sine])
    return pair / jnp.sqrt(cosine * cosine + sine * sine)
