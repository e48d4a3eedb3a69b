"""Commutator-free methods (Celledoni, Marthinsen, Owren, Future Gener. Comput. Syst. 19, 2003)."""

from __future__ import annotations

from jax import Array, lax

from jaxquat.dynamics.motion import rates_of
from jaxquat.dynamics.state import State, displaced
from jaxquat.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.scheme import StepArguments, scheme
from jaxquat.schemes.tableaus import RK4, combine


@scheme(
    order=4, evaluations=4, aux=True, source="commutator-free; Celledoni, Marthinsen and Owren 2003"
)
def cf4(at: StepArguments) -> State:
    """Take a step of order 4: four torques, five exponentials; everything but q follows RK4."""
    body, torque, t, state, dt, params, _ = at.in_own_units()
    rates = rates_of(body, torque, params)
    slopes = [rates(t, state)]  # of everything except the attitude

    def turned(q: Array, rate: Array) -> Array:
        # The barrier: see munthe_kaas.stages.
        return multiply(q, lax.optimization_barrier(exp(dt * rate)))

    def stage(q: Array, number: int) -> State:
        reached = displaced(state, q, combine(RK4.a[number], slopes, dt))
        slopes.append(rates(t + RK4.c[number] * dt, reached))
        return reached

    first = state.omega
    second = stage(turned(state.q, 0.5 * first), 0)
    third = stage(turned(state.q, 0.5 * second.omega), 1)
    fourth = stage(turned(second.q, third.omega - 0.5 * first), 2)
    middle = second.omega + third.omega
    earlier = dt * (3.0 * first + 2.0 * middle - fourth.omega) / 12.0
    later = dt * (-first + 2.0 * middle + 3.0 * fourth.omega) / 12.0
    before, after = (lax.optimization_barrier(expm1(u)) for u in (earlier, later))
    q = correct_norm(state.q + multiply(state.q, before + after + multiply(before, after)))
    return displaced(state, q, combine(RK4.b, slopes, dt))
