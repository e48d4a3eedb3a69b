"""The minimum that ``ilqr`` finds, as a differentiable function of its problem.

Where the gradient with respect to the free commands vanishes, the implicit function theorem gives
their derivative: one more backward pass through the quadratic model with the exact Hessian, whose
gradients and gaps are the derivatives of those of the Lagrangian. So samples are differentiated one
by one, never a loop over them. A Hessian that is not positive definite gives NaN: the plan is then
not at a minimum, or not at an isolated one.

With constraints, the cost is that of the augmented Lagrangian, which depends on the multipliers.
Their derivative is a fixed point: that of ``y = max(0, y + rho c)`` with the commands that minimise
for these y. Each pass reduces its error by the factor ``1/(1 + rho S)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from jaxquat._internal.collection import paused
from jaxquat._internal.linear import matvec
from jaxquat._internal.recognition import TracedFunction
from jaxquat.dynamics.state import State, local
from jaxquat.fused.scanning import scan
from jaxquat.planning.constraints import Kinds, augmented, minimise_within, updated, values
from jaxquat.planning.iteration import Settings, has_converged, minimise, no_steps
from jaxquat.planning.linearization import exact_model, slope_at_end, slope_of_sample
from jaxquat.planning.policies import free_within, policy_of
from jaxquat.planning.riccati import Choice, Model, backward, forward, held
from jaxquat.planning.trajectory import (
    Limits,
    Problem,
    Trajectory,
    at_limits,
    at_once,
    begun,
    free_of,
    samples_of,
    simulated,
)

PASSES = 16
"""The passes of the fixed point of the multipliers' derivative."""


class Outcome(NamedTuple):
    """How an iteration ended; floats, because integers have no tangents."""

    status: Array
    iterations: Array
    history: Array
    penalties: Kinds
    gains: Array  # at the end, NaN if not known


class Disturbance(NamedTuple):
    """Changes of each sample's gradient and next error, the end's gradient, start and commands."""

    gradient: Array
    shift: Array
    end: Array
    start: Array
    commands: Array


Functions = tuple[TracedFunction, ...]
"""The functions of a Problem and of Kinds."""


class Operands(NamedTuple):
    """What the minimum depends on."""

    constants: Any  # arrays that the functions close over: those with derivatives, and
    others: Any
    start: State
    limits: Limits


class Found(NamedTuple):
    """A minimum, and what it depends on."""

    operands: Operands
    path: Trajectory
    multipliers: Kinds
    outcome: Outcome


def bound(functions: Functions, operands: Operands) -> tuple[Problem, Kinds]:
    """Return the problem and its constraints, with the arrays that they close over."""
    stage, final, *kinds = map(partial, functions, operands.constants, operands.others)
    return Problem(stage, final), Kinds(*kinds)


def described(
    functions: Functions,
    settings: Settings,
    operands: Operands,
    commands: Array,
    multipliers: Kinds,
    outcome: Outcome,
) -> tuple[State, Array, Array]:
    """Return the states of commands, their cost, and the gains."""
    path, cost = simulated(bound(functions, operands)[0], operands.start, commands, loop=scan)
    gains = _gains(functions, settings, Found(operands, path, multipliers, outcome))
    return path.states, cost, gains


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _gains(functions: Functions, settings: Settings, found: Found) -> Array:
    """Return the gains of the Gauss-Newton model, those of the last pass if they are for the end.

    They are not if a command is free there and at a limit, or the other way round. Other gains are
    computed by the kernel of the iteration.
    """
    gains, free = found.outcome.gains, free_of(found.path.commands, found.operands.limits)
    known = jnp.all(~jnp.isnan(gains)) & (not settings.constrained)
    known &= jnp.all(jnp.any(gains != 0, axis=-1) == free)

    def again(_: Any) -> tuple[Array, Array]:
        return _new_gains(functions, settings, found), known | True

    # A loop, because jax.vmap turns a branch into both of its sides.
    return lax.while_loop(lambda c: ~c[1], again, (gains, known))[0]


def _new_gains(functions: Functions, settings: Settings, found: Found) -> Array:
    operands, path, multipliers, outcome = found
    problem, constraints = bound(functions, operands)
    if settings.constrained:
        problem = augmented(problem, constraints, multipliers, outcome.penalties)
    damping = jnp.asarray(10.0 * float(jnp.finfo(path.commands.dtype).eps), path.commands.dtype)
    choice = free_within(path.commands, operands.limits, damping)
    return policy_of(problem, path, choice, settings.exact)[1]


