"""The step of ``mpc`` within constraints: a quadratic program by an interior-point method.

The program is the linear-quadratic model of riccati.py with rows ``a . z + c <= lambda/rho``: its
multiplier lambda over a large rho may violate an inequality, so there always is a solution. With
slacks t, Newton's method solves ``lambda t = sigma`` for a sigma that falls by FALL in each pass.
Eliminating slacks and multipliers adds ``a D a`` to the Hessians, with ``1/D = t/lambda + 1/rho``.
So each pass is one solution of riccati.py (C. V. Rao, S. J. Wright and J. B. Rawlings, J. Optim.
Theory Appl. 99, 723, 1998). No multipliers are kept for the next sample: those of an equality that
no plan can meet yet would grow without bound.

Rows are divided by their standard deviations of constraints.py, so units do not matter. Limits of
the commands are rows with an infinite rho. Equalities at the end cost ``rho/2 e^2``. Passes have no
derivative; one more pass at their end has the derivative of the solution, because to first order a
step of Newton's method does not depend on where it begins (implicit function theorem).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import matvec
from jaxquat.dynamics.state import State
from jaxquat.planning.constraints import FLOOR, REGULAR, Kinds, covariances_of, spread
from jaxquat.planning.riccati import Choice, Model, backward, forward, held, product
from jaxquat.planning.trajectory import Limits, Trajectory, jacobian, moved, samples_of, zeros

PASSES, FALL = 20, 0.2
"""Passes of a step, and the factor of sigma from one to the next."""

BOUNDARY = 0.99
"""The largest part of the way to 0 that a slack or multiplier goes in a pass."""


class Rows(NamedTuple):
    """Constraints ``slopes z + values <= softness multipliers``, divided by their deviations."""

    slopes: Array  # with respect to state error and command, (samples, c, n + m)
    values: Array  # (samples, c)
    softness: Array  # 1/rho, (samples, c)


class Program(NamedTuple):
    """The quadratic program of a step."""

    model: Model  # costs and motion
    rows: Rows  # the inequalities and limits
    end: tuple[Array, Array]  # slopes (e, n) and values (e,) of equalities over their deviations
    unit: Array  # the root of the cost, the first value of slacks and multipliers, ()
    deviations: Kinds  # infinite for constraints that no command changes

    def violations(self, at: Kinds) -> Array:
        """Sum all violations of these values, divided by their deviations, ()."""
        off = Kinds(jnp.abs(at.equalities), jnp.maximum(at.inequalities, 0.0))
        parts = jax.tree.map(lambda x, size: jnp.sum(x / size), off, self.deviations)
        return parts.equalities + parts.inequalities


def softness_of(dtype: Any) -> float:
    """Return 1/rho of all constraints, in units of a deviation and the cost that it adds."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def program_of(
    model: Model, cost: Array, constraints: Kinds, path: Trajectory, limits: Limits
) -> Program:
    """Return the program of a step from this path, of this cost, within constraints and limits."""
    commands = path.commands
    rows_of_path, _, last = samples_of(path)
    covariances, at_end = covariances_of(model, REGULAR)
    n, m = at_end.shape[-1], commands.shape[-1]
    softness = softness_of(commands.dtype)

    def along(k: Array, state: State, command: Array, covariance: Array) -> tuple[Array, ...]:
        value = moved(partial(constraints.inequalities, k), state, command)
        zero = zeros(state, command)
        slopes = jax.jacfwd(value)(zero)
        return slopes, value(zero), spread(slopes, covariance)

    slopes, values, sizes = jax.vmap(along)(*rows_of_path, covariances)
    least = FLOOR * jnp.max(sizes, axis=0, keepdims=True)
    sizes = jnp.where(sizes > 0, jnp.maximum(sizes, least), jnp.inf)
    rows = [(slopes, values, sizes, jnp.full_like(values, softness))]
    if limits is not None:
        eye = jnp.eye(m, n + m, n, dtype=commands.dtype)
        eyes = jnp.broadcast_to(eye, (len(commands), m, n + m))
        spreads = jnp.sqrt(jnp.diagonal(covariances, axis1=1, axis2=2)[:, n:])
        for sign, limit in zip((-1.0, 1.0), limits, strict=True):
            off = sign * (commands - jnp.where(jnp.isfinite(limit), limit, 0.0))
            spreads = jnp.where(jnp.isfinite(limit), spreads, jnp.inf)
            rows.append((sign * eyes, off, spreads, jnp.zeros_like(off)))

    by_error = jacobian(constraints.equalities, last)
    size = lax.stop_gradient(spread(by_error, at_end))
    size = jnp.where(size > 0, size, jnp.inf)
    end = by_error / size[:, None], constraints.equalities(last) / size
    unit = lax.stop_gradient(jnp.sqrt(cost + 0.5 * jnp.sum(end[1] ** 2)))
    unit = jnp.where(unit > 0, unit, 1.0)
    slopes, off, spreads, soft = (jnp.concatenate(x, axis=1) for x in zip(*rows, strict=True))
    spreads = lax.stop_gradient(spreads)
    off = jnp.where(jnp.isinf(spreads), -unit, off / spreads)
    rows = Rows(slopes / spreads[..., None], off, soft)
    v, v_v = model.end
    v = v + matvec(end[0].T, end[1]) / softness
    model = model._replace(end=(v, v_v + product(end[0].T, end[0]) / softness))
    return Program(model, rows, end, unit, Kinds(size, lax.stop_gradient(sizes)))


def solved(program: Program, damping: float) -> tuple[Array, Array]:
    """Return error and change of the command of all samples, and the largest multiplier."""
    model, rows, end, unit, _ = program
    free = jnp.ones_like(model.gradient[:, model.end[0].size :], bool)
    choice = Choice(held, free, damping)

    def pushed(model: Model, rows: Rows, y: Array, t: Array, sigma: Array) -> tuple[Any, ...]:
        weight = 1.0 / (t / y + rows.softness)
        off = rows.values + sigma / y - rows.softness * y
        by = jnp.swapaxes(rows.slopes, 1, 2)
        gradient = model.gradient + jnp.sum(by * (y + weight * off)[:, None], axis=2)
        hessian = model.hessian + product(by, weight[..., None] * rows.slopes)
        changed = model._replace(gradient=gradient, hessian=hessian)
        after, z = forward(changed, backward(changed, choice))
        return after, z, y + weight * (jnp.sum(rows.slopes * z[:, None], axis=2) + off)

    fixed = lax.stop_gradient((model, rows))

    def one(carry: tuple[Array, Array], sigma: Array) -> tuple[tuple[Array, Array], None]:
        y, t = carry
        by_y = pushed(*fixed, y, t, sigma)[2] - y
        by_t = sigma / y - t - t / y * by_y
        part = lambda x, by: jnp.min(jnp.where(by < 0, -x / by, jnp.inf), initial=jnp.inf)  # noqa: E731
        length = jnp.minimum(1.0, BOUNDARY * jnp.minimum(part(y, by_y), part(t, by_t)))
        return (y + length * by_y, t + length * by_t), None

    sigmas = unit * unit * FALL ** jnp.arange(PASSES, dtype=unit.dtype)
    begin = jnp.full_like(rows.values, unit), jnp.maximum(-fixed[1].values, unit)
    (y, t), _ = lax.scan(one, begin, sigmas)
    after, z, _ = pushed(model, rows, y, t, sigmas[-1])
    at_end = jnp.abs(matvec(end[0], after[-1]) + end[1]) / softness_of(y.dtype)
    return z, jnp.maximum(jnp.max(y, initial=0.0), jnp.max(at_end, initial=0.0))
