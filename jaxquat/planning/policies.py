"""The change of the commands that minimises the quadratic model of a path.

Where the fused engine has kernels, one kernel linearises and solves. Otherwise XLA linearises all
samples before it goes backwards. The exact Hessian is used if the policy then lowers the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import dot, matvec
from jaxquat.dynamics.state import State, error_size
from jaxquat.fused import engine as fused
from jaxquat.fused.scanning import scan
from jaxquat.planning.linearization import (
    LINEARISED,
    columns_by_part,
    costate_before,
    curvature,
    curvature_at_end,
    gauss_newton,
    newton,
)
from jaxquat.planning.riccati import (
    Model,
    Policy,
    backward,
    forward,
    held,
    improved,
    in_box,
    summed,
)
from jaxquat.planning.trajectory import Limits, Problem, Trajectory, at_once, samples_of


def policy_of(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Take the step of the exact model if it is convex, otherwise of Gauss and Newton's."""
    arguments = problem, path, damping, rows, choose, exact
    n = error_size(jax.tree.map(lambda x: x[0], path.states))
    # With 12 errors the threads of a GPU have too few registers.
    if n <= 6 or jax.default_backend() == "cpu":
        return fused.if_possible(lambda: _in_one_sweep(*arguments), lambda: modelled(*arguments))
    return modelled(*arguments)


def modelled(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Compute ``policy_of`` by XLA, which linearises all samples before it goes backwards."""
    states, commands, gaps = path
    models = [gauss_newton(problem, states, commands, gaps)]
    if exact:
        models = [newton(problem, models[0], states, commands), *models]
    policies = [backward(model, damping, rows, choose)._replace(hessian=None) for model in models]
    return _first_descent(policies, models if path.gaps is not None else None)


def _in_one_sweep(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Compute ``policy_of`` in one kernel; to store the linear model would take longer."""
    rows_of_path, after, last = samples_of(path.states, path.commands)
    linearised, linearised_end = LINEARISED[columns_by_part]

    def ended(last: State) -> tuple[Array, list[Array]]:
        v, v_v = linearised_end(problem, last)
        return v, [curvature_at_end(problem, last), v_v] if exact else [v_v]

    v, at_end = at_once(ended, last)
    shifts = None if path.gaps is None else -path.gaps

    def sample(carry: Any, row: Any) -> tuple[Any, Any]:
        costate, values = carry
        of_sample, shift, row = row
        transition, gradient, gauss_newton = linearised(problem, *of_sample)
        hessians = [gauss_newton]
        if exact:
            hessians = [curvature(problem, costate, *of_sample), gauss_newton]
            costate = costate_before(costate, transition, gradient)
        models = [(transition, gradient, hessian, shift) for hessian in hessians]
        pairs = [
            improved(value, model, damping, row, choose)
            for value, model in zip(values, models, strict=True)
        ]
        values, policies = zip(*pairs, strict=True)
        policies = [policy._replace(hessian=None) for policy in policies]
        return (costate, list(values)), (policies, None if shift is None else models)

    stages = (*rows_of_path, after), shifts, rows
    begin = v if exact else None, [(v, hessian) for hessian in at_end]
    policies, models = scan(sample, begin, stages, reverse=True, engine="fused")[1]
    if models is not None:
        models = [
            Model(transition, gradient, hessian, (v, v_v), shift)
            for (transition, gradient, hessian, shift), v_v in zip(models, at_end, strict=True)
        ]
    return _first_descent([summed(policy) for policy in policies], models)


def within(commands: Array, limits: Limits) -> tuple[Any, Callable[..., Any]]:
    """Return ``rows`` and ``choose`` of ``backward`` that keep the commands in the limits."""
    if limits is None:
        return jnp.ones(commands.shape, bool), held
    return (limits[0] - commands, limits[1] - commands), in_box


def _first_descent(policies: list[Policy], models: list[Model] | None) -> Policy:
    """Return the first policy that lowers the cost, else the last; ``models`` if there are gaps."""
    lowers = jnp.isfinite(policies[0].slope) & (policies[0].slope <= 0)
    first = lambda *x: jnp.where(lowers, x[0], x[-1])  # noqa: E731
    policy = jax.tree.map(first, *policies)
    return policy if models is None else _with_gaps(jax.tree.map(first, *models), policy)


def _with_gaps(model: Model, policy: Policy) -> Policy:
    """Give the policy slope and curvature of the whole step, which also closes the gaps."""
    after, z = forward(model, policy)
    v, v_v = model.end
    slope = jnp.sum(model.gradient * z) + dot(v, after[-1])
    curvature = jnp.sum(z * matvec(model.hessian, z)) + dot(after[-1], matvec(v_v, after[-1]))
    return policy._replace(slope=slope, curvature=curvature)
