"""Torques in body axes: factories that close over what they need and return ``torque(t, state, params)``.

They hold arrays as they are given, so gradients flow to every one of them. Add them with ``total``. Beside a controller or inputs
they are called with ``held`` as fourth argument, like any torque, and ignore it; ``held`` alone returns it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import exactly, finite, function, instance, one_shape, takes
from jaxquat._linear import cross, dot, matvec
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque, check_rates, check_torque, name_of, named, torque_name
from jaxquat.dynamics.state import State, broadcastable
from jaxquat.rotations import quaternion

__all__ = [
    "drag",
    "gravity_gradient",
    "heavy_top",
    "held",
    "in_world",
    "magnetic",
    "total",
    "zero",
]


def zero(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
    """No torque: the free body."""
    return jnp.zeros_like(broadcastable("state", state).omega)


def held(t: ArrayLike, state: State, params: Any, *held: Any) -> Any:
    """What the controller commands, or the inputs where there is none: ``total(held, drag(damping))`` is a plant with drag."""
    if not held:
        raise TypeError(
            "torques.held: wanted a controller or inputs, which command a torque, got neither"
        )
    return held[0]


def total(*torques: Torque) -> Torque:
    """The sum of several torques, given one by one. All are called with the same arguments, ``held`` among them if there is one.

    With aux states those that move them return ``(torque, d aux/dt)``, and these rates are added too; the others return a torque.
    """
    for each in torques:
        function("torques", each)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Any:
        tau, rates = zero(t, state, params), None
        for each in torques:
            name, found = torque_name(each), _called("torque", each, t, state, params, *held)
            if _moves_aux(found, state):
                found, moved = check_rates(name, found, state)
                rates = moved if rates is None else jax.tree.map(jnp.add, rates, moved)
            tau = tau + check_torque(name, found, state)
        return tau if rates is None else (tau, rates)

    return named(f"total({', '.join(map(name_of, torques))})", torque)


def in_world(world_torque: Torque) -> Torque:
    """A torque given in WORLD axes: ``world_torque(t, state, params)``, rotated into the body with the attitude of the moment.

    ``state.omega`` stays the body rate; ``quaternion.rotate(state.q, state.omega)`` is the world rate. Rates of aux states that it
    returns beside the torque are passed on.
    """
    function("world_torque", world_torque)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Any:
        found = _called("world_torque", world_torque, t, state, params, *held)
        tau, *rates = found if _moves_aux(found, state) else (found,)
        tau = quaternion.rotate_inverse(
            state.q, check_torque(f"world_{torque_name(world_torque)}", tau, state)
        )
        return (tau, *rates) if rates else tau

    return named(f"in_world({name_of(world_torque)})", torque)


def gravity_gradient(
    body: Body, position: Callable[[ArrayLike], Array], mu: ArrayLike = 3.986004418e14
) -> Torque:
    """Gravity gradient on an orbit: ``3 mu/r^5 (r × I r)``, r in body axes.

    ``position(t)`` is the (3,) position of the body from the centre of attraction, world axes [m]; mu its constant [m^3/s^2], by
    default that of the Earth. P. C. Hughes, Spacecraft Attitude Dynamics, 1986, section 8.1.
    """
    instance("body", body, Body, "a jq.Body")
    takes("position", position, "t")
    mu = exactly("mu", mu, ())
    finite("mu", mu)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        place = exactly("position(t)", position(t), (3,))
        distance = jnp.sqrt(dot(place, place))
        down = quaternion.rotate_inverse(
            state.q, place / distance
        )  # unit, so that r^5 cannot overflow float32
        rate = jnp.asarray(mu, place.dtype) / distance / distance / distance
        return 3.0 * rate * cross(down, matvec(body.inertia, down))

    return named("gravity_gradient", torque)


def heavy_top(weight: ArrayLike, offset: ArrayLike) -> Torque:
    """A weight [N] that pulls along world -z at ``offset`` (3,) [m] from the fixed point, body axes: U = weight (R offset)_z."""
    weight, offset = exactly("weight", weight, ()), exactly("offset", offset, (3,))
    finite("weight", weight)
    finite("offset", offset)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        down = jnp.asarray([0.0, 0.0, -1.0], state.q.dtype)
        return cross(offset, weight * quaternion.rotate_inverse(state.q, down))

    return named("heavy_top", torque)


def drag(damping: ArrayLike) -> Torque:
    """Viscous drag ``-D omega``; ``damping`` is D: (3,) for a diagonal, or (3, 3) [N m s]."""
    damping = one_shape("damping", damping, (3,), (3, 3))
    finite("damping", damping)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        return -(matvec(damping, state.omega) if damping.ndim == 2 else damping * state.omega)

    return named("drag", torque)


def magnetic(dipole: ArrayLike, field: Callable[[ArrayLike], Array]) -> Torque:
    """A dipole (3,) [A m^2] in body axes in a field: ``dipole × B``; ``field(t)`` is B in world axes (3,) [T]."""
    dipole = exactly("dipole", dipole, (3,))
    finite("dipole", dipole)
    takes("field", field, "t")

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        return cross(
            dipole, quaternion.rotate_inverse(state.q, exactly("field(t)", field(t), (3,)))
        )

    return named("magnetic", torque)


def _called(name: str, torque: Torque, *given: Any) -> Any:
    """What a torque that was given to another one returns."""
    arguments, why = "t, state, params", "there is neither controller nor inputs"
    if len(given) == 4:
        arguments, why = "t, state, params, held", "there is a controller, or inputs"
    return takes(name, torque, arguments, why)(*given)


def _moves_aux(found: Any, state: State) -> bool:
    return bool(jax.tree.leaves(state.aux)) and isinstance(found, tuple) and len(found) == 2
