"""The trajectory that a rotorcraft follows: a position and a heading with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, finite, instance, takes
from jaxquat.quaternion import multiply


class ReferenceTrajectory(NamedTuple):
    """A position and heading to follow, with their derivatives, in world axes with z up; a pytree.

    The heading is the direction of body x seen from above, an angle about world z from world x.

    Attributes:
        position: (3,) [m].
        velocity: its derivative [m/s], (3,).
        acceleration: [m/s^2], (3,).
        jerk: [m/s^3], (3,).
        snap: [m/s^4], (3,).
        heading: () [rad].
        heading_rate: () [rad/s].
        heading_acceleration: () [rad/s^2].

    Examples:
        >>> place = lambda t: jnp.array([0.5, 0.0, 0.0]) * t**2 + jnp.array([0.0, 0.0, 10.0])  # m
        >>> reference = jq.control.follow_position(place, 4.0)
        >>> reference.position, reference.velocity[0], reference.acceleration[0]
        (Array([ 8.,  0., 10.], dtype=float32), Array(4., dtype=float32), Array(1., dtype=float32))
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
    """The reference that stays at a position (3,) [m] with a heading () [rad].

    ValueError for concrete values that are not finite.

    Examples:
        >>> reference = jq.control.hold_position(jnp.array([1.0, 2.0, 5.0]), heading=jnp.pi / 2)
        >>> reference.position, reference.velocity
        (Array([1., 2., 5.], dtype=float32), Array([0., 0., 0.], dtype=float32))
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
    """The reference at time t [s] of a smooth ``position(t) -> (3,)`` and ``heading(t) -> ()``.

    It differentiates the position [m] four times and the heading [rad] twice. Without ``heading``
    the heading stays 0.

    Examples:
        >>> circle = lambda t: 2.0 * jnp.array([jnp.cos(1.5 * t), jnp.sin(1.5 * t), 0.0])  # m
        >>> reference = jq.control.follow_position(circle, 1.0, heading=lambda t: 1.5 * t)
        >>> speed, pull = map(jnp.linalg.norm, (reference.velocity, reference.acceleration))
        >>> f"{speed:.2f} m/s, {pull:.2f} m/s^2, {reference.heading_rate:.2f} rad/s"
        '3.00 m/s, 4.50 m/s^2, 1.50 rad/s'
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
    """The value at t and ``count`` derivatives, by nested forward mode."""

    def with_slopes(t: Array, count: int) -> list[Array]:
        if not count:
            return [function(t)]
        values, slopes = jax.jvp(lambda t: with_slopes(t, count - 1), (t,), (jnp.ones_like(t),))
        return [*values, slopes[-1]]

    return with_slopes(t, count)


def check_trajectory(reference: ReferenceTrajectory) -> ReferenceTrajectory:
    """Return the trajectory with arrays as fields, checked; errors name the field."""
    instance("reference", reference, ReferenceTrajectory, "a control.ReferenceTrajectory")
    shapes = [(3,)] * 5 + [()] * 3
    fields = zip(ReferenceTrajectory._fields, reference, shapes, strict=True)
    reference = ReferenceTrajectory(
        *(exactly(f"reference.{name}", value, shape) for name, value, shape in fields)
    )
    for name, value in reference._asdict().items():
        finite(f"reference.{name}", value)
    return reference


def attitude_of(force: Array, heading: Array) -> Array:
    """The attitude (4,) with body z along ``force`` (3,), world axes, and this heading.

    It is a turn by the heading about z, then a turn about x and a turn about y. So body x lies
    along the projection of the heading on the plane normal to the force. The sines and cosines of
    half the two angles are computed from the force, without the angles. The result is NaN where the
    force is 0 or along the heading.
    """
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
