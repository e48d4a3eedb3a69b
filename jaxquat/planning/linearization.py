"""Linear-quadratic models of the samples, in the coordinates of ``local`` and ``retract``.

The Hessian is that of the Lagrangian, whose multipliers are the costates, or that of Gauss and
Newton. A kernel needs the zeros of a Jacobian; XLA compiles a program of all its columns faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import block_diag

from jaxquat import quaternion
from jaxquat._internal.linear import matvec
from jaxquat.dynamics.state import State, local, near
from jaxquat.fused.scanning import scan
from jaxquat.planning.riccati import Model, product, symmetric
from jaxquat.planning.trajectory import (
    Problem,
    Trajectory,
    at_once,
    half_square,
    moved,
    samples_of,
    traced_once,
    zeros,
)

Columns = Callable[[Callable[..., Any], list[Array], list[Array]], Any]
"""``columns(function, parts, directions)``: value and Jacobian; each part moves in directions."""


def gauss_newton(problem: Problem, path: Trajectory, by_kernel: bool = False) -> Model:
    """Linearise the samples, with the Gauss-Newton Hessian of their costs."""
    rows, after, last = samples_of(path)
    linearised, linearised_end = LINEARISED[columns_by_part if by_kernel else columns_at_once]
    if by_kernel:
        samples = scan(lambda _, row: ((), linearised(problem, *row)), (), (*rows, after))[1]
        end = at_once(partial(linearised_end, problem), last)
    else:
        samples = jax.vmap(partial(linearised, problem))(*rows, after)
        end = linearised_end(problem, last)
    return Model(*samples, shift=None if path.gaps is None else -path.gaps, end=end)


def _linearised(
    columns: Columns, problem: Problem, k: Array, state: State, command: Array, after: State
) -> tuple[Array, Array, Array]:
    def stage(state: State, command: Array) -> tuple[Array, Array]:
        end, residuals = problem.stage(k, state, command)
        return local(after, end), residuals

    (_, residuals), (transition, jacobian) = _linear(columns, stage, state, command)
    return transition, *_squared(jacobian, residuals)


def _linear(columns: Columns, function: Callable[..., Any], state: State, *command: Array) -> Any:
    """Return value and Jacobian with respect to the error of the state and the command."""
    q, omega, aux, *place = state
    parts, structure = jax.tree.flatten((q, omega, place, aux, *command))

    def of_parts(*parts: Array) -> Any:
        q, omega, place, aux, *command = jax.tree.unflatten(structure, parts)
        return function(State(q, omega, aux, *place), *command)

    turns = 0.5 * quaternion.left_matrix(q)[:, 1:].T  # d (q exp(u)) / du at u = 0
    others = [jnp.eye(x.size, dtype=q.dtype) for x in parts[1:]]
    return columns(of_parts, parts, [turns, *others])


def columns_by_part(
    function: Callable[..., Any], parts: list[Array], directions: list[Array]
) -> tuple[Any, Any]:
    """Return value and Jacobian, whose zeros are known to a kernel: each part moves alone."""

    def by(i: int, directions: Array) -> Any:
        def of_part(x: Array) -> Any:
            return function(*parts[:i], x, *parts[i + 1 :])

        def along(_: Any, direction: Array) -> Any:
            return (), jax.jvp(of_part, (parts[i],), (direction.reshape(parts[i].shape),))

        return lax.scan(along, (), directions)[1]

    moved = [by(i, x) for i, x in enumerate(directions) if x.size]
    columns = jax.tree.map(lambda *x: jnp.concatenate(x, axis=0).T, *(x for _, x in moved))
    return jax.tree.map(lambda x: x[0], moved[0][0]), columns


def columns_at_once(
    function: Callable[..., Any], parts: list[Array], directions: list[Array]
) -> tuple[Any, Any]:
    """Return value and Jacobian by one program of all columns, which XLA compiles faster."""
    value, push = jax.linearize(function, *parts)

    def along(*direction: Array) -> Any:
        return push(*(d.reshape(x.shape) for d, x in zip(direction, parts, strict=True)))

    ends = np.cumsum([x.size for x in parts])
    rows = jnp.split(block_diag(*directions), ends[:-1], axis=1)  # each moves one part
    return value, jax.vmap(along, out_axes=1)(*rows)


def _linearised_end(columns: Columns, problem: Problem, last: State) -> tuple[Array, Array]:
    residuals, jacobian = _linear(columns, problem.final, last)
    return _squared(jacobian, residuals)


def _squared(jacobian: Array, residuals: Array) -> tuple[Array, Array]:
    return matvec(jacobian.T, residuals), product(jacobian.T, jacobian)


LINEARISED = {
    of: (traced_once(partial(_linearised, of)), traced_once(partial(_linearised_end, of)))
    for of in (columns_by_part, columns_at_once)
}
"""The linear models of a sample and of the end, as a kernel needs them and as XLA does."""


def models_of(
    problem: Problem, costate: Array | None, *row: Any
) -> tuple[Array | None, list[tuple[Array, Array, Array]]]:
    """Return the costate before a sample and its models, the exact one first if it is known."""
    if costate is None:
        return None, [LINEARISED[columns_by_part][0](problem, *row)]
    hessian, transition, gradient, squared = _expanded(problem, costate, *row)
    models = [(transition, gradient, h) for h in (hessian, squared)]
    return costate_before(costate, transition, gradient), models


def models_at_end(problem: Problem, exact: bool, last: State) -> list[tuple[Array, Array]]:
    """Return the models of the end, the exact one first."""
    if not exact:
        return [LINEARISED[columns_by_part][1](problem, last)]
    hessian, v, v_v = _expanded_end(problem, last)
    return [(v, hessian), (v, v_v)]


@traced_once
def _expanded(problem: Problem, costate: Array, *row: Any) -> tuple[Array, ...]:
    slope = partial(slope_of_sample, problem, costate, *row)
    _, state, command, _ = row
    hessian, jacobians, (_, residuals) = _column_by_column(slope, zeros(state, command))
    transition, jacobian = jacobians
    return hessian, transition, *_squared(jacobian, residuals)


@traced_once
def _expanded_end(problem: Problem, last: State) -> tuple[Array, ...]:
    slope = partial(slope_at_end, problem, last)
    hessian, jacobian, residuals = _column_by_column(slope, zeros(last))
    return hessian, *_squared(jacobian, residuals)


def _column_by_column(slope: Callable[[Array], Any], zero: Array) -> tuple[Array, Any, Any]:
    """Return the Hessian, and Jacobians and values of what ``slope`` returns with the gradient."""

    def along(_: Any, direction: Array) -> Any:
        return (), jax.jvp(slope, (zero,), (direction,))

    eye = jnp.eye(zero.size, dtype=zero.dtype)
    (_, values), (hessian, columns) = lax.scan(along, (), eye)[1]
    columns = jax.tree.map(jnp.transpose, columns)
    return symmetric(hessian), columns, jax.tree.map(lambda x: x[0], values)


def exact_model(problem: Problem, path: Trajectory) -> tuple[Model, Array]:
    """Linearise with the exact Hessians, and return the costate after each sample, (samples, n)."""
    rows, after, last = samples_of(path)

    def sample(costate: Array, row: Any) -> tuple[Any, Any]:
        before, models = models_of(problem, costate, *row)
        return before, (*models[0], costate)

    end = at_once(lambda last: models_at_end(problem, True, last)[0], last)
    *model, costates = scan(sample, end[0], (*rows, after), reverse=True)[1]
    return Model(*model, shift=None, end=end), costates


def newton(problem: Problem, model: Model, path: Trajectory) -> Model:
    """Replace the Hessians of ``gauss_newton`` by the exact ones of the Lagrangian."""
    rows, after, last = samples_of(path)
    hessian = jax.vmap(partial(curvature, problem))(costates_of(model), *rows, after)
    return model._replace(hessian=hessian, end=(model.end[0], curvature_at_end(problem, last)))


def costates_of(model: Model) -> Array:
    """Return the costate after each sample, (samples, n)."""

    def back(after: Array, row: Any) -> tuple[Array, Array]:
        return costate_before(after, *row), after

    return lax.scan(back, model.end[0], (model.transition, model.gradient), reverse=True)[1]


def costate_before(after: Array, transition: Array, gradient: Array) -> Array:
    """Return the costate before a sample from the one after it, both (n,)."""
    n = after.size
    return gradient[:n] + matvec(transition[:, :n].T, after)


def curvature(
    problem: Problem, costate: Array, k: Array, state: State, command: Array, after: State
) -> Array:
    """Return the exact Hessian of a sample's Lagrangian, (n + m, n + m)."""
    slope = lambda z: slope_of_sample(problem, costate, k, state, command, after, z)[0]  # noqa: E731
    return symmetric(jax.jacfwd(slope)(zeros(state, command)))


def slope_of_sample(
    problem: Problem, costate: Array, k: Array, state: State, command: Array, after: State, z: Array
) -> tuple[Array, tuple[Array, Array]]:
    """Return the gradient of a sample's Lagrangian at z, (n + m,), next error and residuals."""
    stage = moved(partial(problem.stage, k), state, command, by=near)

    def lagrangian(z: Array) -> tuple[Array, Any]:
        end, residuals = stage(z)
        off = local(after, end)
        return half_square(residuals) + jnp.sum(costate * off), (off, residuals)

    return jax.grad(lagrangian, has_aux=True)(z)


def curvature_at_end(problem: Problem, last: State) -> Array:
    """Return the exact Hessian of the cost of the end, (n, n)."""
    return jax.jacfwd(lambda delta: slope_at_end(problem, last, delta)[0])(zeros(last))


def slope_at_end(problem: Problem, last: State, delta: Array) -> tuple[Array, Array]:
    """Return the gradient of the cost of the end at an error of its state, (n,), and residuals."""
    final = moved(problem.final, last, by=near)

    def cost(delta: Array) -> tuple[Array, Array]:
        residuals = final(delta)
        return half_square(residuals), residuals

    return jax.grad(cost, has_aux=True)(delta)
