"""Predictor-corrector direct multiplication: Zhao and van Wachem, Acta Mech. 224, 2013, 3091."""

from __future__ import annotations

import jax
from jax import lax

from jaxquat.dynamics.contract import evaluate_at_attitude
from jaxquat.dynamics.motion import drifted, euler, kicked, rates_of
from jaxquat.dynamics.state import State, displaced
from jaxquat.quaternion import correct_norm, exp, expm1, multiply, rotate
from jaxquat.schemes.scheme import StepArguments, scheme


@scheme(order=2, evaluations=2, aux=True, source="Zhao and van Wachem 2013, misprints corrected")
def zhao(at: StepArguments) -> State:
    """Take a step of Zhao and van Wachem's scheme; order 2 in attitude and rate, two torques.

    Two errors of the commonly printed algorithm are corrected: the predicted rate is
    ``omega + h/4 omega'`` for the half step of the attitude and ``omega + h/2 omega'`` at the
    middle (exchanged in print), and the middle torque belongs to the middle attitude.
    ``q0 exp(h e wb12 e*)`` with ``q12 = q0 e`` is the final ``exp(h w12) q0`` with
    ``w12 = q12 wb12 q12*``. Aux states, position and velocity follow the midpoint rule.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    q, omega = state.q, state.omega
    rates = rates_of(body, torque, params)
    slopes = rates(t, state)
    # The barriers: see munthe_kaas.stages.
    half = lax.optimization_barrier(exp(0.5 * dt * (omega + 0.25 * dt * slopes.omega)))
    middle = displaced(state, multiply(q, half), jax.tree.map(lambda r: 0.5 * dt * r, slopes))
    slopes = rates(t + 0.5 * dt, middle)
    turn = lax.optimization_barrier(expm1(dt * rotate(half, middle.omega)))
    shift = jax.tree.map(lambda r: dt * r, slopes)
    return displaced(state, correct_norm(q + multiply(q, turn)), shift)


@scheme(order=2, evaluations=1, torques="attitude", source="zhao with one torque")
def pcdm1(at: StepArguments) -> State:
    """Take a step of ``zhao`` with one torque, at the middle attitude that the old rate predicts.

    Order 2, for torques of time and attitude. The force kicks the velocity between two half drifts.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    q, omega = state.q, state.omega
    middle = multiply(q, lax.optimization_barrier(exp(0.5 * dt * omega)))
    midpoint = drifted(state._replace(q=middle), 0.5 * dt)
    tau, force = evaluate_at_attitude("pcdm1", torque, t + 0.5 * dt, midpoint, params)
    acceleration = euler(body)
    rate = omega + 0.5 * dt * acceleration(omega, tau)
    q = correct_norm(q + multiply(q, lax.optimization_barrier(expm1(dt * rate))))
    end = drifted(kicked(body, midpoint, force, dt), 0.5 * dt)
    return end._replace(q=q, omega=omega + dt * acceleration(rate, tau))
