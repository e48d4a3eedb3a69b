"""Attitudes on a time grid from a rate that is known as a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jaxquat import so3
from jaxquat._internal.checks import exactly, instance, one_of, same_dtype, takes, unit_quaternion
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque, check_step
from jaxquat.dynamics.state import State
from jaxquat.kinematics.magnus_expansion import NODES, expansion, product
from jaxquat.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.scheme import Scheme
from jaxquat.schemes.tableaus import BUTCHER6, MIDPOINT, RK4, Tableau, combine
from jaxquat.simulation.grid import Grid, GridAt, check_resolution
from jaxquat.simulation.intervals import first_step, intervals_of
from jaxquat.simulation.options import RolloutOptions
from jaxquat.simulation.rollout import rollout

# Runge-Kutta tableaus for rates that depend on time and attitude, by order.
_TABLEAUS = {2: MIDPOINT, 4: RK4, 6: BUTCHER6}


class Attitudes(NamedTuple):
    """A trajectory of attitudes, a pytree.

    Attributes:
        t: times [s], (rows,).
        q: attitudes, body to world, unit quaternions (rows, 4).

    Examples:
        >>> turning = lambda t, params: jnp.array([0.0, 0.0, 0.5])  # rad/s
        >>> path = jq.kinematics.rollout_of_rate(turning, level, jq.grid(0.0, 0.1, 20))
    """

    t: Array
    q: Array


def rollout_of_rate(
    rate: Callable[[Array, Any], Array],
    q0: ArrayLike,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    order: int = 4,
) -> Attitudes:
    """Integrate a body rate that is a function of time; save a row every ``grid.save_every``.

    Args:
        rate: ``rate(t, params) -> (3,)``, the rate at time t [s] in body axes [rad/s].
        q0: unit attitude at the start of the grid, (4,); the result has its dtype.
        grid: ``jq.grid(t0, dt, steps)``, whose steps are its intervals, or ``jq.grid_at(times)``.
            An interval of length 0 keeps the attitude.
        params: any pytree, passed to rate.
        order: order in dt, 2, 4 or 6, from 1, 2 or 3 rates at Gauss nodes of every step, all at
            once.

    Examples:
        >>> rate = lambda t, amplitude: amplitude * jnp.cos(t)  # rad/s
        >>> amplitude, grid = jnp.array([0.0, 0.0, 0.5]), jq.grid(0.0, jnp.pi / 40, 20)  # to pi/2 s
        >>> t, q = jq.kinematics.rollout_of_rate(rate, level, grid, amplitude)
        >>> f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        '0.500 rad'
    """
    one_of("order", order, tuple(NODES))
    takes("rate", rate, "t, params")
    if params is None and _is_of_attitude(rate):
        hint = "jq.kinematics.rollout_of_attitude takes a rate of t, q and params"
        raise TypeError(f"rate: wanted rate(t, params), got a function of t and q; {hint}")
    instance("grid", grid, (Grid, GridAt), "a jq.grid(t0, dt, steps) or jq.grid_at(times)")
    q0 = checked_start(q0)
    check_resolution(grid, q0.dtype)

    def at(t: Array) -> Array:
        return _checked_rate(rate(t, params), " from rate(t, params)", q0)

    def at_nodes(starts: Array, dt: Array) -> list[Array]:
        return [jax.vmap(at)(starts + node * dt) for node in NODES[order]]

    times, every = grid.times(q0.dtype), grid.save_every
    if isinstance(grid, Grid):
        dt = jnp.asarray(grid.dt, q0.dtype)
        q = product(q0, expansion(at_nodes(times[:-1], dt), dt))
        return Attitudes(times[::every], q[::every])
    starts, dt, is_empty = _given_steps(grid, q0.dtype)
    turns = expansion(at_nodes(starts, dt), dt[:, None])
    turns = jnp.where(is_empty[:, None], jnp.zeros_like(turns), turns)
    return Attitudes(times[::every], product(q0, turns, is_empty)[:: every * grid.substeps])


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
    """Integrate a body rate that depends on time and attitude on a grid.

    It suits bodies of negligible inertia: ``rate = torque/damping``, or
    ``rate = jq.flow.jeffery_rate(semi_axes, gradient)`` for an ellipsoid in a viscous flow. An
    explicit Runge-Kutta method integrates ``u' = dexpinv(u, rate)`` for the rotation vector u of a
    step (Munthe-Kaas, as ``jq.schemes.rkmk``). The rows are the start, and every
    ``grid.save_every`` intervals.

    Args:
        rate: ``rate(t, q, params) -> (3,)``, at time t [s] and attitude q (4,), body axes [rad/s];
            with inputs ``rate(t, q, params, input)``.
        q0: unit attitude at the start of the grid, (4,); the result has its dtype.
        grid: as for ``rollout_of_rate``; with ``jq.grid_at(times)`` the rows are at these times.
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
        return _checked_rate(rate(t, state.q, params, *input_of), " from rate(t, q, params)", q0)

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


def _given_steps(grid: GridAt, dtype: DTypeLike) -> tuple[Array, Array, Array]:
    """Return starts and lengths [s] of the steps, and which are empty (with finite derivatives)."""
    intervals = intervals_of(grid, dtype)
    t, dt = intervals.t[:-1], intervals.dt[:-1]
    is_empty = dt == 0
    t = jnp.where(is_empty, lax.stop_gradient(t[0]), t)
    dt = jnp.where(is_empty, lax.stop_gradient(first_step(intervals)), dt)
    starts = t[:, None] + jnp.arange(grid.substeps).astype(dt.dtype)[None] * dt[:, None]
    return starts.ravel(), jnp.repeat(dt, grid.substeps), jnp.repeat(is_empty, grid.substeps)


def _is_of_attitude(rate: Callable[..., Any]) -> bool:
    try:
        return list(inspect.signature(rate).parameters)[1:2] == ["q"]
    except (TypeError, ValueError):  # the function has no signature
        return False


def checked_start(q0: ArrayLike, hint: str = "") -> Array:
    """Return ``q0`` as one unit quaternion (4,); ``hint`` ends the error about another shape."""
    q0 = exactly("q0", q0, (4,), hint)
    unit_quaternion("q0", q0)
    return q0


def _checked_rate(omega: Any, hint: str, q0: Array) -> Array:
    omega = exactly("rate", omega, (3,), hint)
    same_dtype("rate", omega, q0.dtype, "q0")
    return omega
