"""The motion of one rigid body: Euler's and Newton's equations, energy, momenta, linear steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal.checks import arrays, instance, takes, trailing
from jaxquat._internal.linear import cross, dot, inverse_inertia, matvec
from jaxquat.dynamics.body import Body, mass_of
from jaxquat.dynamics.contract import Step, Torque, check_step, evaluate
from jaxquat.dynamics.state import (
    Rates,
    State,
    broadcastable,
    error_size,
    local,
    moving,
    one_body,
    retract,
)
from jaxquat.dynamics.units import own_units, torque_in


def euler(body: Body) -> Callable[[Array, Array], Array]:
    """Return omega' = ``I^-1 (tau - omega × (I omega))`` as a function of (omega, tau)."""
    inertia = body.inertia
    inverted = inverse_inertia(inertia)
    return lambda omega, tau: matvec(inverted, tau - cross(omega, matvec(inertia, omega)))


def energy(body: Body, state: State) -> Array:
    """Return the kinetic energy [J] ``1/2 omega . I omega``, plus ``1/2 m v . v``. -> (...).

    The states of one body may have leading axes. ValueError for a velocity without a mass.

    Examples:
        >>> jq.dynamics.energy(body, state)  # 1/2 4 kg m^2 (2 rad/s)^2
        Array(8., dtype=float32)
    """
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    rotation = 0.5 * dot(state.omega, matvec(body.inertia, state.omega))
    if state.velocity is None:
        return rotation
    return rotation + 0.5 * mass_of(body) * dot(state.velocity, state.velocity)


def momentum(body: Body, state: State, about: ArrayLike | None = None) -> Array:
    """Return the angular momentum of the body in WORLD axes [N m s]. -> (..., 3).

    It is ``R I omega``, plus ``(position - about) × m velocity`` about a point (..., 3) [m], world
    axes (ValueError without position or mass). The states may have leading axes.

    Examples:
        >>> jq.dynamics.momentum(body, state._replace(q=jnp.full(4, 0.5)))  # body z is world x
        Array([8., 0., 0.], dtype=float32)
    """
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    spin = quaternion.rotate(state.q, matvec(body.inertia, state.omega))
    if about is None:
        return spin
    velocity = moving(state).velocity
    arm = jnp.asarray(state.position) - trailing("about", about, (3,))
    return spin + mass_of(body) * cross(arm, velocity)


def derivative(body: Body, torque: Torque, t: ArrayLike, state: State, params: Any) -> Rates:
    """Return the rates of one body at time t [s], by Euler's and Newton's equations.

    Examples:
        >>> jq.dynamics.derivative(body, jq.torques.drag(0.4), 0.0, state, None).omega.round(3)
        Array([ 0. ,  0. , -0.2], dtype=float32)
    """
    t, state, _ = check_step(body, t, state, 0.0)
    body, scales = own_units(body)
    return rates_of(body, torque_in(scales, torque), params)(t, state)


def rates_of(body: Body, torque: Torque, params: Any) -> Callable[[Array, State], Rates]:
    """Return ``derivative`` as a function of (t, state), unchecked, in the units of the body."""
    acceleration = euler(body)

    def rates(t: Array, state: State) -> Rates:
        tau, aux_rates, force = evaluate(torque, t, state, params)
        return Rates(acceleration(state.omega, tau), aux_rates, *newton(body, state, force))

    return rates


def newton(body: Body, state: State, force: Array | None) -> tuple[Array | None, Array | None]:
    """Return (position', velocity') under a force (3,), world axes; None without a position."""
    return (None, None) if force is None else (state.velocity, force / body.mass)


def drifted(state: State, duration: Array) -> State:
    """Return the state after its position, if it has one, has moved with its velocity."""
    if state.position is None:
        return state
    return state._replace(position=state.position + duration * state.velocity)


def kicked(body: Body, state: State, force: Array | None, duration: Array) -> State:
    """Return the state after a force (3,), world axes, has changed its velocity, if it has one."""
    if force is None:
        return state
    return state._replace(velocity=state.velocity + duration * (force / body.mass))


def linearize(
    scheme: Step, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> tuple[Array, Array]:
    """Return the matrices A (n, n) and B (n, m) of one step in error coordinates about ``state``.

    A step from ``retract(state, delta)`` with ``params + d`` ends, to first order, at the error
    ``A delta + B d`` (``local``) from the end of the step from ``state`` with ``params``. m is the
    number of parameters, in the order of ``ravel_pytree(params)``. For an LQR, pass the command as
    parameters: ``lambda t, state, u: plant(t, state, params, u)``.

    Examples:
        >>> torque = lambda t, state, u: u  # N m
        >>> A, B = jq.dynamics.linearize(jq.rkmk2, body, torque, 0.0, state, 0.1, jnp.zeros(3))
        >>> A.shape, B.shape, B[5, 2].round(3)  # dt/I3
        ((6, 6), (6, 3), Array(0.025, dtype=float32))
    """
    takes("scheme", scheme, "body, torque, t, state, dt, params")
    reason = "linearize takes a command as params: lambda t, state, u: plant(t, state, params, u)"
    takes("torque", torque, "t, state, params", reason)
    state = one_body("state", state)
    flat, unravel = ravel_pytree(arrays("params", params))
    if not flat.size:
        flat = jnp.zeros(0, state.q.dtype)
    end = scheme(body, torque, t, state, dt, params)

    def error(delta: Array, parameters: Array) -> Array:
        other = scheme(body, torque, t, retract(state, delta), dt, unravel(parameters))
        return local(end, other)

    zero = jnp.zeros(error_size(state), state.q.dtype)
    a, b = jax.jacfwd(error, argnums=(0, 1))(zero, flat)
    return a, b
