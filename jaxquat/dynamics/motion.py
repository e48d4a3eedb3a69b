"""The motion of one rigid body: Euler's equation, energy, momentum, and a step made linear.

``q' = 1/2 q (0, omega)`` and ``I omega' = tau - omega × (I omega)``, all in body axes. The
conventions are those of ``jaxquat.quaternion``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._checks import arrays, instance, takes, trailing
from jaxquat._linear import cross, dot, inverse_inertia, matvec
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque, check_step, evaluate
from jaxquat.dynamics.state import State, broadcastable, local, one_body, retract
from jaxquat.rotations import quaternion


def angular_acceleration(body: Body, omega: Array, tau: Array) -> Array:
    """Euler's equation, ``omega' = I^-1 (tau - omega × (I omega))``, in body axes.

    (3,) [rad/s], (3,) [N m] -> (3,) [rad/s^2], all of one dtype.
    """
    instance("body", body, Body, "a jq.Body")
    omega, tau = trailing("omega", omega, (3,)), trailing("tau", tau, (3,))
    return euler(body)(omega, tau)


def euler(body: Body) -> Callable[[Array, Array], Array]:
    """``angular_acceleration`` of one body as a function of (omega, tau), for several of them.

    The inertia and its inverse are computed once. So are their derivatives: of the inverse for each
    call XLA makes a program that takes several times as long to compile and to run.
    """
    inertia = body.inertia
    inverted = inverse_inertia(inertia)
    return lambda omega, tau: matvec(inverted, tau - cross(omega, matvec(inertia, omega)))


def energy(body: Body, state: State) -> Array:
    """Kinetic energy of the rotation, ``1/2 omega . I omega`` [J]. -> (...).

    One body; the leading axes (...) are those of the states.
    """
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    return 0.5 * dot(state.omega, matvec(body.inertia, state.omega))


def momentum(body: Body, state: State) -> Array:
    """Angular momentum of the body in WORLD axes [N m s]. -> (..., 3).

    One body; the leading axes (...) are those of the states.
    """
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    return quaternion.rotate(state.q, matvec(body.inertia, state.omega))


def derivative(
    body: Body, torque: Torque, t: ArrayLike, state: State, params: Any
) -> tuple[Array, Any]:
    """The rates (omega', aux') of one body at time t [s], by Euler's equation and the torque.

    omega' is (3,) [rad/s^2], aux' a pytree like aux, per second. TypeError or ValueError, with the
    name of the torque, if it returns another shape or dtype than the state has.
    """
    t, state, _ = check_step(body, t, state, 0.0)
    return rates_of(body, torque, params)(t, state)


def rates_of(
    body: Body, torque: Torque, params: Any
) -> Callable[[Array, State], tuple[Array, Any]]:
    """``derivative`` as a function of (t, state), for the stages of a step; unchecked."""
    acceleration = euler(body)

    def rates(t: Array, state: State) -> tuple[Array, Any]:
        tau, aux_rates = evaluate(torque, t, state, params)
        return acceleration(state.omega, tau), aux_rates

    return rates


def linearize(
    scheme: Step, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> tuple[Array, Array]:
    """The matrices A (n, n) and B (n, m) of one step in error coordinates about ``state``.

    To first order, a step from ``retract(state, delta)`` with parameters ``params + d`` ends at the
    error ``A delta + B d`` (``local``) from where the step from ``state`` with ``params`` ends. n
    is 6 + size of aux, m the number of parameters, in the order of ``ravel_pytree(params)``.

    For an LQR let the parameters be the commanded torque: ``torque = lambda t, state, u: u``.
    """
    takes("scheme", scheme, "body, torque, t, state, dt, params")
    state = one_body("state", state)
    flat, unravel = ravel_pytree(arrays("params", params))
    if not flat.size:
        flat = jnp.zeros(0, state.q.dtype)
    end = scheme(body, torque, t, state, dt, params)

    def error(delta: Array, parameters: Array) -> Array:
        other = scheme(body, torque, t, retract(state, delta), dt, unravel(parameters))
        return local(end, other)

    zero = jnp.zeros(6 + ravel_pytree(state.aux)[0].size, state.q.dtype)
    a, b = jax.jacfwd(error, argnums=(0, 1))(zero, flat)
    return a, b