@_gains.defjvp
def _gains_jvp(functions: Functions, settings: Settings, primals: Any, tangents: Any) -> Any:
    # The exact model, on which the gains do not depend, would need third derivatives.
    gains = partial(_new_gains, functions, settings._replace(exact=False))
    return jax.jvp(gains, primals, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def optimum(
    functions: Functions, settings: Settings, operands: Operands, guess: tuple[Array, State | None]
) -> tuple[tuple[Array, Kinds], Outcome]:
    """Find commands and multipliers, differentiable in all arguments but the guess."""
    problem, constraints = bound(functions, operands)
    limits = operands.limits
    path, first = begun(problem, operands.start, limits, guess)
    begin = no_steps(path, first, settings)
    if settings.constrained:
        outer = minimise_within(problem, constraints, limits, begin, settings)
        end, multipliers, penalties = outer.inner, outer.multipliers, outer.penalties
    else:
        floor = settings.tolerance * first
        end = minimise(problem, limits, begin, settings, first, floor)
        multipliers = penalties = values(constraints, begin.path)
    status, count = (x.astype(end.cost.dtype) for x in (end.status, end.passes))
    count = jnp.minimum(count, settings.iterations)
    outcome = Outcome(status, count, end.history, penalties, end.gains)
    return (at_limits(end.path.commands, limits), multipliers), outcome


@partial(optimum.defjvp, symbolic_zeros=True)
@paused()
def _optimum_jvp(
    functions: Functions, settings: Settings, primals: Any, tangents: Any
) -> tuple[Any, Any]:
    (commands, multipliers), outcome = optimum(functions, settings, *primals)
    operands = primals[0]
    moving, slopes, complete = _moving(operands, tangents[0])
    free, penalties = free_of(commands, operands.limits), outcome.penalties

    def problem_of(operands: Operands, y: Kinds) -> Problem:
        problem, constraints = bound(functions, operands)
        return augmented(problem, constraints, y, penalties) if settings.constrained else problem

    problem = problem_of(operands, multipliers)
    path, _ = simulated(problem, operands.start, commands, loop=scan)
    model, costates = exact_model(problem, path)

    def disturbance(moving: list[Array], y: Kinds) -> Disturbance:
        """Return what moves the minimum, at the states above."""
        operands = complete(moving)
        limits, at = operands.limits, commands
        if limits is not None:
            at = jnp.where(free, at, jnp.where(at >= limits[1], limits[1], limits[0]))
        slopes = _slopes(problem_of(operands, y), model, costates, path)
        begin = jax.tree.map(lambda x: x[0], path.states)
        return Disturbance(*slopes, local(begin, operands.start), at)

    pushed = jax.linearize(disturbance, moving, multipliers)[1]

    def change(slope: Kinds) -> Array:
        return _response(model, free, pushed(slopes, slope))

    def next_multipliers(moving: list[Array], commands: Array, y: Kinds) -> Kinds:
        operands = complete(moving)
        problem, constraints = bound(functions, operands)
        path, _ = simulated(problem, operands.start, commands)
        return updated(y, penalties, values(constraints, path))

    slope = jax.tree.map(jnp.zeros_like, multipliers)
    if settings.constrained:
        step = jax.linearize(next_multipliers, moving, commands, multipliers)[1]
        one = lambda y, _: (step(slopes, change(y), y), None)  # noqa: E731
        slope = lax.scan(one, slope, length=PASSES)[0]
    # A product, not a choice: in reverse mode, too, what did not converge must not give numbers.
    known = jnp.where(has_converged(outcome.status), 1.0, jnp.nan)
    results = jax.tree.map(lambda x: x * known, (change(slope), slope))
    return ((commands, multipliers), outcome), (results, jax.tree.map(jnp.zeros_like, outcome))


def _moving(
    arguments: Any, tangents: Any
) -> tuple[list[Array], list[Array], Callable[[list[Array]], Any]]:
    """Return the arrays that move, their tangents, and a function that completes the arguments."""
    leaves, structure = jax.tree.flatten(arguments)
    pairs = enumerate(structure.flatten_up_to(tangents))
    moves = {i: x for i, x in pairs if not isinstance(x, SymbolicZero)}

    def complete(moving: list[Array]) -> Any:
        moved = dict(zip(moves, moving, strict=True))
        return structure.unflatten([moved.get(i, x) for i, x in enumerate(leaves)])

    return [leaves[i] for i in moves], list(moves.values()), complete


def _slopes(
    problem: Problem, model: Model, costates: Array, path: Trajectory
) -> tuple[Array, Array, Array]:
    """Return gradient, shift and end of a Disturbance along the path, sample by sample."""
    rows, after, last = samples_of(path)
    by_sample = partial(slope_of_sample, problem, z=jnp.zeros_like(model.gradient[0]))
    one = lambda _, row: ((), by_sample(*row))  # noqa: E731
    gradient, (off, _) = scan(one, (), (costates, *rows, after))[1]
    zero = jnp.zeros_like(model.end[0])
    return gradient, off, at_once(lambda last: slope_at_end(problem, last, zero)[0], last)


def _response(model: Model, free: Array, by: Disturbance) -> Array:
    def choose(hessian: Array, gradient: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        free, moved = row
        fixed = jnp.where(free, 0.0, moved)
        return fixed + held(hessian, gradient + matvec(hessian, fixed), free)[0], free

    end = by.end, model.end[1]
    disturbed = model._replace(gradient=by.gradient, shift=by.shift, end=end)
    policy = backward(disturbed, Choice(choose, (free, by.commands)))
    return forward(disturbed, policy, by.start)[1][:, -free.shape[1] :]
