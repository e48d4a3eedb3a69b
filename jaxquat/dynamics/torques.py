"""Torques in body axes: factories that return a ``torque(t, state, params)``, and their sum.

Gradients reach the arrays that a factory received. With a controller or inputs, every torque takes
the command as fourth argument: ``commanded`` returns it, ``total`` and ``in_world`` pass it on, the
others ignore it. The examples use a body that turns about its z axis:

Examples:
    >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 2.0]))  # rad/s
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal.checks import exactly, function, instance, takes
from jaxquat._internal.linear import cross, dot, matvec, trace
from jaxquat._internal.renamed import order_of
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Parts, Torque, check_parts, constant_of, name_of
from jaxquat.dynamics.forces import EARTH
from jaxquat.dynamics.state import State, Wrench, broadcastable, moving

__all__ = ["commanded", "drag", "gravity_gradient", "heavy_top", "in_world", "total", "zero"]


def zero(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
    """Return no torque: the free body.

    Examples:
        >>> jq.torques.zero(0.0, state, None)
        Array([0., 0., 0.], dtype=float32)
    """
    return jnp.zeros_like(broadcastable("state", state).omega)


def commanded(t: ArrayLike, state: State, params: Any, *command: Any) -> Any:
    """Return the command, the controller's or the input; TypeError if there is neither.

    Examples:
        >>> jq.torques.commanded(0.0, state, None, jnp.array([0.5, 0.0, 0.0]))  # N m
        Array([0.5, 0. , 0. ], dtype=float32)
    """
    if not command:
        wanted = "a controller or inputs, which command a torque"
        hint = "for linearize write lambda t, state, u: plant(t, state, params, u)"
        raise TypeError(f"torques.commanded: wanted {wanted}, got neither; {hint}")
    return command[0]


def total(*torques: Torque) -> Torque:
    """Add any number of torques, with the forces and rates of aux states that some of them return.

    Examples:
        >>> plant = jq.torques.total(jq.torques.commanded, jq.torques.drag(0.1))
        >>> plant(0.0, state, None, jnp.array([0.5, 0.0, 0.0])).round(3)  # N m
        Array([ 0.5,  0. , -0.2], dtype=float32)
    """
    for torque in torques:
        function("torques", torque)

    def total(t: ArrayLike, state: State, params: Any, *command: Any) -> Any:
        whole = Parts(zero(t, state, params), None)
        for torque in torques:
            part = _part("torque", torque, t, state, params, *command)
            whole = Parts(*map(_added, whole, part))
        return whole.joined()

    total.__name__ = f"total({', '.join(map(name_of, torques))})"
    return total


def in_world(world_torque: Torque) -> Torque:
    """Convert ``world_torque(t, state, params)``, a torque in WORLD axes, to body axes.

    ``state.omega`` is still the rate in body axes: ``quaternion.rotate(state.q, state.omega)`` is
    that in world axes. Forces, always in world axes, and rates of aux states are unchanged.

    Examples:
        >>> torque = jq.torques.in_world(lambda t, state, params: jnp.array([3.0, 0.0, 0.0]))  # N m
        >>> torque(0.0, state._replace(q=jnp.full(4, 0.5)), None)  # world x is body z
        Array([0., 0., 3.], dtype=float32)
    """
    function("world_torque", world_torque)

    def in_world(t: ArrayLike, state: State, params: Any, *command: Any) -> Any:
        part = _part("world_torque", world_torque, t, state, params, *command)
        return part._replace(torque=quaternion.rotate_inverse(state.q, part.torque)).joined()

    in_world.__name__ = f"in_world({name_of(world_torque)})"
    return in_world


def gravity_gradient(
    body: Body, mu: ArrayLike = EARTH, position: Callable[[ArrayLike], Array] | None = None
) -> Torque:
    """Make the gravity gradient on an orbit: its torque, and its reaction on the orbit.

    ``mu`` [m^3/s^2] is the Earth's by default. With the direction u to the body, in body axes, and
    the distance r from the centre, the torque is ``3 mu/r^3 (u × I u)`` (P. C. Hughes, Spacecraft
    Attitude Dynamics, 1986, 8.1 and 8.2).

    Without ``position`` the centre is the origin of world axes, the state needs a position, and the
    result is a ``Wrench`` with the force ``-3 mu/(2 r^4) ((tr I - 5 u . I u) u + 2 I u)``. Both
    derive from the potential ``-mu/(2 r^3) (tr I - 3 u . I u)``, so with ``forces.point_mass`` the
    energy and the angular momentum about the origin are constant. With ``position(t)``, from the
    centre to the body, (3,) [m], world axes, the result is the torque alone.

    Examples:
        >>> body = jq.Body(jnp.diag(jnp.array([20.0, 30.0, 40.0])))
        >>> tilted = state._replace(q=jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 4])))
        >>> place = lambda t: jnp.array([7.0e6, 0.0, 0.0])  # m
        >>> torque = jq.torques.gravity_gradient(body, position=place)
        >>> f"{torque(0.0, tilted, None)[2]:.2e} N m"
        '-1.74e-05 N m'
    """
    instance("body", body, Body, "a jq.Body")
    if callable(mu):
        order = order_of("torques.gravity_gradient")
        raise TypeError(f"mu: wanted a number, got a function{order}")
    inertia, mu = body.inertia, constant_of("mu", mu, ())
    if position is not None:
        takes("position", position, "t")

    def gravity_gradient(t: ArrayLike, state: State, params: Any, *command: Any) -> Array | Wrench:
        if position is None:
            r = moving(state, hint="; or pass torques.gravity_gradient a position(t)").position
        else:
            r = exactly("position(t)", position(t), (3,))
        distance = jnp.sqrt(dot(r, r))
        # Normalise r, and compute mu/r^3 by three divisions: r^5 would overflow float32.
        u = quaternion.rotate_inverse(state.q, r / distance)
        moment = matvec(inertia, u)
        strength = 3.0 * (jnp.asarray(mu, u.dtype) / distance / distance / distance)
        torque = strength * cross(u, moment)
        if position is not None:
            return torque
        pull = 0.5 * (trace(inertia) - 5.0 * dot(u, moment)) * u + moment
        return Wrench(torque, -(strength / distance) * quaternion.rotate(state.q, pull))

    return gravity_gradient


def heavy_top(weight: ArrayLike, offset: ArrayLike) -> Torque:
    """Make the torque of a weight [N] that pulls along world -z at ``offset`` (3,) [m], body axes.

    The offset leads from the fixed point to the centre of mass; the potential is
    ``weight (R offset)_z`` [J].

    Examples:
        >>> torque = jq.torques.heavy_top(10.0, jnp.array([0.0, 0.0, 0.2]))  # N, m
        >>> tilted = state._replace(q=jq.quaternion.exp(jnp.array([jnp.pi / 6, 0.0, 0.0])))
        >>> torque(0.0, tilted, None)[0].round(3)  # N m: it falls further
        Array(1., dtype=float32)
    """
    weight, offset = constant_of("weight", weight, ()), constant_of("offset", offset, (3,))

    def heavy_top(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
        down = jnp.asarray([0.0, 0.0, -1.0], state.q.dtype)
        return cross(offset, weight * quaternion.rotate_inverse(state.q, down))

    return heavy_top


def drag(damping: ArrayLike) -> Torque:
    """Make the drag ``-D omega``; ``damping`` is D [N m s]: (3, 3), (3,) for a diagonal, or ().

    Examples:
        >>> jq.torques.drag(jnp.array([0.1, 0.2, 0.3]))(0.0, state, None)[2].round(3)
        Array(-0.6, dtype=float32)
    """
    damping = constant_of("damping", damping, (), (3,), (3, 3))

    def drag(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
        return -(matvec(damping, state.omega) if damping.ndim == 2 else damping * state.omega)

    return drag


def _part(
    role: str, torque: Torque, t: ArrayLike, state: State, params: Any, *command: Any
) -> Parts:
    """Return the checked parts of a torque within another one, whose argument ``role`` it is."""
    arguments, why = "t, state, params", "there is neither controller nor inputs"
    if command:
        arguments, why = "t, state, params, command", "there is a controller, or inputs"
    returned = takes(role, torque, arguments, why)(t, state, params, *command)
    return check_parts(f"{role} {name_of(torque)}", returned, state)


def _added(one: Any, other: Any) -> Any:
    """Add two parts of torques; either may be None."""
    if one is None or other is None:
        return other if one is None else one
    return jax.tree.map(jnp.add, one, other)
