"""Torques in body axes: factories that close over what they need and return ``torque(t, state, params)``.

They hold arrays as they are given, so gradients flow to every one of them. Add them with ``total``.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat.arguments import exactly, floating, function, instance, takes
from jaxquat.body import Body
from jaxquat.linear import cross, dot, matvec
from jaxquat.mechanics import State, Torque, check_torque, torque_name


def zero(t: ArrayLike, state: State, params: Any) -> Array:
    """No torque: the free body."""
    return jnp.zeros_like(state.omega)


def total(*torques: Torque) -> Torque:
    """The sum of several torques, given one by one."""
    for each in torques:
        function("torques", each)

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        tau = zero(t, state, params)
        for each in torques:
            tau = tau + check_torque(torque_name(each), each(t, state, params), state)
        return tau

    return torque


def in_world(world_torque: Torque) -> Torque:
    """A torque given in WORLD axes: ``world_torque(t, state, params)``, rotated into the body with the attitude of the moment.

    ``state.omega`` stays the body rate; ``quaternion.rotate(state.q, state.omega)`` is the world rate.
    """
    function("world_torque", world_torque)

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        return quaternion.rotate_inverse(state.q, world_torque(t, state, params))

    return torque


def gravity_gradient(body: Body, position: Callable[[ArrayLike], Array], mu: ArrayLike = 3.986004418e14) -> Torque:
    """Gravity gradient on an orbit: ``3 mu/r^5 (r × I r)``, r in body axes.

    ``position(t)`` is the (3,) position of the body from the centre of attraction, world axes [m]; mu its constant [m^3/s^2], by
    default that of the Earth. P. C. Hughes, Spacecraft Attitude Dynamics, 1986, section 8.1.
    """
    instance("body", body, Body, "a jq.Body")
    takes("position", position, "t")

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        place = position(t)
        distance = jnp.sqrt(dot(place, place))
        down = quaternion.rotate_inverse(state.q, place / distance)  # unit, so that r^5 cannot overflow float32
        rate = jnp.asarray(mu, place.dtype) / distance / distance / distance
        return 3.0 * rate * cross(down, matvec(body.inertia, down))

    return torque


def heavy_top(weight: ArrayLike, offset: ArrayLike) -> Torque:
    """A weight [N] that pulls along world -z at ``offset`` (3,) [m] from the fixed point, body axes: U = weight (R offset)_z."""
    weight, offset = exactly("weight", weight, ()), exactly("offset", offset, (3,))

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        down = jnp.asarray([0.0, 0.0, -1.0], state.q.dtype)
        return cross(offset, weight * quaternion.rotate_inverse(state.q, down))

    return torque


def drag(damping: ArrayLike) -> Torque:
    """Viscous drag ``-D omega``; ``damping`` is D: (3,) for a diagonal, or (3, 3) [N m s]."""
    damping = floating("damping", damping)
    damping = exactly("damping", damping, (3, 3) if damping.ndim == 2 else (3,))

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        return -(matvec(damping, state.omega) if damping.ndim == 2 else damping * state.omega)

    return torque


def magnetic(dipole: ArrayLike, field: Callable[[ArrayLike], Array]) -> Torque:
    """A dipole (3,) [A m^2] in body axes in a field: ``dipole × B``; ``field(t)`` is B in world axes (3,) [T]."""
    dipole = exactly("dipole", dipole, (3,))
    takes("field", field, "t")

    def torque(t: ArrayLike, state: State, params: Any) -> Array:
        return cross(dipole, quaternion.rotate_inverse(state.q, field(t)))

    return torque
