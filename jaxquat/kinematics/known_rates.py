"""Attitudes on a time grid from a rate that is a function of time and attitude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat import so3
from jaxquat._internal.checks import exactly, one_of, same_dtype, takes, unit_quaternion
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque, check_step
from jaxquat.dynamics.state import State
from jaxquat.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.scheme import Scheme
from jaxquat.schemes.tableaus import BUTCHER6, MIDPOINT, RK4, Tableau, combine
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.options import RolloutOptions
from jaxquat.simulation.rollout import rollout

# Runge-Kutta tableaus by order.
_TABLEAUS = {2: MIDPOINT, 4: RK4, 6: BUTCHER6}


class Attitudes(NamedTuple):
    """A trajectory of attitudes, a pytree.

    Attributes:
        t: times [s], (rows,).
        q: attitudes, body to world, unit quaternions (rows, 4).

    Examples:
        >>> turning = lambda t, q, params: jnp.array([0.0, 0.0, 0.5])  # rad/s
        >>> path = jq.kinematics.rollout_of_attitude(turning, level, jq.grid(0.0, 0.1, 20))
    """

    t: Array
    q: Array


@refuses_old_keywords("kinematics.rollout_of_attitude")
def rollout_of_attitude(
    rate: Callable[..., Array],
    q0: ArrayLike,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    order: int = 4,
    inputs: Any = None,
    engine: str = "auto",
) -> Attitudes:
    """Integrate a body rate that depends on time, attitude or both on a grid.

    It suits bodies of negligible inertia: ``rate = torque/damping``, or
    ``rate = jq.flow.jeffery_rate(semi_axes, gradient)`` for an ellipsoid in a viscous flow. An
    explicit Runge-Kutta method integrates ``u' = dexpinv(u, rate)`` for the rotation vector u of a
    step (Munthe-Kaas, as ``jq.schemes.rkmk``). The rows are the start, and every
    ``grid.save_every`` intervals.

    Args:
        rate: ``rate(t, q, params) -> (3,)``, at time t [s] and attitude q (4,), body axes [rad/s];
            with inputs ``rate(t, q, params, input)``.
        q0: unit attitude at the start of the grid, (4,); the result has its dtype.
        grid: ``jq.grid(t0, dt, steps)``, whose steps are its intervals, or ``jq.grid_at(times)``,
            with rows at these times.
        params: any pytree, passed to rate.
        order: 2, 4 or 6, by 2, 4 or 7 rates per step (midpoint, classical, Butcher 1964).
        inputs: pytree with a leading axis for the intervals.
        engine: "auto", "fused" or "scan", as for ``jq.rollout``.

    Examples:
        >>> world = jnp.array([0.0, 0.3, 0.4])  # rad/s
        >>> rate = lambda t, q, params: jq.quaternion.rotate_inverse(q, world)  # in body axes
        >>> t, q = jq.kinematics.rollout_of_attitude(rate, level, jq.grid(0.0, 0.1, 20))
        >>> f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        '1.000 rad'
    """
    one_of("order", order, tuple(_TABLEAUS))
    takes("rate", rate, "t, q, params" if inputs is None else "t, q, params, input")
    q0 = checked_start(q0)

    def as_torque(t: Array, state: State, params: Any, *input_of: Any) -> Array:
        value = rate(t, state.q, params, *input_of)
        omega = exactly("rate", value, (3,), " from rate(t, q, params)")
        same_dtype("rate", omega, q0.dtype, "q0")
        return omega

    body = Body.from_principal(jnp.ones(3, q0.dtype))  # no step reads it
    start, scheme = State(q0, jnp.zeros(3, q0.dtype)), Scheme(Turning(_TABLEAUS[order]), "turning")
    path = rollout(
        scheme, body, as_torque, start, grid, params,
        inputs=inputs, options=RolloutOptions(engine=engine),
    )  # fmt: skip
    return Attitudes(path.t, path.state.q)


@dataclass(frozen=True)
class Turning:
    """A step of the attitude alone; the torque function returns the body rate instead."""

    tableau: Tableau

    def __call__(
        self, body: Body, rate: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
    ) -> State:
        """Take one step."""
        t, state, dt = check_step(body, t, state, dt)
        q, slopes = state.q, [rate(t, state, params)]  # the first stage is at u = 0
        for row, node in zip(self.tableau.a, self.tableau.c, strict=True):
            u = combine(row, slopes, dt)
            # The barriers: see schemes/munthe_kaas.py.
            stage = state._replace(q=multiply(q, lax.optimization_barrier(exp(u))))
            slopes.append(so3.dexpinv(u, rate(t + node * dt, stage, params)))
        turn = combine(self.tableau.b, slopes, dt)
        end = correct_norm(q + multiply(q, lax.optimization_barrier(expm1(turn))))
        return state._replace(q=end)


def checked_start(q0: ArrayLike, hint: str = "") -> Array:
    """Return ``q0`` as one unit quaternion (4,); ``hint`` ends the error about another shape."""
    q0 = exactly("q0", q0, (4,), hint)
    unit_quaternion("q0", q0)
    return q0
