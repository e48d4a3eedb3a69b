"""Attitude from rates: ``q' = 1/2 q (0, omega(t))`` by the Magnus expansion.

``rollout_of_attitude`` integrates a rate that depends on the attitude, too, by lifted Runge-Kutta
methods.

There is no body and no torque here, and these functions are not schemes. All is in body axes:
``q(t + h) = q(t) exp(Omega)``, where Omega is the rotation vector of the step. The source document
on constant angular acceleration (docs/errata.md) writes ``exp(Omega) q(t)`` in world axes, where
the terms with an odd number of vector products have the other sign. The forms for sampled rates are
those of S. Blanes, F. Casas, J. A. Oteo and J. Ros, Phys. Rep. 470, 2009, 151-238, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jaxquat._checks import (
    broadcast,
    exactly,
    floating,
    instance,
    one_of,
    positive,
    takes,
    trailing,
    unit_quaternion,
)
from jaxquat._linear import cross, dot
from jaxquat.rotations import so3
from jaxquat.rotations.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.tableaus import BUTCHER6, MIDPOINT, RK4, Tableau, combine
from jaxquat.sensing.magnus import NODES, expansion, lagrange_weights
from jaxquat.sensing.preintegration import Imu, Preintegrated, preintegrate
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.intervals import first_step, intervals_of, may_be_empty, unless_empty

__all__ = [
    "Imu",
    "Preintegrated",
    "integrate",
    "magnus",
    "preintegrate",
    "rollout",
    "rollout_of_attitude",
    "truncated_exp",
]

# For rates of time and attitude: the tableau that is lifted, by its order.
_TABLEAUS = {2: MIDPOINT, 4: RK4, 6: BUTCHER6}


def magnus(
    q0: ArrayLike, omega: ArrayLike, alpha: ArrayLike, dt: ArrayLike, *, order: int = 4
) -> Array:
    """The attitude after dt [s] of constant angular acceleration. -> (..., 4).

    The rate is ``omega + alpha t`` in body axes. The series converges while the angle turned is
    below 2 pi (the source document's 127 degrees is the bound of the matrix norm). Driven by
    Euler's equation with alpha frozen over a step this is of order 1 in the rate: use a scheme of
    ``jq.SCHEMES`` there.

    Args:
        q0: unit attitude at the start, (..., 4).
        omega: rate at the start [rad/s], (..., 3).
        alpha: angular acceleration [rad/s^2], (..., 3).
        dt: time [s], (...).
        order: in dt. 2 is the first term of the Magnus series, 4 the first two, 6 all terms to
            dt^5, 8 all terms to dt^7 in closed form.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, (2, 4, 6, 8))
    named = (("q0", q0, (4,)), ("omega", omega, (3,)), ("alpha", alpha, (3,)), ("dt", dt, ()))
    q0, omega, alpha, h = broadcast(*named)
    unit_quaternion("q0", q0)
    turn = _magnus_vector(omega, alpha, h[..., None], order)
    return correct_norm(q0 + multiply(q0, expm1(turn)))


def _magnus_vector(omega: Array, alpha: Array, h: Array, order: int) -> Array:
    """The rotation vector of a step of constant angular acceleration; h is (..., 1)."""
    middle = omega + 0.5 * h * alpha
    turn = cross(alpha, middle)
    # the coefficients of middle, alpha and alpha × middle
    along, across, sideways = h, jnp.zeros_like(h), jnp.zeros_like(h)
    if order >= 4:
        sideways = sideways - h**3 / 12
    rate, acceleration = dot(middle, middle)[..., None], dot(alpha, alpha)[..., None]
    mixed = dot(middle, alpha)[..., None]
    if order >= 6:
        along, across = along - h**5 * acceleration / 240, across + h**5 * mixed / 240
        sideways = sideways - h**5 * rate / 720
    if order == 8:
        along = along + h**7 * (mixed * mixed / 30240 - acceleration * rate / 7560)
        across = across + h**7 * mixed * rate / 10080
        sideways = sideways - h**7 * (rate * rate / 30240 - acceleration / 6720)
    return along * middle + across * alpha + sideways * turn


def truncated_exp(u: ArrayLike) -> Array:
    """The source document's exponential without trigonometry. (..., 3) [rad] -> (..., 4).

    It is the series to third order, ``(1 - v^2/2, (1 - v^2/6) v)`` with v = u/2, divided by its
    norm. The rotation is wrong by 0.24 % of its angle at 60 degrees, 1.19 % at 90 and 15.8 % at
    180. (The document's "less than 1 % up to 90 degrees" holds for the quaternion, not for the
    angle.) In place of ``exp`` in a Magnus step it limits the order to 4.
    """
    v = 0.5 * trailing("u", u, (3,))
    square = dot(v, v)[..., None]
    series = jnp.concatenate([1.0 - 0.5 * square, (1.0 - square / 6.0) * v], axis=-1)
    return series / jnp.sqrt(dot(series, series))[..., None]


