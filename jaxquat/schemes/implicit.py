"""Implicit schemes: a fixed number of Newton steps solves for the end, NaN without convergence.

J. Moser and A. P. Veselov, Commun. Math. Phys. 139, 1991, 217-243; T. Lee, M. Leok and N. H.
McClamroch, Comput. Methods Appl. Mech. Eng. 196, 2007, 2907-2924; J. C. Simo and K. K. Wong, Int.
J. Numer. Methods Eng. 31, 1991, 19-52.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import cross, inverse, inverse_inertia, matvec, square
from jaxquat.dynamics.contract import evaluate, evaluate_at_attitude, without_aux, without_position
from jaxquat.dynamics.motion import drifted, euler, kicked
from jaxquat.dynamics.state import State
from jaxquat.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.scheme import StepArguments, scheme

NEWTON = 6  # evaluations of the residual
NEW_SLOPES = (0, 2)  # the evaluations that compute a new derivative; the others use the last one


@scheme(
    order=2,
    evaluations=2,
    torques="attitude",
    conserves=("norm", "momentum"),
    reversible=True,
    source="Moser and Veselov 1991; variational, implicit",
)
def lgvi(at: StepArguments) -> State:
    """Take a step of the Lie group variational integrator, for torques of time and attitude.

    It solves the discrete Moser-Veselov equation in the form of Lee, Leok and McClamroch (2007):
    order 2, symplectic. A step must turn the body by less than about 0.7 rad. The same discrete
    action gives Verlet's method for position and velocity.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    q, omega = state.q, state.omega
    inertia = body.inertia
    tau0, force0 = evaluate_at_attitude("lgvi", torque, t, state, params)
    m = matvec(inertia, omega) + 0.5 * dt * tau0

    def residual(y: Array) -> Array:  # y: the vector part of the turn divided by its scalar part
        moved = matvec(inertia, y) + cross(y, matvec(inertia, y))
        return 2.0 * moved - dt * m * (1.0 + square(y))

    guess = 0.5 * dt * matvec(inverse_inertia(inertia), m)
    y = _solved(guess, residual, lambda y: jnp.concatenate([y, guess]))
    turn = _cayley(y)
    q = correct_norm(q + multiply(q, turn))
    end = drifted(kicked(body, state._replace(q=q), force0, 0.5 * dt), dt)
    tau1, force1 = evaluate_at_attitude("lgvi", torque, t + dt, end, params)
    end = kicked(body, end, force1, 0.5 * dt)
    twice = 2.0 * cross(turn[1:], m)
    turned = cross(turn[1:], twice) - (turn[0] + 1.0) * twice  # the change of m by turning
    change = turned + 0.5 * dt * (tau0 + tau1)
    return end._replace(omega=omega + _quotient(inertia, change))


