"""The classical Runge-Kutta method on the components of q, normalised after each step.

Formulations I and II, the methods that Z. Terze, A. Mueller and D. Zlatar, Multibody Syst. Dyn. 38,
2016, 201-225, appendix C, compare with. The torque gets the stage quaternions normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import dot, inverse_inertia, matvec
from jaxquat.dynamics.contract import evaluate
from jaxquat.dynamics.motion import newton, rates_of
from jaxquat.dynamics.state import State
from jaxquat.quaternion import conjugate, multiply, normalize
from jaxquat.schemes.scheme import StepArguments, scheme
from jaxquat.schemes.tableaus import RK4, combine


@scheme(order=4, evaluations=4, aux=True, source="Terze, Mueller and Zlatar 2016 (C.1) to (C.8)")
def formulation1(at: StepArguments) -> State:
    """Take a step of Formulation I (C.1)-(C.8); order 4, four torques.

    It integrates q'', with the constraint stabilised at position and velocity level; (C.1) is
    solved in closed form. In (C.8) q is the attitude after normalisation. The rate of a stage is
    ``2 L q'``.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    inertia = body.inertia
    inverted = inverse_inertia(inertia)

    def rates(t: Array, unknowns: Any) -> Any:
        q, q_dot, *others = unknowns
        square, half_rate = dot(q, q), multiply(conjugate(q), q_dot)[1:]
        stage = State(normalize(q), 2.0 * half_rate, *others)
        tau, aux_dot, force = evaluate(torque, t, stage, params)
        right = 2.0 * _product(q, tau) - 8.0 * _product(q_dot, matvec(inertia, half_rate))
        across = matvec(inverted, multiply(conjugate(q), right)[1:]) / (4.0 * square * square)
        q_dot2 = _product(q, across) - dot(q_dot, q_dot) / square * q
        return q_dot, q_dot2, aux_dot, *newton(body, stage, force)

    unknowns = state.q, 0.5 * _product(state.q, state.omega), *state[2:]
    q, q_dot, *others = _runge_kutta(rates, t, unknowns, dt)
    q = normalize(q)
    q_dot = q_dot - dot(q_dot, q) * q
    return State(q, 2.0 * multiply(conjugate(q), q_dot)[1:], *others)


@scheme(order=4, evaluations=4, aux=True, source="Terze, Mueller and Zlatar 2016 (C.9) to (C.11)")
def formulation2(at: StepArguments) -> State:
    """Take a step of Formulation II (C.9)-(C.11), (C.7): ``q' = 1/2 L^T omega``; order 4."""
    body, torque, t, state, dt, params, _ = at.in_own_units()
    derivative = rates_of(body, torque, params)

    def rates(t: Array, unknowns: Any) -> Any:
        q, omega, *others = unknowns
        return 0.5 * _product(q, omega), *derivative(t, State(normalize(q), omega, *others))

    q, *others = _runge_kutta(rates, t, tuple(state), dt)
    return State(normalize(q), *others)


def _product(q: Array, v: Array) -> Array:
    """Return ``L(q)^T v = q (0, v)`` (C.3)."""
    return multiply(q, jnp.concatenate([jnp.zeros_like(v[:1]), v]))


def _runge_kutta(rates: Callable[[Array, Any], Any], t: Array, start: Any, dt: Array) -> Any:
    slopes = [rates(t, start)]
    for row, node in zip(RK4.a, RK4.c, strict=True):
        stage = jax.tree.map(lambda x, d: x + d, start, combine(row, slopes, dt))
        slopes.append(rates(t + node * dt, stage))
    return jax.tree.map(lambda x, d: x + d, start, combine(RK4.b, slopes, dt))
