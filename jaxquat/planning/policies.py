"""The change of the commands that minimises the quadratic model of a path.

Where the fused engine has kernels, one kernel linearises and solves. Otherwise XLA linearises all
samples before it goes backwards. The exact Hessian is used if the policy then lowers the cost.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.linear import dot, matvec
from jaxquat.dynamics.state import error_size
from jaxquat.fused import engine as fused
from jaxquat.fused.scanning import scan
from jaxquat.planning.linearization import gauss_newton, models_at_end, models_of, newton
from jaxquat.planning.riccati import (
    Choice,
    Model,
    Policy,
    backward,
    forward,
    held,
    improved,
    in_box,
    summed,
)
from jaxquat.planning.trajectory import (
    Limits,
    Problem,
    Trajectory,
    at_once,
    free_of,
    samples_of,
    traced_once,
)


def policy_of(
    problem: Problem, path: Trajectory, choice: Choice, exact: bool
) -> tuple[Policy, Array]:
    """Take the step of the exact model if it is convex, otherwise of Gauss and Newton's.

    The second result are the gains of the model of Gauss and Newton, (samples, m, n).
    """
    choose, rows, damping = choice
    return _policy_of(problem, path, rows, damping, choose=choose, exact=exact)


@traced_once
def _policy_of(
    problem: Problem, path: Trajectory, rows: Any, damping: Any, *, choose: Any, exact: bool
) -> tuple[Policy, Array]:
    arguments = problem, path, Choice(choose, rows, damping), exact
    n = error_size(jax.tree.map(lambda x: x[0], path.states))
    if n <= 6 or jax.default_backend() == "cpu":  # with 12, threads of a GPU lack registers
        return fused.if_possible(lambda: _in_one_sweep(*arguments), lambda: modelled(*arguments))
    return modelled(*arguments)


def modelled(
    problem: Problem, path: Trajectory, choice: Choice, exact: bool
) -> tuple[Policy, Array]:
    """Compute ``policy_of`` by XLA, in one loop for all models: on a GPU launches take the time."""
    models = [gauss_newton(problem, path)]
    if exact:
        models = [newton(problem, models[0], path), *models]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *models)
    policies = jax.vmap(lambda model: backward(model, choice)._replace(hessian=None))(stacked)
    policies = [jax.tree.map(lambda x, k=k: x[k], policies) for k in range(len(models))]
    policy = _first_descent(policies, models if path.gaps is not None else None)
    return policy, policies[-1].gains


def _in_one_sweep(
    problem: Problem, path: Trajectory, choice: Choice, exact: bool
) -> tuple[Policy, Array]:
    """Compute ``policy_of`` in one kernel; to store the linear model would take longer."""
    rows_of_path, after, last = samples_of(path)
    ends = at_once(partial(models_at_end, problem, exact), last)
    shifts = None if path.gaps is None else -path.gaps

    def sample(carry: Any, row: Any) -> tuple[Any, Any]:
        costate, values = carry
        of_sample, shift, row = row
        costate, models = models_of(problem, costate, *of_sample)
        models = [(*model, shift) for model in models]
        solved = jax.jit(lambda value, model: improved(value, model, choice, row))
        steps = [solved(*of_model) for of_model in zip(values, models, strict=True)]
        policies = [policy._replace(hessian=None) for _, policy in steps]
        return (costate, [v for v, _ in steps]), (policies, None if shift is None else models)

    stages = (*rows_of_path, after), shifts, choice.rows
    begin = ends[0][0] if exact else None, ends
    policies, models = scan(sample, begin, stages, reverse=True, engine="fused")[1]
    if shifts is not None:
        models = [Model(*model, end=end) for model, end in zip(models, ends, strict=True)]
    return _first_descent([summed(policy) for policy in policies], models), policies[-1].gains


def within(commands: Array, limits: Limits, damping: Any) -> Choice:
    """Return the choice of ``backward`` that keeps the commands in the limits."""
    if limits is None:
        return Choice(held, jnp.ones(commands.shape, bool), damping)
    return Choice(in_box, (limits[0] - commands, limits[1] - commands), damping)


def free_within(commands: Array, limits: Limits, damping: Any) -> Choice:
    """Return the choice, of the kind of ``within``, that holds the commands at a limit."""
    if limits is None:
        return within(commands, limits, damping)
    room = jnp.where(free_of(commands, limits), jnp.inf, 0.0).astype(commands.dtype)
    return Choice(in_box, (-room, room), damping)


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