@scheme(
    order=2,
    evaluations=NEWTON,
    conserves=("norm", "energy"),
    reversible=True,
    translation=False,
    source="implicit midpoint rule",
)
def lie_midpoint(at: StepArguments) -> State:
    """Take a step of the implicit midpoint rule: order 2, symmetric, for any torque.

    With ``wm = (w0 + w1)/2``, ``q1 = q0 exp(h wm)`` and
    ``I (w1 - w0) = h [tau(t + h/2, q0 exp(h wm/2), wm) - wm × I wm]``. It conserves a free body's
    energy, not its momentum in world axes.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    without_aux("lie_midpoint", state)
    without_position("lie_midpoint", state)
    q, omega = state.q, state.omega
    inertia = body.inertia

    def residual(change: Array) -> Array:  # of the rate
        mean = omega + 0.5 * change
        q_mean = lax.optimization_barrier(multiply(q, exp(0.5 * dt * mean)))
        tau = evaluate(torque, t + 0.5 * dt, State(q_mean, mean), params).torque
        return matvec(inertia, change) - dt * (tau - cross(mean, matvec(inertia, mean)))

    # Newton starts from no change: under strong drag an explicit step would turn many times.
    start = jnp.zeros_like(omega)
    change = _solved(start, residual, lambda change: jnp.concatenate([omega, change]))
    q = correct_norm(q + multiply(q, expm1(dt * (omega + 0.5 * change))))
    return State(q, omega + change, state.aux)


@scheme(
    order=2,
    evaluations=1 + NEWTON,
    torques="attitude",
    conserves=("norm", "momentum", "energy"),
    reversible=True,
    source="Simo and Wong 1991; energy and momentum, implicit",
)
def simo_wong(at: StepArguments) -> State:
    """Take a step of Simo and Wong's energy-momentum method, for torques of time and attitude.

    Order 2, symmetric: ``R1 I w1 = R0 I w0 + h (R0 tau0 + R1 tau1)/2``, ``q1 = q0 (1, u/2)/|.|``,
    ``u = h (w0 + w1)/2``. It conserves the world momentum that the torque conserves, and the energy
    exactly if the potential is linear in the rotation matrix. Position and velocity follow Verlet's
    method, where the force needs one more evaluation.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    q, omega = state.q, state.omega
    inertia = body.inertia
    tau0, force0 = evaluate_at_attitude("simo_wong", torque, t, state, params)
    end = drifted(kicked(body, state, force0, 0.5 * dt), dt)
    m = matvec(inertia, omega)

    def turned(change: Array) -> Array:
        return q + multiply(q, _cayley(dt * (0.5 * omega + 0.25 * change)))

    def residual(change: Array) -> Array:  # of the rate
        q1 = lax.optimization_barrier(turned(change))
        tau1, _ = evaluate_at_attitude("simo_wong", torque, t + dt, end._replace(q=q1), params)
        half = dt * (0.5 * omega + 0.25 * change)
        added = matvec(inertia, change)
        v = m + added - 0.5 * dt * tau1
        twice = cross(half, v)
        turning = 2.0 / (1.0 + square(half)) * (twice + cross(half, twice))
        return added - 0.5 * dt * (tau0 + tau1) + turning

    guess = dt * euler(body)(omega, tau0)
    change = _solved(guess, residual, lambda change: jnp.concatenate([omega, guess, change]))
    end = end._replace(q=correct_norm(turned(change)), omega=omega + change)
    if end.position is not None:
        _, force1 = evaluate_at_attitude("simo_wong", torque, t + dt, end, params)
        end = kicked(body, end, force1, 0.5 * dt)
    return end


def _cayley(y: Array) -> Array:
    """Return the unit quaternion along (1, y), minus 1. (3,) -> (4,)."""
    length = jnp.sqrt(1.0 + square(y))
    return jnp.concatenate([-square(y)[None] / (1.0 + length), y]) / length


def _quotient(inertia: Array, vector: Array) -> Array:
    """Return ``inertia^-1 vector``, refined once: an inverse rounds alike in every step."""
    inverted = inverse_inertia(inertia)
    first = matvec(inverted, vector)
    return first + matvec(inverted, vector - matvec(inertia, first))


def _solved(
    guess: Array, residual: Callable[[Array], Array], sizes: Callable[[Array], Array]
) -> Array:
    """Return the root (3,), differentiable; NaN if Newton's last correction exceeds rounding."""

    def newton(residual: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
        slope = correction = x
        for number in range(NEWTON):
            if number in NEW_SLOPES:
                slope, value = jax.jacfwd(lambda x: (residual(x),) * 2, has_aux=True)(x)
                slope = lax.optimization_barrier(inverse(slope))
            else:
                value = residual(x)
            correction = matvec(slope, value)
            x = lax.optimization_barrier(x - correction)
        return x, correction

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return matvec(inverse(jax.jacfwd(linear)(jnp.zeros_like(y))), y)

    x, correction = lax.custom_root(residual, guess, newton, tangent_solve, has_aux=True)
    error, size = (jnp.sqrt(square(lax.stop_gradient(v))) for v in (correction, sizes(x)))
    return jnp.where(error <= 1e4 * jnp.finfo(x.dtype).eps * size, x, jnp.nan)
