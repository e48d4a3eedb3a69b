"""``ilqr`` checks its arguments, minimises, and describes the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import fraction, instance, one_of, positive_integer
from jaxquat._internal.collection import paused
from jaxquat._internal.progress import announced
from jaxquat._internal.recognition import is_eager, traced
from jaxquat._internal.renamed import order_of, refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State, check_state
from jaxquat.planning.constraints import Kinds, largest_violation, values
from jaxquat.planning.iteration import Settings
from jaxquat.planning.optimum import Functions, Operands, Outcome, bound, described, optimum
from jaxquat.planning.plan import Plan
from jaxquat.planning.problem import (
    Constraints,
    Residuals,
    Solver,
    checked_commands,
    checked_constraints,
    checked_limits,
    checked_states,
    kinds_of,
    parted,
    problem_of,
    residuals_of,
)
from jaxquat.planning.trajectory import Problem, Trajectory
from jaxquat.schemes.scheme import Scheme, as_deterministic
from jaxquat.simulation.grid import Grid
from jaxquat.simulation.simulation import checked_simulation


@refuses_old_keywords("planning.ilqr")
def ilqr(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid,
    params: Any,
    commands: ArrayLike | tuple[ArrayLike, State],
    residuals: Callable[..., Array] | Residuals,
    *,
    constraints: Constraints | None = None,
    solver: Solver = Solver(),  # noqa: B008
) -> Plan:
    """Find the commands that minimise half a sum of squares along the path of one body.

    The cost is ``1/2 sum_k |residuals(k, state_k, params, command_k)|^2``, with
    ``planning.Residuals`` plus ``1/2 |final(state, params)|^2`` at the end. The method is
    differential dynamic programming (D. H. Jacobson and D. Q. Mayne, 1970) in the coordinates of
    ``dynamics.local``, or, without second derivatives, the iterative linear quadratic regulator
    (W. Li and E. Todorov, ICINCO 2004), with limits as in Y. Tassa, N. Mansard and E. Todorov,
    ICRA 2014, and other constraints by an augmented Lagrangian (T. A. Howell, B. E. Jackson and
    Z. Manchester, ALTRO, IROS 2019). The minimum is local: the guess decides in which direction a
    half turn is made.

    The call is not jitted: jit the function that calls it, and use ``jax.vmap`` for many starts or
    params. Commands, path, gains and cost are differentiable in both modes with respect to params,
    start, limits and closed-over arrays, by the implicit function theorem with the exact Hessian.
    The error of a derivative is proportional to ``tolerance``. Derivatives are NaN if the iteration
    has not converged or the Hessian is not positive definite. Inequalities with positive
    multipliers count as equalities and must be independent of each other.

    Derivatives of the residuals with respect to the commands are squared: in float32 choose units
    in which they are between 1e-18 and 1e18; beyond, the plan does not converge.

    Args:
        scheme: a deterministic scheme, for example ``jq.rkmk2``.
        body: the Body, in the dtype of the start.
        torque: ``torque(t, state, params, command) -> (3,)``, as in ``jq.rollout``.
        start: State of one body.
        grid: equal steps from ``jq.grid``.
        params: any pytree, passed to torque, residuals and constraints; None if they need none.
        commands: the guess, (samples, m), in the dtype of the start; each command lasts
            ``steps / samples`` steps. It is clipped to the limits. The pair ``(commands, states)``
            also guesses the states, a State with leading axes samples + 1, which need not obey the
            equations of motion (C. Mastalli et al., ICRA 2020); its first row is not used.
        residuals: ``residuals(k, state, params, command) -> (r,)`` or ``planning.Residuals``.
        constraints: ``planning.Constraints``: limits, equalities at the end, inequalities.
        solver: ``planning.Solver``: iterations, tolerance and Hessian.

    Returns:
        Plan, in the dtype of the start.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.

    Examples:
        >>> goal = jq.quaternion.exp(jnp.array([0.0, 0.0, 2.0]))  # 115 degrees about z
        >>> def missed(state, goal):
        ...     turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
        ...     return 1e2 * jnp.concatenate([turn, state.omega])
        >>> def slew(goal):
        ...     guess, grid = jnp.zeros((20, 3)), jq.grid(0.0, 1.0, 20)
        ...     cost = jq.planning.Residuals(effort, missed)
        ...     return jq.planning.ilqr(jq.rkmk2, body, motors, still, grid, goal, guess, cost)
        >>> plan = jax.jit(slew)(goal)
        >>> bool(plan.converged), f"{plan.commands[0, 2]:.2f} N m"  # 6 I angle/T^2 (1 - 1/20)
        (True, '0.14 N m')
    """
    scheme = as_deterministic("scheme", scheme)
    instance("grid", grid, Grid, "a jq.grid(t0, dt, steps)")
    residuals = residuals_of(residuals, "state, params")
    constraints = checked_constraints(constraints)
    dtype = check_state("start", start).q.dtype
    constrained = constraints.equalities is not None or constraints.inequalities is not None
    settings = _settings(solver, dtype, constrained)
    commands, states = parted(commands)
    guess = _guess_of(commands, grid, dtype)
    limits, every = checked_limits(constraints.limits, guess), grid.steps // len(guess)
    grid = replace(grid, sample_every=every, save_every=every)
    simulation = checked_simulation(scheme, body, torque, start, grid, params, inputs=guess)
    start = simulation.start
    if states is not None:
        states = checked_states(states, start, len(guess))

    problem, kinds = problem_of(simulation, residuals), kinds_of(constraints, params, dtype)
    functions, constants, others = _without_closures(problem, kinds, start, guess[0])
    statics, operands = (functions, settings), Operands(constants, others, start, limits)
    # A function that is being compiled needs no compiled function inside, which takes longer.
    solve = functions[0].jitted(_solved, *statics) if is_eager() else partial(_solved, *statics)
    with announced("planning.ilqr"):
        best, followed, cost, gains, violation, multipliers, outcome = solve(
            operands, (guess, states)
        )
    rows = followed, jnp.concatenate([best, best[-1:]])
    path = simulation.path(rows, (), jax.tree.map(lambda x: x[-1], followed))
    status, count = (x.astype(jnp.int32) for x in outcome[:2])
    return Plan(
        best, path, gains, cost, status, count, outcome.history, limits, violation,
        tuple(multipliers) if constrained else None,
    )  # fmt: skip


def _settings(solver: Solver, dtype: Any, constrained: bool) -> Settings:
    instance("solver", solver, Solver, "a planning.Solver")
    iterations = positive_integer("solver.iterations", solver.iterations)
    one_of("solver.hessian", solver.hessian, ("exact", "gauss-newton"))
    tolerance = float(jnp.finfo(dtype).eps) ** 0.5
    if solver.tolerance is not None:
        tolerance = fraction("solver.tolerance", solver.tolerance)
    return Settings(iterations, tolerance, solver.hessian == "exact", constrained)


def _guess_of(commands: Any, grid: Grid, dtype: Any) -> Array:
    """Return the guess of the commands, a row for each of equally many steps."""
    if callable(commands):
        wanted = f"an array (samples, m), got a function{order_of('planning.ilqr')}"
        raise TypeError(f"commands: wanted {wanted}")
    guess, steps = checked_commands(commands), grid.steps
    if steps % len(guess):
        wanted = f"a number of rows that divides the {steps} steps of the grid"
        raise ValueError(f"commands: wanted {wanted}, got {len(guess)} rows")
    if guess.dtype != dtype:
        raise TypeError(f"commands: wanted the dtype of the start, {dtype}, got {guess.dtype}")
    every = steps // len(guess)
    for name in ("sample_every", "save_every"):
        if getattr(grid, name) not in (1, every):
            wanted = f"1, or the {every} steps of a command"
            raise ValueError(f"grid.{name}: wanted {wanted}, got {getattr(grid, name)}")
    return guess


@paused()  # while it is traced
def _solved(
    functions: Functions, settings: Settings, operands: Operands, guess: Any
) -> tuple[Array, State, Array, Array, Array, Kinds, Outcome]:
    """Find and describe the minimum; the arguments are those of ``optimum``."""
    (best, multipliers), outcome = optimum(functions, settings, operands, guess)
    followed, cost, gains = described(functions, settings, operands, best, multipliers, outcome)
    violation = jnp.zeros_like(cost)
    if settings.constrained:
        kinds = bound(functions, operands)[1]
        violation = largest_violation(values(kinds, Trajectory(followed, best)))
    return best, followed, cost, gains, violation, multipliers, outcome


@paused()
def _without_closures(problem: Problem, kinds: Kinds, state: State, command: Array) -> Any:
    """Return functions, and the arrays they closed over as arguments, as ``optimum`` needs them."""
    along, at_end = (jnp.zeros((), int), state, command), (state,)
    functions = zip((*problem, *kinds), (along, at_end, at_end, along), strict=True)
    return tuple(zip(*(traced(f, *arguments) for f, arguments in functions), strict=True))