def rollout(
    rate: Callable[[Array, Any], Array],
    q0: ArrayLike,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    order: int = 4,
) -> Array:
    """Attitudes on a time grid from a body rate that is known as a function. -> (intervals + 1, 4).

    Differentiable by q0, params and grid, in both modes. For instance
    ``rollout(lambda t, params: params * jnp.cos(t), q0, jq.grid(0.0, 0.1, 100), omega)``.

    Args:
        rate: ``rate(t, params) -> (3,)``, the rate at time t [s] in body axes [rad/s].
        q0: unit attitude at the start of the grid, (4,); the result has its dtype.
        grid: ``jq.grid(t0, dt, steps)``, whose steps are its intervals, or ``jq.grid_at(times)``.
            The attitude stays as it is in an interval of length 0, where the rate has no part.
        params: any pytree, passed to rate.
        order: in dt, 2, 4 or 6: the rate is evaluated at 1, 2 or 3 Gauss nodes of every step, all
            at once.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, tuple(NODES))
    takes("rate", rate, "t, params")
    instance("grid", grid, (Grid, GridAt), "a jq.grid(t0, dt, steps) or jq.grid_at(times)")
    q0 = _checked_start(q0)

    def at(t: Array) -> Array:
        return _checked_rate(rate(t, params), " from rate(t, params)", q0)

    def at_nodes(starts: Array, dt: Array) -> list[Array]:
        return [jax.vmap(at)(starts + node * dt) for node in NODES[order]]

    if isinstance(grid, Grid):
        starts, dt = grid.times(q0.dtype)[:-1], jnp.asarray(grid.dt, q0.dtype)
        return _product(q0, expansion(at_nodes(starts, dt), dt, cross))
    starts, dt, is_empty = _given_steps(grid, q0.dtype)
    turns = expansion(at_nodes(starts, dt), dt[:, None], cross)
    turns = jnp.where(is_empty[:, None], jnp.zeros_like(turns), turns)
    return _product(q0, turns, is_empty)[:: grid.substeps]


def rollout_of_attitude(
    rate: Callable[[Array, Array, Any], Array],
    q0: ArrayLike,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    order: int = 4,
) -> Array:
    """Attitudes on a time grid from a body rate of time and attitude. -> (intervals + 1, 4).

    Differentiable by q0, params and grid, in both modes. An ellipsoid without inertia turns so in
    a viscous flow::

        jeffery = jq.flow.jeffery_rate(semi_axes, gradient)
        q = rollout_of_attitude(lambda t, q, params: jeffery(t, q), q0, jq.grid(0.0, 0.1, 100))

    It is the method of Munthe-Kaas (``jq.rkmk``) without a body: ``u' = dexpinv(u, rate)`` for the
    rotation vector u of a step, by an explicit Runge-Kutta method. |q| = 1 holds to rounding.

    Args:
        rate: ``rate(t, q, params) -> (3,)``, the rate at time t [s] and attitude q (4,) in body
            axes [rad/s].
        q0: unit attitude at the start of the grid, (4,); the result has its dtype.
        grid: ``jq.grid(t0, dt, steps)``, whose steps are its intervals, or ``jq.grid_at(times)``,
            which returns the attitudes at these times alone. The attitude stays as it is in an
            interval of length 0, where the rate has no part.
        params: any pytree, passed to rate.
        order: in dt, 2, 4 or 6: 2, 4 or 7 rates a step (midpoint, classical, Butcher 1964).

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, tuple(_TABLEAUS))
    takes("rate", rate, "t, q, params")
    instance("grid", grid, (Grid, GridAt), "a jq.grid(t0, dt, steps) or jq.grid_at(times)")
    tableau, q0 = _TABLEAUS[order], _checked_start(q0)

    def at(t: Array, q: Array) -> Array:
        return _checked_rate(rate(t, q, params), " from rate(t, q, params)", q0)

    if isinstance(grid, Grid):
        starts, dt = grid.times(q0.dtype)[:-1], jnp.asarray(grid.dt, q0.dtype)

        def advance(q: Array, t: Array) -> tuple[Array, Array]:
            after = _lifted(tableau, at, q, t, dt)
            return after, after

        return jnp.concatenate([q0[None], lax.scan(advance, q0, starts)[1]])
    rows = intervals_of(grid, q0.dtype)
    regular = q0, rows.t[0], first_step(rows)
    empty_ones, within = may_be_empty(grid, q0.dtype), jnp.arange(grid.substeps)

    def through(q: Array, t: Array, dt: Array) -> Array:
        def step(q: Array, j: Array) -> tuple[Array, None]:
            return _lifted(tableau, at, q, t + j * dt, dt), None

        return lax.scan(step, q, within.astype(dt.dtype))[0]

    def next_row(q: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        t, dt = row
        here = q, t, dt
        after = unless_empty(dt == 0, through, here, regular, q) if empty_ones else through(*here)
        return after, after

    return jnp.concatenate([q0[None], lax.scan(next_row, q0, (rows.t[:-1], rows.dt[:-1]))[1]])


def _lifted(
    tableau: Tableau, rate: Callable[[Array, Array], Array], q: Array, t: Array, dt: Array
) -> Array:
    """The attitude after a step, from slopes of its rotation vector."""
    slopes = [rate(t, q)]  # the first stage is at u = 0
    for row, node in zip(tableau.a, tableau.c, strict=True):
        u = combine(row, slopes, dt)
        # The barriers: see schemes/munthe_kaas.py.
        stage = multiply(q, lax.optimization_barrier(exp(u)))
        slopes.append(so3.dexpinv(u, rate(t + node * dt, stage)))
    turn = combine(tableau.b, slopes, dt)
    return correct_norm(q + multiply(q, lax.optimization_barrier(expm1(turn))))


def _given_steps(grid: GridAt, dtype: DTypeLike) -> tuple[Array, Array, Array]:
    """When steps begin, how long they are [s], and whether they are empty, each (steps,).

    A step of an empty interval is given as the first step that is not empty: what comes of it is
    dropped, and so its derivatives must be finite.
    """
    intervals = intervals_of(grid, dtype)
    t, dt = intervals.t[:-1], intervals.dt[:-1]
    is_empty = dt == 0
    t = jnp.where(is_empty, lax.stop_gradient(t[0]), t)
    dt = jnp.where(is_empty, lax.stop_gradient(first_step(intervals)), dt)
    starts = t[:, None] + jnp.arange(grid.substeps).astype(dt.dtype)[None] * dt[:, None]
    return starts.ravel(), jnp.repeat(dt, grid.substeps), jnp.repeat(is_empty, grid.substeps)


def integrate(q0: ArrayLike, omega: ArrayLike, dt: ArrayLike, *, order: int = 4) -> Array:
    """Attitudes at the times of N uniform samples of the body rate, a gyroscope's for instance.

    (4,), (N, 3), () -> (N, 4). Differentiable by all three, in both modes.

    Args:
        q0: unit attitude at the first sample, (4,); omega and dt have its dtype.
        omega: samples of the rate [rad/s], (N, 3), at least ``order`` of them.
        dt: spacing of the samples [s].
        order: in dt, 2, 4 or 6. The rate at the Gauss nodes is that of the polynomial through the
            nearest 2, 4 or 6 samples, one-sided at the ends.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, tuple(NODES))
    order = int(order)  # 2.0 is 2
    q0, omega, dt = _checked_start(q0), floating("omega", omega), exactly("dt", dt, ())
    if omega.ndim != 2 or omega.shape[1] != 3 or omega.shape[0] < order:
        wanted = f"shape (N, 3) with N >= {order} for order {order}"
        raise ValueError(f"omega: wanted {wanted}, got {omega.shape}")
    for name, value in (("omega", omega), ("dt", dt)):
        if value.dtype != q0.dtype and not value.weak_type:
            raise TypeError(f"{name}: wanted the dtype of q0, {q0.dtype}, got {value.dtype}")
    positive("dt", dt)
    return _product(q0, expansion(_at_gauss_nodes(omega, order), dt, cross))


def _at_gauss_nodes(omega: Array, order: int) -> list[Array]:
    """The rates at the Gauss nodes between N samples (N, 3), each (N - 1, 3).

    Every stencil is the central one of ``order`` samples. For this the samples are continued beyond
    the ends, on the polynomials through the first and through the last of them.
    """
    places, outside = np.arange(order), np.arange(1, order // 2)
    before = _combine(lagrange_weights(places, -outside[::-1]), omega[:order])
    after = _combine(lagrange_weights(places, order - 1 + outside), omega[-order:])
    extended = jnp.concatenate([before, omega, after])
    steps = len(omega) - 1
    weights = lagrange_weights(places, np.array(NODES[order]) + order // 2 - 1)
    stencil = jnp.stack([extended[k : k + steps] for k in range(order)])  # (order, steps, 3)
    rows = [jnp.asarray(row, omega.dtype)[:, None, None] for row in weights]
    return [jnp.sum(row * stencil, axis=0) for row in rows]


def _combine(weights: np.ndarray, rows: Array) -> Array:
    return jnp.sum(jnp.asarray(weights, rows.dtype)[:, :, None] * rows[None], axis=1)


def _checked_start(q0: ArrayLike) -> Array:
    q0 = exactly("q0", q0, (4,))
    unit_quaternion("q0", q0)
    return q0


def _checked_rate(omega: Any, hint: str, q0: Array) -> Array:
    omega = exactly("rate", omega, (3,), hint)
    if omega.dtype != q0.dtype:
        raise TypeError(f"rate: wanted the dtype of q0, {q0.dtype}, got {omega.dtype}")
    return omega


def _product(q0: Array, u: Array, is_empty: Array | None = None) -> Array:
    """``q0, q0 exp(u[0]), q0 exp(u[0]) exp(u[1]), ...``; empty steps leave q as it is."""

    def advance(q: Array, given: tuple[Array, Any]) -> tuple[Array, Array]:
        turn, is_empty = given
        after = correct_norm(q + multiply(q, turn))
        q = after if is_empty is None else jnp.where(is_empty, q, after)
        return q, q

    return jnp.concatenate([q0[None], lax.scan(advance, q0, (expm1(u), is_empty))[1]])
