"""The iteration of ``ilqr``, and the derivative of its result.

Each pass linearises samples and residuals about the path, solves the quadratic model backwards
(riccati.py), and tries several lengths of the step at once. Both are kernels of the fused engine
where it has some. The Hessian of the model is the exact
one if that is positive definite, and the one of Gauss and Newton otherwise. A step whose cost is
not low enough is refused, and the next one is damped more: a fraction of its diagonal is added to
each Hessian of the commands, so units do not matter. The model without damping also says how far
the cost can still fall, and this ends the iteration.

The exact Hessian is that of the Lagrangian of each sample, whose multipliers are the costates. It
gives the derivative of the minimum, too, by the implicit function theorem: where the gradient by
the free commands vanishes, ``H du = -dg``, which is one more backward pass. A Hessian that is not
positive definite gives NaN: the plan is then not at a minimum, or not at a single one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._linear import dot, matvec, square
from jaxquat.dynamics.state import State, error_size, local, retract
from jaxquat.fused import engine as fused
from jaxquat.fused.scanning import scan
from jaxquat.planning.riccati import (
    Model,
    Policy,
    backward,
    forward,
    held,
    improved,
    in_box,
    product,
    summed,
)

STEPS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
"""Lengths of the steps that a pass tries."""

FIRST_DAMPING, LARGEST_DAMPING = 1e-4, 1e8
"""After the first refused step, and before the iteration gives up."""

PATIENCE = 5
"""Passes in whose cost only rounding is left before the iteration ends."""

RUNNING, CONVERGED, ROUNDING, NO_DESCENT, NOT_FINITE = range(5)

Limits = tuple[Array, Array] | None
"""The least and the largest command of each sample, each (samples, m)."""


class Problem(NamedTuple):
    """What to minimise.

    Attributes:
        stage: ``stage(k, state, command) -> (state after sample k, residuals)``.
        final: ``final(state) -> residuals`` at the end.
    """

    stage: Callable[[Array, State, Array], tuple[State, Array]]
    final: Callable[[State], Array]


class Outcome(NamedTuple):
    """How an iteration ended; floats, because integers have no tangents.

    Attributes:
        status: RUNNING, CONVERGED, ROUNDING, NO_DESCENT or NOT_FINITE.
        iterations: the number of steps tried.
        history: the cost at the start and after each step, (iterations + 1,).
    """

    status: Array
    iterations: Array
    history: Array


class Settings(NamedTuple):
    """The static arguments of an iteration.

    Attributes:
        iterations: the largest number of steps.
        tolerance: see ``ilqr``.
        exact: whether to use the exact Hessian where it is positive definite.
    """

    iterations: int
    tolerance: float
    exact: bool


class _Carry(NamedTuple):
    states: State  # leading axis samples + 1
    commands: Array
    cost: Array
    damping: Array
    status: Array
    passes: Array
    history: Array
    smallest: Array  # the smallest decrease that a model has promised
    stale: Array  # passes since then in whose cost only rounding is left


def roll_out(
    problem: Problem,
    start: State,
    rows: Any,
    command: Callable[[State, Any], Array],
    loop: Callable[..., Any] = lax.scan,
) -> tuple[State, Array, Array]:
    """All states (samples + 1), commands and the cost, with ``command(state, row)``."""

    def sample(state: State, numbered: Any) -> tuple[State, Any]:
        k, row = numbered
        u = command(state, row)
        after, residuals = problem.stage(k, state, u)
        return after, (state, u, _half_square(residuals))

    count = len(jax.tree.leaves(rows)[0])
    end, (states, commands, costs) = loop(sample, start, (jnp.arange(count), rows))
    states = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), states, end)
    return states, commands, jnp.sum(costs) + _half_square(problem.final(end))


def open_loop(state: State, command: Array) -> Array:
    """The row itself, for ``roll_out`` without feedback."""
    return command


def gauss_newton(problem: Problem, states: State, commands: Array) -> Model:
    """The linearised samples with the Gauss-Newton Hessian of their costs."""
    before, after, last = _ends(states)
    rows = jnp.arange(len(commands)), before, after, commands
    stages = jax.vmap(functools.partial(_linearised, problem))(*rows)
    return Model(*stages, _linearised_end(problem, last))


def _linearised(
    problem: Problem, k: Array, state: State, after: State, command: Array
) -> tuple[Array, Array, Array]:
    """F, g and the Gauss-Newton H of a sample."""

    def moved(z: Array) -> tuple[tuple[Array, Array], Array]:
        n = error_size(state)
        end, residuals = problem.stage(k, retract(state, z[:n]), command + z[n:])
        return (local(after, end), residuals), residuals

    (transition, jacobian), residuals = jax.jacfwd(moved, has_aux=True)(_zeros(state, command))
    return transition, *_squared(jacobian, residuals)


def _linearised_end(problem: Problem, last: State) -> tuple[Array, Array]:
    """The Gauss-Newton model of the end, v and V."""

    def ended(delta: Array) -> tuple[Array, Array]:
        residuals = problem.final(retract(last, delta))
        return residuals, residuals

    return _squared(*jax.jacfwd(ended, has_aux=True)(_zeros(last)))


def newton(problem: Problem, model: Model, states: State, commands: Array) -> Model:
    """The model of ``gauss_newton`` with the exact Hessian of the Lagrangian."""

    def back(after: Array, row: Any) -> tuple[Array, Array]:
        return _costate(after, *row), after

    costates = lax.scan(back, model.end[0], (model.transition, model.gradient), reverse=True)[1]
    before, after, last = _ends(states)
    rows = jnp.arange(len(commands)), before, after, commands, costates
    hessian = jax.vmap(functools.partial(_curvature, problem))(*rows)
    return model._replace(hessian=hessian, end=(model.end[0], _curvature_end(problem, last)))


def _costate(after: Array, transition: Array, gradient: Array) -> Array:
    """The costate before a sample from the one after it, both (n,)."""
    n = after.size
    return gradient[:n] + matvec(transition[:, :n].T, after)


def _curvature(
    problem: Problem, k: Array, state: State, after: State, command: Array, costate: Array
) -> Array:
    """The exact H of a sample, with the costate after it."""
    n = costate.size

    def lagrangian(z: Array) -> Array:
        end, residuals = problem.stage(k, retract(state, z[:n]), command + z[n:])
        return _half_square(residuals) + dot(costate, local(after, end))

    return jax.hessian(lagrangian)(_zeros(state, command))


def _curvature_end(problem: Problem, last: State) -> Array:
    """The exact V of the end."""
    at_end = jax.hessian(lambda delta: _half_square(problem.final(retract(last, delta))))
    return at_end(_zeros(last))


def minimise(
    problem: Problem, start: State, limits: Limits, guess: Array, settings: Settings
) -> tuple[Array, Outcome]:
    """The commands after the last step from ``guess``, and how the iteration ended."""
    iterations, tolerance, exact = settings
    eps = float(jnp.finfo(guess.dtype).eps)
    least, lengths = 10.0 * eps, jnp.asarray(STEPS, guess.dtype)

    def one(c: _Carry) -> _Carry:
        policy = _policy(problem, c, limits, exact)
        decrease = -lengths * (policy.slope + 0.5 * lengths * policy.curvature)
        scale = jnp.maximum(c.cost, tolerance * c.history[0])
        converged = (decrease[0] <= tolerance**2 * scale) & (c.damping <= least)
        costs = _costs(problem, c, limits, policy, lengths)

        # Rounding of the residuals, which may be small differences of numbers as large as the first
        # ones, hides small changes of the cost. Whole steps are then good while they get shorter.
        rounding = 4.0 * eps * jnp.sqrt(c.cost * c.history[0])
        quiet = (decrease[0] <= rounding) & (c.damping <= FIRST_DAMPING)
        stale = jnp.where(quiet & (decrease[0] < c.smallest), 0, c.stale + quiet.astype(jnp.int32))
        smallest = jnp.where(quiet, jnp.minimum(decrease[0], c.smallest), c.smallest)

        good = costs <= c.cost - 1e-4 * decrease + rounding
        lowest = jnp.min(jnp.where(good, costs, jnp.inf))
        best = jnp.argmax(good & (costs <= lowest + rounding))
        length = jnp.where(jnp.any(good), lengths[best], 0.0)
        stepped = (length > 0) & ~converged & (c.passes < iterations)
        new = *_tried(problem, c, limits, policy, lengths[best]), costs[best]
        old = c.states, c.commands, c.cost
        states, commands, cost = jax.tree.map(lambda x, y: jnp.where(stepped, x, y), new, old)

        less = jnp.where(c.damping > FIRST_DAMPING, 0.1 * c.damping, least)
        more = jnp.maximum(10.0 * c.damping, FIRST_DAMPING)
        damping = jnp.where(length >= 0.5, less, jnp.where(length > 0.1, c.damping, more))
        status = jnp.where(damping > LARGEST_DAMPING, NO_DESCENT, c.status)
        status = jnp.where(stale == PATIENCE, ROUNDING, status)
        status = jnp.where(converged, CONVERGED, status)
        later = jnp.arange(iterations + 1, dtype=jnp.int32) > c.passes
        history = jnp.where(later, cost, c.history)
        passes = c.passes + (~converged).astype(jnp.int32)
        return _Carry(states, commands, cost, damping, status, passes, history, smallest, stale)

    states, commands, cost = roll_out(problem, start, clipped(guess, limits), open_loop, scan)
    status = jnp.where(jnp.isfinite(cost), RUNNING, NOT_FINITE).astype(jnp.int32)
    zero, infinity = jnp.zeros_like(status), jnp.full_like(cost, jnp.inf)
    history, damping = jnp.full(iterations + 1, cost), jnp.full_like(cost, least)
    begin = _Carry(states, commands, cost, damping, status, zero, history, infinity, zero)
    # One more pass than steps, to say whether the last step has reached the minimum.
    end = lax.while_loop(lambda c: (c.status == RUNNING) & (c.passes <= iterations), one, begin)
    count = jnp.minimum(end.passes, iterations)
    outcome = Outcome(end.status.astype(cost.dtype), count.astype(cost.dtype), end.history)
    return _at_limits(end.commands, limits), outcome


def _policy(problem: Problem, c: _Carry, limits: Limits, exact: bool) -> Policy:
    """The step from the exact model if that is convex, otherwise from that of Gauss and Newton."""
    if limits is None:
        rows, choose = jnp.ones(c.commands.shape, bool), held
    else:
        rows, choose = (limits[0] - c.commands, limits[1] - c.commands), in_box

    def by_kernel() -> Policy:
        return _policies(problem, c, rows, choose, exact)

    def by_scan() -> Policy:
        models = [gauss_newton(problem, c.states, c.commands)]
        if exact:
            models = [newton(problem, models[0], c.states, c.commands), *models]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *models)
        return jax.vmap(lambda model: backward(model, c.damping, rows, choose))(stacked)

    on_cpu = jax.default_backend() == "cpu"  # on a GPU the kernel has not been measured
    policies = fused.if_possible(by_kernel, by_scan) if on_cpu else by_scan()
    first = jnp.argmax(jnp.isfinite(policies.slope) & (policies.slope <= 0))
    return jax.tree.map(lambda x: x[first], policies)


def _policies(
    problem: Problem, c: _Carry, rows: Any, choose: Callable[..., Any], exact: bool
) -> Policy:
    """The policies of the models, in one kernel that linearises each sample where it needs it.

    The linear model of a path is several times as large as the path and its policy, and to write
    and read it takes longer than to compute it.
    """
    before, after, last = _ends(c.states)
    v, v_v = _linearised_end(problem, last)
    hessians = [_curvature_end(problem, last), v_v] if exact else [v_v]

    def sample(carry: Any, row: Any) -> tuple[Any, Policy]:
        costate, values = carry
        of_sample, row = row
        transition, gradient, hessian = _linearised(problem, *of_sample)
        hessians = [_curvature(problem, *of_sample, costate), hessian] if exact else [hessian]
        pairs = [
            improved(value, (transition, gradient, hessian), c.damping, row, choose)
            for value, hessian in zip(values, hessians, strict=True)
        ]
        values, policies = zip(*pairs, strict=True)
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *policies)
        return (_costate(costate, transition, gradient), values), stacked

    backwards = functools.partial(jax.tree.map, lambda x: x[::-1])
    numbers = jnp.arange(len(c.commands))
    stages = backwards(((numbers, before, after, c.commands), rows))
    begin = v, tuple((v, hessian) for hessian in hessians)
    policies = backwards(scan(sample, begin, stages, engine="fused")[1])
    return jax.vmap(summed)(jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), policies))


def _tried(
    problem: Problem, c: _Carry, limits: Limits, policy: Policy, length: Array
) -> tuple[State, Array]:
    """States and commands after a step of this length."""
    start, rows = _followed(c, limits, policy)
    command = functools.partial(_command, length)
    return roll_out(problem, start, rows, command, scan)[:2]


def _costs(problem: Problem, c: _Carry, limits: Limits, policy: Policy, lengths: Array) -> Array:
    """The costs of steps of these lengths, side by side in one kernel that keeps no states."""
    start, rows = _followed(c, limits, policy)

    def sample(carry: tuple[State, Array], numbered: Any) -> tuple[tuple[State, Array], None]:
        k, row = numbered

        def one(length: Array, state: State, cost: Array) -> tuple[State, Array]:
            after, residuals = problem.stage(k, state, _command(length, state, row))
            return after, cost + _half_square(residuals)

        return jax.vmap(one)(lengths, *carry), None

    def many(x: Array) -> Array:
        return jnp.broadcast_to(x, (len(lengths), *x.shape))

    begin = jax.tree.map(many, start), jnp.zeros_like(lengths)
    ends, costs = scan(sample, begin, (jnp.arange(len(c.commands)), rows))[0]
    return costs + jax.vmap(lambda end: _half_square(problem.final(end)))(ends)


def _followed(c: _Carry, limits: Limits, policy: Policy) -> tuple[State, Any]:
    """The start and the rows of ``_command``."""
    start = jax.tree.map(lambda x: x[0], c.states)
    return start, (c.commands, _ends(c.states)[0], policy.change, policy.gains, limits)


def _command(length: Array, state: State, row: Any) -> Array:
    """The command of a sample in a step of this length."""
    u, planned, d, gain, limits = row
    return clipped(u + length * d - matvec(gain, local(planned, state)), limits)


def has_converged(status: Array) -> Array:
    """Whether an iteration with this status has ended at a minimum."""
    return (status == CONVERGED) | (status == ROUNDING)


def clipped(commands: Array, limits: Limits) -> Array:
    """The commands (m,) or (samples, m), moved to the limits of their shape that they exceed."""
    return commands if limits is None else jnp.clip(commands, *limits)


def free_of(commands: Array, limits: Limits) -> Array:
    """Which commands are at no limit, an array of booleans."""
    if limits is None:
        return jnp.ones(commands.shape, bool)
    return (commands > limits[0]) & (commands < limits[1])


def _at_limits(commands: Array, limits: Limits) -> Array:
    """The commands, exactly at a limit where they differ from it by rounding."""
    if limits is not None:
        eps = 8.0 * float(jnp.finfo(commands.dtype).eps)
        for limit in limits:
            near = jnp.abs(commands - limit) <= eps * (jnp.abs(commands) + jnp.abs(limit))
            commands = jnp.where(near & jnp.isfinite(limit), limit, commands)
    return commands


Functions = tuple[Callable[..., Any], Callable[..., Any]]
"""``stage`` and ``final`` of a Problem, called with the arrays that they close over, too."""


def _problem(functions: Functions, constants: Any) -> Problem:
    stage, final = functions
    return Problem(
        lambda k, state, command: stage(k, state, command, *constants[0]),
        lambda state: final(state, *constants[1]),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def optimum(
    functions: Functions,
    settings: Settings,
    constants: Any,
    start: State,
    limits: Limits,
    guess: Array,
) -> tuple[Array, Outcome]:
    """``minimise``, differentiable by constants, start and limits; the guess does not count."""
    problem = _problem(functions, constants)
    return minimise(problem, start, limits, guess, settings)


@optimum.defjvp
def _optimum_jvp(
    functions: Functions, settings: Settings, primals: Any, tangents: Any
) -> tuple[Any, Any]:
    commands, outcome = optimum(functions, settings, *primals)
    constants, start, limits, _ = primals
    free = free_of(commands, limits)

    def gradient(constants: Any, start: State, limits: Limits) -> tuple[Array, Array]:
        problem, at = _problem(functions, constants), commands
        if limits is not None:
            at = jnp.where(free, at, jnp.where(at >= limits[1], limits[1], limits[0]))
        return jax.grad(lambda u: roll_out(problem, start, u, open_loop)[2])(at), at

    _, (force, moved) = jax.jvp(gradient, (constants, start, limits), tangents[:3])
    problem = _problem(functions, constants)
    states = roll_out(problem, start, commands, open_loop)[0]
    model = newton(problem, gauss_newton(problem, states, commands), states, commands)
    linear = jnp.concatenate([jnp.zeros_like(model.gradient[:, : -force.shape[1]]), force], axis=1)
    v, v_v = model.end
    model = model._replace(gradient=linear, end=(jnp.zeros_like(v), v_v))
    change = jnp.where(free, forward(model, backward(model, 0.0, free, held)), moved)
    # A product, not a choice: in reverse mode, too, what did not converge must not give numbers.
    change = change * jnp.where(has_converged(outcome.status), 1.0, jnp.nan)
    return (commands, outcome), (change, jax.tree.map(jnp.zeros_like, outcome))


def _half_square(residuals: Array) -> Array:
    return 0.5 * square(residuals)


def _squared(jacobian: Array, residuals: Array) -> tuple[Array, Array]:
    """Gradient and Gauss-Newton Hessian of half the sum of squares."""
    return matvec(jacobian.T, residuals), product(jacobian.T, jacobian)


def _zeros(state: State, *command: Array) -> Array:
    return jnp.zeros(error_size(state) + sum(u.size for u in command), state.q.dtype)


def _ends(states: State) -> tuple[State, State, State]:
    """The states before the samples and after them, and the last one."""
    parts = (slice(None, -1), slice(1, None), -1)
    before, after, last = (jax.tree.map(lambda x, i=i: x[i], states) for i in parts)
    return before, after, last
