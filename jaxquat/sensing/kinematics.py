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
from jaxquat.sensing.magnus import NODES, expansion, magnus_vector, product
from jaxquat.sensing.preintegration import Imu, Preintegrated, preintegrate
from jaxquat.sensing.samples import checked_times, rates_at_equal_distances, rates_at_times
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

    Examples:
        >>> level = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> omega, alpha = jnp.array([0.0, 0.0, 0.5]), jnp.array([0.0, 0.0, 0.25])  # rad/s, rad/s^2
        >>> q = jax.jit(jq.kinematics.magnus)(level, omega, alpha, 2.0)
        >>> f"{jq.quaternion.distance(level, q):.3f} rad"  # 0.5 2 + 0.25 2^2/2
        '1.500 rad'
    """
    one_of("order", order, (2, 4, 6, 8))
    named = (("q0", q0, (4,)), ("omega", omega, (3,)), ("alpha", alpha, (3,)), ("dt", dt, ()))
    q0, omega, alpha, h = broadcast(*named)
    unit_quaternion("q0", q0)
    turn = magnus_vector(omega, alpha, h[..., None], order)
    return correct_norm(q0 + multiply(q0, expm1(turn)))


def truncated_exp(u: ArrayLike) -> Array:
    """The source document's exponential without trigonometry. (..., 3) [rad] -> (..., 4).

    It is the series to third order, ``(1 - v^2/2, (1 - v^2/6) v)`` with v = u/2, divided by its
    norm. The rotation is wrong by 0.24 % of its angle at 60 degrees, 1.19 % at 90 and 15.8 % at
    180. (The document's "less than 1 % up to 90 degrees" holds for the quaternion, not for the
    angle.) In place of ``exp`` in a Magnus step it limits the order to 4.

    Examples:
        >>> level = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> q = jq.kinematics.truncated_exp(jnp.array([0.0, 0.0, jnp.pi / 2]))
        >>> f"{jnp.degrees(jq.quaternion.distance(level, q)):.1f} deg"
        '91.1 deg'
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

    Examples:
        >>> level = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> rate = lambda t, amplitude: amplitude * jnp.cos(t)  # rad/s
        >>> amplitude, grid = jnp.array([0.0, 0.0, 0.5]), jq.grid(0.0, jnp.pi / 40, 20)  # to pi/2 s
        >>> q = jax.jit(lambda: jq.kinematics.rollout(rate, level, grid, amplitude))()
        >>> q.shape, f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        ((21, 4), '0.500 rad')
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
        return product(q0, expansion(at_nodes(starts, dt), dt, cross))
    starts, dt, is_empty = _given_steps(grid, q0.dtype)
    turns = expansion(at_nodes(starts, dt), dt[:, None], cross)
    turns = jnp.where(is_empty[:, None], jnp.zeros_like(turns), turns)
    return product(q0, turns, is_empty)[:: grid.substeps]


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

    Examples:
        >>> level, world = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.3, 0.4])  # rad/s
        >>> rate = lambda t, q, params: jq.quaternion.rotate_inverse(q, world)  # in body axes
        >>> grid = jq.grid(0.0, 0.1, 20)  # 2 s
        >>> q = jax.jit(lambda: jq.kinematics.rollout_of_attitude(rate, level, grid))()
        >>> q.shape, f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        ((21, 4), '1.000 rad')
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


def integrate(
    q0: ArrayLike,
    omega: ArrayLike,
    dt: ArrayLike | None = None,
    *,
    times: ArrayLike | None = None,
    order: int = 4,
) -> Array:
    """Attitudes at the times of N samples of the body rate, a gyroscope's for instance.

    (4,), (N, 3), () or (N,) -> (N, 4). Differentiable by all of them, in both modes. The samples
    are ``dt`` apart, or each has a time of its own::

        q = jq.kinematics.integrate(q0, gyro, 0.01)
        q = jq.kinematics.integrate(q0, gyro, times=stamps)

    The last time may be repeated, as ``jq.recordings.windows`` does and as ``jq.grid_at`` admits:
    the attitude stays as it is from there on, and what omega is there has no part in value or
    derivative. So recordings of different lengths go through one ``jax.vmap``.

    Only differences of times count: the derivative by a common offset is 0.

    Args:
        q0: unit attitude at the first sample, (4,); omega and dt have its dtype.
        omega: samples of the rate [rad/s], (N, 3), at least ``order`` of them.
        dt: spacing of the samples [s], if they are equally spaced.
        times: their times [s], (N,), if they are not. They increase, up to repeats of the last one,
            and are subtracted in the dtype they have.
        order: in the spacing, 2, 4 or 6. The rate at the Gauss nodes is that of the polynomial
            through the nearest 2, 4 or 6 samples, one-sided at the ends. (Where fewer times
            differ, because the last is repeated, it is the polynomial through all of them.)

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name. Traced times are
            not checked; where they stand still before the end the result is NaN.

    Examples:
        >>> level, rate = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.3, 0.4])  # 0.5 rad/s
        >>> omega = jnp.tile(rate, (101, 1))
        >>> q = jax.jit(jq.kinematics.integrate)(level, omega, 0.02)  # at 50 Hz
        >>> q.shape, f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        ((101, 4), '1.000 rad')
    """
    one_of("order", order, tuple(NODES))
    order = int(order)  # 2.0 is 2
    if (dt is None) == (times is None):
        got = "neither" if dt is None else "both"
        raise ValueError(f"dt, times: wanted one of them, got {got}")
    q0, omega = _checked_start(q0), floating("omega", omega)
    if omega.ndim != 2 or omega.shape[1] != 3 or omega.shape[0] < order:
        wanted = f"shape (N, 3) with N >= {order} for order {order}"
        raise ValueError(f"omega: wanted {wanted}, got {omega.shape}")
    _check_dtype("omega", omega, q0)
    if times is not None:
        stamps = checked_times(times, len(omega))
        rates, dt, is_empty = rates_at_times(omega, stamps, order, q0.dtype)
        turns = expansion(rates, dt, cross)
        return product(q0, jnp.where(is_empty, jnp.zeros_like(turns), turns), is_empty)
    dt = exactly("dt", dt, ())
    _check_dtype("dt", dt, q0)
    positive("dt", dt)
    return product(q0, expansion(rates_at_equal_distances(omega, order), dt, cross))


def _check_dtype(name: str, value: Array, q0: Array) -> None:
    if value.dtype != q0.dtype and not value.weak_type:
        raise TypeError(f"{name}: wanted the dtype of q0, {q0.dtype}, got {value.dtype}")


def _checked_start(q0: ArrayLike) -> Array:
    q0 = exactly("q0", q0, (4,))
    unit_quaternion("q0", q0)
    return q0


def _checked_rate(omega: Any, hint: str, q0: Array) -> Array:
    omega = exactly("rate", omega, (3,), hint)
    if omega.dtype != q0.dtype:
        raise TypeError(f"rate: wanted the dtype of q0, {q0.dtype}, got {omega.dtype}")
    return omega
